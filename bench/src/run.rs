//! A whole run: every phase on every server, each bounded, and what was found, kept after each.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use tokio::time::{Instant, timeout};

use crate::bench::Bench;
use crate::drive::{ProtocolVersion, Tally, Target, Window};
use crate::load::{ends, stream_once};
use crate::options::{Drive, Run};
use crate::phases::Phase;
use crate::results::{Machine, Measured, Ran, Results};
use crate::servers::{Kind, Programs, StandIn};
use crate::stand_in::Script;
use crate::{count, output, report};

/// What a full run found, in the directory for it; and what another one did, which must not replace it.
const FULL: &str = "results.json";
const PARTIAL: &str = "partial.json";

pub async fn run(options: Run) -> Result<()> {
    let work = options.out.join("work");
    std::fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let work = work.canonicalize()?;
    let programs = Programs {
        longshore: options.longshore.canonicalize().context("there is no longshore to measure")?,
        peer: options.peer.as_ref().map(std::path::absolute).transpose()?,
    };
    let is_full = !options.quick && (options.only.is_empty() || options.resume);
    let kept = options.out.join(if is_full { FULL } else { PARTIAL });
    let mut results = if options.resume { read(&kept)? } else { Results::default() };
    results.date.clone_from(&options.date);
    results.commit.clone_from(&options.commit);
    (results.machine, results.quick, results.full) = (machine(), options.quick, is_full);
    results.instructions = count::read(&options.out);
    if programs.peer.is_some() {
        results.peer.get_or_insert_default();
    }
    let steps = steps(&options, &results);
    let plan: Duration = steps.iter().map(|(phase, kind)| phase.plan(*kind)).sum();
    if !options.quick {
        output::say(format_args!("{} steps, about {} minutes", steps.len(), plan.as_secs().div_ceil(60)));
    }
    for (phase, kind) in steps {
        output::say(format_args!("{} of {kind:?} ...", phase.name()));
        let found = match kind {
            Kind::Longshore => &mut results.longshore,
            Kind::Peer => results.peer.get_or_insert_default(),
        };
        phase.forget(found);
        let (begun, load) = (Instant::now(), load());
        let measured = timeout(phase.bound(kind), async {
            let bench = Bench::new(programs.clone(), StandIn::start()?, work.clone(), options.quick);
            phase.run(&bench, kind, found).await
        });
        let measured = measured.await.unwrap_or_else(|_| {
            bail!(
                "it was given up after {} s; what it had found by then is here",
                phase.bound(kind).as_secs()
            )
        });
        let seconds = begun.elapsed().as_secs_f64();
        output::say(format_args!("  {seconds:.0} s"));
        if let Err(error) = measured {
            let why = unplaced(&format!("{error:#}"), &work);
            output::say(format_args!("  failed: {why}"));
            found.failed.insert(phase.name(), why);
        }
        let (date, commit) = (options.date.clone(), options.commit.clone());
        found.ran.insert(phase.name(), Ran { seconds, date, commit, load });
        keep(&results, &kept)?;
    }
    // What servers left behind because they were killed.
    let _ = std::fs::remove_dir_all(&work);
    for line in report::summary(&results) {
        output::say(line);
    }
    output::say(format_args!("all of it is in {}", kept.display()));
    if let (Some(docs), true) = (&options.docs, is_full) {
        report::write(&results, docs, options.reasons.as_deref())?;
    }
    Ok(())
}

/// What is to be measured, in order.
fn steps(options: &Run, results: &Results) -> Vec<(Phase, Kind)> {
    let is_wanted = |phase: Phase, found: &Measured| match (options.only.is_empty(), options.resume) {
        (false, _) => options.only.contains(&phase),
        (true, false) => true,
        (true, true) => !found.ran.contains_key(&phase.name()) || found.failed.contains_key(&phase.name()),
    };
    let mut steps = Vec::new();
    for phase in Phase::value_variants().iter().copied() {
        if is_wanted(phase, &results.longshore) {
            steps.push((phase, Kind::Longshore));
        }
        let peer = results.peer.as_ref().filter(|_| options.peer.is_some() && phase.is_for(Kind::Peer));
        if peer.is_some_and(|peer| is_wanted(phase, peer)) {
            steps.push((phase, Kind::Peer));
        }
    }
    steps
}

/// What is told must not say where on this machine it happened.
fn unplaced(text: &str, work: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let mut text = text.to_owned();
    for place in
        [work, here.as_path()].iter().filter_map(|place| place.to_str()).filter(|place| !place.is_empty())
    {
        text = text.replace(place, "…");
    }
    text
}

fn keep(results: &Results, path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(results)?;
    // In one step: whoever interrupts this has the one before.
    let new = path.with_extension("new");
    std::fs::write(&new, text).context("cannot keep what was measured")?;
    std::fs::rename(&new, path).context("cannot keep what was measured")
}

pub fn read(path: &Path) -> Result<Results> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).context("these are no results of this bench")
}

/// Streams on a server that somebody else started.
pub async fn drive(options: Drive) -> Result<()> {
    let line = if options.v03 { ProtocolVersion::V03 } else { ProtocolVersion::V1 };
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
    let facts = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = facts.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let memory = memory.and_then(|memory| memory.trim().strip_suffix(" kB")?.parse().ok());
    Machine {
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        memory_kb: memory.unwrap_or_default(),
        load: load(),
    }
}

/// What the machine had to do in the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::options::{Command, Options};

    fn options(more: &[&str]) -> Run {
        let given = ["longshore-bench", "run", "--longshore", "l", "--peer", "p"];
        match Options::parse_from(given.iter().chain(more)).command {
            Command::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_that_goes_on_measures_what_is_missing_and_what_failed() {
        let mut results = Results { peer: Some(Measured::default()), ..Results::default() };
        let all = steps(&options(&[]), &results);
        assert_eq!(all.len(), 15);
        for (phase, kind) in all.iter().copied() {
            let found = if kind == Kind::Peer { results.peer.as_mut() } else { Some(&mut results.longshore) };
            found.unwrap().ran.insert(phase.name(), Ran::default());
        }
        assert_eq!(steps(&options(&["--resume"]), &results), []);
        results.longshore.failed.insert("flood".to_owned(), "why".to_owned());
        results.peer.as_mut().unwrap().ran.remove("unary");
        let left = [(Phase::Unary, Kind::Peer), (Phase::Flood, Kind::Longshore)];
        assert_eq!(steps(&options(&["--resume"]), &results), left);
        let again = steps(&options(&["--resume", "--only", "soak"]), &results);
        assert_eq!(again, [(Phase::Soak, Kind::Longshore)]);
        assert_eq!(steps(&options(&[]), &results), all);
    }

    #[test]
    fn a_full_run_takes_less_than_an_hour_by_plan() {
        let results = Results { peer: Some(Measured::default()), ..Results::default() };
        let plan: Duration =
            steps(&options(&[]), &results).iter().map(|(phase, kind)| phase.plan(*kind)).sum();
        assert!(plan < Duration::from_mins(58), "{plan:?}");
    }

    #[test]
    fn what_is_told_names_no_place() {
        let told = unplaced("cannot open /some/where/server-1/x", Path::new("/some/where"));
        assert_eq!(told, "cannot open …/server-1/x");
    }
}
