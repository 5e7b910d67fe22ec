//! The long campaign: `make chaos`. Kills and cuts until every target is met, writes the report, and fails on any finding.

#![expect(clippy::print_stderr, reason = "a program that runs for minutes reports its progress")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use longshore_demo_model::DemoModel;
use longshore_demo_model::home::demo_home;
use longshore_engine::{Tasks, fail_point};
use longshore_testkit::chaos::campaign::{Targets, Totals};
use longshore_testkit::chaos::report::{self, RunInfo};
use longshore_testkit::chaos::round::{self, Plan, Report};
use longshore_testkit::chaos::{Kind, Program, World};
use longshore_testkit::gateway::path_with_tools;
use tokio::signal::unix::{SignalKind, signal};

/// How long things break in one round.
const STORM: Duration = Duration::from_secs(14);

/// A campaign with a shorter limit is only a trial, and its report is not kept.
const FULL_MINUTES: u64 = 20;

#[derive(Debug)]
struct Options {
    gateway: PathBuf,
    minutes: u64,
    seed: u64,
    /// How many worlds with a fake OpenCode run at the same time.
    worlds: u64,
    report: Option<PathBuf>,
    /// A file with the rows of the campaign tests.
    rows: Option<PathBuf>,
    /// Where the evidence of findings goes.
    evidence: PathBuf,
    /// Only worlds of this kind.
    world: Option<Kind>,
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
            rows: None,
            evidence: PathBuf::from("target/chaos"),
            world: None,
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
                "--rows" => options.rows = Some(value.into()),
                "--evidence" => options.evidence = value.into(),
                "--world" => {
                    let kind = Kind::parse(&value).ok_or_else(|| format!("there is no world {value}"))?;
                    options.world = Some(kind);
                }
                "--round" => options.round = Some(number()?),
                "--date" => options.date = value,
                "--commit" => options.commit = value,
                _ => return Err(format!("there is no {name}")),
            }
        }
        // The gateway is started in directories of its own.
        options.gateway = std::path::absolute(&options.gateway).map_err(|error| error.to_string())?;
        Ok(options)
    }

    /// Whether this is a full campaign, whose report is kept.
    fn is_full(&self) -> bool {
        self.world.is_none() && self.round.is_none() && self.minutes >= FULL_MINUTES
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
    // An interrupted campaign stops the processes that it started.
    let ended = tokio::select! {
        ended = run(&options) => ended,
        () = interrupted() => Err("interrupted".to_owned()),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Waits for SIGINT or SIGTERM.
async fn interrupted() {
    match signal(SignalKind::terminate()) {
        Ok(mut terminated) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminated.recv() => {}
        },
        // Without SIGTERM, SIGINT still works.
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}

/// A campaign under way.
#[derive(Debug)]
struct Campaign<'a> {
    options: &'a Options,
    model: &'a DemoModel,
    began: Instant,
    end: Instant,
    totals: Mutex<Totals>,
}

/// True: every target was reached, and nothing was found.
async fn run(options: &Options) -> Result<bool, String> {
    let model = DemoModel::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &Tasks::new()).await;
    let model = model.map_err(|error| format!("the demo model: {error}"))?;
    let began = Instant::now();
    let end = began + Duration::from_secs(options.minutes * 60);
    let campaign = Campaign { options, model: &model, began, end, totals: Mutex::default() };
    if let Some(seed) = options.round {
        campaign.play(options.world.unwrap_or(Kind::Fake), seed).await;
        return Ok(campaign.totals().findings.is_empty());
    }
    let fakes = std::iter::repeat_n(Kind::Fake, usize::try_from(options.worlds).unwrap_or(1));
    let lanes = fakes.chain([Kind::Attached, Kind::Managed]).enumerate();
    let lanes = lanes.filter(|(_, kind)| options.world.is_none_or(|only| only == *kind));
    join_all(lanes.map(|(lane, kind)| campaign.lane(lane, kind))).await;
    campaign.report()
}

impl Campaign<'_> {
    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays round after round, until the targets for this kind of world are reached.
    async fn lane(&self, lane: usize, kind: Kind) {
        let first = self.options.seed + 1_000 * u64::try_from(lane).unwrap_or_default();
        for seed in first.. {
            if Instant::now() >= self.end || self.is_done(kind) {
                break;
            }
            self.play(kind, seed).await;
        }
    }

    fn is_done(&self, kind: Kind) -> bool {
        let (totals, targets) = (self.totals(), Targets::CAMPAIGN);
        let kills = totals.agent_kills.get(&kind).copied().unwrap_or_default();
        if kind.is_real() {
            let points: &[&str] = if kind == Kind::Managed { &fail_point::MANAGED_POINTS } else { &[] };
            let are_met = points.iter().all(|point| totals.kills_at_points.contains_key(point));
            // The attached and the managed world each do half of the kills.
            return are_met && kills * 2 >= targets.real_agent_kills;
        }
        let others = Targets { agent_kills: 0, real_agent_kills: 0, ..targets };
        kills >= targets.agent_kills - targets.real_agent_kills
            && totals.missed(&others, &fail_point::POINTS).is_empty()
    }

    /// Plays a round. A round that cannot be played is a finding, and the campaign goes on.
    async fn play(&self, kind: Kind, seed: u64) {
        let report = match self.round(kind, seed).await {
            Ok(report) => report,
            Err(problem) => {
                eprintln!("{} {seed}: {problem}", kind.name());
                return self.totals().add_unplayed(kind, seed, &problem);
            }
        };
        for finding in &report.verdict.findings {
            eprintln!("{} {seed}: {finding}", kind.name());
        }
        if let Some(evidence) = &report.evidence {
            let name = format!("{}-{seed}.txt", kind.name());
            if let Err(error) = keep(&self.options.evidence, &name, evidence) {
                eprintln!("the evidence of {name} cannot be kept: {error}");
            }
        }
        let mut totals = self.totals();
        totals.add(&report);
        let clients = totals.all_clients();
        eprintln!(
            "{:>4} s: {} {seed} took {} s; {} gateway kills, {} kills of OpenCode ({} real), {} cut streams, {} tasks, \
             {} that asked, {} that were canceled, {} second turns, {} that joined, {} findings",
            self.began.elapsed().as_secs(),
            kind.name(),
            report.took.as_secs(),
            totals.gateway_kills(),
            totals.all_agent_kills(),
            totals.real_agent_kills(),
            clients.cuts,
            clients.tasks,
            clients.asked,
            clients.canceling,
            clients.seconds,
            clients.joined,
            totals.findings.len()
        );
        eprintln!(
            "        {} kills of OpenCode survived; streams that a proxy cut: {} of clients, {} of OpenCode; {:?} {:?}",
            totals.survived,
            totals.client_side.streams_cut,
            totals.agent_side.streams_cut,
            totals.outcomes,
            totals.reasons
        );
    }

    async fn round(&self, kind: Kind, seed: u64) -> Result<Report, String> {
        let gateway = self.options.gateway.as_path();
        if kind == Kind::Fake {
            // In some rounds OpenCode dies while the gateways keep running.
            let plan =
                if seed.is_multiple_of(4) { Plan::steady(seed, STORM) } else { Plan::storm(seed, STORM) };
            return round::play(&plan, World::with_fake(gateway, seed).await?).await;
        }
        let home = tempfile::tempdir().map_err(|error| error.to_string())?;
        let path = path_with_tools();
        let environment = demo_home(home.path(), &self.model.base_url(), &path);
        let environment = environment.map_err(|error| format!("a home for OpenCode: {error}"))?;
        let file = std::env::split_paths(&path).map(|directory| directory.join("opencode"));
        let file = file.into_iter().find(|file| file.exists()).ok_or("there is no OpenCode")?;
        let program = Program { file, environment };
        let world = match kind {
            Kind::Managed => World::with_managed(gateway, program, seed).await?,
            Kind::Fake | Kind::Attached => World::with_attached(gateway, program, seed).await?,
        };
        round::play(&Plan::real_storm(seed, kind), world).await
    }

    fn report(&self) -> Result<bool, String> {
        let (options, targets) = (self.options, Targets::CAMPAIGN);
        let mut totals = self.totals();
        totals.took = self.began.elapsed();
        let points: Vec<&str> = fail_point::POINTS.into_iter().chain(fail_point::MANAGED_POINTS).collect();
        let missed = totals.missed(&targets, &points);
        if let Some(file) = options.report.as_ref().filter(|_| options.is_full()) {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let rows = options.rows.as_ref().map(std::fs::read_to_string).transpose();
            let rows = rows.map_err(|error| format!("the rows of the campaign tests: {error}"))?;
            let (date, commit) = (options.date.clone(), options.commit.clone());
            let run = RunInfo { date, commit, cores, rows: rows.unwrap_or_default() };
            let text = report::write(&totals, &targets, &run, &missed);
            std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        for miss in &missed {
            eprintln!("target missed: {miss}");
        }
        Ok(missed.is_empty() && totals.findings.is_empty())
    }
}

fn keep(directory: &Path, name: &str, evidence: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join(name), evidence)
}
