//! Waits for everything that a turn needs before its prompt is sent: the session, the turn limiter, and the agent.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use longshore_model::{Error, ErrorKind, Result, SessionId, Task, TaskEvent, Timestamp, TraceContext};
use tokio::time::Instant;

use super::patience::Patience;
use super::{Actor, StopReason};
use crate::engine_context::EngineContext;
use crate::port::{
    Admission, Agent, Binding, Bound, Input, NewSession, Prompting, Resume, Session, Turn, TurnRecord,
    TurnRequest, with_caller, with_caller_trace,
};
use crate::retry::{FIRST_PAUSE, LONGEST_PAUSE};
use crate::turn_limiter::TurnPermit;
use crate::turn_queue::{QueueKey, QueueTicket};
use crate::{fail_point, lifecycle, orphaned_turns};

/// How long a start may take before the gateway checks whether the agent can be reached.
const CHECK_AGENT_AFTER: Duration = Duration::from_secs(1);

/// The pauses between the checks whether an orphaned turn blocks the session of a slow start. If the last check finds none,
/// another client of the agent must be using the session, and the agent decides how long the start may take.
const CHECK_SESSION_AFTER: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(8), Duration::from_secs(20)];

/// How often the gateway checks whether another client of the agent has finished its work in the session.
pub(super) const EXTERNAL_TURN_POLL: Duration = Duration::from_millis(500);

impl Actor {
    /// Waits until another client of the agent has finished its work in the session, or that work has become a task, which then
    /// goes first. Returns whether that happened in time.
    pub(super) async fn wait_for_external_turn(
        &mut self,
        session: &Session,
        since: Instant,
    ) -> Result<bool, StopReason> {
        self.report_unsent(
            "Another client of the agent works in the session of this task. Nothing was sent for the task yet; it begins when \
             that work is over.",
        )
        .await?;
        // Done only after the log says that the task waits, because the callers of the rejected requests read that log
        // next.
        self.reject_parked().await?;
        let key = QueueKey::Session(session.id.clone());
        let allowed = self.ctx.config.wait_for_others;
        while allowed.is_none_or(|allowed| since.elapsed() < allowed) {
            self.unless_stopped(tokio::time::sleep(EXTERNAL_TURN_POLL)).await?;
            if self.ctx.live.queues.holder(&key).is_some() {
                return Ok(true);
            }
            let (ports, session) = (self.ctx.ports.clone(), session.clone());
            let is_busy = self.unless_stopped(async move { ports.is_busy(&session).await }).await?;
            // If the agent does not answer, the next attempt to start the turn gets the error.
            if !matches!(is_busy, Ok(true)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Marks in the turn's span that the agent works on the turn from now on.
    pub(super) fn mark_working(&mut self) {
        let now = self.writer.now();
        if let Some(span) = &mut self.span {
            span.works(now);
        }
    }

    /// Waits for the session, and for a permit of the turn limiter unless an earlier attempt got one.
    pub(super) async fn wait_for_session(
        &mut self,
        session: &Session,
        kept: Option<QueueTicket>,
        mut permit: Option<TurnPermit>,
    ) -> Result<(QueueTicket, TurnPermit), StopReason> {
        let mut ticket = kept.unwrap_or_else(|| {
            let key = QueueKey::Session(session.id.clone());
            self.ctx.live.queues.enter(key, self.writer.task().id.clone())
        });
        loop {
            if ticket.ready().now_or_never().is_none() {
                self.rest();
                // Returns the permit during the wait, because the turn that holds the session may itself wait for a permit.
                drop(permit.take());
                self.unless_stopped(ticket.ready()).await?;
            }
            if self.ctx.control_state.removals.affects(session) {
                self.rest();
                drop(permit.take());
                let (removals, session) = (Arc::clone(&self.ctx.control_state.removals), session.clone());
                self.unless_stopped(async move { removals.wait_until_over(&session).await }).await?;
            }
            let permit = match permit.take() {
                Some(permit) => permit,
                None => self.wait_for_permit().await?,
            };
            // Another client of the agent may have started a turn meanwhile, and that turn goes first.
            if ticket.is_still_first() {
                return Ok((ticket, permit));
            }
        }
    }

    /// Waits until the turn limiter lets the turn run.
    pub(super) async fn wait_for_permit(&mut self) -> Result<TurnPermit, StopReason> {
        let mut permit = self.ctx.live.limiter.enter(&self.owner);
        if permit.ready().now_or_never().is_none() {
            self.rest();
        }
        self.unless_stopped(permit.ready()).await?;
        Ok(permit)
    }

    /// Opens a session and binds the context to it. If another call has bound the context meanwhile, uses that binding.
    pub(super) async fn open_session(
        &mut self,
        directory: Option<String>,
        replaces: Option<SessionId>,
        patience: &mut Patience,
    ) -> Result<Bound, StopReason> {
        if directory.is_none() {
            self.load().await?;
        }
        let options = &self.writer.task().options;
        let (options, title) = (options.prompt.clone(), options.session_title.clone());
        let session = loop {
            let tried = Instant::now();
            let (agent, directory, options, title) =
                (Arc::clone(&self.ctx.ports.agent), directory.clone(), options.clone(), title.clone());
            let checked = Arc::clone(&agent);
            let opening = with_caller_trace(self.turn_trace(), async move {
                let directory = if let Some(directory) = directory {
                    directory
                } else {
                    // The store has no directory for the context, because an earlier version of the gateway created the context and
                    // had opened no session for it.
                    let admission =
                        Admission { directory: None, workspace: None, current: None, options: &options };
                    agent.admit(admission).await?.directory
                };
                agent.open_session(NewSession { directory, title }).await
            });
            let mut opening = Box::pin(with_caller(self.owner.clone(), opening));
            let opened = async {
                let nothing_sent = Prompting::default();
                tokio::select! {
                    biased;
                    opened = &mut opening => Ok(opened),
                    error = agent_unreachable(&*checked, &nothing_sent) => Err(error),
                }
            };
            let opened = match self.unless_stopped(opened).await? {
                Ok(opened) => opened,
                // The agent may be able to open the session nevertheless, so the call continues.
                Err(error) => {
                    self.report_unreachable(&error).await?;
                    self.unless_stopped(opening).await?
                }
            };
            match opened {
                Ok(session) => break session,
                Err(error) if self.waits_to_retry(&error, tried, patience).await? => {}
                Err(error) => return Err(self.cannot_begin(&error).await),
            }
        };
        fail_point::hit("session.made");
        let binding = Binding {
            owner: self.owner.clone(),
            context: self.writer.task().context_id.clone(),
            session,
            replaces,
            at: self.writer.now(),
        };
        self.call_store(|ctx| {
            let (store, binding) = (Arc::clone(&ctx.ports.store), binding.clone());
            async move { store.bind(binding).await }
        })
        .await
    }

    /// Decides whether a start that failed with this error is repeated. If so, first waits until the agent can be reached, or
    /// until the gateway may make another call to the agent. The agent has certainly received no prompt, and the log says so
    /// during the wait.
    pub(super) async fn waits_to_retry(
        &mut self,
        error: &Error,
        tried: Instant,
        patience: &mut Patience,
    ) -> Result<bool, StopReason> {
        if error.kind() == ErrorKind::UpstreamBackpressure {
            self.wait_for_capacity(error).await?;
            return Ok(true);
        }
        if !is_unreachable(error) {
            return Ok(false);
        }
        let task = self.writer.task().id.clone();
        let is_first = !patience.has_failed();
        patience.failed(tried);
        let Some(mut pause) = patience.next_pause(&task) else { return Ok(false) };
        if is_first {
            tracing::info!(%task, error = ?error, "a turn waits for the agent, which cannot be reached");
        }
        self.report_unreachable(error).await?;
        let agent = Arc::clone(&self.ctx.ports.agent);
        let mut back = agent.until_back();
        loop {
            let paused = Instant::now();
            // The timeout ends early when the agent can be reached again.
            let _ = self.unless_stopped(tokio::time::timeout(pause, back)).await?;
            // Created before the check, so that a return of the agent during the check is not missed.
            back = agent.until_back();
            let checked = self.unless_stopped(agent.check()).await?;
            patience.spend(paused);
            if checked.is_err_and(|error| is_unreachable(&error))
                && let Some(next) = patience.next_pause(&task)
            {
                pause = next;
            } else {
                // The agent can be reached again, or the time is up. In the second case the next start fails and reports its error.
                return Ok(true);
            }
        }
    }

    /// Waits while the gateway has reached its own limit of concurrent calls to the agent. That wait always ends, so it is no
    /// reason to fail an accepted task.
    async fn wait_for_capacity(&mut self, error: &Error) -> Result<(), StopReason> {
        tracing::warn!(task = %self.writer.task().id, error = ?error, "the agent has no room; will start the turn again");
        self.report_unsent(
            "The agent has as many calls of the gateway under way, or as many directories open, as it may have. Nothing was sent \
             for this task yet; it begins when there is room.",
        )
        .await?;
        let pause = error.retry_after().unwrap_or(LONGEST_PAUSE).max(FIRST_PAUSE);
        self.unless_stopped(tokio::time::sleep(pause)).await
    }

    /// Sets the task back to SUBMITTED, with a message that says why it waits. The recorded prompt was not sent, so after a
    /// restart the gateway begins the turn from the start.
    pub(super) async fn report_unsent(&mut self, why: &str) -> Result<(), StopReason> {
        self.report_waiting(why.to_owned(), lifecycle::waiting).await
    }

    /// Like [`Self::report_unsent`], for an agent that cannot be reached.
    async fn report_unreachable(&mut self, error: &Error) -> Result<(), StopReason> {
        let why = format!(
            "The agent cannot be reached now. Nothing was sent to it yet. The gateway keeps the message and tries again for \
             about {:?}; if the agent still cannot be reached then, the task fails. The reason: {error}",
            self.ctx.config.start_patience
        );
        let is_restarted = self.ctx.ports.agent.is_restarted_by_gateway();
        self.report_waiting(why, if is_restarted { lifecycle::waiting } else { lifecycle::waiting_for_agent })
            .await
    }

    async fn report_waiting(
        &mut self,
        why: String,
        event: fn(&Task, Timestamp, String) -> TaskEvent,
    ) -> Result<(), StopReason> {
        self.report_queued();
        let task = self.writer.task();
        if lifecycle::says_the_same(&task.status, &event(task, self.writer.now(), String::new())) {
            return Ok(());
        }
        self.load().await?;
        let waiting = event(self.writer.task(), self.writer.now(), why);
        self.writer.push(waiting);
        self.flush(None).await?;
        self.writer.unload();
        Ok(())
    }

    /// Starts the turn. With `may_wait`, returns an error as soon as the agent cannot be reached, so that the caller of this
    /// function can wait for the agent while the log says that no prompt was sent.
    pub(super) async fn start_turn(
        &mut self,
        record: &TurnRecord,
        input: &[Input],
        prompting: &Prompting,
        may_wait: bool,
    ) -> Result<Result<Turn>, StopReason> {
        let (ctx, running, owner) = (self.ctx.clone(), prompting.clone(), self.owner.clone());
        let bare = self.turn_request(record, Vec::new(), None, prompting.clone());
        let started = self.unless_stopped(async move {
            let (agent, session) = (&*ctx.ports.agent, &bare.session);
            let mut checks = CHECK_SESSION_AFTER.into_iter();
            loop {
                let request = TurnRequest { input: input.to_vec(), ..bare.clone() };
                let orphaned = tokio::select! {
                    // `biased`, so that `start_turn` is polled first: when another branch ends the start, `prompting` already says
                    // whether the prompt was sent.
                    biased;
                    started = with_caller(owner.clone(), agent.start_turn(request)) => return started,
                    error = agent_unreachable(agent, &running), if may_wait => return Err(error),
                    orphaned = find_orphaned(&ctx, session, &running, &mut checks) => orphaned,
                };
                // The start must not run at the same time: a prompt that it sends would be stopped with the orphaned turns. The
                // start may have waited for the session or for a free call to the agent; only the driver knows which. In the
                // second case the start loses its position among the waiting calls.
                orphaned_turns::stop_in(&ctx, &session.id, &orphaned).await;
            }
        });
        let started = started.await;
        if let Err(StopReason::Suspended) = &started
            && !prompting.has_begun()
            && !self.writer.is_over()
        {
            // If this cannot be written, the next start of the gateway looks in the agent for a prompt that was never sent, and
            // reports that the outcome is unknown.
            let why = "The gateway stopped before it had sent anything to the agent, and begins again when it is back.";
            let _ = self.report_unsent(why).await;
        }
        started
    }

    /// The trace context for work of the turn: a child of the turn's own span, if the turn has one.
    fn turn_trace(&self) -> Option<TraceContext> {
        self.span.as_ref().map(|span| span.context()).or(self.trace.as_ref()).cloned()
    }

    pub(super) fn turn_request(
        &self,
        record: &TurnRecord,
        input: Vec<Input>,
        resume: Option<Resume>,
        prompting: Prompting,
    ) -> TurnRequest {
        TurnRequest {
            task: self.writer.task().id.clone(),
            session: record.session.clone(),
            prompt: record.prompt.clone(),
            input,
            options: self.writer.task().options.prompt.clone(),
            order: self.native_prompt().cloned(),
            is_adopted: self.is_adopted(record),
            trace: self.turn_trace(),
            resume,
            prompting,
        }
    }
}

/// Whether the agent cannot be reached, but may come back by itself.
fn is_unreachable(error: &Error) -> bool {
    error.kind() == ErrorKind::AgentUnavailable && !error.is_permanent()
}

/// Waits until a check of the session finds orphaned turns that may block it. Never returns once the prompt is sent, or when
/// no checks are left. A session in which the agent does nothing is not blocked: its start is slow, perhaps because the agent
/// is opening the session, and must not be given up.
async fn find_orphaned(
    ctx: &EngineContext,
    session: &Session,
    prompting: &Prompting,
    checks: &mut impl Iterator<Item = Duration>,
) -> Vec<TurnRecord> {
    for check_after in checks {
        tokio::time::sleep(check_after).await;
        let orphaned = orphaned_turns::find_in(ctx, &session.id).await;
        let may_block = !orphaned.is_empty() && ctx.ports.is_busy(session).await.unwrap_or(true);
        if prompting.has_begun() {
            break;
        }
        if may_block {
            return orphaned;
        }
    }
    std::future::pending().await
}

/// Waits until a check of the agent fails because the agent cannot be reached, and returns that error. Never returns once
/// the prompt is sent.
async fn agent_unreachable(agent: &dyn Agent, prompting: &Prompting) -> Error {
    loop {
        tokio::time::sleep(CHECK_AGENT_AFTER).await;
        let checked = agent.check().await;
        if prompting.has_begun() {
            return std::future::pending().await;
        }
        match checked {
            Err(error) if is_unreachable(&error) => return error,
            _ => {}
        }
    }
}
