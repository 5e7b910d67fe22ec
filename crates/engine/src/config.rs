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
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            turn_timeout: Some(Duration::from_mins(15)),
            cancel_abort_timeout: Duration::from_secs(2),
            idempotency_window: Duration::from_mins(10),
            max_unfinished_per_context: 100,
            max_unfinished_per_principal: 2000,
        }
    }
}
