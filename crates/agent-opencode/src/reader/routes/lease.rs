//! A turn's lease of its route at a reader, and the wait for the route.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_engine::queue;
use tokio::time::{Instant, sleep_until};

use super::{ChildSession, MAX_QUEUED, Route, RouteState, Routed};
use crate::reader::Reader;

/// How often a turn that waits for its route reads its state from OpenCode.
pub(super) const WAITING_READ_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of events that are peeked at while a command begins. If none of them matches, `peek_until` never returns.
const MAX_PEEKED: usize = 64;

/// A turn's lease of its route at a reader. Dropping the lease releases the route.
#[derive(Debug)]
pub(crate) struct Lease {
    reader: Arc<Reader>,
    session: String,
    queue: queue::Receiver<Routed>,
    /// Events that were peeked at but not consumed yet.
    peeked: VecDeque<Routed>,
    shared: Arc<RouteState>,
    /// Set while another turn holds the session's route.
    waiting: Option<Box<WaitingLease>>,
}

/// The state of a running turn that waits for its route.
#[derive(Debug)]
struct WaitingLease {
    /// The sending end of the turn's queue. It becomes part of the route.
    queue: queue::Sender<Routed>,
    read_at: Instant,
    /// Keeps the reader running, because the turn that holds the route may end first.
    keep_alive: KeepAlive,
}

/// Lets another task make this turn read its state from OpenCode again.
#[derive(Debug)]
pub(crate) struct RereadTrigger {
    reader: Arc<Reader>,
    session: String,
    queue: queue::Sender<Routed>,
    shared: Arc<RouteState>,
}

impl RereadTrigger {
    /// Makes the turn read its state.
    pub(crate) fn request_reread(&self) {
        let routes = self.reader.routes();
        let route = routes.by_session.get(&self.session);
        if let Some(route) = route.filter(|route| Arc::ptr_eq(&route.shared, &self.shared)) {
            route.request_reread();
        }
    }

    /// Waits until the turn is over.
    pub(crate) async fn turn_ended(&self) {
        self.queue.closed().await;
    }
}

impl Lease {
    /// Opens a lease for a turn that is about to be prompted. `None`: another turn holds the session's route.
    pub(in crate::reader) fn open(reader: Arc<Reader>, session: &str) -> Option<Self> {
        let lease = Self::open_or_wait(reader, session);
        lease.waiting.is_none().then_some(lease)
    }

    /// Opens a lease for a turn that already runs. If another turn holds the route, the lease waits for it.
    pub(in crate::reader) fn open_or_wait(reader: Arc<Reader>, session: &str) -> Self {
        let (sender, queue) = queue::channel(MAX_QUEUED + 1);
        let shared = Arc::new(RouteState::default());
        let (peeked, waiting) = (VecDeque::new(), None);
        let mut lease = Self { reader, session: session.to_owned(), queue, peeked, shared, waiting };
        if let Err(queue) = lease.claim_route(sender) {
            let (read_at, keep_alive) =
                (Instant::now() + WAITING_READ_INTERVAL, KeepAlive::open(Arc::clone(&lease.reader)));
            lease.waiting = Some(Box::new(WaitingLease { queue, read_at, keep_alive }));
        }
        lease
    }

    /// Claims the session's route if it is free. Otherwise gives the sender back.
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

    /// Waits for the next entry of the queue. If events were dropped, this is reported after the events that were queued before.
    pub(crate) async fn next(&mut self) -> Routed {
        if let Some(routed) = self.peeked.pop_front() {
            return routed;
        }
        self.next_queued().await
    }

    /// Peeks at the events, without consuming them, until one matches.
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

    /// A trigger for this turn. `None`: another turn holds the session's route.
    pub(crate) fn reread_trigger(&self) -> Option<RereadTrigger> {
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
        if self.waiting.is_some() {
            // Boxed, because a turn hardly ever waits for its route.
            Box::pin(self.wait_for_route()).await;
            return Routed::Reconnected;
        }
        match self.queue.recv().await {
            Some(routed) => self.taken(routed),
            // Cannot happen, because the route holds the sender and ends only with this lease.
            None => std::future::pending().await,
        }
    }

    /// Waits until the route could be claimed, or until the state should be read from OpenCode. Cancel safe.
    async fn wait_for_route(&mut self) {
        let reader = Arc::clone(&self.reader);
        loop {
            let mut left = pin!(reader.lease_dropped.notified());
            left.as_mut().enable();
            let Some(WaitingLease { queue, mut read_at, keep_alive }) =
                self.waiting.take().map(|waiting| *waiting)
            else {
                return;
            };
            let Err(queue) = self.claim_route(queue) else { return };
            let now = Instant::now();
            let is_due = read_at <= now;
            if is_due {
                read_at = now + WAITING_READ_INTERVAL;
            }
            self.waiting = Some(Box::new(WaitingLease { queue, read_at, keep_alive }));
            if is_due {
                return;
            }
            tokio::select! {
                () = left => {}
                () = sleep_until(read_at) => {}
            }
        }
    }

    /// The next entry, if one is queued.
    pub(crate) fn try_next(&mut self) -> Option<Routed> {
        if let Some(routed) = self.peeked.pop_front() {
            return Some(routed);
        }
        let routed = self.queue.try_recv().ok()?;
        Some(self.taken(routed))
    }

    /// Discards all queued entries.
    pub(crate) fn discard_queued(&mut self) {
        while let Some(routed) = self.try_next() {
            self.discard(routed);
        }
    }

    /// Discards an entry without handling it. A malformed event may have belonged to any session, so it is reported to all turns.
    pub(crate) fn discard(&self, routed: Routed) {
        if let Routed::Event { event, .. } = routed
            && !event.is_json()
        {
            self.report_malformed();
        }
    }

    /// Reports a malformed event to all turns, because it may have belonged to any of them.
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

    /// Whether the gateway aborted this turn.
    pub(crate) fn aborted_by_gateway(&self) -> bool {
        self.shared.aborted.load(Ordering::Acquire)
    }

    /// Registers a sub-agent's session that was found in a tool call or by reading from OpenCode. Returns the session if it was
    /// unknown until now; events of it were then missed.
    pub(crate) fn add_child(&self, child: &str, parent: &str) -> Option<Arc<ChildSession>> {
        self.reader.routes().add_child(child, parent)
    }

    /// A registered sub-agent's session.
    pub(crate) fn child_session(&self, child: &str) -> Option<Arc<ChildSession>> {
        let routes = self.reader.routes();
        let descendant =
            routes.descendants.get(child).filter(|descendant| descendant.root == self.session)?;
        Some(Arc::clone(&descendant.child_session))
    }

    /// Whether the stream is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.reader.is_connected()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut routes = self.reader.routes();
        let is_mine = |route: &Route| Arc::ptr_eq(&route.shared, &self.shared);
        // A lease that still waits for its route must not remove the route of the other turn.
        let had_route = routes.by_session.get(&self.session).is_some_and(is_mine);
        if had_route {
            routes.by_session.remove(&self.session);
            let is_idle = self.shared.is_idle.load(Ordering::Acquire);
            if let Some(watched) = &routes.watched {
                watched.turn_ended(&self.session, is_idle);
            }
            routes.descendants.retain(|_, descendant| descendant.root != self.session);
            routes.note_if_unused();
        }
        drop(routes);
        if had_route {
            self.reader.lease_dropped.notify_waiters();
        }
        // No more events can arrive. The queued ones were never parsed, so malformed ones among them are found now.
        self.discard_queued();
    }
}

/// Keeps a reader running for a caller without a route, until this is dropped.
#[derive(Debug)]
pub(in crate::reader) struct KeepAlive(Arc<Reader>);

impl KeepAlive {
    pub(in crate::reader) fn open(reader: Arc<Reader>) -> Self {
        let mut routes = reader.routes();
        routes.keep_alives += 1;
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
        routes.keep_alives -= 1;
        routes.note_if_unused();
    }
}
