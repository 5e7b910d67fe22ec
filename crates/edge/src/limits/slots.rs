//! Limits the open event streams, in total and per principal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_meter::label::Limit;
use longshore_meter::{GaugeGuard, Metrics};
use longshore_model::{Error, ErrorKind, Principal, Result};

use super::Limits;

/// The retry hint. The gateway cannot know when a stream will end; most streams end with their turn.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The slots for event streams.
#[derive(Debug)]
pub(crate) struct Slots {
    most: usize,
    most_each: usize,
    open: Mutex<Open>,
    metrics: Arc<Metrics>,
}

#[derive(Default, Debug)]
struct Open {
    all: usize,
    /// The streams of each principal. Contains only principals with a stream, so it is never larger than the number of streams.
    each: HashMap<Principal, usize>,
}

/// The purpose of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenedFor {
    Send,
    Subscription,
}

/// The slot of one stream. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    principal: Principal,
    _counted: Option<GaugeGuard>,
}

impl Slots {
    pub(crate) fn new(limits: &Limits, metrics: Arc<Metrics>) -> Arc<Self> {
        let bound = |most: usize| if most == 0 { usize::MAX } else { most };
        Arc::new(Self {
            most: bound(limits.streams),
            most_each: bound(limits.streams_per_principal),
            open: Mutex::default(),
            metrics,
        })
    }

    /// Takes a free slot. This is the first step when a stream is opened, because all other steps cost more.
    pub(crate) fn take(self: &Arc<Self>, principal: &Principal, opened_for: OpenedFor) -> Result<Slot> {
        {
            let mut open = self.open();
            if open.all >= self.most {
                return Err(self.refusal(Limit::Streams));
            }
            let own = open.each.get(principal).copied().unwrap_or_default();
            if own >= self.most_each {
                return Err(self.refusal(Limit::StreamsPerPrincipal));
            }
            open.all += 1;
            open.each.insert(principal.clone(), own + 1);
        }
        let counted = (opened_for == OpenedFor::Send).then(|| {
            self.metrics.stream_requests.increment();
            self.metrics.hold(|metrics| &metrics.stream_active)
        });
        Ok(Slot { slots: Arc::clone(self), principal: principal.clone(), _counted: counted })
    }

    fn refusal(&self, limit: Limit) -> Error {
        self.metrics.refused.of(limit).increment();
        let (text, name, most) = match limit {
            Limit::StreamsPerPrincipal => (
                "You have too many open streams. Close one, or try again later.",
                "streams_per_principal",
                self.most_each,
            ),
            _ => ("There are too many open streams. Try again later.", "streams", self.most),
        };
        Error::new(ErrorKind::TooManyRequests, text)
            .detail("limit", name)
            .detail("max", most.to_string())
            .after(RETRY_AFTER)
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.slots.open();
        open.all -= 1;
        if let Some(own) = open.each.get_mut(&self.principal) {
            *own -= 1;
            if *own == 0 {
                open.each.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(streams: usize, streams_per_principal: usize) -> Arc<Slots> {
        Slots::new(&Limits { streams, streams_per_principal, ..Limits::default() }, Arc::default())
    }

    fn limit(refused: Result<Slot>) -> String {
        let error = refused.expect_err("no slot is free");
        assert_eq!(error.kind(), ErrorKind::TooManyRequests);
        assert_eq!(error.retry_after_seconds(), Some(5));
        error.details().iter().find(|(name, _)| name == "limit").unwrap().1.clone()
    }

    #[test]
    fn slots_are_counted_in_all_and_for_each_principal_and_are_freed() {
        let (slots, ada, bob) = (slots(3, 2), Principal::new("ada"), Principal::new("bob"));
        let take = |who: &Principal| slots.take(who, OpenedFor::Subscription);
        let mut held = vec![take(&ada).unwrap(), take(&ada).unwrap()];
        assert_eq!(limit(take(&ada)), "streams_per_principal");
        held.push(take(&bob).unwrap());
        assert_eq!(limit(take(&bob)), "streams");
        assert_eq!(limit(take(&ada)), "streams", "the error does not reveal who has the streams");
        held.remove(0);
        held.push(take(&bob).unwrap());
        assert_eq!(slots.metrics.refused.of(Limit::Streams).get(), 2);
        assert_eq!(slots.metrics.refused.of(Limit::StreamsPerPrincipal).get(), 1);
        drop(held);
        assert_eq!(slots.open().all, 0);
        assert!(slots.open().each.is_empty(), "principals without a stream are forgotten");
    }

    #[test]
    fn zero_is_no_limit() {
        let (slots, ada) = (slots(0, 0), Principal::new("ada"));
        let held: Vec<Slot> = (0..10_000).map(|_| slots.take(&ada, OpenedFor::Send).unwrap()).collect();
        assert_eq!(slots.metrics.stream_active.get(), 10_000);
        drop(held);
        assert_eq!((slots.metrics.stream_active.get(), slots.metrics.stream_requests.get()), (0, 10_000));
    }
}
