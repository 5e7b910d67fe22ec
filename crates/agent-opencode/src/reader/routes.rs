//! Which turn gets which event.
//!
//! A session has one place, and whoever has it keeps it to the end. A turn that is to be prompted takes none that another has.
//! One that runs already, and finds another there, waits beside it: it asks OpenCode for what it cannot hear.
//!
//! A turn has a queue with two bounds. At either bound the reader does not wait: it drops the event, marks the turn
//! as lagging and drops everything else for it until the turn has come to the mark, taken it away and re-read
//! the message list. Everything is put into a queue under the lock of the routes, so that there is always a place left for
//! that mark.

mod lease;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use longshore_engine::queue;
use longshore_meter::Metrics;
use longshore_meter::label::Fate;
use longshore_model::SessionId;

pub(crate) use self::lease::Lease;
pub(super) use self::lease::KeepAlive;
use super::Since;
use super::watched::WatchedSessions;
use crate::api::EventKind;
use crate::skim::Event;

/// Events that may wait for one turn: a few seconds of the fastest stream that OpenCode makes.
const MAX_QUEUED: usize = 4096;

/// Bytes that may wait for one turn. A running command's whole output comes again with every line of it.
const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;

/// Sub-agent sessions that are remembered for one turn. Nothing is told of any more, but for their asks, which are found
/// when the turn reads the lists of open asks.
pub(crate) const MAX_CHILDREN: usize = 1024;

#[derive(Debug)]
pub(super) struct Routes {
    pub(super) by_session: HashMap<String, Route>,
    /// Sub-agents' sessions, each with the root session whose turn hears of it.
    below: HashMap<String, Below>,
    /// How many wait for the connection without a turn.
    visits: usize,
    /// For as long as there is somebody who watches, the reader stays.
    pub(super) watched: Option<WatchedSessions>,
    unused_since: Option<Since>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct Below {
    root: String,
    child_session: Arc<ChildSession>,
}

/// A sub-agent's session.
#[derive(Debug)]
pub(crate) struct ChildSession {
    pub(crate) session: SessionId,
    /// The session that it was made for.
    pub(crate) parent: String,
    aborted: AtomicBool,
}

impl ChildSession {
    /// It is called, perhaps once more: whatever stopped it before is over.
    pub(crate) fn called(&self) {
        self.aborted.store(false, Ordering::Release);
    }

    /// Whether the gateway asked OpenCode to stop this sub-agent, since it was last called.
    pub(crate) fn aborted_by_gateway(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
pub(super) struct Route {
    queue: queue::Sender<Routed>,
    shared: Arc<Shared>,
}

/// What a turn takes from its queue.
#[derive(Debug)]
pub(crate) enum Routed {
    Event {
        /// `None`: of the turn's own session. So most events cost nothing more than their bytes.
        child: Option<Arc<ChildSession>>,
        event: Event,
    },
    /// Here was something that could not be read. It may have been an event of the turn.
    Missed,
    /// The stream was cut and is back: events may be missing before this point.
    Reconnected,
    /// From here on events were dropped. Nobody but the queue sees this: the turn gets [`Self::Reconnected`].
    Lagged,
}

/// Where the events of a session go, as the routes stand.
#[derive(Debug)]
pub(super) struct Target<'a> {
    route: &'a Route,
    child: Option<&'a Arc<ChildSession>>,
    metrics: &'a Metrics,
}

#[derive(Debug, Default)]
struct Shared {
    lagging: AtomicBool,
    /// The last thing in the queue is [`Routed::Missed`]: another one would say nothing new.
    is_missed_last: AtomicBool,
    queued_bytes: AtomicUsize,
    aborted: AtomicBool,
    /// The session itself is idle, and nothing that a turn does came behind that.
    is_at_rest: AtomicBool,
}

impl Shared {
    /// Something came of the session itself.
    fn note(&self, kind: EventKind) {
        match kind {
            EventKind::Idle => self.is_at_rest.store(true, Ordering::Release),
            // OpenCode sums a turn up behind its end. What somebody else says has parts too, and is worked on.
            EventKind::SessionUpdated | EventKind::MessageUpdated => {}
            _ => self.is_at_rest.store(false, Ordering::Release),
        }
    }
}

impl Routes {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            by_session: HashMap::new(),
            below: HashMap::new(),
            visits: 0,
            watched: None,
            unused_since: Some(Since::now()),
            metrics,
        }
    }

    /// The turn that is to get the events of this session, and the sub-agent whose session it is.
    pub(super) fn find(&self, session: &str) -> Option<Target<'_>> {
        let metrics = &*self.metrics;
        if let Some(route) = self.by_session.get(session) {
            return Some(Target { route, child: None, metrics });
        }
        let below = self.below.get(session)?;
        let route = self.by_session.get(&below.root)?;
        Some(Target { route, child: Some(&below.child_session), metrics })
    }

    /// Remembers a sub-agent's session, if a turn runs at the root of its tree. Gives it if it was not known.
    pub(super) fn add_child(&mut self, child: &str, parent: &str) -> Option<Arc<ChildSession>> {
        if let Some(watched) = &mut self.watched {
            watched.add_child(child, parent);
        }
        if self.below.contains_key(child) {
            return None;
        }
        let root = self.below.get(parent).map_or(parent, |below| &below.root);
        let known = self.below.values().filter(|below| below.root == root).count();
        if !self.by_session.contains_key(root) || child == root || known >= MAX_CHILDREN {
            return None;
        }
        let (session, parent) = (SessionId::parse(child).ok()?, parent.to_owned());
        let child_session = Arc::new(ChildSession { session, parent, aborted: AtomicBool::new(false) });
        let below = Below { root: root.to_owned(), child_session: Arc::clone(&child_session) };
        self.below.insert(child.to_owned(), below);
        Some(child_session)
    }

    pub(super) fn watch(&mut self, watched: WatchedSessions) {
        self.watched = Some(watched);
        self.unused_since = None;
    }

    /// Gives the sessions that were watched, those first that were named first.
    pub(super) fn unwatch(&mut self) -> Vec<String> {
        let sessions = self.watched.take().map(WatchedSessions::into_sessions).unwrap_or_default();
        self.note_leaving();
        sessions
    }

    /// No turn of ours runs or is about to, and everything that was noticed is looked at.
    pub(super) fn is_at_rest(&self) -> bool {
        self.by_session.is_empty()
            && self.visits == 0
            && self.watched.as_ref().is_none_or(WatchedSessions::is_drained)
    }

    /// Unless it is new, or a turn of ours has it, nobody knows what it is at.
    pub(super) fn watch_session(&mut self, session: &str, is_new: bool) {
        let Some(watched) = &mut self.watched else { return };
        if watched.add(session) && !is_new && !self.by_session.contains_key(session) {
            watched.look();
        }
    }

    /// The session that is watched for this one, and whether it is above it.
    pub(super) fn watched_for(&self, session: &str) -> Option<(String, bool)> {
        let (session, is_below) = self.watched.as_ref()?.find(session)?;
        Some((session.to_owned(), is_below))
    }

    pub(super) fn notice(&self, session: String, is_below: bool, event: Event) -> Fate {
        self.watched.as_ref().map_or(Fate::Foreign, |watched| watched.notice(session, is_below, event))
    }

    fn gap(&self) {
        if let Some(watched) = &self.watched {
            watched.gap();
        }
    }

    pub(super) fn reconnected(&self) {
        self.gap();
        for route in self.by_session.values() {
            route.request_reread();
        }
    }

    /// Something could not be read, so nobody knows whose it was.
    pub(super) fn missed(&self) {
        self.gap();
        for route in self.by_session.values() {
            let shared = &route.shared;
            if shared.lagging.load(Ordering::Acquire) || shared.is_missed_last.swap(true, Ordering::AcqRel) {
                continue;
            }
            if !route.push(Routed::Missed) {
                route.lag();
            }
        }
    }

    pub(super) fn lag_all(&self) {
        self.gap();
        for route in self.by_session.values() {
            route.lag();
        }
    }

    pub(super) fn note_abort(&self, session: &str) {
        if let Some(route) = self.by_session.get(session) {
            route.shared.aborted.store(true, Ordering::Release);
        }
        if let Some(below) = self.below.get(session) {
            below.child_session.aborted.store(true, Ordering::Release);
        }
    }

    /// The sessions that work for this one, or for one that does.
    pub(super) fn below(&self, session: &str) -> Vec<String> {
        let above = |at: &&str| self.below.get(*at).map(|below| below.child_session.parent.as_str());
        let is_below = |child: &&String| {
            let line = std::iter::successors(above(&child.as_str()), above);
            line.take(MAX_CHILDREN).any(|parent| parent == session)
        };
        self.below.keys().filter(is_below).cloned().collect()
    }

    /// Since when no turn is registered and nobody waits.
    pub(super) fn unused_since(&self) -> Option<Since> {
        self.unused_since
    }

    fn note_leaving(&mut self) {
        if self.by_session.is_empty() && self.visits == 0 && self.watched.is_none() {
            self.unused_since = Some(Since::now());
        }
    }
}

impl Target<'_> {
    /// Whether the turn will read every event of this session, and notice one that is none.
    pub(super) fn reads_everything(&self) -> bool {
        self.child.is_none() && !self.route.shared.lagging.load(Ordering::Acquire)
    }

    pub(super) fn send(&self, event: Event) -> Fate {
        let (route, shared) = (self.route, &self.route.shared);
        if shared.lagging.load(Ordering::Acquire) {
            return Fate::Dropped;
        }
        shared.is_missed_last.store(false, Ordering::Release);
        if self.child.is_none() {
            shared.note(event.kind);
        }
        let size = event.len();
        let queued = shared.queued_bytes.fetch_add(size, Ordering::Relaxed) + size;
        // An event that is over the bound alone still passes an empty queue.
        let full = queued > MAX_QUEUED_BYTES && queued != size;
        // Counted first: whoever takes it counts it out.
        self.metrics.opencode_event_queue_depth.add(1);
        if full || !route.push(Routed::Event { child: self.child.cloned(), event }) {
            self.metrics.opencode_event_queue_depth.add(-1);
            shared.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            route.lag();
            return Fate::Dropped;
        }
        Fate::Routed
    }
}

impl Route {
    /// Says whether there was a place: the last one is for the mark of a lag.
    fn push(&self, routed: Routed) -> bool {
        self.queue.capacity() > 1 && self.queue.try_send(routed).is_ok()
    }

    /// The turn is to ask for what it may have missed.
    fn request_reread(&self) {
        if !self.shared.lagging.load(Ordering::Acquire) && !self.push(Routed::Reconnected) {
            self.lag();
        }
    }

    fn lag(&self) {
        if !self.shared.lagging.swap(true, Ordering::AcqRel) {
            // Without a place there is a mark in the queue already, or nobody listens any more.
            let _ = self.queue.try_send(Routed::Lagged);
        }
    }
}

#[cfg(test)]
mod tests;
