//! Sessions: opened, and opened again after a death of the agent.

use super::*;
use longshore_engine::port::{ContentFacts, FileSource, InputFile};
use sha2::{Digest as _, Sha256};

/// Lets the agent die during a turn in which it said `half`.
async fn broken_off(stage: &mut Stage, about: Value) -> Session {
    let session = stage.begin(about, "s").await;
    let (mut turn, _) = stage.prompt(&session, "old").await;
    stage.peers[0].text("s", "half").await;
    assert!(matches!(next(&mut turn).await, AgentEvent::Text { .. }));
    stage.die();
    assert!(matches!(rest(&mut turn).await.1, Outcome::Failed(_)));
    stage.wait_for_back().await;
    session
}

#[tokio::test]
async fn the_next_turn_after_a_death_loads_the_session_and_says_what_the_agent_did_meanwhile() {
    let replayed = |reply: &'static str| move |kind: &str, text: &str| json!({"sessionUpdate": kind, "content": {"type": "text", "text": if kind.starts_with("user") { text } else { reply }}});
    for (reply, remark) in [
        (Some("half"), None),
        (Some("half and the rest"), Some("it first went on with the turn before")),
        (None, Some("showed no history of the session")),
    ] {
        let mut stage = stage(2);
        let session = broken_off(&mut stage, loads()).await;
        let playing = async {
            let peer = &mut stage.peers[0];
            peer.answer("initialize", loads()).await;
            let load = peer.get().await;
            assert_eq!(
                (&load["method"], &load["params"]["sessionId"]),
                (&json!("session/load"), &json!("s"))
            );
            if let Some(reply) = reply {
                let update = replayed(reply);
                peer.update("s", update("user_message_chunk", "old")).await;
                peer.update("s", update("agent_message_chunk", "")).await;
            }
            peer.say(&json!({"id": load["id"], "result": null})).await;
            let prompt = peer.get().await;
            assert_eq!(prompt["params"]["prompt"][0]["text"], "new");
            peer.end(&prompt, "end_turn").await;
        };
        let (turn, ()) = tokio::join!(stage.agent.start_turn(request(&session, "new")), playing);
        let (said, outcome) = rest(&mut turn.unwrap()).await;
        assert_eq!(said, "", "the history is not reported again");
        let Outcome::Completed { remark: told } = outcome else { panic!("not completed") };
        match remark {
            Some(remark) => assert!(told.unwrap().contains(remark)),
            None => assert_eq!(told, None),
        }
    }
}

#[tokio::test]
async fn a_session_that_the_agent_cannot_open_again_is_gone() {
    let resumes = json!({"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"resume": {}}}});
    for (about, method, code) in [
        (json!({"protocolVersion": 1}), None, 0),
        (loads(), Some("session/load"), -32602),
        (resumes, Some("session/resume"), -32601),
    ] {
        let mut stage = stage(2);
        let session = broken_off(&mut stage, about.clone()).await;
        let again = request(&session, "new");
        let prompting = again.prompting.clone();
        let playing = async {
            stage.peers[0].answer("initialize", about).await;
            if let Some(method) = method {
                stage.peers[0].fail(method, code, "no such thing").await;
            }
        };
        let (refused, ()) = tokio::join!(stage.agent.start_turn(again), playing);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::SessionGone);
        assert!(!prompting.has_begun());
        let fresh = stage.open("fresh").await;
        let (turn, _) = stage.prompt(&fresh, "new").await;
        drop(turn);
    }
}

#[tokio::test]
async fn a_login_is_made_after_each_start_and_its_failure_is_told() {
    let mut stage = stage_with(1, |config| config.auth_method = Some("key".to_owned()));
    let playing = async {
        stage.peers[0].answer("initialize", loads()).await;
        stage.peers[0].fail("authenticate", -32603, "no key").await;
    };
    let (started, ()) = tokio::join!(stage.agent.start(), playing);
    let refused = started.unwrap_err();
    assert!(
        refused.needs_credentials() && refused.message().contains("could not log in: no key"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_picture_of_the_workspace_is_sent_unless_it_changed_since_it_was_checked() {
    let mut stage = stage(1);
    let about = json!({"protocolVersion": 1, "agentCapabilities": {"promptCapabilities": {"image": true}}});
    let session = stage.begin(about, "s").await;
    let path = stage.root.path().canonicalize().unwrap().join("p.png");
    std::fs::write(&path, "picture").unwrap();
    let file = |hash: &[u8]| {
        let content = ContentFacts { bytes: 7, sha256: Sha256::digest(hash).into() };
        let (source, media_type) = (FileSource::Workspace(path.clone()), "image/png".to_owned());
        Input::File(InputFile { name: None, media_type, is_text: false, source, content: Some(content) })
    };
    for (hash, kind) in [(b"picture", "image"), (b"changed", "text")] {
        let request = TurnRequest { input: vec![file(hash)], ..request(&session, "") };
        let (turn, prompt) = tokio::join!(stage.agent.start_turn(request), stage.peers[0].get());
        assert_eq!(prompt["params"]["prompt"][0]["type"], kind);
        stage.peers[0].end(&prompt, "end_turn").await;
        rest(&mut turn.unwrap()).await;
    }
}
