//! An engine with its parts, and helpers for the tests.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::port::{Clock, Control, Input, Store, SystemClock};
use longshore_engine::{Engine, EngineConfig, EngineParts, Sent, TaskReader, Tasks};
use longshore_meter::Metrics;
use longshore_meter::label::TurnState;
use longshore_model::{
    ContextId, Entry, ListTasks, Message, MessageId, Part, Principal, Result, Role, SendConfig, SendMessage,
    SendOptions, Task, TaskId, TaskState, Timestamp,
};
use longshore_testkit::scripted_agent::{ScriptedAgent, StartedTurn};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) struct Harness {
    pub(crate) engine: Engine,
    pub(crate) agent: Arc<ScriptedAgent>,
    pub(crate) turns: mpsc::Receiver<StartedTurn>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) tasks: Tasks,
    pub(crate) metrics: Arc<Metrics>,
}

pub(crate) fn start() -> Harness {
    start_with(Arc::new(longshore_store::memory()), EngineConfig::default())
}

pub(crate) fn start_with(store: Arc<dyn Store>, config: EngineConfig) -> Harness {
    start_later(store, config, Duration::ZERO)
}

/// Starts with a clock that is ahead by `later`.
pub(crate) fn start_later(store: Arc<dyn Store>, config: EngineConfig, later: Duration) -> Harness {
    start_controlled(store, config, later, None)
}

/// Starts with an agent that has a control surface.
pub(crate) fn start_controlled(
    store: Arc<dyn Store>,
    config: EngineConfig,
    later: Duration,
    control: Option<Arc<dyn Control>>,
) -> Harness {
    start_agent(ScriptedAgent::manual(), store, config, later, control)
}

/// Starts with an agent that has none of the optional abilities.
pub(crate) fn start_plain(store: Arc<dyn Store>, config: EngineConfig) -> Harness {
    start_agent(ScriptedAgent::plain(), store, config, Duration::ZERO, None)
}

fn start_agent(
    (agent, turns): (Arc<ScriptedAgent>, mpsc::Receiver<StartedTurn>),
    store: Arc<dyn Store>,
    config: EngineConfig,
    later: Duration,
    control: Option<Arc<dyn Control>>,
) -> Harness {
    let (tasks, metrics) = (Tasks::new(), Arc::new(Metrics::new("test")));
    let engine = Engine::new(EngineParts {
        store: Arc::clone(&store),
        agent: agent.clone(),
        control,
        clock: Arc::new(TokioClock::later(later)),
        tasks: tasks.clone(),
        metrics: Arc::clone(&metrics),
        config,
    });
    Harness { engine, agent, turns, store, tasks, metrics }
}

impl Harness {
    /// Sends a message into a context.
    pub(crate) async fn send(&self, context: &str, text: &str) -> Sent {
        self.engine.send(&alice(), message(context, text)).await.expect("the send is taken")
    }

    /// The next turn that the engine starts.
    pub(crate) async fn turn(&mut self) -> StartedTurn {
        self.turns.recv().await.expect("the agent lives as long as the harness")
    }

    pub(crate) async fn task(&self, id: &TaskId) -> Task {
        self.engine.get(&alice(), id).await.expect("the task is there").task
    }

    /// Waits until the task's log has an event with this state.
    pub(crate) async fn reaches(&self, id: &TaskId, state: TaskState) -> Task {
        let task = self.task(id).await;
        if task.status.state == state {
            return task;
        }
        let from_start = Some(longshore_model::Seq::START.into());
        let mut reader =
            self.engine.subscribe(&alice(), id, from_start).await.expect("it can be read").reader;
        while let Some(entries) = reader.next().await.expect("the log can be read") {
            if entries
                .iter()
                .any(|entry| entry.entry.event.status().is_some_and(|status| status.state == state))
            {
                return self.task(id).await;
            }
        }
        panic!("the task ended as {} and was never {state}", self.task(id).await.status.state);
    }

    /// Waits until this many turns wait at the turn limiter.
    pub(crate) async fn waiting(&self, turns: i64) {
        while self.metrics.turns.of(TurnState::Waiting).get() != turns {
            tokio::task::yield_now().await;
        }
    }

    /// Stops the engine as a signal would, and waits for the end.
    pub(crate) async fn stop(self) -> Arc<dyn Store> {
        self.tasks.stop().await;
        self.store
    }
}

/// A clock that moves with the runtime's clock: a test that pauses the runtime pauses both.
#[derive(Debug)]
struct TokioClock {
    started: tokio::time::Instant,
    at: Timestamp,
}

impl TokioClock {
    fn later(by: Duration) -> Self {
        let by = i64::try_from(by.as_millis()).expect("a test is short");
        Self { started: tokio::time::Instant::now(), at: Timestamp(SystemClock.now().0 + by) }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.started.elapsed().as_millis()).expect("a test is short");
        Timestamp(self.at.0 + passed)
    }
}

pub(crate) fn alice() -> Principal {
    Principal::new("alice")
}

/// A message whose id is its text.
pub(crate) fn message(context: &str, text: &str) -> SendMessage {
    let id = MessageId::parse(&text.replace(' ', "_")).expect("the text makes an id");
    let mut message = Message::new(id, Role::User, vec![Part::text(text)]);
    message.context_id = Some(ContextId::parse(context).expect("a good context"));
    SendMessage {
        message,
        config: SendConfig::default(),
        metadata: None,
        options: SendOptions::default(),
        may_claim: false,
        trace: None,
    }
}

/// A message to a task in the context `c`, whose id is its text.
pub(crate) fn on(task: &TaskId, text: &str) -> SendMessage {
    let mut command = message("c", text);
    command.message.task_id = Some(task.clone());
    command
}

/// Sends in the background.
pub(crate) fn send_in_background(h: &Harness, command: SendMessage) -> JoinHandle<Result<TaskId>> {
    let engine = h.engine.clone();
    h.tasks.spawn("test", async move { engine.send(&alice(), command).await.map(|sent| sent.task) })
}

/// A query for all tasks, or for those of a context.
pub(crate) fn all_tasks(context: Option<&str>) -> ListTasks {
    ListTasks {
        context_id: context.map(|context| ContextId::parse(context).expect("a good context")),
        state: None,
        status_after: None,
        page_size: 100,
        page_token: None,
        history_length: None,
        include_artifacts: true,
    }
}

/// All entries of the reader up to the end of the task.
pub(crate) async fn read_all(mut reader: TaskReader) -> Vec<Entry> {
    let mut all = Vec::new();
    while let Some(entries) = reader.next().await.expect("the log can be read") {
        assert!(!entries.is_empty(), "a reader never wakes for nothing");
        all.extend(entries.iter().map(|entry| entry.entry.clone()));
    }
    all
}

/// The text of all artifacts, in order.
pub(crate) fn text_of(task: &Task) -> String {
    task.artifacts.iter().flat_map(|artifact| &artifact.parts).filter_map(|part| part.as_text()).collect()
}

/// The text of the status message.
pub(crate) fn reason_of(task: &Task) -> String {
    let message = task.status.message.as_ref();
    message.into_iter().flat_map(|message| &message.parts).filter_map(|part| part.as_text()).collect()
}

/// The agent's input for a text.
pub(crate) fn input(text: &str) -> Input {
    Input::Text(text.to_owned())
}
