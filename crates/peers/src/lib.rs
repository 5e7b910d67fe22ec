//! Calls from the gateway's coding agent to other A2A agents, its peers.
//!
//! [`PeerCalls`] implements the tools ([`Tools`]) that `longshore-mcp` offers to the agent. Each call belongs to the turn of the
//! session that made it. [`CallingAgent`] wraps the agent of the engine. It knows which turns run, shows their calls on their
//! tasks, and passes the asks of peers to the callers of the tasks. When a turn ends, it cancels the turn's calls. A call is stored
//! before its message is sent, so that the call resumes after a restart.

mod agent;
mod ask;
mod audit;
mod call;
mod calls;
mod config;
mod context;
mod drive;
mod hops;
mod line;
mod place;
mod record;
mod remote;
mod show;
mod slots;
mod tools;
mod turns;

pub use agent::CallingAgent;
pub use audit::refused_unknown;
pub use calls::{PeerCalls, PeerParts};
pub use config::{CLIENT_LIMITS, CallLimits, InAll, Peer, PeersConfig, UrlRules};
pub use hops::{HopRules, Identity};
pub use line::one_line;
pub use tools::{
    AnswerRequest, CallHandle, CallKey, CallReport, CallRequest, CallState, PeerSummary, Progress,
    ToolCaller, ToolError, Tools,
};
