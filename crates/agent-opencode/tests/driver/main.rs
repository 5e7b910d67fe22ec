//! The driver over HTTP, against a fake OpenCode that plays recordings of the real one.

mod adopted;
mod asks;
mod calls;
mod child_faults;
mod child_turns;
mod children;
mod directories;
mod faults;
mod files;
mod hostile_commands;
mod invalid_responses;
mod joining;
mod lost_text;
mod malformed_events;
mod native_prompts;
mod orphaned_turns;
mod outages;
mod refused;
mod resumed;
mod sessions;
mod stage;
mod titles_and_usage;
mod turns;
mod upstream;
mod watchdog;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_agent_opencode::{
    DirectoryLimits, Endpoint, OpenCode, OpenCodeConfig, PromptRules, UPSTREAM_CALLS, WATCH_DIRECTORIES,
    Watchdog,
};
use longshore_engine::Tasks;
use longshore_engine::port::{
    Agent, Input, NewSession, Prompting, Resume, Session, SessionFinder, SystemClock, Turn, TurnRequest,
    UnfollowedTurns,
};
use longshore_model::{
    AgentEvent, Answer, Ask, Outcome, PermissionReply, PromptId, PromptOptions, Result, SessionId, TaskId,
};
use longshore_testkit::fake_opencode::{FakeOpenCode, Gate, Turn as Script};

/// Long enough for a loaded machine; no test waits for it unless it fails.
const PATIENCE: Duration = Duration::from_mins(1);

/// A fake OpenCode and a driver connected to it.
struct Bench {
    fake: FakeOpenCode,
    agent: OpenCode,
    tasks: Tasks,
}

impl Bench {
    fn new() -> Self {
        Self::on(FakeOpenCode::start(), None, Duration::from_secs(5))
    }

    fn on(fake: FakeOpenCode, password: Option<&str>, control_timeout: Duration) -> Self {
        Self::with(fake, password, control_timeout, |_| {})
    }

    fn with(
        fake: FakeOpenCode,
        password: Option<&str>,
        control_timeout: Duration,
        change: impl FnOnce(&mut OpenCodeConfig),
    ) -> Self {
        let tasks = Tasks::new();
        let mut config = OpenCodeConfig {
            endpoint: Endpoint {
                base_url: fake.url().parse().expect("the fake has an address"),
                username: "opencode".to_owned(),
                password: password.map(Into::into),
            },
            directory: PathBuf::from(fake.directory()),
            control_timeout,
            long_timeout: None,
            stream_silence: Duration::from_secs(30),
            rules: PromptRules { shell: true, ..PromptRules::default() },
            allow_directory_override: true,
            protected: Arc::default(),
            watchdog: Watchdog::default(),
            written_files: false,
            upstream_calls: UPSTREAM_CALLS,
            watch_directories: WATCH_DIRECTORIES,
            directories: DirectoryLimits::default(),
            metrics: Arc::default(),
        };
        change(&mut config);
        let agent =
            OpenCode::new(config, Arc::new(SystemClock), tasks.clone()).expect("a valid configuration");
        Self { fake, agent, tasks }
    }

    async fn session(&self) -> Session {
        self.agent.open_session(root(self)).await.expect("a session")
    }

    /// A session in which another client may run a turn.
    async fn used_session(&self) -> Session {
        self.session().await;
        self.fake.add_session("ses_used", self.fake.directory());
        Session {
            id: SessionId::parse("ses_used").expect("an id"),
            directory: self.fake.directory().to_owned(),
        }
    }

    async fn start(&self, session: &Session, text: &str) -> Result<(PromptId, Turn)> {
        let prompt = new_prompt();
        let turn = self.agent.start_turn(request(session, &prompt, text, None)).await?;
        Ok((prompt, turn))
    }

    /// Starts a turn in a new session, and waits until its script reaches the gate.
    async fn start_held(&self, script: Script, gate: &Gate) -> (Session, PromptId, Turn) {
        self.fake.queue(script);
        let session = self.session().await;
        let (prompt, turn) = self.start(&session, "go").await.expect("the turn starts");
        gate.reached().await;
        (session, prompt, turn)
    }

    /// Resumes a turn, as the engine does after a restart.
    async fn resume(&self, session: &Session, prompt: &PromptId, past: Resume) -> Turn {
        let request = request(session, prompt, "go", Some(past));
        self.agent.start_turn(request).await.expect("the turn is resumed")
    }

    /// Runs one whole turn in a new session.
    async fn run(&self, text: &str) -> Vec<AgentEvent> {
        let session = self.session().await;
        let (_, turn) = self.start(&session, text).await.expect("the turn starts");
        all(turn).await
    }

    /// Checks that no task is left when the gateway stops.
    async fn stop(self) {
        tokio::time::timeout(PATIENCE, self.tasks.stop()).await.expect("all tasks stop");
    }
}

/// An id such as the engine makes.
fn new_prompt() -> PromptId {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    PromptId::parse(&format!("0199-{number}")).expect("digits are an id")
}

/// The id of the message that the fake got for this prompt.
fn message_of(bench: &Bench, prompt: &PromptId) -> String {
    let end = format!("_{prompt}");
    let mut ids =
        bench.fake.prompts().into_iter().filter_map(|sent| Some(sent.body["messageID"].as_str()?.to_owned()));
    ids.rfind(|id| id.ends_with(&end)).expect("the prompt was sent")
}

fn root(bench: &Bench) -> NewSession {
    NewSession { directory: bench.fake.directory().to_owned(), title: None }
}

fn request(session: &Session, prompt: &PromptId, text: &str, resume: Option<Resume>) -> TurnRequest {
    TurnRequest {
        task: TaskId::parse("task-1").expect("an id"),
        session: session.clone(),
        prompt: prompt.clone(),
        input: vec![Input::Text(text.to_owned())],
        options: PromptOptions::default(),
        order: None,
        is_adopted: false,
        resume,
        prompting: Prompting::default(),
        trace: None,
    }
}

/// All events of a turn. Checks that the turn ends exactly once, and last.
async fn all(mut turn: Turn) -> Vec<AgentEvent> {
    let mut events = Vec::new();
    while let Some(event) = next(&mut turn).await {
        events.push(event);
    }
    let ends = events.iter().filter(|event| matches!(event, AgentEvent::Ended(_))).count();
    assert_eq!(ends, 1, "{events:?}");
    assert!(matches!(events.last(), Some(AgentEvent::Ended(_))), "{events:?}");
    child_turns::check_rest(&events);
    events
}

async fn next(turn: &mut Turn) -> Option<AgentEvent> {
    tokio::time::timeout(PATIENCE, turn.events.recv()).await.expect("the turn goes on")
}

/// The events of a turn up to the first one that matches.
async fn until(turn: &mut Turn, found: impl Fn(&AgentEvent) -> bool) -> Vec<AgentEvent> {
    let mut events = Vec::new();
    while !events.last().is_some_and(&found) {
        let event = next(turn).await;
        events.push(event.unwrap_or_else(|| panic!("the turn has no such event: {events:?}")));
    }
    events
}

/// Waits for the next ask.
async fn asked(turn: &mut Turn) -> Ask {
    let events = until(turn, |event| matches!(event, AgentEvent::Asked(_))).await;
    last_ask(&events)
}

fn last_ask(events: &[AgentEvent]) -> Ask {
    match events.last() {
        Some(AgentEvent::Asked(ask)) => ask.as_ref().clone(),
        other => panic!("{other:?}"),
    }
}

fn permission(reply: PermissionReply, message: Option<&str>) -> Answer {
    Answer::Permission { reply, message: message.map(str::to_owned) }
}

fn once() -> Answer {
    permission(PermissionReply::Once, None)
}

/// The text of all blocks after the events were applied.
fn text_of(events: &[AgentEvent]) -> String {
    let mut blocks: Vec<(&str, String)> = Vec::new();
    for event in events {
        let (block, text, append) = match event {
            AgentEvent::Text { block, text } => (block.id.as_str(), text, true),
            AgentEvent::TextReplaced { block, text } => (block.id.as_str(), text, false),
            _ => continue,
        };
        match blocks.iter_mut().find(|(id, _)| *id == block) {
            Some((_, known)) if append => known.push_str(text),
            Some((_, known)) => known.clone_from(text),
            None => blocks.push((block, text.clone())),
        }
    }
    blocks.into_iter().map(|(_, text)| text).collect()
}
fn outcome(events: &[AgentEvent]) -> String {
    match events.last() {
        Some(AgentEvent::Ended(outcome)) => described(outcome),
        other => panic!("no end: {other:?}"),
    }
}

/// The outcome and the text of a turn.
fn result(events: &[AgentEvent]) -> (String, String) {
    (outcome(events), text_of(events))
}

fn ended(outcome: &str, text: &str) -> (String, String) {
    (outcome.to_owned(), text.to_owned())
}

fn described(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed { remark } => {
            remark.clone().map_or_else(|| "completed".to_owned(), |remark| format!("completed: {remark}"))
        }
        Outcome::Canceled { reason } => format!("canceled: {reason}"),
        Outcome::Failed(failure) => format!("failed: {}", failure.message),
        Outcome::AuthRequired(failure) => format!("auth required: {}", failure.message),
        Outcome::Incomplete(outcome) => described(outcome),
    }
}
