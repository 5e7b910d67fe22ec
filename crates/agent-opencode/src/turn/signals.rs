//! What a turn hears of beside its events: rarely, so it is asked only when there is something to hear.

use std::time::Duration;

use futures_util::stream::{self, Stream};

use super::joins::News;
use crate::reader::Strangers;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    /// There is news of messages that join.
    Joins,
    /// What answers in OpenCode's place has been strange for long.
    Strangers,
}

/// It never ends.
pub(super) fn signals(
    joins: News,
    strangers: Strangers,
    look_after: Duration,
) -> impl Stream<Item = Signal> + Unpin {
    let signals = stream::unfold((joins, strangers), move |(mut joins, mut strangers)| async move {
        let signal = tokio::select! {
            biased;
            () = joins.next() => Signal::Joins,
            () = strangers.stay(look_after) => Signal::Strangers,
        };
        Some((signal, (joins, strangers)))
    });
    // One that is polled only when it was woken.
    stream::select_all([Box::pin(signals)])
}
