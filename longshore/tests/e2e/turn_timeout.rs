//! A silent model, and the turn timeout.

use std::time::Duration;

use longshore_testkit::gateway::Setup;
use tokio::time::Instant;

use crate::client::message_in;
use crate::harness::{Harness, LONGSHORE, context};
use crate::upstream::Agreement;

/// Long enough for the first turn of a new OpenCode on a busy machine.
const LIMIT: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn long_a_turn_that_exceeds_its_time_limit_is_aborted() {
    let setup = Setup::demo(LONGSHORE).flag("--turn-timeout").flag(LIMIT.to_string());
    let harness = Harness::start(setup).await;
    let begun = Instant::now();
    let silent = harness.play_stopped("scn:stall after=3").await;
    silent.ended("FAILED", &format!("took longer than the {LIMIT} s"));
    let taken = begun.elapsed();
    assert!(taken >= Duration::from_secs(LIMIT), "the turn was given {taken:?} only");
    let said = silent.text();
    assert_eq!(said, "anchor  ballast buoy ca ", "what was said before the silence");

    let next = harness.play_message(&message_in(&context(&silent), "scn:text n=1"), Agreement::Whole).await;
    next.ended("COMPLETED", "");
    assert_eq!(next.turn.session, silent.turn.session, "the conversation went to another session");
}
