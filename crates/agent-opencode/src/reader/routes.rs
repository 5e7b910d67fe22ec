//! Which turn gets which event.
//!
//! A turn has a queue with two bounds. At either bound the reader does not wait: it drops the event, marks the turn
//! as lagging and drops everything else for it until the turn has caught up, cleared the mark and re-read
//! the message list.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use longshore_model::SessionId;
use tokio::sync::{Notify, mpsc};

use super::{Reader, Since};
use crate::api::EventKind;

/// Events that may wait for one turn: a few seconds of the fastest stream that OpenCode makes.
const MAX_QUEUED: usize = 4096;

/// Bytes that may wait for one turn. A running command's whole output comes again with every line of it.
const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;

/// Sub-agent sessions that are remembered for one turn. Nothing is told of any more, but for their asks, which are found
/// when the turn reads the lists of open asks.
pub(crate) const MAX_CHILDREN: usize = 1024;

#[derive(Debug)]
pub(super) struct Routes {
    by_session: HashMap<String, Route>,
    /// Sub-agents' sessions, each with the root session whose turn hears of it.
    below: HashMap<String, Below>,
    /// How many wait for the connection without a turn.
    visits: usize,
    unused_since: Option<Since>,
}

#[derive(Debug)]
struct Below {
    root: String,
    kin: Arc<Kin>,
}

/// A sub-agent's session.
#[derive(Debug)]
pub(crate) struct Kin {
    pub(crate) session: SessionId,
    /// The session that it was made for.
    pub(crate) parent: String,
    aborted: AtomicBool,
}

impl Kin {
    /// It is called, perhaps once more: whatever stopped it before is over.
    pub(crate) fn called(&self) {
        self.aborted.store(false, Ordering::Release);
    }

    /// Whether the gateway asked OpenCode to stop this sub-agent, since it was last called.
    pub(crate) fn aborted_by_us(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Route {
    queue: mpsc::Sender<Routed>,
    shared: Arc<Shared>,
}

/// What a turn takes from its queue.
#[derive(Debug)]
pub(crate) enum Routed {
    Event {
        /// `None`: of the turn's own session. So most events cost nothing more than their bytes.
        child: Option<Arc<Kin>>,
        kind: EventKind,
        body: Bytes,
    },
    /// Here was something that could not be read. It may have been an event of the turn.
    Missed,
    /// The stream was cut and is back: events may be missing before this point.
    Reconnected,
}

#[derive(Debug, Default)]
struct Shared {
    lagging: AtomicBool,
    lagged: Notify,
    /// The last thing in the queue is [`Routed::Missed`]: another one would say nothing new.
    is_missed_last: AtomicBool,
    queued_bytes: AtomicUsize,
    aborted: AtomicBool,
}

impl Routes {
    pub(super) fn new() -> Self {
        Self {
            by_session: HashMap::new(),
            below: HashMap::new(),
            visits: 0,
            unused_since: Some(Since::now()),
        }
    }

    /// The turn that is to get the events of this session, and the sub-agent whose session it is.
    pub(super) fn find(&self, session: &str) -> Option<(Route, Option<Arc<Kin>>)> {
        if let Some(route) = self.by_session.get(session) {
            return Some((route.clone(), None));
        }
        let below = self.below.get(session)?;
        let route = self.by_session.get(&below.root)?;
        Some((route.clone(), Some(Arc::clone(&below.kin))))
    }

    /// Remembers a sub-agent's session, if a turn runs at the root of its tree. Gives it if it was not known.
    pub(super) fn add_child(&mut self, child: &str, parent: &str) -> Option<Arc<Kin>> {
        if self.below.contains_key(child) {
            return None;
        }
        let root = self.below.get(parent).map_or(parent, |below| &below.root);
        let known = self.below.values().filter(|below| below.root == root).count();
        if !self.by_session.contains_key(root) || child == root || known >= MAX_CHILDREN {
            return None;
        }
        let (session, parent) = (SessionId::parse(child).ok()?, parent.to_owned());
        let kin = Arc::new(Kin { session, parent, aborted: AtomicBool::new(false) });
        let below = Below { root: root.to_owned(), kin: Arc::clone(&kin) };
        self.below.insert(child.to_owned(), below);
        Some(kin)
    }

    pub(super) fn reconnected(&self) {
        for route in self.by_session.values() {
            if route.shared.lagging.load(Ordering::Acquire)
                || route.queue.try_send(Routed::Reconnected).is_err()
            {
                route.shared.lag();
            }
        }
    }

    /// Something could not be read, so nobody knows whose it was.
    pub(super) fn missed(&self) {
        for route in self.by_session.values() {
            let shared = &route.shared;
            if shared.lagging.load(Ordering::Acquire) || shared.is_missed_last.swap(true, Ordering::AcqRel) {
                continue;
            }
            if route.queue.try_send(Routed::Missed).is_err() {
                shared.lag();
            }
        }
    }

    pub(super) fn lag_all(&self) {
        for route in self.by_session.values() {
            route.shared.lag();
        }
    }

    pub(super) fn note_abort(&self, session: &str) {
        if let Some(route) = self.by_session.get(session) {
            route.shared.aborted.store(true, Ordering::Release);
        }
        if let Some(below) = self.below.get(session) {
            below.kin.aborted.store(true, Ordering::Release);
        }
    }

    /// The sessions that work for this one, or for one that does.
    pub(super) fn below(&self, session: &str) -> Vec<String> {
        let above = |at: &&str| self.below.get(*at).map(|below| below.kin.parent.as_str());
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
        if self.by_session.is_empty() && self.visits == 0 {
            self.unused_since = Some(Since::now());
        }
    }
}

impl Route {
    pub(super) fn send(&self, child: Option<Arc<Kin>>, kind: EventKind, body: Bytes) {
        let shared = &self.shared;
        if shared.lagging.load(Ordering::Acquire) {
            return;
        }
        shared.is_missed_last.store(false, Ordering::Release);
        let size = body.len();
        let queued = shared.queued_bytes.fetch_add(size, Ordering::Relaxed) + size;
        // An event that is over the bound alone still passes an empty queue.
        let full = queued > MAX_QUEUED_BYTES && queued != size;
        if full || self.queue.try_send(Routed::Event { child, kind, body }).is_err() {
            shared.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            shared.lag();
        }
    }
}

impl Shared {
    fn lag(&self) {
        self.lagging.store(true, Ordering::Release);
        self.lagged.notify_one();
    }
}

/// A turn's place at a reader. Dropping it gives the place up.
#[derive(Debug)]
pub(crate) struct Lease {
    reader: Arc<Reader>,
    session: String,
    queue: mpsc::Receiver<Routed>,
    shared: Arc<Shared>,
}

impl Lease {
    pub(super) fn open(reader: Arc<Reader>, session: &str) -> Self {
        let (sender, queue) = mpsc::channel(MAX_QUEUED);
        let shared = Arc::new(Shared::default());
        let mut routes = reader.routes();
        routes.unused_since = None;
        routes.by_session.insert(session.to_owned(), Route { queue: sender, shared: Arc::clone(&shared) });
        drop(routes);
        Self { reader, session: session.to_owned(), queue, shared }
    }

    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The next thing to do. A lag is reported once everything that was queued before it is taken.
    pub(crate) async fn next(&mut self) -> Routed {
        loop {
            tokio::select! {
                biased;
                Some(routed) = self.queue.recv() => {
                    match &routed {
                        Routed::Event { body, .. } => {
                            self.shared.queued_bytes.fetch_sub(body.len(), Ordering::Relaxed);
                        }
                        Routed::Missed => self.shared.is_missed_last.store(false, Ordering::Release),
                        Routed::Reconnected => {}
                    }
                    return routed;
                }
                () = self.shared.lagged.notified() => {
                    if self.shared.lagging.swap(false, Ordering::AcqRel) {
                        return Routed::Reconnected;
                    }
                }
            }
        }
    }

    /// Throws away what has arrived so far.
    pub(crate) fn forget_the_past(&mut self) {
        while let Ok(routed) = self.queue.try_recv() {
            if let Routed::Event { body, .. } = routed {
                self.shared.queued_bytes.fetch_sub(body.len(), Ordering::Relaxed);
            }
        }
        self.shared.is_missed_last.store(false, Ordering::Release);
        self.shared.lagging.store(false, Ordering::Release);
    }

    /// Whether the gateway asked OpenCode to stop this turn.
    pub(crate) fn aborted_by_us(&self) -> bool {
        self.shared.aborted.load(Ordering::Acquire)
    }

    /// Adds a sub-agent's session that was found by asking, or in a tool call. Gives it if it was not known: then events
    /// of it were missed.
    pub(crate) fn add_child(&self, child: &str, parent: &str) -> Option<Arc<Kin>> {
        self.reader.routes().add_child(child, parent)
    }

    /// A sub-agent's session that is known.
    pub(crate) fn kin(&self, child: &str) -> Option<Arc<Kin>> {
        let routes = self.reader.routes();
        let below = routes.below.get(child).filter(|below| below.root == self.session)?;
        Some(Arc::clone(&below.kin))
    }

    /// Whether events can come at all.
    pub(crate) fn is_connected(&self) -> bool {
        self.reader.is_connected()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut routes = self.reader.routes();
        let is_mine = |route: &Route| Arc::ptr_eq(&route.shared, &self.shared);
        // A newer turn of the session may have taken the place.
        if routes.by_session.get(&self.session).is_some_and(is_mine) {
            routes.by_session.remove(&self.session);
            routes.below.retain(|_, below| below.root != self.session);
            routes.note_leaving();
        }
    }
}

/// Keeps a reader in service for somebody who has no turn yet. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Visit(Arc<Reader>);

impl Visit {
    pub(super) fn open(reader: Arc<Reader>) -> Self {
        let mut routes = reader.routes();
        routes.visits += 1;
        routes.unused_since = None;
        drop(routes);
        Self(reader)
    }

    pub(super) fn reader(&self) -> &Reader {
        &self.0
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut routes = self.0.routes();
        routes.visits -= 1;
        routes.note_leaving();
    }
}

#[cfg(test)]
mod tests;
