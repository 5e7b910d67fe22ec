//! A whole gateway inside the test: memory store, OpenCode driver, engine and edge, on a port of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_agent_opencode::{Endpoint, OpenCode, OpenCodeConfig, UPSTREAM_CALLS, Watchdog};
use longshore_edge::contract::Deployment;
use longshore_edge::{Credential, Credentials, Edge, EdgeConfig, Exposure, Extension};
use longshore_engine::port::{Store, SystemClock};
use longshore_engine::{Engine, EngineConfig, EngineParts, Tasks};
use longshore_model::PromptOptions;
use longshore_testkit::fake_opencode::FakeOpenCode;
use longshore_testkit::raw::RawClient;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The token of the caller, and that of somebody else.
pub(crate) const TOKEN: &str = "replay-token-0123456789abcdef";
pub(crate) const OTHER_TOKEN: &str = "other-token-0123456789abcdef";

/// What may differ from one gateway to the next.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: EngineConfig,
    /// How long one call to OpenCode may take.
    pub(crate) control_timeout: Duration,
    /// How long its event stream may be silent.
    pub(crate) stream_silence: Duration,
    pub(crate) password: Option<String>,
    pub(crate) watchdog: Watchdog,
    pub(crate) written_files: bool,
    /// In how many directories it is watched what somebody else prompts.
    pub(crate) watch_directories: usize,
    pub(crate) exposure: Exposure,
    pub(crate) required_extensions: Vec<Extension>,
    /// How long a stream may be silent before it says that it is there.
    pub(crate) keep_alive: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            store: Arc::new(longshore_store::memory()),
            engine: EngineConfig::default(),
            control_timeout: Duration::from_secs(20),
            stream_silence: Duration::from_secs(30),
            password: None,
            watchdog: Watchdog::default(),
            written_files: false,
            watch_directories: 0,
            exposure: Exposure::default(),
            required_extensions: Vec::new(),
            keep_alive: Duration::from_secs(15),
        }
    }
}

/// A running gateway. [`TestGateway::stop`] ends it as a shutdown does; the runtime of the test ends what is left.
#[derive(Debug)]
pub(crate) struct TestGateway {
    pub(crate) url: String,
    pub(crate) client: RawClient,
    /// Somebody else's.
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
            long_timeout: None,
            stream_silence: options.stream_silence,
            defaults: PromptOptions::default(),
            allow_directory_override: true,
            watchdog: options.watchdog,
            written_files: options.written_files,
            upstream_calls: UPSTREAM_CALLS,
            watch_directories: options.watch_directories,
            metrics: Arc::default(),
        };
        let agent = OpenCode::new(config, clock.clone(), tasks.clone()).expect("the configuration is valid");
        let agent = Arc::new(agent);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let url = format!("http://{}", listener.local_addr().expect("a bound socket has an address"));
        let mut engine = options.engine;
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
        let credentials = Credentials::builder()
            .with(Credential::bearer(SecretString::from(TOKEN), "replay"))
            .with(Credential::bearer(SecretString::from(OTHER_TOKEN), "other"));
        let credentials = credentials.build().expect("two bearer tokens are a valid set");
        let mut deployment = Deployment { public_url: url.clone(), ..Deployment::default() };
        deployment.exposure = options.exposure;
        deployment.required_extensions = options.required_extensions;
        let mut config = EdgeConfig::new(deployment, credentials);
        config.max_body_bytes = 0;
        config.keep_alive = options.keep_alive;
        let edge = Edge::new(engine, config, tasks.clone());
        let shutdown = CancellationToken::new();
        tasks.spawn("edge", edge.serve(listener, shutdown.clone()));
        let other_client = RawClient::new(url.clone(), OTHER_TOKEN);
        Self { client: RawClient::new(url.clone(), TOKEN), url, other_client, tasks, shutdown }
    }

    /// Stops as a shutdown does. Turns that run are left to the next gateway on the same store.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        let stopped = tokio::time::timeout(Duration::from_secs(20), self.tasks.stop()).await;
        assert!(stopped.is_ok(), "{} tasks of {} do not stop", self.tasks.running(), self.url);
    }
}
