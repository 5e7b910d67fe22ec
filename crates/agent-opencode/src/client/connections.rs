//! The connections to OpenCode. Each run of OpenCode has its own, so that no connection to an ended process is used again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// An idle connection is closed after this time. Servers usually close idle connections after 5 s; closing earlier avoids
/// sending a prompt on a connection that the server is just closing.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);

/// How many idle connections are kept. Further connections are opened when needed and closed after use.
const IDLE_CONNECTIONS: usize = 64;

#[derive(Debug)]
pub(super) struct Connections {
    connect_timeout: Duration,
    /// The newest run that was called, and its connections.
    current: Mutex<(u32, reqwest::Client)>,
}

impl Connections {
    pub(super) fn new(connect_timeout: Duration) -> reqwest::Result<Self> {
        Ok(Self { connect_timeout, current: Mutex::new((0, build(connect_timeout)?)) })
    }

    pub(super) fn of_run(&self, run: u32) -> reqwest::Client {
        // The lock can be used after a panic, because no code that holds it panics in the middle of a change.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 < run {
            match build(self.connect_timeout) {
                Ok(http) => *current = (run, http),
                Err(error) => tracing::error!(%error, "kept the connections to an OpenCode that has ended"),
            }
        }
        current.1.clone()
    }
}

fn build(connect_timeout: Duration) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        // A proxy that the environment configures must not see prompts and the password.
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(connect_timeout)
        .tcp_nodelay(true)
        .pool_idle_timeout(IDLE_CONNECTION)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .build()
}
