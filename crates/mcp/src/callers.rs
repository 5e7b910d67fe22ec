//! Determines who makes a tool call. The transport decides this, never the model.

use std::fmt::Debug;

use longshore_engine::port::BoxFuture;
use longshore_peers::{CallKey, ToolCaller, ToolError};
use serde_json::{Map, Value};

/// The field of `_meta` in which a client may put an idempotency key for a tool call. A client that lost the response repeats the
/// call with the same key, and the call is made only once.
pub const CALL_KEY: &str = "longshore/call-key";

/// Determines who makes a tool call.
pub trait Callers: Send + Sync + Debug {
    /// Returns the caller and the key of the call. Removes from the arguments what the model did not write, such as the proof of a
    /// plugin, so that only arguments of the tool are left. An error goes to the model.
    fn identify<'a>(
        &'a self,
        call: &'a mut IncomingCall,
    ) -> BoxFuture<'a, Result<(ToolCaller, CallKey), ToolError>>;
}

/// A tool call as the client sent it.
#[derive(Clone, PartialEq, Debug)]
pub struct IncomingCall {
    pub tool: String,
    pub arguments: Map<String, Value>,
    /// The `_meta` of the request.
    pub meta: Map<String, Value>,
    /// The id of the JSON-RPC request, which is unique only on its connection.
    pub request_id: String,
}
