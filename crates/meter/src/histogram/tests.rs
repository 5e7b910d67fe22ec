//! Values are counted in the right buckets, and the numbers on the page agree with each other.

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::page::Family;
use crate::quantity::Whole;

struct Few;

impl Scale for Few {
    type Quantity = Whole;
    const BOUNDS: &'static [u64] = &[0, 5, 10];
}

struct Short;

impl Scale for Short {
    type Quantity = Seconds;
    const BOUNDS: &'static [u64] = &[1_000, 1_000_000_000];
}

/// The samples, without the HELP and TYPE lines.
fn samples<S: Scale>(histogram: &Histogram<S>) -> Vec<String> {
    let mut text = String::new();
    let family = Family { name: "a", help: "A.", schema: <Histogram<S> as Metric>::SCHEMA };
    Page::new(&mut text).family(&family, histogram);
    text.lines().skip(2).map(str::to_owned).collect()
}

#[test]
fn a_value_equal_to_a_bound_is_in_its_bucket_and_a_larger_one_in_the_next() {
    for (value, bucket) in [(0, 0), (1, 1), (4, 1), (5, 1), (6, 2), (10, 2), (11, 3), (u64::MAX, 3)] {
        let histogram = Histogram::<Few>::default();
        histogram.observe(value);
        let found: Vec<u64> = histogram.counts().collect();
        let mut expected = vec![0; 4];
        expected[bucket] = 1;
        assert_eq!(found, expected, "{value}");
    }
}

#[test]
fn buckets_on_the_page_include_the_smaller_ones() {
    let histogram = Histogram::<Few>::default();
    for value in [0, 3, 5, 7, 100] {
        histogram.observe(value);
    }
    let lines = [
        "a_bucket{le=\"0\"} 1",
        "a_bucket{le=\"5\"} 3",
        "a_bucket{le=\"10\"} 4",
        "a_bucket{le=\"+Inf\"} 5",
        "a_sum 115",
        "a_count 5",
    ];
    assert_eq!(samples(&histogram), lines);
}

#[test]
fn a_new_histogram_has_all_its_buckets_and_is_unused() {
    let histogram = Histogram::<Short>::default();
    assert!(!histogram.is_used());
    let lines = [
        "a_bucket{le=\"0.000001\"} 0",
        "a_bucket{le=\"1\"} 0",
        "a_bucket{le=\"+Inf\"} 0",
        "a_sum 0",
        "a_count 0",
    ];
    assert_eq!(samples(&histogram), lines);
    // A value above the last bound counts as a use too.
    histogram.observe(Duration::from_secs(2));
    assert!(histogram.is_used());
}

#[test]
fn times_are_summed_exactly() {
    let histogram = Histogram::<Short>::default();
    histogram.observe(Duration::from_micros(1));
    histogram.observe(Duration::from_nanos(1_001));
    histogram.observe(Duration::from_millis(2_500));
    let lines = [
        "a_bucket{le=\"0.000001\"} 1",
        "a_bucket{le=\"1\"} 2",
        "a_bucket{le=\"+Inf\"} 3",
        "a_sum 2.500002001",
        "a_count 3",
    ];
    assert_eq!(samples(&histogram), lines);
}

#[test]
fn a_timer_counts_once_whichever_way_it_ends() {
    let histogram = Histogram::<Short>::default();
    drop(histogram.time());
    assert_eq!(histogram.count(), 1);

    let elapsed = histogram.time().stop();
    assert_eq!(histogram.count(), 2);
    assert!(Duration::from_nanos(histogram.sum.load(Ordering::Relaxed)) >= elapsed);

    histogram.time().forget();
    assert_eq!(histogram.count(), 2);

    let fails = || -> Result<(), ()> {
        let _timer = histogram.time();
        Err(())
    };
    assert!(fails().is_err());
    assert_eq!(histogram.count(), 3);
}

#[test]
fn a_timer_returns_the_time_since_its_creation() {
    let histogram = Histogram::<Short>::default();
    let timer = histogram.time();
    let before = Instant::now();
    while before.elapsed() < Duration::from_millis(2) {
        std::hint::spin_loop();
    }
    let elapsed = timer.stop();
    assert!(elapsed >= Duration::from_millis(2), "{elapsed:?}");
    assert_eq!(histogram.sum.load(Ordering::Relaxed), u64::try_from(elapsed.as_nanos()).unwrap());
}

#[test]
fn concurrent_observations_are_not_lost() {
    let histogram = Histogram::<Few>::default();
    // Without the barrier, the threads would hardly run at the same time.
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                (0..1_200_000).for_each(|value| histogram.observe(value % 12));
            });
        }
    });
    let counts: Vec<u64> = histogram.counts().collect();
    assert_eq!(counts, [400_000, 2_000_000, 2_000_000, 400_000]);
    // 0 to 11, a hundred thousand times in each of four threads.
    assert_eq!(histogram.sum.load(Ordering::Relaxed), 66 * 400_000);
}

#[test]
fn a_scrape_during_observations_is_consistent() {
    let histogram = Histogram::<Few>::default();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..200_000).for_each(|value| histogram.observe(value % 12));
            over.store(true, Ordering::Release);
        });
        loop {
            let last = over.load(Ordering::Acquire);
            let lines = samples(&histogram);
            let value = |line: &String| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
            let buckets: Vec<u64> = lines[..4].iter().map(value).collect();
            assert!(buckets.is_sorted(), "{lines:?}");
            assert_eq!(buckets[3], value(&lines[5]), "{lines:?}");
            if last {
                assert_eq!(buckets[3], 200_000);
                break;
            }
        }
    });
}
