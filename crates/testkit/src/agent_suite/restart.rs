//! The gateway restarts while a turn runs. An agent that lives on is followed again; the turn of another one ends truthfully.

use super::running::{Finished, Running};
use super::{AgentUnderTest, Reply};
use crate::fake_opencode::Gate;

/// Ends the turn of an agent that cannot resume it: failed, with a reason, and with nothing said twice.
async fn ends_truthfully(resumed: Running) -> Finished {
    let finished = resumed.rest().await;
    finished.failed("");
    finished
}

pub(super) async fn a_restart_of_the_gateway_during_the_text_ends_truthfully(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    agent.reply_with(Reply::new().text("one ").hold(&gate).text("two"));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    running.until_text("one ").await;
    gate.reached().await;
    agent.restart_gateway().await;
    let resumed = agent.resume(&running).await;
    drop(running);
    if agent.abilities().resumes {
        gate.open();
        // The log has the first word.
        resumed.rest().await.completed("two");
    } else {
        ends_truthfully(resumed).await;
    }
    assert_eq!(agent.prompts(), ["first"], "a resumed turn is not prompted again");
    agent.reply_with(Reply::new().text("well"));
    agent.run(&session, "next").await.completed("well");
}

pub(super) async fn a_restart_of_the_gateway_with_an_open_ask_ends_truthfully(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().guarded_tool("rm x", "removed").text("Done."));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    let ask = running.asked().await;
    agent.restart_gateway().await;
    let mut resumed = agent.resume(&running).await;
    drop(running);
    if agent.abilities().resumes {
        agent.answer(&session, &ask, true).await.expect("the ask is still open");
        resumed.until_closed(&ask).await;
        resumed.rest().await.completed("Done.");
    } else {
        resumed.until_closed(&ask).await;
        ends_truthfully(resumed).await;
    }
    assert_eq!(agent.prompts(), ["first"], "a resumed turn is not prompted again");
}

pub(super) async fn a_turn_that_ended_while_the_gateway_was_down_ends_truthfully(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    agent.reply_with(Reply::new().text("one ").hold(&gate).text("two"));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    running.until_text("one ").await;
    gate.reached().await;
    agent.restart_gateway().await;
    gate.open();
    let resumed = agent.resume(&running).await;
    drop(running);
    if agent.abilities().resumes {
        resumed.rest().await.completed("two");
    } else {
        ends_truthfully(resumed).await;
    }
    assert_eq!(agent.prompts(), ["first"], "a resumed turn is not prompted again");
}

/// The gateway stopped after it had stored the prompt's id and before it sent the prompt.
pub(super) async fn a_prompt_that_was_never_sent_is_not_sent_by_a_resume(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().text("never"));
    let session = agent.session().await;
    agent.restart_gateway().await;
    let finished = agent.resume_unsent(&session).await.rest().await;
    finished.failed("");
    assert_eq!(agent.prompts(), [""; 0]);
}

pub(super) async fn the_session_goes_on_after_a_restart_of_the_gateway(agent: &dyn AgentUnderTest) {
    let session = agent.session().await;
    agent.reply_with(Reply::new().text("before"));
    agent.run(&session, "first").await.completed("before");
    agent.restart_gateway().await;
    agent.reply_with(Reply::new().text("after"));
    agent.run(&session, "second").await.completed("after");
    assert_eq!(agent.prompts(), ["first", "second"]);
}
