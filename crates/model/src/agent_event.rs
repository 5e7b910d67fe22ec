//! What a coding agent reports during a turn, in no agent's own spelling.

use crate::artifact::BlockKind;
use std::sync::Arc;

use crate::id::{ArtifactId, MessageId, PromptId, RequestId, SessionId};
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
        call: Box<ToolCall>,
    },
    /// Output of a running tool call, since the last report.
    ToolOutput {
        block: BlockRef,
        call: Box<ToolCall>,
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
    /// A file that the agent hands over.
    File {
        block: BlockRef,
        file: AgentFile,
    },
    /// A sub-agent reports, or one below it. The first of a sub-agent's events is always `Started`, and comes before the
    /// tool call that names it.
    Child {
        session: SessionId,
        event: Box<ChildEvent>,
    },
    /// A turn that was taken up again still runs, and everything that was missed meanwhile has been told. Comes once in such
    /// a turn, unless its end is told instead.
    CaughtUp,
    Ended(Outcome),
}

/// What a sub-agent reports.
#[derive(Clone, PartialEq, Debug)]
pub enum ChildEvent {
    /// The sub-agent was called. Called again after its end, it starts again, as another task.
    Started(ChildStart),
    /// It has taken this prompt.
    Working(PromptId),
    /// Any report but that of another sub-agent or of an ask, which the turn itself tells.
    Report(AgentEvent),
}

#[derive(Clone, PartialEq, Debug)]
pub struct ChildStart {
    /// The session that called it: the turn's own, or another sub-agent's.
    pub caller: SessionId,
    /// The tool call that did.
    pub call: Option<String>,
    /// What it was told to do.
    pub prompt: String,
    pub title: Option<String>,
}

/// A file, whole.
#[derive(Clone, PartialEq, Eq)]
pub struct AgentFile {
    pub name: Option<String>,
    pub media_type: String,
    pub bytes: Arc<[u8]>,
}

impl std::fmt::Debug for AgentFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AgentFile({:?}, {}, {} bytes)", self.name, self.media_type, self.bytes.len())
    }
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
    /// The session of the sub-agent that the call started.
    pub child: Option<SessionId>,
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
    /// The agent lacks credentials. Once it has them, another prompt can go on.
    AuthRequired(Failure),
    /// Somebody else stopped the turn, at the agent itself.
    Canceled {
        reason: String,
    },
    /// One of the others that ends the turn for good, where text that the agent wrote may be missing. Its words say so.
    Lacking(Box<Self>),
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
