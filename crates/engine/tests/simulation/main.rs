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
mod user;
mod world;

use longshore_engine::simulation::Flaw;

use crate::world::play;

/// How many seeds are played, and by how many tests side by side.
const SEEDS: u64 = 5_000;
const TESTS: u64 = 8;

/// Plays seeds, and tells of the first that fails how it came to that.
fn play_all(seeds: impl Iterator<Item = u64>) {
    let mut failed = Vec::new();
    for seed in seeds {
        if let Some(report) = play(seed, None).report {
            if failed.is_empty() {
                eprintln!("{report}");
            }
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
}

macro_rules! shares {
    ($($name:ident $share:literal)*) => {
        $(
            #[test]
            fn $name() {
                play_all((0..SEEDS).filter(|seed| seed % TESTS == $share));
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
    "failed",
    "is canceled",
    "no answer",
    "is refused: SessionBusy",
    "is refused: UnsupportedOperation",
    "joins",
    "expired",
    "dropped",
    "elsewhere",
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

/// Plays seeds until one finds the flaw.
fn find(flaw: Flaw) {
    for seed in 0..SEEDS {
        if let Some(report) = play(seed, Some(flaw)).report {
            eprintln!("{report}\nSeed {seed} found {flaw:?}.");
            return;
        }
    }
    panic!("{SEEDS} seeds did not find {flaw:?}");
}

#[test]
fn an_engine_that_shows_what_is_not_kept_is_found() {
    find(Flaw::PublishBeforeCommit);
}

#[test]
fn an_engine_that_takes_turns_up_without_a_look_at_them_is_found() {
    find(Flaw::NoReconcile);
}

#[test]
fn an_engine_that_goes_on_after_the_end_is_found() {
    find(Flaw::NoTerminalGuard);
}
