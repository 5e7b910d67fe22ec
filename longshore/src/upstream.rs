//! Connects the gateway to its agent: an OpenCode that is attached, managed, or managed with the demo model; or an ACP agent.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use longshore_agent_acp::AcpAgent;
use longshore_agent_opencode::managed::{self, Managed, ManagedConfig};
use longshore_agent_opencode::{DirectoryLimits, Endpoint, OpenCode, OpenCodeConfig, PromptRules, Watchdog};
use longshore_demo_model::DemoModel;
use longshore_demo_model::home::{demo_home, last_model_address};
use longshore_engine::Tasks;
use longshore_engine::port::{Agent, Clock, Control};
use longshore_meter::Metrics;
use longshore_model::{ModelName, PromptOptions};
use tokio::time::timeout;

use crate::acp_upstream;
use crate::calling::Calling;
use crate::cli::TESTED_OPENCODE;
use crate::config::Plan;
use crate::config::plan::AgentPlan;
use crate::output;
use crate::signals::Ended;

/// How long OpenCode may take until it listens. After that, it is terminated and the start fails. OpenCode takes 2 to 4 s on an
/// idle machine.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// How long OpenCode may take to respond before it is reported as not ready.
const FIRST_RESPONSE: Duration = Duration::from_secs(1);

/// How often an OpenCode that is not ready is checked. A notification of its return ends the wait earlier.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The prompt that makes the demo's OpenCode load everything that it needs. The demo model costs nothing.
const WARM_UP_PROMPT: &str = "Say hello.";

/// The agent that the engine drives, and everything that must end with it.
#[derive(Debug)]
pub(crate) struct Upstream {
    agent: UpstreamAgent,
    description: String,
    /// A prompt for a turn that runs before the first turn of a caller. `None`: no such turn is needed.
    warm_up: Option<&'static str>,
    at_end: AtEnd,
    /// The demo model, which serves until it is dropped.
    _model: Option<DemoModel>,
}

#[derive(Debug)]
enum UpstreamAgent {
    OpenCode(Arc<OpenCode>),
    Acp(Arc<AcpAgent>),
}

/// What happens to OpenCode when the gateway ends. An ACP agent always ends with the gateway.
#[derive(Debug)]
enum AtEnd {
    /// Leave OpenCode running, because Longshore did not start it.
    Leave,
    /// Terminate OpenCode only if a person ended the gateway. Otherwise leave it for the next start.
    TerminateIfByPerson(PathBuf),
    Terminate(PathBuf),
}

/// An OpenCode that was attached, started or adopted.
struct Connected {
    endpoint: Endpoint,
    description: String,
    is_adopted: bool,
    model: Option<DemoModel>,
}

impl Upstream {
    /// Attaches to, starts or adopts the agent of the plan. Dropping the future terminates an agent that is still starting.
    pub(crate) async fn start(
        plan: &Plan,
        clock: &Arc<dyn Clock>,
        tasks: &Tasks,
        metrics: &Arc<Metrics>,
        calling: Option<&Calling>,
    ) -> anyhow::Result<Self> {
        let connected = match &plan.agent {
            AgentPlan::Attached { base_url, username, password } => Connected {
                endpoint: Endpoint {
                    base_url: base_url.clone().into(),
                    username: username.clone(),
                    password: password.clone(),
                },
                description: format!("OpenCode at {}", base_url.as_str().trim_end_matches('/')),
                is_adopted: false,
                model: None,
            },
            AgentPlan::Managed { program } => {
                manage(managed_config(plan, program), tasks, None, calling).await?
            }
            AgentPlan::Demo { program } => manage_demo(plan, program, tasks, calling).await?,
            AgentPlan::Acp(agent) => {
                let (agent, description) = acp_upstream::start(plan, agent, metrics, tasks, calling).await?;
                let agent = UpstreamAgent::Acp(agent);
                return Ok(Self { agent, description, warm_up: None, at_end: AtEnd::Leave, _model: None });
            }
        };
        let config = opencode_config(plan, connected.endpoint, metrics);
        let agent = OpenCode::new(config, Arc::clone(clock), tasks.clone())?;
        let agent = UpstreamAgent::OpenCode(Arc::new(agent.with_roots(plan.allowed_roots.clone())));
        let (description, model) = (connected.description, connected.model);
        // An adopted OpenCode needs no warm-up, because it has already loaded everything.
        let warm_up = (model.is_some() && !connected.is_adopted).then_some(WARM_UP_PROMPT);
        Ok(Self { agent, description, warm_up, at_end: AtEnd::new(plan), _model: model })
    }

    /// Waits until OpenCode responds and has loaded the workspace. If that takes a while, calls `waiting` with the reason. An ACP
    /// agent is ready as soon as it has started.
    pub(crate) async fn until_ready(&self, waiting: impl FnOnce(&str)) {
        let UpstreamAgent::OpenCode(agent) = &self.agent else { return };
        let mut waiting = Some(waiting);
        let mut report = |reason: &str| {
            if let Some(waiting) = waiting.take() {
                waiting(reason);
            }
        };
        let version = loop {
            let back = agent.until_back();
            let mut checking = pin!(agent.version());
            let checked = if let Ok(checked) = timeout(FIRST_RESPONSE, checking.as_mut()).await {
                checked
            } else {
                report(
                    "No response has come from OpenCode within a second. It may still be starting. If this lasts, check that \
                     the program at this URL is OpenCode; if it is, look at its output, or restart it.",
                );
                checking.await
            };
            match checked {
                Ok(version) => break version,
                Err(error) => {
                    report(&format!("{error} Check that OpenCode runs and that its URL is right."));
                }
            }
            // The wait ends early when OpenCode is back.
            let _ = timeout(CHECK_EVERY, back).await;
        };
        warn_if_untested(&version);
        agent.warm_up(self.warm_up).await;
    }

    pub(crate) fn agent(&self) -> Arc<dyn Agent> {
        match &self.agent {
            UpstreamAgent::OpenCode(agent) => Arc::<OpenCode>::clone(agent),
            UpstreamAgent::Acp(agent) => Arc::<AcpAgent>::clone(agent),
        }
    }

    /// The interface for queries and commands besides turns.
    pub(crate) fn control(&self) -> Arc<dyn Control> {
        match &self.agent {
            UpstreamAgent::OpenCode(agent) => Arc::<OpenCode>::clone(agent),
            UpstreamAgent::Acp(agent) => Arc::<AcpAgent>::clone(agent),
        }
    }

    /// The methods that agents of this kind may offer but that this agent did not offer at its start.
    pub(crate) fn lacking(&self) -> Vec<&'static str> {
        match &self.agent {
            UpstreamAgent::OpenCode(_) => Vec::new(),
            UpstreamAgent::Acp(agent) => {
                agent.facts().map(|facts| acp_upstream::lacking(facts.capabilities)).unwrap_or_default()
            }
        }
    }

    /// The description of the agent for people.
    pub(crate) fn description(&self) -> &str {
        &self.description
    }

    /// Terminates OpenCode or leaves it for the next start, depending on the plan and on who ended the gateway.
    pub(crate) async fn end(self, ended: Ended) {
        if let UpstreamAgent::Acp(agent) = &self.agent {
            agent.stop().await;
        }
        self.at_end.carry_out(ended).await;
    }

    /// Like `end`, but after an abandoned start, which may have been about to adopt an OpenCode of an earlier run.
    pub(crate) async fn abandon_start(plan: &Plan, ended: Ended) {
        AtEnd::new(plan).carry_out(ended).await;
    }
}

/// The configuration for an OpenCode at this address.
pub(crate) fn opencode_config(plan: &Plan, endpoint: Endpoint, metrics: &Arc<Metrics>) -> OpenCodeConfig {
    OpenCodeConfig {
        endpoint,
        directory: plan.workspace.clone(),
        control_timeout: plan.turns.control_timeout,
        long_timeout: plan.turns.timeout,
        stream_silence: plan.stream_silence,
        rules: rules(plan),
        allow_directory_override: plan.allow_directory_override,
        protected: Arc::new(plan.protected_paths()),
        watchdog: Watchdog {
            silence: plan.turns.silence,
            max_steps: plan.turns.max_steps,
            ..Watchdog::default()
        },
        written_files: plan.output.written_files,
        upstream_calls: plan.limits.upstream_calls.unwrap_or(0),
        watch_directories: plan.control.watch_directories,
        directories: DirectoryLimits {
            total: plan.limits.directories.unwrap_or(0),
            per_principal: plan.limits.directories_per_principal.unwrap_or(0),
            idle: plan.limits.directory_idle,
        },
        metrics: Arc::clone(metrics),
    }
}

impl AtEnd {
    fn new(plan: &Plan) -> Self {
        match plan.agent {
            AgentPlan::Attached { .. } | AgentPlan::Acp(_) => Self::Leave,
            AgentPlan::Managed { .. } => Self::TerminateIfByPerson(plan.data_dir.clone()),
            AgentPlan::Demo { .. } => Self::Terminate(plan.data_dir.clone()),
        }
    }

    async fn carry_out(self, ended: Ended) {
        let data_dir = match self {
            Self::Terminate(data_dir) => data_dir,
            Self::TerminateIfByPerson(data_dir) if ended == Ended::ByPerson => data_dir,
            Self::TerminateIfByPerson(_) => {
                tracing::info!("left OpenCode running for the next start; `longshore stop` ends it");
                return;
            }
            Self::Leave => return,
        };
        match managed::stop(&data_dir).await {
            Ok(processes) => tracing::info!(processes, "ended OpenCode"),
            Err(error) => tracing::error!(%error, cause = ?error.cause(), "could not end OpenCode"),
        }
    }
}

/// Starts OpenCode in its own home below the data directory, with the built-in model.
async fn manage_demo(
    plan: &Plan,
    program: &Path,
    tasks: &Tasks,
    calling: Option<&Calling>,
) -> anyhow::Result<Connected> {
    let home = plan.demo_home();
    let model = demo_model(plan, &home, tasks).await?;
    let env = demo_home(&home, &model.base_url(), &search_path(program))
        .with_context(|| format!("cannot create a home for OpenCode in {}", home.display()))?;
    let config = ManagedConfig { env, env_clear: true, ..managed_config(plan, program) };
    manage(config, tasks, Some(model), calling).await
}

/// Starts the demo model. A demo OpenCode that outlived a crash calls the model at its old address, so the model listens there
/// again if possible.
async fn demo_model(plan: &Plan, home: &Path, tasks: &Tasks) -> anyhow::Result<DemoModel> {
    if let Some(address) = last_model_address(home) {
        if let Ok(model) = DemoModel::start(address, tasks).await {
            return Ok(model);
        }
        // The old address is in use. An OpenCode without its model is useless, so stop it.
        managed::stop(&plan.data_dir).await?;
    }
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    DemoModel::start(anywhere, tasks).await.context("the demo model cannot listen on loopback")
}

async fn manage(
    mut config: ManagedConfig,
    tasks: &Tasks,
    model: Option<DemoModel>,
    calling: Option<&Calling>,
) -> anyhow::Result<Connected> {
    let inherits = !config.env_clear;
    config.configured =
        calling.map(|calling| calling.configure_opencode(&mut config.env, inherits)).transpose()?;
    output::print("Starting OpenCode ...");
    let log = config.data_dir.join("opencode.log");
    let managed = Managed::start(config).await.map_err(|error| start_failure(&error, &log))?;
    if managed.is_outdated() {
        output::warn(
            "the OpenCode of the last run is still used, and it was started with other settings for calls to peers; for the new \
             settings, end the gateway with Ctrl-C, which ends OpenCode too, and start it again",
        );
    }
    let version = managed.version();
    let description = format!(
        "OpenCode {version}{}{}",
        if model.is_some() { ", demo model" } else { "" },
        if managed.is_adopted() { ", adopted from the last run" } else { "" },
    );
    let (endpoint, is_adopted) = (managed.endpoint(), managed.is_adopted());
    managed.supervise(tasks);
    Ok(Connected { endpoint, description, is_adopted, model })
}

fn warn_if_untested(version: &str) {
    if let Some(warning) = untested(version) {
        output::warn(warning);
    }
}

/// A warning about an OpenCode version that this version of Longshore was not tested with. `None`: it was tested.
pub(crate) fn untested(version: &str) -> Option<String> {
    (!TESTED_OPENCODE.contains(&version)).then(|| {
        format!(
            "OpenCode {version} may work, but this version of Longshore was tested with OpenCode {} only; to install that one, \
             run `{}`",
            TESTED_OPENCODE.join(", "),
            install_command()
        )
    })
}

/// The command that installs a tested OpenCode.
pub(crate) fn install_command() -> String {
    format!("npm install -g opencode-ai@{}", TESTED_OPENCODE[0])
}

/// An error for an OpenCode that does not start. It says what a person can do about it.
fn start_failure(error: &longshore_model::Error, log: &Path) -> anyhow::Error {
    if error.details().iter().any(|(name, _)| name == managed::MISSING_PROGRAM) {
        return anyhow::anyhow!(
            "{error} Install it with `{}`, give its path with --opencode, or attach to a running \
             OpenCode with --opencode-url",
            install_command()
        );
    }
    let what = error.message().trim_end_matches(" Its output is in opencode.log in the data directory.");
    match error.cause() {
        Some(cause) => anyhow::anyhow!(
            "{what}\n{cause}\nThe whole output is in {}\nTo find the cause, run `opencode serve` in the workspace. If it fails \
             there too, repair OpenCode's configuration, or install the tested version with `{}`",
            log.display(),
            install_command()
        ),
        None => anyhow::anyhow!("{what}"),
    }
}

fn managed_config(plan: &Plan, program: &Path) -> ManagedConfig {
    ManagedConfig {
        program: program.to_owned(),
        data_dir: plan.data_dir.clone(),
        workspace: plan.workspace.clone(),
        env: BTreeMap::new(),
        env_clear: false,
        configured: None,
        start_timeout: START_TIMEOUT,
    }
}

/// The PATH for the demo's OpenCode: first the directory of the program, which may also contain `rg`, and then the gateway's PATH.
fn search_path(program: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = program.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parts = beside.map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    // This fails if the name of the directory contains a colon, because PATH cannot contain such a directory.
    std::env::join_paths(parts).unwrap_or(path)
}

fn rules(plan: &Plan) -> PromptRules {
    let shell = plan.control.session_shell && !plan.environment.is_read_only();
    let plan = &plan.prompt;
    let defaults = PromptOptions {
        mode: None,
        config: BTreeMap::new(),
        agent: plan.agent.clone(),
        system: plan.system.clone(),
        variant: plan.variant.clone(),
        model: plan.model.as_deref().and_then(ModelName::parse),
        ..PromptOptions::default()
    };
    PromptRules {
        defaults,
        pinned: plan.pinned.clone(),
        allowed_models: plan.allowed_models.clone(),
        allowed_agents: plan.allowed_agents.clone(),
        shell,
    }
}
