//! Push notifications: the receiver of a task's events, and the kinds of events that are sent.

use std::fmt;

use crate::event::TaskEvent;
use crate::id::{Principal, PushConfigId, Seq, TaskId};
use crate::named_enum::named_enum;
use crate::secret::Secret;
use crate::task::TaskState;
use crate::time::Timestamp;

/// The push configuration of a task: which events a caller wants, and how the receiver is reached.
///
/// `Debug` shows no secret: not the URL (its path can be one), the token or the credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct PushConfig {
    /// The id. Chosen by the caller, or else the id of the task. Unique per task.
    pub id: PushConfigId,
    pub task: TaskId,
    /// The URL of the receiver as the caller wrote it. The address guard checked it at registration, and checks it again before
    /// each call.
    pub url: String,
    /// A token that is sent in a header, so that the receiver recognizes which registration a notification belongs to.
    pub token: Option<Secret>,
    pub authentication: Option<PushAuthentication>,
    pub format: PushFormat,
    pub events: PushEvents,
    pub view: PushView,
    pub created: Timestamp,
}

impl fmt::Debug for PushConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, task, format, events, .. } = self;
        f.debug_struct("PushConfig")
            .field("id", id)
            .field("task", task)
            .field("format", format)
            .field("events", events)
            .finish_non_exhaustive()
    }
}

/// How the gateway authenticates itself to the receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PushAuthentication {
    /// An HTTP authentication scheme, such as `Bearer`, as the caller wrote it. With `StandardWebhooks`, the credentials sign the
    /// body instead. Schemes are compared without regard to case.
    pub scheme: String,
    pub credentials: Option<Secret>,
}

named_enum! {
    /// The A2A version in which notifications are written: that of the request that registered the configuration.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum PushFormat {
        /// Each body is a `StreamResponse`.
        V1 = "1.0",
        /// Each body is the task.
        V03 = "0.3",
    }
    /// The name in the store.
    fn as_str
}

impl PushFormat {
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == word)
    }
}

/// The view of the caller who registered the configuration. Notifications show no more than that caller may see.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PushView {
    /// The 1.0 URIs of the extensions that the request had activated.
    pub extensions: Vec<String>,
    /// Whether the agent's thinking is shown.
    pub raw_thinking: bool,
    /// Whether tool calls are shown.
    pub tool_trace: bool,
}

/// Which events of a task are sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PushEvents(u16);

impl PushEvents {
    pub const ALL: Self = Self(u16::MAX >> (u16::BITS as usize - WORDS.len()));
    pub const NONE: Self = Self(0);

    /// The default if neither the caller nor the operator chooses: the end of the task, and states in which a person is needed.
    pub const DEFAULT: [PushWord; 6] = [
        PushWord::State(TaskState::InputRequired),
        PushWord::State(TaskState::AuthRequired),
        PushWord::State(TaskState::Completed),
        PushWord::State(TaskState::Failed),
        PushWord::State(TaskState::Canceled),
        PushWord::State(TaskState::Rejected),
    ];

    pub fn covers(self, event: &TaskEvent) -> bool {
        self.contains(PushWord::of(event))
    }

    /// The events of both sets.
    #[must_use]
    pub fn and_also(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn shares_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub fn contains(self, word: PushWord) -> bool {
        self.0 & word.bit() != 0
    }

    pub fn words(self) -> impl Iterator<Item = PushWord> {
        WORDS.into_iter().filter(move |word| self.contains(*word))
    }
}

impl Default for PushEvents {
    fn default() -> Self {
        Self::DEFAULT.into_iter().collect()
    }
}

impl FromIterator<PushWord> for PushEvents {
    fn from_iter<T: IntoIterator<Item = PushWord>>(words: T) -> Self {
        Self(words.into_iter().fold(0, |bits, word| bits | word.bit()))
    }
}

impl fmt::Debug for PushEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.words().map(PushWord::as_str)).finish()
    }
}

/// A kind of event that a caller can choose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PushWord {
    /// The task has entered this state, or its status in this state has changed.
    State(TaskState),
    /// Output of the agent.
    Artifact,
}

const WORDS: [PushWord; TaskState::ALL.len() + 1] = [
    PushWord::State(TaskState::Submitted),
    PushWord::State(TaskState::Working),
    PushWord::State(TaskState::InputRequired),
    PushWord::State(TaskState::AuthRequired),
    PushWord::State(TaskState::Completed),
    PushWord::State(TaskState::Failed),
    PushWord::State(TaskState::Canceled),
    PushWord::State(TaskState::Rejected),
    PushWord::Artifact,
];

impl PushWord {
    pub fn of(event: &TaskEvent) -> Self {
        match event {
            TaskEvent::Submitted { .. } => Self::State(TaskState::Submitted),
            TaskEvent::Status(update) => Self::State(update.status.state),
            TaskEvent::Artifact(_) => Self::Artifact,
        }
    }

    /// The name in the store: that of the state, or `artifact`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::State(state) => state.as_str(),
            Self::Artifact => "artifact",
        }
    }

    /// Parses a name. Also accepts the spelling of 0.3, such as `input-required` for `input_required`.
    pub fn parse(word: &str) -> Option<Self> {
        WORDS.into_iter().find(|known| known.as_str() == word.replace('-', "_"))
    }

    fn bit(self) -> u16 {
        1 << WORDS.iter().position(|word| *word == self).expect("WORDS has every word")
    }
}

/// A dead letter: an event that the gateway could not deliver and no longer tries to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    /// A growing number that the store assigns.
    pub number: u64,
    pub owner: Principal,
    pub task: TaskId,
    pub config: PushConfigId,
    pub event: Seq,
    /// The reason, without a secret: for example `the receiver answered 404`.
    pub reason: String,
    pub attempts: u32,
    pub first_failed_at: Timestamp,
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_event_has_a_word_that_parses_back() {
        for state in TaskState::ALL {
            assert!(WORDS.contains(&PushWord::State(state)), "{state}");
        }
        for word in WORDS {
            assert_eq!(PushWord::parse(word.as_str()), Some(word));
        }
        assert_eq!(PushWord::parse("input-required"), Some(PushWord::State(TaskState::InputRequired)));
        assert_eq!(PushWord::parse("COMPLETED"), None);
        assert_eq!(PushEvents::ALL.words().count(), WORDS.len());
        assert_eq!(PushEvents::ALL.words().collect::<PushEvents>(), PushEvents::ALL);
    }

    #[test]
    fn the_default_is_the_end_of_the_task_and_what_needs_a_person() {
        for state in TaskState::ALL {
            let expected = state.is_terminal() || state.is_interrupted();
            assert_eq!(PushEvents::default().contains(PushWord::State(state)), expected, "{state}");
        }
        assert!(!PushEvents::default().contains(PushWord::Artifact));
    }

    #[test]
    fn debug_shows_no_secret() {
        let config = PushConfig {
            id: PushConfigId::parse("c").unwrap(),
            task: TaskId::parse("t").unwrap(),
            url: "https://hooks.example.com/planted-1?planted-2".to_owned(),
            token: Some(Secret::new("planted-3")),
            authentication: Some(PushAuthentication {
                scheme: "Bearer".to_owned(),
                credentials: Some(Secret::new("planted-4")),
            }),
            format: PushFormat::V1,
            events: PushEvents::default(),
            view: PushView::default(),
            created: Timestamp(1),
        };
        let shown = format!("{config:?} {config:#?} {:?} {:?}", config.token, config.authentication);
        assert!(!shown.contains("planted"), "{shown}");
    }
}
