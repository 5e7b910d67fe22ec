//! Whether a measurement is sound: the delay of nothing is zero, and zero meets every budget.

use crate::number::float;
use crate::phases::Flooded;
use crate::results::{Flood, Length, Push, Quiet, SoakSample, Stalled, Streams, Unary};

/// `Err`: why a number does not count.
pub(super) type Sound = Result<(), String>;

/// The share of the expected deltas that must arrive.
const NEARLY_ALL: f64 = 0.95;
/// The share of deltas for the peer, which is far behind. With less, the peer does not work at all.
const OF_PEER: f64 = 0.05;
/// The share of the peer's turns that must be right.
const RIGHT_OF_PEER: f64 = 0.95;
/// The share of the possible turns of a soak that must end: each takes a little longer than its ten seconds.
const MOST: f64 = 0.9;
const SOAK_TURN_S: f64 = 10.0;
/// Deltas per second of each healthy stream.
const RATE: f64 = 10.0;

fn need(holds: bool, why: impl FnOnce() -> String) -> Sound {
    if holds { Ok(()) } else { Err(why()) }
}

/// Delays can be compared only if nearly all deltas arrived.
fn nearly_all(came: u64, expected: f64) -> Sound {
    need(came > 0 && float(came) >= expected * NEARLY_ALL, || format!("{came} of {expected:.0} deltas came"))
}

/// Every stream delivered all of its text in time.
pub(super) fn streams(point: &Streams) -> Sound {
    nearly_all(point.delivered.min(point.delays.count), float(point.expected))?;
    need(point.completed == point.streams && point.equal == point.streams, || {
        format!("{} of {} streams complete, {} equal", point.completed, point.streams, point.equal)
    })?;
    need(point.kept_equal == point.kept, || {
        format!("{} of {} tasks kept as they were sent", point.kept_equal, point.kept)
    })
}

/// All streams were open when their memory was sampled.
pub(super) fn live(point: &Streams) -> Sound {
    streams(point)?;
    need(point.open_files >= point.streams, || {
        format!("{} files open with {} streams", point.open_files, point.streams)
    })
}

/// The peer delivered a part of the deltas.
pub(super) fn peer_streams(point: &Streams) -> Sound {
    let enough = point.delivered > 0 && float(point.delivered) >= float(point.expected) * OF_PEER;
    need(enough, || format!("{} of {} deltas came", point.delivered, point.expected))
}

pub(super) fn turns(unary: &Unary) -> Sound {
    need(unary.turns > 0 && unary.wrong == 0, || format!("{} right, {} wrong", unary.turns, unary.wrong))
}

pub(super) fn peer_turns(unary: &Unary) -> Sound {
    let all = float(unary.turns + unary.wrong);
    let enough = unary.turns > 0 && float(unary.turns) >= all * RIGHT_OF_PEER;
    need(enough, || format!("{} right, {} wrong", unary.turns, unary.wrong))
}

pub(super) fn length(point: &Length) -> Sound {
    let all = point.streams * point.waves;
    need(all > 0 && point.completed == all && point.equal == all, || {
        format!("{} of {all} tasks complete, {} equal", point.completed, point.equal)
    })
}

/// The server worked all the time: as many turns as possible, to the end.
pub(super) fn soak(samples: &[SoakSample]) -> Sound {
    let quarter = samples.len() / 4;
    let Some(end) = samples.last() else { return Err("no turns".to_owned()) };
    // One turn of each stream has begun and not ended.
    let expected = float(end.streams) * (end.at_s / SOAK_TURN_S - 1.0);
    need(end.turns > 0 && end.streams > 0 && float(end.turns) >= expected * MOST, || {
        format!("{} of {expected:.0} turns", end.turns)
    })?;
    if samples[2 * quarter].at_s - samples[quarter].at_s < 2.0 * SOAK_TURN_S {
        // In a quick run, a quarter may be too short for any turn to end.
        return Ok(());
    }
    let within = |from: usize| samples[from + quarter].turns.saturating_sub(samples[from].turns);
    let (then, now) = (within(quarter), within(samples.len() - 1 - quarter));
    need(now > 0 && float(now) >= float(then) * MOST, || format!("{then} turns, then {now}"))
}

/// The healthy streams received all of their deltas, in time.
pub(super) fn stalled(stalled: &Stalled) -> Sound {
    let runs = u64::try_from(stalled.before.len()).unwrap_or_default() + 1;
    let all = stalled.healthy * runs;
    need(runs > 1 && all > 0 && stalled.whole == all, || {
        format!("{} of {all} streams complete", stalled.whole)
    })?;
    need(stalled.before.iter().all(|delays| delays.count > 0), || "no deltas without them".to_owned())?;
    nearly_all(stalled.during.count, float(stalled.healthy) * RATE * stalled.seconds)
}

/// Every webhook that works got its notification once, and the dead ones were tried.
pub(super) fn push(push: &Push) -> Sound {
    need(!push.without.is_empty() && !push.with.is_empty(), || "no runs to compare".to_owned())?;
    for run in push.without.iter().chain(&push.with) {
        need(run.expected > 0 && run.delivered == run.expected && run.lag.count == run.expected, || {
            format!("{} of {} notifications came", run.delivered, run.expected)
        })?;
        need(run.repeated == 0, || format!("{} notifications came again", run.repeated))?;
    }
    need(push.with.iter().all(|run| run.dead > 0 && run.retried >= run.dead / 2), || {
        "the dead hosts were not tried".to_owned()
    })
}

/// The quiet principal was served throughout, and the flood was real.
pub(super) fn flooded(round: &Flood) -> Sound {
    beside(&round.calm, &round.flooded, &round.flood)
}

pub(super) fn rated(round: &Flood) -> Sound {
    beside(&round.rated_calm, &round.rated, &round.rated_flood)
}

pub(super) fn flooded_turns(round: &Flood) -> Sound {
    flooded(round)?;
    as_many(&round.calm, &round.flooded)
}

pub(super) fn rated_turns(round: &Flood) -> Sound {
    rated(round)?;
    as_many(&round.rated_calm, &round.rated)
}

fn beside(calm: &Quiet, quiet: &Quiet, flood: &Flooded) -> Sound {
    need(flood.sent > 0 && flood.sent >= flood.broken, || {
        format!("no flood: {} sent, {} broken", flood.sent, flood.broken)
    })?;
    for quiet in [calm, quiet] {
        need(quiet.wrong == 0, || format!("{} turns wrong", quiet.wrong))?;
        need(quiet.streams > 0 && quiet.whole == quiet.streams, || {
            format!("{} of {} streams complete", quiet.whole, quiet.streams)
        })?;
        nearly_all(quiet.deltas.count, float(quiet.expected))?;
    }
    Ok(())
}

/// A turn that did not end in time has no delay, so that there must be about as many turns as without the flood.
fn as_many(calm: &Quiet, quiet: &Quiet) -> Sound {
    need(quiet.turns.count > 0 && quiet.turns.count * 2 >= calm.turns.count, || {
        format!("{} turns, {} without the flood", quiet.turns.count, calm.turns.count)
    })
}
