//! Tests of sessions: opening them, and reopening them after the agent has died.

use super::*;
use longshore_engine::port::{ContentFacts, Control, FileSource, InputFile};
use longshore_model::ControlCommand;
use sha2::{Digest as _, Sha256};

/// Lets the agent die during a turn in which it has said `half`.
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
        (None, Some("showed no history of it")),
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

/// An agent that can close sessions, and can reopen them without their history.
fn closes() -> Value {
    json!({"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"close": {}, "resume": {}}}})
}

/// Opens sessions `s1` to `s<count>`.
async fn open_many(stage: &mut Stage, count: usize) -> Vec<Session> {
    let mut sessions = vec![stage.begin(closes(), "s1").await];
    for number in 2..=count {
        sessions.push(stage.open(&format!("s{number}")).await);
    }
    sessions
}

/// Runs a whole turn in a session that the process has.
async fn use_once(stage: &mut Stage, session: &Session) {
    let (mut turn, prompt) = stage.prompt(session, "hi").await;
    stage.peers[0].end(&prompt, "end_turn").await;
    assert_eq!(rest(&mut turn).await.1, completed());
}

/// An agent may not keep a session in which nothing was said, so it could not open it again.
#[tokio::test(start_paused = true)]
async fn a_new_session_is_not_closed_before_its_first_turn_had_time_to_begin() {
    let mut stage = stage_with(1, |config| config.limits.open_sessions = 1);
    let first = stage.begin(closes(), "s1").await;
    let (mut turn, prompt) = stage.prompt(&first, "hi").await;
    // The first session is in use, so only the second one could be closed.
    let second = stage.open("s2").await;
    stage.open("s3").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (mut late, late_prompt) = stage.prompt(&second, "hi").await;
    stage.peers[0].end(&late_prompt, "end_turn").await;
    assert_eq!(rest(&mut late).await.1, completed());
    assert_eq!(stage.peers[0].answer("session/close", json!({})).await["params"]["sessionId"], "s2");
    // The first turn of the session never came.
    tokio::time::sleep(Duration::from_mins(2)).await;
    stage.peers[0].end(&prompt, "end_turn").await;
    assert_eq!(rest(&mut turn).await.1, completed());
    assert_eq!(stage.peers[0].answer("session/close", json!({})).await["params"]["sessionId"], "s3");
}

#[tokio::test]
async fn the_sessions_that_were_used_least_recently_are_closed_and_opened_again_for_their_next_turn() {
    let mut stage = stage_with(1, |config| config.limits.open_sessions = 2);
    let sessions = open_many(&mut stage, 2).await;
    use_once(&mut stage, &sessions[1]).await;
    use_once(&mut stage, &sessions[0]).await;
    stage.open("s3").await;
    let closed = stage.peers[0].answer("session/close", json!({})).await;
    assert_eq!(closed["params"]["sessionId"], "s2", "the first was used more recently");

    let playing = async {
        let peer = &mut stage.peers[0];
        // The two requests may come in either order.
        let first = peer.get().await;
        let second = peer.get().await;
        for request in [first, second] {
            let method = request["method"].as_str().unwrap();
            let session = request["params"]["sessionId"].as_str().unwrap();
            assert!(
                matches!((method, session), ("session/resume", "s2") | ("session/close", "s1")),
                "{request}"
            );
            peer.say(&json!({"id": request["id"], "result": {}})).await;
        }
        peer.get().await
    };
    let (turn, prompt) = tokio::join!(stage.agent.start_turn(request(&sessions[1], "again")), playing);
    assert_eq!(prompt["params"]["sessionId"], "s2");
    stage.peers[0].end(&prompt, "end_turn").await;
    assert_eq!(rest(&mut turn.unwrap()).await.1, completed());
}

#[tokio::test]
async fn a_session_is_not_closed_during_a_turn_or_an_ask() {
    let mut stage = stage_with(1, |config| config.limits.open_sessions = 1);
    let first = stage.begin(closes(), "s1").await;
    let (mut turn, prompt) = stage.prompt(&first, "hi").await;
    stage.peers[0].ask("s1", json!(0)).await;
    let asked = ask(&mut turn).await;
    stage.open("s2").await;
    stage.agent.reply(&first, &asked, &permission(PermissionReply::Once)).await.unwrap();
    assert_eq!(stage.peers[0].get().await["result"]["outcome"]["optionId"], "y");
    stage.peers[0].end(&prompt, "end_turn").await;
    assert_eq!(rest(&mut turn).await.1, completed());
    let closed = stage.peers[0].answer("session/close", json!({})).await;
    assert_eq!(closed["params"]["sessionId"], "s1", "only after the turn");
}

#[tokio::test]
async fn a_turn_waits_for_the_close_of_its_session() {
    let mut stage = stage_with(1, |config| config.limits.open_sessions = 1);
    let sessions = open_many(&mut stage, 1).await;
    use_once(&mut stage, &sessions[0]).await;
    stage.open("s2").await;
    let close = stage.peers[0].get().await;
    assert_eq!((&close["method"], &close["params"]["sessionId"]), (&json!("session/close"), &json!("s1")));
    let playing = async {
        let mut starting = Box::pin(stage.agent.start_turn(request(&sessions[0], "again")));
        assert!(poll_once(&mut starting).await.is_none());
        let answering = async {
            let peer = &mut stage.peers[0];
            peer.say(&json!({"id": close["id"], "result": {}})).await;
            let mut methods = Vec::new();
            loop {
                let request = peer.get().await;
                methods.push(request["method"].as_str().unwrap().to_owned());
                if methods.last().unwrap() == "session/prompt" {
                    peer.end(&request, "end_turn").await;
                    return methods;
                }
                peer.say(&json!({"id": request["id"], "result": {}})).await;
            }
        };
        let (turn, methods) = tokio::join!(starting, answering);
        assert!(methods.iter().any(|method| method == "session/resume"), "{methods:?}");
        assert_eq!(rest(&mut turn.unwrap()).await.1, completed());
    };
    timeout(PATIENCE, playing).await.expect("the turn starts");
}

#[tokio::test]
async fn sessions_stay_open_if_the_agent_lacks_a_way_to_close_or_to_open_them() {
    let only_closes =
        json!({"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"close": {}}}});
    for (about, fails) in [(loads(), false), (only_closes, false), (closes(), true)] {
        let mut stage = stage_with(1, |config| config.limits.open_sessions = 1);
        let first = stage.begin(about, "s1").await;
        use_once(&mut stage, &first).await;
        let second = stage.open("s2").await;
        if fails {
            stage.peers[0].fail("session/close", -32601, "Method not found").await;
        }
        // No session is reopened, and no other session is closed.
        for session in [&first, &second, &first] {
            let (mut turn, prompt) = stage.prompt(session, "hi").await;
            stage.peers[0].end(&prompt, "end_turn").await;
            assert_eq!(rest(&mut turn).await.1, completed());
        }
    }
}

#[derive(Debug, Default)]
struct OwnServers(Mutex<Vec<String>>);

impl OwnServers {
    fn server(name: &str) -> McpServer {
        McpServer::Stdio { name: name.to_owned(), command: "c".to_owned(), args: Vec::new(), env: Vec::new() }
    }
}

impl SessionServers for OwnServers {
    fn of_new_session(&self, agent: &str) -> (McpServer, String) {
        (Self::server(agent), "a ticket".to_owned())
    }

    fn bind(&self, ticket: &str, session: &SessionId) {
        self.0.lock().unwrap().push(format!("{ticket}: {}", session.as_str()));
    }

    fn of_session(&self, agent: &str, session: &SessionId) -> McpServer {
        Self::server(&format!("{agent} {}", session.as_str()))
    }
}

#[tokio::test]
async fn each_session_has_a_server_that_is_bound_to_it() {
    let servers = Arc::new(OwnServers::default());
    let own: Arc<dyn SessionServers> = servers.clone();
    let mut stage = stage_with(2, |config| config.session_servers = Some(own));
    let about = json!({"protocolVersion": 1, "agentInfo": {"name": "own"}, "agentCapabilities": {
        "loadSession": true, "sessionCapabilities": {"fork": {}}}});
    let playing = async {
        stage.peers[0].answer("initialize", about).await;
        let new = stage.peers[0].get().await;
        stage.peers[0].say(&json!({"id": new["id"], "result": {"sessionId": "s"}})).await;
        new["params"]["mcpServers"][0]["name"].clone()
    };
    let directory = stage.root.path().canonicalize().unwrap().to_str().unwrap().to_owned();
    let opening = stage.agent.open_session(NewSession { directory, title: None });
    let (session, name) = tokio::join!(opening, playing);
    assert_eq!(name, "own");
    assert_eq!(*servers.0.lock().unwrap(), ["a ticket: s"]);

    let session = session.unwrap();
    let command = ControlCommand::Fork { session: session.id.clone(), before: None };
    let (copied, asked) = tokio::join!(
        stage.agent.run_command(&session.directory, Some(&session), &command),
        stage.peers[0].answer("session/fork", json!({"sessionId": "copy"}))
    );
    copied.unwrap();
    assert_eq!(asked["params"]["mcpServers"][0]["name"], "own");
    assert_eq!(*servers.0.lock().unwrap(), ["a ticket: s", "a ticket: copy"]);

    let (mut turn, _) = stage.prompt(&session, "old").await;
    stage.die();
    rest(&mut turn).await;
    stage.wait_for_back().await;
    let playing = async {
        stage.peers[0].answer("initialize", loads()).await;
        let load = stage.peers[0].get().await;
        stage.peers[0].say(&json!({"id": load["id"], "result": null})).await;
        assert_eq!(load["params"]["mcpServers"][0]["name"], "own s");
        stage.peers[0].get().await;
    };
    let (turn, ()) = tokio::join!(stage.agent.start_turn(request(&session, "new")), playing);
    turn.unwrap();
}
