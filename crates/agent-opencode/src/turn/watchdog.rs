//! Stops turns whose model is silent or never finishes.

use std::time::Duration;

use longshore_model::Outcome;
use tokio::time::Instant;

use super::member::Member;
use crate::outcome;

/// The limits at which the gateway stops a turn. `None`: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watchdog {
    /// Maximum silence of the agent and its sub-agents, while no ask is open, no tool runs and no retry is pending.
    pub silence: Option<Duration>,
    /// Maximum number of assistant messages in a turn.
    pub max_steps: Option<usize>,
    /// How long a running turn may get only invalid responses: another program responds at OpenCode's address, or OpenCode's
    /// password has changed. Long enough for an operator to repair that.
    pub invalid_responses: Duration,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self {
            silence: Some(Duration::from_mins(5)),
            max_steps: Some(250),
            invalid_responses: Duration::from_mins(3),
        }
    }
}

impl Watchdog {
    pub(super) fn limits(self, is_adopted: bool) -> Limits {
        Limits { watchdog: self, is_adopted }
    }
}

/// The watchdog's limits for one turn. An external turn has no limits on its model, because another client started it; the gateway
/// follows it for as long as it can.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    watchdog: Watchdog,
    is_adopted: bool,
}

impl Limits {
    pub(super) fn silence(&self) -> Option<Duration> {
        self.watchdog.silence.filter(|_| !self.is_adopted)
    }

    pub(super) fn invalid_responses(&self) -> Duration {
        self.watchdog.invalid_responses
    }

    /// The outcome if the model of an unfinished turn exceeds a limit. `None`: no limit is exceeded.
    pub(super) fn reached(&self, member: &Member) -> Option<Outcome> {
        if self.is_adopted || member.is_idle_or_failed() {
            return None;
        }
        let turn = &member.translator;
        let most = self.watchdog.max_steps.filter(|most| turn.steps() > *most);
        turn.is_runaway().then(outcome::runaway).or_else(|| most.map(outcome::endless))
    }
}

/// Measures how long the turn has been silent. Heartbeats of the event stream do not count.
#[derive(Debug)]
pub(super) struct Silence {
    limit: Option<Duration>,
    since: Instant,
}

impl Silence {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self { limit, since: Instant::now() }
    }

    /// Called when an event arrives, or when silence is expected.
    pub(super) fn reset(&mut self) {
        self.since = Instant::now();
    }

    /// The time at which the silence is too long. `None`: there is no limit.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.checked_add(self.limit?)
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit.unwrap_or_default()
    }
}
