//! Several sessions of one agent.

use futures_util::future::join_all;
use longshore_engine::port::Session;
use longshore_model::{ErrorKind, SessionId};

use super::{AgentUnderTest, Received, Reply};
use crate::fake_opencode::Gate;

pub(super) async fn sessions_do_not_mix(agent: &dyn AgentUnderTest) {
    let (a, b) = (agent.session().await, agent.session().await);
    assert_ne!(a.id, b.id);
    let gates = [Gate::new(), Gate::new()];
    agent.reply_with(Reply::new().text("a1 ").hold(&gates[0]).tool("ls a", "a").text("a2"));
    let mut first = agent.start(&a, "to a").await;
    first.until_text("a1 ").await;
    agent.reply_with(Reply::new().text("b1 ").hold(&gates[1]).tool("ls b", "b").text("b2"));
    let mut second = agent.start(&b, "to b").await;
    second.until_text("b1 ").await;
    gates[0].open();
    gates[1].open();
    let (first, second) = tokio::join!(first.rest(), second.rest());
    first.completed("a1 a2");
    second.completed("b1 b2");
    assert_eq!((first.tools().len(), second.tools().len()), (1, 1));
    let prompt = |session: &Session, text: &str| Received::Prompt {
        session: session.id.as_str().to_owned(),
        text: text.to_owned(),
    };
    assert_eq!(agent.received(), [prompt(&a, "to a"), prompt(&b, "to b")]);
}

pub(super) async fn asks_of_two_sessions_do_not_mix(agent: &dyn AgentUnderTest) {
    let sessions = [agent.session().await, agent.session().await];
    let mut running = Vec::new();
    for (session, name) in sessions.iter().zip(["a", "b"]) {
        agent.reply_with(Reply::new().guarded_tool(&format!("rm {name}"), "").text(name));
        let mut turn = agent.start(session, name).await;
        let ask = turn.asked().await;
        assert!(ask.summary.contains(&format!("rm {name}")), "{ask:?}");
        running.push((turn, ask));
    }
    let (second, ask) = running.pop().expect("two turns");
    agent.answer(&sessions[1], &ask, true).await.expect("the ask is open");
    second.rest().await.completed("b");
    let (first, ask) = running.pop().expect("two turns");
    agent.answer(&sessions[0], &ask, true).await.expect("the other answer left this ask open");
    first.rest().await.completed("a");
}

pub(super) async fn many_sessions_work_at_once(agent: &dyn AgentUnderTest) {
    const SESSIONS: usize = 12;
    let words: Vec<String> = (0..50).map(|number| format!("{number} ")).collect();
    for _ in 0..SESSIONS {
        agent.reply_with(Reply::new().chunks(words.clone()));
    }
    let turn = async || {
        let session = agent.session().await;
        agent.run(&session, "count").await.completed(&words.concat());
    };
    join_all((0..SESSIONS).map(|_| turn())).await;
    assert_eq!(agent.prompts().len(), SESSIONS);
}

pub(super) async fn an_unknown_session_is_gone_and_nothing_is_prompted(agent: &dyn AgentUnderTest) {
    if !agent.abilities().checks_sessions {
        return;
    }
    let known = agent.session().await;
    let session = Session { id: SessionId::parse("ses_unknown").expect("an id"), ..known.clone() };
    let gone = agent.try_start(&session, "hello").await.expect_err("there is no such session");
    assert_eq!(gone.kind(), ErrorKind::SessionGone, "{gone}");
    assert_eq!(agent.prompts(), [""; 0]);
    agent.reply_with(Reply::new().text("here"));
    agent.run(&known, "hello").await.completed("here");
}

pub(super) async fn a_healthy_agent_passes_its_check(agent: &dyn AgentUnderTest) {
    let session = agent.session().await;
    agent.check_agent().await.expect("the agent is well");
    agent.reply_with(Reply::new().text("well"));
    agent.run(&session, "how are you?").await.completed("well");
    agent.check_agent().await.expect("the agent is still well");
    assert_eq!(agent.prompts().len(), 1, "a check is no prompt");
}
