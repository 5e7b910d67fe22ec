//! Plans the messages of a round. The seed decides everything.

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::record::{CancelAt, PlannedMessage};
use super::round::Plan;
use super::script;
use super::speaker::Answering;

/// Of a hundred messages, those that are sent during the turn before them in the same context, and wait.
const SECOND: u32 = 14;
/// Those that are to join that turn.
const STEERING: u32 = 8;

/// A client cancels before this many frames. A turn without breaks has about fifty.
const FRAMES: usize = 12;

/// The random decisions about a message that other messages depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Draw {
    asks: bool,
    cancel: Option<CancelAt>,
    /// Sent during the turn of the message before it. `true`: to join that turn.
    follows: Option<bool>,
}

/// Plans a message of a client. The same plan gives the same messages.
pub(super) fn plan_message(plan: &Plan, client_number: usize, number: usize) -> PlannedMessage {
    let mut rng = rng(plan, client_number, number);
    let id = id(plan, client_number, number);
    let speaker = plan.speakers[(client_number + number) % plan.speakers.len()];
    let Draw { asks, cancel, .. } = draw(plan, &mut rng);
    let follows = follows(plan, client_number, number);
    let answering = if rng.random_bool(0.5) { Answering::ByMessage } else { Answering::ByCall };
    let words =
        if plan.world.is_real() { script::directives(&id, asks, &mut rng) } else { script::words(&id, asks) };
    let steers = follows == Some(true);
    PlannedMessage {
        words,
        id,
        speaker,
        answering,
        context: context(plan, client_number, number),
        // A message that joins a turn has no task that could be canceled.
        cancel: cancel.filter(|_| !steers),
        follows: follows.map(|_| self::id(plan, client_number, number - 1)),
        steers,
        seed: rng.random(),
    }
}

fn id(plan: &Plan, client_number: usize, number: usize) -> String {
    format!("{:x}-{client_number}-{number}", plan.seed)
}

fn rng(plan: &Plan, client_number: usize, number: usize) -> StdRng {
    plan.rng(1_000_000 + (client_number * 1000 + number) as u64)
}

fn draw(plan: &Plan, rng: &mut StdRng) -> Draw {
    let asks = rng.random_range(0..100) < plan.asking_of_100;
    let frame = CancelAt::Frame(rng.random_range(1..FRAMES));
    let at = if asks && rng.random_bool(0.5) { CancelAt::Ask } else { frame };
    let cancel = (rng.random_range(0..100) < plan.canceling_of_100).then_some(at);
    let drawn = rng.random_range(0..100);
    let follows = (drawn < SECOND + STEERING).then_some(drawn >= SECOND);
    Draw { asks, cancel, follows }
}

/// Whether the message is sent during the turn before it, and whether it is to join. Never two messages in a row.
fn follows(plan: &Plan, client_number: usize, number: usize) -> Option<bool> {
    let drawn = draw(plan, &mut rng(plan, client_number, number)).follows.filter(|_| number > 0)?;
    follows(plan, client_number, number - 1).is_none().then_some(drawn)
}

/// The message continues the context of the one before it: after a cancel, so that the session has to take another turn, or
/// because it follows.
fn goes_on(plan: &Plan, client_number: usize, number: usize) -> bool {
    let before = || draw(plan, &mut rng(plan, client_number, number - 1)).cancel.is_some();
    number > 0 && (follows(plan, client_number, number).is_some() || before())
}

fn context(plan: &Plan, client_number: usize, number: usize) -> Option<String> {
    // The last two clients share a context, so that one always waits for the other.
    if client_number + 2 >= plan.clients && client_number > 0 {
        return Some(format!("shared-{:x}", plan.seed));
    }
    let mut first = number;
    while goes_on(plan, client_number, first) {
        first -= 1;
    }
    let is_one_of_many = first < number || goes_on(plan, client_number, number + 1);
    is_one_of_many.then(|| format!("talk-{}", id(plan, client_number, first)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn all(plan: &Plan) -> Vec<PlannedMessage> {
        let numbers =
            (0..plan.clients).flat_map(|client_number| (0..200).map(move |number| (client_number, number)));
        numbers.map(|(client_number, number)| plan_message(plan, client_number, number)).collect()
    }

    #[test]
    fn a_seed_plans_every_kind_of_message_in_the_promised_shares() {
        let plan = Plan::storm(7, Duration::from_secs(1));
        let planned_messages = all(&plan);
        assert_eq!(planned_messages, all(&plan), "a seed always gives the same messages");
        let share = |of: &dyn Fn(&PlannedMessage) -> bool| {
            planned_messages.iter().filter(|planned| of(planned)).count() * 100 / planned_messages.len()
        };
        let canceled = share(&|planned| planned.cancel.is_some());
        assert!((17..28).contains(&canceled), "{canceled}");
        let at_asks = share(&|planned| planned.cancel == Some(CancelAt::Ask));
        assert!((2..10).contains(&at_asks), "{at_asks}");
        let seconds = share(&|planned| planned.follows.is_some() && !planned.steers);
        assert!((7..16).contains(&seconds), "{seconds}");
        let steering = share(&|planned| planned.steers);
        assert!((3..10).contains(&steering), "{steering}");
    }

    #[test]
    fn a_following_message_has_the_context_of_the_message_before() {
        let plan = Plan::storm(8, Duration::from_secs(1));
        let planned_messages = all(&plan);
        let mut following = 0;
        for pair in planned_messages.windows(2) {
            let [first, second] = pair else { unreachable!("windows of two") };
            if second.follows.as_ref() == Some(&first.id) {
                following += 1;
                assert!(first.context.is_some() && first.context == second.context, "{pair:?}");
                assert!(first.follows.is_none(), "{pair:?}");
            }
        }
        assert!(following > 50, "{following}");
        let alone = planned_messages.iter().filter(|planned| planned.context.is_none()).count();
        assert!(
            alone > planned_messages.len() / 5,
            "too few messages let the gateway create the context: {alone}"
        );
    }
}
