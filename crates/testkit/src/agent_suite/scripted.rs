//! The suite on the [`ScriptedAgent`]: shows that an agent can pass it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use longshore_engine::Tasks;
use longshore_engine::port::{Agent, Input, Steering, TurnRequest};
use longshore_model::{
    AgentEvent, Answer, Ask, BlockKind, BlockRef, Error, ErrorKind, Failure, Outcome, PermissionReply,
    PromptId, RequestId, Resolution, Result, SessionId, ToolCall, ToolStatus, redact,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Abilities, AgentUnderTest, Received, Reply, Step};
use crate::fake_opencode::Gate;
use crate::scripted_agent::{Reactions, ScriptedAgent, StartedTurn, permission, text_block};

/// A scripted agent whose turns play the replies of a check.
#[derive(Debug)]
pub struct ScriptedUnderTest {
    agent: Arc<ScriptedAgent>,
    state: Arc<State>,
    tasks: Tasks,
}

#[derive(Debug, Default)]
struct State(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    replies: VecDeque<Reply>,
    received: Vec<Received>,
    /// Ends with the life of the agent.
    life: CancellationToken,
    /// Cancels the newest turn of a session.
    cancels: HashMap<SessionId, (PromptId, CancellationToken)>,
    /// One turn at a time runs in a session.
    sessions: HashMap<SessionId, Arc<tokio::sync::Mutex<()>>>,
    asks: HashMap<RequestId, oneshot::Sender<bool>>,
    last_id: usize,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_id(&self) -> usize {
        let mut state = self.lock();
        state.last_id += 1;
        state.last_id
    }
}

impl Reactions for State {
    fn start(&self, request: &TurnRequest) {
        let cancel = (request.prompt.clone(), CancellationToken::new());
        self.lock().cancels.insert(request.session.id.clone(), cancel);
    }

    fn answer(&self, ask: &Ask, answer: &Answer) -> Result<()> {
        let is_allowed = !matches!(answer, Answer::Permission { reply: PermissionReply::Reject, .. });
        let mut state = self.lock();
        let open = state.asks.remove(&ask.request_id);
        let is_open = open.is_some_and(|open| open.send(is_allowed).is_ok());
        if !is_open {
            return Err(Error::new(ErrorKind::InterruptNotFound, "The ask is no longer open."));
        }
        state.received.push(Received::Answer { is_allowed });
        Ok(())
    }

    fn cancel(&self, session: &SessionId) {
        let mut state = self.lock();
        if let Some((_, cancel)) = state.cancels.get(session).filter(|(_, cancel)| !cancel.is_cancelled()) {
            cancel.cancel();
            state.received.push(Received::Cancel { session: session.as_str().to_owned() });
        }
    }
}

impl ScriptedUnderTest {
    pub fn start() -> Self {
        let (agent, turns) = ScriptedAgent::manual();
        let (state, tasks) = (Arc::<State>::default(), Tasks::new());
        agent.reactions.set(Arc::clone(&state) as Arc<dyn Reactions>).expect("it is set once");
        tasks.spawn("scripted turns", play_all(turns, Arc::clone(&state), tasks.clone()));
        Self { agent, state, tasks }
    }
}

impl AgentUnderTest for ScriptedUnderTest {
    fn abilities(&self) -> Abilities {
        Abilities {
            steers: true,
            resumes: false,
            keeps_sessions: true,
            checks_sessions: false,
            closes_tools_of_the_dead: true,
        }
    }

    fn agent(&self) -> Arc<dyn Agent> {
        Arc::clone(&self.agent) as Arc<dyn Agent>
    }

    fn reply_with(&self, reply: Reply) {
        self.state.lock().replies.push_back(reply);
    }

    fn received(&self) -> Vec<Received> {
        self.state.lock().received.clone()
    }

    fn kill(&self) -> BoxFuture<'_, ()> {
        let mut state = self.state.lock();
        std::mem::take(&mut state.life).cancel();
        Box::pin(std::future::ready(()))
    }

    /// The agent is part of the gateway, so its turns end with it.
    fn restart_gateway(&self) -> BoxFuture<'_, ()> {
        self.kill()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.tasks.stop())
    }
}

async fn play_all(mut turns: mpsc::Receiver<StartedTurn>, state: Arc<State>, tasks: Tasks) {
    loop {
        let turn = tokio::select! {
            () = tasks.stopping().cancelled() => return,
            turn = turns.recv() => turn,
        };
        let Some(turn) = turn else { return };
        let player = Player::new(turn, &state);
        tasks.spawn("scripted turn", player.play());
    }
}

fn take_prompt(state: &mut Inner, session: &SessionId, input: &[Input]) -> Reply {
    let text = |input: &Input| match input {
        Input::Text(text) => text.clone(),
        Input::File(_) => String::new(),
    };
    let text = input.iter().map(text).collect();
    state.received.push(Received::Prompt { session: session.as_str().to_owned(), text });
    state.replies.pop_front().unwrap_or_default()
}

/// Plays one turn.
struct Player {
    state: Arc<State>,
    turn: StartedTurn,
    life: CancellationToken,
    cancel: CancellationToken,
    /// Replies to the prompts of the turn that are not played yet.
    replies: VecDeque<Reply>,
    /// The tool call that runs.
    tool: Option<(BlockRef, ToolCall)>,
    /// The open ask.
    ask: Option<RequestId>,
}

impl Player {
    fn new(turn: StartedTurn, shared: &Arc<State>) -> Self {
        let request = &turn.request;
        let mut state = shared.lock();
        let life = state.life.clone();
        let cancel =
            state.cancels.get(&request.session.id).map(|(_, cancel)| cancel.clone()).unwrap_or_default();
        let mut replies = VecDeque::new();
        if request.resume.is_none() {
            replies.push_back(take_prompt(&mut state, &request.session.id, &request.input));
        }
        drop(state);
        Self { state: Arc::clone(shared), turn, life, cancel, replies, tool: None, ask: None }
    }

    async fn play(mut self) {
        let session = self.turn.request.session.id.clone();
        let queue = Arc::clone(self.state.lock().sessions.entry(session.clone()).or_default());
        let _turn = queue.lock().await;
        if self.turn.request.resume.is_some() {
            return self.end_lost().await;
        }
        let (life, cancel) = (self.life.clone(), self.cancel.clone());
        let outcome = tokio::select! {
            biased;
            () = life.cancelled() => failed("The agent ended in the middle of the turn."),
            () = cancel.cancelled() => Outcome::Canceled { reason: "The turn was stopped.".to_owned() },
            outcome = self.perform() => outcome,
        };
        self.end(outcome).await;
    }

    /// Ends a turn that a restart of the gateway interrupted.
    async fn end_lost(mut self) {
        for ask in self.turn.request.resume.take().unwrap_or_default().open_asks {
            self.close(ask, Resolution::Dropped).await;
        }
        self.end(failed("The gateway was restarted in the middle of the turn.")).await;
    }

    async fn end(mut self, outcome: Outcome) {
        let TurnRequest { session, prompt, .. } = &self.turn.request;
        let newest = |(newest, _): &(PromptId, CancellationToken)| newest == prompt;
        if self.state.lock().cancels.get(&session.id).is_some_and(newest) {
            self.state.lock().cancels.remove(&session.id);
        }
        if let Some(ask) = self.ask.take() {
            self.state.lock().asks.remove(&ask);
            self.close(ask, Resolution::Dropped).await;
        }
        if let Some((block, mut call)) = self.tool.take() {
            call.status = ToolStatus::Error;
            self.turn.report(AgentEvent::Tool { block, call: Box::new(call) }).await;
        }
        self.turn.report(AgentEvent::Ended(outcome)).await;
    }

    /// Plays the reply to the prompt, and the replies to the messages that join the turn.
    async fn perform(&mut self) -> Outcome {
        while let Some(reply) = self.replies.pop_front() {
            for step in reply.steps {
                if let Some(end) = self.step(step).await {
                    return end;
                }
            }
            while let Ok(steering) = self.turn.steering.try_recv() {
                self.join(*steering).await;
            }
        }
        Outcome::Completed { remark: None }
    }

    async fn join(&mut self, steering: Steering) {
        let _ = steering.expected.send(());
        if steering.go.await.is_ok() {
            let reply = take_prompt(&mut self.state.lock(), &self.turn.request.session.id, &steering.input);
            self.replies.push_back(reply);
            let _ = steering.sent.send(Ok(()));
        }
    }

    /// Waits for the gate, and takes messages that join meanwhile.
    async fn hold(&mut self, gate: &Gate) {
        loop {
            let steering = tokio::select! {
                () = gate.pass() => return,
                Some(steering) = self.turn.steering.recv() => steering,
            };
            self.join(*steering).await;
        }
    }

    async fn begin_tool(&mut self, command: &str) {
        let id = format!("call_{}", self.state.next_id());
        let block = BlockRef { kind: BlockKind::ToolCall, ..text_block(&id) };
        let title = Some(command.to_owned());
        let call = ToolCall { title, ..ToolCall::new(id, "bash", ToolStatus::Running) };
        self.tool = Some((block.clone(), call.clone()));
        self.turn.report(AgentEvent::Tool { block, call: Box::new(call) }).await;
    }

    /// Ends the running call. `None`: it was not permitted.
    async fn end_tool(&mut self, output: Option<String>) {
        let Some((block, mut call)) = self.tool.clone() else { return };
        call.status = if output.is_some() { ToolStatus::Completed } else { ToolStatus::Error };
        call.output = output;
        self.turn.report(AgentEvent::Tool { block, call: Box::new(call) }).await;
        self.tool = None;
    }

    async fn ask(&mut self, command: &str) -> bool {
        let id = format!("per_{}", self.state.next_id());
        let mut ask = permission(&self.turn.request.session.id, &id);
        ask.summary = format!("The agent asks for permission to run: {command}.");
        let (answer, answered) = oneshot::channel();
        let id = ask.request_id.clone();
        self.state.lock().asks.insert(id.clone(), answer);
        self.ask = Some(id.clone());
        self.turn.report(AgentEvent::Asked(Box::new(ask))).await;
        let is_allowed = answered.await.unwrap_or(false);
        let resolution = if is_allowed { Resolution::Replied } else { Resolution::Rejected };
        self.close(id, resolution).await;
        self.ask = None;
        is_allowed
    }

    async fn close(&self, request_id: RequestId, resolution: Resolution) {
        self.turn.report(AgentEvent::AskClosed { request_id, resolution }).await;
    }

    /// Plays a step. Returns the end of the turn if the step ends it.
    async fn step(&mut self, step: Step) -> Option<Outcome> {
        match step {
            Step::Text(chunks) => {
                let block = format!("text_{}", self.state.next_id());
                for chunk in chunks {
                    self.turn.say(&block, &chunk).await;
                }
            }
            Step::Thought(text) => {
                let name = format!("thought_{}", self.state.next_id());
                let block = BlockRef { kind: BlockKind::Reasoning, ..text_block(&name) };
                self.turn.report(AgentEvent::Text { block, text }).await;
            }
            Step::Tool { command, output, hold } => {
                self.begin_tool(&command).await;
                if let Some(gate) = hold {
                    gate.pass().await;
                }
                self.end_tool(Some(output)).await;
            }
            Step::GuardedTool { command, output } => {
                self.begin_tool(&command).await;
                let is_allowed = self.ask(&command).await;
                self.end_tool(is_allowed.then_some(output)).await;
            }
            Step::Hold(gate) => self.hold(&gate).await,
            Step::Garbage => {}
            Step::Fail(message) => return Some(failed(&redact::public(&message))),
        }
        None
    }
}

fn failed(reason: &str) -> Outcome {
    Outcome::Failed(Failure::new(reason))
}
