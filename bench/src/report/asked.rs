//! The rows that a full run must have. A missing row was not measured, and misses its budget.

use super::rows::{Row, row};
use crate::results::Results;

/// The key, the name and the budget of every row with a budget.
pub(super) const ASKED: [(&str, &str, &str); 31] = [
    ("unary", "unary turns per second", "≥ 50×"),
    ("cpu", "CPU per delta, 32 streams of 10/s (µs)", "≥ 200×"),
    ("delay-p50", "delay of a delta, 32 streams, p50 (ms)", "< 1 ms"),
    ("delay-p99", "delay of a delta, 32 streams, p99 (ms)", "< 10 ms"),
    ("rest", "memory at rest (MB)", "< 25 MB"),
    ("start", "start to the first card (ms)", "< 100 ms"),
    ("cpu-1000", "CPU per delta, 1 000 streams (µs)", "≤ 1.5× that at 10"),
    ("memory-stream", "memory per further live stream (KB)", "< 32 KB"),
    ("complete-1000", "1 000 streams of 10/s", "all"),
    ("delay-1000", "delay of a delta, 1 000 streams, p50 / p99 (ms)", "< 1 / < 10 ms"),
    ("cpu-length", "CPU per delta, 10 000 deltas a task (µs)", "≤ 1.2× that at 100"),
    ("cpu-within", "CPU per delta, first and last tenth of these (µs)", "≤ 1.2×"),
    ("acp-cpu", "CPU per delta over ACP and over HTTP, 32 streams of 10/s (µs)", "≤ 1.5× that over HTTP"),
    ("acp-sessions", "200 sessions on one ACP process, 10/s each", "all"),
    ("cpu-grpc", "CPU per delta over gRPC and over SSE, 32 streams of 10/s (µs)", "≤ 1.3× that over SSE"),
    (
        "cpu-websocket",
        "CPU per delta over WebSocket and over SSE, 32 streams of 10/s (µs)",
        "≤ 1.3× that over SSE",
    ),
    ("stalled-memory", "memory growth, 1 000 readers stuck", "flat (≤ 10 %)"),
    ("stalled-delay", "delay of other readers without and with them, p50 / p99 (ms)", "unchanged (≤ 1.5×)"),
    ("overload-offered", "overload: turns offered", "5× its capacity"),
    ("overload-refused", "overload: answers", "refusals are typed"),
    ("overload-taken", "overload: accepted turns", "all complete, equal"),
    ("overload-after", "overload: before, and a minute later", "as before (≤ 1.5×)"),
    ("flood-turns", "p99 of another principal's turns during a flood", "≤ 2×"),
    ("flood-deltas", "p99 of another principal's deltas during a flood", "≤ 2×"),
    ("flood-rated-turns", "p99 of another principal's turns during a flood, with a rate limit", "≤ 2×"),
    ("flood-rated-deltas", "p99 of another principal's deltas during a flood, with a rate limit", "≤ 2×"),
    ("push-lag", "lag of push notifications without and with dead hosts, p50 / p99 (ms)", "flat (≤ 1.5×)"),
    ("soak-memory", "soak, second → last quarter: memory (MB)", "flat (≤ 1.1×)"),
    ("soak-files", "soak, second → last quarter: open files", "flat (≤ 1.1×)"),
    ("soak-database", "soak, second → last quarter: database (MB)", "flat (≤ 1.1×)"),
    ("soak-turns", "soak: turns", "all right"),
];

const NOT_MEASURED: &str = "not measured";
/// Phases with many steps, whose first steps already make rows.
const IN_STEPS: [(&str, &str); 2] = [("flood", "flood-"), ("soak", "soak-")];

/// Adds the missing rows, and marks the rows of a phase that failed half-way as missed.
pub(super) fn complete(rows: &mut Vec<Row>, results: &Results) {
    for (phase, prefix) in IN_STEPS {
        if results.longshore.failed.contains_key(phase) {
            for row in rows.iter_mut().filter(|row| row.key.starts_with(prefix)) {
                row.longshore.push_str(" (incomplete)");
                row.met = Some(false);
            }
        }
    }
    if !results.full {
        return;
    }
    for (key, what, budget) in ASKED {
        match rows.iter_mut().find(|row| row.key == key) {
            None => rows.push(row(key, what, NOT_MEASURED.to_owned()).budget(budget, Some(false))),
            // There is a peer, but no result of it to compare with.
            Some(row) if row.met.is_none() && results.peer.is_some() => {
                (row.peer, row.met) = (NOT_MEASURED.to_owned(), Some(false));
            }
            Some(_) => {}
        }
    }
}
