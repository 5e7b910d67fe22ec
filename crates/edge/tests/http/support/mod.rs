//! A gateway on a free port with an agent that the test controls, and a client that shows bytes unchanged.

mod binding;
mod client;
pub(crate) mod grpc;
mod http2_frames;
pub(crate) mod log_lines;
pub(crate) mod messages;
mod protocol_client;
pub(crate) mod route;
mod shown;
mod transcript;
mod turn;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longshore_edge::contract::Deployment;
use longshore_edge::{
    Caller, Capability, Credential, Credentials, CredentialsBuilder, Edge, EdgeConfig, Exposure, Listeners,
    Rights,
};
use longshore_engine::port::{BoxFuture, Control, Receivers, Store, SystemClock};
use longshore_engine::{AskConfig, Engine, EngineConfig, EngineParts, PushParts, PushRules, Tasks};
use longshore_model::{FieldViolation, Principal, PushRequest};
use longshore_store::MemoryStore;
use longshore_testkit::scripted_agent::{ScriptedAgent, StartedTurn};
use longshore_testkit::scripted_control::ScriptedControl;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use binding::{Binding, BindingEvents};
pub(crate) use client::{Answer, Call, Events, Frame, Http2, Pieces};
pub(crate) use http2_frames::{
    Http2Frame, http2_cancel, http2_data, http2_headers, http2_last_data, http2_start,
};
pub(crate) use messages::Stdio;
pub(crate) use protocol_client::{ClientView, ProtocolClient};
pub(crate) use shown::{redacted, shown};
pub(crate) use transcript::{Case, case, transcript};
pub(crate) use turn::{TEXT, first_half, second_half};

pub(crate) const ADA: &str = "Bearer tok-ada";
pub(crate) const BOB: &str = "Bearer tok-bob";
/// Another credential of ada's, which hides the agent's reasoning.
pub(crate) const ADA_BLIND: &str = "Bearer tok-ada-blind";
/// A credential of ada's that shows everything, whatever the gateway is configured to show.
pub(crate) const ADA_CURIOUS: &str = "Bearer tok-ada-curious";
/// A credential of ada's that may claim unowned sessions.
pub(crate) const ADA_CLAIMING: &str = "Bearer tok-ada-claiming";
/// A credential of ada's with all capabilities and the id `laptop`.
pub(crate) const ADA_ABLE: &str = "Bearer tok-ada-able";
/// A credential of bob's with all capabilities and no id.
pub(crate) const BOB_ABLE: &str = "Bearer tok-bob-able";

pub(crate) const SESSION: &str = "urn:opencode-a2a:extension:session-binding:v1";
pub(crate) const MODEL: &str = "urn:opencode-a2a:extension:model-selection:v1";
pub(crate) const HINTS: &str = "urn:opencode-a2a:extension:stream-hints:v1";
pub(crate) const INTERRUPT: &str = "urn:opencode-a2a:extension:interactive-interrupt:v1";
pub(crate) const RECOVERY: &str = "urn:opencode-a2a:extension:interrupt-recovery:v1";

/// A test that waits longer than this has found a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) agent: Arc<ScriptedAgent>,
    pub(crate) turns: mpsc::Receiver<StartedTurn>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: Tasks,
    engine: Engine,
    config: EdgeConfig,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Gateway {
    /// With an agent that echoes every prompt.
    pub(crate) async fn echoing() -> Self {
        Self::echoing_with(|_| {}).await
    }

    pub(crate) async fn echoing_with(configure: impl FnOnce(&mut EdgeConfig)) -> Self {
        let (_, turns) = mpsc::channel(1);
        let store = Arc::new(longshore_store::memory());
        Self::start(ScriptedAgent::echo(), None, turns, store, EngineConfig::default(), configure).await
    }

    /// With an agent that echoes every prompt and has extension methods.
    pub(crate) async fn controlled(
        control: &Arc<ScriptedControl>,
        configure: impl FnOnce(&mut EdgeConfig),
    ) -> Self {
        let (_, turns) = mpsc::channel(1);
        let store = Arc::new(longshore_store::memory());
        let control = Some(Arc::clone(control));
        Self::start(ScriptedAgent::echo(), control, turns, store, EngineConfig::default(), configure).await
    }

    /// With an agent that has extension methods and whose turns the test controls.
    pub(crate) async fn controlled_by_hand(
        control: &Arc<ScriptedControl>,
        configure: impl FnOnce(&mut EdgeConfig),
    ) -> Self {
        let (agent, turns) = ScriptedAgent::manual();
        let store = Arc::new(longshore_store::memory());
        let control = Some(Arc::clone(control));
        Self::start(agent, control, turns, store, EngineConfig::default(), configure).await
    }

    /// With an agent whose turns the test controls.
    pub(crate) async fn manual() -> Self {
        Self::manual_with(|_| {}).await
    }

    pub(crate) async fn manual_with(configure: impl FnOnce(&mut EdgeConfig)) -> Self {
        let (agent, turns) = ScriptedAgent::manual();
        let store = Arc::new(longshore_store::memory());
        Self::start(agent, None, turns, store, EngineConfig::default(), configure).await
    }

    /// With an agent whose turns the test controls, on a port and on further listeners.
    pub(crate) async fn manual_listening(
        listeners: Listeners,
        configure: impl FnOnce(&mut EdgeConfig),
    ) -> Self {
        let (agent, turns) = ScriptedAgent::manual();
        let store = Arc::new(longshore_store::memory());
        Self::start_on(listeners, agent, None, turns, store, EngineConfig::default(), configure).await
    }

    pub(crate) async fn manual_on(store: Arc<dyn Store>) -> Self {
        let (agent, turns) = ScriptedAgent::manual();
        Self::start(agent, None, turns, store, EngineConfig::default(), |_| {}).await
    }

    /// With a manual agent whose asks expire before they are answered.
    pub(crate) async fn impatient() -> Self {
        let (agent, turns) = ScriptedAgent::manual();
        let asks = AskConfig { time_to_live: Some(Duration::ZERO), ..AskConfig::default() };
        let config = EngineConfig { asks, ..EngineConfig::default() };
        Self::start(agent, None, turns, Arc::new(longshore_store::memory()), config, |_| {}).await
    }

    async fn start(
        agent: Arc<ScriptedAgent>,
        control: Option<Arc<ScriptedControl>>,
        turns: mpsc::Receiver<StartedTurn>,
        store: Arc<dyn Store>,
        engine_config: EngineConfig,
        configure: impl FnOnce(&mut EdgeConfig),
    ) -> Self {
        let listeners = Listeners::default();
        Self::start_on(listeners, agent, control, turns, store, engine_config, configure).await
    }

    /// With an agent whose turns the test controls, and with push notifications.
    pub(crate) async fn pushing(
        store: Arc<MemoryStore>,
        rules: PushRules,
        configure: impl FnOnce(&mut EdgeConfig),
    ) -> Self {
        Self::pushing_listening(Listeners::default(), store, rules, configure).await
    }

    /// The same, on a port and on further listeners.
    pub(crate) async fn pushing_listening(
        listeners: Listeners,
        store: Arc<MemoryStore>,
        rules: PushRules,
        configure: impl FnOnce(&mut EdgeConfig),
    ) -> Self {
        let (agent, turns) = ScriptedAgent::manual();
        let push =
            PushParts { configs: Arc::clone(&store) as _, receivers: Arc::new(OutsideReceivers), rules };
        let config = EngineConfig::default();
        let configure = |edge: &mut EdgeConfig| {
            edge.deployment.push = true;
            configure(edge);
        };
        let with_push = |engine: Engine| engine.with_push(push);
        Self::start_engine(listeners, agent, None, turns, store, config, configure, with_push).await
    }

    async fn start_on(
        listeners: Listeners,
        agent: Arc<ScriptedAgent>,
        control: Option<Arc<ScriptedControl>>,
        turns: mpsc::Receiver<StartedTurn>,
        store: Arc<dyn Store>,
        engine_config: EngineConfig,
        configure: impl FnOnce(&mut EdgeConfig),
    ) -> Self {
        let plain = |engine| engine;
        Self::start_engine(listeners, agent, control, turns, store, engine_config, configure, plain).await
    }

    #[expect(clippy::too_many_arguments, reason = "every gateway of a test has these parts")]
    async fn start_engine(
        listeners: Listeners,
        agent: Arc<ScriptedAgent>,
        control: Option<Arc<ScriptedControl>>,
        turns: mpsc::Receiver<StartedTurn>,
        store: Arc<dyn Store>,
        engine_config: EngineConfig,
        configure: impl FnOnce(&mut EdgeConfig),
        finish: impl FnOnce(Engine) -> Engine,
    ) -> Self {
        let tasks = Tasks::new();
        let mut config = EdgeConfig::new(deployment(), credentials());
        configure(&mut config);
        let engine = Engine::new(EngineParts {
            store,
            agent: agent.clone(),
            control: control.map(|control| -> Arc<dyn Control> { control }),
            clock: Arc::new(SystemClock),
            tasks: tasks.clone(),
            metrics: Arc::clone(&config.metrics),
            config: EngineConfig { names: longshore_edge::wire_names(), ..engine_config },
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let engine = finish(engine);
        let edge = Edge::new(engine.clone(), config.clone(), tasks.clone());
        let listeners = Listeners { tcp: Some(listener), ..listeners };
        let serving = tasks.spawn("edge", edge.serve(listeners, shutdown.clone()));
        Self { address, agent, turns, shutdown, tasks, engine, config, serving }
    }

    /// A client on the standard input and output of the same gateway, for the principal `ada`. No real gateway serves a port and
    /// these at once, so their limits are counted apart.
    pub(crate) fn stdio(&self) -> Stdio {
        let (client, server) = tokio::io::duplex(64 * 1024);
        let edge = Edge::new(self.engine.clone(), self.config.clone(), self.tasks.clone());
        let caller = Caller { principal: Principal::new("ada"), rights: Rights::of_owner() };
        let (input, output) = tokio::io::split(server);
        self.tasks.spawn("stdio", edge.serve_stdio(input, output, caller, self.shutdown.child_token()));
        Stdio::new(client)
    }

    pub(crate) fn call(&self, verb: &str, path: &str) -> Call {
        Call::new(self.address, verb, path).header("authorization", ADA)
    }

    /// A JSON-RPC call with these parameters.
    pub(crate) fn rpc(&self, method: &str, params: &serde_json::Value) -> Call {
        let body = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.call("POST", "/").json(&body)
    }

    /// Sends a message that the manual agent keeps working on. Returns the task's id and its turn.
    pub(crate) async fn working_task(&mut self, message_id: &str) -> (String, StartedTurn) {
        let body = serde_json::json!({
            "message": message(message_id, "go"),
            "configuration": {"returnImmediately": true},
        });
        let answer = self.call("POST", "/message:send").json(&body).send().await;
        let task = answer.json()["task"]["id"].as_str().unwrap().to_owned();
        (task, self.turns.recv().await.unwrap())
    }

    /// Stops the gateway and waits for its end.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(PATIENCE, self.serving).await.expect("the edge stops").unwrap().unwrap();
    }
}

pub(crate) fn message(id: &str, text: &str) -> serde_json::Value {
    serde_json::json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]})
}

fn credentials() -> Credentials {
    credentials_builder().build().unwrap()
}

/// The credentials of every gateway, to which a test may add more.
pub(crate) fn credentials_builder() -> CredentialsBuilder {
    Credentials::builder()
        .bearer("tok-ada".into(), "ada")
        .bearer("tok-bob".into(), "bob")
        .with(Credential::bearer("tok-ada-blind".into(), "ada").with_rights(exposed(false)))
        .with(Credential::bearer("tok-ada-curious".into(), "ada").with_rights(exposed(true)))
        .with(Credential::bearer("tok-ada-claiming".into(), "ada").with_rights(Rights {
            capabilities: [Capability::SessionClaim].into_iter().collect(),
            ..Rights::default()
        }))
        .with(
            Credential::bearer("tok-ada-able".into(), "ada")
                .with_rights(Rights { credential_id: Some("laptop".to_owned()), ..Rights::of_owner() }),
        )
        .with(Credential::bearer("tok-bob-able".into(), "bob").with_rights(Rights::of_owner()))
        .basic("carl", "pw".into())
        .api_key("key-dora".into(), "dora")
}

fn exposed(everything: bool) -> Rights {
    let exposure = Exposure { raw_thinking: everything, tool_trace: everything };
    Rights { exposure: Some(exposure), ..Rights::default() }
}

/// Refuses the receivers whose URL contains `inside`.
#[derive(Debug)]
struct OutsideReceivers;

impl Receivers for OutsideReceivers {
    fn check<'a>(&'a self, request: &'a PushRequest) -> BoxFuture<'a, Result<(), FieldViolation>> {
        let refused = || FieldViolation { field: "url".to_owned(), description: "is not called".to_owned() };
        let checked = if request.url.contains("inside") { Err(refused()) } else { Ok(()) };
        Box::pin(async { checked })
    }
}

fn deployment() -> Deployment {
    Deployment {
        title: "Test agent".to_owned(),
        description: "Says what the test wants.".to_owned(),
        version: "1.2.3".to_owned(),
        public_url: "http://agent.test".to_owned(),
        push: false,
        ..Deployment::of_opencode()
    }
}
