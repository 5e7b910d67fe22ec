//! Histograms: how often a value had which size.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cell::Used;
use crate::page::{Kind, Metric, MetricSchema, Page};
use crate::quantity::{Decimal, Quantity, Seconds};
use crate::scale::{MAX_BUCKETS, Scale};

/// Counts values by size, with two atomic additions for each value.
///
/// A scrape reads while other threads count, so the sum may already include a value that no bucket includes yet, or the other
/// way round. The count on the page is computed from the buckets, so the count and the buckets always agree.
pub struct Histogram<S> {
    /// Each bucket counts the values above the previous bound and up to its own bound. The bucket after the last bound counts the
    /// rest.
    buckets: [AtomicU64; MAX_BUCKETS],
    sum: AtomicU64,
    scale: PhantomData<fn() -> S>,
}

impl<S: Scale> Histogram<S> {
    const IN_ORDER: () = assert_in_order(S::BOUNDS);

    /// Counts a value.
    pub fn observe(&self, value: <S::Quantity as Quantity>::Value) {
        let () = Self::IN_ORDER;
        let raw = S::Quantity::raw(value);
        let bucket = S::BOUNDS.partition_point(|bound| *bound < raw);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(raw, Ordering::Relaxed);
    }

    /// The number of counted values.
    pub fn count(&self) -> u64 {
        self.counts().sum()
    }

    fn counts(&self) -> impl Iterator<Item = u64> {
        self.buckets[..=S::BOUNDS.len()].iter().map(|bucket| bucket.load(Ordering::Relaxed))
    }
}

impl<S: Scale<Quantity = Seconds>> Histogram<S> {
    /// Counts the time from now until the timer is dropped.
    pub fn time(&self) -> Timer<'_, S> {
        Timer { histogram: Some(self), start: Instant::now() }
    }
}

impl<S> Default for Histogram<S> {
    fn default() -> Self {
        Self { buckets: Default::default(), sum: AtomicU64::new(0), scale: PhantomData }
    }
}

impl<S: Scale> fmt::Debug for Histogram<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("sum", &self.sum)
            .finish_non_exhaustive()
    }
}

impl<S: Scale> Used for Histogram<S> {
    fn is_used(&self) -> bool {
        self.counts().any(|count| count > 0)
    }
}

impl<S: Scale> Metric for Histogram<S> {
    const SCHEMA: MetricSchema = MetricSchema { bounds: S::BOUNDS, ..MetricSchema::of(Kind::Histogram) };

    fn write(&self, page: &mut Page<'_>) {
        let mut total = 0;
        let mut bounds = S::BOUNDS.iter();
        for count in self.counts() {
            total += count;
            let bound = bounds.next().map(|bound| Decimal::of::<S::Quantity>(*bound).to_string());
            page.labelled("le", bound.as_deref().unwrap_or("+Inf"), |page| page.sample("_bucket", total));
        }
        page.sample("_sum", Decimal::of::<S::Quantity>(self.sum.load(Ordering::Relaxed)));
        page.sample("_count", total);
    }
}

/// Counts the elapsed time when it is dropped, whichever way the measured work ends.
#[must_use = "the time is counted until this is dropped"]
pub struct Timer<'a, S: Scale<Quantity = Seconds>> {
    /// `None` if the time was counted already, or is not to be counted.
    histogram: Option<&'a Histogram<S>>,
    start: Instant,
}

impl<S: Scale<Quantity = Seconds>> Timer<'_, S> {
    /// Counts the time now and returns it.
    pub fn stop(mut self) -> Duration {
        let time = self.start.elapsed();
        if let Some(histogram) = self.histogram.take() {
            histogram.observe(time);
        }
        time
    }

    /// Discards the measurement.
    pub fn forget(mut self) {
        self.histogram = None;
    }
}

impl<S: Scale<Quantity = Seconds>> Drop for Timer<'_, S> {
    fn drop(&mut self) {
        if let Some(histogram) = self.histogram {
            histogram.observe(self.start.elapsed());
        }
    }
}

impl<S: Scale<Quantity = Seconds>> fmt::Debug for Timer<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("start", &self.start).finish_non_exhaustive()
    }
}

/// Fails the build if bounds do not ascend, or are too many.
const fn assert_in_order(bounds: &[u64]) {
    assert!(
        !bounds.is_empty() && bounds.len() < MAX_BUCKETS,
        "a histogram needs between 1 and MAX_BUCKETS - 1 bounds"
    );
    let mut at = 1;
    while at < bounds.len() {
        assert!(bounds[at - 1] < bounds[at], "bounds ascend");
        at += 1;
    }
}

#[cfg(test)]
mod tests;
