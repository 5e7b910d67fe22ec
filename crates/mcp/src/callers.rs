//! Who makes a tool call. A transport answers that, never the model.

use std::fmt::Debug;

use longshore_engine::port::BoxFuture;
use longshore_peers::{CallKey, ToolCaller, ToolError};
use serde_json::{Map, Value};

/// The field of `_meta` in which a client may name the key of a tool call. A client that repeats a call with the same key, because
/// it lost the response, makes the call once.
pub const CALL_KEY: &str = "longshore/call-key";

/// Tells who makes a tool call.
pub trait Callers: Send + Sync + Debug {
    /// May remove from the arguments what somebody other than the model added to them: what is left must be arguments of the tool.
    /// An error goes to the model.
    fn identify<'a>(
        &'a self,
        call: &'a mut IncomingCall,
    ) -> BoxFuture<'a, Result<(ToolCaller, CallKey), ToolError>>;
}

/// A tool call as it arrived.
#[derive(Clone, PartialEq, Debug)]
pub struct IncomingCall {
    pub tool: String,
    pub arguments: Map<String, Value>,
    /// The `_meta` of the request.
    pub meta: Map<String, Value>,
    /// The id of the JSON-RPC request, which is unique only on its connection.
    pub request_id: String,
}
