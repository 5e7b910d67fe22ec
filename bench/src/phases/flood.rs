//! One principal floods the server: the effect on another principal that works quietly.
//!
//! The flooding clients are a process of their own with a low priority. Outside of a bench they would be on another machine, so
//! they must not take the processor from the measured clients and the server.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::unary::nanoseconds;
use crate::bench::{Bench, until_ns};
use crate::clock;
use crate::drive::{ProtocolVersion, Tally, Target, Window, call_reusing};
use crate::load::{TurnLoad, ends, spawn_streams, turns, whole_ones};
use crate::number::float;
use crate::options;
use crate::process::Owned;
use crate::results::{Flood, Quiet};
use crate::servers::{Kind, Limits, PRINCIPALS, Server};
use crate::stand_in::Script;

/// The quiet principal: some streams, and a turn now and then.
const STREAMS: u64 = 8;
const RATE: u64 = 10;
const CLIENTS: u64 = 8;
const PAUSE: Duration = Duration::from_millis(100);
const FLOODING: u64 = 64;
const FLOODER: usize = 1;
/// The time between the start of the flood and the window of the quiet principal.
const SETTLE: Duration = Duration::from_secs(1);
/// How much later than planned a flood may end.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two attempts to connect to a server that refuses connections.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// The counts of a flood.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Flooded {
    pub seconds: f64,
    pub sent: u64,
    pub refused: u64,
    pub broken: u64,
}

#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    refused: AtomicU64,
    broken: AtomicU64,
}

pub(super) async fn run(bench: &Bench, found: &mut Vec<Flood>) -> Result<()> {
    for _ in 0..bench.scaled(5, 1) {
        let server = bench.server_with(Kind::Longshore, Limits::Default, &[]).await?;
        let calm = quiet(bench, &server).await;
        let measured = beside_flood(bench, &server).await;
        server.stop().await;
        let (flooded, flood) = measured?;
        // Each measurement is compared with one on the same server: another server has another history.
        let server = bench.server_with(Kind::Longshore, Limits::Rated, &[]).await?;
        let rated_calm = quiet(bench, &server).await;
        let measured = beside_flood(bench, &server).await;
        server.stop().await;
        let (rated, rated_flood) = measured?;
        found.push(Flood { calm, flooded, flood, rated_calm, rated, rated_flood });
    }
    Ok(())
}

/// The length of the window. If the machine pauses once, all clients of the quiet principal notice it at the same time. In a short
/// window these turns alone would be one in a hundred, and so decide the p99.
fn length(bench: &Bench) -> Duration {
    bench.seconds(25, 3)
}

async fn beside_flood(bench: &Bench, server: &Server) -> Result<(Quiet, Flooded)> {
    let counts = bench.work.join(format!("flood-{}.json", server.pid()));
    let seconds = (length(bench) + SETTLE).as_secs() + 1;
    let mut flooder = start(server, seconds, &counts)?;
    let quiet = quiet(bench, server).await;
    let deadline = Instant::now() + PATIENCE;
    while flooder.ended().is_none() && Instant::now() < deadline {
        sleep(Duration::from_millis(50)).await;
    }
    flooder.stop().await;
    let text = std::fs::read_to_string(&counts).context("the flood did not end in time")?;
    Ok((quiet, serde_json::from_str(&text)?))
}

fn start(server: &Server, seconds: u64, counts: &Path) -> Result<Owned> {
    let me = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = Command::new(me);
    command
        .args(["flood", "--server", &server.address.to_string(), "--token", PRINCIPALS[FLOODER].1])
        .args(["--clients", &FLOODING.to_string(), "--seconds", &seconds.to_string(), "--out"])
        .arg(counts)
        .stdin(Stdio::null());
    Owned::start(&mut command)
}

/// The delays of the quiet principal's turns and deltas.
async fn quiet(bench: &Bench, server: &Server) -> Quiet {
    let length = length(bench);
    let from_ns = clock::monotonic_ns() + nanoseconds(SETTLE);
    let window = Window { from_ns, to_ns: from_ns + nanoseconds(length) };
    let tally = Arc::new(Tally::default());
    tally.lock().window = window;
    let deltas = (length + SETTLE).as_secs() * RATE;
    let streams = spawn_streams(bench, server, STREAMS, (deltas, RATE), &tally);
    let load = TurnLoad { clients: CLIENTS, deltas: 1, pause: PAUSE, window };
    let counted = turns(bench, &server.target(ProtocolVersion::V1), load).await;
    until_ns(window.to_ns).await;
    let outcomes = ends(streams, Duration::from_secs(30)).await;
    let delays = tally.lock().delays.delays();
    Quiet {
        turns: counted.delays.delays(),
        wrong: counted.wrong,
        deltas: delays,
        expected: STREAMS * RATE * length.as_secs(),
        streams: STREAMS,
        whole: whole_ones(&outcomes, deltas),
    }
}

/// Floods until the time is over, and writes the counts to a file.
pub async fn flood(options: options::Flood) -> Result<()> {
    // Without a lower priority it still floods.
    let _ = rustix::process::nice(10);
    let tasks = longshore_engine::Tasks::new();
    let counters = Arc::new(Counters::default());
    let begin = clock::monotonic_ns();
    let end = begin + nanoseconds(Duration::from_secs(options.seconds));
    let target = Target { address: options.server, token: options.token, version: ProtocolVersion::V1 };
    let clients: Vec<_> = (0..options.clients)
        .map(|number| {
            let name = format!("f{}x{number}", std::process::id());
            tasks.spawn("client", send(target.clone(), name, end, Arc::clone(&counters)))
        })
        .collect();
    for client in clients {
        // The last answer may never come.
        let left = end.saturating_sub(clock::monotonic_ns()) + 2_000_000_000;
        let _ = tokio::time::timeout(Duration::from_nanos(left), client).await;
    }
    let flooded = Flooded {
        seconds: float(clock::monotonic_ns() - begin) / 1e9,
        sent: counters.sent.load(Ordering::Relaxed),
        refused: counters.refused.load(Ordering::Relaxed),
        broken: counters.broken.load(Ordering::Relaxed),
    };
    std::fs::write(options.out, serde_json::to_string(&flooded)?).context("cannot write the counts")
}

/// Sends without a pause, and waits only for the answer to each request.
async fn send(target: Target, name: String, end: u64, counters: Arc<Counters>) {
    let mut connection = None;
    let mut number = 0_u64;
    while clock::monotonic_ns() < end {
        number += 1;
        let request = target.send(&format!("m-{name}-{number}"), &Script::default().to_string(), false);
        let Ok(reply) = call_reusing(&mut connection, target.address, &request).await else {
            counters.broken.fetch_add(1, Ordering::Relaxed);
            sleep(TRY_AGAIN).await;
            continue;
        };
        counters.sent.fetch_add(1, Ordering::Relaxed);
        if reply.refusal().is_some() {
            counters.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}
