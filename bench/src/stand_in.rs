//! A fast stand-in for OpenCode: the endpoints that a gateway uses, in the shapes of the recordings, for thousands of
//! sessions at once. What a turn says, and how fast, stands in the text of its prompt ([`Script`]).
//!
//! One thread does everything: it shares the machine with what is measured.

mod bus;
mod ids;
mod routes;
mod script;
mod server;
mod session;
mod world;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_engine::Tasks;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

pub use self::script::Script;
use self::world::World;
use crate::clock;

const HEARTBEAT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Shared {
    world: Mutex<World>,
    something_to_do: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, World> {
        // One thread does everything, and ends with the first panic.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.something_to_do.notify_one();
    }
}

/// Serves until the future is dropped.
pub async fn serve(listener: TcpListener, tasks: &Tasks) {
    let shared = Arc::new(Shared::default());
    tasks.spawn("stand-in", server::serve(Arc::clone(&shared), listener, tasks.clone()));
    let mut heartbeat = Instant::now() + HEARTBEAT;
    loop {
        let next = shared.lock().advance();
        let wait = next.map(|at| Duration::from_nanos(at.saturating_sub(clock::monotonic_ns())));
        let until = wait.map_or(heartbeat, |wait| (Instant::now() + wait).min(heartbeat));
        tokio::select! {
            () = shared.something_to_do.notified() => {}
            () = sleep_until(until) => {}
        }
        if Instant::now() >= heartbeat {
            heartbeat += HEARTBEAT;
            shared.lock().bus.heartbeat();
        }
    }
}

#[cfg(test)]
mod tests;
