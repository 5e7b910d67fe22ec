//! Sessions that are watched, on a fake OpenCode.

use std::path::PathBuf;

use longshore_engine::port::{Agent as _, Prompting, Resume, SystemClock, TurnRequest};
use longshore_engine::queue;
use longshore_model::{AgentEvent, Outcome, PromptOptions, TaskId};
use longshore_testkit::fake_opencode::{Delivery, FakeOpenCode, Fault, Gate, Turn as Script};
use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::reader::Routed;
use crate::{Endpoint, OpenCode, OpenCodeConfig, UPSTREAM_CALLS, Watchdog};

/// Long enough for a loaded machine; no test waits for it unless it fails.
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
            defaults: PromptOptions::default(),
            allow_directory_override: true,
            watchdog: Watchdog::default(),
            written_files: false,
            upstream_calls: UPSTREAM_CALLS,
            watch_directories,
            metrics: Arc::default(),
        };
        let agent = OpenCode::new(config, Arc::new(SystemClock), tasks.clone()).unwrap();
        let external_turns = agent.watch.external_turns();
        Self { fake, agent, tasks, external_turns }
    }

    /// A session that was not made here.
    fn session(&self, id: &str) -> Session {
        self.session_in("", id)
    }

    /// The same in a directory below the root.
    fn session_in(&self, below: &str, id: &str) -> Session {
        let directory = std::path::Path::new(self.fake.directory()).join(below);
        std::fs::create_dir_all(&directory).unwrap();
        let directory = directory.to_str().unwrap().trim_end_matches('/').to_owned();
        self.fake.add_session(id, &directory);
        Session { id: SessionId::parse(id).unwrap(), directory }
    }

    /// Watches a session, and waits until everything in it is heard.
    async fn watched(&self, id: &str) -> Session {
        self.watched_in("", id).await
    }

    async fn watched_in(&self, below: &str, id: &str) -> Session {
        let session = self.session_in(below, id);
        self.agent.watch.watch(vec![session.clone()]);
        self.agent.readers.attached(&session.directory, PATIENCE).await.unwrap();
        session
    }

    /// Somebody else prompts it.
    async fn types(&self, session: &Session, text: &str) -> u16 {
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
        timeout(PATIENCE, self.external_turns.recv()).await.expect("something stirs").expect("it is watched")
    }

    /// Takes up a turn as the engine does that found it.
    async fn adopt(&self, external_turn: &ExternalTurn) -> queue::Receiver<AgentEvent> {
        let request = TurnRequest {
            task: TaskId::parse("task-1").unwrap(),
            session: external_turn.session.clone(),
            prompt: external_turn.prompt.clone(),
            input: Vec::new(),
            options: PromptOptions::default(),
            order: None,
            is_adopted: true,
            resume: Some(Resume::default()),
            prompting: Prompting::default(),
            trace: None,
        };
        self.agent.start_turn(request).await.unwrap().events
    }

    /// Waits until what there was to look at there is looked at.
    async fn rests(&self, below: &str) {
        let directory = format!("{}/{below}", self.fake.directory());
        let is_at_rest = || lock(&self.agent.watch.directories).is_at_rest(&directory, &self.agent.readers);
        let rest = async {
            while !is_at_rest() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, rest).await.expect("nothing is going on there");
    }

    /// Waits until everything there is heard, and no turn of ours runs there. Something of others may go on.
    async fn hears(&self, session: &Session) {
        let heard = async {
            while !self.agent.readers.is_at_rest(&session.directory) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, heard).await.expect("everything is heard");
    }

    /// Waits until somebody is known to be at work there without us.
    async fn is_active(&self, session: &Session) {
        let is_active = || {
            let is_at_rest =
                lock(&self.agent.watch.directories).is_at_rest(&session.directory, &self.agent.readers);
            !is_at_rest && self.agent.readers.is_at_rest(&session.directory)
        };
        let work = async {
            while !is_active() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, work).await.expect("something is going on there");
    }

    fn watches<const COUNT: usize>(&self, below: [&str; COUNT]) -> [bool; COUNT] {
        below.map(|below| self.agent.watch.watches(&format!("{}/{below}", self.fake.directory())))
    }

    async fn stop(self) {
        timeout(PATIENCE, self.tasks.stop()).await.expect("all tasks stop");
    }
}

async fn end(mut events: queue::Receiver<AgentEvent>) -> (String, Outcome) {
    let mut text = String::new();
    loop {
        match timeout(PATIENCE, events.recv()).await.expect("the turn goes on").expect("it ends") {
            AgentEvent::Text { text: more, .. } => text.push_str(&more),
            AgentEvent::TextReplaced { text: all, .. } => text = all,
            AgentEvent::Ended(outcome) => return (text, outcome),
            _ => {}
        }
    }
}

const COMPLETED: Outcome = Outcome::Completed { remark: None };

#[tokio::test]
async fn what_somebody_else_prompts_is_told_once_and_can_be_followed() {
    let mut stage = Stage::new();
    let gate = Gate::new();
    stage.fake.queue(Script::new().text("one ", 1).hold(&gate).text("two", 1));
    let session = stage.watched("ses_tui").await;
    assert_eq!(stage.types(&session, "typed elsewhere").await, 204);
    let external_turn = stage.next().await;
    assert_eq!(external_turn.session, session);
    assert_eq!(external_turn.content, [longshore_model::Part::text("typed elsewhere")]);
    let events = stage.adopt(&external_turn).await;
    gate.reached().await;
    gate.open();
    assert_eq!(end(events).await, ("one two".to_owned(), COMPLETED));
    assert_eq!(stage.fake.prompts().len(), 1, "it is never prompted again");
    // The next one is another turn, and what was told before is not told again.
    stage.fake.queue(Script::new().text("three", 1));
    stage.types(&session, "more").await;
    let next = stage.next().await;
    assert_eq!(next.content, [longshore_model::Part::text("more")]);
    assert_ne!(next.prompt, external_turn.prompt);
    stage.stop().await;
}

/// OpenCode tells the reason once, before anybody can follow the turn.
#[tokio::test]
async fn why_somebody_elses_prompt_could_not_be_answered_is_told() {
    let mut stage = Stage::new();
    let (session, other) = (stage.watched("ses_tui").await, stage.watched("ses_other").await);
    let model = json!({"providerID": "scripted", "modelID": "no-such-model"});
    let body = json!({"parts": [{"type": "text", "text": "go"}], "model": model});
    stage.fake.typist(session.id.as_str()).prompts(body).await;
    let external_turn = stage.next().await;
    // All of it was heard by then.
    stage.types(&other, "something else").await;
    assert_eq!(stage.next().await.session, other);
    let (_, outcome) = end(stage.adopt(&external_turn).await).await;
    let Outcome::PromptFaults(failure) = outcome else { panic!("{outcome:?}") };
    assert!(failure.message.contains("Model not found: scripted/no-such-model."), "{}", failure.message);
    stage.stop().await;
}

#[tokio::test]
async fn what_began_while_nobody_heard_is_found_by_asking() {
    let mut stage = Stage::new();
    let (first, second) = (Gate::new(), Gate::new());
    stage.fake.queue(Script::new().text("one", 1).hold(&first));
    stage.fake.queue(Script::new().text("two", 1).hold(&second));
    // Before it is watched, and while no events come.
    let session = stage.session("ses_before");
    stage.types(&session, "early").await;
    first.reached().await;
    stage.watched("ses_before").await;
    let early = stage.next().await;
    assert_eq!(early.content, [longshore_model::Part::text("early")]);
    assert_eq!(stage.agent.watch.external_turn(&session).await.unwrap(), Some(early));
    let idle = stage.session("ses_idle");
    assert_eq!(stage.agent.watch.external_turn(&idle).await.unwrap(), None);

    let other = stage.watched("ses_after").await;
    stage.fake.deliver(Delivery::HeartbeatsOnly);
    stage.types(&other, "unheard").await;
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
async fn what_comes_in_the_middle_of_our_turn_is_told_when_that_is_over() {
    let mut stage = Stage::new();
    let (ours, theirs) = (Gate::new(), Gate::new());
    stage.fake.queue(Script::new().text("ours", 1).hold(&ours));
    stage.fake.queue(Script::new().text("theirs", 1).hold(&theirs));
    let session = stage.watched("ses_shared").await;
    let prompt = stage.agent.new_prompt();
    let request = TurnRequest {
        task: TaskId::parse("task-1").unwrap(),
        session: session.clone(),
        prompt: prompt.clone(),
        input: vec![longshore_engine::port::Input::Text("go".to_owned())],
        options: PromptOptions::default(),
        order: None,
        is_adopted: false,
        resume: None,
        prompting: Prompting::default(),
        trace: None,
    };
    let turn = stage.agent.start_turn(request).await.unwrap();
    ours.reached().await;
    stage.types(&session, "me too").await;
    ours.open();
    theirs.reached().await;
    let (_, outcome) = end(turn.events).await;
    assert!(matches!(outcome, Outcome::Completed { .. } | Outcome::PromptFaults(_)), "{outcome:?}");
    let found = stage.next().await;
    assert_eq!(found.content, [longshore_model::Part::text("me too")]);
    assert_ne!(found.prompt, prompt);
    theirs.open();
    stage.stop().await;
}

/// A turn of ours that waits for its session hears what would be told otherwise, so it does not wait for long.
#[tokio::test]
async fn what_runs_when_a_turn_of_ours_wants_the_session_is_told() {
    let mut stage = Stage::new();
    let (first, second) = (Gate::new(), Gate::new());
    stage.fake.queue(Script::new().text("one", 1).hold(&first).text("two", 1).hold(&second));
    let session = stage.session("ses_taken");
    stage.types(&session, "theirs").await;
    first.reached().await;
    let prompt = stage.agent.new_prompt();
    let request = TurnRequest {
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
    };
    // Its place is taken before the session is watched.
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

/// Each is played in a session of its own, and the last is a prompt, so that it is known when all have been heard.
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
    stage.part(&quiet, "msg_note", json!({"type": "text", "text": "nobody is to answer"})).await;
    let ask = json!({"id": "per_1", "permission": "bash", "patterns": ["make"], "always": []});
    stage.emit("permission.asked", &asking, ask).await;
    let found = stage.next().await;
    assert_eq!((found.session.id.as_str(), found.prompt.as_str()), ("ses_asking", "msg_asking"));
    assert_eq!(found.content, []);
    let last = stage.watched("ses_last").await;
    stage.fake.queue(Script::new().text("done", 1));
    stage.types(&last, "go").await;
    assert_eq!(stage.next().await.session, last);
    stage.stop().await;
}

#[tokio::test]
async fn an_ask_of_a_sub_agent_is_that_of_the_session_above_it() {
    let mut stage = Stage::new();
    let root = stage.watched("ses_root").await;
    let child = Session { id: SessionId::parse("ses_child").unwrap(), ..root.clone() };
    stage.status(&root, "busy").await;
    stage.message(&root, "msg_own", json!({})).await;
    stage.part(&root, "msg_own", json!({"type": "compaction"})).await;
    stage.message(&root, "msg_answer", json!({"role": "assistant", "parentID": "msg_own"})).await;
    let info = json!({"id": "ses_child", "parentID": "ses_root", "directory": root.directory, "title": "child",
        "time": {"created": 1, "updated": 1}});
    stage.emit("session.created", &child, json!({"info": info})).await;
    let ask = json!({"id": "per_1", "permission": "bash", "patterns": ["make"], "always": []});
    stage.emit("permission.asked", &child, ask).await;
    let found = stage.next().await;
    assert_eq!((found.session, found.prompt.as_str()), (root, "msg_own"));
    stage.stop().await;
}

#[tokio::test]
async fn only_so_many_directories_are_watched_and_the_root_always_is() {
    for (most, expected) in [(0, [false, false, false]), (1, [true, false, false]), (2, [true, true, false])]
    {
        let stage = Stage::with(most);
        let root = stage.fake.directory().to_owned();
        let directories = [root.clone(), format!("{root}/a"), format!("{root}/b")];
        let sessions = directories.iter().rev().map(|directory| {
            let directory = directory.clone();
            // The root comes last, and has its place all the same.
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
async fn the_directory_that_was_not_used_for_longest_is_left_for_another() {
    let mut stage = Stage::with(3);
    let (one, _) = (stage.watched_in("a", "ses_one").await, stage.watched_in("b", "ses_two").await);
    let other = stage.watched_in("a", "ses_other").await;
    for directory in ["a", "b"] {
        stage.rests(directory).await;
    }
    let three = stage.watched_in("c", "ses_three").await;
    assert_eq!(stage.watches(["a", "b", "c"]), [true, false, true]);
    stage.fake.queue(Script::new().text("done", 1));
    stage.types(&three, "here").await;
    let external_turn = stage.next().await;
    assert_eq!(external_turn.session, three);
    assert_eq!(end(stage.adopt(&external_turn).await).await.1, COMPLETED);
    for directory in ["a", "c"] {
        stage.rests(directory).await;
    }
    // Whoever comes back to one that was left has it watched again, with all that were watched there before.
    stage.watched_in("b", "ses_more").await;
    assert_eq!(stage.watches(["a", "b", "c"]), [false, true, true]);
    for directory in ["b", "c"] {
        stage.rests(directory).await;
    }
    stage.watched_in("a", "ses_new").await;
    assert_eq!(stage.watches(["a", "b", "c"]), [true, true, false]);
    for session in [one, other] {
        stage.fake.queue(Script::new().text("done", 1));
        stage.types(&session, "still there?").await;
        assert_eq!(stage.next().await.session, session);
    }
    assert_eq!(stage.agent.watch.metrics.unwatched_sessions.get(), 0);
    stage.stop().await;
}

#[tokio::test]
async fn a_directory_where_something_is_going_on_is_not_left() {
    let mut stage = Stage::with(2);
    let gate = Gate::new();
    stage.fake.queue(Script::new().text("one", 1).hold(&gate));
    let busy = stage.watched_in("a", "ses_busy").await;
    stage.types(&busy, "go").await;
    let external_turn = stage.next().await;
    let events = stage.adopt(&external_turn).await;
    // It is followed, so it is not left.
    stage.watched_in("b", "ses_two").await;
    assert_eq!(stage.watches(["a", "b"]), [true, false]);
    assert_eq!(stage.agent.watch.metrics.unwatched_sessions.get(), 1);
    gate.open();
    assert_eq!(end(events).await.1, COMPLETED);
    stage.hears(&busy).await;
    // Something runs of which nobody was told yet, in the session that a turn of ours has just left.
    stage.status(&busy, "busy").await;
    stage.is_active(&busy).await;
    let last = stage.watched_in("a", "ses_last").await;
    stage.fake.queue(Script::new().text("done", 1));
    stage.types(&last, "something else there").await;
    let external_turn = stage.next().await;
    let events = stage.adopt(&external_turn).await;
    assert_eq!(end(events).await.1, COMPLETED);
    // It is not the turn of the other session that keeps the directory.
    stage.hears(&last).await;
    stage.watched_in("b", "ses_two").await;
    assert_eq!(stage.watches(["a", "b"]), [true, false]);
    // It is over.
    stage.status(&busy, "idle").await;
    stage.fake.queue(Script::new().text("done", 1));
    stage.types(&last, "so that the end was heard").await;
    let external_turn = stage.next().await;
    let events = stage.adopt(&external_turn).await;
    assert_eq!(end(events).await.1, COMPLETED);
    stage.rests("a").await;
    stage.watched_in("b", "ses_two").await;
    assert_eq!(stage.watches(["a", "b"]), [false, true]);
    stage.stop().await;
}

/// What the session did before was heard by the watcher, and that it ended by the turn only.
#[tokio::test]
async fn what_ended_while_a_turn_of_ours_had_the_session_does_not_keep_its_directory() {
    let stage = Stage::with(2);
    let session = stage.watched_in("a", "ses_one").await;
    stage.hears(&session).await;
    stage.status(&session, "busy").await;
    stage.is_active(&session).await;
    let lease = stage.agent.readers.lease(&session.directory, session.id.as_str(), PATIENCE).await;
    let mut lease = lease.expect("nobody else has it");
    stage.emit("session.idle", &session, json!({})).await;
    let is_idle =
        |routed: &Routed| matches!(routed, Routed::Event { event, .. } if event.kind == EventKind::Idle);
    timeout(PATIENCE, lease.look_for(is_idle)).await.expect("it is idle");
    let asked = stage.fake.log().len();
    drop(lease);
    stage.rests("a").await;
    assert_eq!(stage.fake.log().len(), asked, "nothing is to be asked behind a turn that ended at rest");
    stage.watched_in("b", "ses_two").await;
    assert_eq!(stage.watches(["a", "b"]), [false, true]);
    stage.stop().await;
}

#[tokio::test]
async fn a_directory_of_which_opencode_is_to_be_asked_again_is_not_left() {
    let stage = Stage::with(2);
    stage.fake.fault_always("GET", "/session/status", Fault::Status(503));
    let session = stage.watched_in("a", "ses_one").await;
    stage.hears(&session).await;
    stage.watched_in("b", "ses_two").await;
    assert_eq!(stage.watches(["a", "b"]), [true, false]);
    stage.fake.clear_faults();
    stage.rests("a").await;
    stage.watched_in("b", "ses_two").await;
    assert_eq!(stage.watches(["a", "b"]), [false, true]);
    stage.stop().await;
}

/// Those who name sessions at the same time drive each other's directories out.
#[tokio::test]
async fn a_session_is_not_lost_when_its_directory_is_left_as_it_is_named() {
    const EACH: usize = 200;
    const BELOW: [&str; 4] = ["a", "b", "c", "d"];
    let stage = Stage::with(2);
    // Nothing is to run but this.
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
                    stage.agent.watch.made(&Session { id, directory });
                }
            });
        }
    });
    let directories = BELOW.iter().flat_map(|below| (0..EACH).map(move |number| format!("{below}{number}")));
    let watched = directories.map(|below| format!("{}/{below}", stage.fake.directory()));
    let watched: usize = watched.map(|directory| stage.agent.readers.unwatch(&directory).len()).sum();
    let unwatched = usize::try_from(stage.agent.watch.metrics.unwatched_sessions.get()).unwrap();
    let left = lock(&stage.agent.watch.directories).left();
    assert_eq!(watched + left + unwatched, BELOW.len() * EACH);
    stage.stop().await;
}

#[tokio::test]
async fn a_directory_that_is_gone_needs_no_place() {
    let stage = Stage::with(3);
    for (below, id) in [("a", "ses_one"), ("a/deep", "ses_two")] {
        stage.watched_in(below, id).await;
    }
    let gone = format!("{}/a", stage.fake.directory());
    stage.agent.watch.leave(&gone);
    assert_eq!(stage.watches(["a", "a/deep"]), [false, false]);
    // The root is never left.
    stage.watched("ses_root").await;
    stage.agent.watch.leave(stage.fake.directory());
    assert!(stage.agent.watch.watches(stage.fake.directory()));
    stage.stop().await;
}

/// Its directory hears nothing of it, so a task of it would never end.
#[tokio::test]
async fn what_somebody_prompts_in_a_workspace_is_not_told() {
    let mut stage = Stage::new();
    let directory = stage.fake.directory().to_owned();
    let info = json!({"id": "ses_inside", "slug": "calm-bay", "projectID": "9b4c0d", "directory": directory, "path": "",
        "title": "inside", "version": "1.18.33", "workspaceID": "wrk_1", "time": {"created": 1, "updated": 1}});
    stage.fake.add_session_like(info);
    let inside = Session { id: SessionId::parse("ses_inside").unwrap(), directory };
    let gate = Gate::new();
    stage.fake.queue(Script::new().text("one", 1).hold(&gate));
    stage.types(&inside, "in a workspace").await;
    gate.reached().await;
    stage.agent.watch.watch(vec![inside.clone()]);
    // Both are found by the same look, the one in the workspace first.
    let beside = stage.session("ses_zzz");
    stage.fake.queue(Script::new().text("two", 1).hold(&gate));
    stage.types(&beside, "beside it").await;
    stage.agent.watch.watch(vec![beside.clone()]);
    assert_eq!(stage.next().await.session, beside);
    assert_eq!(stage.agent.watch.external_turn(&inside).await.unwrap(), None);
    gate.open();
    stage.stop().await;
}

#[tokio::test]
async fn what_stirs_is_given_to_one_only() {
    let stage = Stage::new();
    assert!(stage.agent.watch.external_turns().recv().await.is_none());
    stage.stop().await;
}
