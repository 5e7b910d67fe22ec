//! The actor of a sub-agent's task. It receives the sub-agent's reports from the actor of the root task, and cancel
//! requests from callers.
//!
//! The actor never prompts the agent and never answers an ask. The agent itself prompts its sub-agents. The asks of a
//! sub-agent belong to the root task, so that a client that knows only the root task can answer them.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use longshore_meter::label::Limit;
use longshore_model::{AgentEvent, Failure, Outcome, Principal, PromptId, Result, TaskState, TraceContext};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::abort::try_abort;
use crate::actor_request::ActorRequest;
use crate::asks::AskChangeForChild;
use crate::engine_context::EngineContext;
use crate::files::FileKeeper;
use crate::lifecycle;
use crate::port::{Session, TurnRecord, with_caller_trace};
use crate::queue;
use crate::registry::Registration;
use crate::writer::Writer;

/// A message from the actor of the root task to the actor of a child task.
#[derive(Debug)]
pub(crate) enum ChildReport {
    Working(PromptId),
    Model(String),
    Report(AgentEvent),
    Ask(AskChangeForChild),
    /// A request for a reply once all earlier reports are in the log of the child task.
    Write(oneshot::Sender<()>),
    /// The root task is over, in this state.
    RootOver(TaskState),
}

#[derive(Debug)]
pub(crate) struct ChildActor {
    pub(crate) ctx: EngineContext,
    pub(crate) owner: Principal,
    pub(crate) registration: Registration,
    pub(crate) inbox: queue::Receiver<ActorRequest>,
    pub(crate) writer: Writer,
    pub(crate) session: Session,
    pub(crate) reports: queue::Receiver<ChildReport>,
}

impl ChildActor {
    pub(crate) async fn run(mut self) {
        let canceled = match AssertUnwindSafe(self.run_until_over()).catch_unwind().await {
            Err(_) => {
                tracing::error!(task = %self.writer.task().id, "the actor of a sub-agent's task panicked");
                let failure = Failure::new("The gateway failed, and how the sub-agent ended is not known.");
                let event = lifecycle::failed(self.writer.task(), self.writer.now(), failure);
                self.writer.push(event);
                // If this flush fails too, the next start resumes the child task together with its root task.
                let _ = self.writer.flush(None).await;
                None
            }
            Ok(Ok(canceled)) => canceled,
            Ok(Err(error)) => {
                tracing::error!(task = %self.writer.task().id, error = ?error, "the log of a sub-agent cannot be written");
                None
            }
        };
        drop((self.inbox, self.registration, self.reports));
        if let Some((since, trace)) = canceled {
            // The result of the abort is ignored, because the turn of the root task continues either way.
            let abort = try_abort(&self.ctx, &self.session);
            let outcome = with_caller_trace(trace.map(|trace| *trace), abort).await;
            self.ctx.metrics.cancel_duration.of(outcome).set(since.elapsed());
        }
    }

    /// Runs until the task is over or the gateway stops. If a caller canceled the task, returns the time and the trace context
    /// of the cancel.
    async fn run_until_over(&mut self) -> Result<Option<(Instant, Option<Box<TraceContext>>)>> {
        loop {
            tokio::select! {
                biased;
                () = self.ctx.tasks.stopping().cancelled() => return Ok(None),
                message = self.inbox.recv() => match message {
                    Some(ActorRequest::Cancel { reply, since, trace }) => {
                        let canceled = lifecycle::canceled(self.writer.now());
                        self.writer.push(canceled);
                        self.writer.flush(None).await?;
                        // The caller may have disconnected; the task is canceled anyway.
                        let _ = reply.send(Ok(self.writer.snapshot()));
                        return Ok(Some((since, trace)));
                    }
                    // Answers and messages go to the actor of the root task.
                    Some(ActorRequest::Answer(_) | ActorRequest::Join(_)) | None => {}
                },
                report = self.reports.recv() => {
                    // The actor of the root task ended because it could not write its log. The next start resumes both tasks.
                    let Some(report) = report else { return Ok(None) };
                    self.take_reports(report).await?;
                    if self.writer.is_over() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Takes one report and all others that wait, then writes them together.
    async fn take_reports(&mut self, first: ChildReport) -> Result<()> {
        let (mut next, mut waiting) = (Some(first), Vec::new());
        while let Some(report) = next {
            match report {
                ChildReport::Working(prompt) => {
                    let record = TurnRecord { session: self.session.clone(), prompt, joined: Vec::new() };
                    self.writer.push(lifecycle::working(self.writer.now()));
                    self.writer.flush(Some(record)).await?;
                }
                ChildReport::Report(AgentEvent::File { block, file }) => {
                    let keeper = FileKeeper::new(&self.owner, self.writer.task());
                    if let Some(event) = keeper.keep(self.ctx.clone(), block, file).await {
                        self.writer.push(event);
                    }
                }
                ChildReport::Write(written) => waiting.push(written),
                report => self.take(report),
            }
            if self.writer.is_over() || self.writer.is_full() {
                break;
            }
            next = self.reports.try_recv().ok();
        }
        self.writer.flush(None).await?;
        if self.writer.is_too_large() && !self.writer.is_over() {
            self.ctx.metrics.refused.of(Limit::TaskBytes).increment();
            let failure = lifecycle::too_large(self.ctx.config.task_bytes);
            self.writer.push(lifecycle::failed(self.writer.task(), self.writer.now(), failure));
            self.writer.flush(None).await?;
        }
        for written in waiting {
            // The actor of the root task may have ended.
            let _ = written.send(());
        }
        Ok(())
    }

    fn take(&mut self, report: ChildReport) {
        let now = self.writer.now();
        match report {
            ChildReport::Report(AgentEvent::Usage(usage)) => self.writer.note_usage(usage),
            // A sub-agent is not prompted again, so it cannot wait for credentials.
            ChildReport::Report(AgentEvent::Ended(Outcome::AuthRequired(failure))) => {
                self.writer.take(AgentEvent::Ended(Outcome::Failed(failure)));
            }
            ChildReport::Report(report) => self.writer.take(report),
            ChildReport::Model(model) => {
                let event = lifecycle::sub_agent_model(self.writer.task(), model);
                self.writer.push(event);
            }
            ChildReport::Ask(AskChangeForChild::Asked(ask)) => {
                let scope = self.ctx.config.asks.always;
                let event = lifecycle::asked(self.writer.task(), now, &ask, scope);
                self.writer.push(event);
            }
            ChildReport::Ask(AskChangeForChild::Closed { note, .. }) => {
                let task = self.writer.task();
                let others = task.open_asks.iter().any(|open| open.request_id != note.request_id);
                let event = lifecycle::child_ask_closed(task, now, note, others);
                self.writer.push(event);
            }
            ChildReport::RootOver(TaskState::Canceled) => self.writer.push(lifecycle::canceled(now)),
            ChildReport::RootOver(state) => {
                let text = format!(
                    "The task that this sub-agent worked for is {state}, and the sub-agent had not ended."
                );
                let event = lifecycle::failed(self.writer.task(), now, Failure::new(text));
                self.writer.push(event);
            }
            ChildReport::Working(_) | ChildReport::Write(_) => {}
        }
    }
}
