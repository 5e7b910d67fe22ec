//! The reasons why a request to the agent fails.

use std::fmt;
use std::time::Duration;

use longshore_model::{Error, ErrorKind, redact};

use crate::frame::RpcError;
use crate::schema::{AuthMethod, PROTOCOL_VERSION};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallError {
    /// The agent responded with an error.
    Rpc(RpcError),
    /// The agent requires a login first. Contains its login methods.
    AuthRequired(Vec<AuthMethod>),
    WrongVersion(Option<u64>),
    TimedOut {
        method: &'static str,
        after: Duration,
    },
    /// The response is longer than the limit for a line.
    TooLong {
        bytes: u64,
        most: usize,
    },
    /// The response cannot be parsed.
    Unreadable,
    /// The agent does not offer this method or capability.
    Unsupported(&'static str),
    /// The agent does not offer this choice. Contains the requested value and the choices.
    NoSuchChoice {
        what: &'static str,
        word: String,
        choices: Vec<String>,
    },
    /// This connection does not know the session.
    NoSession,
    /// Another prompt runs in the session.
    Busy,
    /// The agent does not read its input.
    Deaf,
    /// The connection is over. Contains the reason as a sentence.
    Closed(String),
}

impl CallError {
    pub(super) fn shut() -> Self {
        Self::Closed("The connection to the agent was closed.".to_owned())
    }

    pub fn is_method_absent(&self) -> bool {
        matches!(self, Self::Rpc(error) if error.code == RpcError::METHOD_NOT_FOUND)
            || matches!(self, Self::Unsupported(_))
    }

    /// Converts this into the engine's error. `what`: the failed action, such as `open a session`.
    pub fn into_error(self, what: &str) -> Error {
        let kind = match &self {
            Self::Rpc(error) if error.is_session_gone() => ErrorKind::SessionGone,
            Self::NoSession => ErrorKind::SessionGone,
            Self::Busy => ErrorKind::SessionBusy,
            Self::NoSuchChoice { .. } => ErrorKind::InvalidParams,
            Self::Unsupported(_) => ErrorKind::UnsupportedOperation,
            Self::Rpc(_) | Self::Unreadable | Self::TooLong { .. } => ErrorKind::InvalidAgentResponse,
            Self::AuthRequired(_)
            | Self::WrongVersion(_)
            | Self::TimedOut { .. }
            | Self::Deaf
            | Self::Closed(_) => ErrorKind::AgentUnavailable,
        };
        let error = Error::new(kind, format!("The agent could not {what}: {self}"));
        // Only a person can log in or install another version, so a retry does not help.
        match self {
            Self::AuthRequired(_) => error.permanent().mark_needs_credentials(),
            Self::WrongVersion(_) => error.permanent(),
            _ => error,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rpc(error) => {
                let text = redact::public(&error.text());
                if text.is_empty() {
                    write!(f, "it answered with error {}.", error.code)
                } else {
                    f.write_str(&text)
                }
            }
            Self::AuthRequired(methods) => {
                f.write_str("it wants a login first.")?;
                methods.iter().try_for_each(|method| write!(f, " {method}"))
            }
            Self::WrongVersion(version) => {
                let version = version.map_or("no version".to_owned(), |version| format!("version {version}"));
                write!(f, "it speaks {version} of ACP, and this gateway speaks version {PROTOCOL_VERSION}.")
            }
            Self::TimedOut { method, after } => {
                write!(f, "no answer to {method} within {} s.", after.as_secs())
            }
            Self::TooLong { bytes, most } => {
                write!(f, "its answer has {bytes} bytes in one line; {most} are allowed.")
            }
            Self::Unreadable => f.write_str("its answer cannot be read."),
            Self::Unsupported(what) => write!(f, "it does not offer {what}."),
            Self::NoSuchChoice { what, word, choices } => {
                let text = format!("there is no {what} `{word}`. Choose one of: {}.", choices.join(", "));
                f.write_str(&redact::cut(&text))
            }
            Self::NoSession => f.write_str("it does not know the session."),
            Self::Busy => f.write_str("another turn runs in the session."),
            Self::Deaf => f.write_str("it does not read its input."),
            Self::Closed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for CallError {}
