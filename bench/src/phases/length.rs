//! Processor time per delta over the length of a task: flat, or growing with what is there already.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::time::{MissedTickBehavior, interval};

use crate::bench::Bench;
use crate::drive::{ProtocolVersion, Tally, Window};
use crate::load::{check, ends, script, stream_once};
use crate::number::float;
use crate::proc::CpuSample;
use crate::results::Length;
use crate::servers::{Kind, Server};
use crate::stand_in::Script;

/// How often processor time and deltas are looked at together.
const LOOK: Duration = Duration::from_millis(100);

struct Work {
    deltas: u64,
    streams: u64,
    waves: u64,
    rate: u64,
}

pub(super) async fn run(bench: &Bench, kind: Kind, found: &mut Vec<Length>) -> Result<()> {
    // As many deltas in all, whatever the length; less for the peer, which is slower.
    let lengths: &[u64] = match kind {
        Kind::Longshore => bench.scaled(&[100, 1_000, 10_000], &[100, 1_000]),
        Kind::Peer => bench.scaled(&[100, 500, 1_000], &[100]),
    };
    let longest = lengths.iter().copied().max().unwrap_or_default();
    let (streams, rate) = match kind {
        Kind::Longshore => (10, 250),
        Kind::Peer => (2, 50),
    };
    for deltas in lengths.iter().copied() {
        let server = bench.server(kind).await?;
        let measured =
            measure(bench, &server, &Work { deltas, streams, waves: longest / deltas, rate }).await;
        server.stop().await;
        found.push(measured?);
    }
    Ok(())
}

async fn measure(bench: &Bench, server: &Server, work: &Work) -> Result<Length> {
    let tally = Arc::new(Tally::default());
    tally.lock().window = Window { from_ns: 0, to_ns: u64::MAX };
    let patience = Duration::from_secs(work.deltas / work.rate + bench.scaled(90, 30));
    let before = bench.meter(server)?;
    let pid = server.pid();
    let watched = Arc::clone(&tally);
    let begin = CpuSample::of(pid)?;
    let watch = bench.spawn("watch", async move {
        let mut looks = Vec::new();
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let Ok(sample) = CpuSample::of(pid) else { return looks };
            looks.push((watched.lock().deltas, sample.since(&begin)));
            // Whoever aborts this has no use for the list, so it is ended by a window that is over.
            if watched.lock().window.to_ns == 0 {
                return looks;
            }
        }
    });
    let mut outcomes = Vec::new();
    for _ in 0..work.waves {
        let clients = (0..work.streams).map(|_| {
            let script = Script { deltas: work.deltas, rate: work.rate, ..script(bench, server) };
            let (target, tally) = (server.target(ProtocolVersion::V1), Arc::clone(&tally));
            bench.spawn("client", async move { stream_once(&target, &script, tally).await })
        });
        outcomes.extend(ends(clients.collect(), patience).await);
    }
    let costs = bench.meter(server)?.since(&before);
    tally.lock().window.to_ns = 0;
    let looks = watch.await?;
    let counts = tally.lock().clone();
    let checked = check(bench, server, ProtocolVersion::V1, &outcomes).await?;
    let all = counts.deltas.max(1);
    let tenth = |from: u64, to: u64| (work.waves == 1).then(|| between(&looks, from, to));
    Ok(Length {
        deltas: work.deltas,
        streams: work.streams,
        waves: work.waves,
        rate: work.rate,
        cpu_us_per_delta: costs.server_ms * 1e3 / float(all),
        // The very first ones have the start of the turn with them.
        first_tenth_us: tenth(all / 50, all / 10).flatten(),
        last_tenth_us: tenth(all - all / 10, all - all / 50).flatten(),
        delays: counts.delays.delays(),
        completed: checked.completed,
        equal: checked.equal,
        costs,
    })
}

/// Microseconds per delta between two counts of deltas.
fn between(looks: &[(u64, u64)], from: u64, to: u64) -> Option<f64> {
    let at = |count: u64| looks.iter().find(|(deltas, _)| *deltas >= count);
    let ((first, cpu_first), (last, cpu_last)) = (at(from)?, at(to)?);
    (last > first).then(|| float(cpu_last - cpu_first) / 1e3 / float(last - first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_of_a_part_is_that_between_two_looks() {
        let looks = [(0, 1_000), (100, 11_000), (200, 41_000)];
        assert_eq!(between(&looks, 1, 150), Some(0.3));
        assert_eq!(between(&looks, 150, 160), None);
        assert_eq!(between(&looks, 0, 300), None);
    }
}
