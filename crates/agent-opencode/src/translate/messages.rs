//! Which messages are of the turn, and what their parts are to it.

use super::blocks::Source;
use super::{Completeness, MAX_HELD_PARTS, Role, Step, Translator, progress};
use crate::api::{Message, Part};
use crate::outcome;

impl Translator {
    /// Notes what a message is to this turn.
    pub(super) fn register(&mut self, info: &Message, source: Source) {
        if let Some(role) = self.messages.get(&info.id) {
            if let (&Role::Step(at), Source::Stream) = (role, source) {
                self.steps[at].unseen_since_gap =false;
            }
            return;
        }
        let role = if info.role == "user" {
            if self.prompts.stored(&info.id, info.time.created) {
                // An error that came before was somebody else's.
                self.refusal = self.refusal.take().filter(|_| self.prompts.any_not_shown());
                Role::Prompt(info.time.created)
            } else if self.follows_a_summary(info) {
                self.continued += 1;
                Role::Prompt(info.time.created)
            } else {
                Role::OtherUser(info.time.created)
            }
        } else if let Some(answers) = self.answered_by(info) {
            self.prompts.answered(info.parent.as_deref().unwrap_or_default());
            if self.steps.is_empty() {
                // Many turns have one.
                self.steps.reserve_exact(1);
            }
            self.steps.push(Step {
                id: info.id.clone(),
                created: info.time.created,
                answers,
                finish: None,
                error: None,
                completed: None,
                summary: info.mode.as_deref() == Some("compaction"),
                unseen_since_gap: source == Source::List,
            });
            Role::Step(self.steps.len() - 1)
        } else {
            // An older one is of the turn before, whose last changes may come late.
            let ours = self.newest().map(|step| step.created).or(self.prompt_created());
            self.superseded |= ours.is_some_and(|created| info.time.created > created);
            Role::OtherAnswer
        };
        self.messages.insert(info.id.clone(), role);
        if !self.may_be_output(&info.id) {
            self.blocks.drop_held(&info.id);
        }
        if self.held_parts.iter().any(|part| part.message == info.id) {
            for part in std::mem::take(&mut self.held_parts) {
                self.part(part, Source::Stream);
            }
        }
    }

    /// When the message was written that this one answers, if it is one of ours.
    fn answered_by(&self, info: &Message) -> Option<f64> {
        let parent = info.parent.as_ref()?;
        match self.messages.get(parent) {
            Some(&Role::Prompt(created)) => Some(created),
            // Its own event was missed.
            None if self.prompts.contains(parent) => Some(info.time.created),
            _ => None,
        }
    }

    /// Takes over how far a message is.
    pub(super) fn advance(&mut self, info: &Message) {
        let Some(&Role::Step(at)) = self.messages.get(&info.id) else { return };
        self.ledger.message(info);
        let step = &mut self.steps[at];
        if info.finish.is_some() {
            step.finish.clone_from(&info.finish);
        }
        if info.error.is_some() {
            step.error.clone_from(&info.error);
        }
        if step.completed.is_none() && info.time.completed.is_some() {
            step.completed = info.time.completed;
            // A text without an end in a complete message is of an attempt that failed. Not so after an abort.
            if !step.error.as_ref().is_some_and(outcome::is_abort) {
                self.blocks.withdraw_open(&info.id);
            }
        }
    }

    /// Whether a message is, or may turn out to be, one whose text the caller sees.
    pub(super) fn may_be_output(&self, message: &str) -> bool {
        match self.messages.get(message) {
            None => true,
            Some(&Role::Step(at)) => !self.steps[at].summary,
            Some(Role::Prompt(_) | Role::OtherUser(_) | Role::OtherAnswer) => false,
        }
    }

    pub(super) fn part(&mut self, part: Part, source: Source) {
        match self.messages.get(&part.message) {
            None if self.held_parts.len() < MAX_HELD_PARTS => self.held_parts.push(part),
            None if self.completeness == Completeness::Unavailable => {}
            None => self.completeness = Completeness::Dropped,
            Some(&Role::OtherUser(created)) => {
                if part.kind == "text" && !part.synthetic && self.prompts.written(&part.message, created) {
                    self.messages.insert(part.message, Role::Prompt(created));
                    return;
                }
                if part.kind == "text" && part.synthetic && self.follows_a_subtask(created) {
                    self.reported += 1;
                    self.messages.insert(part.message, Role::Prompt(created));
                    return;
                }
                // A compaction that somebody asked for is no part of this turn, nor is one that a later turn needs.
                let needed = part.kind == "compaction" && part.auto;
                if needed && self.prompt_created().is_some() && !self.superseded {
                    self.messages.insert(part.message, Role::Prompt(created));
                    // What the list tells of is over, or was told before the gateway was restarted.
                    self.emit((source == Source::Stream).then(progress::compaction));
                }
            }
            Some(Role::Prompt(_)) => {
                if part.kind == "subtask" && part.command.is_some() {
                    self.subtasks.insert(part.id);
                }
            }
            Some(&Role::Step(at)) => {
                if part.kind == "step-finish" {
                    self.ledger.step(&part);
                }
                if source == Source::Stream {
                    self.steps[at].unseen_since_gap =false;
                    let news = self.progress.step(&part);
                    self.emit(news);
                }
                if !self.steps[at].summary {
                    self.blocks.part(&part, source);
                }
            }
            // What users wrote, and what was answered to others, is no output of this turn.
            Some(_) => {}
        }
    }

    /// After its summary OpenCode goes on with one user message: "continue", or the prompt once more. Nothing marks the
    /// latter. A prompt that somebody else sent in the meantime is older than the end of the summary.
    fn follows_a_summary(&self, info: &Message) -> bool {
        let summaries = self.steps.iter().filter(|step| step.summary).count();
        let waits = self.continued < summaries && !self.superseded;
        let newest = self.newest().filter(|step| step.summary && waits);
        newest.and_then(|step| step.completed).is_some_and(|completed| info.time.created >= completed)
    }

    /// After a sub-agent that was called for a command OpenCode goes on with one user message, all in words of its own, and
    /// answers that.
    fn follows_a_subtask(&self, created: f64) -> bool {
        let waits = self.reported < self.subtasks.len() && !self.superseded;
        let is_called = |step: &&Step| step.finish.as_deref() == Some("tool-calls") && step.error.is_none();
        let newest = self.newest().filter(|step| waits && is_called(step));
        newest.and_then(|step| step.completed).is_some_and(|completed| created >= completed)
    }

    pub(super) fn newest(&self) -> Option<&Step> {
        // Not simply the last: after a gap an older one may be read from the list.
        self.steps.iter().max_by(|a, b| a.created.total_cmp(&b.created))
    }
}
