//! Turns per second: 32 clients, each with one turn after the other in new conversations.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::bench::{Bench, until_ns};
use crate::clock;
use crate::drive::{ProtocolVersion, Window};
use crate::load::{TurnLoad, turns};
use crate::number::float;
use crate::results::Unary;
use crate::servers::{Kind, Server};

pub(super) async fn run(bench: &Bench, kind: Kind, found: &mut Vec<Unary>) -> Result<()> {
    for (clients, seconds) in bench.scaled(vec![(1, 10), (32, 20)], vec![(32, 20)]) {
        let server = bench.server(kind).await?;
        let measured = measure(bench, &server, (clients, 1), bench.seconds(seconds, 3)).await;
        server.stop().await;
        found.push(measured?);
    }
    Ok(())
}

/// Turns of some clients, with some deltas each, after a warm-up.
pub(super) async fn measure(
    bench: &Bench,
    server: &Server,
    (clients, deltas): (u64, u64),
    window: Duration,
) -> Result<Unary> {
    let warm = bench.seconds(3, 1);
    let from_ns = clock::monotonic_ns() + nanoseconds(warm);
    let window = Window { from_ns, to_ns: from_ns + nanoseconds(window) };
    let load = TurnLoad { clients, deltas, pause: Duration::ZERO, window };
    let target = server.target(ProtocolVersion::V1);
    let costs = async {
        until_ns(window.from_ns).await;
        let before = bench.meter(server)?;
        until_ns(window.to_ns).await;
        anyhow::Ok(bench.meter(server)?.since(&before))
    };
    let (counted, costs) = tokio::join!(turns(bench, &target, load), costs);
    let costs = costs?;
    ensure!(counted.turns > 0, "no turn was right; the first wrong answer: {:?}", counted.example);
    Ok(Unary {
        clients,
        turns: counted.turns,
        per_second: float(counted.turns) / costs.window_s,
        cpu_ms_per_turn: costs.server_ms / float(counted.turns),
        delays: counted.delays.delays(),
        wrong: counted.wrong,
        costs,
    })
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
