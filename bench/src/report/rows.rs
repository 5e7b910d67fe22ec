//! What was asked for, and what came of it: one row each.

use crate::histogram::Delays;
use crate::number::{float, median, short};
use crate::results::{Length, Measured, Results, Streams};

/// A row of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub what: String,
    pub longshore: String,
    pub peer: String,
    pub ratio: String,
    pub budget: String,
    /// `None`: there is no budget, or nothing to compare with it.
    pub met: Option<bool>,
}

type Quantile = fn(&Delays) -> f64;

const NONE: &str = "–";
/// Where both servers are compared.
const COMPARED: u64 = 32;

/// The rows, without those of which nothing was measured.
pub fn rows(results: &Results) -> Vec<Row> {
    let (ours, peer) = (&results.longshore, results.peer.as_ref());
    let mut rows = Vec::new();
    rows.extend(unary(ours, peer));
    rows.extend(deltas(ours, peer));
    rows.extend(at_rest(ours, peer));
    rows.extend(flatness(ours));
    rows.extend(steadiness(ours));
    rows
}

fn row(what: impl Into<String>, longshore: String) -> Row {
    let none = || NONE.to_owned();
    Row { what: what.into(), longshore, peer: none(), ratio: none(), budget: none(), met: None }
}

impl Row {
    fn beside(mut self, peer: Option<String>) -> Self {
        self.peer = peer.unwrap_or_else(|| NONE.to_owned());
        self
    }

    fn ratio(mut self, ratio: Option<f64>) -> Self {
        self.ratio = ratio.map_or_else(|| NONE.to_owned(), |ratio| format!("{}×", short(ratio)));
        self
    }

    fn budget(mut self, budget: impl Into<String>, met: Option<bool>) -> Self {
        (self.budget, self.met) = (budget.into(), met);
        self
    }
}

fn unary(ours: &Measured, peer: Option<&Measured>) -> Option<Row> {
    let best = |measured: &Measured| measured.unary.iter().map(|unary| unary.per_second).reduce(f64::max);
    let (ours, peer) = (best(ours)?, peer.and_then(best));
    let ratio = peer.map(|peer| ours / peer);
    let row = row("unary turns per second", short(ours)).beside(peer.map(short)).ratio(ratio);
    Some(row.budget("≥ 50×", ratio.map(|ratio| ratio >= 50.0)))
}

fn with(measured: &Measured, streams: u64) -> Option<&Streams> {
    measured.streams.iter().find(|point| point.streams == streams)
}

fn deltas(ours: &Measured, peer: Option<&Measured>) -> Vec<Row> {
    let mut rows = Vec::new();
    let point = |measured| with(measured, COMPARED);
    if let Some(ours) = point(ours) {
        let peer = peer.and_then(point);
        let ratio = peer.map(|peer| peer.cpu_us_per_delta / ours.cpu_us_per_delta);
        rows.push(
            row(format!("CPU per delta, {COMPARED} streams (µs)"), short(ours.cpu_us_per_delta))
                .beside(peer.map(|peer| short(peer.cpu_us_per_delta)))
                .ratio(ratio)
                .budget("≥ 200×", ratio.map(|ratio| ratio >= 200.0)),
        );
        let quantiles: [(&str, Quantile, f64); 2] =
            [("p50", |delays| delays.p50_ms, 1.0), ("p99", |delays| delays.p99_ms, 10.0)];
        for (name, cell, budget) in quantiles {
            let (mine, theirs) = (cell(&ours.delays), peer.map(|peer| cell(&peer.delays)));
            rows.push(
                row(format!("delay of a delta, {COMPARED} streams, {name} (ms)"), short(mine))
                    .beside(theirs.map(short))
                    .ratio(theirs.map(|theirs| theirs / mine))
                    .budget(format!("< {budget} ms"), Some(mine < budget)),
            );
        }
    }
    if let Some(ours) = &ours.fast {
        let peer = peer.and_then(|peer| peer.fast.as_ref());
        let rate = |point: &Streams| float(point.delivered) / point.window_s;
        rows.push(
            row("deltas per second delivered, 32 streams of 100/s", short(rate(ours)))
                .beside(peer.map(|peer| short(rate(peer))))
                .ratio(peer.map(|peer| rate(ours) / rate(peer).max(0.001))),
        );
    }
    rows
}

fn at_rest(ours: &Measured, peer: Option<&Measured>) -> Vec<Row> {
    let Some(mine) = &ours.start else { return Vec::new() };
    let theirs = peer.and_then(|peer| peer.start.as_ref());
    let megabytes = |kilobytes: u64| float(kilobytes) / 1024.0;
    let memory = megabytes(mine.rest.resident_kb);
    let start = median(&mine.card_ms);
    let their_start = theirs.map(|theirs| median(&theirs.card_ms));
    let their_memory = theirs.map(|theirs| megabytes(theirs.rest.resident_kb));
    vec![
        row("memory at rest (MB)", short(memory))
            .beside(their_memory.map(short))
            .ratio(their_memory.map(|theirs| theirs / memory))
            .budget("< 25 MB", Some(memory < 25.0)),
        row("start to the first card (ms)", short(start))
            .beside(their_start.map(short))
            .ratio(their_start.map(|theirs| theirs / start))
            .budget("< 100 ms", Some(start < 100.0)),
    ]
}

fn flatness(ours: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    if let (Some(few), Some(many)) = (with(ours, 10), with(ours, 1000)) {
        let ratio = many.cpu_us_per_delta / few.cpu_us_per_delta;
        rows.push(
            row("CPU per delta, 1 000 streams (µs)", short(many.cpu_us_per_delta))
                .ratio(Some(ratio))
                .budget("≤ 1.5× that at 10", Some(ratio <= 1.5)),
        );
        let more = float(many.live.anonymous_kb) - float(few.live.anonymous_kb);
        let each = more / float(many.streams - few.streams);
        rows.push(
            row("memory per further live stream (KB)", short(each)).budget("< 32 KB", Some(each < 32.0)),
        );
        let told = format!("{} complete, {} equal", many.completed, many.equal);
        let all = many.completed == many.streams && many.equal == many.streams;
        rows.push(row("1 000 streams of 10/s", told).budget("all", Some(all)));
    }
    let length = |deltas: u64| ours.length.iter().find(|point| point.deltas == deltas);
    if let (Some(short_task), Some(long)) = (length(100), length(10_000)) {
        let ratio = long.cpu_us_per_delta / short_task.cpu_us_per_delta;
        rows.push(
            row("CPU per delta, 10 000 deltas a task (µs)", short(long.cpu_us_per_delta))
                .ratio(Some(ratio))
                .budget("≤ 1.2× that at 100", Some(ratio <= 1.2)),
        );
        rows.extend(within(long));
    }
    rows
}

/// How the price changes within the longest tasks.
fn within(long: &Length) -> Option<Row> {
    let (first, last) = (long.first_tenth_us?, long.last_tenth_us?);
    let ratio = last / first;
    let told = format!("{} → {}", short(first), short(last));
    Some(row("CPU per delta, first and last tenth of these (µs)", told).ratio(Some(ratio)))
}

fn steadiness(ours: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(stalled) = &ours.stalled {
        let growth = float(stalled.later.anonymous_kb) - float(stalled.filled.anonymous_kb);
        let told = format!("{} KB in {} s", short(growth), stalled.seconds);
        rows.push(
            row(format!("memory growth, {} stalled readers", stalled.readers), told).budget("flat", None),
        );
        let (before, during) = (stalled.before.p99_ms, stalled.during.p99_ms);
        rows.push(
            row("delay of the others meanwhile, p99 (ms)", format!("{} → {}", short(before), short(during)))
                .ratio(Some(during / before))
                .budget("unchanged", None),
        );
    }
    if let Some(overload) = &ours.overload {
        let refused: u64 = overload.refused.values().sum();
        let untyped: u64 = overload.untyped.values().sum();
        let told = format!(
            "{} offered, {} taken, {refused} refused, {untyped} neither",
            overload.offered, overload.accepted
        );
        rows.push(row("five times its capacity", told).budget("refusals are typed", Some(untyped == 0)));
        let told = format!("{} complete, {} not", overload.completed, overload.lost);
        rows.push(row("what was taken", told).budget("all complete", Some(overload.lost == 0)));
        let (before, after) = (overload.before.p99_ms, overload.after.p99_ms);
        rows.push(
            row("turn before and a minute later, p99 (ms)", format!("{} → {}", short(before), short(after)))
                .ratio(Some(after / before))
                .budget("as before", None),
        );
    }
    if !ours.flood.is_empty() {
        let ratio =
            |of: fn(&crate::results::Flood) -> f64| median(&ours.flood.iter().map(of).collect::<Vec<_>>());
        let turns = ratio(|flood| flood.flooded_turns.p99_ms / flood.calm_turns.p99_ms);
        let deltas = ratio(|flood| flood.flooded_deltas.p99_ms / flood.calm_deltas.p99_ms);
        for (what, ratio) in [("turns", turns), ("deltas", deltas)] {
            rows.push(
                row(
                    format!("p99 of another's {what} while one floods (median)"),
                    format!("{}×", short(ratio)),
                )
                .ratio(Some(ratio))
                .budget("≤ 2×", Some(ratio <= 2.0)),
            );
        }
    }
    if let Some(scrape) = &ours.scrape {
        rows.push(row("CPU of one scrape of the metrics under load (ms)", short(scrape.cpu_ms)));
    }
    if let (Some(middle), Some(last)) = (ours.soak.get(ours.soak.len() / 2), ours.soak.last()) {
        let megabytes = |bytes: u64| short(float(bytes) / 1024.0 / 1024.0);
        let cells = [
            (
                "memory (MB)",
                megabytes(middle.memory.anonymous_kb * 1024),
                megabytes(last.memory.anonymous_kb * 1024),
            ),
            ("open files", middle.open_files.to_string(), last.open_files.to_string()),
            ("database (MB)", megabytes(middle.database_bytes), megabytes(last.database_bytes)),
        ];
        for (what, middle, last) in cells {
            let what = format!("soak, half-way and at the end: {what}");
            rows.push(row(what, format!("{middle} → {last}")).budget("flat", None));
        }
    }
    rows
}
