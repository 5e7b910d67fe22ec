//! Sends what a running call reports to the client, if the client asked for it.

use std::time::Duration;

use longshore_peers::one_line;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::fence::bounded;

/// How many lines may wait for the client. Further ones are dropped.
pub(crate) const WAITING_LINES: usize = 32;

/// A client hears at least this often from a call that it waits for: many count their time limit from the last notification.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The longest line, in bytes. The rest is left out.
const MAX_LINE: usize = 1024;

/// Forwards the lines until the future is dropped. `token`: `None` if the client did not ask for progress.
pub(crate) async fn forward(
    mut lines: mpsc::Receiver<String>,
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
) -> std::convert::Infallible {
    let Some(token) = token else { return std::future::pending().await };
    let begun = Instant::now();
    let mut heartbeat = interval_at(begun + HEARTBEAT, HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut count = 0.0;
    loop {
        let line = tokio::select! {
            Some(line) = lines.recv() => one_line(bounded(&line, MAX_LINE)),
            _ = heartbeat.tick() => format!("waiting for {} s", begun.elapsed().as_secs()),
        };
        count += 1.0;
        let progress = ProgressNotificationParam::new(token.clone(), count).with_message(line);
        // A client that has gone needs no progress, and the call goes on.
        let _ = peer.notify_progress(progress).await;
    }
}
