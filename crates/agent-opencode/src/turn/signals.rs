//! What a turn hears of beside its events: rarely, so it is asked only when there is something to hear.

use std::time::Duration;

use futures_util::stream::{self, Stream};

use super::joins::JoinChanges;
use crate::reader::InvalidResponseAlarm;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    /// There is news of messages that join.
    Joins,
    /// What answers in OpenCode's place has been strange for long.
    InvalidResponseAlarm,
}

/// It never ends.
pub(super) fn signals(
    joins: JoinChanges,
    invalid_alarm: InvalidResponseAlarm,
    check_after: Duration,
) -> impl Stream<Item = Signal> + Unpin {
    let signals = stream::unfold((joins, invalid_alarm), move |(mut joins, mut invalid_alarm)| async move {
        let signal = tokio::select! {
            biased;
            () = joins.next() => Signal::Joins,
            () = invalid_alarm.stay(check_after) => Signal::InvalidResponses,
        };
        Some((signal, (joins, invalid_alarm)))
    });
    // One that is polled only when it was woken.
    stream::select_all([Box::pin(signals)])
}
