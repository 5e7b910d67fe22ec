//! Cancels at every moment of a turn.

use longshore_model::{ErrorKind, ToolStatus};

use super::running::End;
use super::{AgentUnderTest, Reply};
use crate::fake_opencode::Gate;

/// Checks that the session works, and that the canceled turn left nothing behind.
async fn works(agent: &dyn AgentUnderTest, session: &longshore_engine::port::Session) {
    agent.reply_with(Reply::new().text("fine"));
    agent.run(session, "next").await.completed("fine");
    assert_eq!(agent.prompts().last().map(String::as_str), Some("next"));
}

pub(super) async fn a_cancel_before_any_prompt_changes_nothing(agent: &dyn AgentUnderTest) {
    let session = agent.session().await;
    agent.cancel(&session).await;
    works(agent, &session).await;
    assert_eq!(agent.prompts().len(), 1);
}

pub(super) async fn a_cancel_before_the_first_word_ends_the_turn(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    agent.reply_with(Reply::new().hold(&gate).text("late"));
    let session = agent.session().await;
    let running = agent.start(&session, "first").await;
    gate.reached().await;
    agent.cancel(&session).await;
    running.rest().await.canceled("");
    assert_eq!(agent.cancels(), 1);
    works(agent, &session).await;
}

pub(super) async fn a_cancel_during_the_text_keeps_what_was_said(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    let words = ["one ", "two "].map(str::to_owned);
    agent.reply_with(Reply::new().chunks(words).hold(&gate).text("three"));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    running.until_text("one two ").await;
    gate.reached().await;
    agent.cancel(&session).await;
    running.rest().await.canceled("one two ");
    works(agent, &session).await;
}

pub(super) async fn a_cancel_with_an_open_ask_closes_the_ask(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().text("May I? ").guarded_tool("rm x", "removed").text("Done."));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    let ask = running.asked().await;
    agent.cancel(&session).await;
    let finished = running.rest().await;
    finished.canceled("May I? ");
    assert!(finished.tools().iter().all(|call| call.status == ToolStatus::Error), "{finished:?}");
    assert!(!agent.answers().contains(&true), "a cancel allowed the tool");
    let gone = agent.answer(&session, &ask, true).await.expect_err("the turn was canceled");
    assert_eq!(gone.kind(), ErrorKind::InterruptNotFound, "{gone}");
    works(agent, &session).await;
}

pub(super) async fn a_cancel_of_a_running_tool_closes_its_call(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    agent.reply_with(Reply::new().held_tool("sleep 1000", &gate).text("Done."));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    running.until_tool_runs().await;
    gate.reached().await;
    agent.cancel(&session).await;
    let finished = running.rest().await;
    finished.canceled("");
    assert_eq!(finished.tools().len(), 1);
    works(agent, &session).await;
}

pub(super) async fn a_cancel_after_the_end_changes_nothing(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().text("done"));
    let session = agent.session().await;
    agent.run(&session, "first").await.completed("done");
    agent.cancel(&session).await;
    works(agent, &session).await;
}

pub(super) async fn two_cancels_end_the_turn_once(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    agent.reply_with(Reply::new().text("one").hold(&gate));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    running.until_text("one").await;
    gate.reached().await;
    tokio::join!(agent.cancel(&session), agent.cancel(&session));
    running.rest().await.canceled("one");
    works(agent, &session).await;
}

pub(super) async fn a_cancel_and_the_end_at_the_same_time_end_the_turn_once(agent: &dyn AgentUnderTest) {
    let session = agent.session().await;
    for _ in 0..10 {
        let gate = Gate::new();
        agent.reply_with(Reply::new().text("one").hold(&gate));
        let running = agent.start(&session, "first").await;
        gate.reached().await;
        gate.open();
        agent.cancel(&session).await;
        let finished = running.rest().await;
        assert!(matches!(finished.end, End::Completed | End::Canceled), "{finished:?}");
        assert_eq!(finished.text(), "one");
    }
    works(agent, &session).await;
}

pub(super) async fn a_cancel_stops_only_its_session(agent: &dyn AgentUnderTest) {
    let gates = [Gate::new(), Gate::new()];
    let sessions = [agent.session().await, agent.session().await];
    let mut running = Vec::new();
    for (session, gate) in sessions.iter().zip(&gates) {
        agent.reply_with(Reply::new().text("one ").hold(gate).text("two"));
        let mut turn = agent.start(session, "go").await;
        turn.until_text("one ").await;
        gate.reached().await;
        running.push(turn);
    }
    agent.cancel(&sessions[0]).await;
    running.remove(0).rest().await.canceled("one ");
    gates[1].open();
    running.remove(0).rest().await.completed("one two");
}

pub(super) async fn a_prompt_right_after_a_cancel_waits_for_its_end(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    agent.reply_with(Reply::new().text("one").hold(&gate).text("two"));
    let session = agent.session().await;
    let running = agent.start(&session, "first").await;
    gate.reached().await;
    // The engine stops reading before it cancels.
    drop(running);
    agent.cancel(&session).await;
    works(agent, &session).await;
    assert_eq!(agent.prompts().len(), 2);
}

/// The reader of the turn is far behind when the cancel comes.
pub(super) async fn an_unread_turn_can_be_canceled(agent: &dyn AgentUnderTest) {
    let words: Vec<String> = (0..3_000).map(|number| format!("{number} ")).collect();
    let gates = [Gate::new(), Gate::new()];
    agent.reply_with(Reply::new().thought("hm").hold(&gates[0]).chunks(words.clone()).hold(&gates[1]));
    let session = agent.session().await;
    let running = agent.start(&session, "first").await;
    gates[0].reached().await;
    gates[0].open();
    let ((), finished) = tokio::join!(agent.cancel(&session), running.rest());
    assert_eq!(finished.end, End::Canceled);
    assert!(words.concat().starts_with(&finished.text()), "the text is no prefix of what was said");
    works(agent, &session).await;
}
