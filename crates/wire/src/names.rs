//! Names that contain the name of OpenCode, the first supported agent, but that every gateway has.
//!
//! Clients know these names, so they cannot change. Names that only an OpenCode gateway has are in the module of that agent.

/// The metadata object that contains the fields of the agent, and the output modes of a task.
pub(crate) const AGENT_OBJECT: &str = "opencode";

/// The field in which a message or a call names a directory, without `metadata.`.
pub(crate) const DIRECTORY: &str = "opencode.directory";
/// The field in which a message or a call names a workspace of the agent, without `metadata.`.
pub(crate) const WORKSPACE: &str = "opencode.workspace.id";
/// [`DIRECTORY`] with its full path.
pub const DIRECTORY_FIELD: &str = "metadata.opencode.directory";
/// [`WORKSPACE`] with its full path.
pub(crate) const WORKSPACE_FIELD: &str = "metadata.opencode.workspace.id";
/// The field with the output modes that are stored with a task.
pub(crate) const OUTPUT_MODES_FIELD: &str = "metadata.opencode.output_negotiation.accepted_output_modes";

/// The prefix before the session id in the context id of a session that was not started by an A2A message.
pub const CONTEXT_PREFIX: &str = "ctx:opencode-session:";

/// The id of the profile, which is the same for every gateway.
pub(crate) const PROFILE_ID: &str = "opencode-a2a-single-tenant-coding-v1";

/// The methods about open asks and approvals.
pub(crate) const LIST_PERMISSIONS: &str = "opencode.permissions.list";
pub(crate) const LIST_QUESTIONS: &str = "opencode.questions.list";
pub(crate) const LIST_APPROVALS: &str = "opencode.permissions.approvals.list";
pub(crate) const REVOKE_APPROVAL: &str = "opencode.permissions.approvals.revoke";

/// The skills that every card has.
pub(crate) const CHAT_SKILL: &str = "opencode.chat";
pub(crate) const RECOVERY_SKILL: &str = "opencode.interrupt.recovery";
pub(crate) const CALLBACK_SKILL: &str = "opencode.interrupt.callback";

/// A sentence about the directories that a message can name, for agents without workspaces.
pub(crate) const DIRECTORY_NOTE: &str = "A directory (metadata.opencode.directory) must be the root of the workspace or below it, if the gateway allows one.";
