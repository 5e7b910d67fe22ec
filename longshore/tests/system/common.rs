//! A whole gateway inside the test: memory store, OpenCode driver, engine and edge, on its own port.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_agent_opencode::{
    DirectoryLimits, Endpoint, OpenCode, OpenCodeConfig, PromptRules, UPSTREAM_CALLS, Watchdog,
};
use longshore_edge::contract::Deployment;
use longshore_edge::{Credential, Credentials, Edge, EdgeConfig, Listeners, PayloadLog};
use longshore_engine::port::{Store, SystemClock};
use longshore_engine::{Engine, EngineConfig, EngineParts, Tasks};
use longshore_testkit::fake_opencode::FakeOpenCode;
use longshore_testkit::raw::RawClient;
use secrecy::SecretString;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

/// The tokens of two principals.
pub(crate) const TOKEN: &str = "replay-token-0123456789abcdef";
pub(crate) const OTHER_TOKEN: &str = "other-token-0123456789abcdef";

/// The settings of a test gateway.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: EngineConfig,
    /// How long one call to OpenCode may take.
    pub(crate) control_timeout: Duration,
    /// How long a call may take that makes a program or a model work.
    pub(crate) long_timeout: Option<Duration>,
    /// How long the event stream of OpenCode may be silent.
    pub(crate) stream_silence: Duration,
    pub(crate) password: Option<String>,
    /// How many calls to OpenCode may be in flight.
    pub(crate) upstream_calls: usize,
    /// In how many directories the gateway watches for external turns.
    pub(crate) watch_directories: usize,
    pub(crate) rules: PromptRules,
    pub(crate) deployment: Deployment,
    pub(crate) credentials: Credentials,
    /// How long a stream may be silent before it sends a keep-alive comment.
    pub(crate) keep_alive: Duration,
    /// Bodies are written to the log.
    pub(crate) payload_log: bool,
    /// Serves gRPC, too, and everything on this unix socket.
    pub(crate) every_binding_at: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        let credentials = Credentials::builder()
            .with(Credential::bearer(SecretString::from(TOKEN), "replay"))
            .with(Credential::bearer(SecretString::from(OTHER_TOKEN), "other"));
        Self {
            store: Arc::new(longshore_store::memory()),
            engine: EngineConfig::default(),
            control_timeout: Duration::from_secs(20),
            long_timeout: None,
            stream_silence: Duration::from_secs(30),
            password: None,
            upstream_calls: UPSTREAM_CALLS,
            watch_directories: 0,
            rules: PromptRules::default(),
            deployment: Deployment::of_opencode(),
            credentials: credentials.build().expect("two bearer tokens are a valid set"),
            keep_alive: Duration::from_secs(15),
            payload_log: false,
            every_binding_at: None,
        }
    }
}

/// A running gateway. [`TestGateway::stop`] ends it as a shutdown does; the runtime of the test ends what is left.
#[derive(Debug)]
pub(crate) struct TestGateway {
    pub(crate) url: String,
    pub(crate) client: RawClient,
    /// A client of the other principal.
    pub(crate) other_client: RawClient,
    pub(crate) tasks: Tasks,
    shutdown: CancellationToken,
}

impl TestGateway {
    pub(crate) async fn start(fake: &FakeOpenCode) -> Self {
        Self::start_with(fake, Options::default()).await
    }

    pub(crate) async fn start_with(fake: &FakeOpenCode, options: Options) -> Self {
        let (tasks, clock) = (Tasks::new(), Arc::new(SystemClock));
        let config = OpenCodeConfig {
            endpoint: Endpoint {
                base_url: fake.url().parse().expect("the fake has an address"),
                username: "opencode".to_owned(),
                password: options.password.map(SecretString::from),
            },
            directory: PathBuf::from(fake.directory()),
            control_timeout: options.control_timeout,
            long_timeout: options.long_timeout,
            stream_silence: options.stream_silence,
            rules: PromptRules { shell: options.deployment.session_shell, ..options.rules },
            allow_directory_override: options.deployment.directory_override,
            protected: Arc::default(),
            watchdog: Watchdog::default(),
            written_files: false,
            upstream_calls: options.upstream_calls,
            watch_directories: options.watch_directories,
            directories: DirectoryLimits::default(),
            metrics: Arc::default(),
        };
        let agent = OpenCode::new(config, clock.clone(), tasks.clone()).expect("the configuration is valid");
        let agent = Arc::new(agent);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let url = format!("http://{}", listener.local_addr().expect("a bound socket has an address"));
        let mut engine = options.engine;
        engine.names = longshore_edge::wire_names();
        engine.intake.root = PathBuf::from(fake.directory());
        engine.files.base_url = format!("{url}/artifacts/");
        let engine = Engine::new(EngineParts {
            store: options.store,
            agent: Arc::<OpenCode>::clone(&agent),
            control: Some(agent),
            clock,
            tasks: tasks.clone(),
            metrics: Arc::default(),
            config: engine,
        });
        engine.recover().await.expect("the store can be read");
        let deployment = Deployment { public_url: url.clone(), ..options.deployment };
        let mut config = EdgeConfig::new(deployment, options.credentials);
        config.max_body_bytes = 0;
        config.keep_alive = options.keep_alive;
        // Compressing the documents is most of the cost of a start, and most tests read none.
        config.gzip_minimum = usize::MAX;
        config.payload_log = PayloadLog { enabled: options.payload_log, body_limit: 0 };
        let mut listeners = Listeners { tcp: Some(listener), ..Listeners::default() };
        if let Some(path) = options.every_binding_at {
            config.grpc = Some(&longshore_grpc::Messages);
            listeners.unix = Some(UnixListener::bind(path).expect("the directory takes a socket"));
        }
        let edge = Edge::new(engine, config, tasks.clone());
        let shutdown = CancellationToken::new();
        tasks.spawn("edge", edge.serve(listeners, shutdown.clone()));
        let other_client = RawClient::new(url.clone(), OTHER_TOKEN);
        Self { client: RawClient::new(url.clone(), TOKEN), url, other_client, tasks, shutdown }
    }

    /// Stops as a shutdown does. Running turns are left to the next gateway on the same store.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        let stopped = tokio::time::timeout(Duration::from_secs(30), self.tasks.stop()).await;
        assert!(stopped.is_ok(), "{} tasks of {} do not stop", self.tasks.running(), self.url);
    }
}
