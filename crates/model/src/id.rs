//! Identifiers. Each kind has its own type, so that a task id cannot be passed as a context id.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest identifier that a caller may send.
pub const MAX_ID_LENGTH: usize = 128;

/// The reason why a string is not a valid identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdError {
    Empty,
    TooLong,
    BadCharacter,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "must not be empty",
            Self::TooLong => "must have at most 128 characters",
            Self::BadCharacter => "may hold only letters, digits and '_', '.', ':', '-'",
        })
    }
}

impl std::error::Error for IdError {}

/// Checks the rule for every identifier that crosses the gateway: it must be safe in a path, a log and a file name.
pub fn check_id(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX_ID_LENGTH {
        return Err(IdError::TooLong);
    }
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-')) {
        return Err(IdError::BadCharacter);
    }
    Ok(())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "Arc<str>", into = "Arc<str>")]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn parse(text: &str) -> Result<Self, IdError> {
                check_id(text)?;
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<Arc<str>> for $name {
            type Error = IdError;

            fn try_from(text: Arc<str>) -> Result<Self, IdError> {
                check_id(&text)?;
                Ok(Self(text))
            }
        }

        impl From<$name> for Arc<str> {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

id!(
    /// The id of a task: one turn of an agent. Made by the gateway.
    TaskId
);
id!(
    /// The id of a conversation. Made by the gateway or chosen by the caller, and unique only per principal.
    ContextId
);
id!(
    /// The id of a message. Chosen by its author.
    MessageId
);
id!(
    /// The id of one block of an agent's output.
    ArtifactId
);
id!(
    /// The agent's own id of a conversation.
    SessionId
);
id!(
    /// The id of one prompt. The engine makes the id and stores it before the prompt is sent, so that the prompt can be found in
    /// the agent after a restart. For a prompt that the gateway did not send, this is the agent's own id.
    PromptId
);

id!(
    /// The id of a file that the gateway stores. Made by the gateway.
    FileId
);

id!(
    /// The agent's own id of an ask.
    RequestId
);

id!(
    /// The agent's own id of a message in a session, whether of a user or of the agent.
    AgentMessageId
);

id!(
    /// The agent's own id of a part of a message.
    AgentPartId
);

id!(
    /// The agent's own id of a workspace.
    WorkspaceId
);

id!(
    /// The id of a push configuration. Chosen by the caller or made by the gateway, and unique only per task.
    PushConfigId
);

/// The identity of a caller: the owner of tasks, contexts and sessions.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Principal(Arc<str>);

impl Principal {
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The number of an event in its task's log. The first event has number 1, and 0 is the cursor before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    pub const START: Self = Self(0);

    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    #[must_use]
    pub fn plus(self, n: usize) -> Self {
        Self(self.0 + n as u64)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of an opening of the store, which grows each time the store is opened. Each event keeps the epoch in which it was
/// written. If a power failure destroys an event, its sequence number is used again, and the epoch distinguishes the new event from
/// the lost one. 0: the event was written by a version of the gateway without epochs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u32);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of an event, as readers receive it and send it back to resume, for example `17.3`. Without an epoch, `17` means the event
/// that now has this number in the log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EventId {
    pub seq: Seq,
    pub epoch: Option<Epoch>,
}

impl EventId {
    pub fn new(seq: Seq, epoch: Epoch) -> Self {
        Self { seq, epoch: Some(epoch) }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (seq, epoch) = match text.split_once('.') {
            None => (text, None),
            Some((seq, epoch)) => (seq, Some(Epoch(decimal(epoch)?))),
        };
        Some(Self { seq: Seq(decimal(seq)?), epoch })
    }
}

/// Parses digits only, because the standard parser would accept a sign, which no event id has.
fn decimal<T: FromStr>(text: &str) -> Option<T> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_decimal { text.parse().ok() } else { None }
}

impl From<Seq> for EventId {
    fn from(seq: Seq) -> Self {
        Self { seq, epoch: None }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seq.fmt(f)?;
        match self.epoch {
            Some(epoch) => write!(f, ".{epoch}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ids_round_trip_and_bad_ones_are_refused() {
        let whole = |seq, epoch| Some(EventId::new(Seq(seq), Epoch(epoch)));
        let cases = [
            ("17.3", whole(17, 3)),
            ("0.0", whole(0, 0)),
            ("18446744073709551615.4294967295", whole(u64::MAX, u32::MAX)),
            ("17", Some(EventId::from(Seq(17)))),
            ("", None),
            (".", None),
            ("17.", None),
            (".3", None),
            ("17.3.1", None),
            ("+17.3", None),
            ("17.+3", None),
            ("17,3", None),
            ("17.4294967296", None),
            ("18446744073709551616.3", None),
        ];
        for (text, expected) in cases {
            assert_eq!(EventId::parse(text), expected, "{text:?}");
            if let Some(id) = expected {
                assert_eq!(id.to_string(), text);
            }
        }
    }

    #[test]
    fn ids_are_short_and_have_only_safe_characters() {
        let long = "a".repeat(129);
        let cases: [(&str, Result<(), IdError>); 9] = [
            ("task-1_A.b:c", Ok(())),
            (&long[..128], Ok(())),
            ("", Err(IdError::Empty)),
            (&long, Err(IdError::TooLong)),
            ("a/b", Err(IdError::BadCharacter)),
            ("a%2fb", Err(IdError::BadCharacter)),
            ("a b", Err(IdError::BadCharacter)),
            ("é", Err(IdError::BadCharacter)),
            ("a\n", Err(IdError::BadCharacter)),
        ];
        for (text, expected) in cases {
            assert_eq!(check_id(text), expected, "{text:?}");
        }
    }

    #[test]
    fn deserializing_checks_the_id() {
        assert!(serde_json::from_str::<TaskId>("\"a/b\"").is_err());
        assert_eq!(serde_json::from_str::<TaskId>("\"ab\"").unwrap().as_str(), "ab");
    }
}
