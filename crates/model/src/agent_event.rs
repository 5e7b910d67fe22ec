//! The reports of a coding agent during a turn, independent of any agent's own format.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::artifact::BlockKind;
use crate::id::{ArtifactId, MessageId, PromptId, RequestId, SessionId};
use crate::interrupt::{Ask, Resolution};
use crate::json::{Json, Metadata};
use crate::named_enum::named_enum;
use crate::notes::{Progress, SessionNote, Usage};

/// One report of an agent. A turn ends with exactly one [`AgentEvent::Ended`].
#[derive(Clone, PartialEq, Debug)]
pub enum AgentEvent {
    /// More text of a block. The first one opens the block.
    Text {
        block: BlockRef,
        text: String,
    },
    /// Replaces the block's text. Empty: the agent withdrew the block.
    TextReplaced {
        block: BlockRef,
        text: String,
    },
    /// No more text will come for this block.
    TextEnded {
        block: BlockRef,
    },
    /// The whole state of a tool call.
    Tool {
        block: BlockRef,
        call: Box<ToolCall>,
    },
    /// Output of a running tool call, since the last report.
    ToolOutput {
        block: BlockRef,
        call: Box<ToolCall>,
    },
    /// The session's id and its current title.
    Session(SessionNote),
    Progress(Progress),
    /// The total usage of the turn so far. Shown with the end of the turn.
    Usage(Usage),
    /// The agent waits for an answer.
    Asked(Box<Ask>),
    /// An ask is no longer open. Also reported for answers that the gateway sent.
    AskClosed {
        request_id: RequestId,
        resolution: Resolution,
    },
    /// A file that the agent hands over.
    File {
        block: BlockRef,
        file: AgentFile,
    },
    /// A file that the agent refers to by a URL. The gateway does not fetch it.
    RemoteFile {
        block: BlockRef,
        file: RemoteFile,
    },
    /// A file of the agent that is not handed over. The reason may be shown to anybody.
    WithheldFile {
        block: BlockRef,
        name: Option<String>,
        reason: String,
    },
    /// A report of a sub-agent at any depth. The first event of a sub-agent is always `Started`, and comes before the tool
    /// call that names its session.
    Child {
        session: SessionId,
        event: Box<ChildEvent>,
    },
    /// A resumed turn still runs, and everything that was missed meanwhile has been reported. Sent once in a resumed turn,
    /// unless the turn's end is reported instead.
    CaughtUp,
    Ended(Outcome),
}

/// A report of a sub-agent.
#[derive(Clone, PartialEq, Debug)]
pub enum ChildEvent {
    /// The sub-agent was called. A call after its end starts another task.
    Started(ChildStart),
    /// The sub-agent accepted this prompt.
    Working(PromptId),
    /// The model of the sub-agent, as `provider/model`, if it was not known at the start.
    Model(String),
    /// Any report except those of other sub-agents and of asks, which the turn itself reports.
    Report(AgentEvent),
}

#[derive(Clone, PartialEq, Debug)]
pub struct ChildStart {
    /// The calling session: the turn's own, or another sub-agent's.
    pub caller: SessionId,
    /// The tool call that called the sub-agent.
    pub call: Option<String>,
    pub prompt: String,
    pub title: Option<String>,
    /// The type of the sub-agent, such as `general`.
    pub kind: Option<String>,
    /// The model of the sub-agent, as `provider/model`. `None`: not known yet.
    pub model: Option<String>,
}

/// A whole file.
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

/// A file at a URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteFile {
    pub name: Option<String>,
    pub media_type: String,
    pub url: String,
}

/// Identifies a block of output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockRef {
    pub id: ArtifactId,
    pub kind: BlockKind,
    /// The agent's own message that the block belongs to.
    pub message: Option<MessageId>,
}

/// The argument in which the gateway's own plugin tells the gateway which session makes a call. Callers do not see it.
pub const CALLER_ARGUMENT: &str = "_longshore";

/// A tool call as the agent reports it.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolCall {
    pub call_id: String,
    pub tool: String,
    pub status: ToolStatus,
    pub title: Option<String>,
    pub subtitle: Option<String>,
    /// What the tool does, in the agent's words, such as `read` or `execute`. Never long.
    pub kind: Option<String>,
    /// The places that the call concerns. Never many.
    pub locations: Vec<ToolLocation>,
    pub input: Option<Json>,
    pub output: Option<String>,
    pub error: Option<String>,
    /// The session of the sub-agent that the call started.
    pub child: Option<SessionId>,
    /// What the agent adds in a form of its own. Never long.
    pub meta: Option<Json>,
}

impl ToolCall {
    /// A call of which nothing else is known.
    pub fn new(call_id: impl Into<String>, tool: impl Into<String>, status: ToolStatus) -> Self {
        Self {
            call_id: call_id.into(),
            tool: tool.into(),
            status,
            title: None,
            subtitle: None,
            kind: None,
            locations: Vec::new(),
            input: None,
            output: None,
            error: None,
            child: None,
            meta: None,
        }
    }
}

/// A place in a file, or a file or directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToolLocation {
    /// Begins in the directory of the session, and stays in it.
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

named_enum! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ToolStatus {
        Pending = "pending",
        Running = "running",
        Completed = "completed",
        Error = "error",
    }
    fn as_str
}

/// How a turn ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The remark is set if the reply is complete but unusual, such as one cut at its length limit.
    Completed {
        remark: Option<String>,
    },
    Failed(Failure),
    /// The agent lacks credentials. Once it has them, another prompt can continue the work.
    AuthRequired(Failure),
    /// Another client of the agent stopped the turn.
    Canceled {
        reason: String,
    },
    /// One of the other terminal outcomes, where text that the agent wrote may be missing. Its message mentions that.
    Incomplete(Box<Self>),
}

/// Why a turn failed. Safe to show to the caller: no path, no secret, no stack trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    pub message: String,
    /// Machine-readable details for the status metadata, in the agent's own namespace.
    pub metadata: Option<Metadata>,
    /// The tool call whose failure ended the turn.
    pub failed_call: Option<Box<FailedCall>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedCall {
    pub call_id: String,
    /// The error as the message of the failure contains it.
    pub error: String,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), metadata: None, failed_call: None }
    }
}
