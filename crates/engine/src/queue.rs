//! A bounded queue between two tasks. Its memory grows only with the number of waiting items.
//!
//! A tokio channel allocates room for 32 items when it is created. That would be most of the memory of an idle turn, and
//! thousands of turns can run, most of them with empty queues. Otherwise this queue works like a tokio channel with one
//! receiver, with the same errors.

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::mpsc::error::{SendError, TryRecvError, TrySendError};
use tokio::sync::{Notify, Semaphore, TryAcquireError};

/// A queue of at most `most` waiting items.
pub fn channel<T>(most: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State { items: VecDeque::new(), senders: 1, is_closed: false }),
        room: Semaphore::new(most),
        most,
        item_sent: Notify::new(),
        receiver_gone: Notify::new(),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

/// Sends items. When all clones are dropped, the receiver gets the waiting items and then the end of the queue.
pub struct Sender<T>(Arc<Shared<T>>);

/// A reference to the sending side that does not keep the queue open.
pub struct WeakSender<T>(Weak<Shared<T>>);

/// Receives items. Dropping it drops the waiting items, and tells senders that the queue is closed.
pub struct Receiver<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    /// Waits for room and sends the item. If the future is dropped before there is room, nothing is sent.
    pub async fn send(&self, item: T) -> Result<(), SendError<T>> {
        match self.0.room.acquire().await {
            Ok(permit) => {
                permit.forget();
                self.0.push(item).map_err(SendError)
            }
            Err(_) => Err(SendError(item)),
        }
    }

    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        match self.0.room.try_acquire() {
            Ok(permit) => {
                permit.forget();
                self.0.push(item).map_err(TrySendError::Closed)
            }
            Err(TryAcquireError::NoPermits) => Err(TrySendError::Full(item)),
            Err(TryAcquireError::Closed) => Err(TrySendError::Closed(item)),
        }
    }

    /// How many more items fit into the queue now.
    pub fn capacity(&self) -> usize {
        self.0.room.available_permits()
    }

    /// Waits until the queue is empty, and returns whether the receiver still exists.
    pub async fn emptied(&self) -> bool {
        let all = u32::try_from(self.0.most).unwrap_or(u32::MAX);
        self.0.room.acquire_many(all).await.is_ok()
    }

    /// Whether the receiver was dropped or has closed the queue.
    pub fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Waits until the receiver is dropped or closes the queue.
    pub async fn closed(&self) {
        let mut receiver_gone = pin!(self.0.receiver_gone.notified());
        // Enabled before the check, so that a close between the two is not missed.
        receiver_gone.as_mut().enable();
        if !self.is_closed() {
            receiver_gone.await;
        }
    }

    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender(Arc::downgrade(&self.0))
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.senders -= 1;
        let is_last = state.senders == 0;
        drop(state);
        if is_last {
            self.0.item_sent.notify_one();
        }
    }
}

impl<T> WeakSender<T> {
    /// A sender, if another sender still exists.
    pub fn upgrade(&self) -> Option<Sender<T>> {
        let shared = self.0.upgrade()?;
        let mut state = shared.lock();
        if state.senders == 0 {
            return None;
        }
        state.senders += 1;
        drop(state);
        Some(Sender(shared))
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.0))
    }
}

impl<T> Receiver<T> {
    /// Waits for the next item. `None`: the queue is empty and no sender is left. If the future is dropped, no item is lost.
    pub async fn recv(&mut self) -> Option<T> {
        // Gives up control now and then, so that a task that always finds an item lets other tasks run.
        tokio::task::coop::consume_budget().await;
        loop {
            match self.try_recv() {
                Ok(item) => return Some(item),
                Err(TryRecvError::Disconnected) => return None,
                // `Notify` stores a notification that comes after the check, because no other task waits on it.
                Err(TryRecvError::Empty) => self.0.item_sent.notified().await,
            }
        }
    }

    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let mut state = self.0.lock();
        let Some(item) = state.items.pop_front() else {
            let is_over = state.is_closed || state.senders == 0;
            return Err(if is_over { TryRecvError::Disconnected } else { TryRecvError::Empty });
        };
        if state.items.is_empty() {
            // Keeping the buffer costs an idle turn more memory than a new allocation costs a busy turn time.
            state.items = VecDeque::new();
        }
        drop(state);
        self.0.room.add_permits(1);
        Ok(item)
    }

    /// Closes the queue for new items. Items that already wait can still be received.
    pub fn close(&mut self) {
        self.0.lock().is_closed = true;
        self.0.room.close();
        self.0.receiver_gone.notify_waiters();
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        self.0.lock().items.len()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.close();
        let left = std::mem::take(&mut self.0.lock().items);
        // Dropped without holding the lock, because an item may own a sender of this queue.
        drop(left);
    }
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// One permit for each item that may still be sent.
    room: Semaphore,
    most: usize,
    /// Signals that an item was sent or that the last sender was dropped.
    item_sent: Notify,
    /// Signals that the receiver has closed the queue.
    receiver_gone: Notify,
}

struct State<T> {
    items: VecDeque<T>,
    senders: usize,
    is_closed: bool,
}

impl<T> Shared<T> {
    /// Adds an item. Returns the item as an error if the receiver was dropped.
    fn push(&self, item: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(item);
        }
        state.items.push_back(item);
        drop(state);
        self.item_sent.notify_one();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for WeakSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakSender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    struct Held(#[expect(dead_code, reason = "held only to be dropped")] Sender<Self>);

    #[tokio::test]
    async fn items_come_in_order_and_then_the_end() {
        let (sender, mut receiver) = channel(2);
        let sending = tokio::task::LocalSet::new();
        sending.spawn_local(async move {
            for number in 0..1000 {
                sender.send(number).await.expect("the receiver exists");
            }
        });
        let taken = sending.run_until(async {
            let mut taken = Vec::new();
            while let Some(number) = receiver.recv().await {
                taken.push(number);
            }
            taken
        });
        assert_eq!(timeout(PATIENCE, taken).await.unwrap(), (0..1000).collect::<Vec<_>>());
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_item_is_lost_between_a_check_and_a_wait_on_two_threads() {
        let (sender, mut receiver) = channel(3);
        let senders: Vec<_> = (0..4)
            .map(|_| {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    let mut number = 0;
                    while number < 5000 {
                        match sender.try_send(number) {
                            Ok(()) => number += 1,
                            Err(TrySendError::Full(_)) => std::thread::yield_now(),
                            Err(TrySendError::Closed(_)) => return,
                        }
                    }
                })
            })
            .collect();
        drop(sender);
        let sum = async {
            let mut sum = 0_u64;
            while let Some(number) = receiver.recv().await {
                sum += number;
            }
            sum
        };
        assert_eq!(timeout(PATIENCE, sum).await.unwrap(), 4 * (0..5000).sum::<u64>());
        for sender in senders {
            sender.join().unwrap();
        }
    }

    #[tokio::test]
    async fn a_sender_waits_at_the_bound_and_a_dropped_send_sends_nothing() {
        let (sender, mut receiver) = channel(1);
        sender.try_send(1).unwrap();
        assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
        assert!(timeout(Duration::ZERO, sender.send(3)).await.is_err());
        let (sent, taken) = tokio::join!(sender.send(4), receiver.recv());
        assert_eq!((sent, taken), (Ok(()), Some(1)));
        assert!(timeout(Duration::ZERO, sender.emptied()).await.is_err());
        let (is_taken, taken) = tokio::join!(sender.emptied(), receiver.recv());
        assert_eq!((is_taken, taken, receiver.len(), sender.capacity()), (true, Some(4), 0, 1));
        drop(receiver);
        assert!(!sender.emptied().await);
    }

    #[tokio::test]
    async fn waiting_senders_learn_that_the_receiver_is_gone() {
        let (sender, receiver) = channel(1);
        let weak = sender.downgrade();
        // The waiting item owns a sender of the queue, which is dropped with the item.
        assert!(sender.try_send(Held(sender.clone())).is_ok());
        let (second, waiting) = (sender.clone(), sender.clone());
        let ((), refused, ()) = tokio::join!(
            waiting.closed(),
            async { second.send(Held(second.clone())).await.is_err() },
            async { drop(receiver) }
        );
        assert!(refused && sender.is_closed() && weak.upgrade().is_some());
        // This call begins to wait after the queue was closed.
        timeout(PATIENCE, sender.closed()).await.unwrap();
        drop((sender, second, waiting));
        assert!(weak.upgrade().is_none());
    }

    #[tokio::test]
    async fn a_closed_queue_returns_its_items_and_frees_its_buffer() {
        let (sender, mut receiver) = channel(1000);
        for number in 0..1000 {
            sender.try_send(number).unwrap();
        }
        receiver.close();
        assert_eq!(sender.try_send(0), Err(TrySendError::Closed(0)));
        for number in 0..1000 {
            assert_eq!(receiver.recv().await, Some(number));
        }
        assert_eq!(receiver.recv().await, None);
        assert_eq!(receiver.0.lock().items.capacity(), 0);
    }

    #[tokio::test]
    async fn a_receiver_that_always_finds_an_item_lets_other_tasks_run() {
        let (sender, mut receiver) = channel(100_000);
        for number in 0..100_000 {
            sender.try_send(number).unwrap();
        }
        let taking = async {
            for _ in 0..100_000 {
                receiver.recv().await;
            }
        };
        let mut others = 0;
        tokio::select! {
            biased;
            () = taking => {}
            () = async { loop { others += 1; tokio::task::yield_now().await } } => {}
        }
        assert!(others > 100, "{others}");
    }
}
