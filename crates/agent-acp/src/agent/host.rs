//! The agent's process: one for all sessions. It is started when it is first used, started again after it has died, and stopped
//! when it is idle.
//!
//! A background task starts a process and watches it until it has ended, so a caller who stops waiting for a start does not disturb
//! it. There is one process at a time, with one exception. If a session of the process is stuck (the agent does not end a turn in
//! it), the next turn starts another process, and the old one ends when its other turns have ended. So a stuck session does not
//! cost the other sessions their turns.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_meter::Metrics;
use longshore_model::{Error, ErrorKind, Result, SessionId};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::facts::AgentFacts;
use super::lease::{Lease, Live};
use crate::client::ClientConfig;
use crate::connection::{Limits, OUTPUT_ENDED};
use crate::launch::{self, Failed, Running};
use crate::process::ProcessConfig;
use crate::record;

/// The pause before a failed agent is started again. It doubles with each failure, up to the longest pause. A successful turn
/// resets it.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How many processes with a stuck session may wait for the end of their turns. At the limit, a further process with a stuck
/// session continues to get new turns until it has none.
const MAX_REPLACED: usize = 2;

/// The parts of the configuration that the host needs.
#[derive(Debug)]
pub(super) struct HostConfig {
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) limits: Limits,
    pub(super) metrics: Arc<Metrics>,
    pub(super) client: ClientConfig,
    pub(super) auth_method: Option<String>,
    pub(super) idle_stop: Option<Duration>,
}

/// How an agent process is made.
#[derive(Debug)]
pub(super) enum Source {
    Command(Box<ProcessConfig>),
    /// A test plays the agents. Each start takes the next stream.
    #[cfg(test)]
    Played(Mutex<std::collections::VecDeque<tokio::io::DuplexStream>>),
}

/// The host of the agent's processes: see the module.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) config: HostConfig,
    pub(super) tasks: Tasks,
    state: Mutex<State>,
    /// Signals each change of the state and of the number of leases.
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    /// The operator's name for the agent.
    name: String,
    phase: Phase,
    /// The replaced processes, which get no new turns and end when theirs have ended.
    replaced: Vec<Arc<Live>>,
    /// How many background tasks are starting, watching or ending a process.
    processes: usize,
    /// Whether the processes that an earlier gateway left behind have been ended.
    is_swept: bool,
    /// How many times in a row the agent has failed.
    failures: u32,
    facts: Option<AgentFacts>,
    last_session: Option<String>,
}

#[derive(Debug)]
enum Phase {
    /// The agent was never started, or was stopped on purpose. The next use starts it.
    Stopped,
    Starting,
    Running(Arc<Live>),
    /// The process is being ended. Contains the reason if the agent failed.
    Ending(Option<Error>),
    /// The agent failed, and is not started again before a certain time.
    Down {
        why: Error,
        until: Instant,
    },
    /// The gateway has stopped the agent for good.
    Over,
}

/// The reason why a process is ended.
enum Ending {
    Failed(Failed),
    /// The process was idle, or is being replaced.
    Unused,
    Over,
}

impl Host {
    pub(super) fn new(config: HostConfig, tasks: &Tasks) -> Arc<Self> {
        let state = State {
            name: config.name.clone(),
            phase: Phase::Stopped,
            replaced: Vec::new(),
            processes: 0,
            is_swept: false,
            failures: 0,
            facts: None,
            last_session: None,
        };
        Arc::new(Self {
            config,
            tasks: tasks.clone(),
            state: Mutex::new(state),
            changed: watch::channel(()).0,
        })
    }

    /// Takes a lease of the running agent, and starts the agent if necessary. Fails at once if the agent has failed and may not be
    /// started again yet.
    pub(super) async fn lease(self: &Arc<Self>) -> Result<Lease> {
        loop {
            let mut changed = self.changed.subscribe();
            {
                let mut state = self.lock();
                match &state.phase {
                    Phase::Running(live) if live.connection.is_open() => {
                        live.uses.fetch_add(1, Ordering::Relaxed);
                        return Ok(Lease { host: Arc::clone(self), live: Arc::clone(live) });
                    }
                    // Each of these phases has a time limit, so the wait ends.
                    Phase::Running(_) | Phase::Starting | Phase::Ending(_) => {}
                    Phase::Down { why, until } if Instant::now() < *until => return Err(why.clone()),
                    Phase::Stopped | Phase::Down { .. } => {
                        state.phase = Phase::Starting;
                        state.processes += 1;
                        self.tasks.spawn("acp agent", Arc::clone(self).run());
                    }
                    Phase::Over => return Err(over()),
                }
            }
            changed.changed().await.map_err(Error::internal)?;
        }
    }

    pub(super) fn one_more_use(self: &Arc<Self>, live: &Arc<Live>) -> Lease {
        let _state = self.lock();
        live.uses.fetch_add(1, Ordering::Relaxed);
        Lease { host: Arc::clone(self), live: Arc::clone(live) }
    }

    pub(super) fn one_use_less(&self, live: &Live) {
        let state = self.lock();
        live.uses.fetch_sub(1, Ordering::Relaxed);
        drop(state);
        self.changed.send_replace(());
    }

    pub(super) fn note_worked(&self) {
        self.lock().failures = 0;
    }

    pub(super) fn note_session(&self, live: &Arc<Live>, session: &str) {
        let mut state = self.lock();
        if state.is_current(live) {
            state.last_session = Some(session.to_owned());
        }
    }

    /// Whether a process may still work on a turn in this session although the turn is over in the gateway.
    pub(super) fn is_stuck(&self, session: &SessionId) -> bool {
        let state = self.lock();
        let current = match &state.phase {
            Phase::Running(live) => Some(live),
            _ => None,
        };
        state.replaced.iter().chain(current).any(|live| live.is_stuck(session))
    }

    /// Fails if the agent has failed and cannot be started yet. Succeeds if the agent does not run because nobody uses it.
    pub(super) fn check(&self) -> Result<()> {
        match &self.lock().phase {
            // The process has ended, and its watcher will record that in a moment.
            Phase::Running(live) if !live.connection.is_open() => {
                Err(unavailable(live.connection.closed().as_deref().unwrap_or(OUTPUT_ENDED)))
            }
            Phase::Ending(Some(why)) => Err(why.clone()),
            Phase::Down { why, until } if Instant::now() < *until => Err(why.clone()),
            Phase::Over => Err(over()),
            _ => Ok(()),
        }
    }

    /// Waits until a failed agent runs again, or may be started again.
    pub(super) async fn until_back(&self) {
        loop {
            let mut changed = self.changed.subscribe();
            let until = match &self.lock().phase {
                Phase::Stopped => return,
                Phase::Running(live) if live.connection.is_open() => return,
                Phase::Down { until, .. } if Instant::now() >= *until => return,
                Phase::Down { until, .. } => Some(*until),
                Phase::Running(_) | Phase::Starting | Phase::Ending(_) | Phase::Over => None,
            };
            tokio::select! {
                _ = changed.changed() => {}
                () = at(until) => return,
            }
        }
    }

    /// Waits until the state or the number of leases changes.
    pub(super) fn next_change(&self) -> impl Future<Output = ()> + use<> {
        let mut changed = self.changed.subscribe();
        async move { drop(changed.changed().await) }
    }

    /// Ends all processes for good, and waits until they have ended.
    pub(super) async fn stop(&self) {
        self.lock().set(Phase::Over);
        self.changed.send_replace(());
        loop {
            let mut changed = self.changed.subscribe();
            if self.lock().processes == 0 || changed.changed().await.is_err() {
                return;
            }
        }
    }

    pub(super) fn facts(&self) -> Option<AgentFacts> {
        let mut state = self.lock();
        state.refresh_facts();
        state.facts.clone()
    }

    /// Starts the agent, and watches its process until it has ended.
    async fn run(self: Arc<Self>) {
        let started = tokio::select! {
            biased;
            () = self.tasks.stopping().cancelled() => Err(over()),
            () = self.until_over() => Err(over()),
            started = self.launch() => started,
        };
        let live = started.as_ref().ok().map(|running| Arc::new(Live::new(running)));
        let failure = match (started, &live) {
            (Ok(running), Some(live)) => self.watch(running, live).await,
            (Err(why), _) => Some(why),
            (Ok(_), None) => None,
        };
        {
            let mut state = self.lock();
            state.processes -= 1;
            let is_replaced = live.is_some_and(|live| state.take_replaced(&live));
            match failure {
                _ if is_replaced => {}
                Some(why) => state.fail(why),
                None => state.set(Phase::Stopped),
            }
        }
        self.changed.send_replace(());
    }

    async fn launch(&self) -> Result<Running> {
        let (limits, metrics) = (self.config.limits.clone(), Arc::clone(&self.config.metrics));
        let running = match &self.config.source {
            Source::Command(command) => {
                self.sweep(command).await?;
                let client = self.config.client.clone();
                launch::launch_offering(command, limits, client, metrics, &self.tasks).await?
            }
            #[cfg(test)]
            Source::Played(agents) => {
                let next = lock(agents).pop_front();
                let pipe =
                    next.ok_or_else(|| Error::new(ErrorKind::AgentUnavailable, "No agent is left."))?;
                launch::launch_played(pipe, limits, metrics, &self.tasks).await?
            }
        };
        if let Some(method) = &self.config.auth_method
            && let Err(cause) = running.connection.authenticate(method).await
        {
            let ended = running.end().await;
            tracing::debug!(?ended, "an agent refused its login");
            return Err(cause.into_error("log in").permanent().mark_needs_credentials());
        }
        Ok(running)
    }

    /// Ends the processes that an earlier gateway left behind. Does this once.
    async fn sweep(&self, command: &ProcessConfig) -> Result<()> {
        if let Some(records) = command.records.as_ref().filter(|_| !self.lock().is_swept) {
            record::end_left_behind(records).await?;
            self.lock().is_swept = true;
        }
        Ok(())
    }

    /// Watches the process until it has ended. Returns the error if the agent failed.
    async fn watch(&self, mut running: Running, live: &Arc<Live>) -> Option<Error> {
        {
            let mut state = self.lock();
            state.last_session = None;
            state.set(Phase::Running(Arc::clone(live)));
        }
        self.changed.send_replace(());
        match self.until_unused(live, &mut running).await {
            Ending::Failed(Failed::OverMemory(most)) => {
                let why = format!(
                    "The agent was ended, because it and its tools used more than the {} MiB of memory that the operator allows.",
                    most / 1024 / 1024
                );
                self.lock().set_for(live, Phase::Ending(Some(unavailable(&why))));
                live.epitaph.send_replace(Some(why.clone()));
                let log = running.log();
                let ended = running.cut_off().await;
                tracing::warn!(agent = self.config.name, why, ?ended, log, "an agent was ended");
                Some(unavailable(&why))
            }
            Ending::Failed(Failed::Closed) => {
                let closed = live.connection.closed().unwrap_or_default();
                self.lock().set_for(live, Phase::Ending(Some(unavailable(&closed))));
                let log = running.log();
                // The exit status says more than the fact that the output was closed. Any other reason, such as a line that was too
                // long, comes from the gateway itself, and then the agent did not end by itself.
                let buried = running.bury().await;
                let why = if closed == OUTPUT_ENDED { buried } else { closed };
                tracing::warn!(agent = self.config.name, why, log, "an agent ended");
                live.epitaph.send_replace(Some(why.clone()));
                Some(unavailable(&why))
            }
            Ending::Unused | Ending::Over => {
                live.epitaph.send_replace(Some("The gateway stopped the agent.".to_owned()));
                let ended = running.end().await;
                tracing::info!(agent = self.config.name, ?ended, "an agent was stopped");
                None
            }
        }
    }

    /// Waits until the process has ended, or must be ended. In the second case nothing uses the process any more.
    async fn until_unused(&self, live: &Arc<Live>, running: &mut Running) -> Ending {
        let mut failed = std::pin::pin!(running.failed());
        loop {
            let mut changed = self.changed.subscribe();
            let may_stop = self.may_stop(live);
            let is_stuck = live.is_any_stuck();
            let is_outdated = may_stop && live.lacks_credentials.load(Ordering::Relaxed);
            if matches!(self.lock().phase, Phase::Over) {
                return Ending::Over;
            }
            if (is_stuck || is_outdated) && self.end_unused(live) {
                return Ending::Unused;
            }
            if is_stuck {
                self.replace(live);
            }
            let idle = self.config.idle_stop.filter(|_| may_stop).map(sleep);
            tokio::select! {
                biased;
                why = &mut failed => return Ending::Failed(why),
                () = self.tasks.stopping().cancelled() => return Ending::Over,
                _ = changed.changed() => {}
                () = async { match idle { Some(idle) => idle.await, None => std::future::pending().await } } => {
                    if self.end_unused(live) {
                        return Ending::Unused;
                    }
                }
            }
        }
    }

    /// Makes the next turn start another process.
    fn replace(&self, live: &Arc<Live>) {
        let mut state = self.lock();
        if !state.is_current(live) || state.replaced.len() >= MAX_REPLACED {
            return;
        }
        state.set(Phase::Stopped);
        state.replaced.push(Arc::clone(live));
        drop(state);
        self.changed.send_replace(());
    }

    /// Whether the process may be stopped although it works. If the agent cannot reopen sessions, they would be lost with their
    /// process.
    fn may_stop(&self, live: &Live) -> bool {
        let is_unused = live.uses.load(Ordering::Relaxed) == 0;
        is_unused && (live.connection.can_reopen() || self.lock().last_session.is_none())
    }

    /// Marks the process as ending if it has no leases, so that no new lease is taken. Returns whether it did.
    fn end_unused(&self, live: &Arc<Live>) -> bool {
        let mut state = self.lock();
        let is_unused = live.uses.load(Ordering::Relaxed) == 0;
        if is_unused {
            state.set_for(live, Phase::Ending(None));
        }
        is_unused
    }

    async fn until_over(&self) {
        let mut changed = self.changed.subscribe();
        while !matches!(self.lock().phase, Phase::Over) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Sets the phase. The phase `Over` is final.
    fn set(&mut self, phase: Phase) {
        self.refresh_facts();
        if !matches!(self.phase, Phase::Over) {
            self.phase = phase;
        }
    }

    /// Sets the phase of this process, unless the process was replaced.
    fn set_for(&mut self, live: &Arc<Live>, phase: Phase) {
        if self.is_current(live) {
            self.set(phase);
        }
    }

    fn is_current(&self, live: &Arc<Live>) -> bool {
        matches!(&self.phase, Phase::Running(current) if Arc::ptr_eq(current, live))
    }

    /// Removes an ended process from the replaced ones. Returns whether it was one of them.
    fn take_replaced(&mut self, live: &Arc<Live>) -> bool {
        let at = self.replaced.iter().position(|replaced| Arc::ptr_eq(replaced, live));
        at.map(|at| self.replaced.swap_remove(at)).is_some()
    }

    fn fail(&mut self, why: Error) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(10)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.set(Phase::Down { why, until: Instant::now() + pause });
    }

    fn refresh_facts(&mut self) {
        if let Phase::Running(live) = &self.phase {
            let session = self.last_session.as_ref().and_then(|session| live.connection.facts(session));
            self.facts = Some(AgentFacts::new(&self.name, live, session, self.facts.take()));
        }
    }
}

/// Waits until this time. `None`: never returns.
pub(super) async fn at(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unavailable(why: &str) -> Error {
    let text = format!("{why} The gateway starts it again when it is needed.");
    Error::new(ErrorKind::AgentUnavailable, text)
}

fn over() -> Error {
    Error::new(ErrorKind::AgentUnavailable, "The gateway stops the agent.")
}
