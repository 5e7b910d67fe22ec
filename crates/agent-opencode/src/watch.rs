//! Turns that somebody else begins in our sessions, such as in OpenCode's own interface.
//!
//! The readers hand over what happens where no turn of ours is; [`decide`] says what that is. Where events were missed OpenCode
//! is asked: at the beginning, after a gap, and when a turn of ours is over. What began and ended in a gap is not told.

mod content;
mod decide;
mod directories;
mod faults;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::reader::{WatchEvent, WatchQueue, Readers};
use crate::skim::Event;

/// Stirrings that wait for the engine. At the bound whoever watches a directory waits, and its own queue fills.
const MAX_EXTERNAL_TURNS: usize = 64;

/// Sessions of which something is remembered. At the bound those are forgotten that are idle.
const MAX_SESSIONS: usize = 1024;

/// Pause before OpenCode is asked again after it did not answer: doubled up to the last.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Watches sessions.
#[derive(Debug)]
pub(crate) struct Watch {
    client: Client,
    readers: Arc<Readers>,
    tasks: Tasks,
    directories: Mutex<Directories>,
    metrics: Arc<Metrics>,
    failed: Arc<PromptFaults>,
    external_turns: mpsc::Sender<ExternalTurn>,
    /// Until somebody asks for it.
    taken_by: Mutex<Option<mpsc::Receiver<ExternalTurn>>>,
}

impl Watch {
    /// `most`: in how many directories sessions are watched, the root among them. 0: nowhere.
    pub(crate) fn new(
        client: Client,
        readers: Arc<Readers>,
        tasks: Tasks,
        root: String,
        most: usize,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (external_turns, taken_by) = mpsc::channel(MAX_EXTERNAL_TURNS);
        let (directories, taken_by) = (Mutex::new(Directories::new(root, most)), Mutex::new(Some(taken_by)));
        let failed = Arc::default();
        Self { client, readers, tasks, directories, metrics, failed, external_turns, taken_by }
    }

    /// See [`longshore_engine::port::Control::watch`]. The first are watched rather than those behind them, and all of them rather
    /// than those that were named before, unless something is going on there.
    pub(crate) fn watch(&self, sessions: Vec<Session>) {
        let now = lock(&self.directories).now();
        for session in sessions {
            self.add(&session, false, now);
        }
    }

    /// Watches a session that was just made here, if somebody wants to observe of it. Nobody can be at work there, so OpenCode need
    /// not be asked.
    pub(crate) fn made(&self, session: &Session) {
        if lock(&self.taken_by).is_none() {
            let now = lock(&self.directories).now();
            self.add(session, true, now);
        }
    }

    /// What is below this directory is gone, and needs no place any more.
    pub(crate) fn leave(&self, directory: &str) {
        lock(&self.directories).leave(directory, &self.readers);
    }

    fn add(&self, session: &Session, is_new: bool, now: u64) {
        let mut directories = lock(&self.directories);
        match directories.take(&session.directory, now, &self.readers) {
            WatchSlot::Off => return,
            WatchSlot::None => {
                self.metrics.unwatched_sessions.increment();
                return;
            }
            WatchSlot::Old => {}
            WatchSlot::New { queue, is_active } => {
                self.notice(session.directory.clone(), queue, is_active);
            }
        }
        // Under the lock: otherwise the directory could be left before, and the session would not be among those remembered.
        self.readers.watch_session(&session.directory, session.id.as_str(), is_new);
        drop(directories);
    }

    fn notice(&self, directory: String, queue: WatchQueue, is_active: Arc<AtomicBool>) {
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

    /// See [`longshore_engine::port::Control::external_turns`].
    pub(crate) fn external_turns(&self) -> mpsc::Receiver<ExternalTurn> {
        lock(&self.taken_by).take().unwrap_or_else(|| mpsc::channel(1).1)
    }

    /// See [`longshore_engine::port::Control::external_turn`].
    pub(crate) async fn external_turn(&self, session: &Session) -> Result<Option<ExternalTurn>> {
        let found = find(&self.client, session).await;
        found.map_err(|cause| cause.into_error("see what the session is at work on"))
    }

    /// Why a prompt that was told could not be answered, if that is known.
    pub(crate) fn why_failed(&self, prompt: &str) -> Option<Fault> {
        self.failed.why(prompt)
    }

    /// Whether turns that somebody else begins there are told.
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
    /// Something is going on here of which is not told yet, or may be: the directory is not to be left.
    is_active: Arc<AtomicBool>,
    /// OpenCode did not answer: then it is asked about everything once more.
    recheck_at: Option<Instant>,
    pause: Duration,
}

/// Nobody takes what stirs.
struct ReceiverGone;

impl Watcher {
    async fn run(mut self, mut queue: WatchQueue) {
        loop {
            let due = self.recheck_at.unwrap_or_else(Instant::now);
            let noticed = tokio::select! {
                biased;
                () = sleep_until(due), if self.recheck_at.is_some() => {
                    self.recheck_at = None;
                    WatchEvent::Check
                }
                noticed = queue.next() => match noticed {
                Some(noticed) => noticed,
                // The directory is not watched any more.
                None => return,
            },
            };
            let taken = match noticed {
                WatchEvent::Gap => {
                    for session_state in self.sessions.values_mut() {
                        session_state.forget();
                    }
                    self.check_all(&queue).await
                }
                WatchEvent::Check => self.check_all(&queue).await,
                WatchEvent::TurnEnded { session, is_at_rest } => {
                    // What it did meanwhile was heard by the turn alone.
                    if let Some(session_state) = self.sessions.get_mut(&session) {
                        session_state.forget();
                    }
                    if is_at_rest { Ok(Ok(())) } else { self.check(&session).await }
                }
                WatchEvent::Event { session, is_below, event } => {
                    let decision = decide(self.session_state(&session), is_below, &event);
                    match decision {
                        Ok(Decision::Nothing) => Ok(Ok(())),
                        Ok(Decision::TurnStarted(prompt)) => {
                            if let Some(fault) = fault_in(&event) {
                                self.failed.note(&prompt, fault);
                            }
                            self.report_prompt(&session, &prompt).await
                        }
                        // What cannot be read may have been anything.
                        Ok(Decision::Check) | Err(_) => self.check(&session).await,
                    }
                }
            };
            match taken {
                Ok(Ok(())) => {}
                Ok(Err(ReceiverGone)) => return,
                Err(cause) if !cause.is_transient() => {
                    tracing::warn!(%cause, "OpenCode does not show what somebody else does in a session");
                }
                Err(cause) => {
                    tracing::debug!(%cause, "OpenCode did not say what somebody else does in a session");
                    self.recheck_at.get_or_insert(Instant::now() + self.pause);
                    self.pause = (self.pause * 2).min(LAST_RETRY);
                }
            }
            // Known before the next is asked for: until then what was taken counts as going on.
            let is_active = self.recheck_at.is_some() || self.sessions.values().any(WatchedSession::is_unreported);
            self.is_active.store(is_active, Ordering::Release);
        }
    }

    fn session_state(&mut self, session: &str) -> &mut WatchedSession {
        if self.sessions.len() > MAX_SESSIONS {
            self.sessions.retain(|_, session_state| session_state.is_busy());
        }
        self.sessions.entry(session.to_owned()).or_default()
    }

    /// Looks at every session that is busy without us.
    async fn check_all(&mut self, queue: &WatchQueue) -> Result<Result<(), ReceiverGone>, CallError> {
        let busy = self.client.statuses(&self.directory).await?;
        let mut trouble = None;
        for session in busy.keys().filter(|session| queue.is_watched_without_turn(session)) {
            match self.check(session).await {
                Ok(Ok(())) => {}
                Ok(Err(unheard)) => return Ok(Err(unheard)),
                // What goes wrong with one keeps nobody from looking at the others.
                Err(cause) => trouble = Some(cause),
            }
        }
        if let Some(cause) = trouble {
            return Err(cause);
        }
        (self.recheck_at, self.pause) = (None, FIRST_RETRY);
        Ok(Ok(()))
    }

    async fn check(&mut self, session: &str) -> Result<Result<(), ReceiverGone>, CallError> {
        let Some(session) = self.named(session) else { return Ok(Ok(())) };
        match missing_as_none(find(&self.client, &session).await)? {
            Some(external_turn) => Ok(self.tell(external_turn).await),
            None => Ok(Ok(())),
        }
    }

    /// Tells of a turn that the events told of.
    async fn report_prompt(&mut self, session: &str, prompt: &str) -> Result<Result<(), ReceiverGone>, CallError> {
        let Some(session) = self.named(session) else { return Ok(Ok(())) };
        let said = self.client.stored_message(&self.directory, session.id.as_str(), prompt).await;
        match missing_as_none(said.map(|said| external_turn(&session, &said)))? {
            Some(external_turn) => Ok(self.tell(external_turn).await),
            None => Ok(Ok(())),
        }
    }

    async fn tell(&mut self, external_turn: ExternalTurn) -> Result<(), ReceiverGone> {
        if !self.session_state(external_turn.session.id.as_str()).tell(external_turn.prompt.as_str()) {
            return Ok(());
        }
        tracing::info!(session = %external_turn.session.id, "somebody else prompts a session");
        self.external_turns.send(external_turn).await.map_err(|_| ReceiverGone)
    }

    fn named(&self, session: &str) -> Option<Session> {
        let id = SessionId::parse(session).ok()?;
        Some(Session { id, directory: self.directory.clone() })
    }
}

fn properties<'a, T: Deserialize<'a>>(event: &'a Event) -> serde_json::Result<T> {
    serde_json::from_slice::<Envelope<T>>(event.body()).map(|envelope| envelope.properties)
}

/// What went wrong, if that is what the event tells.
fn fault_in(event: &Event) -> Option<Fault> {
    let failed = (event.kind == EventKind::Error).then(|| properties::<SessionFailed>(event))?;
    failed.ok()?.error
}

fn decide(session_state: &mut WatchedSession, is_below: bool, event: &Event) -> serde_json::Result<Decision> {
    Ok(match event.kind {
        EventKind::PermissionAsked | EventKind::QuestionAsked => session_state.observe(Observation::Asked),
        _ if is_below => Decision::Nothing,
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

/// What a session is at work on without us, if it is a turn.
async fn find(client: &Client, session: &Session) -> Result<Option<ExternalTurn>, CallError> {
    let (directory, id) = (session.directory.as_str(), session.id.as_str());
    // The activity first: what is busy may be over when its messages are read, and then it is told all the same.
    if !client.statuses(directory).await?.contains_key(id) {
        return Ok(None);
    }
    // Of one that is in a workspace of OpenCode its directory hears nothing: a task of it would never end.
    if client.session(directory, id).await?.workspace.is_some() {
        return Ok(None);
    }
    let messages = client.newest_messages(directory, id).await?;
    let Some(work) = decide::current_work(&messages) else { return Ok(None) };
    if !work.is_from_user && !asks(client, session).await? {
        return Ok(None);
    }
    match messages.iter().find(|message| message.info.id == work.prompt) {
        Some(said) => Ok(external_turn(session, said)),
        None => Ok(external_turn(session, &client.stored_message(directory, id, work.prompt).await?)),
    }
}

/// Whether the session, or a sub-agent below it, asks something.
async fn asks(client: &Client, session: &Session) -> Result<bool, CallError> {
    let mut below = DescendantFilter::of(client, session, Vec::new());
    for ask in client.permissions(&session.directory).await? {
        if below.contains(&ask.session).await? {
            return Ok(true);
        }
    }
    for ask in client.questions(&session.directory).await? {
        if below.contains(&ask.session).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds these locks can panic half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None`: it has a name that is none.
fn external_turn(session: &Session, said: &StoredMessage) -> Option<ExternalTurn> {
    let prompt = PromptId::parse(&said.info.id).ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "milliseconds of the epoch, and any other moment is as good"
    )]
    let at = Timestamp(said.info.time.created as i64);
    Some(ExternalTurn { session: session.clone(), prompt, content: content::of(&said.parts), at })
}

/// A session or a message that somebody deleted is no turn.
fn missing_as_none<T>(found: Result<Option<T>, CallError>) -> Result<Option<T>, CallError> {
    match found {
        Err(CallError::NotFound | CallError::Invalid(_)) => Ok(None),
        found => found,
    }
}

#[cfg(test)]
mod tests;
