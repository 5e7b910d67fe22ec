//! An engine, an agent whose turns the test controls, and peers with scripted answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_client::Settings;
use longshore_engine::port::{CallStore, Store, SystemClock};
use longshore_engine::{Engine, EngineConfig, EngineParts, Sent, Tasks};
use longshore_meter::Metrics;
use longshore_model::{
    Artifact, BlockKind, ContextId, Hops, Message, MessageId, Part, PartContent, Principal, Role, SendConfig,
    SendMessage, SendOptions, Seq, Task, TaskId, TaskState, TraceContext,
};
use longshore_peers::{
    AnswerRequest, CallHandle, CallKey, CallLimits, CallReport, CallRequest, CallingAgent, HopRules,
    Identity, InAll, Peer, PeerCalls, PeerParts, PeersConfig, ToolCaller, ToolError, Tools as _,
};
use longshore_store::MemoryStore;
use longshore_testkit::scripted_agent::{ScriptedAgent, StartedTurn};
use longshore_testkit::stub_agent::{Reply, Request, StubAgent};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_mins(2);

pub(crate) struct Gateway {
    pub(crate) engine: Engine,
    pub(crate) agent: Arc<ScriptedAgent>,
    pub(crate) turns: mpsc::Receiver<StartedTurn>,
    pub(crate) calls: PeerCalls,
    pub(crate) store: Arc<MemoryStore>,
    tasks: Tasks,
}

pub(crate) fn config(peers: Vec<Peer>) -> PeersConfig {
    let in_all = InAll::default();
    PeersConfig { peers, urls: None, at_once: 4, per_task: 20, in_all, hops: HopRules::default() }
}

/// A peer with the name `b`.
pub(crate) fn peer(agent: &StubAgent) -> Peer {
    Peer {
        name: "b".to_owned(),
        description: None,
        url: agent.url(),
        settings: Settings::default(),
        limits: CallLimits::default(),
        model_answers: true,
    }
}

pub(crate) fn start(config: PeersConfig) -> Gateway {
    start_on(Arc::new(longshore_store::memory()), config)
}

pub(crate) fn start_on(store: Arc<MemoryStore>, config: PeersConfig) -> Gateway {
    start_agent(store, config, ScriptedAgent::manual())
}

/// Starts with an agent that cannot resume turns.
pub(crate) fn start_plain(store: Arc<MemoryStore>, config: PeersConfig) -> Gateway {
    start_agent(store, config, ScriptedAgent::plain())
}

fn start_agent(
    store: Arc<MemoryStore>,
    config: PeersConfig,
    (agent, turns): (Arc<ScriptedAgent>, mpsc::Receiver<StartedTurn>),
) -> Gateway {
    let (tasks, metrics) = (Tasks::new(), Arc::new(Metrics::new("test")));
    let calls = PeerCalls::new(PeerParts {
        config,
        identity: identity(),
        calls: store.clone() as Arc<dyn CallStore>,
        store: store.clone() as Arc<dyn Store>,
        clock: Arc::new(SystemClock),
        tasks: tasks.clone(),
        metrics: Arc::clone(&metrics),
    });
    let engine = Engine::new(EngineParts {
        store: store.clone(),
        agent: Arc::new(CallingAgent::new(agent.clone(), calls.clone())),
        control: None,
        clock: Arc::new(SystemClock),
        tasks: tasks.clone(),
        metrics,
        config: EngineConfig::default(),
    });
    Gateway { engine, agent, turns, calls, store, tasks }
}

pub(crate) fn identity() -> Identity {
    Identity::new("gateway-a", vec![7; 32])
}

/// An answer to the open ask.
pub(crate) fn words(text: &str) -> AnswerRequest {
    AnswerRequest { ask: None, text: text.to_owned(), wait: LONG }
}

pub(crate) fn alice() -> Principal {
    Principal::new("alice")
}

impl Gateway {
    /// Sends a message, and returns its task and the turn that the task has started.
    pub(crate) async fn turn(&mut self) -> (Sent, StartedTurn) {
        let sent = self.engine.send(&alice(), message("m1")).await.unwrap();
        (sent, self.turns.recv().await.unwrap())
    }

    pub(crate) async fn task(&self, id: &TaskId) -> Task {
        self.engine.get(&alice(), id).await.unwrap().task
    }

    /// The task, as soon as `is_so` is true for it.
    pub(crate) async fn until(&self, id: &TaskId, is_so: impl Fn(&Task) -> bool) -> Task {
        let mut reader = self.engine.subscribe(&alice(), id, Some(Seq::START.into())).await.unwrap().reader;
        loop {
            let task = self.task(id).await;
            if is_so(&task) {
                return task;
            }
            let more = tokio::time::timeout(LONG, reader.next()).await.expect("the task changes");
            assert!(more.unwrap().is_some(), "the task is over: {task:?}");
        }
    }

    pub(crate) async fn reaches(&self, id: &TaskId, state: TaskState) -> Task {
        self.until(id, |task| task.status.state == state).await
    }

    /// Stops the gateway as a signal does, and returns its store.
    pub(crate) async fn stop(self) -> Arc<MemoryStore> {
        self.tasks.stop().await;
        self.store
    }

    /// Answers an ask as the model of the turn.
    pub(crate) async fn answer(
        &self,
        turn: &StartedTurn,
        key: &str,
        call: &CallHandle,
        request: AnswerRequest,
    ) -> Result<CallReport, ToolError> {
        let key = CallKey(key.to_owned());
        self.calls.answer(&caller(turn), &key, call, request, progress().0).await
    }

    /// Makes a call in the turn, and waits for its end.
    pub(crate) async fn call(
        &self,
        turn: &StartedTurn,
        key: &str,
        text: &str,
    ) -> Result<CallReport, ToolError> {
        self.call_for(turn, key, text, LONG).await
    }

    pub(crate) async fn call_for(
        &self,
        turn: &StartedTurn,
        key: &str,
        text: &str,
        wait: Duration,
    ) -> Result<CallReport, ToolError> {
        let request = CallRequest { peer: "b".to_owned(), text: text.to_owned(), continues: None, wait };
        self.request(turn, key, request).await
    }

    pub(crate) async fn request(
        &self,
        turn: &StartedTurn,
        key: &str,
        request: CallRequest,
    ) -> Result<CallReport, ToolError> {
        self.calls.call(&caller(turn), &CallKey(key.to_owned()), request, progress().0).await
    }
}

pub(crate) fn progress() -> (mpsc::Sender<String>, mpsc::Receiver<String>) {
    mpsc::channel(64)
}

pub(crate) fn caller(turn: &StartedTurn) -> ToolCaller {
    ToolCaller::Session { session: turn.request.session.id.clone(), tool_call: None }
}

pub(crate) fn message(id: &str) -> SendMessage {
    let mut message = Message::new(MessageId::parse(id).unwrap(), Role::User, vec![Part::text(id)]);
    message.context_id = Some(ContextId::parse("c").unwrap());
    SendMessage {
        message,
        config: SendConfig::default(),
        metadata: None,
        options: SendOptions::default(),
        may_claim: false,
        trace: Some(TraceContext::generate()),
    }
}

pub(crate) fn message_over(id: &str, hops: Hops) -> SendMessage {
    let mut command = message(id);
    command.options.prompt.hops = hops;
    command
}

/// The calls that the task shows.
pub(crate) fn shown(task: &Task) -> Vec<Value> {
    let calls = task.artifacts.iter().filter(|artifact| artifact.kind == BlockKind::ToolCall);
    let data = |artifact: &Artifact| match &artifact.parts.last()?.content {
        PartContent::Data(data) => Some(data.to_value()),
        _ => None,
    };
    calls.filter_map(data).collect()
}

/// A peer whose answers to JSON-RPC calls the test scripts. The number counts the calls of the same method.
pub(crate) fn stub(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> StubAgent {
    let counts = [const { AtomicUsize::new(0) }; 4];
    StubAgent::start(move |request, url| {
        if request.method == "GET" {
            return Reply::json(&StubAgent::card(url));
        }
        let index = match request.rpc() {
            "SendStreamingMessage" => 0,
            "SendMessage" => 1,
            "CancelTask" => 2,
            _ => 3,
        };
        answer(request, counts[index].fetch_add(1, Ordering::SeqCst))
    })
}

pub(crate) fn remote(state: &str, text: &str) -> Value {
    let artifacts =
        if text.is_empty() { json!([]) } else { json!([{"artifactId": "a", "parts": [{"text": text}]}]) };
    json!({"id": "t-1", "contextId": "c-1", "status": {"state": format!("TASK_STATE_{state}")}, "artifacts": artifacts})
}

/// A stream of these events. The test may add more, or keep the stream open.
pub(crate) fn stream(events: &[Value]) -> Reply {
    Reply::stream(&events.iter().map(|event| (None, event.clone())).collect::<Vec<_>>())
}

pub(crate) fn status(state: &str, text: &str, metadata: &Value) -> Value {
    let message = json!({"messageId": format!("m-{text}"), "role": "ROLE_AGENT", "parts": [{"text": text}]});
    json!({"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "metadata": metadata,
        "status": {"state": format!("TASK_STATE_{state}"), "message": message}}})
}

pub(crate) fn answer(text: &str) -> Reply {
    stream(&[json!({"task": remote("WORKING", "")}), json!({"task": remote("COMPLETED", text)})])
}

/// The requests of one method that the peer got.
pub(crate) fn requests(agent: &StubAgent, rpc: &str) -> Vec<Request> {
    agent.requests().into_iter().filter(|request| request.rpc() == rpc).collect()
}
