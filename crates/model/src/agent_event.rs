//! The reports of a coding agent during a turn, in a format that is the same for all agents.

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
    /// More text of a block. The first text opens the block.
    Text {
        block: BlockRef,
        text: String,
    },
    /// Replaces the block's text. Empty text: the agent withdrew the block.
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
    /// The output of a running tool call since the last report.
    ToolOutput {
        block: BlockRef,
        call: Box<ToolCall>,
    },
    /// The session's id and its current title.
    Session(SessionNote),
    Progress(Progress),
    /// The total usage of the turn so far. Callers see it at the end of the turn.
    Usage(Usage),
    /// The agent waits for an answer.
    Asked(Box<Ask>),
    /// An ask is no longer open. Also reported for answers that the gateway sent.
    AskClosed {
        request_id: RequestId,
        resolution: Resolution,
    },
    /// A file whose content the agent provides.
    File {
        block: BlockRef,
        file: AgentFile,
    },
    /// A file that the agent refers to by a URL. The gateway does not fetch it.
    RemoteFile {
        block: BlockRef,
        file: RemoteFile,
    },
    /// A file of the agent that callers do not get. The reason may be shown to anybody.
    WithheldFile {
        block: BlockRef,
        name: Option<String>,
        reason: String,
    },
    /// A report of a sub-agent at any depth. The first report of a sub-agent is always `Started`, and comes before the tool call
    /// that names its session.
    Child {
        session: SessionId,
        event: Box<ChildEvent>,
    },
    /// A resumed turn still runs, and everything that happened during the outage has been reported. Sent once in a resumed turn,
    /// unless the end of the turn is reported instead.
    CaughtUp,
    Ended(Outcome),
}

/// A report of a sub-agent.
#[derive(Clone, PartialEq, Debug)]
pub enum ChildEvent {
    /// The sub-agent was called. A call after its end starts another child task.
    Started(ChildStart),
    /// The sub-agent accepted this prompt.
    Working(PromptId),
    /// The model of the sub-agent, as `provider/model`, if it was not known at the start.
    Model(String),
    /// Any report except those of other sub-agents and those about asks, which the turn itself reports.
    Report(AgentEvent),
}

#[derive(Clone, PartialEq, Debug)]
pub struct ChildStart {
    /// The session that called the sub-agent: the turn's own session, or that of another sub-agent.
    pub caller: SessionId,
    /// The tool call that called the sub-agent.
    pub call: Option<String>,
    pub prompt: String,
    pub title: Option<String>,
    /// The type of the sub-agent, such as `general`.
    pub kind: Option<String>,
    /// The model of the sub-agent, as `provider/model`. `None`: it is not known yet.
    pub model: Option<String>,
}

/// A file with its whole content.
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

/// A file that is only known by its URL.
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
    /// The agent's own message to which the block belongs.
    pub message: Option<MessageId>,
}

/// The name of a tool argument. In it, the gateway's own plugin tells the gateway which session makes a call. Callers do not see
/// it.
pub const CALLER_ARGUMENT: &str = "_longshore";

/// A tool call as the agent reports it.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolCall {
    pub call_id: String,
    pub tool: String,
    pub status: ToolStatus,
    pub title: Option<String>,
    pub subtitle: Option<String>,
    /// What the tool does, in the agent's words, such as `read` or `execute`. The agent's driver limits its length.
    pub kind: Option<String>,
    /// The places that the call concerns. The agent's driver limits their number.
    pub locations: Vec<ToolLocation>,
    pub input: Option<Json>,
    pub output: Option<String>,
    pub error: Option<String>,
    /// The session of the sub-agent that the call started. `None`: it started none.
    pub child: Option<SessionId>,
    /// Additional data in the agent's own form. The agent's driver limits its size.
    pub meta: Option<Json>,
}

impl ToolCall {
    /// A call with only these facts.
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
    /// A path relative to the directory of the session, and inside it.
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

/// The outcome of a turn.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The turn is complete. `remark`: set if the reply is unusual, for example cut at its length limit.
    Completed {
        remark: Option<String>,
    },
    Failed(Failure),
    /// The agent lacks credentials. When it has them, another prompt can continue the work.
    AuthRequired(Failure),
    /// Another client of the agent stopped the turn.
    Canceled {
        reason: String,
    },
    /// One of the other terminal outcomes, when text that the agent wrote may be missing. Its message mentions that.
    Incomplete(Box<Self>),
}

/// The reason of a failed turn. Safe to show to the caller: it contains no path, no secret and no stack trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    pub message: String,
    /// Machine-readable details for the metadata of the status, in the agent's own namespace.
    pub metadata: Option<Metadata>,
    /// The tool call whose failure ended the turn, if there is one.
    pub failed_call: Option<Box<FailedCall>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedCall {
    pub call_id: String,
    /// The error in the form in which the message of the failure contains it.
    pub error: String,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), metadata: None, failed_call: None }
    }
}
