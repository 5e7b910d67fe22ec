//! The agent dies, at every moment of a turn.

use longshore_engine::port::Session;
use longshore_model::{ErrorKind, ToolStatus};

use super::running::End;
use super::{AgentUnderTest, Reply};
use crate::fake_opencode::Gate;

/// Checks that the next turn works, and that no prompt was repeated.
async fn works(agent: &dyn AgentUnderTest, session: &Session, prompts: usize) {
    agent.reply_with(Reply::new().text("alive"));
    agent.run(session, "next").await.completed("alive");
    assert_eq!(agent.prompts().len(), prompts, "{:?}", agent.prompts());
}

pub(super) async fn an_agent_that_died_while_idle_takes_the_next_prompt(agent: &dyn AgentUnderTest) {
    let session = agent.session().await;
    agent.kill().await;
    works(agent, &session, 1).await;
    agent.kill().await;
    works(agent, &session, 2).await;
}

pub(super) async fn a_death_before_the_first_word_fails_the_turn(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    agent.reply_with(Reply::new().hold(&gate).text("late"));
    let session = agent.session().await;
    let running = agent.start(&session, "first").await;
    gate.reached().await;
    agent.kill().await;
    running.rest().await.failed("");
    works(agent, &session, 2).await;
}

pub(super) async fn a_death_during_the_text_keeps_what_was_said(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    let words = ["one ", "two "].map(str::to_owned);
    agent.reply_with(Reply::new().chunks(words).hold(&gate).text("three"));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    running.until_text("one two ").await;
    gate.reached().await;
    agent.kill().await;
    running.rest().await.failed("one two ");
    works(agent, &session, 2).await;
}

pub(super) async fn a_death_with_an_open_ask_closes_the_ask(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().guarded_tool("rm x", "removed").text("Done."));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    let ask = running.asked().await;
    agent.kill().await;
    let finished = running.rest().await;
    finished.failed("");
    assert!(finished.tools().iter().all(|call| call.status != ToolStatus::Completed), "{finished:?}");
    if agent.abilities().closes_tools_of_the_dead {
        finished.closed_tools();
    }
    works(agent, &session, 2).await;
    let gone = agent.answer(&session, &ask, true).await.expect_err("the agent that asked is dead");
    assert_eq!(gone.kind(), ErrorKind::InterruptNotFound, "{gone}");
}

pub(super) async fn a_death_while_a_tool_runs_closes_its_call(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    agent.reply_with(Reply::new().held_tool("sleep 1000", &gate).text("Done."));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    running.until_tool_runs().await;
    gate.reached().await;
    agent.kill().await;
    let finished = running.rest().await;
    finished.failed("");
    assert_eq!(finished.tools().len(), 1);
    if agent.abilities().closes_tools_of_the_dead {
        finished.closed_tools();
    }
    works(agent, &session, 2).await;
}

pub(super) async fn a_death_fails_the_turns_of_all_sessions(agent: &dyn AgentUnderTest) {
    let mut running = Vec::new();
    for number in 0..3 {
        let gate = Gate::new();
        let text = format!("part {number}");
        agent.reply_with(Reply::new().text(&text).hold(&gate));
        let session = agent.session().await;
        let mut turn = agent.start(&session, "go").await;
        turn.until_text(&text).await;
        gate.reached().await;
        running.push((turn, text));
    }
    agent.kill().await;
    let mut sessions = Vec::new();
    for (turn, text) in running {
        sessions.push(turn.session.clone());
        turn.rest().await.failed(&text);
    }
    for (number, session) in sessions.iter().enumerate() {
        works(agent, session, 4 + number).await;
    }
}

pub(super) async fn a_death_after_a_cancel_ends_the_turn_once(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    agent.reply_with(Reply::new().text("one").hold(&gate));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    running.until_text("one").await;
    gate.reached().await;
    agent.cancel(&session).await;
    agent.kill().await;
    let finished = running.rest().await;
    assert!(matches!(finished.end, End::Canceled | End::Failed(_)), "{finished:?}");
    assert_eq!(finished.text(), "one");
    works(agent, &session, 2).await;
}

pub(super) async fn a_death_of_an_unread_turn_loses_nothing_that_was_reported(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    agent.reply_with(Reply::new().text("one ").tool("ls", "out").text("two").hold(&gate));
    let session = agent.session().await;
    let running = agent.start(&session, "first").await;
    gate.reached().await;
    agent.kill().await;
    let finished = running.rest().await;
    finished.failed("one two");
    assert_eq!(finished.tools().len(), 1);
    works(agent, &session, 2).await;
}

pub(super) async fn an_agent_dies_again_and_again(agent: &dyn AgentUnderTest) {
    for number in 0..3 {
        let gate = Gate::new();
        agent.reply_with(Reply::new().text("one").hold(&gate));
        let session = agent.session().await;
        let mut running = agent.start(&session, "first").await;
        running.until_text("one").await;
        gate.reached().await;
        agent.kill().await;
        running.rest().await.failed("one");
        works(agent, &session, 2 * (number + 1)).await;
    }
}
