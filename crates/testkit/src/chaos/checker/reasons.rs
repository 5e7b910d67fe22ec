//! The reasons for which a task may fail: a closed list of the product's own texts, each with the facts that make it true.

use super::ends::TurnFacts;

/// A reason, identified by a part of its text. A gateway that saw the end of OpenCode's process says more than one that only found
/// its traces, so some reasons have two texts.
struct Reason {
    words: &'static [&'static str],
    /// For the report.
    name: &'static str,
    holds: fn(&TurnFacts) -> bool,
}

/// Every reason for which a storm may end a turn. Any other reason is false.
const REASONS: [Reason; 6] = [
    Reason {
        words: &["OpenCode stopped in the middle of the turn", "OpenCode ended in the middle of the turn"],
        name: "OpenCode was killed in the middle of the turn",
        holds: TurnFacts::is_one_killed,
    },
    Reason {
        words: &[
            "OpenCode has the prompt but never began to answer it",
            "OpenCode ended before it began to answer the prompt",
        ],
        name: "OpenCode was killed before it began to answer",
        holds: TurnFacts::is_first_killed,
    },
    Reason {
        words: &[
            "OpenCode took the prompt and shows no sign of it",
            "OpenCode ended before it had stored the prompt",
        ],
        name: "OpenCode was killed before it kept the prompt",
        holds: TurnFacts::is_first_killed,
    },
    Reason {
        words: &["It is not known whether OpenCode took the prompt"],
        name: "a death or a cut at the moment of the prompt: it is unknown whether OpenCode received it",
        holds: TurnFacts::is_first_in_doubt,
    },
    Reason {
        words: &["answered only what joined it"],
        name: "the same, and OpenCode answered only the messages that joined the turn",
        holds: |turn| turn.has_joined() && turn.is_first_in_doubt(),
    },
    // The real OpenCode's own text, in its session too.
    Reason {
        words: &["All fibers interrupted without error"],
        name: "OpenCode gave the prompt up when the connection that brought it was cut",
        holds: TurnFacts::is_first_given_up,
    },
];

/// The name of the reason of a failed task. `Err`: the reason is not in the list, or did not happen.
pub(super) fn check(text: &str, turn: &TurnFacts) -> Result<&'static str, String> {
    let reason = REASONS.iter().find(|reason| reason.words.iter().any(|words| text.contains(words)));
    let reason = reason.ok_or_else(|| format!("no storm makes a task fail with this reason: {text}"))?;
    if (reason.holds)(turn) {
        return Ok(reason.name);
    }
    Err(format!("the task failed with {text:?}, which did not happen: {turn:?}"))
}
