//! Decides which turn receives which event of a directory's stream.
//!
//! A session has one route, and a turn that holds the route keeps it until the turn ends. A turn that is about to be prompted does
//! not start while another turn holds the route. A turn that is resumed after a restart of the gateway waits for the route, and
//! meanwhile reads OpenCode's message list.
//!
//! A turn has a queue with two limits: a number of events and a number of bytes. At either limit the reader does not wait. It drops
//! the event and puts a mark into the queue. The turn is then lagging, and the reader drops its further events until the turn has
//! taken the mark out of the queue. At the mark, the turn reads the message list again. Events are queued under the lock of the
//! routes, so that a slot for the mark is always left.

mod lease;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use longshore_engine::queue;
use longshore_meter::Metrics;
use longshore_meter::label::Fate;
use longshore_model::SessionId;

pub(super) use self::lease::KeepAlive;
pub(crate) use self::lease::Lease;
use super::Since;
use super::watched::WatchedSessions;
use crate::api::EventKind;
use crate::skim::Event;

/// Maximum number of events that wait for one turn: a few seconds of the fastest stream that OpenCode makes.
const MAX_QUEUED: usize = 4096;

/// Maximum number of bytes that wait for one turn. OpenCode repeats the whole output of a running command with every line.
const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;

/// Maximum number of sub-agent sessions per turn. Further sub-agents are not reported, except for their asks, which the turn finds
/// when it reads the lists of open asks.
pub(crate) const MAX_CHILDREN: usize = 1024;

#[derive(Debug)]
pub(super) struct Routes {
    pub(super) by_session: HashMap<String, Route>,
    /// The sessions of sub-agents, each with the root session whose turn receives its events.
    descendants: HashMap<String, Descendant>,
    /// How many callers without a route wait for the connection.
    keep_alives: usize,
    /// The watched sessions of the directory. While there are any, the reader keeps running.
    pub(super) watched: Option<WatchedSessions>,
    unused_since: Option<Since>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct Descendant {
    root: String,
    child_session: Arc<ChildSession>,
}

/// A sub-agent's session.
#[derive(Debug)]
pub(crate) struct ChildSession {
    pub(crate) session: SessionId,
    /// The session for which this one was created.
    pub(crate) parent: String,
    aborted: AtomicBool,
}

impl ChildSession {
    /// Called when the sub-agent is called, possibly again. Resets an earlier abort.
    pub(crate) fn called(&self) {
        self.aborted.store(false, Ordering::Release);
    }

    /// Whether the gateway aborted this sub-agent since its last call.
    pub(crate) fn aborted_by_gateway(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
pub(super) struct Route {
    queue: queue::Sender<Routed>,
    shared: Arc<RouteState>,
}

/// An entry of a turn's queue.
#[derive(Debug)]
pub(crate) enum Routed {
    Event {
        /// The sub-agent to whose session the event belongs. `None`: the turn's own session. So most events need no reference
        /// count.
        /// count.
        child: Option<Arc<ChildSession>>,
        event: Event,
    },
    /// An event could not be parsed. It may have belonged to this turn.
    Missed,
    /// The stream was interrupted and is back. Events may be missing before this point.
    Reconnected,
    /// Events after this point were dropped. Only the queue holds this mark: the turn receives [`Self::Reconnected`] instead.
    Lagged,
}

/// The route for the events of a session.
#[derive(Debug)]
pub(super) struct Target<'a> {
    route: &'a Route,
    child: Option<&'a Arc<ChildSession>>,
    metrics: &'a Metrics,
}

#[derive(Debug, Default)]
struct RouteState {
    lagging: AtomicBool,
    /// Whether the last entry of the queue is [`Routed::Missed`]. A second one directly after it would add nothing.
    is_missed_last: AtomicBool,
    queued_bytes: AtomicUsize,
    aborted: AtomicBool,
    /// Whether the session is idle and no event since then shows a new turn.
    is_idle: AtomicBool,
}

impl Routes {
    /// How many turns have a route, or wait for the connection.
    pub(super) fn turns(&self) -> usize {
        self.by_session.len() + self.keep_alives
    }
}

impl RouteState {
    /// Updates `is_idle` with an event of the session itself.
    fn note(&self, kind: EventKind) {
        match kind {
            EventKind::Idle => self.is_idle.store(true, Ordering::Release),
            // OpenCode still updates the session and messages after the end of a turn, so these events do not show a new turn. A
            // new prompt also causes events about parts and about the session's status.
            EventKind::SessionUpdated | EventKind::MessageUpdated => {}
            _ => self.is_idle.store(false, Ordering::Release),
        }
    }
}

impl Routes {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            by_session: HashMap::new(),
            descendants: HashMap::new(),
            keep_alives: 0,
            watched: None,
            unused_since: Some(Since::now()),
            metrics,
        }
    }

    /// The turn that receives the events of this session, and the sub-agent whose session it is.
    pub(super) fn find(&self, session: &str) -> Option<Target<'_>> {
        let metrics = &*self.metrics;
        if let Some(route) = self.by_session.get(session) {
            return Some(Target { route, child: None, metrics });
        }
        let descendant = self.descendants.get(session)?;
        let route = self.by_session.get(&descendant.root)?;
        Some(Target { route, child: Some(&descendant.child_session), metrics })
    }

    /// Registers a sub-agent's session, if a turn holds the root of its tree. Returns the session if it was unknown until now.
    pub(super) fn add_child(&mut self, child: &str, parent: &str) -> Option<Arc<ChildSession>> {
        if let Some(watched) = &mut self.watched {
            watched.add_child(child, parent);
        }
        if self.descendants.contains_key(child) {
            return None;
        }
        let root = self.descendants.get(parent).map_or(parent, |descendant| &descendant.root);
        let known = self.descendants.values().filter(|descendant| descendant.root == root).count();
        if !self.by_session.contains_key(root) || child == root || known >= MAX_CHILDREN {
            return None;
        }
        let (session, parent) = (SessionId::parse(child).ok()?, parent.to_owned());
        let child_session = Arc::new(ChildSession { session, parent, aborted: AtomicBool::new(false) });
        let descendant = Descendant { root: root.to_owned(), child_session: Arc::clone(&child_session) };
        self.descendants.insert(child.to_owned(), descendant);
        Some(child_session)
    }

    pub(super) fn watch(&mut self, watched: WatchedSessions) {
        self.watched = Some(watched);
        self.unused_since = None;
    }

    /// Returns the watched sessions in the order in which they were named.
    pub(super) fn unwatch(&mut self) -> Vec<String> {
        let sessions = self.watched.take().map(WatchedSessions::into_sessions).unwrap_or_default();
        self.note_if_unused();
        sessions
    }

    /// Whether the gateway neither runs nor starts a turn in the directory, and every queued watch event was handled.
    pub(super) fn is_idle(&self) -> bool {
        self.by_session.is_empty()
            && self.keep_alives == 0
            && self.watched.as_ref().is_none_or(WatchedSessions::is_drained)
    }

    /// Watches one more session. The session may already be busy, so a check is requested, unless it is new or a turn of the
    /// gateway holds it.
    pub(super) fn watch_session(&mut self, session: &str, is_new: bool) {
        let Some(watched) = &mut self.watched else { return };
        if watched.add(session) && !is_new && !self.by_session.contains_key(session) {
            watched.request_check();
        }
    }

    /// The watched session to which this session belongs, and whether this session is a descendant of it.
    pub(super) fn watched_for(&self, session: &str) -> Option<(String, bool)> {
        let (session, is_descendant) = self.watched.as_ref()?.find(session)?;
        Some((session.to_owned(), is_descendant))
    }

    pub(super) fn queue_watched(&self, session: String, is_descendant: bool, event: Event) -> Fate {
        self.watched
            .as_ref()
            .map_or(Fate::Foreign, |watched| watched.queue_event(session, is_descendant, event))
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

    /// Tells all turns that an event could not be parsed, because it may have belonged to any session.
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
        if let Some(descendant) = self.descendants.get(session) {
            descendant.child_session.aborted.store(true, Ordering::Release);
        }
    }

    /// The sub-agent sessions of this session, at any depth.
    pub(super) fn descendants(&self, session: &str) -> Vec<String> {
        let parent = |at: &&str| self.descendants.get(*at).map(|known| known.child_session.parent.as_str());
        let is_descendant = |child: &&String| {
            let ancestors = std::iter::successors(parent(&child.as_str()), parent);
            ancestors.take(MAX_CHILDREN).any(|ancestor| ancestor == session)
        };
        self.descendants.keys().filter(is_descendant).cloned().collect()
    }

    /// Since when the reader has had no route, no waiting caller and no watched sessions. `None`: it is in use.
    pub(super) fn unused_since(&self) -> Option<Since> {
        self.unused_since
    }

    fn note_if_unused(&mut self) {
        if self.by_session.is_empty() && self.keep_alives == 0 && self.watched.is_none() {
            self.unused_since = Some(Since::now());
        }
    }
}

impl Target<'_> {
    /// Whether the turn will parse every event of this session, and so notice a malformed one.
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
        // A single event larger than the limit is still queued if the queue is empty.
        let full = queued > MAX_QUEUED_BYTES && queued != size;
        // Incremented first, because the receiver decrements it.
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
    /// Queues an entry. Returns false if there was no slot. The last slot is reserved for [`Routed::Lagged`].
    fn push(&self, routed: Routed) -> bool {
        self.queue.capacity() > 1 && self.queue.try_send(routed).is_ok()
    }

    /// Makes the turn read its state from OpenCode again, because the turn may have missed events.
    fn request_reread(&self) {
        if !self.shared.lagging.load(Ordering::Acquire) && !self.push(Routed::Reconnected) {
            self.lag();
        }
    }

    fn lag(&self) {
        if !self.shared.lagging.swap(true, Ordering::AcqRel) {
            // This fails only if the queue already holds a mark or its receiver was dropped.
            let _ = self.queue.try_send(Routed::Lagged);
        }
    }
}

#[cfg(test)]
mod tests;
