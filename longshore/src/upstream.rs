//! The OpenCode behind the gateway: attached, managed, or managed with the demo model.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use longshore_agent_opencode::managed::{self, Managed, ManagedConfig, State};
use longshore_agent_opencode::{Endpoint, OpenCode, OpenCodeConfig, Watchdog};
use longshore_demo_model::DemoModel;
use longshore_demo_model::home::{demo_home, last_model_address};
use longshore_engine::Tasks;
use longshore_engine::port::{Agent, Clock, Control};
use longshore_meter::Metrics;
use longshore_model::{ModelName, PromptOptions};
use tokio::sync::watch;

use crate::cli::TESTED_OPENCODE;
use crate::config::Plan;
use crate::config::plan::{AgentPlan, PromptDefaults};
use crate::output;
use crate::signals::Ended;

/// An OpenCode that does not listen by then is ended, and the start fails. It takes 2 to 4 s on a quiet machine.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// An OpenCode that the engine can drive, and what must end with it.
#[derive(Debug)]
pub(crate) struct Upstream {
    agent: Arc<OpenCode>,
    description: String,
    ending: Ending,
    /// Answers until the end.
    _model: Option<DemoModel>,
}

/// What becomes of the OpenCode when the gateway ends.
#[derive(Debug)]
enum Ending {
    /// It is not ours.
    Leave,
    /// Only a person ends it: after anything else it waits for the next start.
    EndIfByPerson(PathBuf),
    End(PathBuf),
}

/// The OpenCode that was found, started or taken over.
struct Found {
    endpoint: Endpoint,
    description: String,
    model: Option<DemoModel>,
}

impl Upstream {
    /// Finds, starts or takes over the OpenCode of the plan. Dropping the future ends one that is about to start.
    pub(crate) async fn start(
        plan: &Plan,
        clock: &Arc<dyn Clock>,
        tasks: &Tasks,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<Self> {
        let found = match &plan.agent {
            AgentPlan::Attached { base_url, username, password } => Found {
                endpoint: Endpoint {
                    base_url: base_url.clone().into(),
                    username: username.clone(),
                    password: password.clone(),
                },
                description: format!("OpenCode at {base_url}"),
                model: None,
            },
            AgentPlan::Managed { program } => own(plan, program, tasks).await?,
            AgentPlan::Demo { program } => demo(plan, program, tasks).await?,
        };
        let config = OpenCodeConfig {
            endpoint: found.endpoint,
            directory: plan.workspace.clone(),
            control_timeout: plan.turns.control_timeout,
            long_timeout: plan.turns.timeout,
            stream_silence: plan.stream_silence,
            defaults: defaults(&plan.prompt),
            allow_directory_override: plan.allow_directory_override,
            watchdog: Watchdog {
                silence: plan.turns.silence,
                max_steps: plan.turns.max_steps,
                ..Watchdog::default()
            },
            written_files: plan.output.written_files,
            upstream_calls: plan.limits.upstream_calls.unwrap_or(0),
            watch_directories: plan.control.watch_directories,
            metrics: Arc::clone(metrics),
        };
        let agent = Arc::new(OpenCode::new(config, Arc::clone(clock), tasks.clone())?);
        Ok(Self { agent, description: found.description, ending: Ending::of(plan), _model: found.model })
    }

    pub(crate) fn agent(&self) -> Arc<dyn Agent> {
        Arc::<OpenCode>::clone(&self.agent)
    }

    /// What callers may look at and change beside turns.
    pub(crate) fn control(&self) -> Arc<dyn Control> {
        Arc::<OpenCode>::clone(&self.agent)
    }

    /// Which OpenCode answers, for people.
    pub(crate) fn description(&self) -> &str {
        &self.description
    }

    /// Ends the OpenCode, or leaves it for the next start, as is right for it and for who asked.
    pub(crate) async fn end(self, ended: Ended) {
        self.ending.carry_out(ended).await;
    }

    /// The same after a start that was given up, which may have been about to take over an OpenCode of an earlier one.
    pub(crate) async fn give_up(plan: &Plan, ended: Ended) {
        Ending::of(plan).carry_out(ended).await;
    }
}

impl Ending {
    fn of(plan: &Plan) -> Self {
        match plan.agent {
            AgentPlan::Attached { .. } => Self::Leave,
            AgentPlan::Managed { .. } => Self::EndIfByPerson(plan.data_dir.clone()),
            AgentPlan::Demo { .. } => Self::End(plan.data_dir.clone()),
        }
    }

    async fn carry_out(self, ended: Ended) {
        let data_dir = match self {
            Self::End(data_dir) => data_dir,
            Self::EndIfByPerson(data_dir) if ended == Ended::ByPerson => data_dir,
            Self::EndIfByPerson(_) => {
                tracing::info!("left OpenCode running for the next start; `longshore stop` ends it");
                return;
            }
            Self::Leave => return,
        };
        match managed::stop(&data_dir).await {
            Ok(processes) => tracing::info!(processes, "ended OpenCode"),
            Err(error) => tracing::error!(%error, cause = ?error.cause(), "OpenCode could not be ended"),
        }
    }
}

/// With the user's own configuration, models and credentials.
async fn own(plan: &Plan, program: &Path, tasks: &Tasks) -> anyhow::Result<Found> {
    manage(managed_config(plan, program), tasks, None).await
}

/// In a home of its own under the data directory, with the model that is built in.
async fn demo(plan: &Plan, program: &Path, tasks: &Tasks) -> anyhow::Result<Found> {
    let home = plan.data_dir.join("opencode-home");
    let model = demo_model(plan, &home, tasks).await?;
    let env = demo_home(&home, &model.base_url(), &search_path(program))
        .with_context(|| format!("cannot make a home for OpenCode in {}", home.display()))?;
    let config = ManagedConfig { env, env_clear: true, ..managed_config(plan, program) };
    manage(config, tasks, Some(model)).await
}

/// A demo OpenCode that outlived a crash calls the model where it was: there, if that is free, the model listens again.
async fn demo_model(plan: &Plan, home: &Path, tasks: &Tasks) -> anyhow::Result<DemoModel> {
    if let Some(address) = last_model_address(home) {
        if let Ok(model) = DemoModel::start(address, tasks).await {
            return Ok(model);
        }
        // Its model is gone for good, and so is the use of it.
        managed::stop(&plan.data_dir).await?;
    }
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    DemoModel::start(anywhere, tasks).await.context("the demo model cannot listen on loopback")
}

async fn manage(config: ManagedConfig, tasks: &Tasks, model: Option<DemoModel>) -> anyhow::Result<Found> {
    output::say("Starting OpenCode ...");
    let log = config.data_dir.join("opencode.log");
    let managed = Managed::start(config).await.with_context(|| {
        format!(
            "OpenCode could not be started. Install it (`npm install -g opencode-ai@{}`), name it with --opencode, or \
             attach to one that runs with --opencode-url. If it did start, {} says why it ended",
            TESTED_OPENCODE[0],
            log.display()
        )
    })?;
    let version = managed.version();
    if !TESTED_OPENCODE.contains(&version) {
        output::warn(format_args!(
            "OpenCode {version} was not tested with this version of Longshore, which was tested with {}",
            TESTED_OPENCODE.join(", ")
        ));
    }
    let description = format!(
        "OpenCode {version}{}{}",
        if model.is_some() { ", demo model" } else { "" },
        if managed.is_adopted() { ", taken over from the last run" } else { "" },
    );
    let endpoint = managed.endpoint();
    tasks.spawn("opencode-state", report(managed.supervise(tasks)));
    Ok(Found { endpoint, description, model })
}

/// Says in the log when OpenCode is down and when it is back, until nobody supervises it any more.
///
/// Both are warnings, so that a log that tells of the one tells of the other too.
async fn report(mut state: watch::Receiver<State>) {
    let mut down = false;
    while state.changed().await.is_ok() {
        match &*state.borrow_and_update() {
            State::Down { .. } if down => {}
            State::Down { .. } => {
                tracing::warn!("OpenCode is down; turns fail until it is back");
                down = true;
            }
            State::Running { pid, version } => {
                tracing::warn!(pid, version, "OpenCode is back");
                down = false;
            }
            State::Stopped => return,
        }
    }
}

fn managed_config(plan: &Plan, program: &Path) -> ManagedConfig {
    ManagedConfig {
        program: program.to_owned(),
        data_dir: plan.data_dir.clone(),
        workspace: plan.workspace.clone(),
        env: BTreeMap::new(),
        env_clear: false,
        start_timeout: START_TIMEOUT,
    }
}

/// The PATH of the gateway, after the directory of the program: its `rg` may lie beside it.
fn search_path(program: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = program.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parts = beside.map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    // A directory whose name holds a colon cannot stand in a PATH.
    std::env::join_paths(parts).unwrap_or(path)
}

fn defaults(plan: &PromptDefaults) -> PromptOptions {
    PromptOptions {
        agent: plan.agent.clone(),
        system: plan.system.clone(),
        variant: plan.variant.clone(),
        model: plan.model.as_deref().and_then(ModelName::parse),
    }
}
