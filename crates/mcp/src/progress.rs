//! Sends the progress lines of a running call to the client, if the client asked for progress.

use std::time::Duration;

use longshore_peers::one_line;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::fence::bounded;

/// The most progress lines that may wait for the client. Further lines are dropped.
pub(crate) const WAITING_LINES: usize = 32;

/// The longest time between two notifications for a call that the client waits for. Many clients restart their time limit with each
/// notification.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The longest line, in bytes. The rest is left out.
const MAX_LINE: usize = 1024;

/// Forwards progress lines until the future is dropped. `token`: the client's progress token; `None` if the client asked for none.
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
        // The error means that the client has gone. It needs no progress, and the call goes on.
        let _ = peer.notify_progress(progress).await;
    }
}
