//! The rows of the table: each compares a result with its budget.

use super::asked;
use super::sound::{self, Sound};
use crate::histogram::Delays;
use crate::number::{float, median, short};
use crate::results::{
    Acp, Bindings, Flood, Length, Measured, Overload, Push, PushRun, Results, SoakSample, Stalled, Streams,
    Unary,
};

/// A row of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The key of its reason.
    pub key: &'static str,
    pub what: String,
    pub longshore: String,
    pub peer: String,
    pub ratio: String,
    pub budget: String,
    /// `None`: there is no budget, or nothing to compare with it.
    pub met: Option<bool>,
}

type Quantile = fn(&Delays) -> f64;
type OfRound = fn(&Flood) -> Sound;
type OfSample = fn(&SoakSample) -> f64;

/// By how much two runs may differ by chance.
const NOISE: f64 = 1.5;

/// Lags of push notifications that differ by no more than this are equal.
const PUSH_NOISE_MS: f64 = 2.0;

/// The delays with a budget.
const QUANTILES: [(&str, &str, Quantile, f64); 2] =
    [("delay-p50", "p50", |delays| delays.p50_ms, 1.0), ("delay-p99", "p99", |delays| delays.p99_ms, 10.0)];

const NONE: &str = "–";
/// The number of streams at which both servers are compared.
const COMPARED: u64 = 32;

/// The rows: in a full run all rows with a budget, otherwise those that were measured.
pub fn rows(results: &Results) -> Vec<Row> {
    let (ours, peer) = (&results.longshore, results.peer.as_ref());
    let mut rows = Vec::new();
    rows.extend(unary(ours, peer));
    rows.extend(deltas(ours, peer));
    rows.extend(at_rest(ours, peer));
    rows.extend(flatness(ours));
    rows.extend(ours.acp.as_ref().map(acp).into_iter().flatten());
    rows.extend(ours.bindings.as_ref().map(bindings).into_iter().flatten());
    rows.extend(steadiness(ours));
    asked::complete(&mut rows, results);
    rows
}

pub(super) fn row(key: &'static str, what: impl Into<String>, longshore: String) -> Row {
    let none = || NONE.to_owned();
    Row { key, what: what.into(), longshore, peer: none(), ratio: none(), budget: none(), met: None }
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

    pub(super) fn budget(mut self, budget: impl Into<String>, met: Option<bool>) -> Self {
        (self.budget, self.met) = (budget.into(), met);
        self
    }

    /// A number that is not sound meets no budget.
    fn if_sound(mut self, sound: Sound) -> Self {
        if let Err(why) = sound {
            self.longshore = format!("{} ({why})", self.longshore);
            self.met = Some(false);
        }
        self
    }

    /// A comparison with an unsound number meets no budget either.
    fn if_peer_sound(mut self, sound: Option<Sound>) -> Self {
        if let Some(Err(why)) = sound {
            self.peer = format!("{} ({why})", self.peer);
            self.met = Some(false);
        }
        self
    }
}

fn unary(ours: &Measured, peer: Option<&Measured>) -> Option<Row> {
    let (ours, peer) = (best(ours)?, peer.and_then(best));
    let ratio = peer.map(|peer| ours.per_second / peer.per_second);
    let row = row("unary", "unary turns per second", short(ours.per_second))
        .beside(peer.map(|peer| short(peer.per_second)))
        .ratio(ratio)
        .budget("≥ 50×", ratio.map(|ratio| ratio >= 50.0));
    Some(row.if_sound(sound::turns(ours)).if_peer_sound(peer.map(sound::peer_turns)))
}

fn best(measured: &Measured) -> Option<&Unary> {
    measured.unary.iter().max_by(|one, other| one.per_second.total_cmp(&other.per_second))
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
            cpu("cpu", ours, peer)
                .budget("≥ 200×", ratio.map(|ratio| ratio >= 200.0))
                .if_sound(sound::streams(ours))
                .if_peer_sound(peer.map(sound::peer_streams)),
        );
        for (key, name, cell, budget) in QUANTILES {
            let (mine, theirs) = (cell(&ours.delays), peer.map(|peer| cell(&peer.delays)));
            rows.push(
                row(key, format!("delay of a delta, {COMPARED} streams, {name} (ms)"), short(mine))
                    .beside(theirs.map(short))
                    .ratio(theirs.map(|theirs| theirs / mine))
                    .budget(format!("< {budget} ms"), Some(mine < budget))
                    .if_sound(sound::streams(ours)),
            );
        }
    }
    if let Some(ours) = &ours.fast {
        let peer = peer.and_then(|peer| peer.fast.as_ref());
        // Without a budget: the peer delivers so little here that the ratio says more about that.
        rows.push(cpu("cpu-fast", ours, peer));
        let rate = |point: &Streams| float(point.delivered) / point.window_s;
        rows.push(
            row("fast", "deltas per second delivered, 32 streams of 100/s", short(rate(ours)))
                .beside(peer.map(|peer| short(rate(peer))))
                .ratio(peer.map(|peer| rate(ours) / rate(peer).max(0.001))),
        );
    }
    rows
}

fn cpu(key: &'static str, ours: &Streams, peer: Option<&Streams>) -> Row {
    let ratio = peer.map(|peer| peer.cpu_us_per_delta / ours.cpu_us_per_delta);
    let what = format!("CPU per delta, {} streams of {}/s (µs)", ours.streams, ours.rate);
    row(key, what, short(ours.cpu_us_per_delta))
        .beside(peer.map(|peer| short(peer.cpu_us_per_delta)))
        .ratio(ratio)
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
        row("rest", "memory at rest (MB)", short(memory))
            .beside(their_memory.map(short))
            .ratio(their_memory.map(|theirs| theirs / memory))
            .budget("< 25 MB", Some(memory < 25.0)),
        row("start", "start to the first card (ms)", short(start))
            .beside(their_start.map(short))
            .ratio(their_start.map(|theirs| theirs / start))
            .budget("< 100 ms", Some(start < 100.0)),
    ]
}

fn flatness(ours: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    if let (Some(few), Some(many)) = (with(ours, 10), with(ours, 1000)) {
        let ratio = many.cpu_us_per_delta / few.cpu_us_per_delta;
        let both = sound::streams(few).and_then(|()| sound::streams(many));
        rows.push(
            row("cpu-1000", "CPU per delta, 1 000 streams (µs)", short(many.cpu_us_per_delta))
                .ratio(Some(ratio))
                .budget("≤ 1.5× that at 10", Some(ratio <= 1.5))
                .if_sound(both),
        );
        let more = float(many.live.anonymous_kb) - float(few.live.anonymous_kb);
        let each = more / float(many.streams - few.streams);
        rows.push(
            row("memory-stream", "memory per further live stream (KB)", short(each))
                .budget("< 32 KB", Some(each < 32.0))
                .if_sound(sound::live(few).and_then(|()| sound::live(many))),
        );
        let cell = format!("{} complete, {} equal", many.completed, many.equal);
        let all =
            many.completed == many.streams && many.equal == many.streams && many.kept_equal == many.kept;
        rows.push(row("complete-1000", "1 000 streams of 10/s", cell).budget("all", Some(all)));
        let cell = format!("{} / {}", short(many.delays.p50_ms), short(many.delays.p99_ms));
        let is_met = QUANTILES.iter().all(|(_, _, cell, budget)| cell(&many.delays) < *budget);
        rows.push(
            row("delay-1000", "delay of a delta, 1 000 streams, p50 / p99 (ms)", cell)
                .budget("< 1 / < 10 ms", Some(is_met))
                .if_sound(sound::streams(many)),
        );
    }
    let length = |deltas: u64| ours.length.iter().find(|point| point.deltas == deltas);
    if let (Some(short_task), Some(long)) = (length(100), length(10_000)) {
        let ratio = long.cpu_us_per_delta / short_task.cpu_us_per_delta;
        rows.push(
            row("cpu-length", "CPU per delta, 10 000 deltas a task (µs)", short(long.cpu_us_per_delta))
                .ratio(Some(ratio))
                .budget("≤ 1.2× that at 100", Some(ratio <= 1.2))
                .if_sound(sound::length(short_task).and_then(|()| sound::length(long))),
        );
        rows.extend(within(long));
    }
    rows
}

/// How the cost changes within the longest tasks. A comparison of tasks of different lengths hides this: in short tasks the start
/// and the end of the turn are a large part of the cost of a delta.
fn within(long: &Length) -> Option<Row> {
    let (first, last) = (long.first_tenth_us?, long.last_tenth_us?);
    let ratio = last / first;
    let cell = format!("{} → {}", short(first), short(last));
    Some(
        row("cpu-within", "CPU per delta, first and last tenth of these (µs)", cell)
            .ratio(Some(ratio))
            .budget("≤ 1.2×", Some(ratio <= 1.2))
            .if_sound(sound::length(long)),
    )
}

/// The median CPU time per delta of several runs. A median, because a busy machine can spoil one run.
fn cost(points: &[Streams]) -> f64 {
    median(&points.iter().map(|point| point.cpu_us_per_delta).collect::<Vec<_>>())
}

fn acp(acp: &Acp) -> Vec<Row> {
    let mut rows = Vec::new();
    if !acp.http.is_empty() && !acp.acp.is_empty() {
        let (http, own) = (cost(&acp.http), cost(&acp.acp));
        let ratio = own / http;
        let all = acp.http.iter().chain(&acp.acp).try_for_each(sound::streams);
        let what = format!("CPU per delta over ACP and over HTTP, {COMPARED} streams of 10/s (µs)");
        rows.push(
            row("acp-cpu", what, format!("{} and {}", short(own), short(http)))
                .ratio(Some(ratio))
                .budget("≤ 1.5× that over HTTP", Some(ratio <= 1.5))
                .if_sound(all),
        );
    }
    if let Some(point) = &acp.sessions {
        let cell = format!("{} complete, {} equal", point.completed, point.equal);
        rows.push(
            row("acp-sessions", format!("{} sessions on one ACP process, 10/s each", point.streams), cell)
                .budget("all", Some(true))
                .if_sound(sound::streams(point)),
        );
    }
    rows
}

fn bindings(bindings: &Bindings) -> Vec<Row> {
    let Bindings { json_rpc, rest: _, websocket, grpc } = bindings;
    let rows = [("cpu-grpc", "gRPC", grpc), ("cpu-websocket", "WebSocket", websocket)];
    let measured = rows.into_iter().filter(|(_, _, runs)| !runs.is_empty() && !json_rpc.is_empty());
    let rows = measured.map(|(key, name, runs)| {
        let (sse, own) = (cost(json_rpc), cost(runs));
        let ratio = own / sse;
        let what = format!("CPU per delta over {name} and over SSE, {COMPARED} streams of 10/s (µs)");
        row(key, what, format!("{} and {}", short(own), short(sse)))
            .ratio(Some(ratio))
            .budget("≤ 1.3× that over SSE", Some(ratio <= 1.3))
            .if_sound(json_rpc.iter().chain(runs).try_for_each(sound::streams))
    });
    rows.collect()
}

fn steadiness(ours: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(ours.stalled.as_ref().map(stalled).into_iter().flatten());
    rows.extend(ours.overload.as_ref().map(overload).into_iter().flatten());
    rows.extend(flood(&ours.flood));
    rows.extend(ours.push.as_ref().and_then(push));
    if let Some(scrape) = &ours.scrape {
        let cell = format!("{} for {} KB", short(scrape.cpu_ms), scrape.bytes / 1024);
        rows.push(row("scrape", "CPU of one scrape of the metrics under load (ms)", cell));
    }
    rows.extend(soak(&ours.soak));
    rows
}

fn stalled(stalled: &Stalled) -> [Row; 2] {
    let (filled, later) = (stalled.filled.anonymous_kb, stalled.later.anonymous_kb);
    let growth = float(later) - float(filled);
    let cell = format!("{} KB in {} s, on {} KB", short(growth), stalled.seconds, short(float(filled)));
    let is_flat = stalled.stuck >= stalled.readers && growth <= (float(filled) * 0.1).max(1024.0);
    let calm = |quantile: Quantile| stalled.before.iter().map(quantile).fold(0.0, f64::max);
    let (before, during) = (calm(|delays| delays.p99_ms), stalled.during.p99_ms);
    let pair = |delays: &Delays| format!("{} / {}", short(delays.p50_ms), short(delays.p99_ms));
    let runs: Vec<_> = stalled.before.iter().map(pair).collect();
    let is_unchanged =
        during <= before * NOISE && stalled.during.p50_ms <= calm(|delays| delays.p50_ms) * NOISE;
    [
        row(
            "stalled-memory",
            format!("memory growth, {} of {} readers stuck", stalled.stuck, stalled.readers),
            cell,
        )
        .budget("flat (≤ 10 %)", Some(is_flat)),
        row(
            "stalled-delay",
            "delay of other readers without and with them, p50 / p99 (ms)",
            format!("{} → {}", runs.join(", "), pair(&stalled.during)),
        )
        .ratio(Some(during / before))
        .budget(format!("unchanged (≤ {NOISE}×)"), Some(is_unchanged))
        .if_sound(sound::stalled(stalled)),
    ]
}

fn overload(overload: &Overload) -> [Row; 4] {
    let refused: u64 = overload.refused.values().sum();
    let untyped: u64 = overload.untyped.values().sum();
    let times = overload.offered_per_second / overload.capacity_per_second;
    let offered = format!("{} /s in {} s", short(overload.offered_per_second), short(overload.seconds));
    let answers = format!(
        "{} accepted, {refused} refused, {} of them without Retry-After, {untyped} neither",
        overload.accepted, overload.without_retry_after
    );
    let lost: u64 = overload.lost.values().sum();
    let accepted = format!("{} complete, {} equal, {lost} not complete", overload.completed, overload.equal);
    let all = overload.completed == overload.accepted && overload.equal == overload.accepted;
    let is_typed = untyped == 0 && overload.without_retry_after == 0 && refused > 0;
    let (before, after) = (&overload.before, &overload.after);
    let speed = format!(
        "{} → {} turns/s, p99 {} → {} ms",
        short(overload.before_per_second),
        short(overload.after_per_second),
        short(before.p99_ms),
        short(after.p99_ms)
    );
    let is_as_before = after.count > 0
        && overload.after_per_second * NOISE >= overload.before_per_second
        && after.p99_ms <= before.p99_ms * NOISE
        && after.p50_ms <= before.p50_ms * NOISE;
    [
        row("overload-offered", "overload: turns offered", offered)
            .ratio(Some(times))
            .budget("5× its capacity", Some(times >= 4.75)),
        row("overload-refused", "overload: answers", answers).budget("refusals are typed", Some(is_typed)),
        row("overload-taken", "overload: accepted turns", accepted).budget("all complete, equal", Some(all)),
        row("overload-after", "overload: before, and a minute later", speed)
            .ratio(Some(after.p99_ms / before.p99_ms))
            .budget(format!("as before (≤ {NOISE}×)"), Some(is_as_before)),
    ]
}

fn flood(rounds: &[Flood]) -> Vec<Row> {
    if rounds.is_empty() {
        return Vec::new();
    }
    let middle = |of: fn(&Flood) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let cases: [(_, _, _, OfRound); 4] = [
        (
            "flood-turns",
            "turns during a flood",
            middle(|flood| flood.flooded.turns.p99_ms / flood.calm.turns.p99_ms),
            sound::flooded_turns,
        ),
        (
            "flood-deltas",
            "deltas during a flood",
            middle(|flood| flood.flooded.deltas.p99_ms / flood.calm.deltas.p99_ms),
            sound::flooded,
        ),
        (
            "flood-rated-turns",
            "turns during a flood, with a rate limit",
            middle(|flood| flood.rated.turns.p99_ms / flood.rated_calm.turns.p99_ms),
            sound::rated_turns,
        ),
        (
            "flood-rated-deltas",
            "deltas during a flood, with a rate limit",
            middle(|flood| flood.rated.deltas.p99_ms / flood.rated_calm.deltas.p99_ms),
            sound::rated,
        ),
    ];
    let rows = cases.into_iter().map(|(key, what, ratio, check)| {
        row(
            key,
            format!("p99 of another principal's {what} (median of {})", rounds.len()),
            format!("{}×", short(ratio)),
        )
        .ratio(Some(ratio))
        .budget("≤ 2×", Some(ratio <= 2.0))
        .if_sound(rounds.iter().try_for_each(check))
    });
    rows.collect()
}

fn push(push: &Push) -> Option<Row> {
    let some = push.with.first()?;
    let worst = |runs: &[PushRun], of: Quantile| runs.iter().map(|run| of(&run.lag)).fold(0.0, f64::max);
    let pairs = |runs: &[PushRun]| {
        let pair = |run: &PushRun| format!("{} / {}", short(run.lag.p50_ms), short(run.lag.p99_ms));
        runs.iter().map(pair).collect::<Vec<_>>().join(", ")
    };
    // The lags are whole milliseconds, so a small difference says nothing.
    let growth = |of: Quantile| worst(&push.with, of) / worst(&push.without, of).max(1.0);
    let is_flat = |of: Quantile| {
        growth(of) <= NOISE || worst(&push.with, of) - worst(&push.without, of) <= PUSH_NOISE_MS
    };
    let p99 = growth(|lag| lag.p99_ms);
    let both_are_flat = is_flat(|lag| lag.p50_ms) && is_flat(|lag| lag.p99_ms);
    let what = format!(
        "lag of push notifications to {} webhooks, without and with {} dead hosts, p50 / p99 (ms)",
        short(float(some.webhooks)),
        some.dead
    );
    Some(
        row("push-lag", what, format!("{} → {}", pairs(&push.without), pairs(&push.with)))
            .ratio(Some(p99))
            .budget(format!("flat (≤ {NOISE}×)"), Some(both_are_flat))
            .if_sound(sound::push(push)),
    )
}

/// The second and the last quarter of a soak, when old tasks are being removed.
fn soak(samples: &[SoakSample]) -> Vec<Row> {
    let quarter = samples.len() / 4;
    if quarter == 0 {
        return Vec::new();
    }
    let (second, last) = (&samples[quarter..2 * quarter], &samples[samples.len() - quarter..]);
    let mean = |part: &[SoakSample], of: OfSample| {
        part.iter().map(of).sum::<f64>() / float(u64::try_from(part.len()).unwrap_or(1))
    };
    let cells: [(&str, &str, OfSample); 3] = [
        ("soak-memory", "memory (MB)", |sample| float(sample.memory.anonymous_kb) / 1024.0),
        ("soak-files", "open files", |sample| float(sample.open_files)),
        ("soak-database", "database (MB)", |sample| float(sample.database_bytes) / 1024.0 / 1024.0),
    ];
    let rows = cells.into_iter().map(|(key, what, of)| {
        let (then, now) = (mean(second, of), mean(last, of));
        row(key, format!("soak, second → last quarter: {what}"), format!("{} → {}", short(then), short(now)))
            .ratio(Some(now / then))
            .budget("flat (≤ 1.1×)", Some(now <= then * 1.1))
            .if_sound(sound::soak(samples))
    });
    let mut rows: Vec<_> = rows.collect();
    if let Some(end) = samples.last() {
        let cell = format!("{} in {} min, {} wrong", end.turns, short(end.at_s / 60.0), end.wrong);
        rows.push(
            row("soak-turns", "soak: turns", cell)
                .budget("all right", Some(end.wrong == 0))
                .if_sound(sound::soak(samples)),
        );
    }
    rows
}
