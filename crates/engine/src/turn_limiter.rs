//! Limits how many turns run at once, in all and per principal, and decides which turn runs next.
//!
//! A turn for which there is no room waits. Waiting turns start in rounds: in each round every principal with a waiting turn
//! gets one turn. So a principal that sends a thousand messages delays another one by at most one round. The turns of one
//! principal run in the order in which they arrived. All decisions depend only on the order of the calls, so that a simulation
//! can repeat them.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_meter::Metrics;
use longshore_meter::label::TurnState;
use longshore_model::Principal;
use tokio::sync::oneshot;

/// How many turns may run. 0: no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnLimits {
    pub(crate) in_all: usize,
    pub(crate) per_principal: usize,
}

#[derive(Debug)]
pub(crate) struct TurnLimiter {
    limits: TurnLimits,
    metrics: Arc<Metrics>,
    turns: Mutex<Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    /// How many running turns count against the limit. A turn that waits for an answer does not count.
    running: usize,
    /// The turns by principal. Contains only principals with a turn that counts or waits.
    by_principal: BTreeMap<Principal, PrincipalTurns>,
    /// The principals with a waiting turn that their own limit allows to run. The first principal gets the next turn.
    round: VecDeque<Principal>,
    next_id: u64,
}

/// The turns of one principal.
#[derive(Debug, Default)]
struct PrincipalTurns {
    running: usize,
    /// The waiting turns by number, in the order in which they arrived.
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    is_in_round: bool,
}

/// A turn's right to run, once it is granted. Dropping it gives the right back, or ends the wait for it.
#[derive(Debug)]
pub(crate) struct TurnPermit {
    limiter: Arc<TurnLimiter>,
    owner: Principal,
    state: PermitState,
}

#[derive(Debug)]
enum PermitState {
    /// The turn waits for the permit, which may have been granted since the last check.
    Waiting(u64, oneshot::Receiver<()>),
    Running,
    /// The turn waits for an answer, and does not count against the limits.
    Paused,
}

impl TurnLimiter {
    pub(crate) fn new(limits: TurnLimits, metrics: Arc<Metrics>) -> Self {
        Self { limits, metrics, turns: Mutex::default() }
    }

    /// Queues a turn. The caller waits for [`TurnPermit::ready`] before the turn begins.
    pub(crate) fn enter(self: &Arc<Self>, owner: &Principal) -> TurnPermit {
        let (go, wait) = oneshot::channel();
        let mut turns = self.lock();
        let id = turns.next_id;
        turns.next_id += 1;
        turns.by_principal.entry(owner.clone()).or_default().waiting.insert(id, go);
        self.metrics.turns.of(TurnState::Waiting).add(1);
        self.queue(&mut turns, owner);
        self.grant(&mut turns);
        drop(turns);
        self.permit(owner, PermitState::Waiting(id, wait))
    }

    /// A permit for a turn that already runs. The turn counts, even beyond the limits.
    pub(crate) fn enter_running(self: &Arc<Self>, owner: &Principal) -> TurnPermit {
        self.lock().count(owner);
        self.metrics.turns.of(TurnState::Running).add(1);
        self.permit(owner, PermitState::Running)
    }

    fn permit(self: &Arc<Self>, owner: &Principal, state: PermitState) -> TurnPermit {
        TurnPermit { limiter: Arc::clone(self), owner: owner.clone(), state }
    }

    /// Puts a principal at the end of the round, if it has a waiting turn that its own limit allows to run.
    fn queue(&self, turns: &mut Turns, owner: &Principal) {
        let Some(own) = turns.by_principal.get_mut(owner) else { return };
        let has_room = has_room(own.running, self.limits.per_principal);
        if has_room && !own.waiting.is_empty() && !own.is_in_round {
            own.is_in_round = true;
            turns.round.push_back(owner.clone());
        }
    }

    fn grant(&self, turns: &mut Turns) {
        while has_room(turns.running, self.limits.in_all)
            && let Some(owner) = turns.round.pop_front()
        {
            let Some(own) = turns.by_principal.get_mut(&owner) else { continue };
            own.is_in_round = false;
            // Since the principal entered the round, its waiting turn may have been dropped, or others of its turns may have
            // begun to count.
            if has_room(own.running, self.limits.per_principal)
                && let Some((_, go)) = own.waiting.pop_first()
            {
                own.running += 1;
                turns.running += 1;
                self.metrics.turns.of(TurnState::Waiting).add(-1);
                self.metrics.turns.of(TurnState::Running).add(1);
                // The send cannot fail: a dropped permit would have been removed from the queue first.
                let _ = go.send(());
            }
            self.queue(turns, &owner);
        }
    }

    /// Stops counting a turn, and starts a waiting one.
    fn leave(&self, turns: &mut Turns, owner: &Principal) {
        turns.running -= 1;
        if let Some(own) = turns.by_principal.get_mut(owner) {
            own.running -= 1;
        }
        turns.forget_if_idle(owner);
        self.queue(turns, owner);
        self.grant(turns);
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn has_room(count: usize, limit: usize) -> bool {
    limit == 0 || count < limit
}

impl Turns {
    fn count(&mut self, owner: &Principal) {
        self.running += 1;
        self.by_principal.entry(owner.clone()).or_default().running += 1;
    }

    fn forget_if_idle(&mut self, owner: &Principal) {
        let Some(own) = self.by_principal.get(owner) else { return };
        if own.running == 0 && own.waiting.is_empty() {
            if own.is_in_round {
                self.round.retain(|waiting| waiting != owner);
            }
            self.by_principal.remove(owner);
        }
    }
}

impl TurnPermit {
    /// Waits until the permit is granted. Cancel safe.
    pub(crate) async fn ready(&mut self) {
        if let PermitState::Waiting(_, wait) = &mut self.state {
            // An error is impossible, because the limiter keeps the sender until it has sent.
            let _ = wait.await;
            self.state = PermitState::Running;
        }
    }

    /// Stops counting the turn while it waits for an answer. Once it has the answer, the turn counts again and continues at once,
    /// however many turns run by then, because the agent does not wait for a permit either.
    pub(crate) fn pause_while(&mut self, is_waiting: bool) {
        match (&self.state, is_waiting) {
            (PermitState::Running, true) => {
                self.limiter.leave(&mut self.limiter.lock(), &self.owner);
                self.state = PermitState::Paused;
            }
            (PermitState::Paused, false) => {
                self.limiter.lock().count(&self.owner);
                self.state = PermitState::Running;
            }
            _ => {}
        }
    }
}

impl Drop for TurnPermit {
    fn drop(&mut self) {
        let gauges = &self.limiter.metrics.turns;
        let mut turns = self.limiter.lock();
        if let PermitState::Waiting(id, _) = self.state
            && let Some(own) = turns.by_principal.get_mut(&self.owner)
            && own.waiting.remove(&id).is_some()
        {
            gauges.of(TurnState::Waiting).add(-1);
            turns.forget_if_idle(&self.owner);
            return;
        }
        gauges.of(TurnState::Running).add(-1);
        if !matches!(self.state, PermitState::Paused) {
            self.limiter.leave(&mut turns, &self.owner);
        }
    }
}
