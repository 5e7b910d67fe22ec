//! Metrics of a single number. Each is an atomic with relaxed ordering: no other memory access depends on it.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::page::{Kind, Labels, Metric, MetricSchema, Page};
use crate::quantity::{Decimal, Quantity};

/// A number that only grows.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds a number.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// The current count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Metric for Counter {
    const SCHEMA: MetricSchema = MetricSchema::of(Kind::Counter);

    fn write(&self, page: &mut Page<'_>) {
        page.sample("", self.get());
    }
}

/// A number that goes up and down.
#[derive(Default, Debug)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Adds a number, which may be negative. Returns the new value.
    pub fn add(&self, change: i64) -> i64 {
        self.0.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }

    /// Replaces the value.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Metric for Gauge {
    const SCHEMA: MetricSchema = MetricSchema::of(Kind::Gauge);

    fn write(&self, page: &mut Page<'_>) {
        page.sample("", self.get());
    }
}

/// The highest value since the start. A scrape does not reset it, because there may be several readers.
#[derive(Default, Debug)]
pub struct Peak(AtomicI64);

impl Peak {
    /// Records the current value.
    pub fn reach(&self, value: i64) {
        // Mostly the value is no new peak, and a read does not take the cache line from other cores.
        if self.get() < value {
            self.0.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// The highest value so far.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Metric for Peak {
    const SCHEMA: MetricSchema = MetricSchema::of(Kind::Gauge);

    fn write(&self, page: &mut Page<'_>) {
        page.sample("", self.get());
    }
}

/// The last measured value. Before the first measurement the series has no sample, because a zero would look like a
/// measured value.
pub struct Reading<Q> {
    /// `UNREAD`, or the value in the representation of the quantity.
    raw: AtomicU64,
    of: PhantomData<fn() -> Q>,
}

const UNREAD: u64 = u64::MAX;

impl<Q: Quantity> Reading<Q> {
    /// Sets the value.
    pub fn set(&self, value: Q::Value) {
        self.raw.store(Q::raw(value).min(UNREAD - 1), Ordering::Relaxed);
    }

    /// Removes the value: it is unknown now.
    pub fn forget(&self) {
        self.raw.store(UNREAD, Ordering::Relaxed);
    }

    fn raw(&self) -> Option<u64> {
        Some(self.raw.load(Ordering::Relaxed)).filter(|raw| *raw != UNREAD)
    }
}

impl<Q> Default for Reading<Q> {
    fn default() -> Self {
        Self { raw: AtomicU64::new(UNREAD), of: PhantomData }
    }
}

impl<Q: Quantity> fmt::Debug for Reading<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reading").field(&self.raw()).finish()
    }
}

impl<Q: Quantity> Metric for Reading<Q> {
    const SCHEMA: MetricSchema = MetricSchema::of(Kind::Gauge);

    fn write(&self, page: &mut Page<'_>) {
        if let Some(raw) = self.raw() {
            page.sample("", Decimal::of::<Q>(raw));
        }
    }
}

/// A reading of a number that only grows and that is counted elsewhere, such as in the kernel.
pub struct Total<Q>(Reading<Q>);

impl<Q> Default for Total<Q> {
    fn default() -> Self {
        Self(Reading::default())
    }
}

impl<Q: Quantity> fmt::Debug for Total<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Total").field(&self.0.raw()).finish()
    }
}

impl<Q> Deref for Total<Q> {
    type Target = Reading<Q>;

    fn deref(&self) -> &Reading<Q> {
        &self.0
    }
}

impl<Q: Quantity> Metric for Total<Q> {
    const SCHEMA: MetricSchema = MetricSchema::of(Kind::Counter);

    fn write(&self, page: &mut Page<'_>) {
        self.0.write(page);
    }
}

/// A fact that is not a number: a series that is always 1 and has the fact in its label.
#[derive(Default, Debug)]
pub struct Info {
    version: OnceLock<Box<str>>,
}

impl Info {
    /// Sets the version. Only the first call has an effect.
    pub(crate) fn state(&self, version: &str) {
        let _ = self.version.set(version.into());
    }
}

impl Metric for Info {
    const SCHEMA: MetricSchema = MetricSchema {
        labels: Some(&Labels { name: "version", values: &[], inner: None }),
        ..MetricSchema::of(Kind::Gauge)
    };

    fn write(&self, page: &mut Page<'_>) {
        if let Some(version) = self.version.get() {
            page.labelled("version", version, |page| page.sample("", 1));
        }
    }
}

/// A series that is on the page only once something was counted in it. For labels with many values of which a
/// gateway uses a few. Do not use it where an alert must see a zero first.
#[derive(Default, Debug)]
pub struct WhenUsed<M>(M);

impl<M> Deref for WhenUsed<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.0
    }
}

/// Whether something was counted.
pub(crate) trait Used {
    fn is_used(&self) -> bool;
}

impl Used for Counter {
    fn is_used(&self) -> bool {
        self.get() > 0
    }
}

impl<M: Metric + Used> Metric for WhenUsed<M> {
    const SCHEMA: MetricSchema = M::SCHEMA;

    fn write(&self, page: &mut Page<'_>) {
        if self.0.is_used() {
            self.0.write(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;
    use crate::page::Family;
    use crate::quantity::{Milliseconds, Seconds};

    /// The samples, without the HELP and TYPE lines.
    fn samples<M: Metric>(metric: &M) -> String {
        let mut text = String::new();
        Page::new(&mut text).family(&Family { name: "a", help: "A.", schema: M::SCHEMA }, metric);
        text.lines().skip(2).collect()
    }

    #[test]
    fn a_gauge_goes_up_and_down_and_returns_its_value() {
        let gauge = Gauge::default();
        assert_eq!(gauge.add(3), 3);
        assert_eq!(gauge.add(-5), -2);
        assert_eq!(samples(&gauge), "a -2");
        gauge.set(7);
        assert_eq!(gauge.get(), 7);
    }

    #[test]
    fn a_peak_does_not_go_down() {
        let peak = Peak::default();
        for now in [1, 5, 2] {
            peak.reach(now);
        }
        assert_eq!(samples(&peak), "a 5");
    }

    #[test]
    fn a_reading_is_shown_only_while_its_value_is_known() {
        let reading = Reading::<Milliseconds>::default();
        assert_eq!(samples(&reading), "");
        reading.set(Duration::from_micros(1_500));
        assert_eq!(samples(&reading), "a 1.5");
        reading.set(Duration::ZERO);
        assert_eq!(samples(&reading), "a 0");
        reading.forget();
        assert_eq!(samples(&reading), "");
        reading.set(Duration::MAX);
        assert_eq!(samples(&reading), "a 18446744073709.551614");
    }

    #[test]
    fn a_total_is_a_counter_and_a_reading_is_a_gauge() {
        assert_eq!(<Total<Seconds> as Metric>::SCHEMA.kind, Kind::Counter);
        assert_eq!(<Reading<Seconds> as Metric>::SCHEMA.kind, Kind::Gauge);
        let total = Total::<Seconds>::default();
        total.set(Duration::from_millis(10));
        assert_eq!(samples(&total), "a 0.01");
    }

    #[test]
    fn a_version_is_set_once_and_escaped() {
        let info = Info::default();
        assert_eq!(samples(&info), "");
        info.state("1.2\"\n");
        info.state("3");
        assert_eq!(samples(&info), "a{version=\"1.2\\\"\\n\"} 1");
    }

    #[test]
    fn a_series_for_use_only_is_hidden_before_its_first_use() {
        let counter = WhenUsed::<Counter>::default();
        assert_eq!(samples(&counter), "");
        counter.increment();
        assert_eq!(samples(&counter), "a 1");
    }

    #[test]
    fn concurrent_additions_are_not_lost() {
        let (counter, gauge, peak) = (Counter::default(), Gauge::default(), Peak::default());
        // Without the barrier, the threads would hardly run at the same time.
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..200_000 {
                        counter.add(2);
                        peak.reach(gauge.add(1));
                        gauge.add(-1);
                    }
                });
            }
        });
        assert_eq!(counter.get(), 1_600_000);
        assert_eq!(gauge.get(), 0);
        assert!((1..=4).contains(&peak.get()), "{peak:?}");
    }
}
