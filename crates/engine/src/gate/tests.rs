use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use proptest::prelude::*;

use super::*;
use crate::tasks::Tasks;

fn gate(in_all: usize, per_principal: usize) -> Arc<Gate> {
    Arc::new(Gate::new(Bounds { in_all, per_principal }, Arc::default()))
}

fn is_in(pass: &mut Pass) -> bool {
    pass.ready().now_or_never().is_some()
}

/// Everybody queues up behind one who runs, in the order of the letters; then each that is let in ends at once. Gives
/// the order in which they are let in.
fn order(per_principal: usize, queue: &str) -> String {
    let gate = gate(1, per_principal);
    let first = gate.enter(&Principal::new("first"));
    let enter = |owner: char| (owner, gate.enter(&Principal::new(&owner.to_string())));
    let mut waiting: Vec<_> = queue.chars().map(enter).collect();
    drop(first);
    let mut let_in = String::new();
    while !waiting.is_empty() {
        let (mut ready, still): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .map(|(owner, mut pass)| (is_in(&mut pass), owner, pass))
            .partition(|(is_in, ..)| *is_in);
        waiting = still.into_iter().map(|(_, owner, pass)| (owner, pass)).collect();
        let (_, owner, pass) = ready.pop().expect("somebody is let in");
        assert!(ready.is_empty(), "only one at a time");
        let_in.push(owner);
        drop(pass);
    }
    let_in
}

#[test]
fn principals_are_let_in_by_turns_and_their_turns_as_they_came() {
    for (queue, expected) in [
        ("", ""),
        ("aaa", "aaa"),
        ("ab", "ab"),
        ("ba", "ba"),
        ("aaab", "abaa"),
        ("aaaabbc", "abcabaa"),
        ("aabbaabb", "abababab"),
        ("caaab", "cabaa"),
    ] {
        assert_eq!(order(0, queue), expected, "{queue}");
        assert_eq!(order(1, queue), expected, "{queue}");
    }
}

#[test]
fn one_who_floods_keeps_nobody_waiting_for_more_than_a_round() {
    let gate = gate(4, 0);
    let (flood, other) = (Principal::new("flood"), Principal::new("other"));
    let mut running: Vec<_> = (0..4).map(|_| gate.enter(&flood)).collect();
    let waiting: Vec<_> = (0..1000).map(|_| gate.enter(&flood)).collect();
    let mut late = gate.enter(&other);
    assert!(!is_in(&mut late));
    running.pop();
    // The flood was first in the round, and has had its turn.
    assert!(!is_in(&mut late));
    running.pop();
    assert!(is_in(&mut late));
    drop(waiting);
}

#[test]
fn one_at_their_own_bound_keeps_nobody_out() {
    let gate = gate(3, 2);
    let (a, b) = (Principal::new("a"), Principal::new("b"));
    let mut own: Vec<_> = (0..4).map(|_| gate.enter(&a)).collect();
    assert_eq!(own.iter_mut().map(is_in).collect::<Vec<_>>(), [true, true, false, false]);
    let mut others: Vec<_> = (0..2).map(|_| gate.enter(&b)).collect();
    assert_eq!(others.iter_mut().map(is_in).collect::<Vec<_>>(), [true, false]);
    drop(own.remove(0));
    // Of those who wait, the other has waited for longer since they may run.
    assert_eq!(others.iter_mut().map(is_in).collect::<Vec<_>>(), [true, true]);
    assert_eq!(own.iter_mut().map(is_in).collect::<Vec<_>>(), [true, false, false]);
    drop(others.remove(0));
    assert_eq!(own.iter_mut().map(is_in).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn a_turn_that_waits_for_an_answer_makes_room_and_goes_on_at_once_when_it_has_it() {
    let gate = gate(1, 0);
    let (a, b) = (Principal::new("a"), Principal::new("b"));
    let (mut asking, mut second, mut third) = (gate.enter(&a), gate.enter(&b), gate.enter(&b));
    assert!(is_in(&mut asking) && !is_in(&mut second));
    asking.pause_while(true);
    asking.pause_while(true);
    assert!(is_in(&mut second) && !is_in(&mut third));
    asking.pause_while(false);
    drop(second);
    assert!(!is_in(&mut third), "the one that has its answer counts again");
    drop(asking);
    assert!(is_in(&mut third));
}

#[test]
fn turns_that_run_already_count_and_are_not_kept_out() {
    let gate = gate(1, 1);
    let a = Principal::new("a");
    let resumed = [gate.enter_running(&a), gate.enter_running(&a)];
    let mut new = gate.enter(&a);
    for pass in resumed {
        assert!(!is_in(&mut new));
        drop(pass);
    }
    assert!(is_in(&mut new));
}

#[test]
fn without_bounds_nobody_waits() {
    let gate = gate(0, 0);
    let mut passes: Vec<_> = (0..100).map(|_| gate.enter(&Principal::new("a"))).collect();
    assert!(passes.iter_mut().all(is_in));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_who_waits_is_let_in_whoever_gives_up_meanwhile() {
    let (gate, tasks) = (gate(3, 2), Tasks::new());
    let turns: Vec<_> = (0..600_u32)
        .map(|number| {
            let gate = Arc::clone(&gate);
            tasks.spawn("test", async move {
                let mut pass = gate.enter(&Principal::new(&format!("p{}", number % 5)));
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                    return;
                }
                pass.ready().await;
                pass.pause_while(number % 3 == 0);
                tokio::task::yield_now().await;
                pass.pause_while(false);
            })
        })
        .collect();
    for turn in turns {
        turn.await.expect("it ends");
    }
    assert_eq!(gate.lock().running, 0);
    assert!(gate.lock().by_principal.is_empty() && gate.lock().round.is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Enter(u8),
    EnterRunning(u8),
    /// The pass at this place, of those there are.
    Drop(usize),
    Ask(usize),
    Answer(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u8).prop_map(Step::Enter),
        1 => (0..4_u8).prop_map(Step::EnterRunning),
        4 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::Ask),
        1 => any::<usize>().prop_map(Step::Answer),
    ]
}

/// What is known of a pass from outside.
struct Seen {
    owner: u8,
    pass: Pass,
    is_in: bool,
    is_paused: bool,
}

/// Watches a gate from outside.
struct Watch {
    bounds: Bounds,
    seen: Vec<Seen>,
    /// How often the second was let in since the first could have been.
    overtaken: BTreeMap<(u8, u8), usize>,
}

impl Watch {
    fn running(&self, owner: Option<u8>) -> usize {
        let counts =
            |seen: &&Seen| seen.is_in && !seen.is_paused && owner.is_none_or(|own| own == seen.owner);
        self.seen.iter().filter(counts).count()
    }

    fn may_run(&self, owner: u8) -> bool {
        has_room(self.running(Some(owner)), self.bounds.per_principal)
    }

    fn waits(&self, owner: u8) -> bool {
        self.seen.iter().any(|seen| seen.owner == owner && !seen.is_in)
    }

    fn place(&self, number: usize) -> Option<usize> {
        number.checked_rem(self.seen.len())
    }

    /// Looks who was let in by the last step.
    fn look(&mut self) -> Result<(), TestCaseError> {
        let mut let_in = Vec::new();
        for place in 0..self.seen.len() {
            let seen = &mut self.seen[place];
            if seen.is_in || !is_in(&mut seen.pass) {
                continue;
            }
            let owner = seen.owner;
            let is_oldest = self.seen[..place].iter().all(|older| older.owner != owner || older.is_in);
            prop_assert!(is_oldest, "turns of one principal are let in as they came");
            self.seen[place].is_in = true;
            let_in.push(owner);
        }
        for owner in let_in {
            prop_assert!(self.bounds.in_all == 0 || self.running(None) <= self.bounds.in_all);
            let own = self.running(Some(owner));
            prop_assert!(self.bounds.per_principal == 0 || own <= self.bounds.per_principal);
            for other in (0..4).filter(|other| *other != owner) {
                *self.overtaken.entry((other, owner)).or_default() += 1;
            }
            self.overtaken.retain(|(waiting, _), _| *waiting != owner);
        }
        for owner in 0..4 {
            if !self.waits(owner) || !self.may_run(owner) {
                self.overtaken.retain(|(waiting, _), _| *waiting != owner);
                continue;
            }
            prop_assert!(!has_room(self.running(None), self.bounds.in_all), "a wake-up was lost");
        }
        let most = self.overtaken.values().max().copied().unwrap_or(0);
        prop_assert!(most <= 1, "somebody was let in twice before another");
        Ok(())
    }
}

proptest! {
    #[test]
    fn nobody_is_forgotten_overtaken_or_let_in_too_early(
        in_all in 0..5_usize,
        per_principal in 0..4_usize,
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let gate = gate(in_all, per_principal);
        let bounds = Bounds { in_all, per_principal };
        let mut watch = Watch { bounds, seen: Vec::new(), overtaken: BTreeMap::new() };
        for step in steps {
            match step {
                Step::Enter(owner) => {
                    let pass = gate.enter(&Principal::new(&owner.to_string()));
                    watch.seen.push(Seen { owner, pass, is_in: false, is_paused: false });
                }
                Step::EnterRunning(owner) => {
                    let pass = gate.enter_running(&Principal::new(&owner.to_string()));
                    watch.seen.push(Seen { owner, pass, is_in: true, is_paused: false });
                }
                Step::Drop(number) => {
                    if let Some(place) = watch.place(number) {
                        watch.seen.remove(place);
                    }
                }
                Step::Ask(number) | Step::Answer(number) => {
                    let asks = matches!(step, Step::Ask(_));
                    if let Some(place) = watch.place(number) && watch.seen[place].is_in {
                        watch.seen[place].pass.pause_while(asks);
                        watch.seen[place].is_paused = asks;
                    }
                }
            }
            watch.look()?;
            let counted = |state| usize::try_from(gate.metrics.turns.of(state).get()).unwrap();
            let let_in = watch.seen.iter().filter(|seen| seen.is_in).count();
            prop_assert_eq!(counted(TurnState::Running), let_in);
            prop_assert_eq!(counted(TurnState::Waiting), watch.seen.len() - let_in);
        }
        watch.seen.clear();
        let turns = gate.lock();
        prop_assert!(turns.running == 0 && turns.by_principal.is_empty() && turns.round.is_empty());
    }
}
