//! A campaign in words: `docs/reliability.md`.

use std::fmt::Write;

use super::campaign::{Targets, Totals};
use super::checker::Fault;

/// What the runner knows besides the numbers.
#[derive(Clone, Debug)]
pub struct Circumstances {
    pub date: String,
    pub commit: String,
    pub cores: usize,
}

/// The report of a campaign, as Markdown.
pub fn write(totals: &Totals, targets: &Targets, around: &Circumstances, missed: &[String]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = sections(&mut text, totals, targets, around, missed);
    text
}

fn sections(
    out: &mut String,
    totals: &Totals,
    targets: &Targets,
    around: &Circumstances,
    missed: &[String],
) -> std::fmt::Result {
    let spoken = totals.all_spoken();
    writeln!(
        out,
        "# Reliability: the last campaign\n\n\
         `make chaos` wrote this. It kills the gateway with SIGKILL at random moments and at named places in its code, kills \
         OpenCode under it by a clock of its own, and cuts, stalls, slows and half-closes the connections on both sides of it, while clients of \
         both lines and both bindings send messages, answer asks, cancel, send more into a context whose turn runs, and come \
         back after every break. Then it holds what each \
         client saw, frame by frame, against the whole log read in one piece, against the stored task, and against what \
         OpenCode itself knows of the prompt. A cancel that was acknowledged must stand, the session of a canceled turn must \
         take the next one, turns of one context must come in their order, and when a round is over its gateway must end in \
         an orderly way and leave no process behind.\n"
    )?;
    writeln!(out, "| | |\n| --- | --- |")?;
    writeln!(out, "| Date | {} |", around.date)?;
    writeln!(out, "| Commit | {} |", around.commit)?;
    writeln!(out, "| Machine | {} cores |", around.cores)?;
    writeln!(out, "| Duration | {} min {} s |", totals.took.as_secs() / 60, totals.took.as_secs() % 60)?;
    writeln!(out, "| Rounds | {} |", totals.rounds.values().map(Vec::len).sum::<usize>())?;
    writeln!(out, "| Tasks | {} |", spoken.tasks)?;
    writeln!(out, "| Frames compared | {} |", spoken.frames)?;

    writeln!(out, "\n## What was lost\n\n| Fault | Found |\n| --- | ---: |")?;
    for fault in Fault::ALL {
        writeln!(out, "| {} | {} |", fault.name(), totals.faults.get(&fault).copied().unwrap_or_default())?;
    }
    writeln!(
        out,
        "\nCounted apart: {} tasks whose OpenCode was killed with text that it had kept nowhere, and that say so: in the words of \
         their end, and to programs in its metadata as `longshore.lost`, whether they completed, failed or were canceled. The \
         text may be missing there and nowhere else: everything that OpenCode can still show is there. And {} turns that say \
         that a message which joined them may not have been read: the gateway or OpenCode died before that was known, and a \
         prompt is never sent twice.\n",
        totals.forgotten, totals.unread
    )?;
    for (seed, finding) in &totals.findings {
        writeln!(out, "- seed {seed}: {}", shortened(finding))?;
    }
    for miss in missed {
        writeln!(out, "- not broken often enough: {miss}")?;
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
        "| kills of OpenCode that the same gateway lived through until it had found it again | {} | {} |",
        totals.survived, targets.survived
    )?;
    writeln!(
        out,
        "| Streams of clients that broke, by a cut or with the gateway | {} | {} |",
        spoken.cuts, targets.cuts
    )?;
    for (whose, counts, least) in [
        ("clients", totals.client_side, targets.client_streams_cut),
        ("events from OpenCode", totals.agent_side, targets.agent_streams_cut),
    ] {
        writeln!(out, "| Streams of {whose} that a proxy cut | {} | {least} |", counts.streams_cut)?;
    }
    let fifth = spoken.tasks * targets.asking_of_100 / 100;
    writeln!(out, "| Tasks that asked | {} | {fifth} |", spoken.asked)?;
    let tenth = spoken.tasks * targets.canceling_of_100 / 100;
    writeln!(out, "| Tasks that a client canceled, or tried to | {} | {tenth} |", spoken.canceling)?;
    writeln!(out, "| Cancels sent again, as no answer came | {} | |", spoken.canceled_again)?;
    let seconds = "Messages into a context whose turn ran, that waited";
    writeln!(out, "| {seconds} | {} | {} |", spoken.seconds, targets.seconds)?;
    writeln!(out, "| the same, that joined the turn | {} | {} |", spoken.joined, targets.joined)?;
    for (side, counts) in
        [("clients and gateway", totals.client_side), ("gateway and OpenCode", totals.agent_side)]
    {
        writeln!(out, "| Connections between {side} | {} | |", counts.connections)?;
        writeln!(out, "| of these cut or half-closed by the proxy | {} | |", counts.cuts)?;
        writeln!(out, "| of these stalled | {} | |", counts.stalls)?;
        writeln!(out, "| of these slowed | {} | |", counts.slowed)?;
    }

    writeln!(out, "\n## Where the gateway died\n\n| Place | Times |\n| --- | ---: |")?;
    writeln!(out, "| anywhere, at a random moment | {} |", totals.kills_at_random)?;
    for (point, count) in &totals.kills_at_points {
        writeln!(out, "| `{point}` | {count} |")?;
    }

    writeln!(
        out,
        "\n## Lines and bindings\n\n\
         | Client | Tasks | Asked | Canceled | Second turns | Joined | Streams cut | Came back by the same send | by a subscription | from the start | Frames |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )?;
    for (name, spoken) in &totals.spoken {
        writeln!(
            out,
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            spoken.tasks,
            spoken.asked,
            spoken.canceling,
            spoken.seconds,
            spoken.joined,
            spoken.cuts,
            spoken.sent_again,
            spoken.subscribed,
            spoken.from_start,
            spoken.frames
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
        "\nOf the tasks in worlds with a fake OpenCode that nobody canceled, {share} % completed; at least {} % have to.\n\n\
         A task may fail for these reasons only, each of which is held against what happened: whether its OpenCode was \
         killed at it, whether the prompt ever arrived, and whether anything died or was cut at that moment. A prompt is \
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
        "\nA round again: `make chaos ARGS='--world fake --round 17'`. A seed decides what is \
         sent, what is broken, after how many bytes and milliseconds, and which way each client comes back. It does not decide \
         how real processes run beside each other, so a round that is played again breaks in the same places, but not at the \
         same instructions. The deterministic simulation (`make seed`) does that for the engine."
    )
}

/// Enough to know what it is; the evidence has the rest.
fn shortened(finding: &str) -> String {
    const SHOWN: usize = 300;
    let one_line = finding.replace(['\n', '|'], " ");
    match one_line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &one_line[..end]),
        None => one_line,
    }
}
