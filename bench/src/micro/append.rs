//! Events appended to a store by several tasks at once.

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
    let directory = TemporaryDirectory::new();
    let store = longshore_store::sqlite(&directory.0.join("bench.db"), Durability::Process);
    work(Arc::new(store.expect("cannot open the store")), tasks, Some(directory))
}

pub(super) fn memory() -> Work {
    work(Arc::new(longshore_store::memory()), 1, None)
}

fn work(store: Arc<dyn Store>, tasks: u64, directory: Option<TemporaryDirectory>) -> Work {
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
        push: None,
    };
    runtime.block_on(async {
        for number in 0..tasks {
            store.create(create(number)).await.expect("cannot create a task");
        }
    });
    // Every task has one event.
    let mut head = Seq(1);
    Work::new(tasks, move || {
        let _kept = &directory;
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

/// A directory that is removed when this is dropped.
#[derive(Debug)]
struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("longshore-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("cannot create a directory");
        Self(path)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // The system clears its temporary directory if this fails.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
