//! The page `docs/performance.md` and its plots.

use std::fmt::Write as _;

use super::Reasons;
use super::rows::rows;
use super::svg::{Curve, Plot, draw};
use crate::number::{float, median, short};
use crate::phases::Flooded;
use crate::results::{
    Bindings, Costs, Flood, Measured, Overload, Push, Quiet, Ran, Results, Stalled, Streams, Unary,
};

const OURS: &str = "#1f6fb4";
const PEERS: &str = "#c8502d";

/// The page, and the names and contents of its plots.
pub fn page(results: &Results, reasons: &Reasons) -> (String, Vec<(&'static str, String)>) {
    let mut text = String::new();
    head(&mut text, results);
    table(&mut text, results);
    missed(&mut text, results, reasons);
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
    duration(&mut text, results);
    how(&mut text);
    (text, plots.into_iter().map(|(name, _, plot)| (name, plot)).collect())
}

fn head(text: &mut String, results: &Results) {
    let machine = &results.machine;
    let _ = write!(
        text,
        "# Performance\n\nWritten by `make bench`; do not edit. One run of {}, at commit {}, of Longshore and of the Python peer,\n\
         `opencode-a2a` 1.4.0, on the same stand-in for OpenCode, one after the other on the same machine: {} cores,\n\
         {} GB, Linux, load {} at the start. Server, stand-in and clients share these cores. The run took {} minutes.\n\
         The ratios matter more than the numbers, which depend on the machine. All results are in\n\
         [performance/results.json](performance/results.json).\n\n",
        or(&results.date, "an unknown day"),
        or(&results.commit, "unknown"),
        machine.cores,
        short(float(machine.memory_kb) / 1024.0 / 1024.0),
        or(&machine.load, "unknown"),
        short(ran(results).map(|(_, _, ran)| ran.seconds).sum::<f64>() / 60.0),
    );
    let others: Vec<_> = ran(results)
        .filter(|(_, _, ran)| is_of_another_run(results, ran))
        .map(|(who, phase, ran)| format!("`{phase}` of {who} ({}, commit {})", ran.date, ran.commit))
        .collect();
    if !others.is_empty() {
        let _ = writeln!(text, "**Some phases are from another run:** {}.\n", others.join(", "));
    }
    if results.quick {
        text.push_str(
            "**This was a quick run, to see that everything works. Its numbers are no measurement.**\n\n",
        );
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

/// Lists the missed budgets, each with its reason.
fn missed(text: &mut String, results: &Results, reasons: &Reasons) {
    let rows = rows(results);
    let mut missed = rows.iter().filter(|row| row.met == Some(false)).peekable();
    if missed.peek().is_none() {
        return;
    }
    text.push_str("## Missed budgets, and why\n\n");
    for row in missed {
        let reason = reasons.get(row.key).map_or("The reason is not known yet.", |reason| reason.trim());
        let _ = writeln!(
            text,
            "- **{}**: {}; the budget is {}. {}",
            row.what,
            row.longshore,
            row.budget,
            reason.replace('\n', "\n  ")
        );
    }
    text.push('\n');
}

/// The server, the phase, and when and how long it was measured.
fn ran(results: &Results) -> impl Iterator<Item = (&'static str, &String, &Ran)> {
    let all = [("Longshore", Some(&results.longshore)), ("peer", results.peer.as_ref())];
    all.into_iter().flat_map(|(who, measured)| {
        measured
            .into_iter()
            .flat_map(move |measured| measured.ran.iter().map(move |(phase, ran)| (who, phase, ran)))
    })
}

/// Whether a phase was measured in an earlier run, perhaps with another version of Longshore.
fn is_of_another_run(results: &Results, ran: &Ran) -> bool {
    ran.commit != results.commit || ran.date != results.date
}

fn duration(text: &mut String, results: &Results) {
    if ran(results).next().is_none() {
        return;
    }
    text.push_str("\n### Durations\n\n| phase | server | seconds | load before | |\n|---|---|---|---|---|\n");
    for (who, phase, ran) in ran(results) {
        let when = if is_of_another_run(results, ran) {
            format!("from {} at {}", ran.date, ran.commit)
        } else {
            String::new()
        };
        let _ = writeln!(text, "| {phase} | {who} | {:.0} | {} | {when} |", ran.seconds, ran.load);
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
            "Start to the first card: median {} ms of {}. At rest: {} KB anonymous, {} KB resident.\n",
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
    if let Some(acp) = &measured.acp {
        points
            .extend(acp.http.iter().map(|point| (format!("{} over HTTP, beside ACP", point.streams), point)));
        points.extend(acp.acp.iter().map(|point| (format!("{} over ACP", point.streams), point)));
        points.extend(acp.sessions.iter().map(|point| (format!("{} over ACP", point.streams), point)));
    }
    if let Some(Bindings { json_rpc, rest, websocket, grpc }) = &measured.bindings {
        for (name, runs) in [("JSON-RPC", json_rpc), ("REST", rest), ("WebSocket", websocket), ("gRPC", grpc)]
        {
            points.extend(runs.iter().map(|point| (format!("{} over {name}", point.streams), point)));
        }
    }
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
    if let Some(stalled) = &ours.stalled {
        stalled_readers(text, stalled);
    }
    if let Some(overload) = &ours.overload {
        overloaded(text, overload);
    }
    if !ours.flood.is_empty() {
        flooded(text, &ours.flood);
    }
    if let Some(push) = &ours.push {
        pushed(text, push);
    }
    if let Some(scrape) = &ours.scrape {
        let share = |costs: &Costs| short(costs.server_ms / 10.0 / costs.window_s);
        let _ = writeln!(
            text,
            "\n### Metrics under load\n\n{} scrapes a second during 100 streams: {} bytes each, answered in {} ms (p50), {} ms (p99).\n\
             The server used {} % of a core without them, and {} % with them.",
            short(scrape.per_second),
            scrape.bytes,
            short(scrape.delays.p50_ms),
            short(scrape.delays.p99_ms),
            share(&scrape.without),
            share(&scrape.with)
        );
    }
    if ours.soak.len() > 1 {
        text.push_str(
            "\n### Soak\n\n| minute | memory (KB) | open files | database (KB) | turns | wrong | p99 (ms) |\n|---|---|---|---|---|---|---|\n",
        );
        // About one row in two minutes.
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

fn stalled_readers(text: &mut String, stalled: &Stalled) {
    let runs: Vec<_> = stalled.before.iter().map(|delays| short(delays.p50_ms)).collect();
    let _ = writeln!(
        text,
        "\n### Stalled readers\n\n{} readers, of which {} had bytes waiting in the kernel ({} KB in total) when the buffers were full, and still at the end.\n\
         Memory: {} KB before they connected, {} KB with full buffers, {} KB {} s later. The p50 of {} healthy streams was {} ms without\n\
         them and {} ms with them.",
        stalled.readers,
        stalled.stuck,
        stalled.kernel_bytes / 1024,
        stalled.empty.anonymous_kb,
        stalled.filled.anonymous_kb,
        stalled.later.anonymous_kb,
        short(stalled.seconds),
        stalled.healthy,
        runs.join(" and "),
        short(stalled.during.p50_ms)
    );
}

fn overloaded(text: &mut String, overload: &Overload) {
    let list = |counts: &std::collections::BTreeMap<String, u64>| {
        let items: Vec<_> = counts.iter().map(|(what, count)| format!("{count} × {what}")).collect();
        if items.is_empty() { "none".to_owned() } else { items.join(", ") }
    };
    let _ = writeln!(
        text,
        "\n### Overload\n\nCapacity {} turns/s; {} offered per second for {} s. Refused: {}. Neither accepted nor refused with a typed error: {}.\n\
         Accepted and not completed: {}. All accepted turns were checked {} s after the last offer; {} s after it the speed was measured again.\n\
         Memory {} KB before, {} KB at the end.",
        short(overload.capacity_per_second),
        short(overload.offered_per_second),
        short(overload.seconds),
        list(&overload.refused),
        list(&overload.untyped),
        list(&overload.lost),
        short(overload.settled_s),
        short(overload.later_s),
        overload.memory_before.anonymous_kb,
        overload.memory_after.anonymous_kb
    );
}

fn flooded(text: &mut String, rounds: &[Flood]) {
    text.push_str(
        "\n### A principal that floods\n\nAnother principal alone and during the flood, without a rate limit and with one of 150 requests a second.\n\n\
         | flood (sends/s) | refused | turns p99 (ms) | deltas p99 (ms) | wrong |\n|---|---|---|---|---|\n",
    );
    for Flood { calm, flooded, flood, rated_calm, rated, rated_flood } in rounds {
        let rate = |flood: &Flooded| short(float(flood.sent) / flood.seconds.max(0.001));
        let both = |of: fn(&Quiet) -> f64| {
            [[calm, flooded], [rated_calm, rated]]
                .map(|two| two.map(|quiet| short(of(quiet))).join(" → "))
                .join(", ")
        };
        let _ = writeln!(
            text,
            "| {}, {} | {}, {} | {} | {} | {} |",
            rate(flood),
            rate(rated_flood),
            flood.refused,
            rated_flood.refused,
            both(|quiet| quiet.turns.p99_ms),
            both(|quiet| quiet.deltas.p99_ms),
            calm.wrong + flooded.wrong + rated_calm.wrong + rated.wrong
        );
    }
}

fn pushed(text: &mut String, push: &Push) {
    text.push_str(
        "\n### Push notifications\n\n\
         | webhooks | dead | delivered of expected | failed attempts | p50 (ms) | p99 (ms) | max (ms) | CPU (%) | CPU of receivers and stand-in (%) |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    let mut runs: Vec<_> = push.without.iter().collect();
    runs.extend(&push.with);
    for run in runs {
        let percent = |ms: f64| short(ms / 10.0 / run.costs.window_s);
        let _ = writeln!(
            text,
            "| {} | {} | {} of {} | {} | {} | {} | {} | {} | {} and {} |",
            run.webhooks,
            run.dead,
            run.delivered,
            run.expected,
            run.retried,
            short(run.lag.p50_ms),
            short(run.lag.p99_ms),
            short(run.lag.max_ms),
            percent(run.costs.server_ms),
            percent(run.costs.driver_ms),
            percent(run.costs.stand_in_ms),
        );
    }
}

fn how(text: &mut String) {
    text.push_str(
        "\n## How it is measured\n\n\
         - The stand-in (`bench/src/stand_in`) sends OpenCode's JSON. A prompt says how many deltas its turn sends, how fast and how\n  \
           long. Each delta contains its number and the time at which it was written; its delay ends when the client reads it.\n\
         - A turn of the peer begins only when its own event stream is open: the peer opens one per turn, after the prompt, and would\n  \
           miss the start.\n\
         - CPU is the time of all threads of the server, from `/proc`, in a window in which all streams run, divided by the deltas that\n  \
           clients received in it. Each of several merged deltas counts. Deltas that did not arrive do not count.\n\
         - Equal: the text that a client received is, byte by byte, the text that the stand-in sent; for 32 of the tasks, also the\n  \
           text that the server stores.\n\
         - A budget is met only by complete results: for Longshore every stream equal, 95 % of the deltas in time and no turn wrong;\n  \
           for the peer, which is slower, 5 % of the deltas in time and 95 % of the turns right. Otherwise the row is missed, and says why.\n\
         - Both servers store their tasks in SQLite on the same disk, without limits and rate limits. In the phases overload and flood\n  \
           Longshore has its default limits. The peer uses A2A 1.0; it no longer supports 0.3.\n\
         - Each phase has a stand-in of its own, and each point a server of its own. Memory is what the process has touched itself\n  \
           (`RssAnon`), except at rest, where it is all resident memory (`VmRSS`). The memory of streams is sampled in the second after\n  \
           the window, in which all of them still run.\n\
         - Stalled readers have the smallest buffer that the kernel gives, and read nothing. Their minute begins when the kernel's\n  \
           buffers are full.\n\
         - Overload: five times as many turns are offered per second as 32 clients completed, on 2048 connections. Turns that could\n  \
           not be offered in time are skipped. Every turn has 100 deltas. Each accepted turn is read back, and its text compared\n  \
           with the text that the stand-in sent.\n\
         - The flooding clients are a process of low priority with 64 connections, each of which sends as soon as it has an answer.\n\
         - Push: a hundred tasks of one principal, with a hundred webhooks each, end one after the other, five in a second. The webhooks\n  \
           that work are on 20 hosts. A dead host refuses connections, or accepts them and never answers; each dead webhook has one of\n  \
           its own, wants every event, and fails from the start of its task on. The lag is from the end of a task, as the notification\n  \
           names it, to its arrival. All limits of the delivery are the defaults.\n\
         - The bindings are those of 1.0, each stream on a connection of its own.\n\
         - The soak has 500 streams of 10 deltas/s, half of the thousand, for ten seconds each; tasks are folded after 60 s and removed\n  \
           after 120 s.\n",
    );
}
