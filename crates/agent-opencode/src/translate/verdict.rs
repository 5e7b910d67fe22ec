//! Whether a turn is over, and how it ended.

use longshore_model::{Failure, Outcome};

use super::{Activity, Heard, Role, Step, Translator, Unanswered};
use crate::outcome::{self, Ending, Newest, Trace};

/// So many answers in a row that end without a finish reason are a runaway: OpenCode asks the model again each
/// time, without limit and without pause. At the bound the turn is aborted and fails.
pub(crate) const RUNAWAY_LIMIT: usize = 5;

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Verdict {
    Running,
    /// The session is idle, or the run failed, but the messages do not show how the turn ended: read them again.
    Unsettled,
    Over(Outcome),
}

/// What there is to show that a prompt had any effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Evidence {
    None,
    /// An error, and no answer.
    Refused,
    /// An answer, whole or not.
    Began,
}

impl Translator {
    /// The rule for the end of a turn. An idle session alone proves nothing: idle comes twice around an error, the
    /// first time before the message is final, and the second one may be that of the turn before.
    pub(crate) fn verdict(&self, aborted_by_us: bool) -> Verdict {
        match self.verdict_on_steps(aborted_by_us) {
            Verdict::Over(_) | Verdict::Unsettled if self.prompts.is_undecided() => Verdict::Running,
            Verdict::Over(_) if self.unanswered().is_some() => Verdict::Unsettled,
            Verdict::Over(outcome) if self.prompts.one_was_never_sent() => Verdict::Over(unread(outcome)),
            verdict => verdict,
        }
    }

    /// The newest prompt that joined the turn, when there is no answer to it.
    pub(crate) fn unanswered(&self) -> Option<Unanswered> {
        // Where OpenCode answers somebody else by now, it will not come back to ours.
        let answered = self.newest().map(|step| step.answers);
        self.prompts.unanswered(answered).filter(|_| !self.superseded)
    }

    /// The verdict when nobody joined the turn.
    fn verdict_on_steps(&self, aborted_by_us: bool) -> Verdict {
        let idle = matches!(self.activity, Activity::Idle | Activity::IdleConfirmed);
        let over = || Verdict::Over(outcome::of(&self.ending(aborted_by_us)));
        let Some(newest) = self.newest() else {
            return match &self.fault {
                _ if self.superseded => over(),
                None if !idle => Verdict::Running,
                _ => Verdict::Unsettled,
            };
        };
        let completed = newest.completed.is_some();
        let is_final = newest.error.is_some()
            || newest.finish.as_deref().is_some_and(|finish| !outcome::asks_for_another_step(finish));
        match self.activity {
            _ if completed && self.superseded => over(),
            // Where events are missing and cannot be read, a step that asks for another may have had one.
            Activity::IdleConfirmed if completed && (is_final || !self.is_blind()) => over(),
            Activity::Idle if completed && is_final => over(),
            Activity::Idle | Activity::IdleConfirmed => Verdict::Unsettled,
            // Also with a final message: OpenCode may compact the conversation and go on.
            Activity::Busy | Activity::Unknown => Verdict::Running,
        }
    }

    /// The outcome when the messages never came to show one.
    pub(crate) fn last_word(&self, aborted_by_us: bool, accepted: bool) -> Outcome {
        if self.unanswered().is_some()
            && let Verdict::Over(outcome) = self.verdict_on_steps(aborted_by_us)
        {
            return unread(outcome);
        }
        let trace = match self.prompt_created() {
            _ if self.is_blind() => Trace::Hidden,
            Some(_) => Trace::Stored,
            None if accepted => Trace::Accepted,
            None => Trace::None,
        };
        outcome::unknown_fate(&self.ending(aborted_by_us), trace)
    }

    /// Something of the turn was missed, and OpenCode does not show it.
    fn is_blind(&self) -> bool {
        self.heard == Heard::Hidden
    }

    pub(crate) fn evidence(&self) -> Evidence {
        match (self.steps.is_empty(), &self.fault) {
            (false, _) => Evidence::Began,
            (true, Some(_)) => Evidence::Refused,
            (true, None) => Evidence::None,
        }
    }

    /// The model answers without a finish reason, again and again.
    pub(crate) fn is_runaway(&self) -> bool {
        let endless = |step: &&Step| step.error.is_none() && step.finish.as_deref() == Some("unknown");
        // The newest step may have begun already.
        let complete = self.steps.iter().rev().skip_while(|step| step.completed.is_none());
        complete.take_while(endless).count() >= RUNAWAY_LIMIT
    }

    /// OpenCode says that the session is busy.
    pub(crate) fn is_busy(&self) -> bool {
        self.activity == Activity::Busy
    }

    /// An error came since the session was last busy.
    pub(crate) fn has_fault(&self) -> bool {
        self.fault.is_some()
    }

    /// How many answers the turn has so far.
    pub(crate) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Whether there is a reason for OpenCode to be silent: a tool runs, or it waits before it tries again.
    pub(crate) fn may_be_silent(&self) -> bool {
        let runs = |message: &str| match self.messages.get(message) {
            Some(&Role::Step(at)) => self.steps[at].completed.is_none(),
            _ => false,
        };
        self.retrying || self.blocks.unfinished_calls().any(runs)
    }

    fn ending(&self, aborted_by_us: bool) -> Ending<'_> {
        let newest = self.newest().map(|step| Newest {
            finish: step.finish.as_deref(),
            fault: step.error.as_ref(),
            summary: step.summary,
            failed_tool: self.blocks.failed_tool(&step.id),
        });
        Ending { newest, session_fault: self.fault.as_ref(), superseded: self.superseded, aborted_by_us }
    }
}

/// A message that joined the turn has no answer of its own.
fn unread(outcome: Outcome) -> Outcome {
    const REMARK: &str = "A message that joined this turn may not have been read; look at the session before you send it \
                          again.";
    let with_remark = |text: String| format!("{text} {REMARK}");
    match outcome {
        Outcome::Completed { remark } => {
            Outcome::Completed { remark: Some(remark.map_or_else(|| REMARK.to_owned(), with_remark)) }
        }
        Outcome::Failed(failure) => {
            Outcome::Failed(Failure { message: with_remark(failure.message), ..failure })
        }
        other @ (Outcome::AuthRequired(_) | Outcome::Canceled { .. }) => other,
    }
}
