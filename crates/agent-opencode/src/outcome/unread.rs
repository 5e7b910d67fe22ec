//! Adds a remark to the outcome of a turn if OpenCode did not read one of the turn's messages.

use longshore_model::{Failure, Outcome};

use crate::api::Fault;
use crate::redact;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unread {
    /// The message that began the turn.
    First,
    Joined,
}

/// Adds the remark that one of the turn's messages has no answer. `refusal`: the error with which OpenCode refused the message, if
/// it is known.
pub(crate) fn with_unread(outcome: Outcome, which: Unread, refusal: Option<&Fault>) -> Outcome {
    let why = refusal.map(|fault| {
        let why = fault.data.message.as_deref().map(redact::public);
        why.filter(|why| !why.is_empty()).unwrap_or_else(|| "it gave no reason.".to_owned())
    });
    let remark = match (which, why) {
        (Unread::First, Some(why)) => format!(
            "OpenCode refused the message that began this turn, and answered only what joined it: {why}"
        ),
        (Unread::First, None) => {
            "OpenCode shows no sign of the message that began this turn, and answered only what \
                                  joined it; look at the session before you send it again."
                .to_owned()
        }
        (Unread::Joined, Some(why)) => {
            format!("A message that joined this turn was not read, because OpenCode refused it: {why}")
        }
        (Unread::Joined, None) => {
            "A message that joined this turn may not have been read; look at the session before \
                                   you send it again."
                .to_owned()
        }
    };
    let after = |text: String| format!("{text} {remark}");
    let failed = |failure: Failure| Failure { message: after(failure.message), ..failure };
    match outcome {
        Outcome::Completed { .. } if which == Unread::First => Outcome::Failed(Failure::new(remark)),
        Outcome::Completed { remark: None } => Outcome::Completed { remark: Some(remark) },
        Outcome::Completed { remark: Some(text) } => Outcome::Completed { remark: Some(after(text)) },
        Outcome::Failed(failure) => Outcome::Failed(failed(failure)),
        Outcome::AuthRequired(failure) => Outcome::AuthRequired(failed(failure)),
        Outcome::Canceled { reason } => Outcome::Canceled { reason: after(reason) },
        Outcome::Incomplete(outcome) => Outcome::Incomplete(Box::new(with_unread(*outcome, which, refusal))),
    }
}
