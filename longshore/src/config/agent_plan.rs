//! Chooses the agent: an OpenCode that is attached, started, or started with the demo model; or an agent that speaks ACP.

use std::path::{Path, PathBuf};

use secrecy::SecretString;
use url::Url;

use super::agents::{AcpPlan, Configured};
use super::environment::Environment;
use super::problem::{Problem, Source};
use super::read::{Reader, Written};
use super::{paths, table};

/// The agent that the gateway uses.
#[derive(Clone, Debug)]
pub enum AgentPlan {
    /// A server that is already running.
    Attached { base_url: Url, username: String, password: Option<SecretString> },
    /// A server that Longshore starts, with the user's own configuration.
    Managed { program: PathBuf },
    /// A server that Longshore starts in its own home, with the demo model.
    Demo { program: PathBuf },
    /// An agent that speaks ACP, and that Longshore starts.
    Acp(AcpPlan),
}

impl AgentPlan {
    /// A suffix for the name of the data directory, so that different agents for the same workspace have different directories.
    pub(super) fn data_dir_suffix(&self) -> String {
        match self {
            Self::Attached { .. } | Self::Managed { .. } => String::new(),
            Self::Demo { .. } => paths::DEMO_SUFFIX.to_owned(),
            Self::Acp(agent) => format!("-acp-{}", agent.name),
        }
    }
}

/// Reads the plan of the agent. `configured`: the agent that is served instead of OpenCode over HTTP, if any.
pub(super) fn read(
    reader: &mut Reader<'_>,
    here: &Path,
    configured: Option<Configured>,
) -> Option<AgentPlan> {
    let base_url = reader.url(&table::BASE_URL);
    let username = reader.text(&table::USERNAME);
    let password = reader.secret(&table::PASSWORD);
    let program = reader.path(&table::PROGRAM).map(|program| paths::program(here, program));
    let demo = reader.switch(&table::DEMO);
    if let Some(configured) = configured {
        refuse_opencode(reader, &configured, demo);
        return Some(AgentPlan::Acp(configured.plan));
    }
    let Some(base_url) = base_url else {
        for setting in [&table::USERNAME, &table::PASSWORD] {
            let is_for_attached = |written: &Written| match written.source {
                // Ignore OpenCode's own variables, because they may be set for another program.
                Source::Environment(name) => Some(name) == setting.env,
                _ => true,
            };
            if let Some(written) = reader.written(setting).filter(is_for_attached) {
                reader.warn(format!(
                    "{} ({}) has no effect: Longshore starts an OpenCode with a password of its own, \
                     because {} is not set",
                    written.source,
                    setting.key,
                    table::BASE_URL.key
                ));
            }
        }
        let program = program?;
        return Some(if demo { AgentPlan::Demo { program } } else { AgentPlan::Managed { program } });
    };
    if demo && let Some(written) = reader.written(&table::DEMO) {
        let reason = format!(
            "cannot be combined with {}: the demo starts an OpenCode of its own; unset one of the two",
            table::BASE_URL.key
        );
        reader.problem(Problem::rule(&written.source, &table::DEMO, reason));
    }
    if let Some(written) = reader.written(&table::PROGRAM) {
        reader.warn(format!(
            "{} ({}) has no effect: Longshore attaches to {}",
            written.source,
            table::PROGRAM.key,
            table::BASE_URL.key
        ));
    }
    Some(AgentPlan::Attached { base_url, username: username?, password })
}

/// Adds a problem for each setting of OpenCode over HTTP, because they do not apply to another agent.
fn refuse_opencode(reader: &mut Reader<'_>, configured: &Configured, demo: bool) {
    let other = match &configured.source {
        Source::File { .. } => format!("[[{}]]", table::AGENTS.key),
        source => source.to_string(),
    };
    for (setting, is_set) in [(&table::BASE_URL, true), (&table::DEMO, demo)] {
        if let Some(written) = reader.written(setting).filter(|_| is_set) {
            let reason = format!(
                "cannot be combined with {other}: the gateway serves one agent; unset one of the two"
            );
            reader.problem(Problem::rule(&written.source, setting, reason));
        }
    }
    let others =
        [&table::PROGRAM, &table::MODEL, &table::AGENT, &table::SYSTEM, &table::VARIANT, &table::PIN];
    let lists = [&table::ALLOWED_MODELS, &table::ALLOWED_AGENTS, &table::ALLOWED_ROOTS];
    let of_turns = [&table::MAX_STEPS, &table::WRITTEN_FILES];
    for setting in others.into_iter().chain(lists).chain(of_turns) {
        if let Some(written) = reader.written(setting) {
            reader.warn(format!(
                "{} ({}) has no effect: it is for OpenCode over HTTP, and {other} is set",
                written.source, setting.key
            ));
        }
    }
}

/// The files with credentials and conversations of the agents.
pub(super) fn secrets(
    agent: Option<&AgentPlan>,
    gateway: &Environment,
    workspace: Option<&Path>,
) -> Vec<PathBuf> {
    let mut secrets = paths::opencode_secrets(gateway);
    if let Some(AgentPlan::Acp(AcpPlan { preset: Some(preset), environment, .. })) = agent
        && let Some(workspace) = workspace
    {
        secrets.extend(preset.private_paths(environment, workspace));
    }
    secrets
}
