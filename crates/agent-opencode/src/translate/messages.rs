//! Decides which messages belong to the turn, and handles their parts.

use super::blocks::Source;
use super::{Completeness, MAX_HELD_PARTS, Role, Step, Translator, progress};
use crate::api::{Message, Part};
use crate::outcome;

impl Translator {
    /// Determines the role of a new message.
    pub(super) fn register(&mut self, info: &Message, source: Source) {
        if let Some(role) = self.messages.get(&info.id) {
            if let (&Role::Step(at), Source::Stream) = (role, source) {
                self.steps[at].unseen_since_gap = false;
            }
            return;
        }
        let role = if info.role == "user" {
            if self.prompts.note_stored(&info.id, info.time.created) {
                // If OpenCode now shows every prompt, the error was not a refusal.
                self.refusal = self.refusal.take().filter(|_| self.prompts.any_not_shown());
                Role::Prompt(info.time.created)
            } else if self.follows_a_summary(info) {
                self.continued += 1;
                Role::Prompt(info.time.created)
            } else {
                Role::OtherUser(info.time.created)
            }
        } else if let Some(answers) = self.answered_by(info) {
            self.prompts.note_answered(info.parent.as_deref().unwrap_or_default());
            if self.steps.is_empty() {
                // Many turns have exactly one step.
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
            // Only a newer answer to another prompt shows that OpenCode has moved on. An older answer belongs to the previous turn,
            // whose last changes may arrive late.
            let newest = self.newest().map(|step| step.created).or(self.prompt_created());
            self.superseded |= newest.is_some_and(|created| info.time.created > created);
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

    /// The creation time of the prompt that the message answers, if it is a prompt of this turn.
    fn answered_by(&self, info: &Message) -> Option<f64> {
        let parent = info.parent.as_ref()?;
        match self.messages.get(parent) {
            Some(&Role::Prompt(created)) => Some(created),
            // The event about the prompt was missed, so its creation time is unknown. The time of the answer is used instead.
            None if self.prompts.contains(parent) => Some(info.time.created),
            _ => None,
        }
    }

    /// Updates the step with the message's finish reason, error and completion.
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
            // An unfinished text in a complete message belongs to a failed attempt, unless the message was aborted.
            if !step.error.as_ref().is_some_and(outcome::is_abort) {
                self.blocks.withdraw_open(&info.id);
            }
        }
    }

    /// Whether the text of a message is output of the turn, or may become output because the role of the message is not known yet.
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
                if part.kind == "text" && !part.synthetic && self.prompts.join_written(&part.message, created)
                {
                    self.messages.insert(part.message, Role::Prompt(created));
                    return;
                }
                if part.kind == "text" && part.synthetic && self.follows_a_subtask(created) {
                    self.continued_subtasks += 1;
                    self.messages.insert(part.message, Role::Prompt(created));
                    return;
                }
                // Only a compaction that OpenCode itself started belongs to this turn. A compaction that a user requested, or that
                // belongs to a later turn, does not.
                let needed = part.kind == "compaction" && part.auto;
                if needed && self.prompt_created().is_some() && !self.superseded {
                    self.messages.insert(part.message, Role::Prompt(created));
                    // A compaction in the list is already over, or was reported before a restart of the gateway.
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
                    self.steps[at].unseen_since_gap = false;
                    let changed = self.progress.step(&part);
                    self.emit(changed);
                }
                if !self.steps[at].summary {
                    self.blocks.part(&part, source);
                }
            }
            // Answers to other prompts are not output of this turn.
            Some(_) => {}
        }
    }

    /// Whether OpenCode wrote this user message to continue the turn after it had summarized the conversation. Such a message says
    /// "continue", or is a copy of the prompt, which cannot be recognized as a copy. So the creation time decides: OpenCode writes
    /// the message after the summary is complete. A prompt that another client sent during the summary is older than that.
    fn follows_a_summary(&self, info: &Message) -> bool {
        let summaries = self.steps.iter().filter(|step| step.summary).count();
        let waits = self.continued < summaries && !self.superseded;
        let newest = self.newest().filter(|step| step.summary && waits);
        newest.and_then(|step| step.completed).is_some_and(|completed| info.time.created >= completed)
    }

    /// Whether OpenCode wrote this user message to continue after a sub-agent that a command called. OpenCode writes one synthetic
    /// message in this case, and answers it.
    fn follows_a_subtask(&self, created: f64) -> bool {
        let waits = self.continued_subtasks < self.subtasks.len() && !self.superseded;
        let is_called = |step: &&Step| step.finish.as_deref() == Some("tool-calls") && step.error.is_none();
        let newest = self.newest().filter(|step| waits && is_called(step));
        newest.and_then(|step| step.completed).is_some_and(|completed| created >= completed)
    }

    pub(super) fn newest(&self) -> Option<&Step> {
        // The last element may not be the newest: after a gap, older steps may be added from the message list.
        self.steps.iter().max_by(|a, b| a.created.total_cmp(&b.created))
    }
}
