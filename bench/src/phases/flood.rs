//! One principal floods: what another one, who works quietly, notices of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;

use super::unary::nanoseconds;
use crate::bench::{Bench, until_ns};
use crate::clock;
use crate::drive::{Connection, Line, Tally, Target, Window, call};
use crate::histogram::Delays;
use crate::load::{TurnLoad, ends, script, stream_once, turns};
use crate::number::float;
use crate::results::Flood;
use crate::servers::{Kind, Limits, Server};
use crate::stand_in::Script;

/// The quiet one: streams, and now and then a turn.
const STREAMS: u64 = 8;
const CLIENTS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(200);
const FLOODING: u64 = 64;
const FLOODER: usize = 1;

#[derive(Debug, Default)]
struct Flooded {
    sent: AtomicU64,
    refused: AtomicU64,
}

pub(super) async fn run(bench: &Bench, found: &mut Vec<Flood>) -> Result<()> {
    for _ in 0..bench.scaled(5, 1) {
        let server = bench.server_with(Kind::Longshore, Limits::Default, &[]).await?;
        found.push(measure(bench, &server).await);
        server.stop().await;
    }
    Ok(())
}

async fn measure(bench: &Bench, server: &Server) -> Flood {
    let length = bench.seconds(15, 4);
    let (calm_turns, calm_deltas) = quiet(bench, server, length).await;
    let flooded = Arc::new(Flooded::default());
    let end = clock::monotonic_ns() + nanoseconds(length) + 1_500_000_000;
    let clients: Vec<_> = (0..FLOODING)
        .map(|_| {
            let target = server.target_of(Line::V1, FLOODER);
            bench.tasks.spawn("client", flood(target, bench.key(), end, Arc::clone(&flooded)))
        })
        .collect();
    let (flooded_turns, flooded_deltas) = quiet(bench, server, length).await;
    for client in clients {
        client.abort();
    }
    Flood {
        calm_turns,
        flooded_turns,
        calm_deltas,
        flooded_deltas,
        flood_per_second: float(flooded.sent.load(Ordering::Relaxed)) / length.as_secs_f64(),
        flood_refused: flooded.refused.load(Ordering::Relaxed),
    }
}

/// The delays of the quiet one's turns and deltas.
async fn quiet(bench: &Bench, server: &Server, length: Duration) -> (Delays, Delays) {
    let from_ns = clock::monotonic_ns() + 1_000_000_000;
    let window = Window { from_ns, to_ns: from_ns + nanoseconds(length) };
    let tally = Arc::new(Tally::default());
    tally.lock().window = window;
    let streams = (0..STREAMS).map(|_| {
        let script = Script { deltas: (length.as_secs() + 1) * 10, rate: 10, ..script(bench, server) };
        let (target, tally) = (server.target(Line::V1), Arc::clone(&tally));
        bench.tasks.spawn("client", async move { stream_once(&target, &script, tally).await })
    });
    let streams = streams.collect();
    let load = TurnLoad { clients: CLIENTS, deltas: 1, pause: PAUSE, window };
    let counted = turns(bench, &server.target(Line::V1), load).await;
    until_ns(window.to_ns).await;
    ends(streams, Duration::from_secs(30)).await;
    let counts = tally.lock();
    (counted.delays.delays(), counts.delays.delays())
}

/// Sends without a pause, and waits for nothing but the answer to each.
async fn flood(target: Target, name: String, end: u64, flooded: Arc<Flooded>) {
    let mut connection = None;
    let mut number = 0_u64;
    while clock::monotonic_ns() < end {
        number += 1;
        let request = target.send(&format!("m-{name}-{number}"), &Script::default().to_string(), false);
        let open = match connection.take() {
            Some(open) => Ok(open),
            None => Connection::open(target.address).await,
        };
        let Ok(mut open) = open else { continue };
        let Ok(reply) = call(&mut open, &request).await else { continue };
        connection = Some(open);
        flooded.sent.fetch_add(1, Ordering::Relaxed);
        if reply.refusal().is_some() {
            flooded.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}
