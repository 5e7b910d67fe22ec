//! The engine's settings.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// How long a turn may run before it is aborted and its task fails. `None`: for ever.
    pub turn_timeout: Option<Duration>,
    /// How long the abort of a turn that has ended here is waited for.
    pub cancel_abort_timeout: Duration,
    /// For how long the same send is known to be the same.
    pub idempotency_window: Duration,
    /// How many tasks of one context may be unfinished. One more is refused: a client that sends faster than the agent
    /// works must notice.
    pub max_unfinished_per_context: usize,
    /// The same for all contexts of a principal together.
    pub max_unfinished_per_principal: usize,
    pub asks: AskConfig,
}

/// What becomes of asks that nobody answers.
#[derive(Clone, Copy, Debug)]
pub struct AskConfig {
    /// How long an ask can be answered. `None`: as long as its turn runs.
    pub time_to_live: Option<Duration>,
    /// For how long an answer that comes too late is told so. After that, the ask was never there.
    pub tombstone: Duration,
    /// What the gateway answers at the deadline, so that no turn waits for ever.
    pub at_deadline: AtDeadline,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtDeadline {
    /// Permissions and questions are rejected.
    Reject,
    /// Permissions are given once; questions, to which there is no such answer, are rejected.
    Once,
}

impl Default for AskConfig {
    fn default() -> Self {
        Self {
            time_to_live: Some(Duration::from_hours(3)),
            tombstone: Duration::from_mins(10),
            at_deadline: AtDeadline::Reject,
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            turn_timeout: Some(Duration::from_mins(15)),
            cancel_abort_timeout: Duration::from_secs(2),
            idempotency_window: Duration::from_mins(10),
            max_unfinished_per_context: 100,
            max_unfinished_per_principal: 2000,
            asks: AskConfig::default(),
        }
    }
}
