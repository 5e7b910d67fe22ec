//! The events of a task's log.

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactUpdate;
use crate::id::{ContextId, Epoch, EventId, MessageId, Seq};
use crate::json::Metadata;
use crate::message::Message;
use crate::notes::Notes;
use crate::options::{PromptOptions, TaskOptions};
use crate::part::Part;
use crate::task::{Parent, TaskStatus};
use crate::time::Timestamp;

/// One event of a task's log. Folding all events in order gives the task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEvent {
    /// The first event of every log. It never occurs later.
    Submitted {
        context_id: ContextId,
        message: Message,
        at: Timestamp,
        #[serde(rename = "terms", default, skip_serializing_if = "TaskOptions::is_empty")]
        options: Box<TaskOptions>,
        /// The parent, if the task is that of a sub-agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<Box<Parent>>,
    },
    Status(Box<StatusUpdate>),
    Artifact(ArtifactUpdate),
}

impl TaskEvent {
    /// The first event of a task whose message has no options.
    pub fn submitted(context_id: ContextId, message: Message, at: Timestamp) -> Self {
        Self::Submitted { context_id, message, at, options: Box::default(), parent: None }
    }

    /// The new status of the task, if the event changes it.
    pub fn status(&self) -> Option<&TaskStatus> {
        match self {
            Self::Status(update) => Some(&update.status),
            _ => None,
        }
    }

    /// The approximate number of content bytes in the event.
    pub fn weight(&self) -> usize {
        let weight = |parts: &[Part]| parts.iter().map(Part::weight).sum::<usize>();
        match self {
            Self::Submitted { message, options, .. } => message.weight() + options.weight(),
            Self::Status(update) => {
                let messages = update.status.message.iter().chain(&update.joined);
                messages.map(Message::weight).sum::<usize>()
                    + update.prompt.as_ref().map_or(0, |prompt| prompt.weight())
            }
            Self::Artifact(update) => weight(&update.artifact.parts),
        }
    }

    /// Whether this event ends the log.
    pub fn is_terminal(&self) -> bool {
        self.status().is_some_and(|status| status.state.is_terminal())
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StatusUpdate {
    pub status: TaskStatus,
    /// Whether the task already had this status, so that the update matters only to readers that see one of its notes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats: bool,
    /// Metadata that every reader sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// Notes that only readers see that have activated the extension.
    #[serde(default, skip_serializing_if = "Notes::is_empty")]
    pub notes: Notes,
    /// A user's message that joined the running turn with this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<Message>,
    /// A joined message that did not reach the agent, so it is removed from the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<MessageId>,
    /// The prompt options of the task from this event on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Box<PromptOptions>>,
}

impl StatusUpdate {
    pub fn new(status: TaskStatus) -> Self {
        Self {
            status,
            repeats: false,
            metadata: None,
            notes: Notes::default(),
            joined: None,
            withdrawn: None,
            prompt: None,
        }
    }
}

/// An event with its number in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub seq: Seq,
    /// The epoch in which the event was written.
    pub epoch: Epoch,
    pub event: TaskEvent,
}

impl Entry {
    pub fn id(&self) -> EventId {
        EventId::new(self.seq, self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Role;
    use crate::task::TaskState;

    #[test]
    fn weight_includes_the_joined_message() {
        let status = TaskStatus { state: TaskState::Working, at: Timestamp(0), message: None };
        let mut update = StatusUpdate::new(status);
        let id = MessageId::parse("m").unwrap();
        update.joined = Some(Message::new(id, Role::User, vec![Part::text("x".repeat(1000))]));
        assert_eq!(TaskEvent::Status(Box::new(update)).weight(), 1000);
    }
}
