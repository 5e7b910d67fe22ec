//! Whole turns: each client sends a message, waits for the end of the task, and sends the next message.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::bench::Bench;
use crate::clock;
use crate::drive::{Reply, Target, Window, call_reusing};
use crate::histogram::Histogram;
use crate::stamp;
use crate::stand_in::Script;

/// Turns of several clients, each with one turn after the other in new conversations.
#[derive(Clone, Copy, Debug)]
pub struct TurnLoad {
    pub clients: u64,
    pub deltas: u64,
    /// The pause between two turns of a client.
    pub pause: Duration,
    /// Turns that end in this time are counted; then all clients stop.
    pub window: Window,
}

/// Turns that ended in the window.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    pub turns: u64,
    /// Turns that were refused, or ended with a wrong text.
    pub wrong: u64,
    /// The answer to the first wrong turn.
    pub example: Option<String>,
    pub delays: Histogram,
}

pub async fn turns(bench: &Bench, target: &Target, load: TurnLoad) -> Counted {
    let counted = Arc::new(Mutex::new(Counted::default()));
    let clients: Vec<_> = (0..load.clients)
        .map(|number| {
            let (target, counted) = (target.clone(), Arc::clone(&counted));
            let name = format!("{}c{number}", bench.key());
            bench.spawn("client", client(target, name, load, counted))
        })
        .collect();
    for client in clients {
        // A client that panicked has no result.
        let _ = client.await;
    }
    let counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
    counted.clone()
}

async fn client(target: Target, name: String, load: TurnLoad, counted: Arc<Mutex<Counted>>) {
    let mut connection = None;
    let mut number = 0_u64;
    while clock::monotonic_ns() < load.window.to_ns {
        number += 1;
        let script = Script { deltas: load.deltas, ..Script::default() };
        let request = target.send(&format!("m-{name}-{number}"), &script.to_string(), true);
        let begun = clock::monotonic_ns();
        let answered = call_reusing(&mut connection, target.address, &request).await;
        let now = clock::monotonic_ns();
        if (load.window.from_ns..load.window.to_ns).contains(&now) {
            let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
            if answered.as_ref().is_ok_and(|reply| is_right(reply, load.deltas)) {
                counted.turns += 1;
                counted.delays.record(now - begun);
            } else {
                counted.wrong += 1;
                let text = || match &answered {
                    Ok(reply) => String::from_utf8_lossy(&reply.body).chars().take(300).collect(),
                    Err(error) => format!("{error:#}"),
                };
                counted.example.get_or_insert_with(text);
            }
        }
        if !load.pause.is_zero() {
            tokio::time::sleep(load.pause).await;
        }
    }
}

/// The task completed, with every delta.
fn is_right(reply: &Reply, deltas: u64) -> bool {
    let body = &reply.body;
    let completed = memchr::memmem::find(body, b"TASK_STATE_COMPLETED").is_some()
        || memchr::memmem::find(body, b"\"completed\"").is_some();
    let mut next = 0;
    for stamp in stamp::find(body) {
        next += u64::from(stamp.number == next);
    }
    completed && next == deltas
}
