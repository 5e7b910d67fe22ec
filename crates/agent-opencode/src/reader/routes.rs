//! Which turn gets which event.
//!
//! A session has one place, and whoever has it keeps it to the end. A turn that is to be prompted takes none that another has.
//! One that runs already, and finds another there, waits beside it: it asks OpenCode for what it cannot hear.
//!
//! A turn has a queue with two bounds. At either bound the reader does not wait: it drops the event, marks the turn
//! as lagging and drops everything else for it until the turn has come to the mark, taken it away and re-read
//! the message list. Everything is put into a queue under the lock of the routes, so that there is always a place left for
//! that mark.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use longshore_engine::queue;
use longshore_meter::Metrics;
use longshore_meter::label::Fate;
use longshore_model::SessionId;
use tokio::time::{Instant, sleep_until};

use super::watched::Watched;
use super::{Reader, Since};
use crate::api::EventKind;
use crate::skim::Event;

/// Events that may wait for one turn: a few seconds of the fastest stream that OpenCode makes.
const MAX_QUEUED: usize = 4096;

/// Bytes that may wait for one turn. A running command's whole output comes again with every line of it.
const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;

/// How often a turn that waits beside another is to ask how it stands.
const LOOK_BESIDE: Duration = Duration::from_secs(1);

/// What is looked at before its time while a command begins. Behind that nothing is looked at.
const MAX_AHEAD: usize = 64;

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
    pub(super) watched: Option<Watched>,
    unused_since: Option<Since>,
    metrics: Arc<Metrics>,
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
        child: Option<Arc<Kin>>,
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
    child: Option<&'a Arc<Kin>>,
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
        Some(Target { route, child: Some(&below.kin), metrics })
    }

    /// Remembers a sub-agent's session, if a turn runs at the root of its tree. Gives it if it was not known.
    pub(super) fn add_child(&mut self, child: &str, parent: &str) -> Option<Arc<Kin>> {
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
        let kin = Arc::new(Kin { session, parent, aborted: AtomicBool::new(false) });
        let below = Below { root: root.to_owned(), kin: Arc::clone(&kin) };
        self.below.insert(child.to_owned(), below);
        Some(kin)
    }

    pub(super) fn watch(&mut self, watched: Watched) {
        self.watched = Some(watched);
        self.unused_since = None;
    }

    /// Gives the sessions that were watched, those first that were named first.
    pub(super) fn unwatch(&mut self) -> Vec<String> {
        let sessions = self.watched.take().map(Watched::into_sessions).unwrap_or_default();
        self.note_leaving();
        sessions
    }

    /// No turn of ours runs or is about to, and everything that was noticed is looked at.
    pub(super) fn is_at_rest(&self) -> bool {
        self.by_session.is_empty()
            && self.visits == 0
            && self.watched.as_ref().is_none_or(Watched::is_looked_at)
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
            route.look_again();
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
    fn look_again(&self) {
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

/// A turn's place at a reader. Dropping it gives the place up.
#[derive(Debug)]
pub(crate) struct Lease {
    reader: Arc<Reader>,
    session: String,
    queue: queue::Receiver<Routed>,
    /// What was looked at before its time.
    ahead: VecDeque<Routed>,
    shared: Arc<Shared>,
    /// Set while another turn of the session has the place.
    beside: Option<Box<Beside>>,
}

/// A turn that runs and has no place yet.
#[derive(Debug)]
struct Beside {
    /// For its place.
    queue: queue::Sender<Routed>,
    look_at: Instant,
    /// The reader goes on though the other turn may leave first.
    visit: Visit,
}

/// Lets somebody beside a turn have it look at its session.
#[derive(Debug)]
pub(crate) struct Doubt {
    reader: Arc<Reader>,
    session: String,
    queue: queue::Sender<Routed>,
    shared: Arc<Shared>,
}

impl Doubt {
    /// The turn is to ask how it stands.
    pub(crate) fn raise(&self) {
        let routes = self.reader.routes();
        let route = routes.by_session.get(&self.session);
        if let Some(route) = route.filter(|route| Arc::ptr_eq(&route.shared, &self.shared)) {
            route.look_again();
        }
    }

    /// Waits until the turn is over.
    pub(crate) async fn settled(&self) {
        self.queue.closed().await;
    }
}

impl Lease {
    /// For a turn that is to be prompted. `None`: another turn of the session has the place.
    pub(super) fn open(reader: Arc<Reader>, session: &str) -> Option<Self> {
        let lease = Self::beside(reader, session);
        lease.beside.is_none().then_some(lease)
    }

    /// For a turn that runs already, beside another one if need be.
    pub(super) fn beside(reader: Arc<Reader>, session: &str) -> Self {
        let (sender, queue) = queue::channel(MAX_QUEUED + 1);
        let shared = Arc::new(Shared::default());
        let (ahead, beside) = (VecDeque::new(), None);
        let mut lease = Self { reader, session: session.to_owned(), queue, ahead, shared, beside };
        if let Err(queue) = lease.take_place(sender) {
            let (look_at, visit) = (Instant::now() + LOOK_BESIDE, Visit::open(Arc::clone(&lease.reader)));
            lease.beside = Some(Box::new(Beside { queue, look_at, visit }));
        }
        lease
    }

    /// Takes the place of the session, if nobody has it. Otherwise gives the other end of its queue back.
    fn take_place(&self, queue: queue::Sender<Routed>) -> Result<(), queue::Sender<Routed>> {
        let mut routes = self.reader.routes();
        if routes.by_session.contains_key(&self.session) {
            return Err(queue);
        }
        routes.unused_since = None;
        routes.by_session.insert(self.session.clone(), Route { queue, shared: Arc::clone(&self.shared) });
        Ok(())
    }

    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The next thing to do. A lag is reported once everything that was queued before it is taken.
    pub(crate) async fn next(&mut self) -> Routed {
        if let Some(routed) = self.ahead.pop_front() {
            return routed;
        }
        self.next_queued().await
    }

    /// Looks at what comes, without taking it, until there is something like this.
    pub(crate) async fn look_for(&mut self, found: impl Fn(&Routed) -> bool) {
        while self.ahead.len() < MAX_AHEAD {
            let routed = self.next_queued().await;
            let is_found = found(&routed);
            self.ahead.push_back(routed);
            if is_found {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// `None`: another turn of the session has the place.
    pub(crate) fn doubt(&self) -> Option<Doubt> {
        let routes = self.reader.routes();
        let route = routes.by_session.get(&self.session)?;
        Arc::ptr_eq(&route.shared, &self.shared).then(|| Doubt {
            reader: Arc::clone(&self.reader),
            session: self.session.clone(),
            queue: route.queue.clone(),
            shared: Arc::clone(&self.shared),
        })
    }

    async fn next_queued(&mut self) -> Routed {
        if self.beside.is_some() {
            // In a box, because hardly ever one waits.
            Box::pin(self.wait_beside()).await;
            return Routed::Reconnected;
        }
        match self.queue.recv().await {
            Some(routed) => self.taken(routed),
            // The other end is in the place, which is given up with this lease only.
            None => std::future::pending().await,
        }
    }

    /// Waits until the place is free and taken, or until it is time to ask. Cancel safe.
    async fn wait_beside(&mut self) {
        let reader = Arc::clone(&self.reader);
        loop {
            let mut left = pin!(reader.left.notified());
            left.as_mut().enable();
            let Some(Beside { queue, mut look_at, visit }) = self.beside.take().map(|beside| *beside) else {
                return;
            };
            let Err(queue) = self.take_place(queue) else { return };
            let now = Instant::now();
            let is_due = look_at <= now;
            if is_due {
                look_at = now + LOOK_BESIDE;
            }
            self.beside = Some(Box::new(Beside { queue, look_at, visit }));
            if is_due {
                return;
            }
            tokio::select! {
                () = left => {}
                () = sleep_until(look_at) => {}
            }
        }
    }

    /// The same, if there is something now.
    pub(crate) fn next_now(&mut self) -> Option<Routed> {
        if let Some(routed) = self.ahead.pop_front() {
            return Some(routed);
        }
        let routed = self.queue.try_recv().ok()?;
        Some(self.taken(routed))
    }

    /// Throws away what has arrived so far.
    pub(crate) fn forget_the_past(&mut self) {
        while let Some(routed) = self.next_now() {
            self.unread(routed);
        }
    }

    /// Something came that the turn does not read. If it is no event at all, it may have been anybody's.
    pub(crate) fn unread(&self, routed: Routed) {
        if let Routed::Event { event, .. } = routed
            && !event.is_json()
        {
            self.was_no_event();
        }
    }

    /// The turn got something that is no event at all, and may have been anybody's.
    pub(crate) fn was_no_event(&self) {
        self.reader.routes().missed();
    }

    fn taken(&self, routed: Routed) -> Routed {
        match routed {
            Routed::Event { child, event } => {
                self.reader.metrics.opencode_event_queue_depth.add(-1);
                self.shared.queued_bytes.fetch_sub(event.len(), Ordering::Relaxed);
                Routed::Event { child, event }
            }
            Routed::Missed => {
                self.shared.is_missed_last.store(false, Ordering::Release);
                Routed::Missed
            }
            Routed::Lagged => {
                self.shared.is_missed_last.store(false, Ordering::Release);
                self.shared.lagging.store(false, Ordering::Release);
                Routed::Reconnected
            }
            Routed::Reconnected => Routed::Reconnected,
        }
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
        // It may have waited beside another turn of the session.
        let had_place = routes.by_session.get(&self.session).is_some_and(is_mine);
        if had_place {
            routes.by_session.remove(&self.session);
            let is_at_rest = self.shared.is_at_rest.load(Ordering::Acquire);
            if let Some(watched) = &routes.watched {
                watched.left(&self.session, is_at_rest);
            }
            routes.below.retain(|_, below| below.root != self.session);
            routes.note_leaving();
        }
        drop(routes);
        if had_place {
            self.reader.left.notify_waiters();
        }
        // Nothing more comes. What did come was not read.
        self.forget_the_past();
    }
}

/// Keeps a reader in service for somebody who has no place there yet. Dropping it ends that.
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

    pub(super) fn reader(&self) -> &Arc<Reader> {
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
