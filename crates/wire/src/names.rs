//! Names that contain the name of the first agent, although every gateway has them, whatever agent it serves.
//!
//! Clients know these names, so they stay as they are. Names that only a gateway of that agent has are in its own module.

/// The object in metadata that holds the fields of the agent, and the output modes of a task.
pub(crate) const AGENT_OBJECT: &str = "opencode";

/// The field in which a message or a call names a directory, without `metadata.`.
pub(crate) const DIRECTORY: &str = "opencode.directory";
/// The field in which a message or a call names a workspace of the agent, without `metadata.`.
pub(crate) const WORKSPACE: &str = "opencode.workspace.id";
/// [`DIRECTORY`] with its full path.
pub const DIRECTORY_FIELD: &str = "metadata.opencode.directory";
/// [`WORKSPACE`] with its full path.
pub(crate) const WORKSPACE_FIELD: &str = "metadata.opencode.workspace.id";
/// The output modes that are stored with a task.
pub(crate) const OUTPUT_MODES_FIELD: &str = "metadata.opencode.output_negotiation.accepted_output_modes";

/// Precedes the session id in the context id of a session that was not begun by an A2A message.
pub const CONTEXT_PREFIX: &str = "ctx:opencode-session:";

/// The profile of every gateway.
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

/// Which directories a message can name, for agents that have no workspaces.
pub(crate) const DIRECTORY_NOTE: &str = "A directory (metadata.opencode.directory) must be the root of the workspace or below it, if the gateway allows one.";
