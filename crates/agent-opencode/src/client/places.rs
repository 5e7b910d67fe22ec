//! How many short calls may be under way at once.
//!
//! Places are given in the order in which they were asked for, and one that is asked for in vain, or by somebody who goes
//! away meanwhile, is not lost.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// How long a caller waits for a place who was promised nothing yet. Whoever comes again has a better chance by then.
pub(crate) const BRIEFLY: Duration = Duration::from_secs(1);

/// How long a call waits for its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    Briefly,
    UpTo(Duration),
    /// It is of a turn that runs, and cannot be refused.
    ForEver,
    /// It takes no place: it puts an end to what holds the others up, or has one already.
    Never,
}

#[derive(Debug)]
pub(super) struct Places {
    /// `None`: there is no limit.
    free: Option<Semaphore>,
    count: usize,
}

/// One call may be made, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a>(
    #[expect(dead_code, reason = "it is held, not looked at")] Option<SemaphorePermit<'a>>,
);

impl Places {
    /// 0: as many as one likes.
    pub(super) fn new(count: usize) -> Self {
        let count = count.min(Semaphore::MAX_PERMITS);
        Self { free: (count > 0).then(|| Semaphore::new(count)), count }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Without waiting. `None`: all are taken.
    pub(super) fn take_now(&self) -> Option<Place<'_>> {
        match &self.free {
            Some(free) => free.try_acquire().ok().map(|permit| Place(Some(permit))),
            None => Some(Place(None)),
        }
    }

    /// `None`: all stayed taken for too long.
    pub(super) async fn take(&self, waits: Waits) -> Option<Place<'_>> {
        let Some(free) = self.free.as_ref().filter(|_| waits != Waits::Never) else {
            return Some(Place(None));
        };
        let limit = match waits {
            Waits::Briefly => Some(BRIEFLY),
            Waits::UpTo(limit) => Some(limit),
            Waits::ForEver | Waits::Never => None,
        };
        let taken = match limit {
            Some(limit) => timeout(limit, free.acquire()).await.ok()?,
            None => free.acquire().await,
        };
        // It is never closed.
        taken.ok().map(|permit| Place(Some(permit)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_briefly_is_refused_and_who_waits_for_ever_is_not() {
        let places = Places::new(2);
        let held = (places.take(Waits::ForEver).await, places.take(Waits::Briefly).await);
        let began = Instant::now();
        let mut patient = Box::pin(places.take(Waits::ForEver));
        assert!(patient.as_mut().now_or_never().is_none());
        for (waits, seconds) in [(Waits::Briefly, 1), (Waits::UpTo(Duration::from_secs(7)), 8)] {
            assert!(places.take(waits).await.is_none());
            assert_eq!(began.elapsed().as_secs(), seconds, "{waits:?}");
        }
        assert!(patient.as_mut().now_or_never().is_none());
        assert!(places.take(Waits::Never).now_or_never().flatten().is_some());
        drop(held);
        assert!(patient.await.is_some());
        assert_eq!(began.elapsed().as_secs(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_given_in_order_and_none_is_lost_with_one_who_leaves() {
        let places = Places::new(1);
        let held = places.take(Waits::ForEver).await;
        let mut first = Box::pin(places.take(Waits::ForEver));
        let mut second = Box::pin(places.take(Waits::UpTo(Duration::from_mins(1))));
        let mut third = Box::pin(places.take(Waits::Briefly));
        for waiting in [&mut first, &mut second, &mut third] {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        drop(held);
        // It was the first one's, who leaves with it.
        assert!(third.as_mut().now_or_never().is_none());
        assert!(places.take(Waits::Briefly).now_or_never().is_none(), "nobody passes those who wait");
        drop(first);
        assert!(third.as_mut().now_or_never().is_none());
        let second = second.as_mut().now_or_never().flatten();
        assert!(second.is_some());
        drop(second);
        assert!(third.now_or_never().flatten().is_some());
        assert!(places.take(Waits::Briefly).now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn zero_is_no_limit() {
        let places = Places::new(0);
        let mut held = Vec::new();
        for _ in 0..1_000 {
            held.push(places.take(Waits::Briefly).now_or_never().flatten().unwrap());
        }
    }
}
