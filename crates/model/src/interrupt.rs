//! Asks: what an agent wants to know before it goes on.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{ContextId, Principal, RequestId, SessionId, TaskId};
use crate::json::Json;
use crate::time::Timestamp;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskKind {
    Permission,
    Question,
}

impl AskKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permission => "permission",
            Self::Question => "question",
        }
    }
}

impl fmt::Display for AskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A permission or a question, as the agent asks it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ask {
    pub request_id: RequestId,
    pub kind: AskKind,
    /// The session that asks: the task's own, or that of a sub-agent below it.
    pub session: SessionId,
    /// What is asked, in plain words, fit to be shown to the caller.
    pub summary: String,
    /// The same for machines: an object in the agent's own words, without anything that a caller must not see.
    pub details: Json,
    /// The questions of a question, each with the labels of its options, in order. Empty for a permission.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Question {
    pub text: String,
    pub options: Vec<String>,
    /// More than one option may be chosen.
    pub multiple: bool,
    /// An answer in other words than those of the options is welcome.
    #[serde(default = "welcome")]
    pub custom: bool,
}

fn welcome() -> bool {
    true
}

/// An ask that is kept: whose it is, until when it can be answered, and what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interrupt {
    pub ask: Ask,
    pub owner: Principal,
    pub task: TaskId,
    pub context: ContextId,
    pub asked_at: Timestamp,
    /// `None`: it never expires.
    pub expires_at: Option<Timestamp>,
    /// `None`: it is open.
    pub closed: Option<Closed>,
}

impl Interrupt {
    pub fn is_open(&self) -> bool {
        self.closed.is_none()
    }
}

/// What became of an ask.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Closed {
    pub resolution: Resolution,
    pub at: Timestamp,
    /// Who answered. `None`: nobody here did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// The answer in short, such as `once` or the chosen labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// Answered through the gateway.
    Replied,
    /// Refused through the gateway.
    Rejected,
    /// Answered at the agent itself, or by another program.
    Elsewhere,
    /// Refused there.
    RejectedElsewhere,
    /// Nobody answered in time; the policy did.
    Expired,
    /// The turn ended before it was answered.
    Dropped,
}

impl Resolution {
    pub const ALL: [Self; 6] = [
        Self::Replied,
        Self::Rejected,
        Self::Elsewhere,
        Self::RejectedElsewhere,
        Self::Expired,
        Self::Dropped,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replied => "replied",
            Self::Rejected => "rejected",
            Self::Elsewhere => "elsewhere",
            Self::RejectedElsewhere => "rejected_elsewhere",
            Self::Expired => "expired",
            Self::Dropped => "dropped",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resolution| resolution.as_str() == word)
    }
}

/// An answer to an ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Permission {
        reply: PermissionReply,
        /// For the agent, with a `Reject`: why, and what to do instead. The turn then goes on.
        message: Option<String>,
    },
    /// For each question the chosen labels, or free text.
    Question {
        answers: Vec<Vec<String>>,
    },
    RejectQuestion,
}

impl Answer {
    /// The kind of ask that this answers.
    pub fn kind(&self) -> AskKind {
        match self {
            Self::Permission { .. } => AskKind::Permission,
            Self::Question { .. } | Self::RejectQuestion => AskKind::Question,
        }
    }

    pub fn resolution(&self) -> Resolution {
        match self {
            Self::Permission { reply: PermissionReply::Reject, .. } | Self::RejectQuestion => {
                Resolution::Rejected
            }
            _ => Resolution::Replied,
        }
    }

    /// In short, for the record.
    pub fn how(&self) -> String {
        match self {
            Self::Permission { reply, .. } => reply.as_str().to_owned(),
            Self::Question { answers } => {
                answers.iter().map(|labels| labels.join(", ")).collect::<Vec<_>>().join("; ")
            }
            Self::RejectQuestion => "reject".to_owned(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PermissionReply {
    Once,
    Always,
    Reject,
}

impl PermissionReply {
    pub const ALL: [Self; 3] = [Self::Once, Self::Always, Self::Reject];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Always => "always",
            Self::Reject => "reject",
        }
    }

    /// Any case, spaces around it do not count.
    pub fn parse(word: &str) -> Option<Self> {
        let word = word.trim().to_ascii_lowercase();
        Self::ALL.into_iter().find(|reply| reply.as_str() == word)
    }
}
