//! Readers that do not read: their cost, and their effect on other readers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, until_ns};
use crate::clock;
use crate::drive::{Connection, ProtocolVersion, Tally, Window, call};
use crate::histogram::Delays;
use crate::load::{ends, script, spawn_streams, whole_ones};
use crate::proc::{self, Memory};
use crate::results::Stalled;
use crate::servers::{Kind, Server};
use crate::stand_in::Script;

/// The tasks of the stalled readers.
const TASKS: u64 = 10;
const HEALTHY: u64 = 32;
/// The kernel's buffer for a reader: the smallest possible.
const KERNEL_BYTES: u32 = 4096;
/// Many large deltas at first, so that all buffers fill soon. Then few, so that the tasks themselves, whose text is held
/// whatever their readers do, do not grow by much.
const BURST: u64 = 300;
const RATE: u64 = 1;
const SIZE: usize = 1024;
/// If the kernel's buffers have not grown for so long, they are full.
const FULL: Duration = Duration::from_secs(4);
/// If the memory has not grown for so long, it will not grow.
const STEADY: Duration = Duration::from_secs(30);

pub(super) async fn run(bench: &Bench) -> Result<Stalled> {
    let server = bench.server(Kind::Longshore).await?;
    let measured = measure(bench, &server).await;
    server.stop().await;
    measured
}

async fn measure(bench: &Bench, server: &Server) -> Result<Stalled> {
    let readers = bench.scaled(1_000, 50);
    let (calm, fill, minute) = (bench.seconds(15, 3), bench.seconds(45, 20), bench.seconds(60, 5));
    let settle = bench.seconds(90, 3);
    // The same tasks as later, but without readers. Twice, to see how much two such runs differ.
    let (mut before, mut whole) = (Vec::new(), 0);
    for _ in 0..2 {
        begin_all(bench, server, calm.as_secs()).await?;
        let (delays, all) = healthy(bench, server, calm).await;
        before.push(delays);
        whole += all;
    }
    let empty = Memory::of(server.pid())?;
    // Readers connect while the tasks are young: later each would start with all of the text so far.
    let tasks = begin_all(bench, server, (fill + settle + minute).as_secs() + 30).await?;
    let mut stalled = Vec::new();
    for number in 0..readers {
        let mut connection = Connection::narrow(server.address, KERNEL_BYTES).await?;
        let task = &tasks[usize::try_from(number % TASKS)?];
        connection.write(&server.target(ProtocolVersion::V1).subscribe(task)).await?;
        stalled.push(connection);
    }
    let (stuck, kernel_bytes) = full(server.address.port(), fill).await;
    let filled = settled(server.pid(), settle).await?;
    let samples = async {
        let mut samples = Vec::new();
        for _ in 0..minute.as_secs() {
            sleep(Duration::from_secs(1)).await;
            samples.push(Memory::of(server.pid())?.anonymous_kb);
        }
        anyhow::Ok(samples)
    };
    let ((during, all), samples) = tokio::join!(healthy(bench, server, minute), samples);
    let later = Memory::of(server.pid())?;
    // Readers that were disconnected meanwhile cost nothing, and prove nothing.
    let stuck = stuck.min(proc::unsent(server.address.port()).0);
    drop(stalled);
    Ok(Stalled {
        readers,
        stuck,
        kernel_bytes,
        healthy: HEALTHY,
        whole: whole + all,
        before,
        during,
        empty,
        filled,
        later,
        seconds: minute.as_secs_f64(),
        anonymous_kb: samples?,
    })
}

/// Waits until the kernel's buffers for the stalled readers are full. Returns how many readers have waiting bytes, and how many
/// bytes wait in total.
async fn full(port: u16, patience: Duration) -> (u64, u64) {
    let begun = Instant::now();
    let (mut seen, mut since) = (proc::unsent(port), begun);
    while begun.elapsed() < patience {
        sleep(Duration::from_millis(500)).await;
        let now = proc::unsent(port);
        if now.1 > seen.1 || now.0 == 0 {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() >= FULL {
            break;
        }
    }
    proc::unsent(port)
}

/// Waits until the memory no longer grows, and returns it. When the kernel's own buffers grow, it takes more of the waiting bytes,
/// and then the server reads on once more for that reader.
async fn settled(server: u32, patience: Duration) -> Result<Memory> {
    let begun = Instant::now();
    let (mut seen, mut since) = (Memory::of(server)?, begun);
    while begun.elapsed() < patience && since.elapsed() < STEADY {
        sleep(Duration::from_secs(1)).await;
        let now = Memory::of(server)?;
        // More growth than noise.
        if now.anonymous_kb > seen.anonymous_kb + seen.anonymous_kb / 50 {
            (seen, since) = (now, Instant::now());
        }
    }
    Memory::of(server)
}

/// Starts the tasks without waiting for them, and returns their ids.
async fn begin_all(bench: &Bench, server: &Server, seconds: u64) -> Result<Vec<String>> {
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let deltas = BURST + seconds * RATE;
        let script = Script { deltas, rate: RATE, burst: BURST, size: SIZE, ..script(bench, server) };
        tasks.push(begin(server, &script).await?);
    }
    Ok(tasks)
}

async fn begin(server: &Server, script: &Script) -> Result<String> {
    let target = server.target(ProtocolVersion::V1);
    let mut connection = Connection::open(server.address).await?;
    let request = target.send(&format!("m-{}", script.key), &script.to_string(), false);
    let reply = call(&mut connection, &request).await?;
    let task = reply.task().with_context(|| format!("no task: {}", String::from_utf8_lossy(&reply.body)))?;
    Ok(task["id"].as_str().unwrap_or_default().to_owned())
}

/// The delay of some healthy streams, and how many of them received all of their text.
async fn healthy(bench: &Bench, server: &Server, window: Duration) -> (Delays, u64) {
    let tally = Arc::new(Tally::default());
    let from_ns = clock::monotonic_ns() + 1_000_000_000;
    let to_ns = from_ns + u64::try_from(window.as_nanos()).unwrap_or_default();
    tally.lock().window = Window { from_ns, to_ns };
    let deltas = (window.as_secs() + 1) * 10;
    let clients = spawn_streams(bench, server, HEALTHY, (deltas, 10), &tally);
    until_ns(to_ns).await;
    let outcomes = ends(clients, Duration::from_secs(30)).await;
    let delays = tally.lock().delays.delays();
    (delays, whole_ones(&outcomes, deltas))
}
