//! The error of a failed call: its gRPC status, and the A2A details in it.

use std::error::Error as _;

use hyper_util::client::legacy;
use prost::Message as _;
use tonic::{Code, Status};

use crate::rpc::{self, ErrorInfo, RetryInfo};

/// Describes how a call failed.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The number of the gRPC status.
    pub code: i32,
    pub message: String,
    /// The machine-readable reason, such as `TASK_NOT_FOUND`.
    pub reason: Option<String>,
    /// How long to wait before another attempt, if the agent says so.
    pub retry_after_seconds: Option<u64>,
    pub cause: Cause,
}

/// The point at which a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The agent refused the call.
    Agent,
    /// The client could not connect.
    Connect,
    /// The connection broke during the call.
    Transport,
    /// The request cannot be encoded as a message of the package.
    Input,
}

impl Refusal {
    pub(crate) fn of(status: &Status) -> Self {
        let details = rpc::Status::decode(status.details()).unwrap_or_default();
        let retry = details.detail::<RetryInfo>().and_then(|retry| retry.retry_delay);
        Self {
            code: status.code().into(),
            message: innermost(status),
            retry_after_seconds: retry.and_then(|delay| delay.seconds.try_into().ok()),
            reason: details.detail::<ErrorInfo>().map(|info| info.reason),
            cause: cause(status),
        }
    }

    pub(crate) fn input(error: &serde_json::Error) -> Self {
        Self::here(Cause::Input, error.to_string())
    }

    pub(crate) fn output(error: &serde_json::Error) -> Self {
        Self::here(Cause::Agent, format!("a message has no JSON: {error}"))
    }

    fn here(cause: Cause, message: String) -> Self {
        Self { code: Code::Internal.into(), message, reason: None, retry_after_seconds: None, cause }
    }
}

/// The cause of a status. A status that the agent sent has no source; only errors on this machine have one.
fn cause(status: &Status) -> Cause {
    let mut source = status.source();
    if source.is_none() {
        return Cause::Agent;
    }
    while let Some(error) = source {
        if error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect) {
            return Cause::Connect;
        }
        source = error.source();
    }
    Cause::Transport
}

/// The text of the innermost error, because it is the one that a person understands, such as "Connection refused".
fn innermost(status: &Status) -> String {
    let mut message = status.message().to_owned();
    let mut source = status.source();
    while let Some(error) = source {
        message = error.to_string();
        source = error.source();
    }
    message
}
