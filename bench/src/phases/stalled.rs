//! Readers that do not read: what they cost, and whether the others notice.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::sleep;

use crate::bench::{Bench, until_ns};
use crate::clock;
use crate::drive::{Connection, Line, Tally, Window, call};
use crate::histogram::Delays;
use crate::load::{ends, script, stream_once};
use crate::proc::Memory;
use crate::results::Stalled;
use crate::servers::{Kind, Server};
use crate::stand_in::Script;

/// Tasks that the stalled readers are readers of.
const TASKS: u64 = 10;
const HEALTHY: u64 = 32;
/// What the kernel keeps for a reader: as little as it can be told.
const KERNEL_BYTES: u32 = 4096;
/// Large and many, so that what can be filled is filled soon.
const RATE: u64 = 20;
const SIZE: usize = 1024;

pub(super) async fn run(bench: &Bench) -> Result<Stalled> {
    let server = bench.server(Kind::Longshore).await?;
    let measured = measure(bench, &server).await;
    server.stop().await;
    measured
}

async fn measure(bench: &Bench, server: &Server) -> Result<Stalled> {
    let readers = bench.scaled(1_000, 50);
    let (calm, fill, minute) = (bench.seconds(20, 3), bench.seconds(30, 5), bench.seconds(60, 5));
    // Longer than all that follows.
    let life = (calm + fill + minute).as_secs() + 60;
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let script = Script { deltas: life * RATE, rate: RATE, size: SIZE, ..script(bench, server) };
        tasks.push(begin(server, &script).await?);
    }
    let before = healthy(bench, server, calm).await;
    let mut stalled = Vec::new();
    for number in 0..readers {
        let mut connection = Connection::narrow(server.address, KERNEL_BYTES).await?;
        let task = &tasks[usize::try_from(number % TASKS)?];
        connection.write(&server.target(Line::V1).subscribe(task)).await?;
        stalled.push(connection);
    }
    sleep(fill).await;
    let filled = Memory::of(server.pid())?;
    let samples = async {
        let mut samples = Vec::new();
        for _ in 0..minute.as_secs() {
            sleep(Duration::from_secs(1)).await;
            samples.push(Memory::of(server.pid())?.anonymous_kb);
        }
        anyhow::Ok(samples)
    };
    let (during, samples) = tokio::join!(healthy(bench, server, minute), samples);
    let later = Memory::of(server.pid())?;
    drop(stalled);
    Ok(Stalled {
        readers,
        healthy: HEALTHY,
        before,
        during,
        filled,
        later,
        seconds: minute.as_secs_f64(),
        anonymous_kb: samples?,
    })
}

/// Starts a task that nobody waits for, and gives its id.
async fn begin(server: &Server, script: &Script) -> Result<String> {
    let target = server.target(Line::V1);
    let mut connection = Connection::open(server.address).await?;
    let request = target.send(&format!("m-{}", script.key), &script.to_string(), false);
    let reply = call(&mut connection, &request).await?;
    let task = reply.task().with_context(|| format!("no task: {}", String::from_utf8_lossy(&reply.body)))?;
    Ok(task["id"].as_str().unwrap_or_default().to_owned())
}

/// The delay of some streams that are read.
async fn healthy(bench: &Bench, server: &Server, window: Duration) -> Delays {
    let tally = Arc::new(Tally::default());
    let from_ns = clock::monotonic_ns() + 1_000_000_000;
    let to_ns = from_ns + u64::try_from(window.as_nanos()).unwrap_or_default();
    tally.lock().window = Window { from_ns, to_ns };
    let clients = (0..HEALTHY).map(|_| {
        let script = Script { deltas: (window.as_secs() + 1) * 10, rate: 10, ..script(bench, server) };
        let (target, tally) = (server.target(Line::V1), Arc::clone(&tally));
        bench.tasks.spawn("client", async move { stream_once(&target, &script, tally).await })
    });
    let clients = clients.collect();
    until_ns(to_ns).await;
    ends(clients, Duration::from_secs(30)).await;
    let counts = tally.lock();
    counts.delays.delays()
}
