//! The turns that run now, by their sessions: a tool call belongs to the turn of its session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use longshore_model::{Hops, Principal, PromptId, SessionId, TaskId, TraceContext};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

use crate::call::{Call, Report};

/// How long a tool call waits for the turn of its session. A sub-agent can make a call before the gateway has read that the
/// sub-agent began.
const UNKNOWN_SESSION: Duration = Duration::from_secs(2);

/// The longer wait after the start of the gateway. A turn of the last run resumes only when its agent can be reached, and its tools
/// may be called before that.
const AFTER_START: Duration = Duration::from_secs(40);

#[derive(Debug)]
pub(crate) struct RunningTurn {
    pub(crate) task: TaskId,
    pub(crate) prompt: PromptId,
    pub(crate) owner: Principal,
    /// The chain of gateways that the turn's message came through.
    pub(crate) hops: Hops,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) reports: mpsc::Sender<Report>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many calls the task has begun, in this turn and in earlier ones.
    begun: usize,
    calls: Vec<Arc<Call>>,
    is_over: bool,
}

/// Why a turn accepts no further call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    AtOnce,
    InAll,
    Over,
}

impl RunningTurn {
    pub(crate) fn new(
        task: TaskId,
        prompt: PromptId,
        owner: Principal,
        (hops, trace): (Hops, Option<TraceContext>),
        reports: mpsc::Sender<Report>,
        begun: usize,
    ) -> Self {
        let state = Mutex::new(State { begun, ..State::default() });
        Self { task, prompt, owner, hops, trace, reports, state }
    }

    /// Adds a new call, if the limits allow it.
    pub(crate) fn begin(&self, call: &Arc<Call>, at_once: usize, in_all: usize) -> Result<(), Full> {
        let mut state = self.state();
        let open = state.calls.iter().filter(|call| !call.is_over()).count();
        if state.is_over {
            return Err(Full::Over);
        }
        if state.begun >= in_all {
            return Err(Full::InAll);
        }
        if open >= at_once {
            return Err(Full::AtOnce);
        }
        state.begun += 1;
        call.show_in(Some(self.reports.clone()));
        state.calls.push(Arc::clone(call));
        Ok(())
    }

    /// Adds a call of an earlier run of the gateway.
    pub(crate) fn adopt(&self, call: &Arc<Call>) {
        let mut state = self.state();
        if !state.is_over {
            call.show_in(Some(self.reports.clone()));
            state.calls.push(Arc::clone(call));
        }
    }

    /// Refuses further calls, and returns the calls of the turn. They no longer report to the turn.
    pub(crate) fn end(&self) -> Vec<Arc<Call>> {
        let mut state = self.state();
        state.is_over = true;
        let calls = std::mem::take(&mut state.calls);
        for call in &calls {
            call.show_in(None);
        }
        calls
    }

    pub(crate) fn calls(&self) -> Vec<Arc<Call>> {
        self.state().calls.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The running turns, by their own session and by the sessions of their sub-agents.
    running: Mutex<HashMap<SessionId, Arc<RunningTurn>>>,
    changed: Notify,
    /// When the gateway began to resume the turns of its last run. Empty: it has not yet.
    recovered: OnceLock<Instant>,
}

impl Turns {
    /// Registers the session of a turn, or of one of its sub-agents.
    pub(crate) fn add(&self, session: SessionId, turn: &Arc<RunningTurn>) {
        self.running().insert(session, Arc::clone(turn));
        self.changed.notify_waiters();
    }

    /// Records that the gateway now resumes the turns of its last run.
    pub(crate) fn recovered(&self) {
        let _ = self.recovered.set(Instant::now());
    }

    pub(crate) fn remove(&self, turn: &Arc<RunningTurn>) {
        self.running().retain(|_, running| !Arc::ptr_eq(running, turn));
    }

    /// The turn that runs in the session now, if any.
    pub(crate) fn get(&self, session: &SessionId) -> Option<Arc<RunningTurn>> {
        self.running().get(session).cloned()
    }

    /// Like [`Self::get`], but waits for a short time until a turn runs in the session.
    pub(crate) async fn find(&self, session: &SessionId) -> Option<Arc<RunningTurn>> {
        let find = async {
            loop {
                let changed = self.changed.notified();
                if let Some(turn) = self.get(session) {
                    return turn;
                }
                changed.await;
            }
        };
        let elapsed = self.recovered.get().map_or(Duration::ZERO, Instant::elapsed);
        let wait = AFTER_START.saturating_sub(elapsed).max(UNKNOWN_SESSION);
        timeout(wait, find).await.ok()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<RunningTurn>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
