//! Whole turns: each client sends a message, waits for the end of the task, and sends the next.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::bench::Bench;
use crate::clock;
use crate::drive::{Connection, Reply, Target, Window, call};
use crate::histogram::Histogram;
use crate::stamp;
use crate::stand_in::Script;

/// Turns one behind the other, in a new conversation each, by some clients beside each other.
#[derive(Clone, Copy, Debug)]
pub struct TurnLoad {
    pub clients: u64,
    pub deltas: u64,
    /// Between two turns of a client.
    pub pause: Duration,
    /// What ends in this time is counted; then all stop.
    pub window: Window,
}

/// Turns that ended in the window.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    pub turns: u64,
    /// Turns that were refused, or ended without the text that they should have had.
    pub wrong: u64,
    /// The first of them, in words.
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
        // A client that panics has nothing to say.
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
        let answered = turn(&mut connection, &target, &request).await;
        let now = clock::monotonic_ns();
        if (load.window.from_ns..load.window.to_ns).contains(&now) {
            let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
            if answered.as_ref().is_ok_and(|reply| is_right(reply, load.deltas)) {
                counted.turns += 1;
                counted.delays.record(now - begun);
            } else {
                counted.wrong += 1;
                let words = || match &answered {
                    Ok(reply) => String::from_utf8_lossy(&reply.body).chars().take(300).collect(),
                    Err(error) => format!("{error:#}"),
                };
                counted.example.get_or_insert_with(words);
            }
        }
        if !load.pause.is_zero() {
            tokio::time::sleep(load.pause).await;
        }
    }
}

/// A connection that broke is made anew for the next turn.
async fn turn(connection: &mut Option<Connection>, target: &Target, request: &[u8]) -> anyhow::Result<Reply> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => Connection::open(target.address).await?,
    };
    let reply = call(&mut open, request).await?;
    *connection = Some(open);
    Ok(reply)
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
