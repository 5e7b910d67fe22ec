//! A whole run: every phase on every server, each with a timeout. The results are stored after each phase.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use tokio::time::{Instant, timeout};

use crate::bench::Bench;
use crate::drive::{ProtocolVersion, Tally, Target, Window};
use crate::load::{ends, stream_over};
use crate::options::{Drive, Run};
use crate::phases::Phase;
use crate::results::{Machine, Measured, Ran, Results};
use crate::servers::{Kind, Programs, StandIn};
use crate::stand_in::Script;
use crate::{count, output, report};

/// The results of a full run, and of any other run, which must not replace them.
const FULL: &str = "results.json";
const PARTIAL: &str = "partial.json";

pub async fn run(options: Run) -> Result<()> {
    let work = options.out.join("work");
    std::fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    let work = work.canonicalize()?;
    let programs = Programs {
        longshore: options.longshore.canonicalize().context("cannot find the longshore to measure")?,
        peer: options.peer.as_ref().map(std::path::absolute).transpose()?,
    };
    let is_full = !options.quick && (options.only.is_empty() || options.resume);
    let kept = options.out.join(if is_full { FULL } else { PARTIAL });
    let mut results = if options.resume { read(&kept)? } else { Results::default() };
    // Phases that are measured again are named as those of another run.
    if !options.resume || options.only.is_empty() {
        results.date.clone_from(&options.date);
        results.commit.clone_from(&options.commit);
        results.machine = machine();
    }
    (results.quick, results.full) = (options.quick, is_full);
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
            bail!("timed out after {} s; the results up to then are stored", phase.bound(kind).as_secs())
        });
        let seconds = begun.elapsed().as_secs_f64();
        output::say(format_args!("  {seconds:.0} s"));
        if let Err(error) = measured {
            let why = without_paths(&format!("{error:#}"), &work);
            output::say(format_args!("  failed: {why}"));
            found.failed.insert(phase.name(), why);
        }
        let (date, commit) = (options.date.clone(), options.commit.clone());
        found.ran.insert(phase.name(), Ran { seconds, date, commit, load });
        keep(&results, &kept)?;
    }
    // Killed servers leave their data.
    let _ = std::fs::remove_dir_all(&work);
    for line in report::summary(&results) {
        output::say(line);
    }
    output::say(format_args!("all results are in {}", kept.display()));
    if let (Some(docs), true) = (&options.docs, is_full) {
        report::write(&results, docs, options.reasons.as_deref())?;
    }
    Ok(())
}

/// The phases to measure, in order.
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

/// Removes the paths of this machine from a text for the report.
fn without_paths(text: &str, work: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let mut text = text.to_owned();
    for path in [work, here.as_path()].iter().filter_map(|path| path.to_str()).filter(|path| !path.is_empty())
    {
        text = text.replace(path, "…");
    }
    text
}

fn keep(results: &Results, path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(results)?;
    // Atomically: an interrupted run keeps the file of the phase before.
    let new = path.with_extension("new");
    std::fs::write(&new, text).context("cannot store the results")?;
    std::fs::rename(&new, path).context("cannot store the results")
}

pub fn read(path: &Path) -> Result<Results> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).context("the file does not contain results of this bench")
}

/// Runs streams on a server that is already running.
pub async fn drive(options: Drive) -> Result<()> {
    let version = if options.v03 { ProtocolVersion::V03 } else { ProtocolVersion::V1 };
    let target = Target { address: options.server, token: options.token, version };
    let tasks = longshore_engine::Tasks::new();
    let tally = Arc::new(Tally::default());
    tally.lock().window = Window { from_ns: 0, to_ns: u64::MAX };
    let clients = (0..options.streams).map(|number| {
        let key = format!("d{}x{number}", std::process::id());
        let (deltas, rate, size) = (options.deltas, options.rate, options.size);
        let script = Script { key, deltas, rate, size, ..Script::default() };
        let (target, binding, tally) = (target.clone(), options.binding, Arc::clone(&tally));
        tasks.spawn("client", async move { stream_over(&target, binding, &script, tally).await })
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

/// The load average of the last minute.
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
    fn a_resumed_run_measures_missing_and_failed_phases() {
        let mut results = Results { peer: Some(Measured::default()), ..Results::default() };
        let all = steps(&options(&[]), &results);
        assert_eq!(all.len(), 18);
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
    fn a_full_run_is_planned_to_take_less_than_an_hour() {
        let results = Results { peer: Some(Measured::default()), ..Results::default() };
        let plan: Duration =
            steps(&options(&[]), &results).iter().map(|(phase, kind)| phase.plan(*kind)).sum();
        assert!(plan < Duration::from_mins(58), "{plan:?}");
    }

    #[test]
    fn errors_in_the_report_contain_no_paths() {
        let text = without_paths("cannot open /some/where/server-1/x", Path::new("/some/where"));
        assert_eq!(text, "cannot open …/server-1/x");
    }
}
