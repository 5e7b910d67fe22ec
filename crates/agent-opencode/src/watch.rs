//! Finds external turns: turns that another client starts in the gateway's sessions, such as in OpenCode's own interface.
//!
//! The readers pass on the events of sessions that no turn of the gateway holds, and [`decide`] interprets them. If events may have
//! been missed, OpenCode is queried: when the watch begins, after a gap in the event stream, and after a turn of the gateway. An
//! external turn that began and ended during a gap is not reported.

mod content;
mod decide;
mod directories;
mod faults;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_engine::port::{ExternalTurn, Session};
use longshore_meter::Metrics;
use longshore_model::{PromptId, Result, SessionId, Timestamp};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::decide::{Decision, Observation, WatchedSession};
use self::directories::{Directories, WatchSlot};
use self::faults::PromptFaults;
use crate::api::{
    Envelope, EventKind, Fault, MessageUpdated, PartUpdated, SessionFailed, StatusChanged, StoredMessage,
};
use crate::clear::DescendantFilter;
use crate::client::{CallError, Client};
use crate::id;
use crate::reader::{Readers, WatchEvent, WatchQueue, lock};
use crate::skim::Event;

/// Maximum number of external turns that wait for the engine. At the limit the watcher of a directory waits, and its own queue
/// fills.
const MAX_EXTERNAL_TURNS: usize = 64;

/// Maximum number of sessions whose state is remembered. Beyond it, the idle sessions are forgotten.
const MAX_SESSIONS: usize = 1024;

/// The first and the longest pause before the next request if OpenCode did not respond. The pause doubles each time.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Watches sessions for external turns.
#[derive(Debug)]
pub(crate) struct Watch {
    client: Client,
    readers: Arc<Readers>,
    tasks: Tasks,
    directories: Mutex<Directories>,
    metrics: Arc<Metrics>,
    failed: Arc<PromptFaults>,
    external_turns: mpsc::Sender<ExternalTurn>,
    /// The receiver of the external turns, until the engine takes it.
    receiver: Mutex<Option<mpsc::Receiver<ExternalTurn>>>,
}

impl Watch {
    /// `max_directories`: the maximum number of directories in which sessions are watched, including the workspace. 0: none.
    pub(crate) fn new(
        client: Client,
        readers: Arc<Readers>,
        tasks: Tasks,
        root: String,
        max_directories: usize,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (external_turns, receiver) = mpsc::channel(MAX_EXTERNAL_TURNS);
        let directories = Mutex::new(Directories::new(root, max_directories));
        let (failed, receiver) = (Arc::default(), Mutex::new(Some(receiver)));
        Self { client, readers, tasks, directories, metrics, failed, external_turns, receiver }
    }

    /// Implements [`longshore_engine::port::SessionWatch::watch`]. If there are too few slots for directories, sessions that are
    /// earlier in the list come first, then later ones, then those of earlier calls. A directory in which a turn runs keeps its
    /// slot.
    pub(crate) fn watch(&self, sessions: Vec<Session>) {
        let now = lock(&self.directories).now();
        for session in sessions {
            self.add(&session, false, now);
        }
    }

    /// Watches a session that the gateway has just created, if the engine receives external turns. Such a session cannot be busy
    /// yet, so OpenCode is not queried.
    pub(crate) fn watch_new(&self, session: &Session) {
        if lock(&self.receiver).is_none() {
            let now = lock(&self.directories).now();
            self.add(session, true, now);
        }
    }

    /// Stops watching a removed directory and those below it.
    pub(crate) fn remove_directory(&self, directory: &str) {
        lock(&self.directories).remove(directory, &self.readers);
    }

    fn add(&self, session: &Session, is_new: bool, now: u64) {
        let mut directories = lock(&self.directories);
        match directories.take(&session.directory, now, &self.readers) {
            WatchSlot::Disabled => return,
            WatchSlot::Full => {
                self.metrics.unwatched_sessions.increment();
                return;
            }
            WatchSlot::Existing => {}
            WatchSlot::New { queue, is_active } => {
                self.spawn_watcher(session.directory.clone(), queue, is_active);
            }
        }
        // Done under the lock. Otherwise the directory could be evicted first, and the session would not be remembered with it.
        self.readers.watch_session(&session.directory, session.id.as_str(), is_new);
        drop(directories);
    }

    fn spawn_watcher(&self, directory: String, queue: WatchQueue, is_active: Arc<AtomicBool>) {
        let watcher = Watcher {
            client: self.client.clone(),
            directory,
            failed: Arc::clone(&self.failed),
            external_turns: self.external_turns.clone(),
            sessions: HashMap::new(),
            is_active,
            recheck_at: None,
            pause: FIRST_RETRY,
        };
        let stop = self.tasks.stopping().clone();
        self.tasks.spawn("opencode-watch", async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = watcher.run(queue) => {}
            }
        });
    }

    /// Implements [`longshore_engine::port::SessionWatch::external_turns`].
    pub(crate) fn external_turns(&self) -> mpsc::Receiver<ExternalTurn> {
        lock(&self.receiver).take().unwrap_or_else(|| mpsc::channel(1).1)
    }

    /// Implements [`longshore_engine::port::SessionWatch::external_turn`].
    pub(crate) async fn external_turn(&self, session: &Session) -> Result<Option<ExternalTurn>> {
        let found = find_external_turn(&self.client, session).await;
        found.map_err(|cause| cause.into_error("find out what the session works on"))
    }

    /// The error because of which an external turn ended without an answer. `None`: no such error is known.
    pub(crate) fn why_failed(&self, prompt: &str) -> Option<Fault> {
        self.failed.find(prompt)
    }

    /// Whether no turn runs in a directory, as far as the gateway knows.
    pub(crate) fn is_idle(&self, directory: &str) -> bool {
        lock(&self.directories).is_idle(directory, &self.readers)
    }

    /// Stops watching an idle directory, so that it can be closed. Returns false if a turn runs or may run in it. Its sessions are
    /// watched again when a caller uses one of them.
    pub(crate) fn release(&self, directory: &str) -> bool {
        lock(&self.directories).release(directory, &self.readers)
    }

    /// Watches the sessions of a released directory again.
    pub(crate) fn watch_again(&self, directory: &str) {
        let mut directories = lock(&self.directories);
        let now = directories.now();
        if let WatchSlot::New { queue, is_active } = directories.take(directory, now, &self.readers) {
            self.spawn_watcher(directory.to_owned(), queue, is_active);
        }
    }

    /// Whether external turns in this directory are reported.
    pub(crate) fn watches(&self, directory: &str) -> bool {
        lock(&self.directories).contains(directory)
    }
}

/// Watches the sessions of one directory.
struct Watcher {
    client: Client,
    directory: String,
    failed: Arc<PromptFaults>,
    external_turns: mpsc::Sender<ExternalTurn>,
    sessions: HashMap<String, WatchedSession>,
    /// Whether an external turn that is not reported yet runs or may run. Then the directory must not be evicted.
    is_active: Arc<AtomicBool>,
    /// When all sessions are checked again because OpenCode did not respond.
    recheck_at: Option<Instant>,
    pause: Duration,
}

/// The reason why an event of a watched session could not be handled.
enum WatchError {
    /// The receiver of external turns was dropped.
    ReceiverGone,
    Call(CallError),
}

impl From<CallError> for WatchError {
    fn from(cause: CallError) -> Self {
        Self::Call(cause)
    }
}

impl Watcher {
    async fn run(mut self, mut queue: WatchQueue) {
        loop {
            let due = self.recheck_at.unwrap_or_else(Instant::now);
            let event = tokio::select! {
                biased;
                () = sleep_until(due), if self.recheck_at.is_some() => {
                    self.recheck_at = None;
                    WatchEvent::Check
                }
                event = queue.next() => {
                    // `None`: the directory is no longer watched.
                    let Some(event) = event else { return };
                    event
                }
            };
            let handled = match event {
                WatchEvent::Gap => {
                    for session_state in self.sessions.values_mut() {
                        session_state.reset();
                    }
                    self.check_all(&queue).await
                }
                WatchEvent::Check => self.check_all(&queue).await,
                WatchEvent::TurnEnded { session, is_idle } => {
                    // During its run, only the turn received the session's events, so the state here is outdated.
                    if let Some(session_state) = self.sessions.get_mut(&session) {
                        session_state.reset();
                    }
                    if is_idle { Ok(()) } else { self.check(&session).await }
                }
                WatchEvent::Event { session, is_descendant, event } => {
                    let decision = decide(self.session_state(&session), is_descendant, &event);
                    match decision {
                        Ok(Decision::Nothing) => Ok(()),
                        Ok(Decision::TurnStarted(prompt)) => {
                            if let Some(fault) = fault_in(&event) {
                                self.failed.note(&prompt, fault);
                            }
                            self.report_prompt(&session, &prompt).await
                        }
                        // An event that cannot be parsed may have been important.
                        Ok(Decision::Check) | Err(_) => self.check(&session).await,
                    }
                }
            };
            match handled {
                Ok(()) => {}
                Err(WatchError::ReceiverGone) => return,
                Err(WatchError::Call(cause)) if !cause.is_transient() => {
                    tracing::warn!(%cause, "OpenCode does not show what other clients do in a session");
                }
                Err(WatchError::Call(cause)) => {
                    tracing::debug!(%cause, "could not read from OpenCode what other clients do in a session");
                    self.recheck_at.get_or_insert(Instant::now() + self.pause);
                    self.pause = (self.pause * 2).min(LAST_RETRY);
                }
            }
            // Set before the next entry is requested, because until then the current entry counts as pending. So the directory
            // never looks idle in between.
            let is_active =
                self.recheck_at.is_some() || self.sessions.values().any(WatchedSession::is_unreported);
            self.is_active.store(is_active, Ordering::Release);
        }
    }

    fn session_state(&mut self, session: &str) -> &mut WatchedSession {
        if self.sessions.len() > MAX_SESSIONS {
            self.sessions.retain(|_, session_state| session_state.is_busy());
        }
        self.sessions.entry(session.to_owned()).or_default()
    }

    /// Checks every busy session that no turn of the gateway holds.
    async fn check_all(&mut self, queue: &WatchQueue) -> Result<(), WatchError> {
        let busy = self.client.statuses(&self.directory).await?;
        let mut failure = None;
        for session in busy.keys().filter(|session| queue.is_watched_without_turn(session)) {
            match self.check(session).await {
                // A failure for one session does not prevent the check of the others.
                Err(WatchError::Call(cause)) => failure = Some(cause),
                checked => checked?,
            }
        }
        if let Some(cause) = failure {
            return Err(cause.into());
        }
        (self.recheck_at, self.pause) = (None, FIRST_RETRY);
        Ok(())
    }

    async fn check(&mut self, session: &str) -> Result<(), WatchError> {
        let Some(session) = self.parse_session(session) else { return Ok(()) };
        let found = missing_as_none(find_external_turn(&self.client, &session).await)?;
        self.report(found).await
    }

    /// Reports the external turn that a prompt began according to the events.
    async fn report_prompt(&mut self, session: &str, prompt: &str) -> Result<(), WatchError> {
        let Some(session) = self.parse_session(session) else { return Ok(()) };
        let message = self.client.stored_message(&self.directory, session.id.as_str(), prompt).await;
        let found = missing_as_none(message.map(|message| external_turn(&session, &message)))?;
        self.report(found).await
    }

    async fn report(&mut self, found: Option<ExternalTurn>) -> Result<(), WatchError> {
        let Some(turn) = found else { return Ok(()) };
        if !self.session_state(turn.session.id.as_str()).mark_reported(turn.prompt.as_str()) {
            return Ok(());
        }
        tracing::info!(session = %turn.session.id, "another client prompted a session");
        self.external_turns.send(turn).await.map_err(|_| WatchError::ReceiverGone)
    }

    fn parse_session(&self, session: &str) -> Option<Session> {
        let id = SessionId::parse(session).ok()?;
        Some(Session { id, directory: self.directory.clone() })
    }
}

fn properties<'a, T: Deserialize<'a>>(event: &'a Event) -> serde_json::Result<T> {
    serde_json::from_slice::<Envelope<T>>(event.body()).map(|envelope| envelope.properties)
}

/// The error that the event reports, if it is an error event.
fn fault_in(event: &Event) -> Option<Fault> {
    let failed = (event.kind == EventKind::Error).then(|| properties::<SessionFailed>(event))?;
    failed.ok()?.error
}

fn decide(
    session_state: &mut WatchedSession,
    is_descendant: bool,
    event: &Event,
) -> serde_json::Result<Decision> {
    Ok(match event.kind {
        EventKind::PermissionAsked | EventKind::QuestionAsked => session_state.observe(Observation::Asked),
        _ if is_descendant => Decision::Nothing,
        EventKind::Status => {
            let StatusChanged { status } = properties(event)?;
            session_state.observe(if status.kind == "idle" { Observation::Idle } else { Observation::Busy })
        }
        EventKind::Idle => session_state.observe(Observation::Idle),
        EventKind::Error => session_state.observe(Observation::Error),
        EventKind::MessageUpdated => {
            let MessageUpdated { info, .. } = properties(event)?;
            session_state.observe(Observation::Message(&info))
        }
        EventKind::PartUpdated => {
            let PartUpdated { part } = properties(event)?;
            session_state.observe(Observation::Part(&part))
        }
        _ => Decision::Nothing,
    })
}

/// The external turn that runs in a session, if there is one.
async fn find_external_turn(client: &Client, session: &Session) -> Result<Option<ExternalTurn>, CallError> {
    let (directory, id) = (session.directory.as_str(), session.id.as_str());
    // The status is read before the messages. The session may become idle in between, but then its turn is still reported.
    if !client.statuses(directory).await?.contains_key(id) {
        return Ok(None);
    }
    // The directory's stream has no events of a session in an OpenCode workspace, so the task of such a turn would never end.
    if client.session(directory, id).await?.workspace.is_some() {
        return Ok(None);
    }
    let messages = client.newest_messages(directory, id).await?;
    let Some(work) = decide::current_work(&messages) else { return Ok(None) };
    if !work.is_from_user && !has_open_ask(client, session).await? {
        return Ok(None);
    }
    match messages.iter().find(|message| message.info.id == work.prompt) {
        Some(message) => Ok(external_turn(session, message)),
        None => Ok(external_turn(session, &client.stored_message(directory, id, work.prompt).await?)),
    }
}

/// Whether the session or a sub-agent below it has an open ask.
async fn has_open_ask(client: &Client, session: &Session) -> Result<bool, CallError> {
    let mut tree = DescendantFilter::new(client, session, Vec::new());
    for ask in client.permissions(&session.directory).await? {
        if tree.contains(&ask.session).await? {
            return Ok(true);
        }
    }
    for ask in client.questions(&session.directory).await? {
        if tree.contains(&ask.session).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Converts the message of an external prompt. `None`: the id of the message is not a valid identifier.
fn external_turn(session: &Session, message: &StoredMessage) -> Option<ExternalTurn> {
    let prompt = PromptId::parse(&message.info.id).ok()?;
    let engine_prompt = id::engine_prompt(&message.info.id).and_then(|prompt| PromptId::parse(prompt).ok());
    #[expect(
        clippy::cast_possible_truncation,
        reason = "milliseconds since the epoch; a fraction does not matter"
    )]
    let at = Timestamp(message.info.time.created as i64);
    let (session, content) = (session.clone(), content::shown_parts(&message.parts));
    Some(ExternalTurn { session, prompt, engine_prompt, content, at })
}

/// Turns "not found" into `None`, because a user may have deleted the session or the message.
fn missing_as_none<T>(found: Result<Option<T>, CallError>) -> Result<Option<T>, CallError> {
    match found {
        Err(CallError::NotFound | CallError::Invalid(_)) => Ok(None),
        found => found,
    }
}

#[cfg(test)]
mod tests;
