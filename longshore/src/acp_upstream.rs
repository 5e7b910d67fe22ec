//! Starts the ACP agent of the plan, and formats texts about it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use longshore_agent_acp::connection::Limits;
use longshore_agent_acp::process::ProcessConfig;
use longshore_agent_acp::{AcpAgent, AcpConfig, AgentFacts, Capabilities};
use longshore_edge::sessions;
use longshore_engine::Tasks;
use longshore_meter::Metrics;
use rand::distr::{Alphanumeric, SampleString as _};

use crate::calling::Calling;
use crate::config::Plan;
use crate::config::agents::AcpPlan;
use crate::output;

/// The subdirectory of the data directory with the records of the agent's processes. Each record names a running process.
pub(crate) const RECORDS: &str = "agents";

/// The variable with the password of OpenCode's HTTP server, which OpenCode opens even for ACP.
const OPENCODE_PASSWORD: &str = "OPENCODE_SERVER_PASSWORD";

/// The length of a generated password. It holds more than 190 random bits.
const PASSWORD_LENGTH: usize = 32;

/// Starts the agent at once, so that a mistake in its command shows now and not with the first message.
pub(crate) async fn start(
    plan: &Plan,
    agent: &AcpPlan,
    metrics: &Arc<Metrics>,
    tasks: &Tasks,
    calling: Option<&Calling>,
) -> anyhow::Result<(Arc<AcpAgent>, String)> {
    output::print(format_args!("Starting {} ...", agent.title()));
    let mut config = config(plan, agent);
    config.process.records = Some(plan.data_dir.join(RECORDS));
    config.metrics = Arc::clone(metrics);
    if let Some(calling) = calling {
        calling.configure_acp(agent, &mut config.process.environment)?;
        config.session_servers = calling.session_servers(agent);
    }
    let running = AcpAgent::new(config, tasks);
    let facts = running.start().await.map_err(|error| start_failure(agent, &error))?;
    Ok((running, description(&facts)))
}

pub(crate) fn config(plan: &Plan, agent: &AcpPlan) -> AcpConfig {
    let process = ProcessConfig {
        arguments: agent.arguments.iter().map(Into::into).collect(),
        environment: environment(agent),
        memory_bytes: agent.limits.memory_bytes,
        ..ProcessConfig::new(&agent.program, &plan.workspace)
    };
    AcpConfig {
        allow_directory_override: plan.allow_directory_override,
        protected: Arc::new(plan.protected_paths()),
        limits: Limits {
            open_sessions: agent.limits.open_sessions,
            start: agent.limits.start_timeout,
            call: plan.turns.control_timeout,
            ..Limits::default()
        },
        client_files: agent.client_files,
        client_terminals: agent.client_terminals,
        mcp_servers: agent.mcp_servers.clone(),
        auth_method: agent.auth_method.clone(),
        mode: agent.mode.clone(),
        pinned: agent.pinned.clone(),
        pins_config: agent.pins_config,
        shell: plan.control.session_shell && !plan.environment.is_read_only(),
        model: agent.model.clone(),
        idle_stop: agent.limits.idle_stop,
        silence: plan.turns.silence,
        cancel_patience: agent.limits.cancel_timeout,
        ..AcpConfig::new(&agent.name, process, &plan.workspace)
    }
}

/// The environment of the agent. OpenCode gets a password: without one, every program on this machine could bypass the gateway and
/// prompt OpenCode.
fn environment(agent: &AcpPlan) -> BTreeMap<OsString, OsString> {
    let mut environment = agent.environment.clone();
    if agent.is_opencode() {
        let password = environment.entry(OPENCODE_PASSWORD.into()).or_default();
        if password.is_empty() {
            *password = Alphanumeric.sample_string(&mut rand::rng(), PASSWORD_LENGTH).into();
        }
    }
    environment
}

/// The agent's own name and version, as a description for people.
pub(crate) fn description(facts: &AgentFacts) -> String {
    format!("{} {} (ACP)", facts.name, facts.version).replace("  ", " ")
}

/// The methods for sessions that the agent does not offer.
pub(crate) fn lacking(can: Capabilities) -> Vec<&'static str> {
    let all = [(can.list, sessions::LIST), (can.fork, sessions::FORK), (can.delete, sessions::DELETE)];
    all.into_iter().filter(|(is_there, _)| !is_there).map(|(_, name)| name).collect()
}

/// An error for an agent that does not start. It says what a person can do about it.
pub(crate) fn start_failure(agent: &AcpPlan, error: &longshore_model::Error) -> anyhow::Error {
    let cause = error.cause().map(|cause| format!("\n{cause}")).unwrap_or_default();
    let install = agent.preset.and_then(|preset| preset.install);
    let install = install.map(|command| format!("\nTo install it, run `{command}`")).unwrap_or_default();
    anyhow::anyhow!("{error}{cause}{install}")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::config::ProcessContext;
    use crate::config::agents::named;

    #[test]
    fn the_http_server_of_opencode_has_a_password() {
        let password = |command: &str, own: Option<&str>| {
            let own = own.map(|password| (OPENCODE_PASSWORD, password));
            let context = ProcessContext {
                directory: "/".into(),
                environment: own.into_iter().chain([("PATH", "/usr/bin:/bin")]).collect(),
            };
            let agent = named(command, &context).unwrap_or_else(|reason| panic!("{command}: {reason}"));
            let password = environment(&agent).get(OsStr::new(OPENCODE_PASSWORD)).cloned();
            password.map(|password| password.into_string().expect("UTF-8"))
        };
        for command in ["opencode-acp", "/opt/opencode acp --print-logs"] {
            assert_eq!(password(command, Some("own")).as_deref(), Some("own"), "{command}");
            for own in [None, Some("")] {
                let random = password(command, own).expect("a password");
                assert_eq!(random.len(), PASSWORD_LENGTH, "{command}");
                assert_ne!(password(command, own).expect("a password"), random, "{command}");
            }
        }
        assert_eq!(password("qwen", Some("own")), None, "another agent gets no credential");
    }
}
