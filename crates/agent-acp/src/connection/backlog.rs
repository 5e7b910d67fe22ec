//! The unread events of turns, and the limit of their memory.
//!
//! All sessions share one pipe, so a turn whose events are not read must not make the others wait. Each turn may use as much of the
//! limit as is still free after that. So one slow turn gets half of the limit, and there is always room for a turn that is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use longshore_engine::queue;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::TurnEvent;

/// The cost of an event in addition to the size of its line.
const EVENT_BYTES: usize = 512;

/// Extra room in the queue of a turn for the end of the turn and the report of a loss, which are always accepted.
const LAST_EVENTS: usize = 8;

/// Counts the bytes of the unread events of all turns.
#[derive(Debug)]
pub(super) struct Backlog {
    most: usize,
    used: AtomicUsize,
    /// Signals that an event was read.
    read: Notify,
}

/// The sending side of a turn's queue. Its senders are the reader of the connection, and the commands that the gateway runs for the
/// agent, because their output is also an event.
#[derive(Clone, Debug)]
pub(super) struct TurnEvents {
    queue: queue::Sender<Queued>,
    backlog: Arc<Backlog>,
    waiting: Arc<AtomicUsize>,
    /// Whether events were dropped since the last event that was sent.
    has_lost: Arc<AtomicBool>,
    /// For how many milliseconds the reader of the connection has waited for this turn, since the turn last had no unread events.
    delay: Arc<AtomicU64>,
}

/// An unread event. It counts towards the limit until it is dropped.
#[derive(Debug)]
pub struct Queued {
    pub event: TurnEvent,
    _share: Share,
}

/// The part of the limit that an event uses.
#[derive(Debug)]
struct Share {
    bytes: usize,
    backlog: Arc<Backlog>,
    turn: Arc<AtomicUsize>,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.turn.fetch_sub(self.bytes, Ordering::Relaxed);
        self.backlog.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.backlog.read.notify_waiters();
    }
}

impl Backlog {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, used: AtomicUsize::new(0), read: Notify::new() })
    }

    /// Creates the queue of a new turn.
    pub(super) fn turn(self: &Arc<Self>) -> (TurnEvents, queue::Receiver<Queued>) {
        let (queue, receiver) = queue::channel(self.most / EVENT_BYTES + LAST_EVENTS);
        let events = TurnEvents {
            queue,
            backlog: Arc::clone(self),
            waiting: Arc::default(),
            has_lost: Arc::default(),
            delay: Arc::default(),
        };
        (events, receiver)
    }

    /// Waits until any event has been read after this call.
    pub(super) fn read(&self) -> Notified<'_> {
        self.read.notified()
    }
}

impl TurnEvents {
    /// Whether there is room for an event whose line has this length. An event larger than the limit waits until there is no other.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let (used, waiting) =
            (self.backlog.used.load(Ordering::Relaxed), self.waiting.load(Ordering::Relaxed));
        used == 0 || waiting + bytes + EVENT_BYTES <= self.backlog.most.saturating_sub(used)
    }

    /// Waits until there is room for an event, or until the reader of the turn is dropped. Only for callers on which nothing else
    /// waits.
    pub(super) async fn until_room(&self, bytes: usize) {
        loop {
            let read = self.backlog.read();
            if self.has_room(bytes) || self.is_closed() {
                return;
            }
            tokio::select! {
                () = read => {}
                () = self.closed() => {}
            }
        }
    }

    /// Queues an event for which there is room, or which is the last event. Does nothing if the reader of the turn was dropped.
    pub(super) fn send(&self, event: TurnEvent, bytes: usize) {
        if self.has_lost.swap(false, Ordering::Relaxed) {
            self.push(TurnEvent::LostUpdate(Loss::NotRead), 0);
        }
        self.push(event, bytes);
    }

    fn push(&self, event: TurnEvent, bytes: usize) {
        let bytes = bytes + EVENT_BYTES;
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        self.backlog.used.fetch_add(bytes, Ordering::Relaxed);
        let share = Share { bytes, backlog: Arc::clone(&self.backlog), turn: Arc::clone(&self.waiting) };
        // The send cannot find the queue full, because the queue has room for more events than the byte limit allows.
        let sent = self.queue.try_send(Queued { event, _share: share });
        debug_assert!(
            !matches!(sent, Err(tokio::sync::mpsc::error::TrySendError::Full(_))),
            "the queue is full"
        );
    }

    /// Records that an event is dropped, which the next event reports. Returns whether the previous event was not dropped.
    pub(super) fn lose(&self) -> bool {
        !self.has_lost.swap(true, Ordering::Relaxed)
    }

    pub(super) fn delay(&self) -> Duration {
        if self.is_read() {
            self.reset_delay();
        }
        Duration::from_millis(self.delay.load(Ordering::Relaxed))
    }

    pub(super) fn add_delay(&self, delay: Duration) {
        // Rounded up, so that even a short wait counts.
        let more = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        self.delay.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn reset_delay(&self) {
        self.delay.store(0, Ordering::Relaxed);
    }

    /// Whether the reader has read all events.
    pub(super) fn is_read(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Waits until the reader of the turn is dropped.
    pub(super) async fn closed(&self) {
        self.queue.closed().await;
    }

    /// Whether the reader of the turn was dropped.
    pub(super) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}

/// The reason why a piece of a turn is missing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Loss {
    /// A line was longer than allowed.
    TooLong,
    /// The events of the turn were not read for too long while other sessions were waiting.
    NotRead,
}
