use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use proptest::prelude::*;

use super::*;
use crate::tasks::Tasks;

fn limiter(in_all: usize, per_principal: usize) -> Arc<TurnLimiter> {
    Arc::new(TurnLimiter::new(TurnLimits { in_all, per_principal }, Arc::default()))
}

fn is_in(permit: &mut TurnPermit) -> bool {
    permit.ready().now_or_never().is_some()
}

/// Queues all turns behind a running one, in the order of the letters, and ends each turn as soon as it gets a permit. Returns
/// the order in which the turns run.
fn order(per_principal: usize, queue: &str) -> String {
    let limiter = limiter(1, per_principal);
    let first = limiter.enter(&Principal::new("first"));
    let enter = |owner: char| (owner, limiter.enter(&Principal::new(&owner.to_string())));
    let mut waiting: Vec<_> = queue.chars().map(enter).collect();
    drop(first);
    let mut let_in = String::new();
    while !waiting.is_empty() {
        let (mut ready, still): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .map(|(owner, mut permit)| (is_in(&mut permit), owner, permit))
            .partition(|(is_in, ..)| *is_in);
        waiting = still.into_iter().map(|(_, owner, permit)| (owner, permit)).collect();
        let (_, owner, permit) = ready.pop().expect("one permit becomes ready");
        assert!(ready.is_empty(), "only one at a time");
        let_in.push(owner);
        drop(permit);
    }
    let_in
}

#[test]
fn principals_take_turns_and_the_turns_of_one_run_in_order() {
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
fn a_flood_delays_others_by_one_round_at_most() {
    let limiter = limiter(4, 0);
    let (flood, other) = (Principal::new("flood"), Principal::new("other"));
    let mut running: Vec<_> = (0..4).map(|_| limiter.enter(&flood)).collect();
    let waiting: Vec<_> = (0..1000).map(|_| limiter.enter(&flood)).collect();
    let mut late = limiter.enter(&other);
    assert!(!is_in(&mut late));
    running.pop();
    // The principal with many turns was first in the round, and has had its turn.
    assert!(!is_in(&mut late));
    running.pop();
    assert!(is_in(&mut late));
    drop(waiting);
}

#[test]
fn a_principal_at_its_own_limit_blocks_no_other() {
    let limiter = limiter(3, 2);
    let (a, b) = (Principal::new("a"), Principal::new("b"));
    let mut own: Vec<_> = (0..4).map(|_| limiter.enter(&a)).collect();
    assert_eq!(own.iter_mut().map(is_in).collect::<Vec<_>>(), [true, true, false, false]);
    let mut others: Vec<_> = (0..2).map(|_| limiter.enter(&b)).collect();
    assert_eq!(others.iter_mut().map(is_in).collect::<Vec<_>>(), [true, false]);
    drop(own.remove(0));
    // Of the waiting turns, the turn of the other principal was the next to run.
    assert_eq!(others.iter_mut().map(is_in).collect::<Vec<_>>(), [true, true]);
    assert_eq!(own.iter_mut().map(is_in).collect::<Vec<_>>(), [true, false, false]);
    drop(others.remove(0));
    assert_eq!(own.iter_mut().map(is_in).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn a_turn_that_waits_for_an_answer_makes_room_and_goes_on_at_once_with_the_answer() {
    let limiter = limiter(1, 0);
    let (a, b) = (Principal::new("a"), Principal::new("b"));
    let (mut asking, mut second, mut third) = (limiter.enter(&a), limiter.enter(&b), limiter.enter(&b));
    assert!(is_in(&mut asking) && !is_in(&mut second));
    asking.pause_while(true);
    asking.pause_while(true);
    assert!(is_in(&mut second) && !is_in(&mut third));
    asking.pause_while(false);
    drop(second);
    assert!(!is_in(&mut third), "the turn that has its answer counts again");
    drop(asking);
    assert!(is_in(&mut third));
}

#[test]
fn turns_that_run_already_count_and_are_never_refused() {
    let limiter = limiter(1, 1);
    let a = Principal::new("a");
    let resumed = [limiter.enter_running(&a), limiter.enter_running(&a)];
    let mut new = limiter.enter(&a);
    for permit in resumed {
        assert!(!is_in(&mut new));
        drop(permit);
    }
    assert!(is_in(&mut new));
}

#[test]
fn without_limits_no_turn_waits() {
    let limiter = limiter(0, 0);
    let mut permits: Vec<_> = (0..100).map(|_| limiter.enter(&Principal::new("a"))).collect();
    assert!(permits.iter_mut().all(is_in));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_waiting_turn_runs_even_when_others_give_up() {
    let (limiter, tasks) = (limiter(3, 2), Tasks::new());
    let turns: Vec<_> = (0..600_u32)
        .map(|number| {
            let limiter = Arc::clone(&limiter);
            tasks.spawn("test", async move {
                let mut permit = limiter.enter(&Principal::new(&format!("p{}", number % 5)));
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                    return;
                }
                permit.ready().await;
                permit.pause_while(number % 3 == 0);
                tokio::task::yield_now().await;
                permit.pause_while(false);
            })
        })
        .collect();
    for turn in turns {
        turn.await.expect("the turn ends");
    }
    assert_eq!(limiter.lock().running, 0);
    assert!(limiter.lock().by_principal.is_empty() && limiter.lock().round.is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Enter(u8),
    EnterRunning(u8),
    /// Drops the permit at this index, modulo the number of permits.
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

/// A permit as a client of the limiter sees it.
struct Observed {
    owner: u8,
    permit: TurnPermit,
    is_in: bool,
    is_paused: bool,
}

/// Observes a limiter from outside.
struct Observer {
    limits: TurnLimits,
    observed: Vec<Observed>,
    /// How often the second principal got a permit while the first could have got one.
    overtaken: BTreeMap<(u8, u8), usize>,
}

impl Observer {
    fn running(&self, owner: Option<u8>) -> usize {
        let counts = |observed: &&Observed| {
            observed.is_in && !observed.is_paused && owner.is_none_or(|own| own == observed.owner)
        };
        self.observed.iter().filter(counts).count()
    }

    fn may_run(&self, owner: u8) -> bool {
        has_room(self.running(Some(owner)), self.limits.per_principal)
    }

    fn waits(&self, owner: u8) -> bool {
        self.observed.iter().any(|observed| observed.owner == owner && !observed.is_in)
    }

    fn index(&self, number: usize) -> Option<usize> {
        number.checked_rem(self.observed.len())
    }

    /// Checks which permits the last step granted.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let mut let_in = Vec::new();
        for index in 0..self.observed.len() {
            let observed = &mut self.observed[index];
            if observed.is_in || !is_in(&mut observed.permit) {
                continue;
            }
            let owner = observed.owner;
            let is_oldest = self.observed[..index].iter().all(|older| older.owner != owner || older.is_in);
            prop_assert!(is_oldest, "turns of one principal run in order");
            self.observed[index].is_in = true;
            let_in.push(owner);
        }
        for owner in let_in {
            prop_assert!(self.limits.in_all == 0 || self.running(None) <= self.limits.in_all);
            let own = self.running(Some(owner));
            prop_assert!(self.limits.per_principal == 0 || own <= self.limits.per_principal);
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
            prop_assert!(!has_room(self.running(None), self.limits.in_all), "a wake-up was lost");
        }
        let most = self.overtaken.values().max().copied().unwrap_or(0);
        prop_assert!(most <= 1, "a principal got two permits before another got one");
        Ok(())
    }
}

proptest! {
    #[test]
    fn no_turn_is_forgotten_overtaken_or_started_too_early(
        in_all in 0..5_usize,
        per_principal in 0..4_usize,
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let limiter = limiter(in_all, per_principal);
        let limits = TurnLimits { in_all, per_principal };
        let mut observer = Observer { limits, observed: Vec::new(), overtaken: BTreeMap::new() };
        for step in steps {
            match step {
                Step::Enter(owner) => {
                    let permit = limiter.enter(&Principal::new(&owner.to_string()));
                    observer.observed.push(Observed { owner, permit, is_in: false, is_paused: false });
                }
                Step::EnterRunning(owner) => {
                    let permit = limiter.enter_running(&Principal::new(&owner.to_string()));
                    observer.observed.push(Observed { owner, permit, is_in: true, is_paused: false });
                }
                Step::Drop(number) => {
                    if let Some(index) = observer.index(number) {
                        observer.observed.remove(index);
                    }
                }
                Step::Ask(number) | Step::Answer(number) => {
                    let asks = matches!(step, Step::Ask(_));
                    if let Some(index) = observer.index(number) && observer.observed[index].is_in {
                        observer.observed[index].permit.pause_while(asks);
                        observer.observed[index].is_paused = asks;
                    }
                }
            }
            observer.check()?;
            let counted = |state| usize::try_from(limiter.metrics.turns.of(state).get()).unwrap();
            let let_in = observer.observed.iter().filter(|observed| observed.is_in).count();
            prop_assert_eq!(counted(TurnState::Running), let_in);
            prop_assert_eq!(counted(TurnState::Waiting), observer.observed.len() - let_in);
        }
        observer.observed.clear();
        let turns = limiter.lock();
        prop_assert!(turns.running == 0 && turns.by_principal.is_empty() && turns.round.is_empty());
    }
}
