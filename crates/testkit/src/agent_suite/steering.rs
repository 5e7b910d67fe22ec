//! Messages that join a running turn, with agents that take them and with agents that do not.

use super::{AgentUnderTest, Reply};
use crate::fake_opencode::Gate;

pub(super) async fn a_message_joins_the_running_turn_or_is_refused(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    agent.reply_with(Reply::new().text("one. ").hold(&gate));
    agent.reply_with(Reply::new().text("two."));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    running.until_text("one. ").await;
    gate.reached().await;
    let has_joined = agent.steer(&running, "second").await;
    assert_eq!(has_joined, agent.abilities().steers);
    gate.open();
    let (text, prompts): (_, &[&str]) =
        if has_joined { ("one. two.", &["first", "second"]) } else { ("one. ", &["first"]) };
    running.rest().await.completed(text);
    assert_eq!(agent.prompts(), prompts);
}

pub(super) async fn a_message_after_the_end_is_refused(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().text("one"));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    running.until_end().await;
    assert!(!agent.steer(&running, "second").await, "a turn that is over took a message");
    running.rest().await.completed("one");
    assert_eq!(agent.prompts(), ["first"]);
}
