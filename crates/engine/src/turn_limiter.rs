//! Limits how many turns run at once, in all and per principal, and decides which turn runs next.
//!
//! A turn that finds no room waits. Waiting turns start in rounds: in each round every principal that waits gets one turn. So
//! a principal that sends a thousand messages delays another by at most one round. The turns of one principal run in the order
//! in which they came. All decisions depend on the order of the calls alone, so that a simulation can repeat them.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_meter::Metrics;
use longshore_meter::label::TurnState;
use longshore_model::Principal;
use tokio::sync::oneshot;

/// How many turns may run. 0: any number.
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
    /// Only principals with a turn that counts or waits.
    by_principal: BTreeMap<Principal, PrincipalTurns>,
    /// Principals with a waiting turn that their own limit lets run. The first principal gets the next turn.
    round: VecDeque<Principal>,
    next_id: u64,
}

/// The turns of one principal.
#[derive(Debug, Default)]
struct PrincipalTurns {
    running: usize,
    /// By number, in the order in which they came.
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    is_in_round: bool,
}

/// The right of a turn to run, once it is granted. Dropping it ends the right, or the wait for it.
#[derive(Debug)]
pub(crate) struct TurnPermit {
    limiter: Arc<TurnLimiter>,
    owner: Principal,
    state: PermitState,
}

#[derive(Debug)]
enum PermitState {
    /// The permit may have been granted meanwhile.
    Waiting(u64, oneshot::Receiver<()>),
    Running,
    /// The turn waits for an answer, and does not count against the limits.
    Paused,
}

impl TurnLimiter {
    pub(crate) fn new(limits: TurnLimits, metrics: Arc<Metrics>) -> Self {
        Self { limits, metrics, turns: Mutex::default() }
    }

    /// Queues a turn. Wait for [`TurnPermit::ready`] before the turn begins.
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

    /// For a turn that runs already: it counts, even beyond the limits.
    pub(crate) fn enter_running(self: &Arc<Self>, owner: &Principal) -> TurnPermit {
        self.lock().count(owner);
        self.metrics.turns.of(TurnState::Running).add(1);
        self.permit(owner, PermitState::Running)
    }

    fn permit(self: &Arc<Self>, owner: &Principal, state: PermitState) -> TurnPermit {
        TurnPermit { limiter: Arc::clone(self), owner: owner.clone(), state }
    }

    /// Puts a principal at the end of the round, if it has a waiting turn that its own limit lets run.
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
            // Since the principal entered the round, its turn may have given up, or other turns of it may have been
            // counted anyway.
            if has_room(own.running, self.limits.per_principal)
                && let Some((_, go)) = own.waiting.pop_first()
            {
                own.running += 1;
                turns.running += 1;
                self.metrics.turns.of(TurnState::Waiting).add(-1);
                self.metrics.turns.of(TurnState::Running).add(1);
                // The permit still exists: dropping it would have removed it from the queue first.
                let _ = go.send(());
            }
            self.queue(turns, &owner);
        }
    }

    /// Stops counting a turn, and lets a waiting one run.
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
            // The limiter keeps the sender until it has sent.
            let _ = wait.await;
            self.state = PermitState::Running;
        }
    }

    /// A turn that waits for an answer does not count. Once it has the answer, it goes on at once, however many turns run by
    /// then: the agent does not wait for a permit either.
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
