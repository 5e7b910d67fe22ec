//! Permissions: allowed, rejected, and answered when they are no longer open.

use longshore_model::{ErrorKind, RequestId, ToolStatus};

use super::running::End;
use super::{AgentUnderTest, Reply};

pub(super) async fn an_allowed_tool_runs(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().text("May I? ").guarded_tool("rm x", "removed").text("Done."));
    let session = agent.session().await;
    let mut running = agent.start(&session, "clean up").await;
    let ask = running.asked().await;
    assert!(ask.summary.contains("rm x"), "{ask:?}");
    assert_eq!(ask.session, session.id);
    agent.answer(&session, &ask, true).await.expect("the ask is open");
    running.until_closed(&ask).await;
    let finished = running.rest().await;
    finished.completed("May I? Done.");
    let [call] = finished.tools().try_into().expect("one tool call");
    assert_eq!(call.status, ToolStatus::Completed);
    assert_eq!(agent.answers(), [true]);
}

pub(super) async fn a_rejected_tool_does_not_run(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().guarded_tool("rm x", "removed").text("Done."));
    let session = agent.session().await;
    let mut running = agent.start(&session, "clean up").await;
    let ask = running.asked().await;
    agent.answer(&session, &ask, false).await.expect("the ask is open");
    let finished = running.rest().await;
    assert!(matches!(finished.end, End::Completed | End::Failed(_)), "{finished:?}");
    assert!(finished.tools().iter().all(|call| call.status == ToolStatus::Error), "{finished:?}");
    assert_eq!(agent.answers(), [false]);
    agent.reply_with(Reply::new().text("well"));
    agent.run(&session, "go on").await.completed("well");
}

pub(super) async fn asks_of_one_turn_are_answered_one_after_the_other(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().guarded_tool("rm x", "").guarded_tool("rm y", "").text("Done."));
    let session = agent.session().await;
    let mut running = agent.start(&session, "clean up").await;
    let first = running.asked().await;
    agent.answer(&session, &first, true).await.expect("the first ask is open");
    let second = running.asked().await;
    assert_ne!(first.request_id, second.request_id);
    assert!(second.summary.contains("rm y"), "{second:?}");
    agent.answer(&session, &second, true).await.expect("the second ask is open");
    running.rest().await.completed("Done.");
    assert_eq!(agent.answers(), [true, true]);
}

pub(super) async fn a_second_answer_finds_no_ask(agent: &dyn AgentUnderTest) {
    let gate = crate::fake_opencode::Gate::new();
    agent.reply_with(Reply::new().guarded_tool("rm x", "").hold(&gate).text("Done."));
    let session = agent.session().await;
    let mut running = agent.start(&session, "clean up").await;
    let ask = running.asked().await;
    agent.answer(&session, &ask, true).await.expect("the ask is open");
    running.until_closed(&ask).await;
    for is_allowed in [true, false] {
        let gone = agent.answer(&session, &ask, is_allowed).await.expect_err("the ask is closed");
        assert_eq!(gone.kind(), ErrorKind::InterruptNotFound, "{gone}");
    }
    gate.open();
    running.rest().await.completed("Done.");
    assert_eq!(agent.answers().first(), Some(&true));
}

pub(super) async fn an_answer_after_the_end_finds_no_ask(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().guarded_tool("rm x", "").text("Done."));
    let session = agent.session().await;
    let mut running = agent.start(&session, "clean up").await;
    let ask = running.asked().await;
    agent.answer(&session, &ask, true).await.expect("the ask is open");
    running.rest().await.completed("Done.");
    let gone = agent.answer(&session, &ask, false).await.expect_err("the turn is over");
    assert_eq!(gone.kind(), ErrorKind::InterruptNotFound, "{gone}");
}

pub(super) async fn an_answer_to_an_unknown_ask_finds_no_ask(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().guarded_tool("rm x", "").text("Done."));
    let session = agent.session().await;
    let mut running = agent.start(&session, "clean up").await;
    let mut ask = running.asked().await;
    let known = std::mem::replace(&mut ask.request_id, RequestId::parse("per_unknown").expect("an id"));
    let gone = agent.answer(&session, &ask, true).await.expect_err("nobody asked this");
    assert_eq!(gone.kind(), ErrorKind::InterruptNotFound, "{gone}");
    ask.request_id = known;
    agent.answer(&session, &ask, true).await.expect("the ask is still open");
    running.rest().await.completed("Done.");
}

/// The first answer counts. The other one finds the ask closed, or is the same call to an agent that takes it twice.
pub(super) async fn concurrent_answers_are_one_answer(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().guarded_tool("rm x", "").text("Done."));
    let session = agent.session().await;
    let mut running = agent.start(&session, "clean up").await;
    let ask = running.asked().await;
    let answers = tokio::join!(agent.answer(&session, &ask, true), agent.answer(&session, &ask, true));
    assert!(answers.0.is_ok() || answers.1.is_ok(), "{answers:?}");
    for refused in [answers.0, answers.1].into_iter().filter_map(Result::err) {
        assert_eq!(refused.kind(), ErrorKind::InterruptNotFound, "{refused}");
    }
    running.rest().await.completed("Done.");
}
