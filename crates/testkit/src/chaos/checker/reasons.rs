//! Why a task may have failed: a closed list of the product's own words, each with the facts that make it true.

use super::truth::Happened;

/// A reason, by the words that only it has.
struct Reason {
    words: &'static str,
    /// For the report.
    name: &'static str,
    holds: fn(&Happened) -> bool,
}

/// Everything that a storm may end a turn with. Whatever else a task fails for is untrue here.
const REASONS: [Reason; 6] = [
    Reason {
        words: "OpenCode stopped in the middle of the turn",
        name: "OpenCode was killed in the middle of the turn",
        holds: Happened::is_one_killed,
    },
    Reason {
        words: "OpenCode has the prompt but never began to answer it",
        name: "OpenCode was killed before it began to answer",
        holds: Happened::is_first_killed,
    },
    Reason {
        words: "OpenCode took the prompt and shows no sign of it",
        name: "OpenCode was killed before it kept the prompt",
        holds: Happened::is_first_killed,
    },
    Reason {
        words: "It is not known whether OpenCode took the prompt",
        name: "a death or a cut at the moment of the prompt: nobody knows whether it arrived",
        holds: Happened::is_first_in_doubt,
    },
    Reason {
        words: "answered only what joined it",
        name: "the same, and OpenCode answered only what joined the turn",
        holds: |happened| happened.has_joined() && happened.is_first_in_doubt(),
    },
    // The real one's own words, in its session too.
    Reason {
        words: "All fibers interrupted without error",
        name: "OpenCode gave the prompt up when the connection that brought it was cut",
        holds: Happened::is_first_given_up,
    },
];

/// The name of the reason of a task that failed. `Err`: it is none of these, or not what happened.
pub(super) fn check(told: &str, happened: &Happened) -> Result<&'static str, String> {
    let reason = REASONS.iter().find(|reason| told.contains(reason.words));
    let reason = reason.ok_or_else(|| format!("no storm makes a task fail so: {told}"))?;
    if (reason.holds)(happened) {
        return Ok(reason.name);
    }
    Err(format!("the task failed with {told:?}, and that did not happen: {happened:?}"))
}
