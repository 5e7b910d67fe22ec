//! A histogram of durations with 32 steps per doubling, so that every result is exact within about three per cent.

use serde::{Deserialize, Serialize};

use crate::number::{float, whole};

const STEPS: u32 = 32;
const STEP_BITS: u32 = STEPS.ilog2();

/// Durations in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

/// A summary of a histogram, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Delays {
    pub count: u64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

impl Histogram {
    pub fn record(&mut self, nanoseconds: u64) {
        let bucket = bucket(nanoseconds);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(nanoseconds);
        self.max = self.max.max(nanoseconds);
    }

    pub fn merge(&mut self, other: &Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The duration that this share of all values does not exceed: the upper end of its step, but never more than the maximum.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = whole((float(self.count) * share).ceil()).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_end(bucket).min(self.max);
            }
        }
        self.max
    }

    pub fn delays(&self) -> Delays {
        let ms = |nanoseconds: u64| float(nanoseconds) / 1e6;
        let mean = if self.count == 0 { 0.0 } else { float(self.sum) / float(self.count) / 1e6 };
        Delays {
            count: self.count,
            mean_ms: mean,
            p50_ms: ms(self.quantile(0.5)),
            p90_ms: ms(self.quantile(0.9)),
            p99_ms: ms(self.quantile(0.99)),
            p999_ms: ms(self.quantile(0.999)),
            max_ms: ms(self.max),
        }
    }
}

/// Small values have a bucket each. For larger ones, the top bits choose the bucket.
fn bucket(value: u64) -> usize {
    let exponent = (u64::BITS - value.leading_zeros()).saturating_sub(STEP_BITS + 1);
    let step = value >> exponent;
    usize::try_from(u64::from(exponent * STEPS) + step).unwrap_or(usize::MAX)
}

/// The largest value of a bucket.
fn upper_end(bucket: usize) -> u64 {
    let bucket = u64::try_from(bucket).unwrap_or(u64::MAX);
    let steps = u64::from(STEPS);
    let exponent = (bucket / steps).saturating_sub(1);
    let step = bucket - exponent * steps;
    (u128::from(step + 1) << exponent).saturating_sub(1).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_narrow_bucket_that_contains_it() {
        let mut values: Vec<u64> = (0..2000).collect();
        values.extend((0..63).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]));
        values.push(u64::MAX);
        for value in values {
            let end = upper_end(bucket(value));
            assert!(end >= value, "{value} is above the end {end} of its bucket");
            assert!(float(end) <= float(value) * 1.04, "{value} is far below the end {end} of its bucket");
            if bucket(value) > 0 {
                assert!(upper_end(bucket(value) - 1) < value, "{value} belongs to the bucket before");
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut histogram = Histogram::default();
        for value in 1..=1000 {
            histogram.record(value * 1_000_000);
        }
        let delays = histogram.delays();
        for (found, exact) in [(delays.p50_ms, 500.0), (delays.p90_ms, 900.0), (delays.p99_ms, 990.0)] {
            assert!((exact..exact * 1.04).contains(&found), "{found} for {exact}");
        }
        assert!((delays.mean_ms - 500.5).abs() < 1e-9 && (delays.max_ms - 1000.0).abs() < 1e-9);
        assert_eq!(delays.count, 1000);
    }

    #[test]
    fn two_halves_make_the_whole() {
        let (mut whole, mut even, mut odd) =
            (Histogram::default(), Histogram::default(), Histogram::default());
        for value in 0..10_000_u64 {
            whole.record(value * value);
            if value % 2 == 0 { even.record(value * value) } else { odd.record(value * value) }
        }
        even.merge(&odd);
        assert_eq!(even.delays(), whole.delays());
    }

    #[test]
    fn an_empty_histogram_gives_zeros() {
        assert_eq!(Histogram::default().delays(), Delays::default());
    }
}
