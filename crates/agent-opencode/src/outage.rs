//! Detects outages of OpenCode, and logs their beginning and end.
//!
//! The supervisor of a managed OpenCode reports when the process ends and when the next one responds. An attached OpenCode is
//! probed when a call or a stream breaks, until it responds again.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_engine::Tasks;
use tokio::time::{sleep, timeout};

use crate::address::Address;
use crate::client::{Client, Probe};
use crate::reader::Readers;

/// How long an OpenCode that was up may take to respond to a probe before it counts as possibly restarted. Its one thread may be
/// busy.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);

/// If OpenCode is busy for longer than this, its open calls are given up: their results are looked up, and they are not repeated.
pub(crate) const LONGEST_BUSY: Duration = Duration::from_mins(1);

const UNREACHABLE: &str = "OpenCode cannot be reached.";

/// How long an OpenCode that may be starting may take to respond to a probe. This is short, because OpenCode never responds to a
/// request that arrives before it is ready.
const START_PATIENCE: Duration = Duration::from_millis(500);

/// The pause between two probes.
const PROBE_PAUSE: Duration = Duration::from_millis(100);

/// How long after failing calls an outage is noticed at the latest.
pub(crate) const NOTICED_WITHIN: Duration = Duration::from_millis(600);

/// The length from which an outage is logged, at its beginning. By then all turns that need OpenCode wait for it.
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

/// Logs outages. Both the beginning and the end are warnings, so that each log level shows both or neither.
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
    loop {
        client.outage_suspected().await;
        probe_until_up(client.address(), |patience| client.probe(patience)).await;
    }
}

/// Probes OpenCode until it is up. A call to a process that ended, or that was just starting, never gets a response, so the return
/// of OpenCode ends all open calls. A process that was only busy responds late to its calls, and also to the first probe.
async fn probe_until_up<F: Future<Output = Probe>>(address: &Address, probe: impl Fn(Duration) -> F) {
    let mut first = pin!(probe(LONGEST_BUSY));
    let mut may_be_busy = match timeout(BUSY_PATIENCE, first.as_mut()).await {
        // Only a single connection broke.
        Ok(Probe::Response) => return,
        Ok(Probe::Unreachable) => {
            address.set_down(UNREACHABLE);
            false
        }
        Ok(Probe::NoResponse) => false,
        Err(_) => true,
    };
    let mut patience = START_PATIENCE;
    loop {
        let next = async {
            sleep(PROBE_PAUSE).await;
            probe(patience).await
        };
        let found = tokio::select! {
            biased;
            late = first.as_mut(), if may_be_busy => {
                may_be_busy = false;
                match late {
                    Probe::Response => return,
                    Probe::Unreachable => address.set_down(UNREACHABLE),
                    Probe::NoResponse => {}
                }
                continue;
            }
            found = next => found,
        };
        match found {
            Probe::Response => {
                let was_busy = may_be_busy && timeout(BUSY_PATIENCE, first).await == Ok(Probe::Response);
                if !was_busy {
                    address.set_up();
                }
                return;
            }
            Probe::Unreachable => {
                may_be_busy = false;
                address.set_down(UNREACHABLE);
            }
            Probe::NoResponse => {}
        }
        // The timeout grows, because the network path to OpenCode may be slow.
        patience = BUSY_PATIENCE.min(patience * 2);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::{Instant, sleep_until};

    use super::*;

    /// Probes an OpenCode that responds after `busy`. With `swallows`, it does not respond to the first probe.
    async fn probed(busy: Duration, swallows: bool) -> (u32, Duration) {
        let address: Address = "http://host".parse().unwrap();
        let (run, began, probes) = (address.location().run, Instant::now(), Cell::new(0));
        probe_until_up(&address, |patience| {
            probes.set(probes.get() + 1);
            let is_swallowed = swallows && probes.get() == 1;
            async move {
                let answer = async {
                    sleep_until(began + busy).await;
                    if is_swallowed {
                        std::future::pending::<()>().await;
                    }
                };
                match timeout(patience, answer).await {
                    Ok(()) => Probe::Response,
                    Err(_) => Probe::NoResponse,
                }
            }
        })
        .await;
        (address.location().run - run, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_opencode_keeps_its_calls_and_one_that_was_starting_loses_them() {
        for (busy, swallows, new_runs, within) in [(0, false, 0, 1), (20, false, 0, 21), (0, true, 1, 8)] {
            let (runs, took) = probed(Duration::from_secs(busy), swallows).await;
            assert_eq!(runs, new_runs, "busy for {busy} s, swallows: {swallows}");
            assert!(took <= Duration::from_secs(within), "{took:?}");
        }
    }

    /// Connecting takes longer than the gateway waits for a busy OpenCode, and later probes give up before the attempt fails.
    #[tokio::test(start_paused = true)]
    async fn an_opencode_whose_first_probe_finds_no_connection_late_is_down() {
        let address: Address = "http://host".parse().unwrap();
        let probing = probe_until_up(&address, |patience| async move {
            sleep(patience.min(BUSY_PATIENCE * 2)).await;
            if patience == LONGEST_BUSY { Probe::Unreachable } else { Probe::NoResponse }
        });
        tokio::select! {
            () = probing => panic!("nothing responds"),
            down = timeout(LONGEST_BUSY, address.until_down()) => assert!(down.is_ok(), "the outage is noticed"),
        }
    }
}
