mod choices;
mod commands;
mod keep;
mod sessions;
mod turns;

use std::collections::VecDeque;
use std::sync::Mutex;

use longshore_engine::port::{Input, Prompting};
use longshore_model::{AgentEvent, ErrorKind, Outcome, PermissionReply, PromptId, PromptOptions, TaskId};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::*;
use crate::peer::Peer;

/// The longest wait of a test. Only a hang takes this long, because the agents here answer at once.
const PATIENCE: Duration = Duration::from_mins(1);

/// An agent whose processes the test plays, one after the other.
struct Stage {
    agent: Arc<AcpAgent>,
    peers: VecDeque<Peer>,
    root: tempfile::TempDir,
    _tasks: Tasks,
}

fn config(root: &std::path::Path) -> AcpConfig {
    AcpConfig {
        cancel_patience: Duration::from_secs(5),
        ..AcpConfig::new("configured", ProcessConfig::new("unused", root), root)
    }
}

fn stage_with(processes: usize, change: impl FnOnce(&mut AcpConfig)) -> Stage {
    let root = tempfile::tempdir().unwrap();
    let mut config = config(root.path());
    change(&mut config);
    let (peers, pipes): (VecDeque<_>, VecDeque<_>) = (0..processes).map(|_| Peer::new()).unzip();
    let tasks = Tasks::new();
    let agent = AcpAgent::with_source(config, Source::Played(Mutex::new(pipes)), &tasks);
    Stage { agent: Arc::new(agent), peers, root, _tasks: tasks }
}

fn stage(processes: usize) -> Stage {
    stage_with(processes, |_| {})
}

/// An agent that can load sessions.
fn loads() -> Value {
    json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}, "agentInfo": {"name": "own", "version": "3"}})
}

impl Stage {
    /// Opens a session in the running process.
    async fn open(&mut self, id: &str) -> Session {
        let directory = self.directory();
        let answer = json!({"sessionId": id});
        let (opened, _) = tokio::join!(
            self.agent.open_session(NewSession { directory, title: None }),
            self.peers[0].answer("session/new", answer)
        );
        opened.unwrap()
    }

    /// Starts the first process and opens a session in it.
    async fn begin(&mut self, about: Value, id: &str) -> Session {
        let (facts, _) = tokio::join!(self.agent.start(), self.peers[0].answer("initialize", about));
        facts.unwrap();
        self.open(id).await
    }

    fn directory(&self) -> String {
        self.root.path().canonicalize().unwrap().to_str().unwrap().to_owned()
    }

    /// Starts a turn in a session that the process already has.
    async fn prompt(&mut self, session: &Session, text: &str) -> (Turn, Value) {
        let (turn, prompt) = tokio::join!(self.agent.start_turn(request(session, text)), self.peers[0].get());
        assert_eq!(prompt["method"], "session/prompt");
        (turn.unwrap(), prompt)
    }

    /// Ends the process as if the agent had died.
    fn die(&mut self) {
        self.peers.pop_front();
    }

    async fn wait_for_back(&self) {
        timeout(PATIENCE, self.agent.until_back()).await.expect("the agent comes back");
        self.agent.check().await.unwrap();
    }
}

fn request(session: &Session, text: &str) -> TurnRequest {
    TurnRequest {
        task: TaskId::parse("t").unwrap(),
        session: session.clone(),
        prompt: new_prompt(),
        input: vec![Input::Text(text.to_owned())],
        options: PromptOptions::default(),
        order: None,
        is_adopted: false,
        resume: None,
        prompting: Prompting::default(),
        trace: None,
    }
}

async fn next(turn: &mut Turn) -> AgentEvent {
    timeout(PATIENCE, turn.events.recv()).await.expect("an event comes").expect("the turn has no end")
}

/// The next ask of the turn.
async fn ask(turn: &mut Turn) -> Ask {
    loop {
        if let AgentEvent::Asked(ask) = next(turn).await {
            return *ask;
        }
    }
}

/// Reads to the end of the turn, and returns the remaining text and the outcome.
async fn rest(turn: &mut Turn) -> (String, Outcome) {
    let mut said = String::new();
    loop {
        match next(turn).await {
            AgentEvent::Text { text, .. } => said.push_str(&text),
            AgentEvent::Ended(outcome) => return (said, outcome),
            _ => {}
        }
    }
}

fn completed() -> Outcome {
    Outcome::Completed { remark: None }
}

fn failure(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed(failure) => &failure.message,
        other => panic!("not failed: {other:?}"),
    }
}

fn permission(reply: PermissionReply) -> Answer {
    Answer::Permission { reply, message: None }
}

#[tokio::test]
async fn the_first_use_starts_the_agent_and_a_caller_who_leaves_does_not_stop_the_start() {
    let mut stage = stage(1);
    assert_eq!(stage.agent.facts(), None);
    stage.agent.check().await.unwrap();
    {
        let mut leaving = Box::pin(stage.agent.start());
        assert!(poll_once(&mut leaving).await.is_none());
    }
    let (facts, _) = tokio::join!(stage.agent.start(), stage.peers[0].answer("initialize", loads()));
    let facts = facts.unwrap();
    assert_eq!((facts.name.as_str(), facts.version.as_str()), ("own", "3"));
    assert!(facts.capabilities.load && !facts.capabilities.resume);
}

/// Polls a future once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    timeout(Duration::ZERO, future).await.ok()
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_start_is_tried_again_after_growing_pauses() {
    let stage = stage(0);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let failed = stage.agent.start().await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::AgentUnavailable);
        let down = Instant::now();
        assert_eq!(stage.agent.check().await.unwrap_err().message(), failed.message());
        assert_eq!(
            stage.agent.start().await.unwrap_err().message(),
            failed.message(),
            "not tried again at once"
        );
        stage.agent.until_back().await;
        stage.agent.check().await.unwrap();
        pauses.push(down.elapsed().as_millis());
    }
    let expected = [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000];
    // Timers have a resolution of one millisecond.
    assert!(pauses.iter().zip(expected).all(|(pause, expected)| pause.abs_diff(expected) <= 1), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_worked_sets_the_pause_back() {
    let mut stage = stage(3);
    for (works, expected) in [(false, 500), (false, 1_000), (true, 500)] {
        let session = stage.begin(loads(), "s").await;
        if works {
            let (mut turn, prompt) = stage.prompt(&session, "hi").await;
            stage.peers[0].end(&prompt, "end_turn").await;
            assert_eq!(rest(&mut turn).await.1, completed());
        }
        stage.die();
        let down = Instant::now();
        while stage.agent.check().await.is_ok() {
            tokio::task::yield_now().await;
        }
        stage.agent.until_back().await;
        let pause = down.elapsed().as_millis();
        assert!(pause.abs_diff(expected) <= 1, "{pause} instead of {expected}");
    }
}

#[tokio::test]
async fn stop_ends_the_process_for_good() {
    let mut stage = stage(2);
    stage.begin(loads(), "s").await;
    tokio::join!(stage.agent.stop(), stage.peers[0].closed());
    assert_eq!(stage.agent.start().await.unwrap_err().kind(), ErrorKind::AgentUnavailable);
    assert_eq!(stage.agent.facts().unwrap().name, "own", "what it said is still known");
}

#[tokio::test(start_paused = true)]
async fn an_idle_agent_is_stopped_and_started_again_by_the_next_turn() {
    let mut stage = stage_with(2, |config| config.idle_stop = Some(Duration::from_mins(5)));
    let session = stage.begin(loads(), "s").await;
    let (mut turn, prompt) = stage.prompt(&session, "hi").await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    stage.peers[0].end(&prompt, "end_turn").await;
    assert_eq!(rest(&mut turn).await.1, completed(), "an agent that works is not idle");
    let idle = Instant::now();
    stage.peers[0].closed().await;
    assert_eq!(idle.elapsed().as_secs(), 300);
    stage.agent.check().await.unwrap();
    stage.die();
    let again = request(&session, "again");
    let playing = async {
        stage.peers[0].answer("initialize", loads()).await;
        stage.peers[0].answer("session/load", json!({})).await;
        stage.peers[0].get().await
    };
    let (turn, prompt) = tokio::join!(stage.agent.start_turn(again), playing);
    assert_eq!(prompt["params"]["prompt"][0]["text"], "again");
    turn.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_that_the_agent_still_opens_for_an_earlier_request_is_not_lost() {
    let mut stage = stage_with(2, |config| config.idle_stop = Some(Duration::from_mins(5)));
    let session = stage.begin(loads(), "s").await;
    stage.peers[0].closed().await;
    stage.die();
    let playing = async {
        stage.peers[0].answer("initialize", loads()).await;
        for _ in 0..2 {
            let busy = "session is already loading with different settings: s";
            stage.peers[0].fail("session/load", -32603, busy).await;
        }
        stage.peers[0].answer("session/load", json!({})).await;
        stage.peers[0].get().await
    };
    let (turn, prompt) = tokio::join!(stage.agent.start_turn(request(&session, "again")), playing);
    assert_eq!(prompt["params"]["prompt"][0]["text"], "again");
    turn.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_would_lose_its_sessions_is_not_stopped_for_being_idle() {
    let mut stage = stage_with(1, |config| config.idle_stop = Some(Duration::from_mins(5)));
    let session = stage.begin(json!({"protocolVersion": 1}), "s").await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    let (mut turn, prompt) = stage.prompt(&session, "hi").await;
    stage.peers[0].end(&prompt, "end_turn").await;
    assert_eq!(rest(&mut turn).await.1, completed());
}

#[tokio::test]
async fn a_directory_must_be_in_the_workspace() {
    let outside = tempfile::tempdir().unwrap();
    let stage = stage_with(0, |config| {
        std::fs::create_dir_all(config.workspace.join("sub/secret")).unwrap();
        std::fs::write(config.workspace.join("file"), "").unwrap();
        std::os::unix::fs::symlink(outside.path(), config.workspace.join("out")).unwrap();
        std::os::unix::fs::symlink(config.workspace.join("sub"), config.workspace.join("in")).unwrap();
        config.protected = Arc::new(ProtectedPaths::new([config.workspace.join("sub/secret")]));
    });
    let root = stage.directory();
    let workspace = std::path::PathBuf::from(&root);
    let fixed = stage_with(1, |config| {
        config.workspace = workspace;
        config.allow_directory_override = false;
    });
    let options = PromptOptions::default();
    for (directory, expected) in [
        (None, Some(root.clone())),
        (Some(" "), Some(root.clone())),
        (Some("."), Some(root.clone())),
        (Some("sub"), Some(format!("{root}/sub"))),
        (Some("in"), Some(format!("{root}/sub"))),
        (Some("sub/../sub"), Some(format!("{root}/sub"))),
        (Some("out"), None),
        (Some(".."), None),
        (Some("/"), None),
        (Some("file"), None),
        (Some("nowhere"), None),
        (Some("sub/secret"), None),
    ] {
        let request = Admission { directory, workspace: None, current: None, options: &options };
        let admitted = stage.agent.admit(request).await;
        assert_eq!(
            admitted.as_ref().ok().map(|admitted| admitted.directory.clone()),
            expected,
            "{directory:?}"
        );
        if let Err(error) = admitted {
            assert_eq!(error.kind(), ErrorKind::InvalidParams);
        }
        let admitted = fixed.agent.admit(request).await.ok().map(|admitted| admitted.directory);
        let is_root = expected.as_ref() == Some(&root);
        assert_eq!(admitted.is_some(), is_root, "only the root, but {directory:?}");
    }
    let request = Admission { directory: None, workspace: Some("wrk_1"), current: None, options: &options };
    assert_eq!(
        stage.agent.admit(request).await.unwrap_err().violations()[0].field,
        "metadata.opencode.workspace.id"
    );
    let options = PromptOptions { agent: Some("build".to_owned()), ..PromptOptions::default() };
    let request = Admission { directory: None, workspace: None, current: Some("/x"), options: &options };
    assert_eq!(
        stage.agent.admit(request).await.unwrap_err().violations()[0].field,
        "metadata.opencode.agent"
    );
}

/// A prompt id in the form of the engine's ids.
fn new_prompt() -> PromptId {
    PromptId::parse(&uuid::Uuid::now_v7().to_string()).expect("a UUID is an id")
}
