//! A simulation: the engine, a store and an agent with a virtual clock and a scheduler that follows a seed.
//!
//! A seed decides everything: the actions, when each task runs, and the faults. Replay one with `make seed SEED=n`.

#![expect(clippy::print_stderr, reason = "a failed seed prints its trace")]

mod agent;
mod chance;
mod driver;
mod oracle;
mod other_client;
mod stage;
mod store;
mod user;
mod world;

use std::sync::Arc;

use longshore_engine::Tasks;
use longshore_engine::simulation::Flaw;

use crate::stage::{Stage, TaskGroup, conduct};
use crate::world::{Ending, Tally, play};

/// How many seeds are played, unless `LONGSHORE_SEEDS` says otherwise. A long test run plays 5,000.
const QUICK_SEEDS: u64 = 500;

/// How many tests share the seeds, so that they run in parallel.
const SHARES: u64 = 8;

/// A seed that finds an injected flaw must be among the first so many.
const MAX_SEEDS_TO_FIND_FLAW: u64 = 5_000;

/// At least so many of a hundred tasks complete, despite all faults. Fewer complete if the engine gives tasks up needlessly.
const MIN_COMPLETED_PERCENT: usize = 50;

/// Plays seeds, and prints the trace of the first that fails.
fn play_all(seeds: impl Iterator<Item = u64>) -> Tally {
    let (mut failed, mut all) = (Vec::new(), Tally::default());
    for seed in seeds {
        let Ending { report, tally, .. } = play(seed, None);
        all.made += tally.made;
        all.completed += tally.completed;
        if let Some(report) = report {
            if failed.is_empty() {
                eprintln!("{report}");
            }
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
    all
}

fn play_share(share: u64) {
    let seeds = number_from_env("LONGSHORE_SEEDS").unwrap_or(QUICK_SEEDS);
    let Tally { made, completed } = play_all((0..seeds).filter(|seed| seed % SHARES == share));
    eprintln!("{completed} of {made} tasks completed.");
    assert!(completed * 100 >= made * MIN_COMPLETED_PERCENT, "only {completed} of {made} tasks completed");
}

fn number_from_env(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    value.map(|value| value.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

macro_rules! shares {
    ($($name:ident $share:literal)*) => {
        $(
            #[test]
            fn $name() {
                play_share($share);
            }
        )*
    };
}

shares! {
    seeds_of_share_0 0
    seeds_of_share_1 1
    seeds_of_share_2 2
    seeds_of_share_3 3
    seeds_of_share_4 4
    seeds_of_share_5 5
    seeds_of_share_6 6
    seeds_of_share_7 7
}

/// The seed that `make seed` names, and as many after it as requested. Without `make seed`, only seed 0: the shares above play
/// the others.
#[test]
fn the_seed_of_the_environment() {
    let first = number_from_env("LONGSHORE_SEED").unwrap_or(0);
    let is_requested = std::env::var_os("LONGSHORE_SEED").is_some();
    let count = number_from_env("LONGSHORE_SEEDS").filter(|_| is_requested).unwrap_or(1);
    play_all(first..first + count);
}

/// Events that must happen in some of the first seeds, by their words in the trace. Without them the seeds would prove little.
const HAPPENS: &[&str] = &[
    "gateway: killed",
    "gateway: stops",
    "gateway: does not come up",
    "driver: msg_",
    "agent: killed",
    "is forgotten",
    "agent: asks",
    "is answered",
    "agent: calls",
    "is aborted",
    "store: away",
    "the answer to append is lost",
    "the answer to create is lost",
    "input_required",
    "auth_required",
    "submitted",
    "completed",
    "failed: The model failed.",
    "failed: The agent stopped",
    "failed: It is not known",
    "failed: The agent cannot be reached",
    "failed: The turn took longer",
    "failed: The agent was not given its credentials",
    "is canceled",
    "no answer",
    "TooManyRequests",
    "is refused: SessionBusy",
    "is refused: UnsupportedOperation",
    "joins",
    "expired",
    "dropped",
    "elsewhere",
    "stranger: types",
    "driver: hears of",
];

#[test]
fn the_seeds_reach_every_kind_of_event() {
    let mut missing = HAPPENS.to_vec();
    for seed in 0..200 {
        let trace = play(seed, None).trace.join("\n");
        missing.retain(|words| !trace.contains(words));
    }
    assert!(missing.is_empty(), "this never happens: {missing:?}");
}

#[test]
fn a_seed_always_plays_the_same() {
    for seed in 0..50 {
        assert_eq!(play(seed, None).digest, play(seed, None).digest, "seed {seed}");
    }
}

/// Plays seeds until one reports the injected flaw with these words.
fn find(flaw: Flaw, words: &str) {
    for seed in 0..MAX_SEEDS_TO_FIND_FLAW {
        let Ending { report, findings, .. } = play(seed, Some(flaw));
        if findings.iter().any(|finding| finding.contains(words)) {
            eprintln!("{}\nSeed {seed} found {flaw:?}.", report.unwrap_or_default());
            return;
        }
    }
    panic!("{MAX_SEEDS_TO_FIND_FLAW} seeds did not report {words:?} with {flaw:?}");
}

#[test]
fn publishing_before_the_commit_is_found() {
    find(Flaw::PublishBeforeCommit, "is seen before it is kept");
}

#[test]
fn a_missing_reconciliation_is_found() {
    // Lost text, and unreported ends of turns.
    find(Flaw::NoReconcile, "and the agent wrote");
    find(Flaw::NoReconcile, "does not say how the turn ended.), and its turn Some(Completed)");
}

#[test]
fn resuming_turns_without_reading_the_log_is_found() {
    find(Flaw::NoResume, "twice");
}

#[test]
fn events_after_a_terminal_one_are_found() {
    find(Flaw::NoTerminalGuard, "as event ");
}

#[test]
fn a_panic_of_a_task_that_nothing_awaits_is_found() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let stage = Stage::new(0, None);
        let conductor = Tasks::new().spawn("conductor", conduct(Arc::clone(&stage)));
        Tasks::simulated(TaskGroup::new(&stage))
            .spawn("unlucky", async { panic!("the test asked for this") });
        stage.has_failed.cancelled().await;
        conductor.abort();
        assert_eq!(stage.findings(), ["the task \"unlucky\" panicked"]);
    });
}
