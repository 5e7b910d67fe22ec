//! How a turn ended: the one table from OpenCode's words to an [`Outcome`].

mod unread;

use std::time::Duration;

use longshore_model::{Error, Failure, Json, Metadata, Outcome};
use serde_json::json;

pub(crate) use self::unread::{Unread, unread};

use crate::api::Fault;
use crate::redact;

/// The model's provider does not know OpenCode, or not with these credentials.
const UNAUTHORIZED: &str = "UPSTREAM_UNAUTHORIZED";

/// What helps then.
const TRY_AGAIN: &str =
    " Give OpenCode the credentials for it, then send a message on this task to try again.";

/// All that decides about the outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ending<'a> {
    /// The newest message that answers the prompt.
    pub(crate) newest: Option<Newest<'a>>,
    /// The session's last error, whether or not it ended the turn.
    pub(crate) session_fault: Option<&'a Fault>,
    /// Another prompt of the session was taken up.
    pub(crate) superseded: bool,
    /// The gateway asked OpenCode to stop.
    pub(crate) aborted_by_gateway: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Newest<'a> {
    pub(crate) finish: Option<&'a str>,
    pub(crate) fault: Option<&'a Fault>,
    /// It is OpenCode's own summary of the conversation.
    pub(crate) summary: bool,
    /// The name and the error of a tool call that failed in it.
    pub(crate) failed_tool: Option<(&'a str, &'a str)>,
}

/// What shows that a prompt arrived, when nothing shows how its turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PromptTrace {
    /// It is among the session's messages.
    Stored,
    /// OpenCode said that it took it, and it is not among the messages.
    Accepted,
    None,
    /// OpenCode does not show the messages, and not all events were heard.
    Hidden,
}

/// Finish reasons after which OpenCode makes another step, if it is not stopped.
pub(crate) fn asks_for_another_step(finish: &str) -> bool {
    matches!(finish, "tool-calls" | "unknown")
}

pub(crate) fn is_abort(fault: &Fault) -> bool {
    fault.name == "MessageAbortedError"
}

/// The outcome of a turn whose last message is final, or stays as it is because the session is idle.
pub(crate) fn of(ending: &Ending<'_>) -> Outcome {
    let Some(newest) = ending.newest else {
        return failed("OpenCode answered another prompt in this session instead of this one.");
    };
    if let Some(fault) = newest.fault {
        return from_fault(fault, ending.aborted_by_gateway);
    }
    match newest.finish {
        Some("stop") if newest.summary => {
            completed("OpenCode shortened the conversation to fit the model and did not go on.")
        }
        Some("stop") => Outcome::Completed { remark: None },
        Some("length") => completed("The reply was cut at the model's length limit."),
        Some("content-filter") => failed("The model's provider blocked the reply with its content filter."),
        Some("error") => failed("The model ended its reply with an error."),
        Some("tool-calls" | "unknown") | None if ending.aborted_by_gateway => stopped(true),
        Some("tool-calls") if ending.superseded => {
            failed("Another prompt in the same session made OpenCode drop the rest of this turn.")
        }
        Some("tool-calls") => match newest.failed_tool {
            Some((tool, error)) => failed(format!(
                "OpenCode ended the turn after the tool call '{tool}' failed: {}",
                redact::public(error)
            )),
            None => failed("OpenCode ended the turn after a tool call, without a reply."),
        },
        Some("unknown") => failed("The model's reply ended without a finish reason, so it may not be whole."),
        Some(other) => {
            completed(&format!("The model ended its reply for the reason '{}'.", redact::public(other)))
        }
        // Seen only when a turn is stopped in the pause before OpenCode tries a failed request again.
        None => stopped(false),
    }
}

/// The outcome of a turn that is over while its messages do not say how it ended.
pub(crate) fn unknown_fate(ending: &Ending<'_>, trace: PromptTrace) -> Outcome {
    match ending.newest.and_then(|newest| newest.fault).or(ending.session_fault) {
        Some(fault) => from_fault(fault, ending.aborted_by_gateway),
        None if ending.aborted_by_gateway => stopped(true),
        None if trace == PromptTrace::Hidden => failed(
            "OpenCode does not show the messages of this session, so it is not known how the turn ended. Look at the \
             session before you send the message again.",
        ),
        None if ending.newest.is_some() => failed(
            "OpenCode stopped in the middle of the turn, for instance because it was restarted. What it had done by \
             then is done; the prompt is not sent again.",
        ),
        None if trace == PromptTrace::Stored => failed(
            "OpenCode has the prompt but never began to answer it, for instance because it was restarted. The \
             prompt is not sent again.",
        ),
        None if trace == PromptTrace::Accepted => failed("OpenCode took the prompt and shows no sign of it."),
        None => failed(
            "It is not known whether OpenCode took the prompt; look at the session before you send it again.",
        ),
    }
}

/// The model answers again and again without an end, and the turn was aborted for it.
pub(crate) fn runaway() -> Outcome {
    failed(
        "The model's replies ended without a finish reason again and again, so the turn was stopped. The model's \
         provider may be at fault.",
    )
}

/// Nothing came from the model for so long that the turn was aborted.
pub(crate) fn silent(waited: Duration) -> Outcome {
    failed(format!(
        "Nothing came from the model for {} s, so the turn was stopped. What it had done by then is done. The model's \
         provider may be at fault; send the message again to try once more.",
        waited.as_secs()
    ))
}

/// Something else answers in OpenCode's place, or OpenCode does not let the gateway in, for too long.
pub(crate) fn invalid_responses(error: &Error, waited: Duration) -> Outcome {
    failed(format!(
        "{error} It has been so for {} s, so the turn is not followed any more, and how it ended is not known. Look at the \
         session before you send the message again.",
        waited.as_secs()
    ))
}

/// The model made so many steps that the turn was aborted.
pub(crate) fn endless(steps: usize) -> Outcome {
    failed(format!(
        "The model did not come to an end within the {steps} steps that this gateway allows for a turn, so the turn was \
         stopped. What it had done by then is done; send a message to let it go on."
    ))
}

/// The same for a sub-agent. Nobody can send it a message, so one that lacks credentials has failed.
pub(crate) fn for_sub_agent(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::AuthRequired(Failure { message, metadata }) => {
            let message = message.strip_suffix(TRY_AGAIN).unwrap_or(&message).to_owned();
            Outcome::Failed(Failure { message, metadata })
        }
        other => other,
    }
}

/// A sub-agent whose call failed before it did anything.
pub(crate) fn never_began(error: &str) -> Outcome {
    failed(format!("The sub-agent did not begin: {}", redact::public(error)))
}

/// A sub-agent that nobody waits for and that goes on when its turn is over.
pub(crate) fn child_left_running() -> Outcome {
    failed("The turn ended while this sub-agent still worked. What it does from then on is not told.")
}

/// The same, where OpenCode may have written text that nobody has.
pub(crate) fn lacking_text(outcome: Outcome) -> Outcome {
    const LOST: &str =
        " Text that OpenCode wrote and did not keep, while the gateway could not hear it, may be missing.";
    let told = match outcome {
        Outcome::Failed(Failure { message, metadata }) => {
            Outcome::Failed(Failure { message: message + LOST, metadata })
        }
        Outcome::Canceled { reason } => Outcome::Canceled { reason: reason + LOST },
        Outcome::Completed { remark } => {
            Outcome::Completed { remark: Some((remark.unwrap_or_default() + LOST).trim_start().to_owned()) }
        }
        // The one is prompted again, the other says so already.
        other @ (Outcome::AuthRequired(_) | Outcome::Lacking(_)) => return other,
    };
    Outcome::Lacking(Box::new(told))
}

/// OpenCode no longer has the session.
pub(crate) fn session_gone() -> Outcome {
    failed("OpenCode no longer knows this session. Start a new context.")
}

/// OpenCode refused the prompt with this status.
pub(crate) fn refused(status: u16, message: &str) -> Outcome {
    Outcome::Failed(Failure {
        message: format!("OpenCode refused the prompt (status {status}): {message}"),
        metadata: metadata(class(Some(status)), Some(status)),
    })
}

fn from_fault(fault: &Fault, aborted_by_gateway: bool) -> Outcome {
    if is_abort(fault) {
        return stopped(aborted_by_gateway);
    }
    let status = fault.data.status_code.and_then(status_number);
    let detail = fault.data.message.as_deref().map(redact::public).filter(|text| !text.is_empty());
    let (what, class) = match (fault.name.as_str(), status) {
        ("ContentFilterError", _) => {
            ("The model's provider blocked the reply with its content filter", "UPSTREAM_EXECUTION_ERROR")
        }
        ("ContextOverflowError", _) => {
            ("The conversation is too long for the model", "UPSTREAM_EXECUTION_ERROR")
        }
        ("MessageOutputLengthError", _) => {
            ("The reply is longer than the model may write", "UPSTREAM_EXECUTION_ERROR")
        }
        ("ProviderAuthError", _) => (sentence(401), UNAUTHORIZED),
        (_, Some(status)) => (sentence(status), self::class(Some(status))),
        (_, None) => ("OpenCode could not complete the turn", "UPSTREAM_EXECUTION_ERROR"),
    };
    let status_text = status.map(|status| format!(" (status {status})")).unwrap_or_default();
    let mut message = match detail {
        Some(detail) => format!("{what}{status_text}: {detail}"),
        None => format!("{what}{status_text}."),
    };
    if class != UNAUTHORIZED {
        return Outcome::Failed(Failure { message, metadata: metadata(class, status) });
    }
    if !message.ends_with(['.', '!', '?', '…']) {
        message.push('.');
    }
    message.push_str(TRY_AGAIN);
    Outcome::AuthRequired(Failure { message, metadata: metadata(class, status) })
}

/// What a provider's status means, in words.
fn sentence(status: u16) -> &'static str {
    match status {
        400 => "The model's provider did not accept the request",
        401 => "The model's provider refused OpenCode's credentials",
        403 => "The model's provider does not permit this request",
        404 => "The model's provider does not have what was asked for",
        429 => "The model's provider reports that its quota or rate limit is used up",
        402..=499 => "The model's provider refused the request",
        500..=599 => "The model's provider failed",
        _ => "The model's provider gave an unexpected answer",
    }
}

/// The error type in the metadata.
fn class(status: Option<u16>) -> &'static str {
    match status {
        Some(400) => "UPSTREAM_BAD_REQUEST",
        Some(401) => UNAUTHORIZED,
        Some(403) => "UPSTREAM_PERMISSION_DENIED",
        Some(404) => "UPSTREAM_RESOURCE_NOT_FOUND",
        Some(429) => "UPSTREAM_QUOTA_EXCEEDED",
        Some(402..=499) => "UPSTREAM_CLIENT_ERROR",
        Some(500..=599) => "UPSTREAM_SERVER_ERROR",
        Some(_) => "UPSTREAM_HTTP_ERROR",
        None => "UPSTREAM_EXECUTION_ERROR",
    }
}

fn metadata(class: &str, status: Option<u16>) -> Option<Metadata> {
    let mut error = json!({"type": class});
    if let Some(status) = status {
        error["upstream_status"] = status.into();
    }
    Metadata::try_from(Json::of(&json!({"opencode": {"error": error}}))).ok()
}

fn status_number(number: f64) -> Option<u16> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked, and a status has no fraction"
    )]
    (100.0..1000.0).contains(&number).then_some(number as u16)
}

fn completed(remark: &str) -> Outcome {
    Outcome::Completed { remark: Some(remark.to_owned()) }
}

fn failed(message: impl Into<String>) -> Outcome {
    Outcome::Failed(Failure::new(message))
}

fn stopped(by_us: bool) -> Outcome {
    let reason = if by_us { "The turn was stopped." } else { "The turn was stopped at OpenCode itself." };
    Outcome::Canceled { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests;
