//! The driver of a running turn: passes the agent's events to the engine, and answers and cancels from the engine to the agent.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_engine::{ProtectedPaths, Tasks, queue};
use longshore_model::{
    AgentEvent, AgentFile, Answer, BlockKind, BlockRef, Error, ErrorKind, Failure, Outcome, PromptId,
    RequestId, Result, SessionId,
};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::host::at;
use super::lease::Lease;
use super::open_sessions::SessionUse;
use crate::translate::{FilePaths, lost};
use crate::turn::Turn;

/// How many answers and cancels of a turn may wait for its driver, which normally takes them at once. Further senders wait.
const MAX_ORDERS: usize = 64;

/// How many bytes of a turn's text are kept, to be compared with the session's history if the turn breaks off.
const MAX_HEARD: usize = 256 * 1024;

/// How long all the checks of the files of a turn may take. Nothing else is done for the turn meanwhile. Later files are withheld.
const CHECK_TIME: Duration = Duration::from_secs(5);

/// How many turns that broke off are remembered. The oldest is forgotten, and then no remark says that the agent went on with it.
const MAX_BROKEN: usize = 64;

/// An order of the engine to a running turn.
#[derive(Debug)]
enum Order {
    Reply { ask: RequestId, answer: Answer, done: oneshot::Sender<Result<()>> },
    Cancel,
}

/// The running turns, at most one for each session, and the text of turns that broke off.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    running: HashMap<SessionId, RunningTurn>,
    broken: VecDeque<(SessionId, String)>,
}

/// A handle of a running turn.
#[derive(Clone, Debug)]
pub(super) struct RunningTurn {
    pub(super) prompt: PromptId,
    orders: queue::Sender<Order>,
}

impl RunningTurn {
    /// Asks the agent to stop, and waits until the turn is over. The driver limits the duration of that wait.
    pub(super) async fn cancel(&self) {
        // An error means that the turn is already over.
        let _ = self.orders.send(Order::Cancel).await;
        self.over().await;
    }

    pub(super) async fn over(&self) {
        self.orders.closed().await;
    }

    pub(super) async fn reply(&self, ask: &RequestId, answer: &Answer) -> Result<()> {
        let (done, answered) = oneshot::channel();
        let order = Order::Reply { ask: ask.clone(), answer: answer.clone(), done };
        if self.orders.send(order).await.is_err() {
            return Err(gone());
        }
        answered.await.map_err(|_| gone())?
    }
}

impl Turns {
    pub(super) fn get(&self, session: &SessionId) -> Option<RunningTurn> {
        self.lock().running.get(session).cloned()
    }

    /// Remembers the text that the gateway received of a turn that broke off.
    pub(super) fn note_broken(&self, session: &SessionId, heard: String) {
        let mut registry = self.lock();
        registry.broken.retain(|(known, _)| known != session);
        registry.broken.push_back((session.clone(), heard));
        if registry.broken.len() > MAX_BROKEN {
            registry.broken.pop_front();
        }
    }

    pub(super) fn take_broken(&self, session: &SessionId) -> Option<String> {
        let mut registry = self.lock();
        let at = registry.broken.iter().position(|(known, _)| known == session)?;
        registry.broken.remove(at).map(|(_, heard)| heard)
    }

    /// Creates the driver of a turn that has just been prompted.
    pub(super) fn driver(self: &Arc<Self>, started: Started, events: queue::Sender<AgentEvent>) -> Driver {
        let (sender, orders) = queue::channel(MAX_ORDERS);
        let Started { turn, session, prompt, lease, using, remark, silence, patience, protected } = started;
        self.lock().running.insert(session.clone(), RunningTurn { prompt, orders: sender });
        Driver {
            turns: Arc::clone(self),
            session,
            turn,
            lease,
            using,
            remark,
            silence,
            patience,
            protected,
            orders,
            events: Some(events),
            waiting: VecDeque::new(),
            heard: String::new(),
            check_time: CHECK_TIME,
            give_up_at: None,
            was_silent: None,
            spoke_after_stop: false,
            ended: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The data of a turn that has just been prompted.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) turn: Turn,
    pub(super) session: SessionId,
    pub(super) prompt: PromptId,
    pub(super) lease: Lease,
    pub(super) using: SessionUse,
    /// A remark for the caller, which is reported when the turn is completed.
    pub(super) remark: Option<&'static str>,
    /// How long the agent may be silent without a reason. `None`: no limit.
    pub(super) silence: Option<Duration>,
    /// How long the agent may take to stop after a cancel.
    pub(super) patience: Duration,
    /// The gateway's own files, which the agent must not show to callers.
    pub(super) protected: Arc<ProtectedPaths>,
}

/// The driver: see the module.
#[derive(Debug)]
pub(super) struct Driver {
    turns: Arc<Turns>,
    session: SessionId,
    turn: Turn,
    lease: Lease,
    /// Keeps the session open during the turn.
    using: SessionUse,
    remark: Option<&'static str>,
    silence: Option<Duration>,
    patience: Duration,
    protected: Arc<ProtectedPaths>,
    orders: queue::Receiver<Order>,
    /// The queue to the engine. `None`: the engine no longer reads the events.
    events: Option<queue::Sender<AgentEvent>>,
    waiting: VecDeque<AgentEvent>,
    /// The agent's text in this turn so far.
    heard: String,
    /// How long the checks of files may still take.
    check_time: Duration,
    /// Set when the agent is asked to stop.
    give_up_at: Option<Instant>,
    /// The length of the silence because of which the agent was asked to stop. `None`: it was not silent for too long.
    was_silent: Option<Duration>,
    /// Text came after that.
    spoke_after_stop: bool,
    ended: Option<Ended>,
}

/// How a turn ended. Only a completed turn shows that the agent works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    Completed,
    Otherwise,
}

impl Driver {
    /// Runs until the agent has ended the turn, even if the engine no longer reads its events, because the session is busy until
    /// then. Ends early when the gateway stops.
    pub(super) async fn run(mut self, tasks: Tasks) {
        tokio::select! {
            biased;
            () = tasks.stopping().cancelled() => {}
            () = self.drive() => {}
        }
        if self.ended == Some(Ended::Completed) {
            self.lease.note_worked();
        }
        // Removed before the queue of orders is closed, because closing it tells waiting callers that the session is free.
        self.turns.lock().running.remove(&self.session);
        let Self { lease, using, .. } = self;
        drop(using);
        lease.trim_sessions();
    }

    async fn drive(&mut self) {
        loop {
            let (give_up_at, silent_until) = (self.give_up_at, self.silent_until());
            tokio::select! {
                biased;
                order = self.orders.recv() => match order {
                    Some(order) => self.obey(order),
                    // Does not happen while the turn is registered, because the registry holds a sender.
                    None => return,
                },
                () = at(give_up_at), if self.ended.is_none() => self.give_up(),
                () = pass_on(&mut self.events, &mut self.waiting), if !self.waiting.is_empty() => {}
                // Further events are read only when no event waits, so that the agent waits if the engine is behind.
                more = self.turn.next(), if self.waiting.is_empty() => match more {
                    Some(events) => self.take(events).await,
                    None => return,
                },
                // The silence is checked after the agent's events, so that no waiting event counts as silence.
                () = at(silent_until), if self.waiting.is_empty() => self.end_silence(),
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Reply { ask, answer, done } => {
                // The engine may no longer wait for the result.
                let _ = done.send(self.turn.reply(&ask, &answer));
            }
            Order::Cancel => self.stop(),
        }
    }

    /// Asks the agent to stop. Further calls do nothing.
    fn stop(&mut self) {
        if self.give_up_at.is_none() {
            self.give_up_at = Some(Instant::now() + self.patience);
            if let Err(error) = self.turn.cancel() {
                tracing::debug!(session = %self.session, %error, "a cancel could not be sent");
            }
        }
    }

    /// When the silence of the agent becomes too long. `None`: there is no limit, or the turn is already being stopped.
    fn silent_until(&self) -> Option<Instant> {
        let limit = self.silence.filter(|_| self.give_up_at.is_none() && self.ended.is_none())?;
        self.turn.silent_since().checked_add(limit)
    }

    fn end_silence(&mut self) {
        // The agent may meanwhile have sent a message that callers do not see.
        let is_due = self.silent_until().is_some_and(|until| until <= Instant::now());
        if is_due && !self.turn.excuse_silence() {
            tracing::warn!(session = %self.session, "an agent was silent for too long");
            self.was_silent = self.silence;
            self.stop();
        }
    }

    /// Ends the turn without the agent, which ignored the cancel. The agent may not work on a canceled turn for ever, but the turns
    /// of other sessions must not end because of it.
    fn give_up(&mut self) {
        let seconds = self.patience.as_secs_f32();
        tracing::warn!(session = %self.session, seconds, "an agent ignored a cancel");
        self.lease.free_session(self.session.as_str());
        // Set once. The deadline stays in the past, so this branch must not run again.
        self.ended = Some(Ended::Otherwise);
        self.turn.give_up("The agent did not stop when it was asked to.");
    }

    async fn take(&mut self, events: Vec<AgentEvent>) {
        for event in events {
            let mut event = match event {
                AgentEvent::File { block, file } => self.unless_protected(block, file).await,
                event => event,
            };
            match &mut event {
                AgentEvent::Text { block, text } if block.kind == BlockKind::Text => {
                    self.spoke_after_stop |= self.was_silent.is_some();
                    let room = MAX_HEARD.saturating_sub(self.heard.len());
                    self.heard.push_str(&text[..text.floor_char_boundary(room)]);
                }
                AgentEvent::Ended(outcome) => self.end(outcome),
                _ => {}
            }
            self.waiting.push_back(event);
        }
    }

    /// Withholds a file that the agent shows if it is one of the gateway's own, or if that could not be checked.
    async fn unless_protected(&mut self, block: BlockRef, file: AgentFile) -> AgentEvent {
        let paths = self.turn.take_file_paths(&block.id);
        let why = match self.is_protected(paths).await {
            Some(false) => return AgentEvent::File { block, file },
            Some(true) => "it belongs to the gateway itself",
            None => "the gateway could not check whether it belongs to the gateway itself",
        };
        tracing::warn!(session = %self.session, id = %block.id, why, "withheld a file that the agent showed");
        let reason = format!("A file of the agent was withheld: {why}.");
        AgentEvent::WithheldFile { block, name: file.name, reason }
    }

    /// Whether one of the paths is the gateway's own. `None`: that is not known.
    async fn is_protected(&mut self, paths: Option<FilePaths>) -> Option<bool> {
        let paths = paths.filter(|_| !self.check_time.is_zero())?;
        let (protected, since) = (Arc::clone(&self.protected), Instant::now());
        let check = spawn_blocking(move || paths.iter().any(|path| protected.deny(path)));
        let checked = timeout(self.check_time, check).await;
        self.check_time = self.check_time.saturating_sub(since.elapsed());
        checked.ok()?.ok()
    }

    fn end(&mut self, outcome: &mut Outcome) {
        let was_given_up = self.ended.replace(Ended::Otherwise).is_some();
        let outcome = match outcome {
            Outcome::Incomplete(outcome) => &mut **outcome,
            outcome => outcome,
        };
        if let Some(silence) = self.was_silent.filter(|_| !matches!(outcome, Outcome::AuthRequired(_))) {
            match self.turn.lost_because().filter(|_| !was_given_up) {
                Some(why) => *outcome = lost(why),
                // It came to an end while it was asked to stop.
                None if self.spoke_after_stop && matches!(outcome, Outcome::Completed { .. }) => {}
                None => *outcome = silent(silence),
            }
        }
        if let Outcome::Completed { remark } = outcome {
            self.ended = Some(Ended::Completed);
            let remarks = [self.remark, remark.as_deref()];
            let remarks: Vec<&str> = remarks.into_iter().flatten().collect();
            *remark = (!remarks.is_empty()).then(|| remarks.join(" "));
        }
        if self.turn.found_busy() {
            tracing::warn!(session = %self.session, "an agent works on a turn that is over");
            self.lease.free_session(self.session.as_str());
        }
        if matches!(outcome, Outcome::AuthRequired(_)) {
            self.lease.note_missing_credentials();
        }
        if self.lease.connection().closed().is_some() {
            self.turns.note_broken(&self.session, std::mem::take(&mut self.heard));
        }
    }
}

/// Passes the first event to the engine when there is room for it. Cancel safe.
async fn pass_on(to: &mut Option<queue::Sender<AgentEvent>>, waiting: &mut VecDeque<AgentEvent>) {
    let (Some(events), Some(first)) = (to.as_ref(), waiting.pop_front()) else {
        waiting.clear();
        return;
    };
    let is_gone = match events.try_send(first) {
        Ok(()) => false,
        Err(TrySendError::Closed(_)) => true,
        Err(TrySendError::Full(first)) => {
            // A copy waits for room, so that the event is not lost if this future is dropped.
            waiting.push_front(first.clone());
            let sent = events.send(first).await;
            waiting.pop_front();
            sent.is_err()
        }
    };
    if is_gone {
        *to = None;
    }
}

/// The outcome of a turn that was stopped after a silence of this length.
fn silent(silence: Duration) -> Outcome {
    Outcome::Failed(Failure::new(format!(
        "Nothing came from the agent for {} s, so the turn was stopped. What it had done by then is done. The provider of its \
         model may be at fault; send the message again to try once more.",
        silence.as_secs()
    )))
}

pub(super) fn gone() -> Error {
    Error::new(
        ErrorKind::InterruptNotFound,
        "This request is no longer open: it was answered, or its turn is over.",
    )
}
