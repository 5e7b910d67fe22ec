//! Calls from the gateway's coding agents to other A2A agents, its peers.

mod tools;

pub use tools::{
    CallHandle, CallKey, CallReport, CallRequest, CallState, PeerSummary, Progress, ToolCaller, ToolError,
    Tools,
};
