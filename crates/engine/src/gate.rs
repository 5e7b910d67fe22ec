//! How many turns run at once, in all and of one principal, and who is let in next.
//!
//! Whoever finds no room waits. Principals are let in by turns, one turn of one of them at a time, so that one who sends
//! a thousand messages keeps another waiting for one round at most; the turns of one principal are let in as they came.
//! Whatever is decided here depends on the order of the calls alone: a simulation plays it again.

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
pub(crate) struct Bounds {
    pub(crate) in_all: usize,
    pub(crate) per_principal: usize,
}

#[derive(Debug)]
pub(crate) struct Gate {
    bounds: Bounds,
    metrics: Arc<Metrics>,
    turns: Mutex<Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    /// Those that count.
    running: usize,
    /// Only principals of whom a turn counts or waits.
    by_principal: BTreeMap<Principal, Own>,
    /// Principals of whom a turn waits and may run as far as their own bound goes. The first is let in next.
    round: VecDeque<Principal>,
    next_id: u64,
}

/// The turns of one principal.
#[derive(Debug, Default)]
struct Own {
    running: usize,
    /// By number, which is the order in which they came.
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    is_in_round: bool,
}

/// The right of a turn to run, once it is let in. Dropping it ends the right, or the waiting for it.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    owner: Principal,
    standing: Standing,
}

#[derive(Debug)]
enum Standing {
    /// It may have been let in meanwhile.
    Waiting(u64, oneshot::Receiver<()>),
    Running,
    /// It runs and does not count.
    Paused,
}

impl Gate {
    pub(crate) fn new(bounds: Bounds, metrics: Arc<Metrics>) -> Self {
        Self { bounds, metrics, turns: Mutex::default() }
    }

    /// Queues up. Wait for [`Pass::ready`] before the turn begins.
    pub(crate) fn enter(self: &Arc<Self>, owner: &Principal) -> Pass {
        let (go, wait) = oneshot::channel();
        let mut turns = self.lock();
        let id = turns.next_id;
        turns.next_id += 1;
        turns.by_principal.entry(owner.clone()).or_default().waiting.insert(id, go);
        self.metrics.turns.of(TurnState::Waiting).add(1);
        self.queue(&mut turns, owner);
        self.let_in(&mut turns);
        drop(turns);
        self.pass(owner, Standing::Waiting(id, wait))
    }

    /// For a turn that runs already: it counts, and nobody asks whether there is room.
    pub(crate) fn enter_running(self: &Arc<Self>, owner: &Principal) -> Pass {
        self.lock().count(owner);
        self.metrics.turns.of(TurnState::Running).add(1);
        self.pass(owner, Standing::Running)
    }

    fn pass(self: &Arc<Self>, owner: &Principal, standing: Standing) -> Pass {
        Pass { gate: Arc::clone(self), owner: owner.clone(), standing }
    }

    /// Puts a principal at the end of the round, if a turn of theirs waits that their own bound lets run.
    fn queue(&self, turns: &mut Turns, owner: &Principal) {
        let Some(own) = turns.by_principal.get_mut(owner) else { return };
        let has_room = has_room(own.running, self.bounds.per_principal);
        if has_room && !own.waiting.is_empty() && !own.is_in_round {
            own.is_in_round = true;
            turns.round.push_back(owner.clone());
        }
    }

    fn let_in(&self, turns: &mut Turns) {
        while has_room(turns.running, self.bounds.in_all)
            && let Some(owner) = turns.round.pop_front()
        {
            let Some(own) = turns.by_principal.get_mut(&owner) else { continue };
            own.is_in_round = false;
            // Since they came into the round, their turn may have given up, or others of theirs been counted anyway.
            if has_room(own.running, self.bounds.per_principal)
                && let Some((_, go)) = own.waiting.pop_first()
            {
                own.running += 1;
                turns.running += 1;
                self.metrics.turns.of(TurnState::Waiting).add(-1);
                self.metrics.turns.of(TurnState::Running).add(1);
                // Its pass cannot be gone: that takes its place in the queue away first.
                let _ = go.send(());
            }
            self.queue(turns, &owner);
        }
    }

    /// A turn no longer counts.
    fn leave(&self, turns: &mut Turns, owner: &Principal) {
        turns.running -= 1;
        if let Some(own) = turns.by_principal.get_mut(owner) {
            own.running -= 1;
        }
        turns.forget_if_idle(owner);
        self.queue(turns, owner);
        self.let_in(turns);
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn has_room(count: usize, bound: usize) -> bool {
    bound == 0 || count < bound
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

impl Pass {
    /// Waits until the turn is let in. Cancel safe.
    pub(crate) async fn ready(&mut self) {
        if let Standing::Waiting(_, wait) = &mut self.standing {
            // The gate keeps the sender until it has sent.
            let _ = wait.await;
            self.standing = Standing::Running;
        }
    }

    /// A turn that waits for somebody's answer does not count. Once it has it, it goes on at once, whoever runs by then:
    /// the agent does not ask for a place either.
    pub(crate) fn pause_while(&mut self, is_waiting: bool) {
        match (&self.standing, is_waiting) {
            (Standing::Running, true) => {
                self.gate.leave(&mut self.gate.lock(), &self.owner);
                self.standing = Standing::Paused;
            }
            (Standing::Paused, false) => {
                self.gate.lock().count(&self.owner);
                self.standing = Standing::Running;
            }
            _ => {}
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let gauges = &self.gate.metrics.turns;
        let mut turns = self.gate.lock();
        if let Standing::Waiting(id, _) = self.standing
            && let Some(own) = turns.by_principal.get_mut(&self.owner)
            && own.waiting.remove(&id).is_some()
        {
            gauges.of(TurnState::Waiting).add(-1);
            turns.forget_if_idle(&self.owner);
            return;
        }
        gauges.of(TurnState::Running).add(-1);
        if !matches!(self.standing, Standing::Paused) {
            self.gate.leave(&mut turns, &self.owner);
        }
    }
}
