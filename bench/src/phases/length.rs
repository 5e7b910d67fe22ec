//! Processor time per delta over the length of a task: constant, or growing with the text so far.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::time::{MissedTickBehavior, interval};

use crate::bench::Bench;
use crate::drive::{ProtocolVersion, Tally, Window};
use crate::load::{check, ends, spawn_streams};
use crate::number::float;
use crate::proc::CpuSample;
use crate::results::Length;
use crate::servers::{Kind, Server};

/// How often processor time and deltas are sampled together.
const SAMPLE: Duration = Duration::from_millis(100);

struct Work {
    deltas: u64,
    streams: u64,
    waves: u64,
    rate: u64,
}

pub(super) async fn run(bench: &Bench, kind: Kind, found: &mut Vec<Length>) -> Result<()> {
    // The same number of deltas for every length; fewer for the peer, which is slower.
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
        let mut samples = Vec::new();
        let mut ticks = interval(SAMPLE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let Ok(sample) = CpuSample::of(pid) else { return samples };
            samples.push((watched.lock().deltas, sample.since(&begin)));
            // An aborted task would lose its list, so that an ended window ends it.
            if watched.lock().window.to_ns == 0 {
                return samples;
            }
        }
    });
    let mut outcomes = Vec::new();
    for _ in 0..work.waves {
        let clients = spawn_streams(bench, server, work.streams, (work.deltas, work.rate), &tally);
        outcomes.extend(ends(clients, patience).await);
    }
    let costs = bench.meter(server)?.since(&before);
    tally.lock().window.to_ns = 0;
    let samples = watch.await?;
    let counts = tally.lock().clone();
    let checked = check(server, ProtocolVersion::V1, &outcomes).await?;
    let all = counts.deltas.max(1);
    let tenth = |from: u64, to: u64| (work.waves == 1).then(|| between(&samples, from, to));
    Ok(Length {
        deltas: work.deltas,
        streams: work.streams,
        waves: work.waves,
        rate: work.rate,
        cpu_us_per_delta: costs.server_ms * 1e3 / float(all),
        // The very first deltas include the start of the turn.
        first_tenth_us: tenth(all / 50, all / 10).flatten(),
        last_tenth_us: tenth(all - all / 10, all - all / 50).flatten(),
        delays: counts.delays.delays(),
        completed: checked.completed,
        equal: checked.equal,
        costs,
    })
}

/// Microseconds per delta between two counts of deltas.
fn between(samples: &[(u64, u64)], from: u64, to: u64) -> Option<f64> {
    let at = |count: u64| samples.iter().find(|(deltas, _)| *deltas >= count);
    let ((first, cpu_first), (last, cpu_last)) = (at(from)?, at(to)?);
    (last > first).then(|| float(cpu_last - cpu_first) / 1e3 / float(last - first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_part_is_that_between_two_samples() {
        let samples = [(0, 1_000), (100, 11_000), (200, 41_000)];
        assert_eq!(between(&samples, 1, 150), Some(0.3));
        assert_eq!(between(&samples, 150, 160), None);
        assert_eq!(between(&samples, 0, 300), None);
    }
}
