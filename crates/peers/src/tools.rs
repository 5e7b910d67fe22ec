//! The tools with which an agent or an MCP client calls A2A agents. `longshore-mcp` offers them over MCP.

use std::fmt::Debug;

use longshore_engine::port::BoxFuture;
use longshore_model::{Artifact, Principal, SessionId};
use tokio::sync::mpsc;

/// What the tools `a2a_*` do. One implementation calls the configured peers for a session of an agent; another one calls the
/// gateway's own agent for an MCP client.
pub trait Tools: Send + Sync + Debug {
    /// The agents that the caller may call.
    fn discover<'a>(&'a self, caller: &'a ToolCaller) -> BoxFuture<'a, Result<Vec<PeerSummary>, ToolError>>;

    /// Sends a message to a peer and waits until the peer's task ends, asks something, or `wait` of the request is over. A call with
    /// the key of an earlier call sends nothing: it waits for that call.
    fn call<'a>(
        &'a self,
        caller: &'a ToolCaller,
        key: &'a CallKey,
        request: CallRequest,
        progress: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>>;

    /// Reports on a call of the same caller, and waits like [`Tools::call`] if `wait` is longer than zero.
    fn status<'a>(
        &'a self,
        caller: &'a ToolCaller,
        call: &'a CallHandle,
        wait: std::time::Duration,
        progress: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>>;

    /// Answers the ask that a peer waits for, then waits like [`Tools::call`]. An answer with the key of an earlier answer answers
    /// nothing else: it waits for that call.
    fn answer<'a>(
        &'a self,
        caller: &'a ToolCaller,
        key: &'a CallKey,
        call: &'a CallHandle,
        request: AnswerRequest,
        progress: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>>;

    fn cancel<'a>(
        &'a self,
        caller: &'a ToolCaller,
        call: &'a CallHandle,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>>;
}

/// Who uses a tool.
#[derive(Clone, Debug)]
pub enum ToolCaller {
    /// The turn that runs in a session of an agent. `tool_call`: the agent's own id of the tool call, if it names one.
    Session { session: SessionId, tool_call: Option<String> },
    /// An MCP client with a credential of the gateway.
    Client(Principal),
}

/// The same for every repetition of one tool call, so that no message is sent twice.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallKey(pub String);

/// Names a call towards the model that made it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallHandle(pub String);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallRequest {
    /// The name of a configured peer, or a URL if a setting allows URLs.
    pub peer: String,
    pub text: String,
    /// An earlier call whose context the new message continues.
    pub continues: Option<CallHandle>,
    /// How long to wait before the call is reported as still working.
    pub wait: std::time::Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnswerRequest {
    /// The ask that the text answers. `None`: the only one that is open.
    pub ask: Option<String>,
    pub text: String,
    /// How long to wait before the call is reported as still working.
    pub wait: std::time::Duration,
}

/// An agent that can be called, in short.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerSummary {
    pub name: String,
    pub description: String,
    /// Name and description of each skill.
    pub skills: Vec<(String, String)>,
    /// Why the agent cannot be called now.
    pub problem: Option<String>,
}

/// What is known of a call. All texts are bounded.
#[derive(Clone, PartialEq, Debug)]
pub struct CallReport {
    pub handle: CallHandle,
    pub peer: String,
    pub state: CallState,
    /// What the peer said. Another agent's words, and not to be trusted.
    pub text: String,
    /// What the peer handed over.
    pub artifacts: Vec<Artifact>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallState {
    Working,
    /// The peer waits until the caller answers this question.
    Asks {
        /// The ids of the asks that are open.
        asks: Vec<String>,
        question: String,
    },
    /// The peer waits until the user of the calling task answers this question. The caller may not.
    AsksUser {
        question: String,
    },
    Completed,
    Failed {
        reason: String,
    },
    Canceled,
    /// Whether the peer has the message, or how it ended, is not known.
    Unknown {
        reason: String,
    },
}

/// Where a running call reports what happens, in short lines. A full queue drops lines.
pub type Progress = mpsc::Sender<String>;

/// Why a tool refused. The text goes to the model: it says what was refused and what to do instead, without secrets and paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToolError(pub String);
