//! The suite's calls of the port. No other file of the suite calls an agent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use longshore_engine::port::{
    Admission, Input, NewSession, Prompting, Resume, Session, Steering, TurnRequest,
};
use longshore_model::{
    AgentEvent, Answer, Artifact, Ask, ErrorKind, Part, PermissionReply, PromptId, PromptOptions, RequestId,
    Result, TaskId,
};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::running::{Finished, Running};
use super::{AgentUnderTest, PATIENCE, Received};

/// How often a call is repeated while the agent is down, as the engine does.
const RETRY_EVERY: Duration = Duration::from_millis(20);

impl dyn AgentUnderTest + '_ {
    pub(super) async fn session(&self) -> Session {
        let agent = self.agent();
        let (options, request) = (
            PromptOptions::default(),
            Admission { directory: None, workspace: None, current: None, options: &PromptOptions::default() },
        );
        let admitted = soon("the admission", agent.admit(Admission { options: &options, ..request })).await;
        let directory = admitted.expect("a default directory").directory;
        self.while_down("a session", || {
            agent.open_session(NewSession { directory: directory.clone(), title: None })
        })
        .await
        .expect("a session")
    }

    /// Starts a turn. An agent that is down is waited for; nothing was prompted then.
    pub(super) async fn try_start(&self, session: &Session, text: &str) -> Result<Running> {
        let agent = self.agent();
        let prompt = new_prompt();
        let request = request(session, &prompt, text, None);
        let turn = self.while_down("the start of a turn", || agent.start_turn(request.clone())).await?;
        assert!(request.prompting.has_begun(), "a turn has started, and its prompt does not count as sent");
        Ok(Running::new(turn, session.clone(), prompt))
    }

    pub(super) async fn start(&self, session: &Session, text: &str) -> Running {
        self.try_start(session, text).await.expect("the turn starts")
    }

    /// A whole turn. If the agent lost the session, the turn runs in a new one, as the engine does it.
    pub(super) async fn run(&self, session: &Session, text: &str) -> Finished {
        let running = match self.try_start(session, text).await {
            Err(gone) if gone.kind() == ErrorKind::SessionGone => {
                assert!(!self.abilities().keeps_sessions, "the agent lost its session");
                self.start(&self.session().await, text).await
            }
            started => started.expect("the turn starts"),
        };
        running.rest().await
    }

    /// Follows a turn after a restart of the gateway, with what the log has of it.
    pub(super) async fn resume(&self, before: &Running) -> Running {
        let resume = Resume {
            artifacts: logged(&before.seen),
            open_asks: open_asks(&before.seen),
            ..Resume::default()
        };
        self.resume_prompt(&before.session, &before.prompt, resume).await
    }

    /// Resumes a turn of which the log has nothing.
    pub(super) async fn resume_unsent(&self, session: &Session) -> Running {
        let prompt = new_prompt();
        self.resume_prompt(session, &prompt, Resume::default()).await
    }

    async fn resume_prompt(&self, session: &Session, prompt: &PromptId, resume: Resume) -> Running {
        let agent = self.agent();
        let request = request(session, prompt, "", Some(resume));
        let turn = self.while_down("the resumption of a turn", || agent.start_turn(request.clone())).await;
        Running::new(turn.expect("the turn is resumed"), session.clone(), prompt.clone())
    }

    pub(super) async fn answer(&self, session: &Session, ask: &Ask, is_allowed: bool) -> Result<()> {
        let reply = if is_allowed { PermissionReply::Once } else { PermissionReply::Reject };
        let answer = Answer::Permission { reply, message: None };
        soon("the answer", self.agent().reply(session, ask, &answer)).await
    }

    pub(super) async fn cancel(&self, session: &Session) {
        soon("the cancel", self.agent().cancel(session)).await.expect("the turn is canceled");
    }

    pub(super) async fn check_agent(&self) -> Result<()> {
        soon("the check", self.agent().check()).await
    }

    /// Offers a message to the running turn. Returns whether it joined.
    pub(super) async fn steer(&self, running: &Running, text: &str) -> bool {
        let (expected, is_expected) = oneshot::channel();
        let (go, may_go) = oneshot::channel();
        let (sent, outcome) = oneshot::channel();
        let steering = Steering {
            prompt: new_prompt(),
            input: vec![Input::Text(text.to_owned())],
            options: PromptOptions::default(),
            trace: None,
            expected,
            go: may_go,
            sent,
        };
        let Some(queue) = &running.turn.steering else { return false };
        if soon("the offer", queue.send(Box::new(steering))).await.is_err() {
            return false;
        }
        if soon("the promise to wait", is_expected).await.is_err() || go.send(()).is_err() {
            return false;
        }
        soon("the joined prompt", outcome).await.is_ok_and(|sent| sent.is_ok())
    }

    pub(super) fn prompts(&self) -> Vec<String> {
        let text = |received| match received {
            Received::Prompt { text, .. } => Some(text),
            _ => None,
        };
        self.received().into_iter().filter_map(text).collect()
    }

    pub(super) fn cancels(&self) -> usize {
        self.received().iter().filter(|received| matches!(received, Received::Cancel { .. })).count()
    }

    /// The answers so far: whether each allowed the tool.
    pub(super) fn answers(&self) -> Vec<bool> {
        let answer = |received| match received {
            Received::Answer { is_allowed } => Some(is_allowed),
            _ => None,
        };
        self.received().into_iter().filter_map(answer).collect()
    }

    async fn while_down<'a, T>(&self, what: &str, call: impl Fn() -> BoxFuture<'a, Result<T>>) -> Result<T> {
        soon(what, async {
            loop {
                match call().await {
                    Err(error) if error.kind() == ErrorKind::AgentUnavailable => {
                        tokio::time::sleep(RETRY_EVERY).await;
                    }
                    result => return result,
                }
            }
        })
        .await
    }
}

pub(super) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("{what} hangs"))
}

fn request(session: &Session, prompt: &PromptId, text: &str, resume: Option<Resume>) -> TurnRequest {
    let input = if resume.is_none() { vec![Input::Text(text.to_owned())] } else { Vec::new() };
    TurnRequest {
        task: TaskId::parse("task-1").expect("an id"),
        session: session.clone(),
        prompt: prompt.clone(),
        input,
        options: PromptOptions::default(),
        order: None,
        is_adopted: false,
        resume,
        prompting: Prompting::default(),
        trace: None,
    }
}

/// The texts that a log holds after these events.
fn logged(events: &[AgentEvent]) -> Vec<Artifact> {
    let mut artifacts: Vec<Artifact> = Vec::new();
    for event in events {
        let AgentEvent::Text { block, text } = event else { continue };
        match artifacts.iter_mut().find(|artifact| artifact.id == block.id) {
            Some(artifact) => artifact.parts.push(Part::text(text)),
            None => artifacts.push(Artifact {
                id: block.id.clone(),
                kind: block.kind,
                source_message: block.message.clone(),
                name: None,
                description: None,
                parts: vec![Part::text(text)],
                extensions: Vec::new(),
                metadata: None,
            }),
        }
    }
    artifacts
}

fn open_asks(events: &[AgentEvent]) -> Vec<RequestId> {
    let mut open = Vec::new();
    for event in events {
        match event {
            AgentEvent::Asked(ask) => open.push(ask.request_id.clone()),
            AgentEvent::AskClosed { request_id, .. } => open.retain(|id| id != request_id),
            _ => {}
        }
    }
    open
}

/// An id such as the engine makes.
fn new_prompt() -> PromptId {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    PromptId::parse(&format!("0199-{number}")).expect("digits are an id")
}
