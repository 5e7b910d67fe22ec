//! Tests of watched sessions with a fake OpenCode.

use std::path::PathBuf;

use longshore_engine::port::{Agent as _, Prompting, Resume, SystemClock, TurnRequest};
use longshore_engine::queue;
use longshore_model::{AgentEvent, Outcome, PromptOptions, TaskId};
use longshore_testkit::fake_opencode::{Delivery, FakeOpenCode, Fault, Gate, Turn as Script};
use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::reader::Routed;
use crate::{Endpoint, OpenCode, OpenCodeConfig, PromptRules, UPSTREAM_CALLS, Watchdog};

/// A message that some gateway sent.
const OWN: &str = "msg_1dd488432001_0199-ab";

/// The longest wait of a test. It is long enough for a loaded machine; only a failing test takes this long.
const PATIENCE: Duration = Duration::from_mins(1);

struct Stage {
    fake: FakeOpenCode,
    agent: OpenCode,
    tasks: Tasks,
    external_turns: mpsc::Receiver<ExternalTurn>,
}

impl Stage {
    fn new() -> Self {
        Self::with(3)
    }

    fn with(watch_directories: usize) -> Self {
        let (fake, tasks) = (FakeOpenCode::start(), Tasks::new());
        let config = OpenCodeConfig {
            endpoint: Endpoint {
                base_url: fake.url().parse().unwrap(),
                username: "opencode".to_owned(),
                password: None,
            },
            directory: PathBuf::from(fake.directory()),
            control_timeout: Duration::from_secs(5),
            long_timeout: None,
            stream_silence: Duration::from_secs(30),
            rules: PromptRules::default(),
            allow_directory_override: true,
            protected: Arc::default(),
            watchdog: Watchdog::default(),
            written_files: false,
            upstream_calls: UPSTREAM_CALLS,
            watch_directories,
            directories: crate::DirectoryLimits::default(),
            metrics: Arc::default(),
        };
        let agent = OpenCode::new(config, Arc::new(SystemClock), tasks.clone()).unwrap();
        let external_turns = agent.watch.external_turns();
        Self { fake, agent, tasks, external_turns }
    }

    /// A session that the gateway did not create.
    fn session(&self, id: &str) -> Session {
        self.session_in("", id)
    }

    /// A session in a directory below the root.
    fn session_in(&self, below: &str, id: &str) -> Session {
        let directory = std::path::Path::new(self.fake.directory()).join(below);
        std::fs::create_dir_all(&directory).unwrap();
        let directory = directory.to_str().unwrap().trim_end_matches('/').to_owned();
        self.fake.add_session(id, &directory);
        Session { id: SessionId::parse(id).unwrap(), directory }
    }

    /// Watches a session, and waits until its events arrive.
    async fn watched(&self, id: &str) -> Session {
        self.watched_in("", id).await
    }

    async fn watched_in(&self, below: &str, id: &str) -> Session {
        let session = self.session_in(below, id);
        self.agent.watch.watch(vec![session.clone()]);
        self.agent.readers.attached(&session.directory, PATIENCE).await.unwrap();
        session
    }

    /// Prompts the session as another client.
    async fn prompt_elsewhere(&self, session: &Session, text: &str) -> u16 {
        let directory = crate::id::directory_value(&session.directory);
        let url = format!("{}/session/{}/prompt_async?directory={directory}", self.fake.url(), session.id);
        let body = json!({"parts": [{"type": "text", "text": text}]}).to_string();
        let request = reqwest::Client::new().post(url);
        let request = request.header("content-type", "application/json").body(body);
        request.send().await.unwrap().status().as_u16()
    }

    async fn emit(&self, kind: &str, session: &Session, mut properties: serde_json::Value) {
        properties["sessionID"] = session.id.as_str().into();
        self.fake.emit(kind, properties).await;
    }

    async fn message(&self, session: &Session, id: &str, more: serde_json::Value) {
        let mut info = json!({"id": id, "role": "user", "sessionID": session.id.as_str(),
            "time": {"created": 4_000_000_000_000_u64}});
        for (name, value) in more.as_object().unwrap() {
            info[name] = value.clone();
        }
        self.emit("message.updated", session, json!({"info": info})).await;
    }

    async fn part(&self, session: &Session, message: &str, mut part: serde_json::Value) {
        (part["id"], part["messageID"]) = (format!("prt_{message}").into(), message.into());
        self.emit("message.part.updated", session, json!({"part": part})).await;
    }

    async fn status(&self, session: &Session, status: &str) {
        self.emit("session.status", session, json!({"status": {"type": status}})).await;
    }

    async fn next(&mut self) -> ExternalTurn {
        let next = timeout(PATIENCE, self.external_turns.recv()).await;
        next.expect("an external turn is reported").expect("the session is watched")
    }

    /// Adopts an external turn, as the engine does.
    async fn adopt(&self, external_turn: &ExternalTurn) -> queue::Receiver<AgentEvent> {
        let request = request(&external_turn.session, external_turn.prompt.clone());
        let request =
            TurnRequest { input: Vec::new(), is_adopted: true, resume: Some(Resume::default()), ..request };
        self.agent.start_turn(request).await.unwrap().events
    }

    /// Waits until the directory is idle and all its events were handled.
    async fn until_idle(&self, below: &str) {
        let directory = format!("{}/{below}", self.fake.directory());
        let is_idle = || lock(&self.agent.watch.directories).is_idle(&directory, &self.agent.readers);
        let idle = async {
            while !is_idle() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, idle).await.expect("no turn runs there");
    }

    /// Waits until all events of the directory were handled and no turn of the gateway runs there. External turns may run.
    async fn until_handled(&self, session: &Session) {
        let handled = async {
            while !self.agent.readers.is_idle(&session.directory) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, handled).await.expect("all events are handled");
    }

    /// Waits until the session is known to be busy with an unreported turn.
    async fn until_active(&self, session: &Session) {
        let is_active = || {
            let is_idle =
                lock(&self.agent.watch.directories).is_idle(&session.directory, &self.agent.readers);
            !is_idle && self.agent.readers.is_idle(&session.directory)
        };
        let active = async {
            while !is_active() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, active).await.expect("a turn runs there");
    }

    fn watches<const COUNT: usize>(&self, below: [&str; COUNT]) -> [bool; COUNT] {
        below.map(|below| self.agent.watch.watches(&format!("{}/{below}", self.fake.directory())))
    }

    async fn stop(self) {
        timeout(PATIENCE, self.tasks.stop()).await.expect("all tasks stop");
    }
}

fn request(session: &Session, prompt: PromptId) -> TurnRequest {
    TurnRequest {
        task: TaskId::parse("task-1").unwrap(),
        session: session.clone(),
        prompt,
        input: vec![longshore_engine::port::Input::Text("go".to_owned())],
        options: PromptOptions::default(),
        order: None,
        is_adopted: false,
        resume: None,
        prompting: Prompting::default(),
        trace: None,
    }
}

async fn end(mut events: queue::Receiver<AgentEvent>) -> (String, Outcome) {
    let mut text = String::new();
    loop {
        match timeout(PATIENCE, events.recv()).await.expect("the turn goes on").expect("the turn ends") {
            AgentEvent::Text { text: more, .. } => text.push_str(&more),
            AgentEvent::TextReplaced { text: all, .. } => text = all,
            AgentEvent::Ended(outcome) => return (text, outcome),
            _ => {}
        }
    }
}

const COMPLETED: Outcome = Outcome::Completed { remark: None };

#[tokio::test]
async fn an_external_prompt_is_reported_once_and_can_be_followed() {
    let mut stage = Stage::new();
    let gate = Gate::new();
    stage.fake.queue(Script::new().text("one ", 1).hold(&gate).text("two", 1));
    let session = stage.watched("ses_tui").await;
    assert_eq!(stage.prompt_elsewhere(&session, "typed elsewhere").await, 204);
    let external_turn = stage.next().await;
    assert_eq!(external_turn.session, session);
    assert_eq!(external_turn.content, [longshore_model::Part::text("typed elsewhere")]);
    let events = stage.adopt(&external_turn).await;
    gate.reached().await;
    gate.open();
    assert_eq!(end(events).await, ("one two".to_owned(), COMPLETED));
    assert_eq!(stage.fake.prompts().len(), 1, "adopting does not prompt again");
    // The next prompt starts another turn, and the first turn is not reported again.
    stage.fake.queue(Script::new().text("three", 1));
    stage.prompt_elsewhere(&session, "more").await;
    let next = stage.next().await;
    assert_eq!(next.content, [longshore_model::Part::text("more")]);
    assert_ne!(next.prompt, external_turn.prompt);
    stage.stop().await;
}

/// OpenCode reports the error once, before a driver can follow the turn.
#[tokio::test]
async fn the_error_of_an_external_prompt_is_reported() {
    let mut stage = Stage::new();
    let (session, other) = (stage.watched("ses_tui").await, stage.watched("ses_other").await);
    let model = json!({"providerID": "scripted", "modelID": "no-such-model"});
    let body = json!({"parts": [{"type": "text", "text": "go"}], "model": model});
    stage.fake.other_client(session.id.as_str()).prompts(body).await;
    let external_turn = stage.next().await;
    // When the next turn is reported, the error event has been handled.
    stage.prompt_elsewhere(&other, "something else").await;
    assert_eq!(stage.next().await.session, other);
    let (_, outcome) = end(stage.adopt(&external_turn).await).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert!(failure.message.contains("Model not found: scripted/no-such-model."), "{}", failure.message);
    stage.stop().await;
}

#[tokio::test]
async fn a_turn_that_began_without_events_is_found_by_a_check() {
    let mut stage = Stage::new();
    let (first, second) = (Gate::new(), Gate::new());
    stage.fake.queue(Script::new().text("one", 1).hold(&first));
    stage.fake.queue(Script::new().text("two", 1).hold(&second));
    // The first turn begins before its session is watched, the second while no events arrive.
    let session = stage.session("ses_before");
    stage.prompt_elsewhere(&session, "early").await;
    first.reached().await;
    stage.watched("ses_before").await;
    let early = stage.next().await;
    assert_eq!(early.content, [longshore_model::Part::text("early")]);
    assert_eq!(stage.agent.watch.external_turn(&session).await.unwrap(), Some(early));
    let idle = stage.session("ses_idle");
    assert_eq!(stage.agent.watch.external_turn(&idle).await.unwrap(), None);

    let other = stage.watched("ses_after").await;
    stage.fake.deliver(Delivery::HeartbeatsOnly);
    stage.prompt_elsewhere(&other, "unheard").await;
    second.reached().await;
    stage.fake.deliver(Delivery::Live);
    stage.fake.end_streams();
    let found = stage.next().await;
    assert_eq!(
        (&found.session.id, &found.content),
        (&other.id, &vec![longshore_model::Part::text("unheard")])
    );
    for gate in [first, second] {
        gate.open();
    }
    stage.stop().await;
}

#[tokio::test]
async fn an_external_prompt_during_a_turn_of_the_gateway_is_reported_after_that_turn() {
    let mut stage = Stage::new();
    let (own, external) = (Gate::new(), Gate::new());
    stage.fake.queue(Script::new().text("ours", 1).hold(&own));
    stage.fake.queue(Script::new().text("theirs", 1).hold(&external));
    let session = stage.watched("ses_shared").await;
    let prompt = PromptId::parse("0199").unwrap();
    let request = request(&session, prompt.clone());
    let turn = stage.agent.start_turn(request).await.unwrap();
    own.reached().await;
    stage.prompt_elsewhere(&session, "me too").await;
    own.open();
    external.reached().await;
    let (_, outcome) = end(turn.events).await;
    assert!(matches!(outcome, Outcome::Completed { .. } | Outcome::Failed(_)), "{outcome:?}");
    let found = stage.next().await;
    assert_eq!(found.content, [longshore_model::Part::text("me too")]);
    assert_ne!(found.prompt, prompt);
    external.open();
    stage.stop().await;
}

/// A turn of the gateway that waits for its session holds the route, so it releases the session soon.
#[tokio::test]
async fn an_external_turn_that_blocks_a_turn_of_the_gateway_is_reported() {
    let mut stage = Stage::new();
    let (first, second) = (Gate::new(), Gate::new());
    stage.fake.queue(Script::new().text("one", 1).hold(&first).text("two", 1).hold(&second));
    let session = stage.session("ses_taken");
    stage.prompt_elsewhere(&session, "theirs").await;
    first.reached().await;
    let prompt = PromptId::parse("0199").unwrap();
    let request = request(&session, prompt);
    // The turn claims the route before the session is watched.
    let starting = stage.agent.start_turn(request);
    let watching = async {
        stage.agent.readers.attached(&session.directory, PATIENCE).await.unwrap();
        stage.agent.watch.watch(vec![session.clone()]);
    };
    let ((), started) = tokio::join!(watching, starting);
    assert_eq!(started.unwrap_err().kind(), longshore_model::ErrorKind::SessionBusy);
    assert_eq!(stage.next().await.content, [longshore_model::Part::text("theirs")]);
    for gate in [first, second] {
        gate.open();
    }
    stage.stop().await;
}

/// Each case runs in its own session. The last case is a prompt, which shows that all events before it were handled.
#[tokio::test]
async fn shells_summaries_and_notes_are_no_turns_unless_they_ask() {
    let mut stage = Stage::new();
    let quiet = stage.watched("ses_quiet").await;
    let asking = stage.watched("ses_asking").await;
    for (session, id) in [(&quiet, "msg_quiet"), (&asking, "msg_asking")] {
        stage.status(session, "busy").await;
        stage.message(session, id, json!({})).await;
        stage.part(session, id, json!({"type": "text", "synthetic": true, "text": "a shell"})).await;
        let answer = json!({"role": "assistant", "parentID": id});
        stage.message(session, &format!("{id}_answer"), answer).await;
    }
    stage.message(&quiet, "msg_note", json!({})).await;
    stage.part(&quiet, "msg_note", json!({"type": "text", "text": "no answer requested"})).await;
    let ask = json!({"id": "per_1", "permission": "bash", "patterns": ["make"], "always": []});
    stage.emit("permission.asked", &asking, ask).await;
    let found = stage.next().await;
    assert_eq!((found.session.id.as_str(), found.prompt.as_str()), ("ses_asking", "msg_asking"));
    assert_eq!(found.content, []);
    let last = stage.watched("ses_last").await;
    stage.fake.queue(Script::new().text("done", 1));
    stage.prompt_elsewhere(&last, "go").await;
    assert_eq!(stage.next().await.session, last);
    stage.stop().await;
}

#[tokio::test]
async fn an_ask_of_a_sub_agent_reports_the_turn_of_its_root_session() {
    let mut stage = Stage::new();
    let root = stage.watched("ses_root").await;
    let child = Session { id: SessionId::parse("ses_child").unwrap(), ..root.clone() };
    stage.status(&root, "busy").await;
    stage.message(&root, OWN, json!({})).await;
    stage.part(&root, OWN, json!({"type": "compaction"})).await;
    stage.message(&root, "msg_answer", json!({"role": "assistant", "parentID": OWN})).await;
    let info = json!({"id": "ses_child", "parentID": "ses_root", "directory": root.directory, "title": "child",
        "time": {"created": 1, "updated": 1}});
    stage.emit("session.created", &child, json!({"info": info})).await;
    let ask = json!({"id": "per_1", "permission": "bash", "patterns": ["make"], "always": []});
    stage.emit("permission.asked", &child, ask).await;
    let found = stage.next().await;
    assert_eq!((found.session, found.prompt.as_str()), (root, OWN));
    assert_eq!(found.engine_prompt.unwrap().as_str(), "0199-ab");
    stage.stop().await;
}

#[tokio::test]
async fn the_number_of_watched_directories_is_bounded_and_always_includes_the_root() {
    for (most, expected) in [(0, [false, false, false]), (1, [true, false, false]), (2, [true, true, false])]
    {
        let stage = Stage::with(most);
        let root = stage.fake.directory().to_owned();
        let directories = [root.clone(), format!("{root}/a"), format!("{root}/b")];
        let sessions = directories.iter().rev().map(|directory| {
            let directory = directory.clone();
            // The root is named last and is watched nevertheless.
            Session { id: SessionId::parse("ses_1").unwrap(), directory }
        });
        let mut sessions: Vec<Session> = sessions.collect();
        sessions[..2].reverse();
        stage.agent.watch.watch(sessions);
        assert_eq!(directories.map(|directory| stage.agent.watch.watches(&directory)), expected, "{most}");
        stage.stop().await;
    }
}

#[tokio::test]
async fn the_least_recently_used_directory_is_evicted_for_another() {
    let mut stage = Stage::with(3);
    let (one, _) = (stage.watched_in("a", "ses_one").await, stage.watched_in("b", "ses_two").await);
    let other = stage.watched_in("a", "ses_other").await;
    for directory in ["a", "b"] {
        stage.until_idle(directory).await;
    }
    let three = stage.watched_in("c", "ses_three").await;
    assert_eq!(stage.watches(["a", "b", "c"]), [true, false, true]);
    stage.fake.queue(Script::new().text("done", 1));
    stage.prompt_elsewhere(&three, "here").await;
    let external_turn = stage.next().await;
    assert_eq!(external_turn.session, three);
    assert_eq!(end(stage.adopt(&external_turn).await).await.1, COMPLETED);
    for directory in ["a", "c"] {
        stage.until_idle(directory).await;
    }
    // When one session of an evicted directory is named, all former sessions of that directory are watched again.
    stage.watched_in("b", "ses_more").await;
    assert_eq!(stage.watches(["a", "b", "c"]), [false, true, true]);
    for directory in ["b", "c"] {
        stage.until_idle(directory).await;
    }
    stage.watched_in("a", "ses_new").await;
    assert_eq!(stage.watches(["a", "b", "c"]), [true, true, false]);
    for session in [one, other] {
        stage.fake.queue(Script::new().text("done", 1));
        stage.prompt_elsewhere(&session, "still there?").await;
        assert_eq!(stage.next().await.session, session);
    }
    assert_eq!(stage.agent.watch.metrics.unwatched_sessions.get(), 0);
    stage.stop().await;
}

#[tokio::test]
async fn a_directory_with_a_running_turn_is_not_evicted() {
    let mut stage = Stage::with(2);
    let gate = Gate::new();
    stage.fake.queue(Script::new().text("one", 1).hold(&gate));
    let busy = stage.watched_in("a", "ses_busy").await;
    stage.prompt_elsewhere(&busy, "go").await;
    let external_turn = stage.next().await;
    let events = stage.adopt(&external_turn).await;
    // A driver follows the turn, so the directory is not evicted.
    stage.watched_in("b", "ses_two").await;
    assert_eq!(stage.watches(["a", "b"]), [true, false]);
    assert_eq!(stage.agent.watch.metrics.unwatched_sessions.get(), 1);
    gate.open();
    assert_eq!(end(events).await.1, COMPLETED);
    stage.until_handled(&busy).await;
    // An unreported turn runs in the session that a turn of the gateway has just left.
    stage.status(&busy, "busy").await;
    stage.until_active(&busy).await;
    let last = stage.watched_in("a", "ses_last").await;
    stage.fake.queue(Script::new().text("done", 1));
    stage.prompt_elsewhere(&last, "something else there").await;
    let external_turn = stage.next().await;
    let events = stage.adopt(&external_turn).await;
    assert_eq!(end(events).await.1, COMPLETED);
    // The directory does not stay because of the finished turn of the other session.
    stage.until_handled(&last).await;
    stage.watched_in("b", "ses_two").await;
    assert_eq!(stage.watches(["a", "b"]), [true, false]);
    // The unreported turn ends.
    stage.status(&busy, "idle").await;
    stage.fake.queue(Script::new().text("done", 1));
    stage.prompt_elsewhere(&last, "shows that the end was handled").await;
    let external_turn = stage.next().await;
    let events = stage.adopt(&external_turn).await;
    assert_eq!(end(events).await.1, COMPLETED);
    stage.until_idle("a").await;
    stage.watched_in("b", "ses_two").await;
    assert_eq!(stage.watches(["a", "b"]), [false, true]);
    stage.stop().await;
}

/// The watcher received the start of the session's work, but only the turn received its end.
#[tokio::test]
async fn work_that_ended_during_a_turn_of_the_gateway_does_not_keep_its_directory() {
    let stage = Stage::with(2);
    let session = stage.watched_in("a", "ses_one").await;
    stage.until_handled(&session).await;
    stage.status(&session, "busy").await;
    stage.until_active(&session).await;
    let lease = stage.agent.readers.lease(&session.directory, session.id.as_str(), PATIENCE).await;
    let mut lease = lease.expect("no other turn holds the session");
    stage.emit("session.idle", &session, json!({})).await;
    let is_idle =
        |routed: &Routed| matches!(routed, Routed::Event { event, .. } if event.kind == EventKind::Idle);
    timeout(PATIENCE, lease.peek_until(is_idle)).await.expect("the session becomes idle");
    let requests = stage.fake.log().len();
    drop(lease);
    stage.until_idle("a").await;
    assert_eq!(stage.fake.log().len(), requests, "no check is needed after a turn that ended idle");
    stage.watched_in("b", "ses_two").await;
    assert_eq!(stage.watches(["a", "b"]), [false, true]);
    stage.stop().await;
}

#[tokio::test]
async fn a_directory_that_must_be_checked_again_is_not_evicted() {
    let stage = Stage::with(2);
    stage.fake.fault_always("GET", "/session/status", Fault::Status(503));
    let session = stage.watched_in("a", "ses_one").await;
    stage.until_handled(&session).await;
    stage.watched_in("b", "ses_two").await;
    assert_eq!(stage.watches(["a", "b"]), [true, false]);
    stage.fake.clear_faults();
    stage.until_idle("a").await;
    stage.watched_in("b", "ses_two").await;
    assert_eq!(stage.watches(["a", "b"]), [false, true]);
    stage.stop().await;
}

/// Threads that name sessions at the same time evict each other's directories.
#[tokio::test]
async fn a_session_is_not_lost_when_its_directory_is_evicted_while_it_is_named() {
    const EACH: usize = 200;
    const BELOW: [&str; 4] = ["a", "b", "c", "d"];
    let stage = Stage::with(2);
    // No task may still be running.
    timeout(PATIENCE, stage.tasks.stop()).await.unwrap();
    let runtime = tokio::runtime::Handle::current();
    let begin = std::sync::Barrier::new(BELOW.len());
    std::thread::scope(|scope| {
        for below in BELOW {
            let (stage, runtime, begin) = (&stage, &runtime, &begin);
            scope.spawn(move || {
                let _runtime = runtime.enter();
                begin.wait();
                for number in 0..EACH {
                    let id = SessionId::parse(&format!("ses_{below}{number}")).unwrap();
                    let directory = format!("{}/{below}{number}", stage.fake.directory());
                    stage.agent.watch.watch_new(&Session { id, directory });
                }
            });
        }
    });
    let directories = BELOW.iter().flat_map(|below| (0..EACH).map(move |number| format!("{below}{number}")));
    let watched = directories.map(|below| format!("{}/{below}", stage.fake.directory()));
    let watched: usize = watched.map(|directory| stage.agent.readers.unwatch(&directory).len()).sum();
    let unwatched = usize::try_from(stage.agent.watch.metrics.unwatched_sessions.get()).unwrap();
    let evicted = lock(&stage.agent.watch.directories).evicted_sessions();
    assert_eq!(watched + evicted + unwatched, BELOW.len() * EACH);
    stage.stop().await;
}

#[tokio::test]
async fn a_removed_directory_frees_its_slot() {
    let stage = Stage::with(3);
    for (below, id) in [("a", "ses_one"), ("a/deep", "ses_two")] {
        stage.watched_in(below, id).await;
    }
    let gone = format!("{}/a", stage.fake.directory());
    stage.agent.watch.remove_directory(&gone);
    assert_eq!(stage.watches(["a", "a/deep"]), [false, false]);
    // The root is never removed.
    stage.watched("ses_root").await;
    stage.agent.watch.remove_directory(stage.fake.directory());
    assert!(stage.agent.watch.watches(stage.fake.directory()));
    stage.stop().await;
}

/// The directory's stream has no events of such a session, so the task would never end.
#[tokio::test]
async fn an_external_prompt_in_a_workspace_is_not_reported() {
    let mut stage = Stage::new();
    let directory = stage.fake.directory().to_owned();
    let info = json!({"id": "ses_inside", "slug": "calm-bay", "projectID": "9b4c0d", "directory": directory, "path": "",
        "title": "inside", "version": "1.18.33", "workspaceID": "wrk_1", "time": {"created": 1, "updated": 1}});
    stage.fake.add_session_info(info);
    let inside = Session { id: SessionId::parse("ses_inside").unwrap(), directory };
    let gate = Gate::new();
    stage.fake.queue(Script::new().text("one", 1).hold(&gate));
    stage.prompt_elsewhere(&inside, "in a workspace").await;
    gate.reached().await;
    stage.agent.watch.watch(vec![inside.clone()]);
    // One check finds both sessions, first the one in the workspace.
    let outside = stage.session("ses_zzz");
    stage.fake.queue(Script::new().text("two", 1).hold(&gate));
    stage.prompt_elsewhere(&outside, "beside it").await;
    stage.agent.watch.watch(vec![outside.clone()]);
    assert_eq!(stage.next().await.session, outside);
    assert_eq!(stage.agent.watch.external_turn(&inside).await.unwrap(), None);
    gate.open();
    stage.stop().await;
}

#[tokio::test]
async fn external_turns_have_one_receiver() {
    let stage = Stage::new();
    assert!(stage.agent.watch.external_turns().recv().await.is_none());
    stage.stop().await;
}
