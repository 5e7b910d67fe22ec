//! When a turn is stopped because its model does nothing, or does not come to an end.

use std::time::Duration;

use longshore_model::Outcome;
use tokio::time::Instant;

use super::member::Member;
use crate::outcome;

/// When a turn is given up. `None`: never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watchdog {
    /// So long nothing may come from the agent and its sub-agents, while no ask is open, no tool runs and no retry is
    /// waited for.
    pub silence: Option<Duration>,
    /// So many assistant messages one turn may have.
    pub max_steps: Option<usize>,
    /// So long a running turn may get only answers that are none of OpenCode's, or none for us: from something else at its
    /// address, or because of another password. Long enough for somebody to put it right.
    pub strange: Duration,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self { silence: Some(Duration::from_mins(5)), max_steps: Some(250), strange: Duration::from_mins(3) }
    }
}

impl Watchdog {
    pub(super) fn over(self, is_adopted: bool) -> Limits {
        Limits { watchdog: self, is_adopted }
    }
}

/// What a watchdog may do about one turn. One that somebody else began is not ours to stop, whatever its model does: it is
/// only followed for as long as it can be heard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    watchdog: Watchdog,
    is_adopted: bool,
}

impl Limits {
    pub(super) fn silence(&self) -> Option<Duration> {
        self.watchdog.silence.filter(|_| !self.is_adopted)
    }

    pub(super) fn strange(&self) -> Duration {
        self.watchdog.strange
    }

    /// The end of a turn that is not over and whose model answers without end.
    pub(super) fn reached(&self, member: &Member) -> Option<Outcome> {
        if self.is_adopted || member.is_idle_or_failed() {
            return None;
        }
        let turn = &member.translator;
        let most = self.watchdog.max_steps.filter(|most| turn.steps() > *most);
        turn.is_runaway().then(outcome::runaway).or_else(|| most.map(outcome::endless))
    }
}

/// How long it has been silent. Heartbeats of the event stream never get here.
#[derive(Debug)]
pub(super) struct Silence {
    limit: Option<Duration>,
    since: Instant,
}

impl Silence {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self { limit, since: Instant::now() }
    }

    /// Something came, or there is a reason for the silence.
    pub(super) fn reset(&mut self) {
        self.since = Instant::now();
    }

    /// When it has lasted too long, unless it is broken before.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.checked_add(self.limit?)
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit.unwrap_or_default()
    }
}
