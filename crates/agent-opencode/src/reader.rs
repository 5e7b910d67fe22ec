//! One reader of OpenCode's event stream per directory, shared by all turns there.
//!
//! A reader is attached before any prompt and always drained, because OpenCode buffers in memory the events that a slow reader does
//! not take. The reader passes each event to the turn of its session and never waits for a turn: see [`routes`].

mod backoff;
mod invalid_alarm;
mod routes;
mod watched;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use longshore_engine::Tasks;
use longshore_engine::port::Clock;
use longshore_meter::Metrics;
use longshore_meter::label::Fate;
use longshore_model::{Error, ErrorKind, Result};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::backoff::Backoff;
pub(crate) use self::backoff::jittered;
pub(crate) use self::invalid_alarm::InvalidResponseAlarm;
pub(crate) use self::routes::{ChildSession, Lease, MAX_CHILDREN, Routed};
use self::routes::{KeepAlive, Routes, Target};
use self::watched::WatchedSessions;
pub(crate) use self::watched::{WatchEvent, WatchQueue};
use crate::api::{EventKind, Head};
use crate::client::{CallError, Client};
use crate::id::ServerClock;
use crate::preview;
use crate::skim::{self, Event};
use crate::sse::{Decoder, Item, MAX_EVENT_BYTES};

/// How long an unused reader stays attached for the next turn before it stops.
const LINGER: Duration = Duration::from_mins(2);

/// How long the events that OpenCode sent before its end are read. Usually the stream ends earlier.
const LAST_EVENTS: Duration = Duration::from_millis(500);

/// All readers of one OpenCode.
#[derive(Debug)]
pub(crate) struct Readers {
    client: Client,
    clock: Arc<dyn Clock>,
    server_clock: Arc<ServerClock>,
    tasks: Tasks,
    /// How long a connection may be silent before it is considered dead and replaced.
    silence: Duration,
    metrics: Arc<Metrics>,
    by_directory: Mutex<HashMap<String, Arc<Reader>>>,
}

#[derive(Debug)]
pub(crate) struct Reader {
    directory: String,
    routes: Mutex<Routes>,
    link: watch::Sender<Link>,
    /// Notified when a turn drops its lease.
    lease_dropped: Notify,
    metrics: Arc<Metrics>,
}

/// The state of the connection.
#[derive(Debug, Default)]
struct Link {
    connected: bool,
    /// The error of the last attempt to connect.
    fault: Option<Error>,
    /// Whether a retry cannot help unless the operator changes something.
    hopeless: bool,
    /// Since when every response has been invalid: from a server that is not OpenCode, or a rejection of the gateway's credentials.
    invalid_since: Option<Instant>,
}

/// The reason for the end of a connection.
enum End {
    /// No turn needs the connection any more.
    NotNeeded,
    Failed(CallError),
    Silent,
    /// OpenCode closed the connection, as it does when it stops or disposes of the directory.
    Closed,
}

impl Readers {
    pub(crate) fn new(
        client: Client,
        clock: Arc<dyn Clock>,
        server_clock: Arc<ServerClock>,
        tasks: Tasks,
        silence: Duration,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let by_directory = Mutex::default();
        Arc::new(Self { client, clock, server_clock, tasks, silence, metrics, by_directory })
    }

    /// Registers a turn that is about to be prompted with the reader of its directory, and starts the reader if necessary. While
    /// another turn holds the session, waits for up to `patience`, because a turn keeps its lease for a moment after its end.
    /// `None`: another turn still holds the session.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        directory: &str,
        session: &str,
        patience: Duration,
    ) -> Option<Lease> {
        let deadline = Instant::now() + patience;
        let keep_alive = self.keep_alive(directory);
        loop {
            let mut left = pin!(keep_alive.reader().lease_dropped.notified());
            left.as_mut().enable();
            if let Some(lease) = Lease::open(Arc::clone(keep_alive.reader()), session) {
                return Some(lease);
            }
            timeout_at(deadline, left).await.ok()?;
        }
    }

    /// Registers a running turn that is being resumed. While another turn holds the session, the resumed turn reads its state from
    /// OpenCode instead.
    pub(crate) fn lease_or_wait(self: &Arc<Self>, directory: &str, session: &str) -> Lease {
        let mut readers = lock(&self.by_directory);
        Lease::open_or_wait(self.reader(&mut readers, directory), session)
    }

    /// Waits until the stream of a directory is connected. This shows that OpenCode is up and responds to requests: just after its
    /// start, OpenCode accepts requests and never responds to them.
    pub(crate) async fn attached(self: &Arc<Self>, directory: &str, patience: Duration) -> Result<()> {
        self.keep_alive(directory).reader().connected(patience).await
    }

    /// Makes the reader try to connect for as long as the returned value exists.
    fn keep_alive(self: &Arc<Self>, directory: &str) -> KeepAlive {
        let mut readers = lock(&self.by_directory);
        KeepAlive::open(self.reader(&mut readers, directory))
    }

    fn reader(self: &Arc<Self>, readers: &mut HashMap<String, Arc<Reader>>, directory: &str) -> Arc<Reader> {
        let reader = readers.entry(directory.to_owned()).or_insert_with(|| {
            let reader = Arc::new(Reader {
                directory: directory.to_owned(),
                routes: Mutex::new(Routes::new(Arc::clone(&self.metrics))),
                link: watch::Sender::default(),
                lease_dropped: Notify::new(),
                metrics: Arc::clone(&self.metrics),
            });
            self.tasks.spawn("opencode-events", Arc::clone(self).follow(Arc::clone(&reader)));
            reader
        });
        Arc::clone(reader)
    }

    /// Starts to watch a directory. [`Self::watch_session`] adds the sessions. Must be called once for each directory.
    pub(crate) fn watch(self: &Arc<Self>, directory: &str) -> WatchQueue {
        let mut readers = lock(&self.by_directory);
        let reader = self.reader(&mut readers, directory);
        let (watched, queue) = WatchedSessions::new(Arc::clone(&reader));
        reader.routes().watch(watched);
        queue
    }

    /// Stops watching a directory. Returns the watched sessions in the order in which they were named.
    pub(crate) fn unwatch(&self, directory: &str) -> Vec<String> {
        let readers = lock(&self.by_directory);
        readers.get(directory).map(|reader| reader.routes().unwatch()).unwrap_or_default()
    }

    /// Whether the gateway runs no turn in a watched directory and has handled all its watch events.
    pub(crate) fn is_idle(&self, directory: &str) -> bool {
        lock(&self.by_directory).get(directory).is_none_or(|reader| reader.routes().is_idle())
    }

    /// Watches one more session of a watched directory. A new session has never been busy.
    pub(crate) fn watch_session(&self, directory: &str, session: &str, is_new: bool) {
        if let Some(reader) = lock(&self.by_directory).get(directory) {
            reader.routes().watch_session(session, is_new);
        }
    }

    /// Records that the gateway aborts a session.
    pub(crate) fn note_abort(&self, directory: &str, session: &str) {
        if let Some(reader) = lock(&self.by_directory).get(directory) {
            reader.routes().note_abort(session);
        }
    }

    /// The known sub-agent sessions of this session, at any depth.
    pub(crate) fn descendants(&self, directory: &str, session: &str) -> Vec<String> {
        let readers = lock(&self.by_directory);
        readers.get(directory).map(|reader| reader.routes().descendants(session)).unwrap_or_default()
    }

    /// How many turns run or wait for a stream.
    pub(crate) fn turns(&self) -> usize {
        lock(&self.by_directory).values().map(|reader| reader.routes().turns()).sum()
    }

    /// Keeps the stream of a directory connected until the reader is no longer used.
    async fn follow(self: Arc<Self>, reader: Arc<Reader>) {
        let stop = self.tasks.stopping().clone();
        let mut backoff = Backoff::default();
        let mut was_connected = false;
        loop {
            let back = self.client.address().until_back();
            let end = tokio::select! {
                () = stop.cancelled() => return,
                end = self.stream(&reader, &mut backoff, &mut was_connected) => end,
            };
            if !matches!(end, End::NotNeeded) {
                self.client.suspect_outage();
            }
            reader.link.send_modify(|link| {
                link.connected = false;
                if let End::Failed(cause) = end {
                    // Writes one log line per outage and not per attempt. If OpenCode is down, the module `outage` logs it.
                    if link.fault.is_none() && !matches!(cause, CallError::Down(_) | CallError::Ended) {
                        tracing::warn!(%cause, "cannot open the event stream of OpenCode");
                    }
                    link.hopeless = matches!(
                        cause,
                        CallError::Unauthorized | CallError::NoSuchPath | CallError::Garbled(_)
                    );
                    let since = link.invalid_since.take();
                    link.invalid_since =
                        cause.is_invalid_response().then(|| since.unwrap_or_else(Instant::now));
                    link.fault = Some(cause.into_error("open the event stream"));
                } else {
                    tracing::debug!("the event stream ended");
                    (link.fault, link.hopeless, link.invalid_since) = (None, false, None);
                }
            });
            if self.retire(&reader) {
                return;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(jittered(backoff.next_pause())) => {}
                () = back => backoff = Backoff::default(),
            }
        }
    }

    /// Runs one connection, from its opening to its end.
    async fn stream(&self, reader: &Reader, backoff: &mut Backoff, was_connected: &mut bool) -> End {
        let mut run = match self.client.address().run() {
            Ok(run) => run,
            Err(reason) => return End::Failed(CallError::Down(reason)),
        };
        let response_timeout = backoff.response_timeout(self.client.address().is_supervised());
        let mut response = match self.client.events(&reader.directory, response_timeout).await {
            Ok(response) => response,
            Err(cause @ CallError::NoAnswer) => {
                backoff.timed_out();
                return End::Failed(cause);
            }
            Err(cause) => return End::Failed(cause),
        };
        let (mut decoder, mut items) = (Decoder::new(MAX_EVENT_BYTES), Vec::new());
        let mut is_connected = false;
        let mut is_ended = false;
        // One timer serves the whole connection. When it fires, the time of the last chunk is checked.
        let mut silent = pin!(sleep(self.silence));
        let mut last_chunk = Instant::now();
        loop {
            let chunk = tokio::select! {
                biased;
                chunk = response.chunk() => chunk,
                () = run.ended(), if !is_ended => {
                    is_ended = true;
                    silent.as_mut().reset(Instant::now() + LAST_EVENTS);
                    continue;
                }
                () = silent.as_mut() => {
                    if is_ended || last_chunk.elapsed() >= self.silence {
                        return End::Silent;
                    }
                    silent.as_mut().reset(last_chunk + self.silence);
                    continue;
                }
            };
            let chunk = match chunk {
                Err(cause) => return End::Failed(cause.into()),
                Ok(None) => return End::Closed,
                Ok(Some(chunk)) => chunk,
            };
            last_chunk = Instant::now();
            decoder.push(&chunk, &mut items);
            for item in items.drain(..) {
                match item {
                    Item::TooLong => {
                        tracing::warn!("skipped an event that was too long");
                        self.count(Fate::Unread);
                        reader.routes().lag_all();
                    }
                    Item::Unreadable => {
                        tracing::warn!("skipped a line that does not belong in an event stream");
                        self.count(Fate::Unread);
                        reader.routes().missed();
                    }
                    Item::Event(body) => {
                        preview::log(&body);
                        let Some(body) = self.route_skimmed(reader, is_connected, body) else {
                            continue;
                        };
                        if self.route_parsed(reader, body, is_connected) {
                            is_connected = true;
                            backoff.connected();
                            if std::mem::replace(was_connected, true) {
                                self.metrics.stream_retries.increment();
                            }
                        }
                    }
                }
            }
            if reader.routes().unused_since().is_some_and(|since| since.elapsed() > LINGER) {
                return End::NotNeeded;
            }
        }
    }

    /// Routes an event by its first bytes, which name its kind and session, without parsing it. Returns the event if the reader
    /// must parse it: because its form is unusual, because the reader itself needs the content, or because no turn will parse it.
    /// In the last case nobody else would notice that the event is malformed.
    fn route_skimmed(&self, reader: &Reader, is_connected: bool, body: Bytes) -> Option<Bytes> {
        let Some(skimmed) = skim::skim(&body).filter(|_| is_connected) else { return Some(body) };
        if skimmed.kind == EventKind::SessionUpdated {
            return Some(body);
        }
        let routes = reader.routes();
        let target = skimmed.session(&body).and_then(|session| routes.find(session));
        if !skimmed.is_whole() && !target.as_ref().is_some_and(Target::reads_everything) {
            return Some(body);
        }
        let fate = match target {
            Some(target) => target.send(skimmed.event(body)),
            None => match skimmed.session(&body).and_then(|session| routes.watched_for(session)) {
                Some((session, is_descendant)) => {
                    routes.queue_watched(session, is_descendant, skimmed.event(body))
                }
                None => Fate::Foreign,
            },
        };
        self.count(fate);
        None
    }

    /// Parses an event and routes it. Returns whether the event marks the beginning of the connection.
    fn route_parsed(&self, reader: &Reader, body: Bytes, is_connected: bool) -> bool {
        let head: Head<'_> = match serde_json::from_slice(&body) {
            Ok(head) => head,
            Err(cause) => {
                tracing::warn!(
                    bytes = body.len(),
                    line = cause.line(),
                    column = cause.column(),
                    "skipped an event that is not valid"
                );
                // By the rules of event streams, empty data is no event.
                if !body.is_empty() {
                    self.count(Fate::Unread);
                    reader.routes().missed();
                }
                return false;
            }
        };
        // The first valid event of a connection counts as its beginning, in case `server.connected` could not be parsed.
        let connects = head.kind == "server.connected" || !is_connected;
        if connects {
            reader.routes().reconnected();
            reader.link.send_modify(|link| *link = Link { connected: true, ..Link::default() });
        }
        match head.kind.as_ref() {
            "server.connected" | "server.heartbeat" => {
                if let Some(id) = &head.id {
                    self.server_clock.learn(&id.0, self.clock.now());
                }
                self.count(Fate::Foreign);
                return connects;
            }
            "session.created" | "session.updated" => {
                let parent = head.properties.info.as_ref().and_then(|info| info.parent.as_ref());
                if let (Some(child), Some(parent)) = (&head.properties.session, parent) {
                    reader.routes().add_child(&child.0, &parent.0);
                }
            }
            _ => {}
        }
        let fate = match (EventKind::parse(&head.kind), &head.properties.session) {
            (Some(kind), Some(session)) => {
                let routes = reader.routes();
                // The route is found before `body` is moved, because the head borrows from the body.
                let target = routes.find(&session.0);
                let watched = if target.is_none() { routes.watched_for(&session.0) } else { None };
                drop(head);
                let event = Event::parsed(kind, body);
                match (target, watched) {
                    (Some(target), _) => target.send(event),
                    (None, Some((session, is_descendant))) => {
                        routes.queue_watched(session, is_descendant, event)
                    }
                    (None, None) => Fate::Foreign,
                }
            }
            // An error may name no session. Every other event that a turn uses names one.
            (None | Some(EventKind::Error), None) | (None, Some(_)) => Fate::Foreign,
            (Some(_), None) => {
                reader.routes().missed();
                Fate::Unread
            }
        };
        self.count(fate);
        connects
    }

    fn count(&self, fate: Fate) {
        self.metrics.opencode_events.of(fate).increment();
    }

    /// Removes an unused reader. No caller gets a removed reader again.
    fn retire(&self, reader: &Arc<Reader>) -> bool {
        let mut readers = lock(&self.by_directory);
        let unused = reader.routes().unused_since().is_some();
        if unused && readers.get(&reader.directory).is_some_and(|current| Arc::ptr_eq(current, reader)) {
            readers.remove(&reader.directory);
        }
        unused
    }
}

impl Reader {
    fn routes(&self) -> std::sync::MutexGuard<'_, Routes> {
        lock(&self.routes)
    }

    fn is_connected(&self) -> bool {
        self.link.borrow().connected
    }

    /// Waits until the stream is connected. Fails at once when a retry cannot help.
    async fn connected(&self, patience: Duration) -> Result<()> {
        let mut link = self.link.subscribe();
        let waited = timeout(patience, link.wait_for(|link| link.connected || link.hopeless)).await;
        let fault = match waited {
            Ok(Ok(link)) if link.connected => return Ok(()),
            Ok(Ok(link)) => link.fault.clone(),
            _ => self.link.borrow().fault.clone(),
        };
        Err(fault.unwrap_or_else(|| {
            Error::new(ErrorKind::AgentUnavailable, "OpenCode cannot be reached. Try again later.")
        }))
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The lock can be used after a panic, because no code that holds it panics in the middle of a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lease {
    /// Waits until the reader is attached.
    pub(crate) async fn connected(&self, patience: Duration) -> Result<()> {
        self.reader().connected(patience).await
    }

    /// Returns an alarm for a stream that has only invalid responses for some time.
    pub(crate) fn invalid_alarm(&self) -> InvalidResponseAlarm {
        InvalidResponseAlarm::at(self.reader().link.subscribe())
    }
}

/// When a reader became unused.
type Since = Instant;
