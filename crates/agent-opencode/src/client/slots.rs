//! Limits how many short calls run at the same time.
//!
//! Slots are granted in the order of the requests. A waiter that gives up, or is dropped, loses no slot.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// The longest wait for a slot by a request that the gateway has not accepted yet. After that the client should retry.
pub(crate) const SHORT_WAIT: Duration = Duration::from_secs(1);

/// How long a call waits for its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotWait {
    Briefly,
    UpTo(Duration),
    /// The call waits without a limit. Used for calls of a running turn, which must not fail for lack of a slot.
    Forever,
    /// The call takes no slot, because it ends the calls that hold the slots, or because its caller already holds one.
    NoSlot,
}

/// The slots for one kind of call.
#[derive(Debug)]
pub(super) struct CallSlots {
    /// The free slots. `None`: there is no limit.
    free: Option<Semaphore>,
    count: usize,
}

/// A slot. Permits one call, and is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct CallSlot<'a>(
    #[expect(dead_code, reason = "holding the permit is enough")] Option<SemaphorePermit<'a>>,
);

impl CallSlots {
    /// Creates the slots. 0 means no limit.
    pub(super) fn new(count: usize) -> Self {
        let count = count.min(Semaphore::MAX_PERMITS);
        Self { free: (count > 0).then(|| Semaphore::new(count)), count }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes a slot if one is free now. `None`: none is free.
    pub(super) fn try_acquire(&self) -> Option<CallSlot<'_>> {
        match &self.free {
            Some(free) => free.try_acquire().ok().map(|permit| CallSlot(Some(permit))),
            None => Some(CallSlot(None)),
        }
    }

    /// Waits for a slot. `None`: no slot became free in time.
    pub(super) async fn acquire(&self, waits: SlotWait) -> Option<CallSlot<'_>> {
        let Some(free) = self.free.as_ref().filter(|_| waits != SlotWait::NoSlot) else {
            return Some(CallSlot(None));
        };
        let limit = match waits {
            SlotWait::Briefly => Some(SHORT_WAIT),
            SlotWait::UpTo(limit) => Some(limit),
            SlotWait::Forever | SlotWait::NoSlot => None,
        };
        let taken = match limit {
            Some(limit) => timeout(limit, free.acquire()).await.ok()?,
            None => free.acquire().await,
        };
        // An error is impossible, because the semaphore is never closed.
        taken.ok().map(|permit| CallSlot(Some(permit)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_brief_wait_ends_with_a_refusal_and_an_unlimited_one_does_not() {
        let slots = CallSlots::new(2);
        let held = (slots.acquire(SlotWait::Forever).await, slots.acquire(SlotWait::Briefly).await);
        let began = Instant::now();
        let mut patient = Box::pin(slots.acquire(SlotWait::Forever));
        assert!(patient.as_mut().now_or_never().is_none());
        for (waits, seconds) in [(SlotWait::Briefly, 1), (SlotWait::UpTo(Duration::from_secs(7)), 8)] {
            assert!(slots.acquire(waits).await.is_none());
            assert_eq!(began.elapsed().as_secs(), seconds, "{waits:?}");
        }
        assert!(patient.as_mut().now_or_never().is_none());
        assert!(slots.acquire(SlotWait::NoSlot).now_or_never().flatten().is_some());
        drop(held);
        assert!(patient.await.is_some());
        assert_eq!(began.elapsed().as_secs(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn slots_are_granted_in_order_and_a_dropped_waiter_loses_none() {
        let slots = CallSlots::new(1);
        let held = slots.acquire(SlotWait::Forever).await;
        let mut first = Box::pin(slots.acquire(SlotWait::Forever));
        let mut second = Box::pin(slots.acquire(SlotWait::UpTo(Duration::from_mins(1))));
        let mut third = Box::pin(slots.acquire(SlotWait::Briefly));
        for waiting in [&mut first, &mut second, &mut third] {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        drop(held);
        // The slot was granted to the first waiter, which is dropped with it.
        assert!(third.as_mut().now_or_never().is_none());
        assert!(
            slots.acquire(SlotWait::Briefly).now_or_never().is_none(),
            "a new call does not overtake the waiting ones"
        );
        drop(first);
        assert!(third.as_mut().now_or_never().is_none());
        let second = second.as_mut().now_or_never().flatten();
        assert!(second.is_some());
        drop(second);
        assert!(third.now_or_never().flatten().is_some());
        assert!(slots.acquire(SlotWait::Briefly).now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn zero_means_no_limit() {
        let slots = CallSlots::new(0);
        let mut held = Vec::new();
        for _ in 0..1_000 {
            held.push(slots.acquire(SlotWait::Briefly).now_or_never().flatten().unwrap());
        }
    }
}
