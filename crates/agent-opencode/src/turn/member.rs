//! One of those whose turn is followed: the agent, or a sub-agent. What was heard of it, and whether it is done.

use std::time::Duration;

use longshore_model::Outcome;
use tokio::time::Instant;

use crate::translate::{Evidence, Translator, Unanswered, Verdict};

/// Pauses between two readings of a session that is idle while its messages are not final: doubled from the first to
/// the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// How often such a session is read. OpenCode finishes a message 40 to 350 ms after it reports idle, later
/// when the repository is large; after these readings (7 s) nobody works on it any more.
const READINGS_OF_A_STOPPED_TURN: u32 = 8;

/// The same after an error that came before any answer (2 s): OpenCode refused the prompt.
const READINGS_OF_A_REFUSED_PROMPT: u32 = 5;

/// The same when there is no sign at all of a prompt that OpenCode has taken (30 s): in a new directory it first loads
/// providers and plugins.
const READINGS_OF_AN_ACCEPTED_PROMPT: u32 = 20;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) translator: Translator,
    /// OpenCode has said that it took the prompt, in this life of the gateway.
    pub(super) accepted: bool,
    /// OpenCode no longer has its session.
    pub(super) is_gone: bool,
    settling: Option<Settling>,
}

/// The session is idle or failed, and the messages do not show the end.
#[derive(Debug)]
struct Settling {
    readings: u32,
    pause: Duration,
    next: Instant,
}

impl Member {
    pub(super) fn new(translator: Translator, accepted: bool) -> Self {
        Self { translator, accepted, is_gone: false, settling: None }
    }

    /// When its messages are to be read again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.settling.as_ref().map(|settling| settling.next)
    }

    /// Its session is idle, or it failed, and it is not over yet.
    pub(super) fn is_idle_or_failed(&self) -> bool {
        self.settling.is_some() || self.translator.is_idle()
    }

    /// Its messages were read because they were due.
    pub(super) fn was_read(&mut self) {
        if let Some(settling) = &mut self.settling {
            settling.readings += 1;
            settling.next = Instant::now() + settling.pause;
            settling.pause = (settling.pause * 2).min(LAST_PAUSE);
        }
    }

    /// Asks whether its turn is over.
    pub(super) fn judge(&mut self, aborted_by_gateway: bool) -> Option<Outcome> {
        match self.translator.verdict(aborted_by_gateway) {
            Verdict::Over(outcome) => return Some(outcome),
            Verdict::Running => self.settling = None,
            Verdict::Unsettled => {
                let limit = self.most_readings();
                let settling = self.settling.get_or_insert_with(|| Settling {
                    readings: 0,
                    pause: FIRST_PAUSE * 2,
                    next: Instant::now() + FIRST_PAUSE,
                });
                if settling.readings >= limit {
                    return Some(self.forced_outcome(aborted_by_gateway));
                }
            }
        }
        None
    }

    /// How it ended, as far as is known.
    pub(super) fn forced_outcome(&self, aborted_by_gateway: bool) -> Outcome {
        self.translator.forced_outcome(aborted_by_gateway, self.accepted)
    }

    fn most_readings(&self) -> u32 {
        match (self.translator.unanswered(), self.translator.evidence()) {
            (Some(Unanswered::First | Unanswered::Accepted), _) if self.translator.is_refused() => {
                READINGS_OF_A_REFUSED_PROMPT
            }
            (Some(Unanswered::Accepted), _) => READINGS_OF_AN_ACCEPTED_PROMPT,
            (None, Evidence::Refused) => READINGS_OF_A_REFUSED_PROMPT,
            (Some(Unanswered::First), _) | (None, Evidence::None) if self.accepted => {
                READINGS_OF_AN_ACCEPTED_PROMPT
            }
            _ => READINGS_OF_A_STOPPED_TURN,
        }
    }
}
