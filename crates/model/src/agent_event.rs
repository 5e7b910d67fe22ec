//! What a coding agent reports during a turn, in no agent's own spelling.

use crate::id::ArtifactId;
use crate::json::{Json, Metadata};

/// One report of an agent. A turn ends with exactly one [`AgentEvent::Ended`].
#[derive(Clone, PartialEq, Debug)]
pub enum AgentEvent {
    /// More text of a block. The first one opens the block.
    Text {
        block: ArtifactId,
        kind: BlockKind,
        text: String,
    },
    /// The block's text is this, and not what was reported before. Empty: the agent withdrew the block.
    TextReplaced {
        block: ArtifactId,
        kind: BlockKind,
        text: String,
    },
    /// No more text will come for this block.
    TextEnded {
        block: ArtifactId,
        kind: BlockKind,
    },
    /// The state of a tool call, whole.
    Tool {
        block: ArtifactId,
        call: ToolCall,
    },
    /// Output of a running tool call, since the last report.
    ToolOutput {
        block: ArtifactId,
        call: ToolCall,
    },
    /// The agent waits for an answer.
    Asked(Ask),
    Ended(Outcome),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockKind {
    Text,
    Reasoning,
}

impl BlockKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Reasoning => "reasoning",
        }
    }
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

/// A permission or a question.
#[derive(Clone, PartialEq, Debug)]
pub struct Ask {
    pub request_id: String,
    pub kind: AskKind,
    /// What is asked, in plain words, fit to be shown to the caller.
    pub summary: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskKind {
    Permission,
    Question,
}

impl AskKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permission => "permission",
            Self::Question => "question",
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
