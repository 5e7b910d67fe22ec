//! Checks the agent: whether it is installed, its version, its event stream, and whether it can use a model.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use longshore_agent_opencode::{Endpoint, OpenCode, managed};
use longshore_engine::Tasks;
use longshore_engine::port::SystemClock;
use longshore_meter::Metrics;
use tokio::process::Command;
use tokio::time::timeout;

use super::Finding;
use crate::config::plan::AgentPlan;
use crate::config::{Plan, ProcessContext, paths};
use crate::upstream::{install_command, opencode_config, untested};

/// How long a program may take to print its version. OpenCode takes about a second.
const VERSION_PATIENCE: Duration = Duration::from_secs(20);

const WHAT: &str = "OpenCode";

pub(super) async fn check(plan: &Plan, context: &ProcessContext) -> Vec<Finding> {
    match &plan.agent {
        AgentPlan::Attached { base_url, username, password } => {
            let endpoint = Endpoint {
                base_url: base_url.clone().into(),
                username: username.clone(),
                password: password.clone(),
            };
            let place = base_url.as_str().trim_end_matches('/').to_owned();
            running(plan, endpoint, &place).await
        }
        AgentPlan::Managed { program } | AgentPlan::Demo { program } => {
            let mut findings = vec![installed(program, context).await];
            match managed::running(&plan.data_dir) {
                Some(endpoint) => findings.extend(running(plan, endpoint, "this machine").await),
                None => findings.push(Finding::fine(
                    WHAT,
                    "does not run now; its stream and its logins can be checked while the gateway runs",
                )),
            }
            findings
        }
        AgentPlan::Acp(agent) => {
            let found = paths::find_program(&context.environment, &context.directory, &agent.program);
            let shown = agent.program.display();
            let install = agent.preset.and_then(|preset| preset.install);
            vec![match (found, install) {
                (Some(found), _) => Finding::fine(
                    "agent",
                    format!(
                        "{} is {}; `longshore agents check {}` tries it",
                        agent.title(),
                        found.display(),
                        agent.name
                    ),
                ),
                (None, Some(command)) => Finding::problem(
                    "agent",
                    format!("there is no program {shown}"),
                    format!("Install it with `{command}`."),
                ),
                (None, None) => Finding::problem(
                    "agent",
                    format!("there is no program {shown}"),
                    "Install it, or give its path in the command of the agent.",
                ),
            }]
        }
    }
}

/// Checks that the program is installed, and its version.
async fn installed(program: &Path, context: &ProcessContext) -> Finding {
    let Some(found) = paths::find_program(&context.environment, &context.directory, program) else {
        return Finding::problem(
            WHAT,
            format!("there is no program {}", program.display()),
            format!(
                "Install it with `{}`, give its path with --opencode, or attach to a running OpenCode with --opencode-url.",
                install_command()
            ),
        );
    };
    let mut command = Command::new(&found);
    command.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(VERSION_PATIENCE, command.output()).await;
    let version = match output {
        Ok(Ok(output)) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => {
            return Finding::problem(
                WHAT,
                format!("{} does not print its version", found.display()),
                format!(
                    "Run `{} --version` to see why, or install OpenCode again with `{}`.",
                    found.display(),
                    install_command()
                ),
            );
        }
    };
    version_finding(&version, &found.display().to_string())
}

fn version_finding(version: &str, place: &str) -> Finding {
    match untested(version) {
        None => Finding::fine(WHAT, format!("{version} ({place})")),
        Some(warning) => {
            Finding::warning(WHAT, warning, "If something does not work, install the tested version.")
        }
    }
}

/// Checks a running OpenCode.
async fn running(plan: &Plan, endpoint: Endpoint, place: &str) -> Vec<Finding> {
    let tasks = Tasks::new();
    let config = opencode_config(plan, endpoint, &Arc::new(Metrics::new(env!("CARGO_PKG_VERSION"))));
    let findings = match OpenCode::new(config, Arc::new(SystemClock), tasks.clone()) {
        Ok(opencode) => try_all(plan, &opencode, place).await,
        Err(error) => vec![Finding::problem(WHAT, error.to_string(), "Correct the address of OpenCode.")],
    };
    tasks.stop().await;
    findings
}

async fn try_all(plan: &Plan, opencode: &OpenCode, place: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    match opencode.version().await {
        Ok(version) => findings.push(version_finding(&version, place)),
        Err(error) => {
            return vec![Finding::problem(
                WHAT,
                format!("OpenCode at {place} does not work: {error}"),
                "Start it, and check --opencode-url and the password (OPENCODE_AUTH_PASSWORD).",
            )];
        }
    }
    findings.push(match opencode.try_stream().await {
        Ok(()) => Finding::fine("event stream", "works"),
        Err(error) => Finding::problem(
            "event stream",
            error.to_string(),
            "Without its events no turn can be followed. A proxy between the gateway and OpenCode must not buffer; restart OpenCode.",
        ),
    });
    findings.push(match opencode.usable_providers().await {
        Ok(providers) => logins(plan, &providers),
        Err(error) => {
            Finding::warning("models", error.to_string(), "Restart OpenCode, and look at its output.")
        }
    });
    findings
}

/// Checks that OpenCode can use a model.
fn logins(plan: &Plan, providers: &[String]) -> Finding {
    let wanted =
        plan.prompt.model.as_deref().and_then(|model| model.split_once('/')).map(|(provider, _)| provider);
    match wanted {
        _ if providers.is_empty() => Finding::problem(
            "models",
            "OpenCode can use no model: it has the credentials of no provider",
            "Run `opencode auth login` as the user of OpenCode, and restart OpenCode.",
        ),
        Some(wanted) if !providers.iter().any(|provider| provider == wanted) => Finding::problem(
            "models",
            format!(
                "the configured model is of the provider {wanted}, and OpenCode can use only: {}",
                providers.join(", ")
            ),
            "Run `opencode auth login` for this provider as the user of OpenCode, or choose another model with --model.",
        ),
        _ => Finding::fine("models", format!("OpenCode can use: {}", providers.join(", "))),
    }
}
