//! Detects outages of OpenCode, and logs their begin and end.
//!
//! The supervisor of a managed OpenCode reports when the process ends and when the next one responds. An attached OpenCode is
//! probed when a call or a stream breaks, until it responds again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_engine::Tasks;
use tokio::time::{sleep, timeout};

use crate::address::Address;
use crate::client::{Client, Probe};
use crate::reader::Readers;

/// How long an OpenCode that was up may take to respond to a probe. Its one thread may be busy.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);

/// How long an OpenCode that may be starting may take to respond to a probe. Short, because it never responds to a request that
/// arrives before it is ready.
const START_PATIENCE: Duration = Duration::from_millis(500);

/// The pause between two probes.
const PROBE_PAUSE: Duration = Duration::from_millis(100);

/// An outage is noticed within this time after calls fail.
pub(crate) const NOTICED_WITHIN: Duration = Duration::from_millis(600);

/// An outage of at least this length is logged when it begins. By then all turns that need OpenCode wait for it.
const NOTICE: Duration = Duration::from_secs(1);

/// Notices and logs outages until the gateway stops.
pub(crate) fn spawn(client: &Client, readers: &Arc<Readers>, waiting: &Arc<AtomicUsize>, tasks: &Tasks) {
    let (client, readers, waiting) = (client.clone(), Arc::clone(readers), Arc::clone(waiting));
    let stop = tasks.stopping().clone();
    tasks.spawn("opencode-outages", async move {
        let turns = || readers.turns() + waiting.load(Ordering::Relaxed);
        tokio::select! {
            () = stop.cancelled() => {}
            () = report(client.address(), turns) => {}
            () = probe(&client), if !client.address().is_supervised() => {}
        }
    });
}

/// Counts a turn as waiting until the returned guard is dropped.
pub(crate) fn count(waiting: &AtomicUsize) -> impl Drop + '_ {
    struct Counted<'a>(&'a AtomicUsize);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    waiting.fetch_add(1, Ordering::Relaxed);
    Counted(waiting)
}

/// Logs outages. Their begin and their end are both warnings, so that each log level shows both or neither.
async fn report(address: &Address, turns: impl Fn() -> usize) {
    loop {
        let outage = address.until_down().await;
        if timeout(NOTICE, address.until_up()).await.is_err() {
            let (turns, down_for) = (turns(), outage.since.elapsed());
            tracing::warn!(turns, ?down_for, reason = outage.reason, "OpenCode is down; turns wait for it");
            address.until_up().await;
        }
        let (turns, down_for) = (turns(), outage.since.elapsed());
        tracing::warn!(turns, ?down_for, "OpenCode is back; turns that waited for it continue");
    }
}

/// Probes an attached OpenCode whenever it may be down.
async fn probe(client: &Client) {
    let address = client.address();
    loop {
        client.outage_suspected().await;
        let (mut patience, mut is_first) = (BUSY_PATIENCE, true);
        loop {
            match client.probe(patience).await {
                // OpenCode responds, so only a single connection broke.
                Probe::Response if is_first => break,
                // A call that began during the outage may never get a response. A new run ends such calls.
                Probe::Response => {
                    address.set_up();
                    break;
                }
                Probe::Unreachable => address.set_down("OpenCode cannot be reached."),
                Probe::NoResponse => {}
            }
            // The timeout grows with each probe, because the network may be slow.
            patience = if is_first { START_PATIENCE } else { BUSY_PATIENCE.min(patience * 2) };
            is_first = false;
            sleep(PROBE_PAUSE).await;
        }
    }
}
