//! Decides whether a turn is over, and how it ended.

use longshore_model::Outcome;

use super::{Activity, Completeness, Process, Role, Step, Translator, Unanswered};
use crate::api::Fault;
use crate::outcome::{self, Ending, Newest, PromptTrace, Unread};

/// The number of consecutive answers without a finish reason at which the turn is aborted and fails. OpenCode calls the model again
/// after each such answer, without limit and without pause.
pub(crate) const RUNAWAY_LIMIT: usize = 5;

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Verdict {
    Running,
    /// The session is idle or failed, but the messages do not show how the turn ended. They must be read again.
    Unsettled,
    Over(Outcome),
}

/// The evidence that a prompt had an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Evidence {
    None,
    /// OpenCode reported an error, and there is no answer.
    Refused,
    /// There is an answer, complete or not.
    Began,
}

impl Translator {
    /// Decides whether the turn is over. An idle event alone proves nothing: when a step fails, OpenCode reports the session as
    /// idle twice, the first time before the message is final, and an idle event may belong to the previous turn.
    pub(crate) fn verdict(&self, aborted_by_gateway: bool) -> Verdict {
        match self.verdict_on_steps(aborted_by_gateway) {
            Verdict::Over(_) | Verdict::Unsettled if self.prompts.any_undecided() => Verdict::Running,
            Verdict::Over(_) if self.unanswered().is_some() => Verdict::Unsettled,
            Verdict::Over(outcome) if self.prompts.any_never_sent() => {
                Verdict::Over(outcome::with_unread(outcome, Unread::Joined, None))
            }
            verdict => verdict,
        }
    }

    /// A prompt that OpenCode has not answered: the newest prompt that joined the turn, or the turn's own prompt if only other
    /// prompts have answers.
    pub(crate) fn unanswered(&self) -> Option<Unanswered> {
        let answered = self.newest().map(|step| step.answers);
        let unanswered = self.prompts.unanswered(answered);
        // Once OpenCode answers another client's prompt, it never returns to the prompts of this turn. And if OpenCode cannot list
        // its messages, the first prompt may be among them although OpenCode does not show it.
        let is_hidden = |prompt: &Unanswered| self.is_list_unavailable && *prompt == Unanswered::First;
        unanswered.filter(|prompt| !self.superseded && !is_hidden(prompt))
    }

    /// Whether OpenCode reported an error that must be the refusal of a prompt, because exactly one prompt was sent and is not
    /// shown.
    pub(crate) fn is_refused(&self) -> bool {
        self.refusal().is_some() && self.prompts.exactly_one_lost()
    }

    fn refusal(&self) -> Option<&Fault> {
        let step_error = self.newest().and_then(|step| step.error.as_ref());
        let is_other =
            |fault: &&Fault| step_error.is_none_or(|error| error.data.message != fault.data.message);
        self.refusal.as_ref().filter(is_other)
    }

    /// The verdict that ignores the prompts that joined the turn.
    fn verdict_on_steps(&self, aborted_by_gateway: bool) -> Verdict {
        let over = || Verdict::Over(outcome::from_ending(&self.ending(aborted_by_gateway)));
        let Some(newest) = self.newest() else {
            return match &self.fault {
                _ if self.superseded => over(),
                // A busy session runs even after an error, because the error may concern a joining prompt.
                _ if self.activity == Activity::Busy => Verdict::Running,
                None if !self.is_idle() => Verdict::Running,
                _ => Verdict::Unsettled,
            };
        };
        let completed = newest.completed.is_some();
        let is_final = newest.error.is_some()
            || newest.finish.as_deref().is_some_and(|finish| !outcome::asks_for_another_step(finish));
        match self.activity {
            _ if completed && self.superseded => over(),
            // If events were missed and the messages cannot be listed, a step whose finish reason asks for another step may already
            // have been followed by one.
            Activity::IdleConfirmed if completed && (is_final || !self.is_blind()) => over(),
            Activity::Idle if completed && is_final => over(),
            Activity::Idle | Activity::IdleConfirmed => Verdict::Unsettled,
            // The turn runs even if the newest message is final, because OpenCode may compact the conversation and continue.
            Activity::Busy | Activity::Unknown => Verdict::Running,
        }
    }

    /// The outcome of a turn that must end now although its messages never showed an outcome.
    pub(crate) fn forced_outcome(&self, aborted_by_gateway: bool, accepted: bool) -> Outcome {
        if let Some(unanswered) = self.unanswered()
            && let Verdict::Over(outcome) = self.verdict_on_steps(aborted_by_gateway)
        {
            let which = if unanswered == Unanswered::First { Unread::First } else { Unread::Joined };
            return outcome::with_unread(outcome, which, self.refusal().filter(|_| self.is_refused()));
        }
        let trace = match self.prompts.first_created() {
            _ if self.is_blind() => PromptTrace::Unavailable,
            Some(_) => PromptTrace::Stored,
            None if accepted => PromptTrace::Accepted,
            None => PromptTrace::None,
        };
        outcome::unknown_outcome(&self.ending(aborted_by_gateway), trace)
    }

    /// Whether text may be missing: OpenCode wrote it, it never reached the gateway, and OpenCode lost it, because OpenCode stores
    /// a text only at its end. Must be called before [`Self::close`].
    pub(crate) fn may_lack_text(&self) -> bool {
        let is_cut_off =
            |step: &&Step| step.completed.is_none() || step.error.as_ref().is_some_and(outcome::is_abort);
        let mut cut_off = self.steps.iter().filter(is_cut_off);
        self.completeness != Completeness::Complete
            || cut_off.any(|step| self.blocks.any_incomplete_in(&step.id) || self.may_have_begun_a_text(step))
    }

    /// Whether OpenCode may have begun a text in this step, and was killed before any event of that text reached the gateway.
    /// `false` while a tool of the step runs, because OpenCode writes no text then.
    fn may_have_begun_a_text(&self, step: &Step) -> bool {
        let mut at_tools = self.blocks.unfinished_calls();
        step.completed.is_none() && step.unseen_since_gap && !at_tools.any(|message| message == step.id)
    }

    /// Whether events of the turn were missed and OpenCode cannot list its messages.
    fn is_blind(&self) -> bool {
        self.completeness == Completeness::Unavailable
    }

    pub(crate) fn evidence(&self) -> Evidence {
        match (self.steps.is_empty(), &self.fault) {
            (false, _) => Evidence::Began,
            (true, Some(_)) => Evidence::Refused,
            (true, None) => Evidence::None,
        }
    }

    /// Whether the model repeatedly answers without a finish reason.
    pub(crate) fn is_runaway(&self) -> bool {
        let endless = |step: &&Step| step.error.is_none() && step.finish.as_deref() == Some("unknown");
        // The newest step may be incomplete. Then it does not count.
        let complete = self.steps.iter().rev().skip_while(|step| step.completed.is_none());
        complete.take_while(endless).count() >= RUNAWAY_LIMIT
    }

    /// Whether OpenCode reports the session as busy.
    pub(crate) fn is_busy(&self) -> bool {
        self.activity == Activity::Busy
    }

    /// Whether the session is known to be idle.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.activity, Activity::Idle | Activity::IdleConfirmed)
    }

    /// Called when the OpenCode process that worked on the turn has ended, after the messages that the next process shows were
    /// merged.
    pub(crate) fn note_opencode_ended(&mut self) {
        self.process = Process::Ended;
    }

    pub(crate) fn has_opencode_ended(&self) -> bool {
        self.process == Process::Ended
    }

    /// How many answers the turn has so far.
    pub(crate) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Whether silence is expected: a tool runs, or OpenCode waits before a retry.
    pub(crate) fn may_be_silent(&self) -> bool {
        let runs = |message: &str| match self.messages.get(message) {
            Some(&Role::Step(at)) => self.steps[at].completed.is_none(),
            _ => false,
        };
        self.retrying || self.blocks.unfinished_calls().any(runs)
    }

    fn ending(&self, aborted_by_gateway: bool) -> Ending<'_> {
        let newest = self.newest().map(|step| Newest {
            finish: step.finish.as_deref(),
            fault: step.error.as_ref(),
            summary: step.summary,
            failed_tool: self.blocks.failed_tool(&step.id),
        });
        Ending {
            newest,
            session_fault: self.fault.as_ref(),
            superseded: self.superseded,
            aborted_by_gateway,
            opencode_ended: self.has_opencode_ended(),
        }
    }
}
