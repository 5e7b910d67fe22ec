//! The queue of a store thread, fair among owners.
//!
//! Each owner has its own queue, and the thread takes jobs from the owners in turn. However many jobs one owner has queued, another
//! waits for at most one job of each owner and for the group that is running. Jobs of one owner run in the order of their arrival,
//! with one exception: a job that had to wait for a slot is queued only some time after the slot was granted. Another job of the
//! owner that arrives in that time runs first.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use longshore_meter::Metrics;
use longshore_meter::label::StoreThread;
use longshore_model::Principal;
use tokio::sync::oneshot;

/// The owner of a job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) enum Owner {
    /// The gateway itself, for work that belongs to no principal.
    #[default]
    Gateway,
    /// Health checks. They have their own turn, so that a store with many jobs is not mistaken for one that is down.
    Health,
    Principal(Principal),
}

/// The most jobs of all owners together that wait for a thread. At this bound, and at [`QUEUE_OF_OWNER`], callers wait for a slot
/// without blocking a thread. Nothing is dropped; the turns that write become slower.
pub(super) const QUEUE: usize = 1024;

/// The most jobs of one owner that wait for a thread. More jobs wait for a slot, so that other owners find room.
pub(super) const QUEUE_OF_OWNER: usize = 256;

/// The error of a queue whose thread has ended.
#[derive(Debug)]
pub(super) struct QueueClosed;

/// A handle to a queue. Clones refer to the same queue.
pub(super) struct Queue<J>(Arc<Shared<J>>);

struct Shared<J> {
    state: Mutex<State<J>>,
    /// Notified when there is a new job, or when the queue is closed.
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

    /// Queues the job as soon as there is a slot for it. Dropping the future before that drops the job.
    pub(super) async fn push(&self, owner: Owner, job: J) -> Result<(), QueueClosed> {
        let (job, slot) = {
            let mut state = self.lock();
            if state.is_closed {
                return Err(QueueClosed);
            }
            match state.try_push(&owner, job) {
                Ok(()) => {
                    self.pushed(state);
                    return Ok(());
                }
                Err(job) => (job, state.wait_for_slot(&owner)),
            }
        };
        // When the thread has ended, the sender is dropped and this fails.
        let mut slot: Slot<J> = slot.await.map_err(|_| QueueClosed)?;
        slot.is_used = true;
        let mut state = self.lock();
        if state.is_closed {
            return Err(QueueClosed);
        }
        state.owner_queue(&owner).jobs.push_back(job);
        state.waiting += 1;
        self.pushed(state);
        Ok(())
    }

    /// Takes waiting jobs up to a total weight of `most`, one of each owner in turn. Waits for the first job. Returns `false` if
    /// the queue is closed and empty.
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
        let granted = state.grant_slots();
        drop(state);
        self.0.metrics.jobs_taken(self.0.thread, jobs.len() - before);
        self.send_slots(granted);
        true
    }

    /// Refuses new jobs. The waiting jobs are still done.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        // Dropping the senders ends the waits for a slot.
        for queue in state.owners.values_mut() {
            queue.waiters.clear();
        }
        self.0.work.notify_all();
    }

    /// Drops the waiting jobs, which tells their callers that the jobs are not done.
    fn abandon(&self) {
        self.close();
        let (owners, waiting) = {
            let mut state = self.lock();
            let waiting = std::mem::take(&mut state.waiting);
            (std::mem::take(&mut state.owners), waiting)
        };
        self.0.metrics.jobs_taken(self.0.thread, waiting);
        drop(owners);
    }

    /// A guard for the thread that takes the jobs. If the thread panics, the guard makes all callers stop waiting.
    pub(super) fn abandon_on_drop(&self) -> AbandonOnDrop<J> {
        AbandonOnDrop(self.clone())
    }

    fn pushed(&self, mut state: MutexGuard<'_, State<J>>) {
        let wakes = std::mem::take(&mut state.is_idle);
        drop(state);
        self.0.metrics.job_queued(self.0.thread);
        if wakes {
            self.0.work.notify_one();
        }
    }

    fn send_slots(&self, mut granted: VecDeque<(Owner, oneshot::Sender<Slot<J>>)>) {
        while let Some((owner, waiter)) = granted.pop_front() {
            // If the waiter drops its slot later, the slot's destructor grants it to the next waiter.
            let Err(mut refused) = waiter.send(Slot { queue: self.clone(), owner, is_used: false }) else {
                continue;
            };
            // The waiter has just gone. This flag keeps the destructor from calling this function again, one level deeper for each
            // such waiter.
            refused.is_used = true;
            let mut state = self.lock();
            state.release_slot(&refused.owner);
            granted.extend(state.grant_slots());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of waiting jobs.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// The number of this owner's callers that wait for a slot.
    #[cfg(test)]
    pub(super) fn waiters(&self, owner: &Owner) -> usize {
        self.lock().owners.get(owner).map_or(0, |queue| queue.waiters.len())
    }
}

/// The guard of [`Queue::abandon_on_drop`].
pub(super) struct AbandonOnDrop<J>(Queue<J>);

impl<J> Drop for AbandonOnDrop<J> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Reserved room for one job. Dropping it unused frees the room.
struct Slot<J> {
    queue: Queue<J>,
    owner: Owner,
    /// Whether the slot holds a job now.
    is_used: bool,
}

impl<J> Drop for Slot<J> {
    fn drop(&mut self) {
        if self.is_used {
            return;
        }
        let granted = {
            let mut state = self.queue.lock();
            state.release_slot(&self.owner);
            state.grant_slots()
        };
        self.queue.send_slots(granted);
    }
}

struct State<J> {
    /// The queues of all owners that have a job, a reserved slot or a waiter. The map is sorted, so that the order of jobs is
    /// deterministic.
    owners: BTreeMap<Owner, OwnerQueue<J>>,
    /// The owner whose job was taken last.
    last_served: Owner,
    /// The owner who was granted a slot last.
    last_granted: Owner,
    /// The number of queued jobs.
    waiting: usize,
    /// The number of queued jobs and reserved slots.
    slots: usize,
    is_closed: bool,
    /// Whether the thread sleeps.
    is_idle: bool,
    /// The last owner queue that became empty, kept for reuse: at low load each job needs a new one.
    spare: OwnerQueue<J>,
}

struct OwnerQueue<J> {
    jobs: VecDeque<J>,
    slots: usize,
    /// Callers that wait for a slot, oldest first.
    waiters: VecDeque<oneshot::Sender<Slot<J>>>,
}

impl<J> Default for OwnerQueue<J> {
    fn default() -> Self {
        Self { jobs: VecDeque::new(), slots: 0, waiters: VecDeque::new() }
    }
}

impl<J> State<J> {
    fn new() -> Self {
        Self {
            owners: BTreeMap::new(),
            last_served: Owner::default(),
            last_granted: Owner::default(),
            waiting: 0,
            slots: 0,
            is_closed: false,
            is_idle: false,
            spare: OwnerQueue::default(),
        }
    }

    fn owner_queue(&mut self, owner: &Owner) -> &mut OwnerQueue<J> {
        let spare = &mut self.spare;
        self.owners.entry(owner.clone()).or_insert_with(|| std::mem::take(spare))
    }

    /// Queues the job if there is a slot and no other caller of the owner waits. Otherwise returns the job.
    fn try_push(&mut self, owner: &Owner, job: J) -> Result<(), J> {
        let is_full = self.slots >= QUEUE;
        let queue = self.owner_queue(owner);
        if is_full || queue.slots >= QUEUE_OF_OWNER || !queue.waiters.is_empty() {
            return Err(job);
        }
        queue.slots += 1;
        queue.jobs.push_back(job);
        self.slots += 1;
        self.waiting += 1;
        Ok(())
    }

    fn wait_for_slot(&mut self, owner: &Owner) -> oneshot::Receiver<Slot<J>> {
        let waiters = &mut self.owner_queue(owner).waiters;
        if waiters.len() == waiters.capacity() {
            // Remove waiters that have gone whenever the list would have to grow.
            waiters.retain(|waiter| !waiter.is_closed());
        }
        let (waiter, slot) = oneshot::channel();
        waiters.push_back(waiter);
        slot
    }

    /// Takes the next job, from the owner whose turn it is.
    fn next(&mut self) -> Option<J> {
        if self.waiting == 0 {
            return None;
        }
        let owner = next_after(&self.owners, &self.last_served, |queue| !queue.jobs.is_empty())?;
        let job = self.owners.get_mut(&owner)?.jobs.pop_front()?;
        self.waiting -= 1;
        self.release_slot(&owner);
        self.last_served = owner;
        Some(job)
    }

    fn release_slot(&mut self, owner: &Owner) {
        // If the queue was abandoned, the owner no longer exists.
        let Some(queue) = self.owners.get_mut(owner) else { return };
        queue.slots -= 1;
        self.slots -= 1;
        self.remove_if_empty(owner);
    }

    fn remove_if_empty(&mut self, owner: &Owner) {
        if self.owners.get(owner).is_some_and(|queue| queue.slots == 0 && queue.waiters.is_empty())
            && let Some(queue) = self.owners.remove(owner)
        {
            self.spare = queue;
        }
    }

    /// Reserves the free slots for the waiters, one of each owner in turn. Skips waiters that have gone.
    fn grant_slots(&mut self) -> VecDeque<(Owner, oneshot::Sender<Slot<J>>)> {
        let mut granted = VecDeque::new();
        let may_enter = |queue: &OwnerQueue<J>| !queue.waiters.is_empty() && queue.slots < QUEUE_OF_OWNER;
        while self.slots < QUEUE
            && let Some(owner) = next_after(&self.owners, &self.last_granted, may_enter)
            && let Some(queue) = self.owners.get_mut(&owner)
            && let Some(waiter) = queue.waiters.pop_front()
        {
            if waiter.is_closed() {
                self.remove_if_empty(&owner);
                continue;
            }
            queue.slots += 1;
            self.slots += 1;
            self.last_granted.clone_from(&owner);
            granted.push_back((owner, waiter));
        }
        granted
    }
}

/// The first owner after `last`, in circular order, whose queue fulfils `wanted`.
fn next_after<J>(
    owners: &BTreeMap<Owner, OwnerQueue<J>>,
    last: &Owner,
    wanted: impl Fn(&OwnerQueue<J>) -> bool,
) -> Option<Owner> {
    let after = owners.range((Excluded(last), Unbounded));
    let up_to = owners.range(..=last);
    after.chain(up_to).find(|(_, queue)| wanted(queue)).map(|(owner, _)| owner.clone())
}

#[cfg(test)]
mod tests;
