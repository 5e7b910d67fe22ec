//! The nouns of Longshore and their rules.
//!
//! Everything here follows the meaning of A2A 1.0, in neither protocol line's spelling: `longshore-wire`
//! owns field names, enum spellings and status codes. The `serde` derives of this crate are the
//! format of the event log and of snapshots, which nobody outside the store reads.
//!
//! No clock, no IO, no runtime.

pub mod agent_event;
pub mod artifact;
pub mod card;
pub mod command;
pub mod control;
pub mod error;
pub mod event;
pub mod id;
pub mod interrupt;
pub mod json;
pub mod message;
pub mod notes;
pub mod part;
pub mod rights;
pub mod spelled;
pub mod task;
pub mod terms;
pub mod time;
pub mod trace;

pub use agent_event::{
    AgentEvent, AgentFile, BlockRef, ChildEvent, ChildStart, Failure, Outcome, ToolCall, ToolStatus,
};
pub use artifact::{Artifact, ArtifactUpdate, BlockKind};
pub use command::{CancelTask, GetTask, ListTasks, SendConfig, SendMessage, SubscribeToTask};
pub use control::{
    Begun, Catalog, Control, ControlCommand, ControlQuery, ControlRequest, ControlResult, FileDiff,
    ModelInfo, NewWorkspace, NewWorktree, OfferedAgent, OfferedCommand, Offers, Order, OrderPart,
    OrderRequest, Page, Project, ProviderInfo, RequestedDirectory, RequestedLocation, Revert, SessionInfo,
    SessionQuery, SessionStatus, ShellOrder, StoredMessage, Subtask, Todo, Workspace, Worktree, WorktreeRef,
};
pub use error::{Error, ErrorKind, FieldViolation, Origin, Retry};
pub use event::{Entry, StatusUpdate, TaskEvent};
pub use id::{
    ArtifactId, ContextId, Epoch, EventId, FileId, IdError, MessageId, MessageRef, PartRef, Principal,
    PromptId, RequestId, Seq, SessionId, TaskId, WorkspaceId,
};
pub use interrupt::{Answer, Ask, AskKind, Closed, Interrupt, PermissionReply, Question, Resolution};
pub use json::{Json, Metadata};
pub use message::{Message, Role};
pub use notes::{Cost, InterruptNote, InterruptPhase, Notes, Progress, ProgressKind, SessionNote, Usage};
pub use part::{Part, PartContent};
pub use rights::{Capabilities, Capability};
pub use task::{Parent, Task, TaskState, TaskStatus};
pub use terms::{Delivery, ModelName, OutputModes, PromptOptions, SendOptions, TaskOptions};
pub use time::Timestamp;
pub use trace::TraceContext;

pub type Result<T, E = Error> = std::result::Result<T, E>;
