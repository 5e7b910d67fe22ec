//! Half the load for a long time: memory, open files and the database must not grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::bench::Bench;
use crate::drive::{Outcome, ProtocolVersion, Tally, Window};
use crate::load::{script, stream_once};
use crate::number::float;
use crate::proc::{self, Memory};
use crate::results::SoakSample;
use crate::servers::{Kind, Limits, Server};
use crate::stand_in::Script;

/// Streams of ten seconds, one after the other: half of the thousand that the gateway must handle.
const STREAMS: u64 = 500;
const DELTAS: u64 = 100;
const RATE: u64 = 10;
/// The timeout of a stream, which itself takes ten seconds.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct Turns {
    right: AtomicU64,
    wrong: AtomicU64,
}

pub(super) async fn run(bench: &Bench, found: &mut Vec<SoakSample>) -> Result<()> {
    // A task is kept at least as long as the idempotency key of its message.
    let keep = [
        ("LONGSHORE_FOLD_AFTER", "60"),
        ("LONGSHORE_KEEP_TASKS", "120"),
        ("LONGSHORE_IDEMPOTENCY_WINDOW", "60"),
    ];
    let server = bench.server_with(Kind::Longshore, Limits::Off, &keep).await?;
    let measured = measure(bench, &server, found).await;
    server.stop().await;
    measured
}

async fn measure(bench: &Bench, server: &Server, found: &mut Vec<SoakSample>) -> Result<()> {
    let (turns, tally) = (Arc::new(Turns::default()), Arc::new(Tally::default()));
    let begin = Instant::now();
    let end = begin + bench.seconds(20 * 60, 15);
    let streams = bench.scaled(STREAMS, 20);
    let clients: Vec<_> = (0..streams)
        .map(|number| {
            let (target, tally, turns) =
                (server.target(ProtocolVersion::V1), Arc::clone(&tally), Arc::clone(&turns));
            let first = script(bench, server);
            bench.spawn("client", async move {
                // Spread over the ten seconds of a stream.
                tokio::time::sleep(Duration::from_millis(number * 10_000 / STREAMS)).await;
                let mut count = 0_u64;
                while Instant::now() < end {
                    count += 1;
                    let key = format!("{}n{count}", first.key);
                    let script = Script { key, deltas: DELTAS, rate: RATE, ..first.clone() };
                    let is_right =
                        ends_right(PATIENCE, stream_once(&target, &script, Arc::clone(&tally))).await;
                    let counter = if is_right { &turns.right } else { &turns.wrong };
                    counter.fetch_add(1, Ordering::Relaxed);
                    if !is_right {
                        // Do not ask a refusing server as fast as it can refuse.
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            })
        })
        .collect();
    let mut ticks = interval(bench.seconds(10, 3));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while Instant::now() < end {
        ticks.tick().await;
        let delays = {
            let mut counts = tally.lock();
            counts.window = Window { from_ns: 0, to_ns: u64::MAX };
            std::mem::take(&mut counts.delays).delays()
        };
        found.push(SoakSample {
            at_s: float(u64::try_from(begin.elapsed().as_millis())?) / 1e3,
            streams,
            memory: Memory::of(server.pid())?,
            open_files: proc::open_files(server.pid()),
            database_bytes: server.database_bytes(),
            turns: turns.right.load(Ordering::Relaxed),
            wrong: turns.wrong.load(Ordering::Relaxed),
            delays,
        });
    }
    for client in clients {
        client.abort();
    }
    Ok(())
}

/// Whether a stream ends in time with its complete text.
async fn ends_right(patience: Duration, stream: impl Future<Output = Outcome>) -> bool {
    timeout(patience, stream).await.is_ok_and(|outcome| outcome.is_whole(DELTAS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stream_that_hangs_is_wrong() {
        assert!(!ends_right(Duration::from_millis(1), std::future::pending()).await);
    }
}
