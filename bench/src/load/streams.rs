//! Many streams at once, each at its rate, and their results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::bench::{Bench, until_ns};
use crate::clock;
use crate::drive::{
    Binding, Connection, End, Outcome, Prompt, ProtocolVersion, Tally, Target, Window, call, open_stream,
    sent_text, totals,
};
use crate::number::{float, whole};
use crate::proc::{self, Memory};
use crate::results::Streams;
use crate::servers::{Kind, Server};
use crate::stamp::{self, TextSum};
use crate::stand_in::Script;

/// For so many tasks, the text that the server stores is compared too.
const KEPT: usize = 32;

/// How long streams run after the window, so that none ends in it and their memory can be sampled while all are live.
const RUN_ON: Duration = Duration::from_secs(1);
/// When, after the window, the memory of live streams is sampled.
const SAMPLES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(150), Duration::from_millis(300), Duration::from_millis(450)];

/// The streams start one after the other. Then a window is measured in which all run, and all end shortly after it.
#[derive(Clone, Copy, Debug)]
pub struct StreamLoad {
    pub streams: u64,
    /// Deltas per second of each.
    pub rate: u64,
    pub size: usize,
    pub version: ProtocolVersion,
    pub binding: Binding,
    /// How many streams start in a second.
    pub starts: u64,
    /// The time between the last start and the window.
    pub settle: Duration,
    pub window: Duration,
    /// How long streams may take to end.
    pub drain: Duration,
}

pub async fn streams(bench: &Bench, server: &Server, load: &StreamLoad) -> Result<Streams> {
    let rest = Memory::of(server.pid())?;
    totals(server.stand_in).await?;
    let begin = clock::monotonic_ns();
    let step = 1_000_000_000 / load.starts.max(1);
    let from_ns = begin + load.streams * step + nanoseconds(load.settle);
    let window = Window { from_ns, to_ns: from_ns + nanoseconds(load.window) };
    let tally = Arc::new(Tally::default());
    tally.lock().window = window;
    let clients: Vec<_> = (0..load.streams)
        .map(|number| {
            let start_ns = begin + number * step;
            let deltas = deltas(start_ns, window, load.rate);
            let script = Script { deltas, rate: load.rate, size: load.size, ..script(bench, server) };
            let (target, tally) = (server.target(load.version), Arc::clone(&tally));
            let binding = load.binding;
            bench.spawn("client", async move {
                until_ns(start_ns).await;
                stream_over(&target, binding, &script, tally).await
            })
        })
        .collect();
    until_ns(window.from_ns).await;
    let before = bench.meter(server)?;
    until_ns(window.to_ns).await;
    let costs = bench.meter(server)?.since(&before);
    let (live, open_files) = held(server.pid(), window.to_ns).await?;
    let outcomes = ends(clients, load.drain).await;
    let source = totals(server.stand_in).await?;
    let counts = tally.lock().clone();
    let checked = check(server, load.version, &outcomes).await?;
    Ok(Streams {
        streams: load.streams,
        rate: load.rate,
        size: load.size,
        window_s: load.window.as_secs_f64(),
        expected: whole(float(load.streams * load.rate) * load.window.as_secs_f64()),
        delivered: counts.in_window,
        frames: counts.frames_in_window,
        cpu_us_per_delta: costs.server_ms * 1e3 / float(counts.in_window.max(1)),
        delays: counts.delays.delays(),
        completed: checked.completed,
        equal: checked.equal,
        kept: checked.kept,
        kept_equal: checked.kept_equal,
        other_ends: checked.other_ends,
        rest,
        live,
        open_files,
        costs,
        source,
    })
}

/// How many deltas a stream needs that starts then and outlives the window.
fn deltas(start_ns: u64, window: Window, rate: u64) -> u64 {
    let end_ns = window.to_ns + nanoseconds(RUN_ON);
    whole(float(end_ns.saturating_sub(start_ns)) / 1e9 * float(rate)).max(1)
}

/// The most memory and the fewest open files in some samples right after the window.
async fn held(pid: u32, to_ns: u64) -> Result<(Memory, u64)> {
    let (mut most, mut fewest) = (Memory::default(), u64::MAX);
    for after in SAMPLES {
        until_ns(to_ns + nanoseconds(after)).await;
        fewest = fewest.min(proc::open_files(pid));
        let now = Memory::of(pid)?;
        if now.anonymous_kb >= most.anonymous_kb {
            most = now;
        }
    }
    Ok((most, fewest))
}

/// A script with a new key, with the options that this server needs.
pub fn script(bench: &Bench, server: &Server) -> Script {
    Script { key: bench.key(), awaits_reader: server.kind == Kind::Peer, ..Script::default() }
}

/// Starts streams of so many deltas at a rate, which count in the tally.
pub fn spawn_streams(
    bench: &Bench,
    server: &Server,
    streams: u64,
    (deltas, rate): (u64, u64),
    tally: &Arc<Tally>,
) -> Vec<JoinHandle<Outcome>> {
    let clients = (0..streams).map(|_| {
        let script = Script { deltas, rate, ..script(bench, server) };
        let (target, tally) = (server.target(ProtocolVersion::V1), Arc::clone(tally));
        bench.spawn("client", async move { stream_once(&target, &script, tally).await })
    });
    clients.collect()
}

/// Sends a prompt over JSON-RPC, and follows the stream to its end.
pub async fn stream_once(target: &Target, script: &Script, tally: Arc<Tally>) -> Outcome {
    stream_over(target, Binding::JsonRpc, script, tally).await
}

/// The same over another binding.
pub async fn stream_over(target: &Target, binding: Binding, script: &Script, tally: Arc<Tally>) -> Outcome {
    let (message, text) = (format!("m-{}", script.key), script.to_string());
    open_stream(target, binding, &Prompt { key: &script.key, message: &message, text: &text }, tally).await
}

/// The outcomes of all streams that end in time. The others are given up.
pub async fn ends(clients: Vec<JoinHandle<Outcome>>, drain: Duration) -> Vec<Option<Outcome>> {
    let deadline = Instant::now() + drain;
    let mut outcomes = Vec::with_capacity(clients.len());
    for mut client in clients {
        let ended = timeout_at(deadline, &mut client).await;
        client.abort();
        outcomes.push(ended.ok().and_then(Result::ok));
    }
    outcomes
}

/// How many of the streams received all of so many deltas.
pub fn whole_ones(outcomes: &[Option<Outcome>], deltas: u64) -> u64 {
    let whole = outcomes.iter().flatten().filter(|outcome| outcome.is_whole(deltas));
    u64::try_from(whole.count()).unwrap_or_default()
}

/// The result of a comparison with the stand-in.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    pub completed: u64,
    pub equal: u64,
    pub kept: u64,
    pub kept_equal: u64,
    pub other_ends: BTreeMap<String, u64>,
}

/// Compares the text that clients received with the text that the stand-in sent, and for some tasks the text that the server stores.
pub async fn check(
    server: &Server,
    version: ProtocolVersion,
    outcomes: &[Option<Outcome>],
) -> Result<Checked> {
    let mut checked = Checked::default();
    let mut source = Connection::open(server.stand_in).await?;
    let mut keeper = Connection::open(server.address).await?;
    let target = server.target(version);
    for outcome in outcomes {
        let Some(outcome) = outcome else {
            *checked.other_ends.entry("given up".to_owned()).or_default() += 1;
            continue;
        };
        if outcome.end != End::Completed {
            *checked.other_ends.entry(format!("{:?}", outcome.end)).or_default() += 1;
            continue;
        }
        checked.completed += 1;
        let Some(sent_text) = sent_text(&mut source, &outcome.key).await? else { continue };
        let same = outcome.gaps == 0 && outcome.deltas == sent_text.deltas && outcome.sum.0 == sent_text.sum;
        checked.equal += u64::from(same);
        if let (Some(task), true) = (&outcome.task, checked.kept < u64::try_from(KEPT).unwrap_or_default()) {
            checked.kept += 1;
            let reply = call(&mut keeper, &target.get_task(task)).await?;
            checked.kept_equal += u64::from(kept_sum(&reply.body).0 == sent_text.sum);
        }
    }
    Ok(checked)
}

/// The sum of the text in a task: each delta once, in order.
pub fn kept_sum(body: &[u8]) -> TextSum {
    let (mut sum, mut next) = (TextSum::default(), 0);
    for stamp in stamp::find(body) {
        if stamp.number == next {
            sum.add(stamp.text);
            next += 1;
        }
    }
    sum
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_is_live_while_memory_is_sampled() {
        let second = 1_000_000_000;
        let window = Window { from_ns: 22 * second, to_ns: 37 * second };
        let last_sample = window.to_ns + SAMPLES.map(nanoseconds).into_iter().max().unwrap();
        for rate in [10, 100] {
            for number in 0..1_000 {
                let start_ns = number * second / 50;
                // The earliest end: the stand-in starts at once, and ends with the last delta.
                let end_ns = start_ns + (deltas(start_ns, window, rate) - 1) * (second / rate);
                assert!(end_ns > last_sample, "stream {number} at {rate}/s ends at {end_ns}");
            }
        }
    }
}
