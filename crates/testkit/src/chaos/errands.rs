//! What the clients of a round are sent out for: all of it follows from the seed.

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::record::{CancelAt, Errand};
use super::round::Plan;
use super::script;
use super::speaker::{Answering, Speaker};

/// Of a hundred messages, those that are sent while the turn before them runs in the same context, and wait.
const SECOND: u32 = 14;
/// Those that are to join that turn.
const STEERING: u32 = 8;

/// Frames before which a client cancels. A turn that nobody breaks has about fifty.
const FRAMES: usize = 12;

/// Decisions of a message that others must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Draw {
    asks: bool,
    cancel: Option<CancelAt>,
    /// Sent while the one before it runs. `true`: to join it.
    follows: Option<bool>,
}

/// The message of a lane. Those of one place are the same in every round of that seed.
pub(super) fn errand(plan: &Plan, lane: usize, number: usize) -> Errand {
    let mut rng = rng(plan, lane, number);
    let id = id(plan, lane, number);
    let speaker = Speaker::ALL[(lane + number) % Speaker::ALL.len()];
    let Draw { asks, cancel, .. } = draw(plan, &mut rng);
    let follows = follows(plan, lane, number);
    let answering = if rng.random_bool(0.5) { Answering::ByMessage } else { Answering::ByCall };
    let words =
        if plan.world.is_real() { script::directives(&id, asks, &mut rng) } else { script::words(&id, asks) };
    let steers = follows == Some(true);
    Errand {
        words,
        id,
        speaker,
        answering,
        context: context(plan, lane, number),
        // What joins a turn has no task that could be canceled.
        cancel: cancel.filter(|_| !steers),
        follows: follows.map(|_| self::id(plan, lane, number - 1)),
        steers,
        seed: rng.random(),
    }
}

fn id(plan: &Plan, lane: usize, number: usize) -> String {
    format!("{:x}-{lane}-{number}", plan.seed)
}

fn rng(plan: &Plan, lane: usize, number: usize) -> StdRng {
    plan.rng(1_000_000 + (lane * 1000 + number) as u64)
}

fn draw(plan: &Plan, rng: &mut StdRng) -> Draw {
    let asks = rng.random_range(0..100) < plan.asking_of_100;
    let frame = CancelAt::Frame(rng.random_range(1..FRAMES));
    let at = if asks && rng.random_bool(0.5) { CancelAt::Ask } else { frame };
    let cancel = (rng.random_range(0..100) < plan.canceling_of_100).then_some(at);
    let place = rng.random_range(0..100);
    let follows = (place < SECOND + STEERING).then_some(place >= SECOND);
    Draw { asks, cancel, follows }
}

/// Whether it is sent while the one before it runs, and to join it. Of three in a row, the third is not.
fn follows(plan: &Plan, lane: usize, number: usize) -> Option<bool> {
    let drawn = draw(plan, &mut rng(plan, lane, number)).follows.filter(|_| number > 0)?;
    follows(plan, lane, number - 1).is_none().then_some(drawn)
}

/// The context goes on after a cancel, so that the session has to take the next turn, and with those that follow.
fn goes_on(plan: &Plan, lane: usize, number: usize) -> bool {
    let before = || draw(plan, &mut rng(plan, lane, number - 1)).cancel.is_some();
    number > 0 && (follows(plan, lane, number).is_some() || before())
}

fn context(plan: &Plan, lane: usize, number: usize) -> Option<String> {
    // The last two lanes share a context, so that one always waits for the other.
    if lane + 2 >= plan.lanes && lane > 0 {
        return Some(format!("shared-{:x}", plan.seed));
    }
    let mut first = number;
    while goes_on(plan, lane, first) {
        first -= 1;
    }
    let is_one_of_many = first < number || goes_on(plan, lane, number + 1);
    is_one_of_many.then(|| format!("talk-{}", id(plan, lane, first)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn all(plan: &Plan) -> Vec<Errand> {
        let places = (0..plan.lanes).flat_map(|lane| (0..200).map(move |number| (lane, number)));
        places.map(|(lane, number)| errand(plan, lane, number)).collect()
    }

    #[test]
    fn a_seed_has_all_there_is_in_the_shares_that_are_promised() {
        let plan = Plan::storm(7, Duration::from_secs(1));
        let errands = all(&plan);
        assert_eq!(errands, all(&plan), "a seed tells the errands");
        let share = |of: &dyn Fn(&Errand) -> bool| {
            errands.iter().filter(|errand| of(errand)).count() * 100 / errands.len()
        };
        let canceled = share(&|errand| errand.cancel.is_some());
        assert!((17..28).contains(&canceled), "{canceled}");
        let at_asks = share(&|errand| errand.cancel == Some(CancelAt::Ask));
        assert!((2..10).contains(&at_asks), "{at_asks}");
        let seconds = share(&|errand| errand.follows.is_some() && !errand.steers);
        assert!((7..16).contains(&seconds), "{seconds}");
        let steering = share(&|errand| errand.steers);
        assert!((3..10).contains(&steering), "{steering}");
    }

    #[test]
    fn whatever_follows_shares_the_context_of_what_it_follows() {
        let plan = Plan::storm(8, Duration::from_secs(1));
        let errands = all(&plan);
        let mut following = 0;
        for pair in errands.windows(2) {
            let [first, second] = pair else { unreachable!("windows of two") };
            if second.follows.as_ref() == Some(&first.id) {
                following += 1;
                assert!(first.context.is_some() && first.context == second.context, "{pair:?}");
                assert!(first.follows.is_none(), "{pair:?}");
            }
        }
        assert!(following > 50, "{following}");
        let alone = errands.iter().filter(|errand| errand.context.is_none()).count();
        assert!(alone > errands.len() / 5, "some have a context that the gateway makes: {alone}");
    }
}
