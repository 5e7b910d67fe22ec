//! The time that is left for a turn. Waiting for an answer does not count.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// For how long the agent may leave open how a turn stands whose time is over.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// For how long a turn whose time is over may go on in any case, whatever is heard of it.
const LONGEST: Duration = Duration::from_mins(10);

/// How often it is asked meanwhile.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) struct Limit {
    deadline: Option<Instant>,
    paused: Option<Duration>,
    /// The time was over before.
    is_overdue: bool,
    silent_since: Option<Instant>,
    /// Since when it is not known how the turn stands, whose time is over.
    unknown_since: Option<Instant>,
    /// Something was reported since this was last looked at.
    has_heard: bool,
    /// Set once, and again only when the deadline has changed: the turn waits for it with each of its events.
    alarm: Option<Pin<Box<Sleep>>>,
}

/// What becomes of a turn whose time is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Overtime {
    /// It is asked again.
    Wait,
    /// It is at work.
    TooLong,
    /// The agent does not say how it stands.
    NoWord,
}

impl Limit {
    pub(super) fn new(deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            paused: None,
            is_overdue: false,
            silent_since: None,
            unknown_since: None,
            has_heard: false,
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

    /// The time is over. What the agent has reported by now is heard before that matters, but only once: there may be no end
    /// to it.
    pub(super) fn hears_reports_first(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.is_overdue, true);
        if is_first {
            self.deadline = Some(Instant::now() + AGAIN);
        }
        is_first
    }

    /// The agent reported something.
    pub(super) fn heard(&mut self) {
        self.has_heard = true;
    }

    /// The time is over. `is_busy` is what the agent says when it is asked, if it does; `has_caught_up`, whether all is told
    /// that was missed.
    ///
    /// While whether the turn is over too is not known, it goes on for a while: for as long as the agent reports something, and
    /// for a bit longer. An agent that does not answer and still reports after that while is at work, and may be too busy with
    /// this very turn to say so.
    pub(super) fn judge(&mut self, is_busy: Option<bool>, has_caught_up: bool) -> Overtime {
        let now = Instant::now();
        let has_heard = std::mem::take(&mut self.has_heard);
        if has_heard {
            self.silent_since = None;
        }
        let unknown = now.duration_since(*self.unknown_since.get_or_insert(now));
        let silent = now.duration_since(*self.silent_since.get_or_insert(now));
        self.deadline = Some(now + AGAIN);
        let is_at_work = is_busy.unwrap_or(has_heard && unknown >= PATIENCE);
        if is_at_work && (has_caught_up || unknown >= LONGEST) {
            Overtime::TooLong
        } else if silent >= PATIENCE || unknown >= LONGEST {
            Overtime::NoWord
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

/// Waits for the moment; for ever when there is none.
pub(super) async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
