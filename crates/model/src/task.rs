//! Tasks, their states, and how a task is folded from its events.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::artifact::{Artifact, ArtifactUpdate};
use crate::event::{StatusUpdate, TaskEvent};
use crate::id::{ContextId, SessionId, TaskId};
use crate::interrupt::PermissionReply;
use crate::json::Metadata;
use crate::message::Message;
use crate::named_enum::named_enum;
use crate::notes::{InterruptNote, InterruptPhase, Notes, SessionNote, Usage};
use crate::options::TaskOptions;
use crate::part::Part;
use crate::time::Timestamp;

named_enum! {
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum TaskState {
        /// The task is durable and waits for its turn.
        Submitted = "submitted",
        Working = "working",
        /// The agent waits for the answer to an ask.
        InputRequired = "input_required",
        /// The agent needs credentials.
        AuthRequired = "auth_required",
        Completed = "completed",
        Failed = "failed",
        Canceled = "canceled",
        Rejected = "rejected",
    }
    /// The name in the store and in logs.
    fn as_str
}

impl TaskState {
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// Whether the task waits for a user or an operator.
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// Whether a blocking send returns in this state.
    pub fn is_settled(self) -> bool {
        self.is_terminal() || self.is_interrupted()
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TaskStatus {
    pub state: TaskState,
    /// When the task entered this state. Always set, because lists are sorted by it.
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
}

/// Links the task of a sub-agent to the tasks above it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Parent {
    /// The root task, whose message started the work.
    pub root: TaskId,
    /// The task whose agent called the sub-agent.
    pub task: TaskId,
    /// The tool call that called the sub-agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The depth below the root task: 1 for a sub-agent that the root's agent called.
    pub depth: u32,
    /// The sub-agent's own session.
    pub session: SessionId,
    /// The type of the sub-agent, such as `general`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The model of the sub-agent, as `provider/model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A task: one turn of an agent, folded from the task's log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Task {
    pub id: TaskId,
    pub context_id: ContextId,
    pub status: TaskStatus,
    /// The artifacts in the order of their first events.
    pub artifacts: Vec<Artifact>,
    /// The messages, oldest first.
    pub history: Vec<Message>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionNote>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The open asks, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_asks: Vec<InterruptNote>,
    /// The asks that the gateway rejected at their deadline in this turn, oldest first. Kept because the agent reports such a
    /// rejection as one by a user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expired_asks: Vec<InterruptNote>,
    #[serde(rename = "terms", default, skip_serializing_if = "TaskOptions::is_empty")]
    pub options: Box<TaskOptions>,
    /// The parent, if this is the task of a sub-agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<Parent>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// How many expired asks of a turn are remembered. Beyond that the oldest are forgotten. Most turns end after the first one.
const MAX_EXPIRED: usize = 64;

impl Task {
    /// Creates the task from its first event. `None`: the event cannot be a first one.
    pub fn begin(id: TaskId, first: &TaskEvent) -> Option<Self> {
        let TaskEvent::Submitted { context_id, message, at, options, parent } = first else { return None };
        Some(Self {
            id,
            context_id: context_id.clone(),
            status: TaskStatus { state: TaskState::Submitted, at: *at, message: None },
            artifacts: Vec::new(),
            history: vec![message.clone()],
            session: None,
            usage: None,
            open_asks: Vec::new(),
            expired_asks: Vec::new(),
            options: options.clone(),
            parent: parent.clone(),
            metadata: None,
        })
    }

    /// Folds one more event into the task.
    pub fn apply(&mut self, event: &TaskEvent) {
        match event {
            // Already applied by `begin`, because it is always the first event.
            TaskEvent::Submitted { .. } => {}
            TaskEvent::Status(update) => self.apply_status(update),
            TaskEvent::Artifact(update) => self.apply_artifact(update),
        }
    }

    pub fn artifact(&self, id: &str) -> Option<&Artifact> {
        // Searched from the end, because the growing block is nearly always the newest.
        self.artifacts.iter().rev().find(|artifact| artifact.id.as_str() == id)
    }

    /// The approximate number of bytes in the task.
    pub fn weight(&self) -> usize {
        let messages = self.history.iter().chain(&self.status.message).map(Message::weight).sum::<usize>();
        let parts = self.artifacts.iter().flat_map(|artifact| &artifact.parts);
        messages + parts.map(Part::weight).sum::<usize>() + self.options.weight()
    }

    fn apply_status(&mut self, update: &StatusUpdate) {
        self.status = update.status.clone();
        self.history.extend(update.joined.clone());
        if let Some(withdrawn) = &update.withdrawn {
            // Removes the newest message with that id, because a client may have used the id before.
            if let Some(index) = self.history.iter().rposition(|message| message.id == *withdrawn) {
                self.history.remove(index);
            }
        }
        if let Some(prompt) = &update.prompt {
            self.options.prompt = prompt.as_ref().clone();
        }
        let Notes { session, usage, interrupt, sub_agent_model, progress: _ } = &update.notes;
        self.session = session.clone().or(self.session.take());
        self.usage = usage.or(self.usage);
        if let Some((parent, model)) = self.parent.as_mut().zip(sub_agent_model.as_ref()) {
            parent.model = Some(model.clone());
        }
        if let Some(note) = interrupt {
            self.open_asks.retain(|open| open.request_id != note.request_id);
            if note.phase == InterruptPhase::Asked {
                self.open_asks.push(note.clone());
            }
            if note.expired.as_ref().is_some_and(|expired| expired.answer == PermissionReply::Reject) {
                if self.expired_asks.len() >= MAX_EXPIRED {
                    self.expired_asks.remove(0);
                }
                self.expired_asks.push(note.clone());
            }
        }
        if update.status.state.is_terminal() {
            self.open_asks.clear();
            self.expired_asks.clear();
        }
    }

    fn apply_artifact(&mut self, update: &ArtifactUpdate) {
        let known = self.artifacts.iter_mut().rev().find(|artifact| artifact.id == update.artifact.id);
        match known {
            None => {
                if self.artifacts.is_empty() {
                    // Many tasks have exactly one artifact, and thousands of tasks may be live.
                    self.artifacts.reserve_exact(1);
                }
                self.artifacts.push(update.artifact.clone());
            }
            Some(artifact) if update.append => {
                for part in &update.artifact.parts {
                    let joined = artifact.parts.last_mut().is_some_and(|last| last.try_join(part));
                    if !joined {
                        artifact.parts.push(part.clone());
                    }
                }
            }
            Some(artifact) => *artifact = update.artifact.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ArtifactId, MessageId};
    use crate::message::Role;

    fn task() -> Task {
        let message = Message::new(MessageId::parse("m").unwrap(), Role::User, vec![Part::text("hi")]);
        let first = TaskEvent::submitted(ContextId::parse("c").unwrap(), message, Timestamp(1));
        Task::begin(TaskId::parse("t").unwrap(), &first).unwrap()
    }

    fn chunk(id: &str, text: &str, append: bool) -> TaskEvent {
        TaskEvent::Artifact(ArtifactUpdate {
            artifact: Artifact {
                id: ArtifactId::parse(id).unwrap(),
                kind: crate::artifact::BlockKind::Text,
                source_message: None,
                name: None,
                description: None,
                parts: vec![Part::text(text)],
                extensions: Vec::new(),
                metadata: None,
            },
            append,
            last_chunk: false,
            metadata: None,
        })
    }

    #[test]
    fn text_chunks_of_one_block_fold_into_one_part() {
        let mut task = task();
        for event in [chunk("a", "one ", false), chunk("b", "x", false), chunk("a", "two", true)] {
            task.apply(&event);
        }
        assert_eq!(task.artifacts.len(), 2);
        assert_eq!(task.artifact("a").unwrap().parts, [Part::text("one two")]);
    }

    #[test]
    fn an_update_without_append_replaces_the_artifact() {
        let mut task = task();
        task.apply(&chunk("a", "half a", false));
        task.apply(&chunk("a", "", false));
        assert_eq!(task.artifact("a").unwrap().parts, [Part::text("")]);
    }

    #[test]
    fn the_newest_status_wins() {
        let mut task = task();
        let status = TaskStatus { state: TaskState::Working, at: Timestamp(2), message: None };
        task.apply(&TaskEvent::Status(Box::new(StatusUpdate::new(status.clone()))));
        assert_eq!(task.status, status);
    }

    #[test]
    fn state_words_parse_back() {
        for state in TaskState::ALL {
            assert_eq!(TaskState::parse(state.as_str()), Some(state));
        }
        assert_eq!(TaskState::parse("unspecified"), None);
    }

    #[test]
    fn a_merged_update_folds_like_its_two_parts() {
        let (TaskEvent::Artifact(mut first), TaskEvent::Artifact(second)) =
            (chunk("a", "one ", false), chunk("a", "two", true))
        else {
            unreachable!()
        };
        assert!(first.try_join(&second));
        let mut task = task();
        task.apply(&TaskEvent::Artifact(first));
        assert_eq!(task.artifact("a").unwrap().parts, [Part::text("one two")]);
    }
}
