//! Queues of turns. A queue lets one ticket through at a time, in the order in which the tickets entered.
//!
//! A task holds two tickets: one in the queue of its context, which keeps the order of its messages while there is no
//! session yet, and one in the queue of its session, which keeps two contexts from prompting the session at once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use longshore_model::{ContextId, Principal, SessionId, TaskId};
use tokio::sync::oneshot;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum QueueKey {
    Context(Principal, ContextId),
    Session(SessionId),
}

#[derive(Debug, Default)]
pub(crate) struct TurnQueues {
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    by_key: HashMap<QueueKey, Queue>,
    next_id: i64,
    /// The next id for a ticket at the front of a queue. Counts down.
    front_id: i64,
}

/// The entries of a queue, in the order in which the tickets entered.
type Queue = VecDeque<QueueEntry>;

#[derive(Debug)]
struct QueueEntry {
    /// The id of the entry. Ids grow towards the end of the queue.
    id: i64,
    task: TaskId,
    /// The channel that lets the ticket through. `None`: the ticket was let through.
    go: Option<oneshot::Sender<()>>,
}

/// A position in a queue. Dropping it leaves the queue, whether the ticket was let through or not.
#[derive(Debug)]
pub(crate) struct QueueTicket {
    queues: Arc<TurnQueues>,
    key: QueueKey,
    id: i64,
    go: Option<oneshot::Receiver<()>>,
}

impl TurnQueues {
    /// Enters the queue at its end. Never waits, so that callers decide the order.
    pub(crate) fn enter(self: &Arc<Self>, key: QueueKey, task: TaskId) -> QueueTicket {
        let mut queues = self.lock();
        self.enter_locked(&mut queues, key, task)
    }

    /// Enters the queue only if it is empty.
    pub(crate) fn enter_if_free(self: &Arc<Self>, key: QueueKey, task: TaskId) -> Option<QueueTicket> {
        let mut queues = self.lock();
        let is_free = queues.by_key.get(&key).is_none_or(VecDeque::is_empty);
        is_free.then(|| self.enter_locked(&mut queues, key, task))
    }

    /// Enters the queue at its front, for a turn that is already running. Tickets that wait, wait for this one too. A ticket that
    /// was already let through notices the new one only at its next check: see [`QueueTicket::is_still_first`].
    pub(crate) fn enter_front(self: &Arc<Self>, key: QueueKey, task: TaskId) -> QueueTicket {
        let mut queues = self.lock();
        queues.front_id -= 1;
        let id = queues.front_id;
        queues.by_key.entry(key.clone()).or_default().push_front(QueueEntry { id, task, go: None });
        QueueTicket { queues: Arc::clone(self), key, id, go: None }
    }

    fn enter_locked(self: &Arc<Self>, queues: &mut Queues, key: QueueKey, task: TaskId) -> QueueTicket {
        let (sender, receiver) = oneshot::channel();
        let id = queues.next_id;
        queues.next_id += 1;
        // Most queues have one entry for the whole duration of its turn.
        let queue = queues.by_key.entry(key.clone()).or_insert_with(|| VecDeque::with_capacity(1));
        queue.push_back(QueueEntry { id, task, go: Some(sender) });
        let_front_through(queue);
        QueueTicket { queues: Arc::clone(self), key, id, go: Some(receiver) }
    }

    /// The task that is first in the queue.
    pub(crate) fn holder(&self, key: &QueueKey) -> Option<TaskId> {
        let queues = self.lock();
        queues.by_key.get(key)?.front().map(|entry| entry.task.clone())
    }

    /// The sessions whose queues are not empty.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        let queues = self.lock();
        let sessions = queues.by_key.keys().filter_map(|key| match key {
            QueueKey::Session(session) => Some(session.clone()),
            QueueKey::Context(..) => None,
        });
        sessions.collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn let_front_through(queue: &mut Queue) {
    if let Some(go) = queue.front_mut().and_then(|front| front.go.take()) {
        // The ticket may have just been dropped. Its drop then lets the next ticket through.
        let _ = go.send(());
    }
}

impl QueueTicket {
    /// Waits until the queue lets this ticket through. Cancel safe.
    pub(crate) async fn ready(&mut self) {
        if let Some(go) = &mut self.go {
            // An error is impossible, because the sender stays in the queue until it has sent.
            let _ = go.await;
            self.go = None;
        }
    }

    /// Whether no other ticket has entered at the front since this ticket was let through. Otherwise this ticket has to wait again,
    /// in its old position.
    pub(crate) fn is_still_first(&mut self) -> bool {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.by_key.get_mut(&self.key) else { return true };
        match queue.binary_search_by_key(&self.id, |entry| entry.id) {
            Ok(0) | Err(_) => true,
            Ok(at) => {
                let (sender, receiver) = oneshot::channel();
                queue[at].go = Some(sender);
                self.go = Some(receiver);
                false
            }
        }
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.by_key.get_mut(&self.key) else { return };
        // Ids grow towards the end of the queue.
        if let Ok(at) = queue.binary_search_by_key(&self.id, |entry| entry.id) {
            queue.remove(at);
        }
        if queue.is_empty() {
            queues.by_key.remove(&self.key);
        } else {
            let_front_through(queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn key(name: &str) -> QueueKey {
        QueueKey::Session(SessionId::parse(name).unwrap())
    }

    fn task() -> TaskId {
        TaskId::parse("t").unwrap()
    }

    #[test]
    fn the_first_task_is_known_and_a_queue_with_an_entry_is_not_free() {
        let queues = Arc::new(TurnQueues::default());
        assert_eq!(queues.holder(&key("s")), None);
        let first = queues.enter_if_free(key("s"), task()).unwrap();
        let _second = queues.enter(key("s"), TaskId::parse("u").unwrap());
        assert!(queues.enter_if_free(key("s"), task()).is_none());
        assert_eq!(queues.holder(&key("s")), Some(task()));
        drop(first);
        assert_eq!(queues.holder(&key("s")), TaskId::parse("u").ok());
    }

    #[test]
    fn tickets_go_one_at_a_time_in_order() {
        let queues = Arc::new(TurnQueues::default());
        let (mut first, mut second, mut third) =
            (queues.enter(key("s"), task()), queues.enter(key("s"), task()), queues.enter(key("s"), task()));
        assert!(first.ready().now_or_never().is_some());
        assert!(second.ready().now_or_never().is_none());
        drop(first);
        assert!(third.ready().now_or_never().is_none());
        assert!(second.ready().now_or_never().is_some());
        drop(second);
        assert!(third.ready().now_or_never().is_some());
        drop(third);
        assert!(queues.lock().by_key.is_empty());
    }

    #[test]
    fn a_waiting_ticket_that_is_dropped_frees_and_blocks_nothing() {
        let queues = Arc::new(TurnQueues::default());
        let (mut first, second, mut third) =
            (queues.enter(key("s"), task()), queues.enter(key("s"), task()), queues.enter(key("s"), task()));
        drop(second);
        assert!(first.ready().now_or_never().is_some());
        assert!(third.ready().now_or_never().is_none(), "the first ticket still holds the queue");
        drop(first);
        assert!(third.ready().now_or_never().is_some());
    }

    #[test]
    fn a_ticket_at_the_front_waits_for_nothing_and_others_wait_for_it() {
        let queues = Arc::new(TurnQueues::default());
        let (mut first, mut second) = (queues.enter(key("s"), task()), queues.enter(key("s"), task()));
        let mut front = queues.enter_front(key("s"), TaskId::parse("front").unwrap());
        assert!(front.ready().now_or_never().is_some());
        assert_eq!(queues.holder(&key("s")), TaskId::parse("front").ok());
        assert!(first.ready().now_or_never().is_some(), "this ticket was let through before");
        drop(first);
        assert!(second.ready().now_or_never().is_none());
        let mut later = queues.enter_front(key("s"), task());
        assert!(later.ready().now_or_never().is_some());
        drop(front);
        assert!(second.ready().now_or_never().is_none());
        drop(later);
        assert!(second.ready().now_or_never().is_some());
    }

    #[test]
    fn a_ticket_that_is_no_longer_first_waits_again_in_its_position() {
        let queues = Arc::new(TurnQueues::default());
        let (mut first, mut second) = (queues.enter(key("s"), task()), queues.enter(key("s"), task()));
        assert!(first.is_still_first());
        assert!(first.ready().now_or_never().is_some());
        let (front, more) = (queues.enter_front(key("s"), task()), queues.enter_front(key("s"), task()));
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
    fn queues_do_not_block_each_other() {
        let queues = Arc::new(TurnQueues::default());
        let _held = queues.enter(key("a"), task());
        assert!(queues.enter(key("b"), task()).ready().now_or_never().is_some());
    }
}
