//! A fast stand-in for OpenCode. It serves the endpoints that a gateway uses, in the shapes of the recordings, for thousands
//! of sessions at once; or it is an ACP agent, which a gateway starts. The text of a prompt says what its turn sends, and how fast
//! ([`Script`]).
//!
//! One thread does all the work, because the stand-in shares the machine with the server that is measured.

mod acp;
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
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
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
    work_available: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, World> {
        // The only thread ends with its first panic, so that nothing sees the poisoned world.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.work_available.notify_one();
    }
}

/// Serves until the future is dropped.
pub async fn serve(listener: TcpListener, tasks: &Tasks) {
    let shared = Arc::new(Shared::default());
    run(shared, listener, tokio::io::sink(), tasks).await;
}

/// Is an ACP agent until its input ends. The listener answers the bench.
pub async fn serve_acp(
    listener: TcpListener,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    tasks: &Tasks,
) {
    let shared = Arc::new(Shared { world: Mutex::new(World::of_acp()), ..Shared::default() });
    tokio::select! {
        () = run(Arc::clone(&shared), listener, output, tasks) => {}
        () = acp::take_requests(shared, input) => {}
    }
}

/// Does what is due, for ever. `output` takes the lines for the ACP client. While it is full, no turn goes on, as in real agents.
async fn run(shared: Arc<Shared>, listener: TcpListener, mut output: impl AsyncWrite + Unpin, tasks: &Tasks) {
    tasks.spawn("stand-in", server::serve(Arc::clone(&shared), listener, tasks.clone()));
    let mut heartbeat = Instant::now() + HEARTBEAT;
    loop {
        let (next, lines) = {
            let mut world = shared.lock();
            (world.advance(), world.client.as_mut().map(acp::Client::take_lines).unwrap_or_default())
        };
        if output.write_all(&lines).await.is_err() {
            return;
        }
        let wait = next.map(|at| Duration::from_nanos(at.saturating_sub(clock::monotonic_ns())));
        let until = wait.map_or(heartbeat, |wait| (Instant::now() + wait).min(heartbeat));
        tokio::select! {
            () = shared.work_available.notified() => {}
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
