//! Who goes next. A lane lets one ticket through at a time, in the order in which they were taken.
//!
//! A task holds two tickets: one of its context, which keeps the order of its messages while there is no
//! session yet, and one of the agent session, which keeps two contexts from prompting it at once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use longshore_model::{ContextId, Principal, SessionId, TaskId};
use tokio::sync::oneshot;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum LaneKey {
    Context(Principal, ContextId),
    Session(SessionId),
}

#[derive(Debug, Default)]
pub(crate) struct Lanes {
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    by_key: HashMap<LaneKey, Lane>,
    next_id: i64,
    /// Counts down, for those that go before all others.
    front_id: i64,
}

/// The tickets of a lane in the order in which they were taken.
type Lane = VecDeque<Place>;

#[derive(Debug)]
struct Place {
    /// Those further back have greater ones.
    id: i64,
    task: TaskId,
    /// Gone once the ticket was let through.
    go: Option<oneshot::Sender<()>>,
}

/// A place in a lane. Dropping it leaves the lane, whether it was let through or not.
#[derive(Debug)]
pub(crate) struct Ticket {
    lanes: Arc<Lanes>,
    key: LaneKey,
    id: i64,
    go: Option<oneshot::Receiver<()>>,
}

impl Lanes {
    /// Takes the next place. Never waits, so that callers can take places in the order that they choose.
    pub(crate) fn enter(self: &Arc<Self>, key: LaneKey, task: TaskId) -> Ticket {
        let mut queues = self.lock();
        self.enter_locked(&mut queues, key, task)
    }

    /// Takes the place only if nobody else has one.
    pub(crate) fn enter_if_free(self: &Arc<Self>, key: LaneKey, task: TaskId) -> Option<Ticket> {
        let mut queues = self.lock();
        let is_free = queues.by_key.get(&key).is_none_or(VecDeque::is_empty);
        is_free.then(|| self.enter_locked(&mut queues, key, task))
    }

    /// Takes the first place, for somebody who is at work there already, and waits for nobody. Whoever was let through before
    /// stays so until they ask: see [`Ticket::is_still_first`]. Those who wait, wait for this one too.
    pub(crate) fn enter_front(self: &Arc<Self>, key: LaneKey, task: TaskId) -> Ticket {
        let mut queues = self.lock();
        queues.front_id -= 1;
        let id = queues.front_id;
        queues.by_key.entry(key.clone()).or_default().push_front(Place { id, task, go: None });
        Ticket { lanes: Arc::clone(self), key, id, go: None }
    }

    fn enter_locked(self: &Arc<Self>, queues: &mut Queues, key: LaneKey, task: TaskId) -> Ticket {
        let (sender, receiver) = oneshot::channel();
        let id = queues.next_id;
        queues.next_id += 1;
        // In most lanes there is one, for as long as its turn takes.
        let lane = queues.by_key.entry(key.clone()).or_insert_with(|| VecDeque::with_capacity(1));
        lane.push_back(Place { id, task, go: Some(sender) });
        let_front_through(lane);
        Ticket { lanes: Arc::clone(self), key, id, go: Some(receiver) }
    }

    /// Whose turn it is.
    pub(crate) fn holder(&self, key: &LaneKey) -> Option<TaskId> {
        let queues = self.lock();
        queues.by_key.get(key)?.front().map(|place| place.task.clone())
    }

    /// The sessions that somebody has, or waits for.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        let queues = self.lock();
        let sessions = queues.by_key.keys().filter_map(|key| match key {
            LaneKey::Session(session) => Some(session.clone()),
            LaneKey::Context(..) => None,
        });
        sessions.collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn let_front_through(lane: &mut Lane) {
    if let Some(go) = lane.front_mut().and_then(|front| front.go.take()) {
        // The ticket may have been dropped a moment ago; its drop then lets the next one through.
        let _ = go.send(());
    }
}

impl Ticket {
    /// Waits for this ticket's turn. Cancel safe.
    pub(crate) async fn ready(&mut self) {
        if let Some(go) = &mut self.go {
            // The sender lives in the queue until it has sent, so an error cannot come before that.
            let _ = go.await;
            self.go = None;
        }
    }

    /// Whether nobody went before it since it was let through. If somebody did, it has to wait again, in its old place.
    pub(crate) fn is_still_first(&mut self) -> bool {
        let mut queues = self.lanes.lock();
        let Some(lane) = queues.by_key.get_mut(&self.key) else { return true };
        match lane.binary_search_by_key(&self.id, |place| place.id) {
            Ok(0) | Err(_) => true,
            Ok(at) => {
                let (sender, receiver) = oneshot::channel();
                lane[at].go = Some(sender);
                self.go = Some(receiver);
                false
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queues = self.lanes.lock();
        let Some(lane) = queues.by_key.get_mut(&self.key) else { return };
        // Numbers grow towards the end.
        if let Ok(at) = lane.binary_search_by_key(&self.id, |place| place.id) {
            lane.remove(at);
        }
        if lane.is_empty() {
            queues.by_key.remove(&self.key);
        } else {
            let_front_through(lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn key(name: &str) -> LaneKey {
        LaneKey::Session(SessionId::parse(name).unwrap())
    }

    fn task() -> TaskId {
        TaskId::parse("t").unwrap()
    }

    #[test]
    fn the_one_whose_turn_it_is_is_known_and_a_taken_lane_is_not_free() {
        let lanes = Arc::new(Lanes::default());
        assert_eq!(lanes.holder(&key("s")), None);
        let first = lanes.enter_if_free(key("s"), task()).unwrap();
        let _second = lanes.enter(key("s"), TaskId::parse("u").unwrap());
        assert!(lanes.enter_if_free(key("s"), task()).is_none());
        assert_eq!(lanes.holder(&key("s")), Some(task()));
        drop(first);
        assert_eq!(lanes.holder(&key("s")), TaskId::parse("u").ok());
    }

    #[test]
    fn tickets_go_one_at_a_time_in_order() {
        let lanes = Arc::new(Lanes::default());
        let (mut first, mut second, mut third) =
            (lanes.enter(key("s"), task()), lanes.enter(key("s"), task()), lanes.enter(key("s"), task()));
        assert!(first.ready().now_or_never().is_some());
        assert!(second.ready().now_or_never().is_none());
        drop(first);
        assert!(third.ready().now_or_never().is_none());
        assert!(second.ready().now_or_never().is_some());
        drop(second);
        assert!(third.ready().now_or_never().is_some());
        drop(third);
        assert!(lanes.lock().by_key.is_empty());
    }

    #[test]
    fn one_who_leaves_while_waiting_frees_nobody_and_blocks_nobody() {
        let lanes = Arc::new(Lanes::default());
        let (mut first, second, mut third) =
            (lanes.enter(key("s"), task()), lanes.enter(key("s"), task()), lanes.enter(key("s"), task()));
        drop(second);
        assert!(first.ready().now_or_never().is_some());
        assert!(third.ready().now_or_never().is_none(), "the first still holds the lane");
        drop(first);
        assert!(third.ready().now_or_never().is_some());
    }

    #[test]
    fn one_at_the_front_waits_for_nobody_and_is_waited_for() {
        let lanes = Arc::new(Lanes::default());
        let (mut first, mut second) = (lanes.enter(key("s"), task()), lanes.enter(key("s"), task()));
        let mut front = lanes.enter_front(key("s"), TaskId::parse("front").unwrap());
        assert!(front.ready().now_or_never().is_some());
        assert_eq!(lanes.holder(&key("s")), TaskId::parse("front").ok());
        assert!(first.ready().now_or_never().is_some(), "it was let through before");
        drop(first);
        assert!(second.ready().now_or_never().is_none());
        let mut later = lanes.enter_front(key("s"), task());
        assert!(later.ready().now_or_never().is_some());
        drop(front);
        assert!(second.ready().now_or_never().is_none());
        drop(later);
        assert!(second.ready().now_or_never().is_some());
    }

    #[test]
    fn one_who_was_let_through_and_is_not_first_any_more_waits_again_in_its_place() {
        let lanes = Arc::new(Lanes::default());
        let (mut first, mut second) = (lanes.enter(key("s"), task()), lanes.enter(key("s"), task()));
        assert!(first.is_still_first());
        assert!(first.ready().now_or_never().is_some());
        let (front, more) = (lanes.enter_front(key("s"), task()), lanes.enter_front(key("s"), task()));
        assert!(!first.is_still_first());
        assert!(first.ready().now_or_never().is_none());
        drop(front);
        assert!(first.ready().now_or_never().is_none());
        drop(more);
        assert!(second.ready().now_or_never().is_none());
        assert!(first.ready().now_or_never().is_some() && first.is_still_first());
        drop(first);
        assert!(second.ready().now_or_never().is_some());
    }

    #[test]
    fn lanes_do_not_block_each_other() {
        let lanes = Arc::new(Lanes::default());
        let _held = lanes.enter(key("a"), task());
        assert!(lanes.enter(key("b"), task()).ready().now_or_never().is_some());
    }
}
