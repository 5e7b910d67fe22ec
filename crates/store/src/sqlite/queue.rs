//! What waits for a thread of the store, fair to those whose it is.
//!
//! Whoever waits has a lane of its own, and the thread takes from the lanes in turn: however much one owner has asked
//! for, another waits for one job of each owner at most, and for the group that is being done. In a lane the order is
//! that in which the jobs came, but for those that had to wait outside: a job of the same owner that comes when one of them
//! was let in, and has not noticed yet, goes first.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use longshore_meter::Metrics;
use longshore_meter::label::StoreThread;
use longshore_model::Principal;
use tokio::sync::oneshot;

/// Whose a job is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) enum Owner {
    /// The gateway's own work, which is nobody's in particular.
    #[default]
    Gateway,
    /// Whoever looks whether the store works, and must not take a crowd for a store that is down.
    Health,
    Of(Principal),
}

/// Jobs that may wait for a thread, of all owners together. At a bound callers wait, without a thread, to be let in:
/// the turns that write become slower, and nothing is dropped.
pub(super) const QUEUE: usize = 1024;

/// Jobs of one owner that may wait for a thread. What is beyond waits outside, so that there is room for others.
pub(super) const QUEUE_OF_OWNER: usize = 256;

/// The thread is gone.
#[derive(Debug)]
pub(super) struct Closed;

/// Clones are the same queue.
pub(super) struct Queue<J>(Arc<Shared<J>>);

struct Shared<J> {
    state: Mutex<State<J>>,
    /// Something is there to be done, or nothing will ever be.
    work: Condvar,
    thread: StoreThread,
    metrics: Arc<Metrics>,
}

impl<J> Clone for Queue<J> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<J> Queue<J> {
    pub(super) fn new(thread: StoreThread, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State::new()), work: Condvar::new(), thread, metrics }))
    }

    /// Lets the job wait for the thread, once there is room for it. When the future is dropped before, the job is too.
    pub(super) async fn push(&self, owner: Owner, job: J) -> Result<(), Closed> {
        let (job, let_in) = {
            let mut state = self.lock();
            if state.is_closed {
                return Err(Closed);
            }
            match state.enter(&owner, job) {
                Ok(()) => {
                    self.pushed(state);
                    return Ok(());
                }
                Err(job) => (job, state.wait_outside(&owner)),
            }
        };
        // Nobody lets anybody in any more when the thread is gone.
        let mut place: Place<J> = let_in.await.map_err(|_| Closed)?;
        place.is_used = true;
        let mut state = self.lock();
        if state.is_closed {
            return Err(Closed);
        }
        state.lane(&owner).jobs.push_back(job);
        state.waiting += 1;
        self.pushed(state);
        Ok(())
    }

    /// Takes what waits, until it weighs `most`, one of each owner in turn. Waits for the first; `false` when none will
    /// come.
    pub(super) fn take(&self, most: usize, weigh: impl Fn(&J) -> usize, jobs: &mut Vec<J>) -> bool {
        let mut state = self.lock();
        while state.waiting == 0 {
            if state.is_closed {
                return false;
            }
            state.is_idle = true;
            state = self.0.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let (before, mut weight) = (jobs.len(), 0);
        while weight < most
            && let Some(job) = state.next()
        {
            weight += weigh(&job);
            jobs.push(job);
        }
        let let_in = state.let_in();
        drop(state);
        self.0.metrics.jobs_taken(self.0.thread, jobs.len() - before);
        self.tell(let_in);
        true
    }

    /// What waits is still done; nothing is let in any more.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        // Whoever waits outside learns it by this.
        for lane in state.lanes.values_mut() {
            lane.outside.clear();
        }
        self.0.work.notify_all();
    }

    /// Whoever waits for a job that is dropped here learns that it is not done.
    fn abandon(&self) {
        self.close();
        let (lanes, waiting) = {
            let mut state = self.lock();
            let waiting = std::mem::take(&mut state.waiting);
            (std::mem::take(&mut state.lanes), waiting)
        };
        self.0.metrics.jobs_taken(self.0.thread, waiting);
        drop(lanes);
    }

    /// The thread that takes has this. When it ends in a panic, nobody waits for it any more.
    pub(super) fn abandoned_at_the_end(&self) -> Abandoned<J> {
        Abandoned(self.clone())
    }

    fn pushed(&self, mut state: MutexGuard<'_, State<J>>) {
        let wakes = std::mem::take(&mut state.is_idle);
        drop(state);
        self.0.metrics.job_queued(self.0.thread);
        if wakes {
            self.0.work.notify_one();
        }
    }

    fn tell(&self, mut let_in: VecDeque<(Owner, oneshot::Sender<Place<J>>)>) {
        while let Some((owner, waiter)) = let_in.pop_front() {
            // A place that is dropped later goes to the next by itself.
            let Err(mut refused) = waiter.send(Place { queue: self.clone(), owner, is_used: false }) else {
                continue;
            };
            // Whoever waited has just gone. Dropped as it is, the place would come back here, one call deeper for each who
            // has gone.
            refused.is_used = true;
            let mut state = self.lock();
            state.leave(&refused.owner);
            let_in.extend(state.let_in());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait, inside.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// How many of this owner wait to be let in.
    #[cfg(test)]
    pub(super) fn outside(&self, owner: &Owner) -> usize {
        self.lock().lanes.get(owner).map_or(0, |lane| lane.outside.len())
    }
}

/// See [`Queue::abandoned_at_the_end`].
pub(super) struct Abandoned<J>(Queue<J>);

impl<J> Drop for Abandoned<J> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Room for one job, which is kept for whoever has this.
struct Place<J> {
    queue: Queue<J>,
    owner: Owner,
    /// There is a job in it now.
    is_used: bool,
}

impl<J> Drop for Place<J> {
    fn drop(&mut self) {
        if self.is_used {
            return;
        }
        let let_in = {
            let mut state = self.queue.lock();
            state.leave(&self.owner);
            state.let_in()
        };
        self.queue.tell(let_in);
    }
}

struct State<J> {
    /// Of every owner who has a job here, a place that is kept, or somebody outside. In the order of their names, so
    /// that the order of what is taken does not depend on chance.
    lanes: BTreeMap<Owner, Lane<J>>,
    /// Whose job was taken last, and who was let in last.
    served: Owner,
    admitted: Owner,
    /// Jobs that are here.
    waiting: usize,
    /// Jobs that are here, and places that are kept.
    places: usize,
    is_closed: bool,
    /// The thread sleeps.
    is_idle: bool,
    /// The last lane that became empty: at rest each job needs one.
    spare: Lane<J>,
}

struct Lane<J> {
    jobs: VecDeque<J>,
    places: usize,
    /// Oldest first.
    outside: VecDeque<oneshot::Sender<Place<J>>>,
}

impl<J> Default for Lane<J> {
    fn default() -> Self {
        Self { jobs: VecDeque::new(), places: 0, outside: VecDeque::new() }
    }
}

impl<J> State<J> {
    fn new() -> Self {
        Self {
            lanes: BTreeMap::new(),
            served: Owner::default(),
            admitted: Owner::default(),
            waiting: 0,
            places: 0,
            is_closed: false,
            is_idle: false,
            spare: Lane::default(),
        }
    }

    fn lane(&mut self, owner: &Owner) -> &mut Lane<J> {
        let spare = &mut self.spare;
        self.lanes.entry(owner.clone()).or_insert_with(|| std::mem::take(spare))
    }

    /// Gives the job back when there is no room for it now, or others were there before.
    fn enter(&mut self, owner: &Owner, job: J) -> Result<(), J> {
        let is_full = self.places >= QUEUE;
        let lane = self.lane(owner);
        if is_full || lane.places >= QUEUE_OF_OWNER || !lane.outside.is_empty() {
            return Err(job);
        }
        lane.places += 1;
        lane.jobs.push_back(job);
        self.places += 1;
        self.waiting += 1;
        Ok(())
    }

    fn wait_outside(&mut self, owner: &Owner) -> oneshot::Receiver<Place<J>> {
        let outside = &mut self.lane(owner).outside;
        if outside.len() == outside.capacity() {
            // Those who have gone are not kept for longer than it takes as many again to come.
            outside.retain(|waiter| !waiter.is_closed());
        }
        let (waiter, let_in) = oneshot::channel();
        outside.push_back(waiter);
        let_in
    }

    /// The next job, of the owner whose turn it is.
    fn next(&mut self) -> Option<J> {
        if self.waiting == 0 {
            return None;
        }
        let owner = next_after(&self.lanes, &self.served, |lane| !lane.jobs.is_empty())?;
        let job = self.lanes.get_mut(&owner)?.jobs.pop_front()?;
        self.waiting -= 1;
        self.leave(&owner);
        self.served = owner;
        Some(job)
    }

    /// A place is free again.
    fn leave(&mut self, owner: &Owner) {
        // Not there: all was abandoned.
        let Some(lane) = self.lanes.get_mut(owner) else { return };
        lane.places -= 1;
        self.places -= 1;
        self.remove_if_empty(owner);
    }

    fn remove_if_empty(&mut self, owner: &Owner) {
        if self.lanes.get(owner).is_some_and(|lane| lane.places == 0 && lane.outside.is_empty())
            && let Some(lane) = self.lanes.remove(owner)
        {
            self.spare = lane;
        }
    }

    /// Keeps what places are free for those outside, one of each owner in turn. Those who have gone are passed over.
    fn let_in(&mut self) -> VecDeque<(Owner, oneshot::Sender<Place<J>>)> {
        let mut let_in = VecDeque::new();
        let may_enter = |lane: &Lane<J>| !lane.outside.is_empty() && lane.places < QUEUE_OF_OWNER;
        while self.places < QUEUE
            && let Some(owner) = next_after(&self.lanes, &self.admitted, may_enter)
            && let Some(lane) = self.lanes.get_mut(&owner)
            && let Some(waiter) = lane.outside.pop_front()
        {
            if waiter.is_closed() {
                self.remove_if_empty(&owner);
                continue;
            }
            lane.places += 1;
            self.places += 1;
            self.admitted.clone_from(&owner);
            let_in.push_back((owner, waiter));
        }
        let_in
    }
}

/// The first owner behind `last`, in the circle of all, whose lane is `wanted`.
fn next_after<J>(
    lanes: &BTreeMap<Owner, Lane<J>>,
    last: &Owner,
    wanted: impl Fn(&Lane<J>) -> bool,
) -> Option<Owner> {
    let behind = lanes.range((Excluded(last), Unbounded));
    let up_to = lanes.range(..=last);
    behind.chain(up_to).find(|(_, lane)| wanted(lane)).map(|(owner, _)| owner.clone())
}

#[cfg(test)]
mod tests;
