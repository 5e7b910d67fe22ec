//! A whole run: every phase on every server, and what was found, kept after each.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;

use crate::bench::Bench;
use crate::drive::{Line, Tally, Target, Window};
use crate::load::{ends, stream_once};
use crate::options::{Drive, Run};
use crate::phases::Phase;
use crate::results::{Machine, Measured, Results};
use crate::servers::{Kind, Programs, StandIn};
use crate::stand_in::Script;
use crate::{count, output, report};

/// What a full run found, in the directory for it; and what another one did, which must not replace it.
const FULL: &str = "results.json";
const PARTIAL: &str = "partial.json";

pub async fn run(options: Run) -> Result<()> {
    let work = options.out.join("work");
    std::fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let programs = Programs {
        longshore: options.longshore.canonicalize().context("there is no longshore to measure")?,
        peer: options.peer.as_ref().map(std::path::absolute).transpose()?,
    };
    let has_peer = programs.peer.is_some();
    let bench = Bench::new(programs, StandIn::start()?, work.canonicalize()?, options.quick);
    let mut results = Results {
        date: options.date.clone(),
        commit: options.commit.clone(),
        machine: machine(),
        quick: options.quick,
        peer: has_peer.then(Measured::default),
        instructions: count::read(&options.out),
        ..Results::default()
    };
    let is_full = !options.quick && options.only.is_empty();
    let kept = options.out.join(if is_full { FULL } else { PARTIAL });
    let wanted = |phase: &Phase| options.only.is_empty() || options.only.contains(phase);
    for phase in Phase::value_variants().iter().copied().filter(wanted) {
        for kind in [Kind::Longshore, Kind::Peer] {
            if kind == Kind::Peer && !has_peer || !phase.is_for(kind) {
                continue;
            }
            output::say(format_args!("{} of {kind:?} ...", phase.name()));
            let found = match kind {
                Kind::Longshore => &mut results.longshore,
                Kind::Peer => results.peer.get_or_insert_default(),
            };
            if let Err(error) = phase.run(&bench, kind, found).await {
                output::say(format_args!("  failed: {error:#}"));
                found.failed.insert(phase.name(), format!("{error:#}"));
            }
            keep(&results, &kept)?;
        }
    }
    // What servers left behind because they were killed.
    let _ = std::fs::remove_dir_all(&bench.work);
    for line in report::summary(&results) {
        output::say(line);
    }
    output::say(format_args!("all of it is in {}", kept.display()));
    if let (Some(docs), true) = (&options.docs, is_full) {
        report::write(&results, docs, options.notes.as_deref())?;
    }
    Ok(())
}

fn keep(results: &Results, path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(results)?;
    std::fs::write(path, text).context("cannot keep what was measured")
}

pub fn read(path: &Path) -> Result<Results> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).context("these are no results of this bench")
}

/// Streams on a server that somebody else started.
pub async fn drive(options: Drive) -> Result<()> {
    let line = if options.v03 { Line::V03 } else { Line::V1 };
    let target = Target { address: options.server, token: options.token, line };
    let tasks = longshore_engine::Tasks::new();
    let tally = Arc::new(Tally::default());
    tally.lock().window = Window { from_ns: 0, to_ns: u64::MAX };
    let clients = (0..options.streams).map(|number| {
        let key = format!("d{}x{number}", std::process::id());
        let (deltas, rate, size) = (options.deltas, options.rate, options.size);
        let script = Script { key, deltas, rate, size, ..Script::default() };
        let (target, tally) = (target.clone(), Arc::clone(&tally));
        tasks.spawn("client", async move { stream_once(&target, &script, tally).await })
    });
    let outcomes = ends(clients.collect(), Duration::from_hours(1)).await;
    let complete =
        outcomes.iter().flatten().filter(|outcome| outcome.deltas == options.deltas && outcome.gaps == 0);
    output::say(format_args!("{} of {} streams are complete", complete.count(), options.streams));
    let counts = tally.lock();
    output::say(format_args!("{:#?}", counts.delays.delays()));
    Ok(())
}

fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let memory = value(&read("/proc/meminfo"), "MemTotal");
    Machine {
        processor: value(&read("/proc/cpuinfo"), "model name"),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        memory_kb: memory.trim_end_matches(" kB").parse().unwrap_or_default(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        load: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
    }
}
