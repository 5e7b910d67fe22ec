//! Asks: permission requests and questions of an agent.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::approval::PermissionRequest;
use crate::ask_options::AskOptions;
use crate::id::{ContextId, Principal, RequestId, SessionId, TaskId};
use crate::json::Json;
use crate::named_enum::named_enum;
use crate::time::Timestamp;

named_enum! {
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum AskKind {
        Permission = "permission",
        Question = "question",
    }
    fn as_str
}

impl fmt::Display for AskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A permission request or a question, as the agent asks it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ask {
    pub request_id: RequestId,
    pub kind: AskKind,
    /// The session that asks: that of the task, or that of a sub-agent.
    pub session: SessionId,
    /// The ask in plain words, which are safe to show to the caller.
    pub summary: String,
    /// The ask for programs: a JSON object in the agent's own terms, without anything that a caller must not see.
    pub details: Json,
    /// The individual questions, each with the labels of its options, in order. Empty for a permission request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
    /// The tool call that waits for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The requested permission. `None`: the ask is a question, or was stored by a version of the gateway that did not keep this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<Box<PermissionRequest>>,
    /// The answers that the agent offers to a permission request. Empty for a question.
    #[serde(default, skip_serializing_if = "AskOptions::is_empty")]
    pub options: AskOptions,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Question {
    pub text: String,
    pub options: Vec<String>,
    /// Whether more than one option may be chosen.
    pub multiple: bool,
    /// Whether a free-text answer is allowed in addition to the options.
    #[serde(default = "custom_by_default")]
    pub custom: bool,
}

fn custom_by_default() -> bool {
    true
}

/// A stored ask: its owner, its deadline and its outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interrupt {
    pub ask: Ask,
    pub owner: Principal,
    pub task: TaskId,
    pub context: ContextId,
    pub asked_at: Timestamp,
    /// The deadline of the ask. `None`: the ask never expires.
    pub expires_at: Option<Timestamp>,
    /// How the ask was closed. `None`: the ask is open.
    pub closed: Option<Closed>,
}

impl Interrupt {
    pub fn is_open(&self) -> bool {
        self.closed.is_none()
    }
}

/// The way in which an ask was closed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Closed {
    pub resolution: Resolution,
    pub at: Timestamp,
    /// The caller who answered. `None`: no caller of the gateway answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// A short form of the answer, such as `once` or the chosen labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
}

named_enum! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Resolution {
        /// Answered through the gateway.
        Replied = "replied",
        /// Refused through the gateway.
        Rejected = "rejected",
        /// Answered by another client of the agent.
        Elsewhere = "elsewhere",
        /// Refused by another client of the agent.
        RejectedElsewhere = "rejected_elsewhere",
        /// Answered by the gateway itself with an approval that it kept for the session.
        Approved = "approved",
        /// No answer came before the deadline, so the deadline policy answered.
        Expired = "expired",
        /// The turn ended before the ask was answered.
        Dropped = "dropped",
    }
    fn as_str
}

impl Resolution {
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resolution| resolution.as_str() == word)
    }
}

/// An answer to an ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Permission {
        reply: PermissionReply,
        /// Only with `Reject`: tells the agent why, and what to do instead. The turn then continues.
        message: Option<String>,
    },
    /// One of the agent's own options of a permission request.
    PermissionOption {
        /// The id of the option, or its name if no other option has the same name.
        option: String,
        message: Option<String>,
    },
    /// For each question, the chosen labels or a free text.
    Question {
        answers: Vec<Vec<String>>,
    },
    RejectQuestion,
}

impl Answer {
    /// The answer to a permission request from a caller's text: one of the three words, or else the id or the name of an option.
    pub fn permission(text: &str, message: Option<String>) -> Self {
        match PermissionReply::parse(text) {
            Some(reply) => Self::Permission { reply, message },
            None => Self::PermissionOption { option: text.trim().to_owned(), message },
        }
    }

    /// The kind of ask to which this is an answer.
    pub fn kind(&self) -> AskKind {
        match self {
            Self::Permission { .. } | Self::PermissionOption { .. } => AskKind::Permission,
            Self::Question { .. } | Self::RejectQuestion => AskKind::Question,
        }
    }

    /// How this answer closes the ask. `options`: the options of the ask.
    pub fn resolution(&self, options: &AskOptions) -> Resolution {
        let is_rejection = match self {
            Self::Permission { reply, .. } => *reply == PermissionReply::Reject,
            Self::PermissionOption { option, .. } => {
                options.named(option).is_ok_and(|option| option.kind.is_rejection())
            }
            Self::Question { .. } => false,
            Self::RejectQuestion => true,
        };
        if is_rejection { Resolution::Rejected } else { Resolution::Replied }
    }

    /// A short form for the stored record.
    pub fn how(&self) -> String {
        match self {
            Self::Permission { reply, .. } => reply.as_str().to_owned(),
            Self::PermissionOption { option, .. } => option.clone(),
            Self::Question { answers } => {
                answers.iter().map(|labels| labels.join(", ")).collect::<Vec<_>>().join("; ")
            }
            Self::RejectQuestion => "reject".to_owned(),
        }
    }
}

named_enum! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum PermissionReply {
        Once = "once",
        Always = "always",
        Reject = "reject",
    }
    fn as_str
}

impl PermissionReply {
    /// Parses a word. Ignores case and surrounding spaces.
    pub fn parse(word: &str) -> Option<Self> {
        let word = word.trim().to_ascii_lowercase();
        Self::ALL.into_iter().find(|reply| reply.as_str() == word)
    }
}
