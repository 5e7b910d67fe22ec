//! The tools with which an agent or an MCP client calls A2A agents. `longshore-mcp` offers them over MCP.

use std::fmt::Debug;

use longshore_engine::port::BoxFuture;
use longshore_model::{Artifact, Principal, SessionId};
use tokio::sync::mpsc;

/// The operations behind the tools `a2a_*`. One implementation calls the configured peers for a session of an agent; another one
/// calls the gateway's own agent for an MCP client.
pub trait Tools: Send + Sync + Debug {
    /// The agents that the caller may call.
    fn discover<'a>(&'a self, caller: &'a ToolCaller) -> BoxFuture<'a, Result<Vec<PeerSummary>, ToolError>>;

    /// Sends a message to a peer and waits until the peer's task ends, the peer asks something, or `wait` of the request is over.
    /// If the key is that of an earlier call, sends nothing and waits for that call.
    fn call<'a>(
        &'a self,
        caller: &'a ToolCaller,
        key: &'a CallKey,
        request: CallRequest,
        progress: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>>;

    /// Reports on a call of the same caller. If `wait` is longer than zero, first waits like [`Tools::call`].
    fn status<'a>(
        &'a self,
        caller: &'a ToolCaller,
        call: &'a CallHandle,
        wait: std::time::Duration,
        progress: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>>;

    /// Answers the open ask of a peer, then waits like [`Tools::call`]. If the key is that of an earlier answer, sends nothing and
    /// waits for the call.
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

/// The caller of a tool.
#[derive(Clone, Debug)]
pub enum ToolCaller {
    /// The running turn of an agent's session. `tool_call`: the agent's own id of the tool call, if it names one.
    Session { session: SessionId, tool_call: Option<String> },
    /// An MCP client with a credential of the gateway.
    Client(Principal),
}

/// The idempotency key of a tool call: every repetition of the call has the same key, so that its message is sent once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallKey(pub String);

/// The id of a call for the model that made the call.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallHandle(pub String);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallRequest {
    /// The name of a configured peer, or a URL if a setting allows URLs.
    pub peer: String,
    pub text: String,
    /// An earlier call whose context this message continues. `None`: a new context.
    pub continues: Option<CallHandle>,
    /// How long to wait before the call is reported as still working.
    pub wait: std::time::Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnswerRequest {
    /// The id of the ask that the text answers. `None`: the only open ask.
    pub ask: Option<String>,
    pub text: String,
    /// How long to wait before the call is reported as still working.
    pub wait: std::time::Duration,
}

/// A short description of an agent that can be called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerSummary {
    pub name: String,
    pub description: String,
    /// Name and description of each skill.
    pub skills: Vec<(String, String)>,
    /// Why the agent cannot be called now. `None`: it can.
    pub problem: Option<String>,
}

/// The state and result of a call. All texts are bounded.
#[derive(Clone, PartialEq, Debug)]
pub struct CallReport {
    pub handle: CallHandle,
    pub peer: String,
    pub state: CallState,
    /// The text of the peer. It is untrusted, because another agent wrote it.
    pub text: String,
    /// The artifacts of the peer's result.
    pub artifacts: Vec<Artifact>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallState {
    Working,
    /// The peer waits until the caller answers this question.
    Asks {
        /// The ids of the open asks.
        asks: Vec<String>,
        question: String,
    },
    /// The peer waits until the user of the calling task answers this question. The model may not answer it.
    AsksUser {
        question: String,
    },
    Completed,
    Failed {
        reason: String,
    },
    Canceled,
    /// The gateway does not know whether the peer got the message, or how the call ended.
    Unknown {
        reason: String,
    },
}

/// The channel for the progress lines of a running call. When it is full, lines are dropped.
pub type Progress = mpsc::Sender<String>;

/// Why a tool refused. The text goes to the model: it says what was refused and what to do instead, without secrets or paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToolError(pub String);
