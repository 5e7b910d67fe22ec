//! Queues the events of watched sessions while no turn of the gateway holds these sessions. The module `watch` finds the external
//! turns in them.
//!
//! A directory has one queue with two limits: a number of events and a number of bytes. At either limit the reader does not wait.
//! It puts a mark into the queue and drops all events until the mark is taken out. The receiver of the mark then queries OpenCode
//! about all sessions of the directory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use longshore_engine::queue;
use longshore_meter::label::Fate;

use super::Reader;
use crate::api::EventKind;
use crate::skim::Event;

/// Maximum number of queued events.
const MAX_QUEUED: usize = 1024;

/// Maximum number of queued bytes.
const MAX_QUEUED_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of watched sessions in one directory. Beyond it, the sessions that were named longest ago are forgotten.
const MAX_WATCHED: usize = 10_000;

/// Maximum number of sub-agents' sessions below the watched sessions. At the limit all are forgotten, and OpenCode is queried about
/// all busy sessions.
const MAX_DESCENDANTS: usize = 4096;

/// An entry of the queue: an event in a session that no turn of the gateway holds, or a reason to query OpenCode.
#[derive(Debug)]
pub(crate) enum WatchEvent {
    Event {
        /// The watched session.
        session: String,
        /// Whether the event belongs to a sub-agent below the watched session.
        is_descendant: bool,
        event: Event,
    },
    /// A turn of the gateway in this session is over. The receiver must forget everything that it knew about the session before
    /// that turn.
    TurnEnded {
        session: String,
        /// Whether the session has been idle since the turn. If not, another prompt may have followed the turn.
        is_idle: bool,
    },
    /// Events were missed.
    Gap,
    /// A session was added that may already be busy.
    Check,
}

#[derive(Debug)]
pub(super) struct WatchedSessions {
    /// The watched sessions. Each call that names a session gives it a higher number, so the lowest number was named longest ago.
    sessions: HashMap<String, u64>,
    named: u64,
    /// The sessions of sub-agents, each with its watched session.
    descendants: HashMap<String, String>,
    queue: queue::Sender<WatchEvent>,
    shared: Arc<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Whether all events are dropped until [`WatchEvent::Gap`] is taken from the queue.
    is_lagging: AtomicBool,
    /// Whether the queue already holds a `Gap`. A second one would add nothing.
    has_gap: AtomicBool,
    has_check: AtomicBool,
    queued_bytes: AtomicUsize,
    /// How many entries are queued or being handled.
    pending: AtomicUsize,
}

/// The receiver of the events in the watched sessions of a directory.
#[derive(Debug)]
pub(crate) struct WatchQueue {
    reader: Arc<Reader>,
    queue: queue::Receiver<WatchEvent>,
    shared: Arc<QueueState>,
    /// Whether an entry was taken. It counts as pending until the next one is requested.
    has_taken: bool,
}

impl WatchedSessions {
    pub(super) fn new(reader: Arc<Reader>) -> (Self, WatchQueue) {
        let (sender, queue) = queue::channel(MAX_QUEUED + 1);
        let shared = Arc::new(QueueState::default());
        let watched = Self {
            sessions: HashMap::new(),
            named: 0,
            descendants: HashMap::new(),
            queue: sender,
            shared: Arc::clone(&shared),
        };
        (watched, WatchQueue { reader, queue, shared, has_taken: false })
    }

    /// The sessions in the order in which they were named.
    pub(super) fn into_sessions(self) -> Vec<String> {
        let mut sessions: Vec<_> = self.sessions.into_iter().collect();
        sessions.sort_unstable_by_key(|(_, named)| *named);
        sessions.into_iter().map(|(session, _)| session).collect()
    }

    /// Whether the queue is empty and the last entry was handled.
    pub(super) fn is_drained(&self) -> bool {
        self.shared.pending.load(Ordering::Acquire) == 0
    }

    /// Adds a session, or records that it was named again. Returns whether it was not watched before.
    pub(super) fn add(&mut self, session: &str) -> bool {
        self.named += 1;
        let is_new = self.sessions.insert(session.to_owned(), self.named).is_none();
        if self.sessions.len() > MAX_WATCHED {
            self.forget_oldest();
        }
        is_new
    }

    /// Forgets an eighth of the sessions at once, so that not every new session needs a scan.
    fn forget_oldest(&mut self) {
        let mut named: Vec<_> = self.sessions.values().copied().collect();
        let (_, first_kept, _) = named.select_nth_unstable(MAX_WATCHED / 8);
        self.sessions.retain(|_, named| *named >= *first_kept);
        self.descendants.retain(|_, root| self.sessions.contains_key(root));
    }

    pub(super) fn contains(&self, session: &str) -> bool {
        self.sessions.contains_key(session)
    }

    /// Records that a session was created for another one. If that one is watched, the new session becomes its descendant.
    pub(super) fn add_child(&mut self, child: &str, parent: &str) {
        let root = self.descendants.get(parent).map_or(parent, String::as_str);
        if !self.sessions.contains_key(root) || self.descendants.contains_key(child) {
            return;
        }
        let root = root.to_owned();
        if self.descendants.len() >= MAX_DESCENDANTS {
            self.descendants.clear();
            self.request_check();
        }
        self.descendants.insert(child.to_owned(), root);
    }

    /// The watched session to which this session belongs, and whether this session is a descendant of it.
    pub(super) fn find(&self, session: &str) -> Option<(&str, bool)> {
        if let Some((session, _)) = self.sessions.get_key_value(session) {
            return Some((session, false));
        }
        self.descendants.get(session).map(|root| (root.as_str(), true))
    }

    /// Queues an event if it may concern a turn or an ask.
    pub(super) fn queue_event(&self, session: String, is_descendant: bool, event: Event) -> Fate {
        let wanted = match event.kind {
            EventKind::PermissionAsked | EventKind::QuestionAsked => true,
            EventKind::Status
            | EventKind::Idle
            | EventKind::Error
            | EventKind::MessageUpdated
            | EventKind::PartUpdated => !is_descendant,
            EventKind::PartDelta
            | EventKind::PartRemoved
            | EventKind::SessionUpdated
            | EventKind::Todos
            | EventKind::AskReplied
            | EventKind::AskRejected => false,
        };
        if !wanted {
            return Fate::Foreign;
        }
        if self.shared.is_lagging.load(Ordering::Acquire) {
            return Fate::Dropped;
        }
        let size = event.len();
        let queued = self.shared.queued_bytes.fetch_add(size, Ordering::Relaxed) + size;
        let is_taken =
            queued <= MAX_QUEUED_BYTES && self.push(WatchEvent::Event { session, is_descendant, event });
        if !is_taken {
            self.shared.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            self.lag();
            return Fate::Dropped;
        }
        Fate::Routed
    }

    /// Queues the fact that a turn of the gateway in this session is over.
    pub(super) fn turn_ended(&self, session: &str, is_idle: bool) {
        if self.contains(session) {
            self.push_or_lag(WatchEvent::TurnEnded { session: session.to_owned(), is_idle });
        }
    }

    /// Queues the fact that events were missed.
    pub(super) fn gap(&self) {
        if !self.shared.has_gap.swap(true, Ordering::AcqRel) {
            self.push_or_lag(WatchEvent::Gap);
        }
    }

    /// Requests a check of all sessions, because a newly watched session may already be busy.
    pub(super) fn request_check(&self) {
        if !self.shared.has_check.swap(true, Ordering::AcqRel) {
            self.push_or_lag(WatchEvent::Check);
        }
    }

    fn push_or_lag(&self, entry: WatchEvent) {
        if !self.shared.is_lagging.load(Ordering::Acquire) && !self.push(entry) {
            self.lag();
        }
    }

    /// Queues an entry. Returns false if there is no free slot. The last slot is reserved for the entry that reports lost entries.
    fn push(&self, entry: WatchEvent) -> bool {
        self.queue.capacity() > 1 && self.send(entry)
    }

    fn send(&self, entry: WatchEvent) -> bool {
        // Incremented first, because the receiver decrements it.
        self.shared.pending.fetch_add(1, Ordering::Relaxed);
        let is_sent = self.queue.try_send(entry).is_ok();
        if !is_sent {
            self.shared.pending.fetch_sub(1, Ordering::Relaxed);
        }
        is_sent
    }

    fn lag(&self) {
        if !self.shared.is_lagging.swap(true, Ordering::AcqRel) {
            // This fails only if the receiver was dropped.
            self.send(WatchEvent::Gap);
        }
    }
}

impl WatchQueue {
    /// Waits for the next entry. The previous entry then counts as handled. `None`: the directory is no longer watched. Cancel
    /// safe.
    pub(crate) async fn next(&mut self) -> Option<WatchEvent> {
        if std::mem::take(&mut self.has_taken) {
            self.shared.pending.fetch_sub(1, Ordering::Release);
        }
        let entry = self.queue.recv().await?;
        self.has_taken = true;
        match &entry {
            WatchEvent::Event { event, .. } => {
                self.shared.queued_bytes.fetch_sub(event.len(), Ordering::Relaxed);
            }
            // The check that follows this entry covers all events up to now, so later events are queued again.
            WatchEvent::Gap => {
                for mark in [&self.shared.is_lagging, &self.shared.has_gap, &self.shared.has_check] {
                    mark.store(false, Ordering::Release);
                }
            }
            WatchEvent::Check => self.shared.has_check.store(false, Ordering::Release),
            WatchEvent::TurnEnded { .. } => {}
        }
        Some(entry)
    }

    /// Whether the session is watched and no turn of the gateway holds it.
    pub(crate) fn is_watched_without_turn(&self, session: &str) -> bool {
        let routes = self.reader.routes();
        let is_watched = routes.watched.as_ref().is_some_and(|watched| watched.contains(session));
        is_watched && !routes.by_session.contains_key(session)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use longshore_meter::Metrics;
    use tokio::sync::watch;

    use super::super::{Link, Reader, Routes};
    use super::*;

    fn reader() -> Arc<Reader> {
        let metrics: Arc<Metrics> = Arc::default();
        Arc::new(Reader {
            directory: "/w".to_owned(),
            routes: std::sync::Mutex::new(Routes::new(Arc::clone(&metrics))),
            link: watch::Sender::<Link>::default(),
            lease_dropped: tokio::sync::Notify::new(),
            metrics,
        })
    }

    fn watched(reader: &Arc<Reader>) -> WatchQueue {
        let (watched, queue) = WatchedSessions::new(Arc::clone(reader));
        reader.routes().watch(watched);
        reader.routes().watch_session("ses_1", true);
        queue
    }

    fn queue_event_of(reader: &Reader, session: &str, kind: EventKind, body: &str) -> Fate {
        let routes = reader.routes();
        let event = Event::parsed(kind, body.to_owned().into());
        match routes.watched_for(session) {
            Some((session, is_descendant)) => routes.queue_watched(session, is_descendant, event),
            None => Fate::Foreign,
        }
    }

    #[tokio::test]
    async fn a_full_queue_drops_events_and_marks_the_gap_after_the_queued_ones() {
        for (body, most) in [("{}".to_owned(), MAX_QUEUED), ("x".repeat(MAX_QUEUED_BYTES / 4), 4)] {
            let reader = reader();
            let mut queue = watched(&reader);
            for _ in 0..most {
                assert_eq!(queue_event_of(&reader, "ses_1", EventKind::Status, &body), Fate::Routed);
            }
            for _ in 0..3 {
                assert_eq!(queue_event_of(&reader, "ses_1", EventKind::Status, &body), Fate::Dropped);
                reader.routes().watched.as_ref().unwrap().turn_ended("ses_1", true);
                reader.routes().reconnected();
            }
            for _ in 0..most {
                assert!(matches!(queue.next().await, Some(WatchEvent::Event { .. })));
                assert_eq!(queue_event_of(&reader, "ses_1", EventKind::Status, &body), Fate::Dropped);
            }
            assert!(matches!(queue.next().await, Some(WatchEvent::Gap)));
            assert_eq!(queue_event_of(&reader, "ses_1", EventKind::Status, &body), Fate::Routed);
            assert!(matches!(queue.next().await, Some(WatchEvent::Event { .. })));
        }
    }

    #[tokio::test]
    async fn unwatched_sessions_are_ignored_and_of_sub_agents_only_asks_are_queued() {
        let reader = reader();
        let mut queue = watched(&reader);
        reader.routes().add_child("ses_2", "ses_1");
        reader.routes().add_child("ses_3", "ses_2");
        reader.routes().add_child("ses_5", "ses_4");
        for session in ["ses_4", "ses_5"] {
            assert_eq!(queue_event_of(&reader, session, EventKind::PermissionAsked, "{}"), Fate::Foreign);
        }
        assert_eq!(queue_event_of(&reader, "ses_3", EventKind::Status, "{}"), Fate::Foreign);
        assert_eq!(queue_event_of(&reader, "ses_1", EventKind::PartDelta, "{}"), Fate::Foreign);
        assert_eq!(queue_event_of(&reader, "ses_3", EventKind::QuestionAsked, "{}"), Fate::Routed);
        match queue.next().await.unwrap() {
            WatchEvent::Event { session, is_descendant: true, .. } => assert_eq!(session, "ses_1"),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_session_is_checked_after_a_turn_unless_the_turn_ended_idle() {
        use EventKind::{Idle, MessageUpdated, PartUpdated, SessionUpdated, Status};
        let ends: [(&[EventKind], bool); 5] = [
            (&[MessageUpdated], false),
            (&[Idle], true),
            // OpenCode still updates the session and messages after a turn.
            (&[Idle, SessionUpdated, MessageUpdated], true),
            // Another client prompts.
            (&[Idle, MessageUpdated, PartUpdated], false),
            (&[Idle, Status], false),
        ];
        for (kinds, is_idle) in ends {
            let reader = reader();
            let mut queue = watched(&reader);
            let lease = super::super::Lease::open(Arc::clone(&reader), "ses_1").unwrap();
            assert!(!queue.is_watched_without_turn("ses_1"));
            for kind in kinds {
                reader.routes().find("ses_1").unwrap().send(Event::parsed(*kind, "{}".into()));
            }
            drop(lease);
            assert!(queue.is_watched_without_turn("ses_1") && !queue.is_watched_without_turn("ses_2"));
            // A reader stays in use while its directory is watched.
            assert!(reader.routes().unused_since().is_none());
            let left = queue.next().await.unwrap();
            let WatchEvent::TurnEnded { session, is_idle: was_at_rest } = left else { panic!("{left:?}") };
            assert_eq!((session.as_str(), was_at_rest), ("ses_1", is_idle), "{kinds:?}");
        }
    }

    #[tokio::test]
    async fn an_entry_is_pending_until_it_was_handled() {
        let reader = reader();
        let mut queue = watched(&reader);
        assert!(reader.routes().is_idle());
        for _ in 0..2 {
            assert_eq!(queue_event_of(&reader, "ses_1", EventKind::Status, "{}"), Fate::Routed);
        }
        for _ in 0..2 {
            assert!(!reader.routes().is_idle());
            assert!(matches!(queue.next().await, Some(WatchEvent::Event { .. })));
            assert!(!reader.routes().is_idle());
        }
        assert!(queue.next().now_or_never().is_none());
        assert!(reader.routes().is_idle());
        // Dropped events are not pending.
        for _ in 0..=MAX_QUEUED {
            queue_event_of(&reader, "ses_1", EventKind::Status, "{}");
        }
        for _ in 0..=MAX_QUEUED {
            assert!(!reader.routes().is_idle());
            queue.next().await.unwrap();
        }
        assert!(queue.next().now_or_never().is_none());
        assert!(reader.routes().is_idle());
    }

    #[test]
    fn above_the_bound_the_oldest_sessions_are_forgotten() {
        let (mut watched, _noticing) = WatchedSessions::new(reader());
        for number in 0..MAX_WATCHED {
            assert!(watched.add(&format!("ses_{number}")));
        }
        assert!(!watched.add("ses_0"), "named again");
        for child in [0, 1] {
            watched.add_child(&format!("child_{child}"), &format!("ses_{child}"));
        }
        assert!(watched.add("ses_new"));
        let forgotten = MAX_WATCHED / 8;
        for kept in [0, forgotten + 1, MAX_WATCHED - 1] {
            assert!(watched.contains(&format!("ses_{kept}")), "{kept}");
        }
        for gone in [1, forgotten] {
            assert!(!watched.contains(&format!("ses_{gone}")), "{gone}");
        }
        assert_eq!(watched.find("child_0"), Some(("ses_0", true)));
        assert_eq!(watched.find("child_1"), None);
        assert_eq!(watched.sessions.len(), MAX_WATCHED + 1 - forgotten);
    }
}
