//! Converts OpenCode's responses into results for callers.

use longshore_engine::port::MAX_OFFERS;
use longshore_model::{
    AgentMessageId, AgentPartId, Catalog, FileDiff, ModelInfo, OfferedAgent, OfferedCommand, Offers, Project,
    ProviderInfo, Revert, Role, SessionId, SessionInfo, SessionStatus, StoredMessage, Timestamp, Todo,
    Workspace, WorkspaceId, Worktree,
};
use serde_json::Number;

use crate::api::control as api;
use crate::api::{Agent, Fault, Statuses};
use crate::client::CallError;
use crate::redact;

/// The longest name that is offered. No person would write a longer one.
const MAX_NAME: usize = 128;

pub(super) fn statuses(found: &Statuses) -> Vec<SessionStatus> {
    let status = |(id, status): (&String, &crate::api::Status)| {
        Some(SessionStatus {
            session: SessionId::parse(id).ok()?,
            kind: status.kind.clone(),
            attempt: count(status.attempt.as_ref()),
            message: status.message.as_deref().map(redact::public),
            next: moment(status.next.as_ref()),
        })
    };
    let mut statuses: Vec<SessionStatus> = found.iter().filter_map(status).collect();
    statuses.sort_unstable_by(|one, other| one.session.cmp(&other.session));
    statuses
}

pub(super) fn session(found: api::Session) -> Result<SessionInfo, CallError> {
    let revert = |revert: api::Revert| {
        Some(Revert {
            message: AgentMessageId::parse(&revert.message).ok()?,
            part: revert.part.as_deref().and_then(|part| AgentPartId::parse(part).ok()),
            snapshot: revert.snapshot,
            diff: revert.diff,
        })
    };
    Ok(SessionInfo {
        id: SessionId::parse(&found.id).map_err(|_| invalid_id("a session"))?,
        title: found.title,
        project: found.project,
        directory: found.directory,
        parent: found.parent.as_deref().and_then(|parent| SessionId::parse(parent).ok()),
        workspace: found.workspace.as_deref().and_then(|workspace| WorkspaceId::parse(workspace).ok()),
        version: found.version,
        share_url: found.share.map(|share| share.url),
        revert: found.revert.and_then(revert),
        created: moment(found.time.created.as_ref()),
        updated: moment(found.time.updated.as_ref()),
    })
}

/// Converts a list of sessions. Leaves out those without a valid id.
pub(super) fn sessions(found: Vec<api::Session>) -> Vec<SessionInfo> {
    found.into_iter().filter_map(|found| session(found).ok()).collect()
}

/// The role and creation time of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MessageStamp<'a> {
    pub(super) role: &'a str,
    pub(super) at: Option<Timestamp>,
}

pub(super) fn stamps(found: &[api::MessageInfo]) -> Vec<MessageStamp<'_>> {
    found
        .iter()
        .map(|info| MessageStamp { role: &info.role, at: moment(info.time.created.as_ref()) })
        .collect()
}

pub(super) fn todos(found: Vec<api::Todo>) -> Vec<Todo> {
    let convert =
        |todo: api::Todo| Todo { content: todo.content, status: todo.status, priority: todo.priority };
    found.into_iter().map(convert).collect()
}

pub(super) fn diffs(message: Option<&AgentMessageId>, found: Vec<api::FileDiff>) -> Vec<FileDiff> {
    let convert = |diff: api::FileDiff| FileDiff {
        file: diff.file,
        patch: diff.patch,
        status: diff.status,
        additions: count(diff.additions.as_ref()).unwrap_or_default(),
        deletions: count(diff.deletions.as_ref()).unwrap_or_default(),
        message: message.cloned(),
    };
    found.into_iter().map(convert).collect()
}

/// The text of a message, without the parts that OpenCode wrote for the model or for itself.
pub(super) fn message(of: &SessionId, found: &api::Message) -> Result<StoredMessage, CallError> {
    let is_visible = |part: &&api::Part| part.kind == "text" && !part.synthetic && !part.ignored;
    let text = found.parts.iter().filter(is_visible).filter_map(|part| part.text.as_deref()).collect();
    stored(of, &found.info, text)
}

/// The output of a shell command, which OpenCode stores as the result of a tool.
pub(super) fn printed(of: &SessionId, found: &api::Message) -> Result<StoredMessage, CallError> {
    let states = found.parts.iter().filter_map(|part| part.state.as_ref());
    let text = states.filter_map(|state| state.output.as_deref().or(state.error.as_deref())).collect();
    stored(of, &found.info, text)
}

fn stored(of: &SessionId, info: &api::MessageInfo, text: String) -> Result<StoredMessage, CallError> {
    let why = |fault: &Fault| redact::public(fault.data.message.as_deref().unwrap_or(&fault.name));
    Ok(StoredMessage {
        id: AgentMessageId::parse(&info.id).map_err(|_| invalid_id("a message"))?,
        session: of.clone(),
        role: if info.role == "user" { Role::User } else { Role::Agent },
        text,
        created: moment(info.time.created.as_ref()),
        error: info.error.as_ref().map(why),
    })
}

/// Converts the list of providers. The settings of a provider are never parsed, so no API key can be returned.
pub(super) fn providers(found: api::Providers) -> Catalog<ProviderInfo> {
    let api::Providers { all, default, connected } = found;
    let convert = |provider: api::Provider| ProviderInfo {
        name: provider.name.unwrap_or_else(|| provider.id.clone()),
        connected: connected.contains(&provider.id),
        model_count: provider.models.len() as u64,
        source: provider.source,
        default_model: default.get(&provider.id).cloned(),
        id: provider.id,
    };
    let items = all.into_iter().map(convert).collect();
    Catalog { items, default_by_provider: default, connected }
}

/// Converts the list of models. `of`: only the models of this provider.
pub(super) fn models(found: api::Providers, of: Option<&str>) -> Catalog<ModelInfo> {
    let api::Providers { all, default, connected } = found;
    let mut items = Vec::new();
    for provider in all.into_iter().filter(|provider| of.is_none_or(|of| provider.id == of)) {
        let is_connected = connected.contains(&provider.id);
        let chosen = default.get(&provider.id);
        items.extend(provider.models.into_iter().map(|(id, model)| ModelInfo {
            provider: provider.id.clone(),
            name: model.name.unwrap_or_else(|| id.clone()),
            is_default: chosen == Some(&id),
            connected: is_connected,
            status: model.status,
            context_window: count(model.limit.context.as_ref()),
            max_output_tokens: count(model.limit.output.as_ref()),
            supports_reasoning: model.capabilities.reasoning,
            supports_tool_call: model.capabilities.toolcall,
            supports_attachments: model.capabilities.attachment,
            id,
        }));
    }
    Catalog { items, default_by_provider: default, connected }
}

/// Converts the list of projects. Only the project that contains the root is returned with its directories.
pub(super) fn projects(found: Vec<api::Project>, root: &str) -> Vec<Project> {
    let reach = |project: &api::Project| {
        let directories = project.worktree.iter().chain(&project.sandboxes);
        directories.filter(|directory| is_within(root, directory)).map(String::len).max()
    };
    let nearest = found.iter().filter_map(reach).max();
    let convert = |found: api::Project| {
        let is_own = nearest.is_some() && reach(&found) == nearest;
        let all = project(found);
        if is_own { all } else { Project { worktree: None, sandboxes: Vec::new(), ..all } }
    };
    found.into_iter().map(convert).collect()
}

pub(super) fn project(found: api::Project) -> Project {
    Project {
        id: found.id,
        name: found.name,
        vcs: found.vcs,
        worktree: found.worktree,
        sandboxes: found.sandboxes,
        created: moment(found.time.created.as_ref()),
        updated: moment(found.time.updated.as_ref()),
        initialized: moment(found.time.initialized.as_ref()),
    }
}

pub(super) fn workspace(found: api::Workspace) -> Result<Workspace, CallError> {
    Ok(Workspace {
        id: WorkspaceId::parse(&found.id).map_err(|_| invalid_id("a workspace"))?,
        kind: found.kind,
        name: found.name,
        branch: found.branch,
        directory: found.directory,
        project: found.project,
        used: moment(found.used.as_ref()),
    })
}

pub(super) fn worktree(made: api::Worktree) -> Worktree {
    Worktree { name: made.name, branch: made.branch, directory: made.directory }
}

/// Converts the offers. Leaves out the agents that OpenCode uses only itself, and names that no person would write.
pub(super) fn offers(agents: &[Agent], commands: &[api::Command]) -> Offers {
    let can_be_named =
        |name: &str| !name.trim().is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control);
    let short = |text: &Option<String>| text.as_deref().map(redact::cut).filter(|text| !text.is_empty());
    let agents = agents.iter().filter(|agent| !agent.hidden && can_be_named(&agent.name));
    let commands = commands.iter().filter(|command| can_be_named(&command.name));
    Offers {
        agents: agents
            .take(MAX_OFFERS)
            .map(|agent| OfferedAgent {
                name: agent.name.clone(),
                mode: Some(agent.mode.clone()).filter(|mode| !mode.is_empty()),
                description: short(&agent.description),
            })
            .collect(),
        commands: commands
            .take(MAX_OFFERS)
            .map(|command| OfferedCommand {
                name: command.name.clone(),
                description: short(&command.description),
                agent: command.agent.clone(),
                is_subtask: command.subtask,
            })
            .collect(),
    }
}

fn is_within(path: &str, directory: &str) -> bool {
    std::path::Path::new(path).starts_with(directory)
}

fn invalid_id(what: &str) -> CallError {
    CallError::Garbled(format!("{what} whose id is not valid"))
}

fn moment(number: Option<&Number>) -> Option<Timestamp> {
    let number = number?;
    #[expect(clippy::cast_possible_truncation, reason = "fractions of a millisecond do not matter here")]
    let whole = || number.as_f64().map(|number| number as i64);
    number.as_i64().or_else(whole).map(Timestamp)
}

fn count(number: Option<&Number>) -> Option<u64> {
    let number = number?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count is a whole number and never negative"
    )]
    let whole = || number.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64);
    number.as_u64().or_else(whole)
}
