//! The report of a campaign: `docs/reliability.md`.

use std::fmt::Write;

use super::campaign::{Targets, Totals};
use super::checker::Fault;

/// Facts about the run besides the counts.
#[derive(Clone, Debug)]
pub struct RunInfo {
    pub date: String,
    pub commit: String,
    pub cores: usize,
    /// The rows of the campaign tests, see [`super::measured`].
    pub rows: String,
}

/// The report of a campaign, as Markdown.
pub fn write(totals: &Totals, targets: &Targets, run: &RunInfo, missed: &[String]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = sections(&mut text, totals, targets, run, missed);
    text
}

fn sections(
    out: &mut String,
    totals: &Totals,
    targets: &Targets,
    run: &RunInfo,
    missed: &[String],
) -> std::fmt::Result {
    let clients = totals.all_clients();
    writeln!(
        out,
        "# Reliability: the last campaign\n\n\
         `make chaos` wrote this page. The campaign kills the gateway with SIGKILL at random moments and at named points in its \
         code. Independently it kills OpenCode, and it cuts, stalls, slows and half-closes the connections on both sides of the \
         gateway. Meanwhile clients of both protocol versions send messages over JSON-RPC, REST, WebSocket, gRPC and a unix socket, answer asks, cancel, send more \
         messages into a context during its turn, and reconnect after every break. Then the checker compares what each client \
         received, frame by frame, with the whole log read in one piece, with the stored task, and with OpenCode's own record \
         of the prompt. An acknowledged cancel must stand, the session of a canceled turn must take the next turn, the turns \
         of one context must run in order, and at the end of a round the gateway must shut down properly and leave no process \
         behind.\n"
    )?;
    writeln!(out, "| | |\n| --- | --- |")?;
    writeln!(out, "| Date | {} |", run.date)?;
    writeln!(out, "| Commit | {} |", run.commit)?;
    writeln!(out, "| Machine | {} cores |", run.cores)?;
    writeln!(out, "| Duration | {} min {} s |", totals.took.as_secs() / 60, totals.took.as_secs() % 60)?;
    writeln!(out, "| Rounds | {} |", totals.rounds.values().map(Vec::len).sum::<usize>())?;
    writeln!(out, "| Tasks | {} |", clients.tasks)?;
    writeln!(out, "| Frames compared | {} |", clients.frames)?;

    writeln!(out, "\n## What was lost\n\n| Fault | Found |\n| --- | ---: |")?;
    for fault in Fault::ALL {
        writeln!(out, "| {} | {} |", fault.name(), totals.faults.get(&fault).copied().unwrap_or_default())?;
    }
    writeln!(
        out,
        "\nNot counted as faults: {} tasks whose OpenCode was killed before it stored some of its text, and that report this: \
         in the text of their last status, and for programs in its metadata as `longshore.lost`, whether they completed, \
         failed or were canceled. Text may be missing only in these tasks: everything that OpenCode can still show is there. \
         And {} turns that report that a joined message may not have been read: the gateway or OpenCode died before that was \
         known, and a prompt is never sent twice.\n",
        totals.forgotten, totals.unread
    )?;
    for (seed, finding) in &totals.findings {
        writeln!(out, "- seed {seed}: {}", shortened(finding))?;
    }
    for miss in missed {
        writeln!(out, "- target missed: {miss}")?;
    }
    if !totals.findings.is_empty() || !missed.is_empty() {
        writeln!(out)?;
    }

    writeln!(out, "## What was broken\n\n| Break | Times | At least |\n| --- | ---: | ---: |")?;
    writeln!(out, "| Gateway killed (SIGKILL) | {} | {} |", totals.gateway_kills(), targets.gateway_kills)?;
    writeln!(out, "| OpenCode killed | {} | {} |", totals.all_agent_kills(), targets.agent_kills)?;
    writeln!(
        out,
        "| of these the real one | {} | {} |",
        totals.real_agent_kills(),
        targets.real_agent_kills
    )?;
    writeln!(
        out,
        "| kills of OpenCode that the same gateway survived until it was connected again | {} | {} |",
        totals.survived, targets.survived
    )?;
    writeln!(
        out,
        "| Streams of clients that broke, by a cut or with the gateway | {} | {} |",
        clients.cuts, targets.cuts
    )?;
    for (whose, counts, least) in [
        ("clients", totals.client_side, targets.client_streams_cut),
        ("events from OpenCode", totals.agent_side, targets.agent_streams_cut),
    ] {
        writeln!(out, "| Streams of {whose} that a proxy cut | {} | {least} |", counts.streams_cut)?;
    }
    let least_asked = clients.tasks * targets.asking_of_100 / 100;
    writeln!(out, "| Tasks with an ask | {} | {least_asked} |", clients.asked)?;
    let least_canceled = clients.tasks * targets.canceling_of_100 / 100;
    writeln!(
        out,
        "| Tasks that a client canceled, or tried to | {} | {least_canceled} |",
        clients.canceling
    )?;
    writeln!(out, "| Cancels sent again because no answer came | {} | |", clients.canceled_again)?;
    let seconds = "Messages sent during a turn of their context that waited";
    writeln!(out, "| {seconds} | {} | {} |", clients.seconds, targets.seconds)?;
    writeln!(out, "| the same, that joined the turn | {} | {} |", clients.joined, targets.joined)?;
    for (side, counts) in
        [("clients and gateway", totals.client_side), ("gateway and OpenCode", totals.agent_side)]
    {
        writeln!(out, "| Connections between {side} | {} | |", counts.connections)?;
        writeln!(out, "| of these cut or half-closed by the proxy | {} | |", counts.cuts)?;
        writeln!(out, "| of these stalled | {} | |", counts.stalls)?;
        writeln!(out, "| of these slowed | {} | |", counts.slowed)?;
    }

    if !run.rows.is_empty() {
        writeln!(
            out,
            "\n## Hostile clients, kills and damaged stores\n\n\
             The campaign tests ran before the storms, each against a gateway of its own. A test fails if a bound is broken.\n\n\
             | Done | Measured |\n| --- | --- |\n{}",
            run.rows.trim_end()
        )?;
    }

    writeln!(out, "\n## Where the gateway died\n\n| Point | Times |\n| --- | ---: |")?;
    writeln!(out, "| anywhere, at a random moment | {} |", totals.kills_at_random)?;
    for (point, count) in &totals.kills_at_points {
        writeln!(out, "| `{point}` | {count} |")?;
    }

    writeln!(
        out,
        "\n## Protocol versions and bindings\n\n\
         | Client | Tasks | Asked | Canceled | Second turns | Joined | Streams cut | Reconnected by the same send | by a subscription | from the start | Frames |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )?;
    for (name, clients) in &totals.clients {
        writeln!(
            out,
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            clients.tasks,
            clients.asked,
            clients.canceling,
            clients.seconds,
            clients.joined,
            clients.cuts,
            clients.sent_again,
            clients.subscribed,
            clients.from_start,
            clients.frames
        )?;
    }

    writeln!(out, "\n## How the tasks ended\n\n| State | Tasks |\n| --- | ---: |")?;
    for (state, count) in &totals.outcomes {
        writeln!(out, "| {state} | {count} |")?;
    }
    let (completed, uncanceled) = totals.completed_of_fake();
    let share = completed * 100 / uncanceled.max(1);
    writeln!(
        out,
        "\nOf the tasks with a fake OpenCode that no client canceled, {share} % completed; the target is {} %.\n\n\
         A task may fail only for these reasons. Each is compared with what happened: whether OpenCode was killed during the \
         turn, whether the prompt ever arrived, and whether a process died or a connection was cut at that moment. A prompt is \
         never sent twice.\n\n| Reason | Tasks |\n| --- | ---: |",
        targets.completed_of_100
    )?;
    for (reason, count) in &totals.reasons {
        writeln!(out, "| {reason} | {count} |")?;
    }
    writeln!(out)?;

    writeln!(out, "## Seeds\n\n| World | OpenCode killed | Seeds |\n| --- | ---: | --- |")?;
    for (world, seeds) in &totals.rounds {
        let kills = totals.agent_kills.get(world).copied().unwrap_or_default();
        let seeds: Vec<String> = seeds.iter().map(ToString::to_string).collect();
        writeln!(out, "| {} | {kills} | {} |", world.name(), seeds.join(", "))?;
    }
    writeln!(
        out,
        "\nTo repeat a round: `make chaos ARGS='--world fake --round 17'`. A seed decides what is sent, what is broken, after \
         how many bytes and milliseconds, and how each client reconnects. It does not decide how real processes are scheduled, \
         so a repeated round breaks at the same points, but not at the same instructions. The deterministic simulation \
         (`make seed`) does that for the engine."
    )
}

/// The start of a finding; the evidence file has the rest.
fn shortened(finding: &str) -> String {
    const SHOWN: usize = 300;
    let one_line = finding.replace(['\n', '|'], " ");
    match one_line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &one_line[..end]),
        None => one_line,
    }
}
