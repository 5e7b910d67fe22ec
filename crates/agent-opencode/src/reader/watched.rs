//! Sessions that are watched while no turn of ours has them.
//!
//! One queue for all of a directory, with two bounds. At either bound the reader does not wait: it leaves a mark and drops
//! everything until that is taken. Whoever takes it asks OpenCode about all sessions there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use longshore_engine::queue;
use longshore_meter::label::Fate;

use super::Reader;
use crate::api::EventKind;
use crate::skim::Event;

/// Events that may wait for whoever watches.
const MAX_NOTICED: usize = 1024;

/// Bytes of them.
const MAX_NOTICED_BYTES: usize = 4 * 1024 * 1024;

/// Sessions that are watched in one directory. For one more those are forgotten that were named longest ago.
const MAX_WATCHED: usize = 10_000;

/// Sub-agents' sessions that are remembered below those. At the bound all are forgotten, and OpenCode is asked.
const MAX_BELOW: usize = 4096;

/// What happened where no turn of ours is.
#[derive(Debug)]
pub(crate) enum WatchEvent {
    Event {
        /// The session that is watched.
        session: String,
        /// It is of a sub-agent below it.
        is_below: bool,
        event: Event,
    },
    /// A turn of ours is over that had this session: what is known of that is from before.
    Left {
        session: String,
        /// Otherwise something may have come after it.
        is_at_rest: bool,
    },
    /// Something was not heard.
    Gap,
    /// One that is watched from now on may be at work.
    Look,
}

#[derive(Debug)]
pub(super) struct WatchedSessions {
    /// With a number that grows each time one is named.
    sessions: HashMap<String, u64>,
    named: u64,
    /// Sub-agents' sessions, each with the session that is watched.
    below: HashMap<String, String>,
    queue: queue::Sender<WatchEvent>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Everything is dropped until [`WatchEvent::Gap`] is taken.
    is_lagging: AtomicBool,
    /// One of these waits: another would say nothing new.
    has_gap: AtomicBool,
    has_check: AtomicBool,
    queued_bytes: AtomicUsize,
    /// How many wait, the one among them that is taken and not looked at yet.
    pending: AtomicUsize,
}

/// Takes what happens in the sessions of a directory.
#[derive(Debug)]
pub(crate) struct WatchQueue {
    reader: Arc<Reader>,
    queue: queue::Receiver<WatchEvent>,
    shared: Arc<Shared>,
    /// It counts among what is pending until the next is asked for.
    has_taken: bool,
}

impl WatchedSessions {
    pub(super) fn new(reader: Arc<Reader>) -> (Self, WatchQueue) {
        let (sender, queue) = queue::channel(MAX_NOTICED + 1);
        let shared = Arc::new(Shared::default());
        let watched = Self {
            sessions: HashMap::new(),
            named: 0,
            below: HashMap::new(),
            queue: sender,
            shared: Arc::clone(&shared),
        };
        (watched, WatchQueue { reader, queue, shared, has_taken: false })
    }

    /// Those first that were named first.
    pub(super) fn into_sessions(self) -> Vec<String> {
        let mut sessions: Vec<_> = self.sessions.into_iter().collect();
        sessions.sort_unstable_by_key(|(_, named)| *named);
        sessions.into_iter().map(|(session, _)| session).collect()
    }

    /// Whether nothing waits, and what was taken is looked at.
    pub(super) fn is_drained(&self) -> bool {
        self.shared.pending.load(Ordering::Acquire) == 0
    }

    /// Says whether it was not watched before.
    pub(super) fn add(&mut self, session: &str) -> bool {
        self.named += 1;
        let is_new = self.sessions.insert(session.to_owned(), self.named).is_none();
        if self.sessions.len() > MAX_WATCHED {
            self.forget_the_oldest();
        }
        is_new
    }

    /// Many at once, so that not each one that comes has to look through all of them.
    fn forget_the_oldest(&mut self) {
        let mut named: Vec<_> = self.sessions.values().copied().collect();
        let (_, first_kept, _) = named.select_nth_unstable(MAX_WATCHED / 8);
        self.sessions.retain(|_, named| *named >= *first_kept);
        self.below.retain(|_, root| self.sessions.contains_key(root));
    }

    pub(super) fn contains(&self, session: &str) -> bool {
        self.sessions.contains_key(session)
    }

    /// A session was made for another one.
    pub(super) fn add_child(&mut self, child: &str, parent: &str) {
        let root = self.below.get(parent).map_or(parent, String::as_str);
        if !self.sessions.contains_key(root) || self.below.contains_key(child) {
            return;
        }
        let root = root.to_owned();
        if self.below.len() >= MAX_BELOW {
            self.below.clear();
            self.look();
        }
        self.below.insert(child.to_owned(), root);
    }

    /// The session that is watched for this one, and whether it is above it.
    pub(super) fn find(&self, session: &str) -> Option<(&str, bool)> {
        if let Some((session, _)) = self.sessions.get_key_value(session) {
            return Some((session, false));
        }
        self.below.get(session).map(|root| (root.as_str(), true))
    }

    /// Takes what may tell of a turn, or of an ask.
    pub(super) fn notice(&self, session: String, is_below: bool, event: Event) -> Fate {
        let wanted = match event.kind {
            EventKind::PermissionAsked | EventKind::QuestionAsked => true,
            EventKind::Status
            | EventKind::Idle
            | EventKind::Error
            | EventKind::MessageUpdated
            | EventKind::PartUpdated => !is_below,
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
        let is_taken = queued <= MAX_NOTICED_BYTES && self.push(WatchEvent::Event { session, is_below, event });
        if !is_taken {
            self.shared.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            self.lag();
            return Fate::Dropped;
        }
        Fate::Routed
    }

    /// A turn of ours is over.
    pub(super) fn left(&self, session: &str, is_at_rest: bool) {
        if self.contains(session) {
            self.push_or_lag(WatchEvent::TurnEnded { session: session.to_owned(), is_at_rest });
        }
    }

    /// Something was not heard.
    pub(super) fn gap(&self) {
        if !self.shared.has_gap.swap(true, Ordering::AcqRel) {
            self.push_or_lag(WatchEvent::Gap);
        }
    }

    /// Somebody may be at work in a session that was not watched.
    pub(super) fn look(&self) {
        if !self.shared.has_check.swap(true, Ordering::AcqRel) {
            self.push_or_lag(WatchEvent::Check);
        }
    }

    fn push_or_lag(&self, noticed: WatchEvent) {
        if !self.shared.is_lagging.load(Ordering::Acquire) && !self.push(noticed) {
            self.lag();
        }
    }

    /// Says whether there was a place: the last one is for the mark of a lag.
    fn push(&self, noticed: WatchEvent) -> bool {
        self.queue.capacity() > 1 && self.send(noticed)
    }

    fn send(&self, noticed: WatchEvent) -> bool {
        // Counted first: whoever takes it counts it out.
        self.shared.pending.fetch_add(1, Ordering::Relaxed);
        let is_sent = self.queue.try_send(noticed).is_ok();
        if !is_sent {
            self.shared.pending.fetch_sub(1, Ordering::Relaxed);
        }
        is_sent
    }

    fn lag(&self) {
        if !self.shared.is_lagging.swap(true, Ordering::AcqRel) {
            // Without a place nobody listens any more.
            self.send(WatchEvent::Gap);
        }
    }
}

impl WatchQueue {
    /// The next thing to look at; the one before is looked at, and what came of that can be seen. `None`: the directory is not
    /// watched any more. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<WatchEvent> {
        if std::mem::take(&mut self.has_taken) {
            self.shared.pending.fetch_sub(1, Ordering::Release);
        }
        let noticed = self.queue.recv().await?;
        self.has_taken = true;
        match &noticed {
            WatchEvent::Event { event, .. } => {
                self.shared.queued_bytes.fetch_sub(event.len(), Ordering::Relaxed);
            }
            // What comes from now on comes after the look.
            WatchEvent::Gap => {
                for mark in [&self.shared.is_lagging, &self.shared.has_gap, &self.shared.has_check] {
                    mark.store(false, Ordering::Release);
                }
            }
            WatchEvent::Check => self.shared.has_check.store(false, Ordering::Release),
            WatchEvent::TurnEnded { .. } => {}
        }
        Some(noticed)
    }

    /// Whether it is watched, and no turn of ours has it.
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

    fn notice(reader: &Reader, session: &str, kind: EventKind, body: &str) -> Fate {
        let routes = reader.routes();
        let event = Event::parsed(kind, body.to_owned().into());
        match routes.watched_for(session) {
            Some((session, is_below)) => routes.notice(session, is_below, event),
            None => Fate::Foreign,
        }
    }

    #[tokio::test]
    async fn at_its_bound_the_queue_loses_events_and_says_so_after_what_was_queued() {
        for (body, most) in [("{}".to_owned(), MAX_NOTICED), ("x".repeat(MAX_NOTICED_BYTES / 4), 4)] {
            let reader = reader();
            let mut queue = watched(&reader);
            for _ in 0..most {
                assert_eq!(notice(&reader, "ses_1", EventKind::Status, &body), Fate::Routed);
            }
            for _ in 0..3 {
                assert_eq!(notice(&reader, "ses_1", EventKind::Status, &body), Fate::Dropped);
                reader.routes().watched.as_ref().unwrap().left("ses_1", true);
                reader.routes().reconnected();
            }
            for _ in 0..most {
                assert!(matches!(queue.next().await, Some(WatchEvent::Event { .. })));
                assert_eq!(notice(&reader, "ses_1", EventKind::Status, &body), Fate::Dropped);
            }
            assert!(matches!(queue.next().await, Some(WatchEvent::Gap)));
            assert_eq!(notice(&reader, "ses_1", EventKind::Status, &body), Fate::Routed);
            assert!(matches!(queue.next().await, Some(WatchEvent::Event { .. })));
        }
    }

    #[tokio::test]
    async fn what_is_not_watched_is_foreign_and_of_sub_agents_only_asks_are_noticed() {
        let reader = reader();
        let mut queue = watched(&reader);
        reader.routes().add_child("ses_2", "ses_1");
        reader.routes().add_child("ses_3", "ses_2");
        reader.routes().add_child("ses_5", "ses_4");
        for session in ["ses_4", "ses_5"] {
            assert_eq!(notice(&reader, session, EventKind::PermissionAsked, "{}"), Fate::Foreign);
        }
        assert_eq!(notice(&reader, "ses_3", EventKind::Status, "{}"), Fate::Foreign);
        assert_eq!(notice(&reader, "ses_1", EventKind::PartDelta, "{}"), Fate::Foreign);
        assert_eq!(notice(&reader, "ses_3", EventKind::QuestionAsked, "{}"), Fate::Routed);
        match queue.next().await.unwrap() {
            WatchEvent::Event { session, is_below: true, .. } => assert_eq!(session, "ses_1"),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_turn_of_ours_is_not_watched_and_is_looked_behind_unless_it_ended_at_rest() {
        use EventKind::{Idle, MessageUpdated, PartUpdated, SessionUpdated, Status};
        let ends: [(&[EventKind], bool); 5] = [
            (&[MessageUpdated], false),
            (&[Idle], true),
            // OpenCode writes its changes down behind a turn.
            (&[Idle, SessionUpdated, MessageUpdated], true),
            // Somebody else prompts.
            (&[Idle, MessageUpdated, PartUpdated], false),
            (&[Idle, Status], false),
        ];
        for (kinds, is_at_rest) in ends {
            let reader = reader();
            let mut queue = watched(&reader);
            let lease = super::super::Lease::open(Arc::clone(&reader), "ses_1").unwrap();
            assert!(!queue.is_watched_without_turn("ses_1"));
            for kind in kinds {
                reader.routes().find("ses_1").unwrap().send(Event::parsed(*kind, "{}".into()));
            }
            drop(lease);
            assert!(queue.is_watched_without_turn("ses_1") && !queue.is_watched_without_turn("ses_2"));
            // A reader is kept for as long as somebody watches.
            assert!(reader.routes().unused_since().is_none());
            let left = queue.next().await.unwrap();
            let WatchEvent::TurnEnded { session, is_at_rest: was_at_rest } = left else { panic!("{left:?}") };
            assert_eq!((session.as_str(), was_at_rest), ("ses_1", is_at_rest), "{kinds:?}");
        }
    }

    #[tokio::test]
    async fn what_is_taken_waits_until_it_was_looked_at() {
        let reader = reader();
        let mut queue = watched(&reader);
        assert!(reader.routes().is_at_rest());
        for _ in 0..2 {
            assert_eq!(notice(&reader, "ses_1", EventKind::Status, "{}"), Fate::Routed);
        }
        for _ in 0..2 {
            assert!(!reader.routes().is_at_rest());
            assert!(matches!(queue.next().await, Some(WatchEvent::Event { .. })));
            assert!(!reader.routes().is_at_rest());
        }
        assert!(queue.next().now_or_never().is_none());
        assert!(reader.routes().is_at_rest());
        // What there is no place for is not waited for.
        for _ in 0..=MAX_NOTICED {
            notice(&reader, "ses_1", EventKind::Status, "{}");
        }
        for _ in 0..=MAX_NOTICED {
            assert!(!reader.routes().is_at_rest());
            queue.next().await.unwrap();
        }
        assert!(queue.next().now_or_never().is_none());
        assert!(reader.routes().is_at_rest());
    }

    #[test]
    fn one_session_too_many_makes_the_oldest_forgotten() {
        let (mut watched, _noticing) = WatchedSessions::new(reader());
        for number in 0..MAX_WATCHED {
            assert!(watched.add(&format!("ses_{number}")));
        }
        assert!(!watched.add("ses_0"), "it is named again");
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
