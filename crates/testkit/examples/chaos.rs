//! The long campaign: `make chaos`. Kills and cuts until every target is met, writes the report, and fails on any finding.

#![expect(clippy::print_stderr, reason = "a program that runs for minutes says how far it is")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use longshore_engine::fail_point;
use longshore_testkit::chaos::World;
use longshore_testkit::chaos::campaign::{Targets, Totals};
use longshore_testkit::chaos::report::{self, Circumstances};
use longshore_testkit::chaos::round::{self, Plan, Report};

/// How long things break in one round.
const STORM: Duration = Duration::from_secs(14);

#[derive(Debug)]
struct Options {
    gateway: PathBuf,
    minutes: u64,
    seed: u64,
    /// Worlds with a fake OpenCode, side by side.
    worlds: u64,
    report: Option<PathBuf>,
    /// Where the evidence of findings goes.
    evidence: PathBuf,
    /// Only this round.
    round: Option<u64>,
    date: String,
    commit: String,
}

impl Options {
    fn read() -> Result<Self, String> {
        let mut options = Self {
            gateway: PathBuf::from("target/debug/longshore"),
            minutes: 25,
            seed: 1,
            worlds: 3,
            report: None,
            evidence: PathBuf::from("target/chaos"),
            round: None,
            date: "unknown".to_owned(),
            commit: "unknown".to_owned(),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{name} takes a number, not {value}"));
            match name.as_str() {
                "--gateway" => options.gateway = value.into(),
                "--minutes" => options.minutes = number()?,
                "--seed" => options.seed = number()?,
                "--worlds" => options.worlds = number()?,
                "--report" => options.report = Some(value.into()),
                "--evidence" => options.evidence = value.into(),
                "--round" => options.round = Some(number()?),
                "--date" => options.date = value,
                "--commit" => options.commit = value,
                _ => return Err(format!("there is no {name}")),
            }
        }
        Ok(options)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = match Options::read() {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    match run(&options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// True: every target was met, and nothing was found.
async fn run(options: &Options) -> Result<bool, String> {
    let began = Instant::now();
    let end = began + Duration::from_secs(options.minutes * 60);
    let mut totals = Totals::default();
    if let Some(seed) = options.round {
        totals.add(&play(options, seed).await?);
        return Ok(totals.findings.is_empty());
    }
    let targets = Targets::CAMPAIGN;
    let mut seed = options.seed;
    while Instant::now() < end && !totals.missed(&targets, &fail_point::POINTS).is_empty() {
        let reports = join_all((seed..seed + options.worlds).map(|seed| play(options, seed))).await;
        seed += options.worlds;
        for report in reports {
            totals.add(&report?);
        }
        let spoken = totals.all_spoken();
        eprintln!(
            "{:>4} s: {} gateway kills, {} kills of OpenCode, {} cut streams, {} tasks, {} findings",
            began.elapsed().as_secs(),
            totals.gateway_kills(),
            totals.all_agent_kills(),
            spoken.cuts,
            spoken.tasks,
            totals.findings.len()
        );
    }
    totals.took = began.elapsed();
    let missed = totals.missed(&targets, &fail_point::POINTS);
    if let Some(file) = &options.report {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let around = Circumstances { date: options.date.clone(), commit: options.commit.clone(), cores };
        let text = report::write(&totals, &targets, &around, &missed);
        std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    for miss in &missed {
        eprintln!("not broken often enough: {miss}");
    }
    Ok(missed.is_empty() && totals.findings.is_empty())
}

async fn play(options: &Options, seed: u64) -> Result<Report, String> {
    let plan = Plan::storm(seed, STORM);
    let world = World::with_fake(&options.gateway, seed).await?;
    let report = round::play(&plan, world).await.map_err(|problem| format!("seed {seed}: {problem}"))?;
    for finding in &report.verdict.findings {
        eprintln!("seed {seed}: {finding}");
    }
    if let Some(evidence) = &report.evidence {
        keep(&options.evidence, seed, evidence).map_err(|error| format!("the evidence: {error}"))?;
    }
    Ok(report)
}

fn keep(directory: &Path, seed: u64, evidence: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join(format!("{seed}.txt")), evidence)
}
