//! The page `docs/performance.md` and its plots.

use std::fmt::Write as _;

use super::rows::rows;
use super::svg::{Curve, Plot, draw};
use crate::number::{float, median, short};
use crate::results::{Measured, Results, Streams, Unary};

const OURS: &str = "#1f6fb4";
const PEERS: &str = "#c8502d";

/// The page, and the names and contents of its plots.
pub fn page(results: &Results, notes: &str) -> (String, Vec<(&'static str, String)>) {
    let mut text = String::new();
    head(&mut text, results);
    table(&mut text, results);
    if !notes.trim().is_empty() {
        let _ = writeln!(text, "{}\n", notes.trim());
    }
    let plots = plots(results);
    text.push_str("## Plots\n\nBoth axes are logarithmic.\n\n");
    for (name, title, _) in &plots {
        let _ = writeln!(text, "![{title}](performance/{name})");
    }
    text.push_str("\n## The numbers\n");
    numbers(&mut text, "Longshore", &results.longshore);
    if let Some(peer) = &results.peer {
        numbers(&mut text, "The peer", peer);
    }
    steady(&mut text, &results.longshore);
    if !results.instructions.is_empty() {
        text.push_str("\n### Instructions per item (callgrind)\n\n| what | instructions |\n|---|---|\n");
        for (case, count) in &results.instructions {
            let _ = writeln!(text, "| {case} | {} |", short(*count));
        }
    }
    how(&mut text);
    (text, plots.into_iter().map(|(name, _, plot)| (name, plot)).collect())
}

fn head(text: &mut String, results: &Results) {
    let machine = &results.machine;
    let _ = write!(
        text,
        "# Performance\n\nWritten by `make bench`; do not edit. One run of {}, at commit {}, of Longshore and of its peer, the\n\
         Python `opencode-a2a` 1.4.0, on the same stand-in for OpenCode, one after the other on the same machine: {} cores of\n\
         {}, {} GB, Linux {}, load {} at the start. Everything (server, stand-in, clients) shares these cores.\n\
         Ratios say more than the numbers, which are those of this machine.\n\n",
        or(&results.date, "an unknown day"),
        or(&results.commit, "unknown"),
        machine.cores,
        or(&machine.processor, "an unknown processor"),
        short(float(machine.memory_kb) / 1024.0 / 1024.0),
        or(&machine.kernel, "unknown"),
        or(&machine.load, "unknown"),
    );
    if results.quick {
        text.push_str("**This was a quick run, to see that it works. Its numbers are no measurement.**\n\n");
    }
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

fn table(text: &mut String, results: &Results) {
    text.push_str("| what | Longshore | peer | ratio | budget | |\n|---|---|---|---|---|---|\n");
    for row in rows(results) {
        let met = match row.met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "",
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {met} |",
            row.what, row.longshore, row.peer, row.ratio, row.budget
        );
    }
    text.push('\n');
    let mut failed = String::new();
    for (who, measured) in [("Longshore", Some(&results.longshore)), ("the peer", results.peer.as_ref())] {
        for (phase, why) in measured.into_iter().flat_map(|measured| &measured.failed) {
            let _ =
                writeln!(failed, "- `{phase}` of {who} could not be measured: {}", why.replace('\n', " "));
        }
    }
    if !failed.is_empty() {
        let _ = writeln!(text, "{failed}");
    }
}

type Points = Vec<(f64, f64)>;

fn plots(results: &Results) -> Vec<(&'static str, &'static str, String)> {
    let over_streams = |measured: &Measured, value: fn(&Streams) -> f64| -> Points {
        measured.streams.iter().map(|point| (float(point.streams), value(point))).collect()
    };
    let both = |value: fn(&Streams) -> f64| {
        (over_streams(&results.longshore, value), results.peer.as_ref().map(|peer| over_streams(peer, value)))
    };
    let curve = |name, color, dashed, points| Curve { name, color, dashed, points };
    let pair = |(ours, peer): (Points, Option<Points>)| {
        let ours = curve("Longshore", OURS, false, ours);
        std::iter::once(ours)
            .chain(peer.map(|points| curve("peer", PEERS, false, points)))
            .collect::<Vec<_>>()
    };
    let (p50, peer_p50) = both(|point| point.delays.p50_ms);
    let (p99, peer_p99) = both(|point| point.delays.p99_ms);
    let mut delays =
        vec![curve("Longshore, p50", OURS, false, p50), curve("Longshore, p99", OURS, true, p99)];
    delays.extend(peer_p50.map(|points| curve("peer, p50", PEERS, false, points)));
    delays.extend(peer_p99.map(|points| curve("peer, p99", PEERS, true, points)));
    let over_length = |measured: &Measured| -> Points {
        measured.length.iter().map(|point| (float(point.deltas), point.cpu_us_per_delta)).collect()
    };
    let length = (over_length(&results.longshore), results.peer.as_ref().map(over_length));
    let streams = "concurrent streams of 10 deltas/s";
    let plot = |title, across, up, lines| draw(&Plot { title, across, up, lines });
    vec![
        ("delay.svg", "Delay over streams", plot("Delay of a delta", streams, "milliseconds", delays)),
        (
            "cpu-streams.svg",
            "CPU per delta over streams",
            plot("CPU per delta", streams, "microseconds", pair(both(|point| point.cpu_us_per_delta))),
        ),
        (
            "cpu-length.svg",
            "CPU per delta over length",
            plot("CPU per delta", "deltas of a task", "microseconds", pair(length)),
        ),
        (
            "memory.svg",
            "Memory over streams",
            plot("Memory", streams, "megabytes", pair(both(|point| float(point.live.resident_kb) / 1024.0))),
        ),
    ]
}

fn numbers(text: &mut String, who: &str, measured: &Measured) {
    let _ = writeln!(text, "\n### {who}\n");
    if let Some(start) = &measured.start {
        let runs: Vec<_> = start.card_ms.iter().map(|ms| short(*ms)).collect();
        let _ = writeln!(
            text,
            "Start to the first card: median {} ms of {}. At rest: {} KB of its own, {} KB resident.\n",
            short(median(&start.card_ms)),
            runs.join(", "),
            start.rest.anonymous_kb,
            start.rest.resident_kb
        );
    }
    if !measured.unary.is_empty() {
        text.push_str("| clients | turns/s | CPU per turn (ms) | p50 (ms) | p99 (ms) | wrong |\n|---|---|---|---|---|---|\n");
        for Unary { clients, per_second, cpu_ms_per_turn, delays, wrong, .. } in &measured.unary {
            let _ = writeln!(
                text,
                "| {clients} | {} | {} | {} | {} | {wrong} |",
                short(*per_second),
                short(*cpu_ms_per_turn),
                short(delays.p50_ms),
                short(delays.p99_ms)
            );
        }
        text.push('\n');
    }
    let mut points: Vec<(String, &Streams)> =
        measured.streams.iter().map(|point| (point.streams.to_string(), point)).collect();
    points.extend(measured.v03.as_ref().map(|point| (format!("{} on 0.3", point.streams), point)));
    points.extend(
        measured.fast.as_ref().map(|point| (format!("{} of {}/s", point.streams, point.rate), point)),
    );
    if !points.is_empty() {
        text.push_str(
            "| streams | delivered of expected | CPU per delta (µs) | p50 (ms) | p99 (ms) | max (ms) | frames per delta | complete | equal | memory (KB) | CPU of clients and stand-in (%) |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for (name, point) in points {
            stream_row(text, &name, point);
        }
        text.push('\n');
    }
    if !measured.length.is_empty() {
        text.push_str(
            "| deltas a task | streams × waves | CPU per delta (µs) | first → last tenth (µs) | p99 (ms) | equal |\n|---|---|---|---|---|---|\n",
        );
        for point in &measured.length {
            let tenths = match (point.first_tenth_us, point.last_tenth_us) {
                (Some(first), Some(last)) => format!("{} → {}", short(first), short(last)),
                _ => "–".to_owned(),
            };
            let _ = writeln!(
                text,
                "| {} | {} × {} | {} | {tenths} | {} | {} of {} |",
                point.deltas,
                point.streams,
                point.waves,
                short(point.cpu_us_per_delta),
                short(point.delays.p99_ms),
                point.equal,
                point.streams * point.waves
            );
        }
    }
}

fn stream_row(text: &mut String, name: &str, point: &Streams) {
    let percent = |ms: f64| short(ms / 10.0 / point.costs.window_s);
    let _ = writeln!(
        text,
        "| {name} | {} of {} | {} | {} | {} | {} | {} | {} of {} | {} | {} | {} and {} |",
        point.delivered,
        point.expected,
        short(point.cpu_us_per_delta),
        short(point.delays.p50_ms),
        short(point.delays.p99_ms),
        short(point.delays.max_ms),
        short(float(point.frames) / float(point.delivered.max(1))),
        point.completed,
        point.streams,
        point.equal,
        point.live.anonymous_kb,
        percent(point.costs.driver_ms),
        percent(point.costs.stand_in_ms),
    );
}

fn steady(text: &mut String, ours: &Measured) {
    if let Some(overload) = &ours.overload {
        let list = |counts: &std::collections::BTreeMap<String, u64>| {
            let items: Vec<_> = counts.iter().map(|(what, count)| format!("{count} × {what}")).collect();
            if items.is_empty() { "none".to_owned() } else { items.join(", ") }
        };
        let _ = writeln!(
            text,
            "\n### Overload\n\nCapacity {} turns/s; {} offered for {} s. Refused: {}. Neither taken nor refused in a typed way: {}.\n\
             Memory {} KB before, {} KB a minute later.",
            short(overload.capacity_per_second),
            short(overload.offered_per_second),
            short(overload.seconds),
            list(&overload.refused),
            list(&overload.untyped),
            overload.memory_before.anonymous_kb,
            overload.memory_after.anonymous_kb
        );
    }
    if !ours.flood.is_empty() {
        text.push_str(
            "\n### A principal that floods\n\n| flood (sends/s) | refused | turns p99 (ms) | deltas p99 (ms) |\n|---|---|---|---|\n",
        );
        for flood in &ours.flood {
            let _ = writeln!(
                text,
                "| {} | {} | {} → {} | {} → {} |",
                short(flood.flood_per_second),
                flood.flood_refused,
                short(flood.calm_turns.p99_ms),
                short(flood.flooded_turns.p99_ms),
                short(flood.calm_deltas.p99_ms),
                short(flood.flooded_deltas.p99_ms)
            );
        }
    }
    if ours.soak.len() > 1 {
        text.push_str(
            "\n### Soak\n\n| minute | memory (KB) | open files | database (KB) | turns | wrong | p99 (ms) |\n|---|---|---|---|---|---|---|\n",
        );
        // One row in two minutes or so.
        let step = (ours.soak.len() / 10).max(1);
        for sample in ours.soak.iter().step_by(step) {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} |",
                short(sample.at_s / 60.0),
                sample.memory.anonymous_kb,
                sample.open_files,
                sample.database_bytes / 1024,
                sample.turns,
                sample.wrong,
                short(sample.delays.p99_ms)
            );
        }
    }
}

fn how(text: &mut String) {
    text.push_str(
        "\n## How it is measured\n\n\
         - The stand-in (`bench/src/stand_in`) has the shapes of the recordings. A prompt says how many deltas it sends, how fast and how\n  \
           long. Each delta carries its number and the moment at which it was written; its delay is from there to the client's read.\n\
         - A turn of the peer begins only when its own event stream is open: it opens one per turn, after the prompt, and would lose the start.\n\
         - CPU is that of all threads of the server, from `/proc`, in a window in which all streams run, divided by the deltas that clients got\n  \
           in it. Merged deltas count each; what did not arrive does not count.\n\
         - Equal: the text that a client got is, byte by byte, what the source sent; for 32 of the tasks, also what the server keeps.\n\
         - Both servers keep their tasks in SQLite on the same disk, with limits and rate limits switched off; for the phases of overload\n  \
           and flood Longshore has its default limits. The peer speaks A2A 1.0; it has no 0.3 any more.\n",
    );
}
