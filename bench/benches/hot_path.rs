//! Times of the pieces of the hot path. `cargo bench --package longshore-bench -- delta` runs those with that name.

use clap::ValueEnum as _;
use criterion::{Criterion, Throughput};
use longshore_bench::micro::Case;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for case in Case::value_variants() {
        let mut group = criterion.benchmark_group(case.name());
        let mut work = case.prepare();
        group.throughput(Throughput::Elements(work.items));
        group.bench_function("once", |bencher| bencher.iter(|| work.once()));
        group.finish();
    }
    criterion.final_summary();
}
