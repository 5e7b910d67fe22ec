//! The outcome of a turn.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use longshore_model::{Failure, Outcome, redact};

use crate::connection::Loss;
use crate::frame::RpcError;
use crate::schema::{AuthMethod, PromptAnswer};

/// The end of a turn.
#[derive(Clone, PartialEq, Debug)]
pub enum TurnEnd {
    /// The agent answered the prompt.
    Answered(PromptAnswer),
    /// The agent responded to the prompt with an error.
    Refused(RpcError),
    /// The agent requires a login first.
    AuthRequired,
    /// The connection to the agent ended before the response. Contains the reason as a sentence for callers.
    Lost(String),
}

/// The meaning of a stop reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meaning {
    Completed,
    /// The turn is completed, with a remark for the caller.
    Remark(&'static str),
    Failed(&'static str),
    AuthRequired,
    Stopped,
}

/// Every stop reason of the protocol, and those of older agents. [`outcome`] has the default for others.
const STOP_REASONS: &[(&str, Meaning)] = &[
    ("end_turn", Meaning::Completed),
    ("completed", Meaning::Completed),
    ("tool_choice", Meaning::Remark("The agent ended the turn after a tool call that was required of it.")),
    ("max_tokens", Meaning::Remark(CUT_OFF)),
    ("max_output_tokens", Meaning::Remark(CUT_OFF)),
    (
        "max_turn_requests",
        Meaning::Failed(
            "The agent did not come to an end within the model requests that it allows for a turn. What it had done by then \
             is done; send a message to let it go on.",
        ),
    ),
    (
        "refusal",
        Meaning::Failed(
            "The model refused to continue, or its provider blocked the reply with a content filter.",
        ),
    ),
    ("auth_required", Meaning::AuthRequired),
    ("cancelled", Meaning::Stopped),
    ("stopped", Meaning::Stopped),
];

const CUT_OFF: &str = "The reply ends here because it reached the model's length limit.";

const TRY_AGAIN: &str = "The agent has no valid credentials for its model. Log in to the agent, then send a message to this task.";

/// The outcome of a turn. `is_stopped`: whether the gateway asked the agent to stop. `methods`: the agent's login methods.
pub(super) fn outcome(end: &TurnEnd, is_stopped: bool, methods: &[AuthMethod]) -> Outcome {
    match end {
        TurnEnd::Answered(answer) => of_reason(answer.stop_reason.as_deref(), is_stopped, methods),
        TurnEnd::AuthRequired => auth_required(methods),
        // After a cancel, an agent may report the aborted model request as an error, or its process may end.
        TurnEnd::Refused(_) | TurnEnd::Lost(_) if is_stopped => stopped(true),
        TurnEnd::Refused(error) if error.is_session_busy() => failed(
            "The agent did not take the prompt, because it still works on an earlier turn of this session. The gateway stops that \
             turn; then send the message again.",
        ),
        TurnEnd::Refused(error) => {
            let why = redact::public(&error.text());
            failed(if why.is_empty() {
                format!("The agent could not complete the turn (error {}).", error.code)
            } else {
                format!("The agent could not complete the turn: {why}")
            })
        }
        TurnEnd::Lost(why) => lost(why),
    }
}

/// The outcome of a turn that the agent did not end.
pub fn lost(why: &str) -> Outcome {
    failed(format!(
        "{why} The turn did not end properly. What the agent had done by then is done; look at it before you send the \
         message again."
    ))
}

/// Notes in a turn's outcome why parts of the agent's output were lost, if any were.
pub(super) fn incomplete(outcome: Outcome, losses: &BTreeSet<Loss>) -> Outcome {
    const TOO_LONG: &str =
        "A piece of the agent's output is missing here, because it was too long for the gateway.";
    const NOT_READ: &str =
        "A piece of the agent's output is missing here, because the gateway could not store it in time.";
    let lost: Vec<&str> = losses
        .iter()
        .map(|loss| match loss {
            Loss::TooLong => TOO_LONG,
            Loss::NotRead => NOT_READ,
        })
        .collect();
    if lost.is_empty() {
        return outcome;
    }
    let lost = lost.join(" ");
    let outcome = match outcome {
        Outcome::Completed { remark } => {
            let remarks: Vec<&str> = remark.as_deref().into_iter().chain([lost.as_str()]).collect();
            Outcome::Completed { remark: Some(remarks.join(" ")) }
        }
        Outcome::Failed(failure) => {
            Outcome::Failed(Failure { message: format!("{} {lost}", failure.message), ..failure })
        }
        Outcome::Canceled { reason } => Outcome::Canceled { reason: format!("{reason} {lost}") },
        // After `AuthRequired` the turn continues with another prompt, and `Incomplete` contains the losses already.
        other @ (Outcome::AuthRequired(_) | Outcome::Incomplete(_)) => return other,
    };
    Outcome::Incomplete(Box::new(outcome))
}

fn of_reason(reason: Option<&str>, is_stopped: bool, methods: &[AuthMethod]) -> Outcome {
    let known = STOP_REASONS.iter().find(|(known, _)| Some(*known) == reason);
    match known.map(|(_, meaning)| *meaning) {
        Some(Meaning::Completed) => Outcome::Completed { remark: None },
        Some(Meaning::Remark(remark)) => Outcome::Completed { remark: Some(remark.to_owned()) },
        Some(Meaning::Failed(why)) => failed(why),
        Some(Meaning::AuthRequired) => auth_required(methods),
        Some(Meaning::Stopped) => stopped(is_stopped),
        None => Outcome::Completed {
            remark: Some(match reason {
                None => "The agent ended the turn and gave no reason.".to_owned(),
                Some(reason) => format!(
                    "The agent ended the turn for a reason that this gateway does not know: {}",
                    redact::public(reason)
                ),
            }),
        },
    }
}

fn auth_required(methods: &[AuthMethod]) -> Outcome {
    let mut text = TRY_AGAIN.to_owned();
    for method in methods {
        let _ = write!(text, " {method}");
    }
    Outcome::AuthRequired(Failure::new(text))
}

fn stopped(by_us: bool) -> Outcome {
    let reason = if by_us { "The turn was stopped." } else { "The agent itself stopped the turn." };
    Outcome::Canceled { reason: reason.to_owned() }
}

fn failed(message: impl Into<String>) -> Outcome {
    Outcome::Failed(Failure::new(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(reason: Option<&str>) -> TurnEnd {
        TurnEnd::Answered(PromptAnswer { stop_reason: reason.map(str::to_owned), usage: None })
    }

    fn word(outcome: &Outcome) -> &'static str {
        match outcome {
            Outcome::Completed { remark: None } => "completed",
            Outcome::Completed { remark: Some(_) } => "completed with a remark",
            Outcome::Failed(_) => "failed",
            Outcome::AuthRequired(_) => "auth required",
            Outcome::Canceled { .. } => "canceled",
            Outcome::Incomplete(_) => "incomplete",
        }
    }

    #[test]
    fn every_stop_reason_has_an_outcome() {
        for (reason, expected) in [
            (Some("end_turn"), "completed"),
            (Some("completed"), "completed"),
            (Some("tool_choice"), "completed with a remark"),
            (Some("max_tokens"), "completed with a remark"),
            (Some("max_output_tokens"), "completed with a remark"),
            (Some("max_turn_requests"), "failed"),
            (Some("refusal"), "failed"),
            (Some("auth_required"), "auth required"),
            (Some("cancelled"), "canceled"),
            (Some("stopped"), "canceled"),
            (Some("a new one"), "completed with a remark"),
            (None, "completed with a remark"),
        ] {
            assert_eq!(word(&outcome(&answered(reason), false, &[])), expected, "{reason:?}");
        }
    }

    #[test]
    fn errors_are_told_without_addresses_and_paths() {
        let error = |code, message: &str| {
            TurnEnd::Refused(RpcError { code, message: message.to_owned(), data: None })
        };
        let vibe = "Client error '400 Bad Request' for url 'http://127.0.0.1:4804/v1/chat/completions'";
        let Outcome::Failed(failure) = outcome(&error(-32603, vibe), false, &[]) else {
            panic!("not failed")
        };
        assert_eq!(
            failure.message,
            "The agent could not complete the turn: Client error '400 Bad Request' for url '<redacted-url>'"
        );
        let method = AuthMethod { id: "key".to_owned(), name: "API key".to_owned(), description: None };
        for end in [TurnEnd::AuthRequired, answered(Some("auth_required"))] {
            let Outcome::AuthRequired(why) = outcome(&end, false, std::slice::from_ref(&method)) else {
                panic!("no login required: {end:?}")
            };
            assert!(why.message.ends_with("to this task. Method `key`: API key."), "{}", why.message);
        }
        assert_eq!(word(&outcome(&error(-32603, "aborted"), true, &[])), "canceled");
        assert_eq!(word(&outcome(&TurnEnd::Lost("It ended.".to_owned()), false, &[])), "failed");
    }
}
