//! Notes: facts about a task in addition to its content. The wire crate decides which reader sees which note.

use serde::{Deserialize, Serialize};

use crate::ask_options::AskOptions;
use crate::id::{RequestId, SessionId};
use crate::interrupt::{Ask, AskKind, Closed, Interrupt, PermissionReply, Resolution};
use crate::json::Json;
use crate::time::Timestamp;

/// Notes on one status.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Notes {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionNote>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<InterruptNote>,
    /// The model of the sub-agent that works on the task. Set if the model was not known when the task was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_agent_model: Option<String>,
}

impl Notes {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The id and the title of the agent's session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionNote {
    pub id: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// Tokens and cost of a turn so far, summed over its steps and sub-agents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub total: u64,
    pub reasoning: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub cost: Cost,
}

impl Usage {
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            total: self.total.saturating_add(other.total),
            reasoning: self.reasoning.saturating_add(other.reasoning),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            cost: Cost(self.cost.0.saturating_add(other.cost.0)),
        }
    }
}

/// Money, in billionths of the agent's currency. Sums are exact, unlike sums of floats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(pub u64);

impl Cost {
    const UNIT: f64 = 1e9;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float to integer cast saturates, and a negative cost counts as 0"
    )]
    pub fn from_float(amount: f64) -> Self {
        Self((amount * Self::UNIT).round() as u64)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "beyond 9 million whole units, a billionth does not matter"
    )]
    pub fn to_float(self) -> f64 {
        self.0 as f64 / Self::UNIT
    }
}

/// The progress of a turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Progress {
    pub kind: ProgressKind,
    /// A JSON object with details: the reason why a step ended, the attempt and next time of a retry, the list of todos, or the
    /// changed settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Json>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgressKind {
    StepStarted,
    StepFinished,
    Retry,
    Compaction,
    Todos,
    /// The mode, the model or another setting of the session changed.
    Settings,
}

/// An ask was opened or closed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InterruptNote {
    pub request_id: RequestId,
    pub kind: AskKind,
    pub phase: InterruptPhase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Json>,
    /// The options that the agent offers for a permission request. Empty if these are just the three words.
    #[serde(default, skip_serializing_if = "AskOptions::is_empty")]
    pub options: AskOptions,
    /// Set if the ask expired because nobody answered in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<Expired>,
}

/// The facts about an expired ask: the gateway answered it at its deadline, because nobody else had.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Expired {
    pub deadline: Timestamp,
    pub answer: PermissionReply,
    /// The tool call that waited for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptPhase {
    Asked,
    Resolved(Resolution),
}

impl InterruptNote {
    pub fn asked(ask: &Ask) -> Self {
        Self {
            request_id: ask.request_id.clone(),
            kind: ask.kind,
            phase: InterruptPhase::Asked,
            details: Some(ask.details.clone()),
            options: ask.options.shown(),
            expired: None,
        }
    }

    pub fn resolved(interrupt: &Interrupt, closed: &Closed) -> Self {
        let Interrupt { ask, expires_at, .. } = interrupt;
        let expired = (closed.resolution == Resolution::Expired).then(|| Expired {
            deadline: expires_at.unwrap_or(closed.at),
            answer: closed.how.as_deref().and_then(PermissionReply::parse).unwrap_or(PermissionReply::Reject),
            call: ask.call.clone(),
        });
        Self {
            request_id: ask.request_id.clone(),
            kind: ask.kind,
            phase: InterruptPhase::Resolved(closed.resolution),
            details: None,
            options: AskOptions::default(),
            expired,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_costs_have_no_float_errors() {
        let (a, b) = (Cost::from_float(0.1), Cost::from_float(0.2));
        let sum = Usage { cost: a, ..Usage::default() }.plus(Usage { cost: b, ..Usage::default() });
        assert_eq!(sum.cost.to_float().to_string(), "0.3");
        for amount in [0.0, 0.000_122, 1.5, 12.345_678_9] {
            assert_eq!(Cost::from_float(amount).to_float().to_string(), amount.to_string());
        }
        assert_eq!(Cost::from_float(-1.0), Cost(0));
        assert_eq!(Cost::from_float(f64::NAN), Cost(0));
    }
}
