//! The domain types of Longshore and their rules.
//!
//! The types follow the meaning of A2A 1.0, but not the encoding of either protocol version: `longshore-wire` defines field names,
//! enum words and status codes. The `serde` derives of this crate define the format of the event log and of snapshots, which only
//! the store reads.
//!
//! This crate uses no clock, no IO and no runtime.

pub mod agent_event;
pub mod approval;
pub mod artifact;
pub mod ask_options;
pub mod capability;
pub mod card;
pub mod choices;
pub mod command;
pub mod control;
pub mod error;
pub mod event;
pub mod hops;
pub mod id;
pub mod interrupt;
pub mod json;
pub mod message;
mod named_enum;
pub mod nearest;
pub mod notes;
pub mod options;
pub mod part;
pub mod push;
pub mod redact;
pub mod secret;
pub mod task;
pub mod time;
pub mod trace;

pub use agent_event::{
    AgentEvent, AgentFile, BlockRef, CALLER_ARGUMENT, ChildEvent, ChildStart, FailedCall, Failure, Outcome,
    RemoteFile, ToolCall, ToolLocation, ToolStatus,
};
pub use approval::{Action, Approval, PermissionRequest};
pub use artifact::{Artifact, ArtifactUpdate, BlockKind};
pub use ask_options::{AskOption, AskOptions, OptionKind};
pub use capability::{Capabilities, Capability};
pub use choices::{Choice, ChoiceList, Choices, SessionOption};
pub use command::{
    CancelTask, CreatePushConfig, DeletePushConfig, GetPushConfig, GetTask, ListPushConfigs, ListTasks,
    PushRequest, SendConfig, SendMessage, SubscribeToTask,
};
pub use control::{
    Catalog, Control, ControlCommand, ControlQuery, ControlRequest, ControlResult, FileDiff, ModelInfo,
    NativePrompt, NativePromptPart, NativePromptRequest, NewWorkspace, NewWorktree, OfferedAgent,
    OfferedCommand, Offers, Page, Project, ProviderInfo, RequestedDirectory, RequestedLocation, Revert,
    SessionInfo, SessionQuery, SessionStatus, ShellCommand, StartedTask, StoredMessage, Subtask, Todo,
    Workspace, Worktree, WorktreeRef,
};
pub use error::{Error, ErrorKind, FieldViolation, Origin, Retry};
pub use event::{Entry, StatusUpdate, TaskEvent};
pub use hops::{Hop, Hops, MAX_HOPS};
pub use id::{
    AgentMessageId, AgentPartId, ArtifactId, ContextId, Epoch, EventId, FileId, IdError, MessageId,
    Principal, PromptId, PushConfigId, RequestId, Seq, SessionId, TaskId, WorkspaceId,
};
pub use interrupt::{Answer, Ask, AskKind, Closed, Interrupt, PermissionReply, Question, Resolution};
pub use json::{Json, Metadata};
pub use message::{Message, Role};
pub use notes::{
    Cost, Expired, InterruptNote, InterruptPhase, Notes, Progress, ProgressKind, SessionNote, Usage,
};

pub use options::{Delivery, ModelName, OutputModes, PromptOptions, SendOptions, TaskOptions};
pub use part::{Part, PartContent};
pub use push::{DeadLetter, PushAuthentication, PushConfig, PushEvents, PushFormat, PushView, PushWord};
pub use secret::Secret;
pub use task::{Parent, Task, TaskState, TaskStatus};
pub use time::Timestamp;
pub use trace::TraceContext;

pub type Result<T, E = Error> = std::result::Result<T, E>;
