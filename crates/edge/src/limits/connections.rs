//! Limits the open connections, in total and per address. If all places are taken, a new connection displaces an old one.
//!
//! A connection cannot be displaced while it has an open request of an authenticated caller. All other connections can be, the
//! oldest first, and connections that never had a valid credential before idle connections of callers. So a client that opens
//! thousands of connections without a credential displaces its own, and all other clients, such as a health check, get a place at
//! once.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use longshore_meter::label::Limit;
use longshore_meter::{GaugeGuard, Metrics};
use longshore_model::{Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Limits, Network, OncePerMinute};

/// How many places are reserved, so that open requests of authenticated callers never hold them and some connection can always be
/// displaced. At most half of all places are reserved. A caller that would need a reserved place is refused with an error.
const RESERVE: usize = 64;

/// How often a waiting new connection looks again, while no connection can be displaced.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The queue is cleaned of closed connections when it is longer than twice the number of open connections plus this number.
const QUEUE_SLACK: usize = 64;

/// The retry hint for a refused caller. Most requests end within this time.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The places for connections.
#[derive(Debug)]
pub(crate) struct Places {
    most: u32,
    most_per_address: usize,
    /// How many connections may be protected from displacement at the same time.
    most_kept: usize,
    slots: Arc<Semaphore>,
    kept: AtomicUsize,
    taken: Mutex<Taken>,
    metrics: Arc<Metrics>,
    full_log: OncePerMinute,
    address_log: OncePerMinute,
}

#[derive(Default, Debug)]
struct Taken {
    open: usize,
    /// The connections from the oldest to the newest, possibly with closed ones. A connection that `displace_one` cannot displace
    /// moves to the end.
    queue: VecDeque<Weak<Connection>>,
    /// The number of connections per address. Contains only addresses with connections, and no loopback addresses.
    of_address: HashMap<Network, usize>,
}

/// The place of one connection. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) connection: Arc<Connection>,
    address: Option<Network>,
    _slot: OwnedSemaphorePermit,
    _counted: GaugeGuard,
}

/// The requests of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    places: Arc<Places>,
    /// Canceled when the connection must end at once.
    pub(crate) cut: CancellationToken,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    has_had_request: bool,
    /// Whether any request on the connection had a valid credential.
    has_had_caller: bool,
    is_displaced: bool,
    open: u32,
    /// The open requests with a valid credential.
    open_of_callers: u32,
    /// When the last open request ended. Meaningless while a request is open.
    idle_since: Instant,
}

/// An open request of a connection. A request is open from its head until the body of its response is dropped, written or not.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    connection: Arc<Connection>,
    keeps_place: AtomicBool,
}

impl Places {
    pub(crate) fn new(limits: &Limits, metrics: Arc<Metrics>) -> Arc<Self> {
        let most = u32::try_from(limits.connections.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        let all = most as usize;
        Arc::new(Self {
            most,
            most_per_address: if limits.connections_per_address == 0 {
                usize::MAX
            } else {
                limits.connections_per_address
            },
            most_kept: all - RESERVE.min(all / 2),
            slots: Arc::new(Semaphore::new(all)),
            kept: AtomicUsize::new(0),
            taken: Mutex::default(),
            metrics,
            full_log: OncePerMinute::default(),
            address_log: OncePerMinute::default(),
        })
    }

    /// Takes a place for a new connection. If all places are taken, displaces another connection, and waits while none can be
    /// displaced. `None`: the address has too many connections. `cut` ends all connections.
    pub(crate) async fn take(self: &Arc<Self>, peer: IpAddr, cut: &CancellationToken) -> Option<Place> {
        let address = (!peer.is_loopback()).then(|| Network::containing(peer));
        if !address.is_none_or(|address| self.admits(address)) {
            return None;
        }
        let slot = match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => self.wait_for_slot().await?,
        };
        let connection = Arc::new(Connection {
            places: Arc::clone(self),
            // A child token, because each connection polls its token on every wake-up, and a shared token would contend for one
            // lock.
            cut: cut.child_token(),
            state: Mutex::new(State::new()),
        });
        let mut taken = self.taken();
        taken.open += 1;
        if let Some(address) = address {
            *taken.of_address.entry(address).or_default() += 1;
        }
        if taken.queue.len() > 2 * taken.open + QUEUE_SLACK {
            taken.queue.retain(|connection| connection.strong_count() > 0);
        }
        taken.queue.push_back(Arc::downgrade(&connection));
        let counted = self.metrics.hold(|metrics| &metrics.connections);
        Some(Place { connection, address, _slot: slot, _counted: counted })
    }

    /// Waits until all connections are closed, but at most for the grace period. The error is the number of connections that are
    /// still open then.
    pub(crate) async fn wait_until_empty(&self, grace: Duration) -> std::result::Result<(), usize> {
        let empty = tokio::time::timeout(grace, self.slots.acquire_many(self.most)).await;
        empty.map(drop).map_err(|_| self.most as usize - self.slots.available_permits())
    }

    fn admits(&self, address: Network) -> bool {
        let own = self.taken().of_address.get(&address).copied().unwrap_or_default();
        if own < self.most_per_address {
            return true;
        }
        self.metrics.refused.of(Limit::ConnectionsPerAddress).increment();
        if self.address_log.is_due() {
            tracing::warn!(
                address = %address.0,
                most = self.most_per_address,
                "a new connection is closed: its address has too many (limits.connections_per_address); if it is the address \
                 of a proxy, raise the limit or set it to 0"
            );
        }
        false
    }

    async fn wait_for_slot(&self) -> Option<OwnedSemaphorePermit> {
        self.metrics.refused.of(Limit::Connections).increment();
        if self.full_log.is_due() {
            tracing::warn!(
                most = self.most,
                "all connections are in use (limits.connections); the oldest without a request of an authenticated caller is \
                 closed for each new one"
            );
        }
        loop {
            let slot = Arc::clone(&self.slots).acquire_owned();
            if self.displace_one() {
                return slot.await.ok();
            }
            // No connection can be displaced now. The end of a request does not notify this loop, so it looks again after a pause.
            if let Ok(slot) = tokio::time::timeout(LOOK_AGAIN, slot).await {
                return slot.ok();
            }
        }
    }

    /// Displaces the oldest connection that can be displaced. Returns false if there is none.
    fn displace_one(&self) -> bool {
        let mut taken = self.taken();
        [false, true].into_iter().any(|callers_too| {
            (0..taken.queue.len()).any(|_| {
                let Some(connection) = taken.queue.pop_front() else { return false };
                let Some(found) = connection.upgrade() else { return false };
                let is_displaced = found.displace(callers_too);
                if !is_displaced {
                    taken.queue.push_back(connection);
                }
                is_displaced
            })
        })
    }

    /// Counts one more protected connection. Returns false, and counts nothing, if `most_kept` connections are already protected.
    fn keep_one(&self) -> bool {
        let more = |kept| (kept < self.most_kept).then_some(kept + 1);
        self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.connection.places.taken();
        taken.open -= 1;
        if let Some(address) = self.address
            && let Some(own) = taken.of_address.get_mut(&address)
        {
            *own -= 1;
            if *own == 0 {
                taken.of_address.remove(&address);
            }
        }
    }
}

impl State {
    fn new() -> Self {
        Self {
            has_had_request: false,
            has_had_caller: false,
            is_displaced: false,
            open: 0,
            open_of_callers: 0,
            idle_since: Instant::now(),
        }
    }
}

impl Connection {
    pub(crate) fn has_had_request(&self) -> bool {
        self.state().has_had_request
    }

    /// Returns when the connection has had no open request for this long. Requests do not wake this future: it sleeps until the
    /// limit could be reached, and then checks.
    pub(crate) async fn wait_until_idle(&self, limit: Duration) {
        let mut due = Instant::now() + limit;
        loop {
            tokio::time::sleep_until(due).await;
            let (State { open, idle_since, .. }, now) = (*self.state(), Instant::now());
            due = if open > 0 { now + limit } else { idle_since + limit };
            if due <= now {
                return;
            }
        }
    }

    /// Ends the connection, unless it is protected. After that, `OpenRequest::keep_place` refuses all requests of the connection.
    fn displace(&self, callers_too: bool) -> bool {
        {
            let mut state = self.state();
            if state.is_displaced || state.open_of_callers > 0 || (state.has_had_caller && !callers_too) {
                return false;
            }
            state.is_displaced = true;
        }
        self.cut.cancel();
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenRequest {
    pub(crate) fn begin(connection: &Arc<Connection>) -> Self {
        let mut state = connection.state();
        state.has_had_request = true;
        state.open += 1;
        Self { connection: Arc::clone(connection), keeps_place: AtomicBool::new(false) }
    }

    /// Protects the connection from displacement until the request has ended. Called when the request has a valid credential. Fails
    /// if too many other connections are protected.
    pub(crate) fn keep_place(&self) -> Result<()> {
        let Connection { places, .. } = &*self.connection;
        let mut state = self.connection.state();
        if state.is_displaced || (state.open_of_callers == 0 && !places.keep_one()) {
            places.metrics.refused.of(Limit::Connections).increment();
            return Err(Error::new(
                ErrorKind::TooManyRequests,
                "All connections are in use by requests of other callers. Try again later.",
            )
            .detail("limit", "connections")
            .detail("max", places.most.to_string())
            .after(RETRY_AFTER));
        }
        state.open_of_callers += 1;
        state.has_had_caller = true;
        self.keeps_place.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.connection.state();
        state.open -= 1;
        state.idle_since = Instant::now();
        if *self.keeps_place.get_mut() {
            state.open_of_callers -= 1;
            if state.open_of_callers == 0 {
                self.connection.places.kept.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const HERE: &str = "127.0.0.1";

    fn places(connections: usize, connections_per_address: usize) -> Arc<Places> {
        Places::new(&Limits { connections, connections_per_address, ..Limits::default() }, Arc::default())
    }

    /// An open request of the only connection.
    pub(crate) fn open_request() -> OpenRequest {
        OpenRequest::begin(&take(&places(2, 0), HERE).unwrap().connection)
    }

    /// Takes a place without waiting.
    fn take(places: &Arc<Places>, peer: &str) -> Option<Place> {
        let taken = places.take(peer.parse().unwrap(), &CancellationToken::new()).now_or_never();
        taken.expect("there is a place")
    }

    /// Takes a place while all are taken, and drops the places of the connections that were displaced.
    fn take_for(places: &Arc<Places>, open: &mut Vec<Place>) {
        let token = CancellationToken::new();
        let taking = places.take(HERE.parse().unwrap(), &token);
        let mut taking = std::pin::pin!(taking);
        assert!((&mut taking).now_or_never().is_none(), "the displaced connection is still open");
        open.retain(|place| !place.connection.cut.is_cancelled());
        open.push(taking.now_or_never().expect("a place is free").unwrap());
    }

    #[tokio::test]
    async fn the_oldest_connection_that_serves_no_caller_is_displaced() {
        let places = places(4, 0);
        let mut open: Vec<Place> = (0..4).map(|_| take(&places, HERE).unwrap()).collect();
        let connections: Vec<Arc<Connection>> =
            open.iter().map(|place| Arc::clone(&place.connection)).collect();
        let is_open = |which: usize| !connections[which].cut.is_cancelled();
        // The first connection serves a caller, the second has served one, the third serves a client without a credential.
        let first = OpenRequest::begin(&connections[0]);
        first.keep_place().unwrap();
        OpenRequest::begin(&connections[1]).keep_place().unwrap();
        let _third = OpenRequest::begin(&connections[2]);
        take_for(&places, &mut open);
        assert_eq!([0, 1, 2, 3].map(is_open), [true, true, false, true]);
        take_for(&places, &mut open);
        assert_eq!([0, 1, 3].map(is_open), [true, true, false]);
        // The two new connections have no caller either.
        take_for(&places, &mut open);
        take_for(&places, &mut open);
        assert_eq!([0, 1].map(is_open), [true, true]);
        for place in &open {
            let request = OpenRequest::begin(&place.connection);
            let _ = request.keep_place();
        }
        take_for(&places, &mut open);
        assert_eq!([0, 1].map(is_open), [true, false], "an idle connection of a caller goes last");
        assert_eq!(places.metrics.refused.of(Limit::Connections).get(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_callers_cannot_fill_all_places() {
        let places = places(4, 0);
        let open: Vec<Place> = (0..4).map(|_| take(&places, HERE).unwrap()).collect();
        let requests: Vec<OpenRequest> =
            open.iter().map(|place| OpenRequest::begin(&place.connection)).collect();
        assert!(requests[0].keep_place().is_ok() && requests[1].keep_place().is_ok());
        let again = OpenRequest::begin(&open[1].connection);
        assert!(again.keep_place().is_ok(), "its connection keeps its place already");
        let refused = requests[2].keep_place().unwrap_err();
        assert_eq!((refused.kind(), refused.retry_after_seconds()), (ErrorKind::TooManyRequests, Some(5)));
        drop(requests);
        assert_eq!(places.kept.load(Ordering::Relaxed), 1);
        drop(again);
        assert_eq!(places.kept.load(Ordering::Relaxed), 0);
    }

    /// With a single place, no place is reserved.
    #[tokio::test(start_paused = true)]
    async fn a_new_connection_waits_while_all_places_are_kept() {
        let places = places(1, 0);
        let only = take(&places, HERE).unwrap();
        let request = OpenRequest::begin(&only.connection);
        request.keep_place().unwrap();
        let token = CancellationToken::new();
        let taking = places.take(HERE.parse().unwrap(), &token);
        let mut taking = std::pin::pin!(taking);
        assert!(tokio::time::timeout(Duration::from_secs(9), &mut taking).await.is_err());
        drop(request);
        let ended = async {
            only.connection.cut.cancelled().await;
            drop(only);
        };
        assert!(tokio::join!(taking, ended).0.is_some());
    }

    #[tokio::test]
    async fn connections_are_counted_by_address_but_not_those_of_this_machine() {
        let places = places(100, 2);
        let mut open = vec![take(&places, "192.0.2.1").unwrap(), take(&places, "192.0.2.1").unwrap()];
        assert!(take(&places, "192.0.2.1").is_none());
        open.push(take(&places, "192.0.2.2").unwrap());
        for address in ["2001:db8:1:2::1", "2001:db8:1:2:ffff::9"] {
            open.push(take(&places, address).unwrap());
        }
        assert!(take(&places, "2001:db8:1:2::3").is_none(), "a /64 network counts as one address");
        for address in ["127.0.0.1", "::1", "127.0.0.1", "127.0.0.1"] {
            open.push(take(&places, address).unwrap());
        }
        assert_eq!(places.metrics.refused.of(Limit::ConnectionsPerAddress).get(), 2);
        open.remove(0);
        open.push(take(&places, "192.0.2.1").unwrap());
        drop(open);
        assert!(places.taken().of_address.is_empty(), "addresses without a connection are forgotten");
    }

    #[tokio::test]
    async fn closed_connections_are_forgotten() {
        let places = places(10, 0);
        for _ in 0..1000 {
            take(&places, HERE).unwrap();
        }
        assert!(places.taken().queue.len() <= QUEUE_SLACK + 3, "{}", places.taken().queue.len());
    }
}
