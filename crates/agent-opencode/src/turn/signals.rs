//! Signals to a turn other than its events. They are rare, so they are polled only when woken.

use std::time::Duration;

use futures_util::stream::{self, Stream};

use super::joins::JoinChanges;
use crate::address::Address;
use crate::reader::InvalidResponseAlarm;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    /// The list of joining prompts has changed.
    Joins,
    /// The event stream has had only invalid responses for some time.
    InvalidResponses,
    /// OpenCode has ended, and its next process responds.
    NewProcess,
}

/// Merges all signals into one stream, which never ends.
pub(super) fn signals(
    joins: JoinChanges,
    invalid_alarm: InvalidResponseAlarm,
    check_after: Duration,
    address: Address,
    process: u32,
) -> impl Stream<Item = Signal> + Unpin {
    let state = (joins, invalid_alarm, address, process);
    let signals =
        stream::unfold(state, move |(mut joins, mut invalid_alarm, address, mut process)| async move {
            let signal = tokio::select! {
                biased;
                () = joins.next() => Signal::Joins,
                () = invalid_alarm.ring_every(check_after) => Signal::InvalidResponses,
                next = address.next_process(process) => {
                    process = next;
                    Signal::NewProcess
                }
            };
            Some((signal, (joins, invalid_alarm, address, process)))
        });
    // `select_all` polls a stream only when it was woken.
    stream::select_all([Box::pin(signals)])
}
