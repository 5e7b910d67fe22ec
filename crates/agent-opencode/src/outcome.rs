//! Converts OpenCode's reports about the end of a turn into an [`Outcome`]. All texts about the end of a turn are in this module.

mod unread;

use std::time::Duration;

use longshore_model::{Error, FailedCall, Failure, Json, Metadata, Outcome};
use serde_json::json;

pub(crate) use self::unread::{Unread, with_unread};
use crate::api::Fault;
use crate::redact;

/// The error type if the model's provider refused OpenCode's credentials.
const UNAUTHORIZED: &str = "UPSTREAM_UNAUTHORIZED";

const EXECUTION_ERROR: &str = "UPSTREAM_EXECUTION_ERROR";

/// The advice for [`UNAUTHORIZED`].
const TRY_AGAIN: &str =
    " Give OpenCode the credentials for it, then send a message on this task to try again.";

const ENDED_IN_THE_MIDDLE: &str = "OpenCode ended in the middle of the turn, and was started again. What it had done by then \
                                   is done; the prompt is not sent again.";

const ENDED_BEFORE_AN_ANSWER: &str = "OpenCode ended before it began to answer the prompt, and was started again. The prompt is \
                                      not sent again.";

const ENDED_BEFORE_THE_PROMPT: &str = "OpenCode ended before it had stored the prompt, and was started again. Nothing was done \
                                       for the prompt; send it again.";

/// The facts that decide the outcome of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ending<'a> {
    /// The newest message that answers the prompt. `None`: there is none.
    pub(crate) newest: Option<Newest<'a>>,
    /// The first error of the session since it last became busy. It may not have ended the turn.
    pub(crate) session_fault: Option<&'a Fault>,
    /// Whether OpenCode has begun to answer another prompt of the session.
    pub(crate) superseded: bool,
    /// Whether the gateway aborted the turn.
    pub(crate) aborted_by_gateway: bool,
    /// Whether the OpenCode process that worked on the turn has ended.
    pub(crate) opencode_ended: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Newest<'a> {
    pub(crate) finish: Option<&'a str>,
    pub(crate) fault: Option<&'a Fault>,
    /// Whether the message is OpenCode's own summary of the conversation.
    pub(crate) summary: bool,
    /// A failed tool call in the message.
    pub(crate) failed_tool: Option<FailedTool<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FailedTool<'a> {
    pub(crate) call: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) error: &'a str,
}

/// The evidence whether OpenCode received a prompt. Used if the messages do not show how the turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PromptTrace {
    /// The prompt is among the session's messages.
    Stored,
    /// OpenCode accepted the prompt, but the messages do not contain it.
    Accepted,
    None,
    /// OpenCode cannot list the messages, and some events were missed.
    Unavailable,
}

/// Whether OpenCode makes another step after this finish reason, unless it is stopped.
pub(crate) fn asks_for_another_step(finish: &str) -> bool {
    matches!(finish, "tool-calls" | "unknown")
}

pub(crate) fn is_abort(fault: &Fault) -> bool {
    fault.name == "MessageAbortedError"
}

/// The outcome of a turn whose newest message is final, or can no longer become final because the session is idle.
pub(crate) fn from_ending(ending: &Ending<'_>) -> Outcome {
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
        Some("tool-calls" | "unknown") | None if ending.opencode_ended => failed(ENDED_IN_THE_MIDDLE),
        Some("tool-calls") if ending.superseded => {
            failed("Another prompt in the same session made OpenCode drop the rest of this turn.")
        }
        Some("tool-calls") => match newest.failed_tool {
            Some(FailedTool { call, tool, error }) => {
                let error = redact::public(error);
                Outcome::Failed(Failure {
                    message: format!("OpenCode ended the turn after the tool call '{tool}' failed: {error}"),
                    metadata: None,
                    failed_call: Some(Box::new(FailedCall { call_id: call.to_owned(), error })),
                })
            }
            None => failed("OpenCode ended the turn after a tool call, without a reply."),
        },
        Some("unknown") => failed("The model's reply ended without a finish reason, so it may not be whole."),
        Some(other) => {
            completed(&format!("The model ended its reply for the reason '{}'.", redact::public(other)))
        }
        // This happens only when a turn is stopped in the pause before OpenCode retries a failed request.
        None => stopped(false),
    }
}

/// The outcome of a turn that is over although its messages do not show how it ended.
pub(crate) fn unknown_outcome(ending: &Ending<'_>, trace: PromptTrace) -> Outcome {
    match ending.newest.and_then(|newest| newest.fault).or(ending.session_fault) {
        Some(fault) => from_fault(fault, ending.aborted_by_gateway),
        None if ending.aborted_by_gateway => stopped(true),
        None if ending.opencode_ended && trace != PromptTrace::Unavailable => {
            failed(match (ending.newest, trace) {
                (Some(_), _) => ENDED_IN_THE_MIDDLE,
                (None, PromptTrace::Stored) => ENDED_BEFORE_AN_ANSWER,
                (None, _) => ENDED_BEFORE_THE_PROMPT,
            })
        }
        None if trace == PromptTrace::Unavailable => failed(
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

/// The outcome of a turn that was aborted because no answer of the model had a finish reason.
pub(crate) fn runaway() -> Outcome {
    failed(
        "The model's replies ended without a finish reason again and again, so the turn was stopped. The model's \
         provider may be at fault.",
    )
}

/// The outcome of a turn that was aborted because the model was silent for too long.
pub(crate) fn silent(waited: Duration) -> Outcome {
    failed(format!(
        "Nothing came from the model for {} s, so the turn was stopped. What it had done by then is done. The model's \
         provider may be at fault; send the message again to try once more.",
        waited.as_secs()
    ))
}

/// The outcome of a turn that got only invalid responses for too long. Either another program responds at OpenCode's address, or
/// OpenCode rejects the gateway's password.
pub(crate) fn invalid_responses(error: &Error, waited: Duration) -> Outcome {
    failed(format!(
        "{error} It has been so for {} s, so the turn is not followed any more, and how it ended is not known. Look at the \
         session before you send the message again.",
        waited.as_secs()
    ))
}

/// The outcome of a turn that was aborted because the model made too many steps.
pub(crate) fn endless(steps: usize) -> Outcome {
    failed(format!(
        "The model did not come to an end within the {steps} steps that this gateway allows for a turn, so the turn was \
         stopped. What it had done by then is done; send a message to let it go on."
    ))
}

/// Converts an outcome for a sub-agent. `AuthRequired` becomes a failure, because no client can continue a sub-agent with a
/// message.
pub(crate) fn for_sub_agent(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::AuthRequired(failure) => {
            let message = failure.message.strip_suffix(TRY_AGAIN).unwrap_or(&failure.message).to_owned();
            Outcome::Failed(Failure { message, ..failure })
        }
        other => other,
    }
}

/// The outcome of a sub-agent whose call failed before the sub-agent did anything.
pub(crate) fn never_began(error: &str) -> Outcome {
    failed(format!("The sub-agent did not begin: {}", redact::public(error)))
}

/// The outcome of a sub-agent that still runs when the turn is over. No agent waits for it any more.
pub(crate) fn child_left_running() -> Outcome {
    failed("The turn ended while this sub-agent still worked. What it does from then on is not reported.")
}

/// Adds a remark that text may be missing: OpenCode wrote it but did not store it, and it did not reach the gateway.
pub(crate) fn lacking_text(outcome: Outcome) -> Outcome {
    const LOST: &str =
        " Text that OpenCode wrote and did not keep, while the gateway could not hear it, may be missing.";
    let outcome = match outcome {
        Outcome::Failed(failure) => Outcome::Failed(Failure { message: failure.message + LOST, ..failure }),
        Outcome::Canceled { reason } => Outcome::Canceled { reason: reason + LOST },
        Outcome::Completed { remark } => {
            Outcome::Completed { remark: Some((remark.unwrap_or_default() + LOST).trim_start().to_owned()) }
        }
        // `AuthRequired` gets no remark because the task will be prompted again. `Incomplete` already has the remark.
        other @ (Outcome::AuthRequired(_) | Outcome::Incomplete(_)) => return other,
    };
    Outcome::Incomplete(Box::new(outcome))
}

/// The outcome if OpenCode no longer has the session.
pub(crate) fn session_gone() -> Outcome {
    failed("OpenCode no longer knows this session. Start a new context.")
}

/// The outcome if OpenCode refused the prompt with this status.
pub(crate) fn refused(status: u16, message: &str) -> Outcome {
    Outcome::Failed(Failure {
        metadata: metadata(by_status(status).0, Some(status)),
        ..Failure::new(format!("OpenCode refused the prompt (status {status}): {message}"))
    })
}

fn from_fault(fault: &Fault, aborted_by_gateway: bool) -> Outcome {
    if is_abort(fault) {
        return stopped(aborted_by_gateway);
    }
    let status = fault.data.status_code.and_then(status_number);
    let detail = fault.data.message.as_deref().map(redact::public).filter(|text| !text.is_empty());
    let (class, what) = match (fault.name.as_str(), status) {
        ("ContentFilterError", _) => {
            (EXECUTION_ERROR, "The model's provider blocked the reply with its content filter")
        }
        ("ContextOverflowError", _) => (EXECUTION_ERROR, "The conversation is too long for the model"),
        ("MessageOutputLengthError", _) => (EXECUTION_ERROR, "The reply is longer than the model may write"),
        ("ProviderAuthError", _) => by_status(401),
        (_, Some(status)) => by_status(status),
        (_, None) => (EXECUTION_ERROR, "OpenCode could not complete the turn"),
    };
    let status_text = status.map(|status| format!(" (status {status})")).unwrap_or_default();
    let mut message = match detail {
        Some(detail) => format!("{what}{status_text}: {detail}"),
        None => format!("{what}{status_text}."),
    };
    if class != UNAUTHORIZED {
        return Outcome::Failed(Failure { metadata: metadata(class, status), ..Failure::new(message) });
    }
    if !message.ends_with(['.', '!', '?', '…']) {
        message.push('.');
    }
    message.push_str(TRY_AGAIN);
    Outcome::AuthRequired(Failure { metadata: metadata(class, status), ..Failure::new(message) })
}

/// The error type in the metadata, and the meaning of a status of the model's provider.
fn by_status(status: u16) -> (&'static str, &'static str) {
    match status {
        400 => ("UPSTREAM_BAD_REQUEST", "The model's provider did not accept the request"),
        401 => (UNAUTHORIZED, "The model's provider refused OpenCode's credentials"),
        403 => ("UPSTREAM_PERMISSION_DENIED", "The model's provider does not permit this request"),
        404 => ("UPSTREAM_RESOURCE_NOT_FOUND", "The model's provider does not have what was asked for"),
        429 => {
            let meaning = "The model's provider reports that its quota or rate limit is used up";
            ("UPSTREAM_QUOTA_EXCEEDED", meaning)
        }
        402..=499 => ("UPSTREAM_CLIENT_ERROR", "The model's provider refused the request"),
        500..=599 => ("UPSTREAM_SERVER_ERROR", "The model's provider failed"),
        _ => ("UPSTREAM_HTTP_ERROR", "The model's provider gave an unexpected answer"),
    }
}

fn metadata(class: &str, status: Option<u16>) -> Option<Metadata> {
    let mut error = json!({"type": class});
    if let Some(status) = status {
        error["upstream_status"] = status.into();
    }
    Metadata::try_from(Json::from_value(&json!({"opencode": {"error": error}}))).ok()
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
