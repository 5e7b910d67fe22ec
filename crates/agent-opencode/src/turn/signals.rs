//! Signals to a turn besides its events. They are rare, so they are polled only when they are woken.

use std::time::Duration;

use futures_util::stream::{self, Stream};

use super::joins::JoinChanges;
use crate::reader::InvalidResponseAlarm;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    /// The prompts that join have changed.
    Joins,
    /// The event stream has had only invalid responses for some time.
    InvalidResponses,
}

/// Merges all signals into one stream, which never ends.
pub(super) fn signals(
    joins: JoinChanges,
    invalid_alarm: InvalidResponseAlarm,
    check_after: Duration,
) -> impl Stream<Item = Signal> + Unpin {
    let signals = stream::unfold((joins, invalid_alarm), move |(mut joins, mut invalid_alarm)| async move {
        let signal = tokio::select! {
            biased;
            () = joins.next() => Signal::Joins,
            () = invalid_alarm.ring_every(check_after) => Signal::InvalidResponses,
        };
        Some((signal, (joins, invalid_alarm)))
    });
    // `select_all` polls a stream only when it was woken.
    stream::select_all([Box::pin(signals)])
}
