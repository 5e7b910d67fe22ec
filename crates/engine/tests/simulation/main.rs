//! The engine, a store and an agent under a clock that stands still and a scheduler that follows a seed.
//!
//! A seed decides everything: who does what, when each task runs, what breaks. Play one again with `make seed SEED=n`.

#![expect(clippy::print_stderr, reason = "a seed that failed has a story to tell")]

mod agent;
mod chance;
mod driver;
mod oracle;
mod stage;
mod store;
mod stranger;
mod user;
mod world;

use std::sync::Arc;

use longshore_engine::Tasks;
use longshore_engine::simulation::Flaw;

use crate::stage::{Cast, Stage, conduct};
use crate::world::{Ending, Tally, play};

/// How many seeds are played, and by how many tests side by side.
const SEEDS: u64 = 5_000;
const TESTS: u64 = 8;

/// Of a hundred tasks so many complete at least, whatever is broken meanwhile. Fewer do where tasks are given up for nothing.
const COMPLETE: usize = 50;

/// Plays seeds, and tells of the first that fails how it came to that.
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
    let Tally { made, completed } = play_all((0..SEEDS).filter(|seed| seed % TESTS == share));
    eprintln!("{completed} of {made} tasks completed.");
    assert!(completed * 100 >= made * COMPLETE, "only {completed} of {made} tasks completed");
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
    seeds_of_the_first_share 0
    seeds_of_the_second_share 1
    seeds_of_the_third_share 2
    seeds_of_the_fourth_share 3
    seeds_of_the_fifth_share 4
    seeds_of_the_sixth_share 5
    seeds_of_the_seventh_share 6
    seeds_of_the_eighth_share 7
}

/// The seed that `make seed` names, and as many behind it as it wants.
#[test]
fn the_seed_of_the_environment() {
    let number = |name: &str| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty());
        value.map(|value| value.parse::<u64>().unwrap_or_else(|_| panic!("{name} must be a number")))
    };
    let first = number("LONGSHORE_SEED").unwrap_or(0);
    let count = number("LONGSHORE_SEEDS").unwrap_or(1);
    play_all(first..first + count);
}

/// What must happen in some of the first seeds, by the words that the trace has for it. Without it they would prove little.
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
    "failed: Nobody gave the agent its credentials",
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
fn the_seeds_come_to_everything_that_can_happen() {
    let mut missing = HAPPENS.to_vec();
    for seed in 0..200 {
        let trace = play(seed, None).trace.join("\n");
        missing.retain(|words| !trace.contains(words));
    }
    assert!(missing.is_empty(), "this never happens: {missing:?}");
}

#[test]
fn a_seed_is_the_same_each_time() {
    for seed in 0..50 {
        assert_eq!(play(seed, None).digest, play(seed, None).digest, "seed {seed}");
    }
}

/// Plays seeds until one finds the flaw, as what it is.
fn find(flaw: Flaw, words: &str) {
    for seed in 0..SEEDS {
        let Ending { report, findings, .. } = play(seed, Some(flaw));
        if findings.iter().any(|finding| finding.contains(words)) {
            eprintln!("{}\nSeed {seed} found {flaw:?}.", report.unwrap_or_default());
            return;
        }
    }
    panic!("{SEEDS} seeds did not find that with {flaw:?} {words:?}");
}

#[test]
fn an_engine_that_shows_what_is_not_kept_is_found() {
    find(Flaw::PublishBeforeCommit, "is seen before it is kept");
}

#[test]
fn an_engine_that_does_not_look_up_what_it_missed_is_found() {
    // The text of the time, and ends that nobody told.
    find(Flaw::NoReconcile, "and the agent wrote");
    find(Flaw::NoReconcile, "does not say how the turn ended.), and its turn Some(Completed)");
}

#[test]
fn an_engine_that_takes_turns_up_without_a_look_at_its_log_is_found() {
    find(Flaw::NoResume, "twice");
}

#[test]
fn an_engine_that_goes_on_after_the_end_is_found() {
    find(Flaw::NoTerminalGuard, "as event ");
}

#[test]
fn a_task_that_panics_is_found_though_nobody_waits_for_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let stage = Stage::new(0, None);
        let conductor = Tasks::new().spawn("conductor", conduct(Arc::clone(&stage)));
        Tasks::simulated(Cast::new(&stage)).spawn("unlucky", async { panic!("the test asked for this") });
        stage.has_failed.cancelled().await;
        conductor.abort();
        assert_eq!(stage.findings(), ["the task \"unlucky\" panicked"]);
    });
}
