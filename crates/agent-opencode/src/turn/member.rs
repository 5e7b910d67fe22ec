//! One member of a turn's session tree: the agent or a sub-agent. It has its own translator, and decides when it is done.

use std::time::Duration;

use longshore_model::Outcome;
use tokio::time::Instant;

use crate::translate::{Evidence, Translator, Unanswered, Verdict};

/// The first and the longest pause between two reads of a session that is idle while its messages are not final. The pause doubles
/// each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// The maximum number of reads of a session that is idle while its messages are not final. OpenCode finishes a message 40 to 350 ms
/// after it reports idle, and later in a large repository. These reads take 7 s in total, after which OpenCode certainly does not
/// work on the message any more.
const READS_OF_STOPPED_TURN: u32 = 8;

/// The maximum number of such reads if OpenCode refused the prompt: an error came before any answer. They take 2 s in total.
const READS_OF_REFUSED_PROMPT: u32 = 5;

/// The maximum number of such reads if OpenCode accepted a prompt but shows no sign of it. They take 30 s in total, because in a
/// new directory OpenCode first loads providers and plugins.
const READS_OF_ACCEPTED_PROMPT: u32 = 20;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) translator: Translator,
    /// Whether OpenCode confirmed the prompt to this gateway process. False after a restart of the gateway.
    pub(super) accepted: bool,
    /// Whether OpenCode no longer has the session.
    pub(super) is_gone: bool,
    settling: Option<Settling>,
}

/// The repeated reads of a session that is idle or failed although its messages do not show the end.
#[derive(Debug)]
struct Settling {
    reads: u32,
    pause: Duration,
    next: Instant,
}

impl Member {
    pub(super) fn new(translator: Translator, accepted: bool) -> Self {
        Self { translator, accepted, is_gone: false, settling: None }
    }

    /// When the messages must be read again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.settling.as_ref().map(|settling| settling.next)
    }

    /// Whether the session is idle or failed while the turn is not over yet.
    pub(super) fn is_idle_or_failed(&self) -> bool {
        self.settling.is_some() || self.translator.is_idle()
    }

    /// Called when the messages are read because a read was due. Schedules the next read.
    pub(super) fn was_read(&mut self) {
        if let Some(settling) = &mut self.settling {
            settling.reads += 1;
            settling.next = Instant::now() + settling.pause;
            settling.pause = (settling.pause * 2).min(LAST_PAUSE);
        }
    }

    /// Checks whether the turn is over.
    pub(super) fn check_end(&mut self, aborted_by_gateway: bool) -> Option<Outcome> {
        match self.translator.verdict(aborted_by_gateway) {
            Verdict::Over(outcome) => return Some(outcome),
            Verdict::Running => self.settling = None,
            Verdict::Unsettled => {
                let limit = self.max_reads();
                let settling = self.settling.get_or_insert_with(|| Settling {
                    reads: 0,
                    pause: FIRST_PAUSE * 2,
                    next: Instant::now() + FIRST_PAUSE,
                });
                if settling.reads >= limit {
                    return Some(self.forced_outcome(aborted_by_gateway));
                }
            }
        }
        None
    }

    /// The outcome of a turn that must end now although its messages never showed an outcome.
    pub(super) fn forced_outcome(&self, aborted_by_gateway: bool) -> Outcome {
        self.translator.forced_outcome(aborted_by_gateway, self.accepted)
    }

    fn max_reads(&self) -> u32 {
        if self.translator.has_opencode_ended() {
            // OpenCode was restarted, so the messages that the new process shows no longer change.
            return 0;
        }
        match (self.translator.unanswered(), self.translator.evidence()) {
            (Some(Unanswered::First | Unanswered::Accepted), _) if self.translator.is_refused() => {
                READS_OF_REFUSED_PROMPT
            }
            (Some(Unanswered::Accepted), _) => READS_OF_ACCEPTED_PROMPT,
            (None, Evidence::Refused) => READS_OF_REFUSED_PROMPT,
            (Some(Unanswered::First), _) | (None, Evidence::None) if self.accepted => {
                READS_OF_ACCEPTED_PROMPT
            }
            _ => READS_OF_STOPPED_TURN,
        }
    }
}
