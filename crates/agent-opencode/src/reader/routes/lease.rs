//! A turn's place at a reader, and what stands in for one until it has it.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_engine::queue;
use tokio::time::{Instant, sleep_until};

use super::{ChildSession, MAX_QUEUED, Route, Routed, Shared};
use crate::reader::Reader;

/// How often a turn that waits beside another is to ask how it stands.
pub(super) const WAITING_READ_INTERVAL: Duration = Duration::from_secs(1);

/// What is looked at before its time while a command begins. Behind that nothing is looked at.
const MAX_PEEKED: usize = 64;

/// A turn's place at a reader. Dropping it gives the place up.
#[derive(Debug)]
pub(crate) struct Lease {
    reader: Arc<Reader>,
    session: String,
    queue: queue::Receiver<Routed>,
    /// What was looked at before its time.
    peeked: VecDeque<Routed>,
    shared: Arc<Shared>,
    /// Set while another turn of the session has the place.
    beside: Option<Box<WaitingLease>>,
}

/// A turn that runs and has no place yet.
#[derive(Debug)]
struct WaitingLease {
    /// For its place.
    queue: queue::Sender<Routed>,
    look_at: Instant,
    /// The reader goes on though the other turn may leave first.
    visit: KeepAlive,
}

/// Lets somebody beside a turn have it look at its session.
#[derive(Debug)]
pub(crate) struct RereadTrigger {
    reader: Arc<Reader>,
    session: String,
    queue: queue::Sender<Routed>,
    shared: Arc<Shared>,
}

impl RereadTrigger {
    /// The turn is to ask how it stands.
    pub(crate) fn raise(&self) {
        let routes = self.reader.routes();
        let route = routes.by_session.get(&self.session);
        if let Some(route) = route.filter(|route| Arc::ptr_eq(&route.shared, &self.shared)) {
            route.request_reread();
        }
    }

    /// Waits until the turn is over.
    pub(crate) async fn settled(&self) {
        self.queue.closed().await;
    }
}

impl Lease {
    /// For a turn that is to be prompted. `None`: another turn of the session has the place.
    pub(in crate::reader) fn open(reader: Arc<Reader>, session: &str) -> Option<Self> {
        let lease = Self::open_or_wait(reader, session);
        lease.beside.is_none().then_some(lease)
    }

    /// For a turn that runs already, beside another one if need be.
    pub(in crate::reader) fn open_or_wait(reader: Arc<Reader>, session: &str) -> Self {
        let (sender, queue) = queue::channel(MAX_QUEUED + 1);
        let shared = Arc::new(Shared::default());
        let (peeked, beside) = (VecDeque::new(), None);
        let mut lease = Self { reader, session: session.to_owned(), queue, peeked, shared, beside };
        if let Err(queue) = lease.claim_route(sender) {
            let (look_at, visit) = (Instant::now() + WAITING_READ_INTERVAL, KeepAlive::open(Arc::clone(&lease.reader)));
            lease.beside = Some(Box::new(WaitingLease { queue, look_at, visit }));
        }
        lease
    }

    /// Takes the place of the session, if nobody has it. Otherwise gives the other end of its queue back.
    fn claim_route(&self, queue: queue::Sender<Routed>) -> Result<(), queue::Sender<Routed>> {
        let mut routes = self.reader.routes();
        if routes.by_session.contains_key(&self.session) {
            return Err(queue);
        }
        routes.unused_since = None;
        routes.by_session.insert(self.session.clone(), Route { queue, shared: Arc::clone(&self.shared) });
        Ok(())
    }

    pub(in crate::reader) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The next thing to do. A lag is reported once everything that was queued before it is taken.
    pub(crate) async fn next(&mut self) -> Routed {
        if let Some(routed) = self.peeked.pop_front() {
            return routed;
        }
        self.next_queued().await
    }

    /// Looks at what comes, without taking it, until there is something like this.
    pub(crate) async fn peek_until(&mut self, found: impl Fn(&Routed) -> bool) {
        while self.peeked.len() < MAX_PEEKED {
            let routed = self.next_queued().await;
            let is_found = found(&routed);
            self.peeked.push_back(routed);
            if is_found {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// `None`: another turn of the session has the place.
    pub(crate) fn doubt(&self) -> Option<RereadTrigger> {
        let routes = self.reader.routes();
        let route = routes.by_session.get(&self.session)?;
        Arc::ptr_eq(&route.shared, &self.shared).then(|| RereadTrigger {
            reader: Arc::clone(&self.reader),
            session: self.session.clone(),
            queue: route.queue.clone(),
            shared: Arc::clone(&self.shared),
        })
    }

    async fn next_queued(&mut self) -> Routed {
        if self.beside.is_some() {
            // In a box, because hardly ever one waits.
            Box::pin(self.wait_for_route()).await;
            return Routed::Reconnected;
        }
        match self.queue.recv().await {
            Some(routed) => self.taken(routed),
            // The other end is in the place, which is given up with this lease only.
            None => std::future::pending().await,
        }
    }

    /// Waits until the place is free and taken, or until it is time to ask. Cancel safe.
    async fn wait_for_route(&mut self) {
        let reader = Arc::clone(&self.reader);
        loop {
            let mut left = pin!(reader.lease_dropped.notified());
            left.as_mut().enable();
            let Some(WaitingLease { queue, mut look_at, visit }) = self.beside.take().map(|beside| *beside) else {
                return;
            };
            let Err(queue) = self.claim_route(queue) else { return };
            let now = Instant::now();
            let is_due = look_at <= now;
            if is_due {
                look_at = now + WAITING_READ_INTERVAL;
            }
            self.beside = Some(Box::new(WaitingLease { queue, look_at, visit }));
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
    pub(crate) fn try_next(&mut self) -> Option<Routed> {
        if let Some(routed) = self.peeked.pop_front() {
            return Some(routed);
        }
        let routed = self.queue.try_recv().ok()?;
        Some(self.taken(routed))
    }

    /// Throws away what has arrived so far.
    pub(crate) fn discard_queued(&mut self) {
        while let Some(routed) = self.try_next() {
            self.discard(routed);
        }
    }

    /// Something came that the turn does not read. If it is no event at all, it may have been anybody's.
    pub(crate) fn discard(&self, routed: Routed) {
        if let Routed::Event { event, .. } = routed
            && !event.is_json()
        {
            self.report_malformed();
        }
    }

    /// The turn got something that is no event at all, and may have been anybody's.
    pub(crate) fn report_malformed(&self) {
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
    pub(crate) fn aborted_by_gateway(&self) -> bool {
        self.shared.aborted.load(Ordering::Acquire)
    }

    /// Adds a sub-agent's session that was found by asking, or in a tool call. Gives it if it was not known: then events
    /// of it were missed.
    pub(crate) fn add_child(&self, child: &str, parent: &str) -> Option<Arc<ChildSession>> {
        self.reader.routes().add_child(child, parent)
    }

    /// A sub-agent's session that is known.
    pub(crate) fn child_session(&self, child: &str) -> Option<Arc<ChildSession>> {
        let routes = self.reader.routes();
        let below = routes.below.get(child).filter(|below| below.root == self.session)?;
        Some(Arc::clone(&below.child_session))
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
            self.reader.lease_dropped.notify_waiters();
        }
        // Nothing more comes. What did come was not read.
        self.discard_queued();
    }
}

/// Keeps a reader in service for somebody who has no place there yet. Dropping it ends that.
#[derive(Debug)]
pub(in crate::reader) struct KeepAlive(Arc<Reader>);

impl KeepAlive {
    pub(in crate::reader) fn open(reader: Arc<Reader>) -> Self {
        let mut routes = reader.routes();
        routes.visits += 1;
        routes.unused_since = None;
        drop(routes);
        Self(reader)
    }

    pub(in crate::reader) fn reader(&self) -> &Arc<Reader> {
        &self.0
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        let mut routes = self.0.routes();
        routes.visits -= 1;
        routes.note_leaving();
    }
}
