//! Builds the gateway from the plan. Only this module chooses implementations.

use std::sync::Arc;

use anyhow::Context as _;
use longshore_edge::contract::{ListedInterface, listed_interfaces};
use longshore_edge::{self as edge, Credentials, Edge, EdgeConfig, PayloadLog, Rights};
use longshore_engine::port::{Agent, Clock, NoSpans, Spans, SystemClock};
use longshore_engine::{
    AlwaysScope, AskConfig, ControlRules, DeadlinePolicy, Engine, EngineConfig, EngineParts, FileRules,
    IntakeRules, RetentionRules, Tasks,
};
use longshore_meter::Metrics;
use longshore_otlp::{Otlp, OtlpConfig};
use longshore_peers::{CallingAgent, PeerCalls};
use longshore_store::{DiskRules, Durability, SqliteOptions};
use secrecy::SecretString;

use crate::calling::Calling;
use crate::config::credentials::{Credential, LocalUser, Login};
use crate::config::listen::GrpcPlan;
use crate::config::plan::{AgentPlan, Asks, Plan, StorePlan};
use crate::config::traces::Traces;
use crate::data_dir::{self, DataDir};
use crate::listeners::OpenListeners;
use crate::push::{self, Stores};
use crate::signals::Signals;
use crate::upstream::Upstream;
use crate::{deployment, disk, limited, limits, output, peers};

/// The most bytes of file content inside a task on standard output. The reader there can fetch no URL, so the task contains its
/// files. The content is in memory as long as the task is.
const INLINE_FILES: u64 = 8 * 1024 * 1024;

/// The place where a gateway is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Front {
    /// On the listeners of the plan.
    Listeners,
    /// On standard input and output.
    Stdio,
}

/// A gateway that is ready to serve.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) edge: Edge,
    pub(crate) open: OpenListeners,
    /// The interfaces in the card, the preferred one first.
    pub(crate) interfaces: Vec<ListedInterface>,
    /// The token that Longshore generated, if no credential was configured.
    pub(crate) token: Option<SecretString>,
}

/// The parts of a gateway that are built before the agent starts. Building them is quick, so mistakes in the configuration show at
/// once.
#[derive(Debug)]
pub(crate) struct PreparedGateway {
    open: OpenListeners,
    front: Front,
    credentials: Credentials,
    token: Option<SecretString>,
    stores: Stores,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    edge_limits: edge::Limits,
    spans: Arc<dyn Spans>,
    peers: Option<PeerCalls>,
    /// The calls to peers. `None`: the agent calls no peers.
    calling: Option<Calling>,
    pub(crate) tasks: Tasks,
    /// The background tasks that export what the other tasks report. They end last.
    pub(crate) reporting: Tasks,
}

/// Opens the listeners, and the store of the data directory. The data directory must stay locked until everything that is built
/// from the result has ended.
pub(crate) async fn prepare(
    plan: &Plan,
    data_dir: &DataDir,
    signals: &mut Signals,
    front: Front,
) -> anyhow::Result<PreparedGateway> {
    let mut open = match front {
        Front::Listeners => OpenListeners::open(plan).await?,
        Front::Stdio => OpenListeners::none(),
    };
    open.noted = open.local().and_then(|local| data_dir.note_address(&local));
    let (connections, lowered) = limits::connections(plan.limits.connections, limits::open_files());
    let edge_limits = limited::edge_limits(plan, open.address(), connections);
    let urls = &open.addresses;
    let warnings = open.bound.map(|bound| edge_limits.warnings(&urls.public, urls.grpc.as_deref(), bound));
    let warnings = warnings.unwrap_or_default().into_iter();
    for warning in warnings.chain(limited::warning(plan, open.address())).chain(lowered) {
        output::warn(warning);
    }
    let token = match plan.credentials {
        Some(_) => None,
        None => Some(data_dir::token(data_dir.path())?),
    };
    let credentials = credentials(plan, token.as_ref())?;
    let (clock, tasks): (Arc<dyn Clock>, _) = (Arc::new(SystemClock), Tasks::new());
    let calling = Calling::prepare(plan, data_dir)?;
    if let Some(files) = open.tls_files.take() {
        tasks.spawn("TLS files", files.follow(signals.reload_on_hangup(), tasks.stopping().clone()));
    }
    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
    let stores = stores(plan, data_dir, &metrics)?;
    let reporting = Tasks::new();
    let peers = peers::prepare(plan, data_dir, &stores, &clock, &tasks, &metrics)?;
    let spans = spans(plan, &metrics, &reporting)?;
    Ok(PreparedGateway {
        open,
        front,
        credentials,
        token,
        stores,
        clock,
        metrics,
        edge_limits,
        spans,
        peers,
        calling,
        tasks,
        reporting,
    })
}

impl PreparedGateway {
    /// Starts the agent, or attaches to it. This may take seconds.
    pub(crate) async fn start_agent(&self, plan: &Plan) -> anyhow::Result<Upstream> {
        Upstream::start(plan, &self.clock, &self.tasks, &self.metrics, self.calling.as_ref()).await
    }

    /// Adds the engine and the edge, and resumes the tasks that the last run left unfinished.
    pub(crate) async fn finish(self, plan: &Plan, upstream: &Upstream) -> anyhow::Result<Gateway> {
        let push = push::prepare(plan, &self.stores, &self.clock, &self.metrics);
        let agent: Arc<dyn Agent> = match &self.peers {
            Some(peers) => Arc::new(CallingAgent::new(upstream.agent(), peers.clone())),
            None => upstream.agent(),
        };
        let engine = Engine::new(EngineParts {
            store: self.stores.store,
            agent,
            control: Some(upstream.control()),
            clock: self.clock,
            tasks: self.tasks.clone(),
            metrics: Arc::clone(&self.metrics),
            config: EngineConfig {
                turn_timeout: plan.turns.timeout,
                wait_for_others: plan.turns.wait_for_others,
                cancel_abort_timeout: plan.turns.cancel_abort_timeout,
                idempotency_window: plan.turns.idempotency_window,
                resume_restored: plan.resume_restored,
                turns: plan.limits.turns.unwrap_or(0),
                turns_per_principal: plan.limits.turns_per_principal.unwrap_or(0),
                unfinished: plan.limits.unfinished.unwrap_or(0),
                unfinished_per_context: plan.limits.unfinished_per_context.unwrap_or(0),
                unfinished_per_principal: plan.limits.unfinished_per_principal.unwrap_or(0),
                unfinished_bytes: bytes(plan.limits.unfinished_bytes),
                unfinished_bytes_per_principal: bytes(plan.limits.unfinished_bytes_per_principal),
                stored_bytes: bytes(plan.limits.stored_bytes),
                stored_bytes_per_principal: bytes(plan.limits.stored_bytes_per_principal),
                task_bytes: plan.limits.task_bytes,
                asks: ask_config(&plan.turns.asks, plan.control.always_scope),
                intake: intake_rules(plan),
                files: file_rules(plan, &self.open.addresses.public, self.front),
                retention: RetentionRules {
                    fold_after: plan.retention.fold_after,
                    keep_tasks: plan.retention.keep_tasks,
                },
                control: ControlRules {
                    session_guard: plan.control.session_guard,
                    claim_ttl: plan.control.claim_ttl,
                },
                names: edge::wire_names(),
                ..EngineConfig::default()
            },
        })
        .with_spans(self.spans);
        let (engine, delivery) = match push {
            Some((parts, delivery)) => (engine.with_push(parts), Some(delivery)),
            None => (engine, None),
        };
        let recovered = engine.recover().await.context("cannot resume the tasks of the last run")?;
        if recovered.unfinished > 0 {
            tracing::info!(tasks = recovered.unfinished, "resumed unfinished tasks");
        }
        if recovered.held > 0 {
            let (tasks, them) = if recovered.held == 1 { ("task is", "it") } else { ("tasks are", "them") };
            output::print(format_args!(
                "This store was restored from a backup. {} waiting {tasks} held, because the original gateway may have sent \
                 {them} to the agent since the backup. --resume-restored sends {them}; the agent may then get the same task \
                 twice.",
                recovered.held
            ));
        }
        if let Some(peers) = &self.peers {
            let calls =
                peers.recover().await.context("cannot go on with the agent's calls of the last run")?;
            if calls > 0 {
                tracing::info!(calls, "the agent's calls of the last run go on");
            }
            if let Some(calling) = self.calling {
                calling.serve(Arc::new(peers.clone()), Arc::clone(&self.metrics), &self.tasks);
            }
        }
        engine.begin_store_check();
        engine.start_retention();
        if let Some(delivery) = delivery {
            delivery.start(&self.tasks);
        }
        let mut deployment = {
            let addresses = &self.open.addresses;
            deployment::deployment(plan, &addresses.public, addresses.grpc.as_deref())
        };
        deployment.lacking = upstream.lacking();
        deployment.stdio = self.front == Front::Stdio;
        let interfaces = listed_interfaces(&deployment);
        let mut config = EdgeConfig::new(deployment, self.credentials);
        config.max_body_bytes = plan.listen.max_body_bytes;
        config.gzip_minimum = plan.listen.gzip_minimum;
        config.shutdown_grace = plan.listen.shutdown_grace;
        config.body_timeout = plan.listen.body_timeout;
        config.write_timeout = plan.listen.write_timeout;
        config.websocket_idle = plan.listen.websocket_idle;
        config.limits = self.edge_limits;
        config.payload_log = PayloadLog { enabled: plan.log.payloads, body_limit: plan.log.body_limit };
        if let Some(grpc) = &plan.listen.grpc {
            config.grpc = Some(&longshore_grpc::Messages);
            config.grpc_services = Some(Arc::new(grpc_services(grpc).await?));
        }
        config.mcp = plan.listen.mcp.clone().map(|path| (path, Arc::new(longshore_mcp::Http) as _));
        config.metrics = self.metrics;
        let edge = Edge::new(engine, config, self.tasks);
        Ok(Gateway { edge, open: self.open, interfaces, token: self.token })
    }
}

/// The services that the plan switches on.
async fn grpc_services(plan: &GrpcPlan) -> anyhow::Result<longshore_grpc::Services> {
    let mut services = longshore_grpc::Services::default();
    if plan.reflection {
        services.add_reflection().context("cannot serve the reflection of gRPC")?;
    }
    if plan.health {
        services.add_health().await;
    }
    Ok(services)
}

/// The exporter of traces. It sends nothing yet, so an unreachable collector does not prevent the start.
fn spans(plan: &Plan, metrics: &Arc<Metrics>, tasks: &Tasks) -> anyhow::Result<Arc<dyn Spans>> {
    let Some(Traces { endpoint, headers, service_name, sample_ratio }) = plan.traces.clone() else {
        return Ok(Arc::new(NoSpans));
    };
    let config = OtlpConfig {
        endpoint,
        headers,
        service_name,
        service_version: env!("CARGO_PKG_VERSION").to_owned(),
        sample_ratio,
        agent: match &plan.agent {
            AgentPlan::Acp(agent) => agent.name.clone(),
            _ => plan.prompt.agent.clone().unwrap_or_else(|| "opencode".to_owned()),
        },
        model: plan.prompt.model.clone(),
    };
    Ok(Otlp::start(config, metrics, tasks).context("cannot start the export of traces")?)
}

fn ask_config(plan: &Asks, always: AlwaysScope) -> AskConfig {
    AskConfig {
        time_to_live: plan.time_to_live,
        tombstone: plan.tombstone,
        at_deadline: if plan.grants_at_deadline { DeadlinePolicy::Once } else { DeadlinePolicy::Reject },
        always,
    }
}

/// Converts a limit to the edge's form, in which 0 means no limit.
fn bytes(limit: Option<usize>) -> u64 {
    limit.unwrap_or(0) as u64
}

fn intake_rules(plan: &Plan) -> IntakeRules {
    let input = plan.input.clone();
    IntakeRules {
        root: plan.workspace.clone(),
        protected: Arc::new(plan.protected_paths()),
        data_parts: input.data_parts,
        text_types: input.text_types,
        media_types: input.media_types,
        max_text_bytes: input.max_text_bytes,
        max_inline_bytes: input.max_inline_bytes,
        max_file_bytes: input.max_file_bytes,
        max_metadata_bytes: input.max_metadata_bytes,
        max_extensions: input.max_extensions.unwrap_or(0),
        max_references: input.max_references.unwrap_or(0),
        remote_hosts: input.remote_hosts,
    }
}

fn file_rules(plan: &Plan, public_url: &str, front: Front) -> FileRules {
    FileRules {
        inline_per_task: (front == Front::Stdio).then_some(INLINE_FILES),
        base_url: format!("{}/artifacts/", public_url.trim_end_matches('/')),
        max_bytes: plan.output.max_file_bytes,
        ..FileRules::default()
    }
}

fn credentials(plan: &Plan, made: Option<&SecretString>) -> anyhow::Result<Credentials> {
    let made = made.map(|token| Credential::of_owner(token.clone()));
    let mut builder = Credentials::builder();
    for Credential { login, rights } in made.into_iter().chain(plan.credentials.clone().unwrap_or_default()) {
        let credential = match login {
            Login::Bearer { token, principal } => edge::Credential::bearer(token, principal),
            Login::Basic { username, password } => edge::Credential::basic(username, password),
            Login::ApiKey { key, principal } => edge::Credential::api_key(key, principal),
            Login::Certificate { certificate, principal } => {
                edge::Credential::certificate(&certificate, principal)
            }
        };
        builder = builder.with(credential.with_rights(rights));
    }
    for LocalUser { uid, principal, rights } in &plan.local_users {
        builder = builder.local_user(*uid, principal, rights.clone());
    }
    if let Some(principal) = plan.listen.unix.as_ref().and_then(|unix| unix.principal.as_deref()) {
        builder = builder.local_user(rustix::process::geteuid().as_raw(), principal, Rights::of_owner());
    }
    builder.build().context("the credentials cannot be used")
}

fn stores(plan: &Plan, data_dir: &DataDir, metrics: &Arc<Metrics>) -> anyhow::Result<Stores> {
    match &plan.store {
        StorePlan::Memory => {
            tracing::info!(backend = "memory", durability = "none", "tasks are lost when the gateway ends");
            Ok(Stores::of(longshore_store::memory()))
        }
        StorePlan::Sqlite { path, survives_power_loss } => {
            let durability = if *survives_power_loss { Durability::Power } else { Durability::Process };
            let floor = plan.min_free_disk as u64;
            let disk = DiskRules { free_space: Some(disk::free_space), floor };
            let sealer = Some(Arc::new(push::sealer(plan, data_dir.path())));
            let options = SqliteOptions { durability, metrics: Arc::clone(metrics), disk, sealer };
            data_dir.check_store(path)?;
            if let Some(free) = path.parent().and_then(disk::free_space).filter(|free| *free < floor) {
                output::warn(format_args!(
                    "the disk of the store {} has {free} bytes free, and data.min_free_disk is {floor}: new messages are refused \
                     until there is more",
                    path.display()
                ));
            }
            let store = longshore_store::sqlite(path, options)
                .with_context(|| format!("cannot open the store {}", path.display()))?;
            data_dir.note_store(path);
            let (durability, words) = if *survives_power_loss {
                ("power", "tasks are kept: they survive a crash and a power failure")
            } else {
                ("process", "tasks are kept: they survive a crash, not a power failure")
            };
            tracing::info!(backend = "sqlite", url = %format_args!("sqlite:///{}", path.display()), durability, "{words}");
            Ok(Stores::of(store))
        }
    }
}
