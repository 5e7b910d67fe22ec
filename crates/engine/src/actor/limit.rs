//! The time limit of a turn. Time in which the turn waits for the answer to an ask does not count.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// How long a turn past its deadline may continue without a report or an answer from the agent.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// How long a turn past its deadline may continue at most while its state is unknown, whatever the agent reports.
const LONGEST: Duration = Duration::from_mins(10);

/// How often the gateway queries the agent about a turn past its deadline.
const QUERY_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Limit {
    deadline: Option<Instant>,
    paused: Option<Duration>,
    /// Whether an earlier check found that the deadline had passed.
    is_overdue: bool,
    silent_since: Option<Instant>,
    /// Since when the gateway has not known whether the agent works on the turn. `None`: the gateway knows.
    unknown_since: Option<Instant>,
    /// The agent has reported something since the last check.
    has_reported: bool,
    /// The timer for the deadline. Reset only when the deadline changes, because every event of the turn waits on it.
    alarm: Option<Pin<Box<Sleep>>>,
}

/// What happens to a turn past its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Overtime {
    /// The gateway waits, and queries the agent again.
    Wait,
    /// The turn still runs, so it has taken too long.
    TooLong,
    /// The agent does not say whether the turn runs.
    Unknown,
}

impl Limit {
    pub(super) fn new(deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            paused: None,
            is_overdue: false,
            silent_since: None,
            unknown_since: None,
            has_reported: false,
            alarm: None,
        }
    }

    pub(super) fn pause_while(&mut self, paused: bool) {
        match (paused, self.deadline, self.paused) {
            (true, Some(deadline), None) => {
                self.paused = Some(deadline.saturating_duration_since(Instant::now()));
                self.deadline = None;
                (self.silent_since, self.unknown_since) = (None, None);
            }
            (false, None, Some(left)) => {
                self.deadline = Some(Instant::now() + left);
                self.paused = None;
            }
            _ => {}
        }
    }

    /// Returns whether the reports that are already queued are handled before the overdue turn is judged. True only on the
    /// first call, because new reports may keep arriving.
    pub(super) fn takes_reports_first(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.is_overdue, true);
        if is_first {
            self.deadline = Some(Instant::now() + QUERY_INTERVAL);
        }
        is_first
    }

    /// Notes that the agent reported something.
    pub(super) fn note_report(&mut self) {
        self.has_reported = true;
    }

    /// Decides what happens to a turn past its deadline. `is_busy`: the agent's answer to whether it works on the turn; `None`:
    /// the agent did not answer. `has_caught_up`: whether all missed reports have arrived.
    ///
    /// While it is unknown whether the agent still works on the turn, the turn continues as long as the agent reports
    /// something, plus [`PATIENCE`], but at most [`LONGEST`]. An agent that has not answered for [`PATIENCE`] but still
    /// reports counts as working: this turn may keep it too busy to answer.
    pub(super) fn judge(&mut self, is_busy: Option<bool>, has_caught_up: bool) -> Overtime {
        let now = Instant::now();
        let has_reported = std::mem::take(&mut self.has_reported);
        if has_reported {
            self.silent_since = None;
        }
        let unknown = now.duration_since(*self.unknown_since.get_or_insert(now));
        let silent = now.duration_since(*self.silent_since.get_or_insert(now));
        self.deadline = Some(now + QUERY_INTERVAL);
        let is_at_work = is_busy.unwrap_or(has_reported && unknown >= PATIENCE);
        if is_at_work && (has_caught_up || unknown >= LONGEST) {
            Overtime::TooLong
        } else if silent >= PATIENCE || unknown >= LONGEST {
            Overtime::Unknown
        } else {
            Overtime::Wait
        }
    }

    pub(super) async fn reached(&mut self) {
        let Some(deadline) = self.deadline else { return std::future::pending().await };
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if alarm.deadline() != deadline {
            alarm.as_mut().reset(deadline);
        }
        alarm.await;
    }
}

/// Waits for the deadline; for ever when there is none.
pub(super) async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
