//! `longshore attach`: opens OpenCode's own terminal interface on the OpenCode of a gateway.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use longshore_agent_opencode::{Endpoint, managed};
use secrecy::ExposeSecret as _;

use crate::config::plan::AgentPlan;
use crate::config::{Plan, ProcessContext, paths};
use crate::upstream::install_command;

/// The program that is run if the configuration names none, because OpenCode is attached.
const PROGRAM: &str = "opencode";

/// Replaces this process by the terminal interface, so it returns only if that fails.
pub(crate) fn attach(plan: &Plan, context: &ProcessContext) -> anyhow::Result<()> {
    let (endpoint, program) = match &plan.agent {
        AgentPlan::Attached { base_url, username, password } => {
            let endpoint = Endpoint {
                base_url: base_url.clone().into(),
                username: username.clone(),
                password: password.clone(),
            };
            (endpoint, PathBuf::from(PROGRAM))
        }
        AgentPlan::Managed { program } | AgentPlan::Demo { program } => {
            let endpoint = managed::running(&plan.data_dir).with_context(|| {
                format!(
                    "no OpenCode runs for {}; start the gateway with `longshore serve`, or name the served directory with \
                     --workspace or its data directory with --data-dir; for a demo, add --demo",
                    plan.workspace.display()
                )
            })?;
            (endpoint, program.clone())
        }
        AgentPlan::Acp(agent) => {
            bail!("{} is not OpenCode, and has no terminal interface to attach", agent.title())
        }
    };
    let Some(program) = paths::find_program(&context.environment, &context.directory, &program) else {
        bail!("there is no program {}; install it with `{}`", program.display(), install_command());
    };
    let error = command(&program, &endpoint, &plan.workspace).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// The command for the terminal interface. It gets the password in its environment, because other users can see a command line.
fn command(program: &Path, endpoint: &Endpoint, workspace: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg("attach")
        .arg(endpoint.base_url.url().as_str().trim_end_matches('/'))
        .arg("--dir")
        .arg(workspace);
    command.env("OPENCODE_SERVER_USERNAME", &endpoint.username);
    match &endpoint.password {
        Some(password) => command.env("OPENCODE_SERVER_PASSWORD", password.expose_secret()),
        None => command.env_remove("OPENCODE_SERVER_PASSWORD"),
    };
    command
}
