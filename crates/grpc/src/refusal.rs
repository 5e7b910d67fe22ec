//! Why a call failed: the status of gRPC, and the details of A2A in it.

use std::error::Error as _;

use hyper_util::client::legacy;
use prost::Message as _;
use tonic::{Code, Status};

use crate::rpc::{self, ErrorInfo, RetryInfo};

/// How a call failed.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The number of the gRPC status.
    pub code: i32,
    pub message: String,
    /// The word for programs, such as `TASK_NOT_FOUND`.
    pub reason: Option<String>,
    /// The agent names how long to wait.
    pub retry_after_seconds: Option<u64>,
    pub cause: Cause,
}

/// Where a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The agent refused it.
    Agent,
    /// There was no connection.
    Connect,
    /// The connection broke.
    Transport,
    /// The request cannot be written as a message of the package.
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

/// A status of the agent has no source: only errors of this machine have one.
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

/// The innermost cause is the one that a person understands, such as "Connection refused".
fn innermost(status: &Status) -> String {
    let mut message = status.message().to_owned();
    let mut source = status.source();
    while let Some(error) = source {
        message = error.to_string();
        source = error.source();
    }
    message
}
