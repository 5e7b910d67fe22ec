//! Events appended to a store, by as many tasks at once as write beside each other.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use longshore_engine::Events;
use longshore_engine::port::{Append, Appended, Create, Store};
use longshore_model::{Principal, Seq};
use longshore_store::Durability;

use super::events::{AT, context_id, delta, submitted, task_id};
use super::{Work, runtime};

pub(super) fn sqlite(tasks: u64) -> Work {
    let place = Place::new();
    let store = longshore_store::sqlite(&place.0.join("bench.db"), Durability::Process);
    work(Arc::new(store.expect("a store can be made")), tasks, Some(place))
}

pub(super) fn memory() -> Work {
    work(Arc::new(longshore_store::memory()), 1, None)
}

fn work(store: Arc<dyn Store>, tasks: u64, place: Option<Place>) -> Work {
    let runtime = runtime();
    let create = |number: u64| Create {
        owner: Principal::new("bench"),
        task: task_id(number),
        context: context_id(number),
        first: submitted(number),
        at: AT,
        idempotency: None,
        directory: "/workspace".to_owned(),
        directory_named: false,
        session: None,
        claim: None,
        begun: None,
    };
    runtime.block_on(async {
        for number in 0..tasks {
            store.create(create(number)).await.expect("a task can be made");
        }
    });
    // Every task has had one event.
    let mut head = Seq(1);
    Work::new(tasks, move || {
        let _kept = &place;
        let append = |number: u64| Append {
            owner: Principal::new("bench"),
            task: task_id(number),
            expected: head,
            at: AT,
            events: Events::number(head.next(), store.epoch(), [delta()]),
            snapshot: None,
            turn: None,
            asks: Vec::new(),
            joined: None,
            forgotten: None,
        };
        let written = runtime.block_on(join_all((0..tasks).map(|number| store.append(append(number)))));
        head = Seq(head.0 + 1);
        let is_written = |appended: &Appended| *appended == Appended::Head(head);
        u64::try_from(written.into_iter().flatten().filter(is_written).count()).unwrap_or_default()
    })
}

/// A directory that goes with this.
#[derive(Debug)]
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("longshore-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory can be made");
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clear away.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
