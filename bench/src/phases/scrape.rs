//! The cost of scraping the metrics under load.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::{MissedTickBehavior, interval};

use super::streams::load;
use crate::bench::Bench;
use crate::clock;
use crate::drive::{Connection, ProtocolVersion, Tally, Window, call};
use crate::histogram::Histogram;
use crate::load::{ends, spawn_streams};
use crate::number::float;
use crate::results::{Costs, Scrape};
use crate::servers::{Kind, Server};

const PER_SECOND: u64 = 10;
/// Pairs of periods without and with scrapes.
const ROUNDS: u32 = 4;

pub(super) async fn run(bench: &Bench) -> Result<Scrape> {
    let server = bench.server(Kind::Longshore).await?;
    let measured = measure(bench, &server).await;
    server.stop().await;
    measured
}

async fn measure(bench: &Bench, server: &Server) -> Result<Scrape> {
    let (streams, length) = (bench.scaled(100, 10), bench.seconds(5, 2));
    let work = load(bench, streams, 10, ProtocolVersion::V1);
    let tally = Arc::new(Tally::default());
    tally.lock().window = Window { from_ns: 0, to_ns: u64::MAX };
    let deltas = (2 * ROUNDS * length + work.settle).as_secs() * work.rate + 10;
    let clients = spawn_streams(bench, server, streams, (deltas, work.rate), &tally);
    tokio::time::sleep(work.settle).await;
    // Alternating, so that changes over time affect both.
    let (mut without, mut with) = (Costs::default(), Costs::default());
    let (mut bytes, mut delays) = (0, Histogram::default());
    for _ in 0..ROUNDS {
        without.add(&during(bench, server, length).await?);
        let (costs, answers) = tokio::join!(during(bench, server, length), scrape(server, length));
        with.add(&costs?);
        let (size, waited) = answers?;
        bytes = size;
        delays.merge(&waited);
    }
    ends(clients, Duration::from_secs(30)).await;
    let per_second = |costs: &Costs| costs.server_ms / costs.window_s;
    let cpu_ms = (per_second(&with) - per_second(&without)) / float(PER_SECOND);
    Ok(Scrape { per_second: float(PER_SECOND), bytes, delays: delays.delays(), without, with, cpu_ms })
}

async fn during(bench: &Bench, server: &Server, length: Duration) -> Result<Costs> {
    let before = bench.meter(server)?;
    tokio::time::sleep(length).await;
    Ok(bench.meter(server)?.since(&before))
}

async fn scrape(server: &Server, length: Duration) -> Result<(u64, Histogram)> {
    let target = server.target(ProtocolVersion::V1);
    let mut connection = Connection::open(server.address).await?;
    let (mut bytes, mut delays) = (0, Histogram::default());
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(PER_SECOND)?);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for _ in 0..length.as_secs() * PER_SECOND {
        ticks.tick().await;
        let begun = clock::monotonic_ns();
        let reply = call(&mut connection, &target.get("/metrics")).await?;
        ensure!(reply.head.status == 200, "/metrics answers {}", reply.head.status);
        delays.record(clock::monotonic_ns() - begun);
        bytes = u64::try_from(reply.body.len())?;
    }
    Ok((bytes, delays))
}
