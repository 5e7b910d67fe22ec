//! What a coding agent reports during a turn, in no agent's own spelling.

use crate::artifact::BlockKind;
use crate::id::{ArtifactId, MessageId, RequestId};
use crate::interrupt::{Ask, Resolution};
use crate::json::{Json, Metadata};
use crate::notes::{Progress, SessionNote, Usage};

/// One report of an agent. A turn ends with exactly one [`AgentEvent::Ended`].
#[derive(Clone, PartialEq, Debug)]
pub enum AgentEvent {
    /// More text of a block. The first one opens the block.
    Text {
        block: BlockRef,
        text: String,
    },
    /// The block's text is this, and not what was reported before. Empty: the agent withdrew the block.
    TextReplaced {
        block: BlockRef,
        text: String,
    },
    /// No more text will come for this block.
    TextEnded {
        block: BlockRef,
    },
    /// The state of a tool call, whole.
    Tool {
        block: BlockRef,
        call: ToolCall,
    },
    /// Output of a running tool call, since the last report.
    ToolOutput {
        block: BlockRef,
        call: ToolCall,
    },
    /// The session has this name now.
    Session(SessionNote),
    Progress(Progress),
    /// What the turn has used so far, whole. Told with the end of the turn.
    Usage(Usage),
    /// The agent waits for an answer.
    Asked(Ask),
    /// An ask is no longer open. Also told for answers that the gateway gave.
    AskClosed {
        request_id: RequestId,
        resolution: Resolution,
    },
    Ended(Outcome),
}

/// A block of output and where it belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockRef {
    pub id: ArtifactId,
    pub kind: BlockKind,
    /// The agent's own message that the block belongs to.
    pub message: Option<MessageId>,
}

/// A tool call as the agent shows it.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolCall {
    pub call_id: String,
    pub tool: String,
    pub status: ToolStatus,
    pub title: Option<String>,
    pub input: Option<Json>,
    pub output: Option<String>,
    pub error: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToolStatus {
    Pending,
    Running,
    Completed,
    Error,
}

impl ToolStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Error => "error",
        }
    }
}

/// How a turn ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// With a remark when the reply is whole but not what one would expect, such as one cut at its length limit.
    Completed {
        remark: Option<String>,
    },
    Failed(Failure),
    /// Somebody else stopped the turn, at the agent itself.
    Canceled {
        reason: String,
    },
}

/// Why a turn failed, fit to be shown to the caller: no path, no secret, no stack.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    pub message: String,
    /// Machine-readable detail for the status metadata, in the agent's own namespace.
    pub metadata: Option<Metadata>,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), metadata: None }
    }
}
