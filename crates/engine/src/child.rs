//! The owner of a sub-agent's task. It hears of the sub-agent from the owner of the root task, and of callers who cancel.
//!
//! It never prompts and never answers: the agent itself works with its sub-agents, and what a sub-agent asks belongs to
//! the root task, so that a client that knows only that one can answer.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use longshore_model::{AgentEvent, Failure, Outcome, Principal, PromptId, Result, TaskState, TraceContext};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::actor::{self, Inbox, Surroundings};
use crate::asks::AskNews;
use crate::files::Keeper;
use crate::lifecycle;
use crate::port::{Session, TurnRecord, on_behalf_of};
use crate::queue;
use crate::registry::Registration;
use crate::writer::Writer;

/// What the owner of the root task tells.
#[derive(Debug)]
pub(crate) enum News {
    Working(PromptId),
    Report(AgentEvent),
    Ask(AskNews),
    /// To be answered once everything before it is in the log.
    Write(oneshot::Sender<()>),
    /// The root task is over, in this state.
    RootOver(TaskState),
}

#[derive(Debug)]
pub(crate) struct ChildActor {
    pub(crate) around: Surroundings,
    pub(crate) owner: Principal,
    pub(crate) registration: Registration,
    pub(crate) inbox: queue::Receiver<Inbox>,
    pub(crate) writer: Writer,
    pub(crate) session: Session,
    pub(crate) news: queue::Receiver<News>,
}

impl ChildActor {
    pub(crate) async fn run(mut self) {
        let canceled = match AssertUnwindSafe(self.live()).catch_unwind().await {
            Err(_) => {
                tracing::error!(task = %self.writer.task().id, "the owner of a sub-agent's task panicked");
                let failure = Failure::new("The gateway failed, and how the sub-agent ended is not known.");
                let event = lifecycle::failed(self.writer.task(), self.writer.now(), failure);
                self.writer.push(event);
                // When this fails too, the next start takes the task up with its root.
                let _ = self.writer.flush(None).await;
                None
            }
            Ok(Ok(canceled)) => canceled,
            Ok(Err(error)) => {
                tracing::error!(task = %self.writer.task().id, error = ?error, "the log of a sub-agent cannot be written");
                None
            }
        };
        drop((self.inbox, self.registration, self.news));
        if let Some((since, trace)) = canceled {
            // Best effort: its root's turn goes on either way.
            let abort = actor::try_abort(&self.around, &self.session);
            let outcome = on_behalf_of(trace.map(|trace| *trace), abort).await;
            self.around.metrics.cancel_duration.of(outcome).set(since.elapsed());
        }
    }

    /// Until the task is over or the gateway stops. Says since when a caller wanted it canceled, if one did, and
    /// where that stands in its trace.
    async fn live(&mut self) -> Result<Option<(Instant, Option<Box<TraceContext>>)>> {
        loop {
            tokio::select! {
                biased;
                () = self.around.tasks.stopping().cancelled() => return Ok(None),
                message = self.inbox.recv() => match message {
                    Some(Inbox::Cancel { reply, since, trace }) => {
                        let canceled = lifecycle::canceled(self.writer.now());
                        self.writer.push(canceled);
                        self.writer.flush(None).await?;
                        // The caller may have gone; the task is canceled all the same.
                        let _ = reply.send(Ok(self.writer.snapshot()));
                        return Ok(Some((since, trace)));
                    }
                    // Answers and messages go to the owner of the root task.
                    Some(Inbox::Answer(_) | Inbox::Join(_)) | None => {}
                },
                news = self.news.recv() => {
                    // The owner of the root task lost hold of it. The next start takes up both.
                    let Some(news) = news else { return Ok(None) };
                    self.take_all(news).await?;
                    if self.writer.is_over() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Takes one piece of news and whatever else waits, then writes it all.
    async fn take_all(&mut self, first: News) -> Result<()> {
        let (mut next, mut waiting) = (Some(first), Vec::new());
        while let Some(news) = next {
            match news {
                News::Working(prompt) => {
                    let record = TurnRecord { session: self.session.clone(), prompt, joined: Vec::new() };
                    self.writer.push(lifecycle::working(self.writer.now()));
                    self.writer.flush(Some(record)).await?;
                }
                News::Report(AgentEvent::File { block, file }) => {
                    let keeper = Keeper::new(&self.owner, self.writer.task());
                    if let Some(event) = keeper.keep(self.around.clone(), block, file).await {
                        self.writer.push(event);
                    }
                }
                News::Write(written) => waiting.push(written),
                news => self.take(news),
            }
            if self.writer.is_over() || self.writer.is_full() {
                break;
            }
            next = self.news.try_recv().ok();
        }
        self.writer.flush(None).await?;
        for written in waiting {
            // The owner of the root task may have gone.
            let _ = written.send(());
        }
        Ok(())
    }

    fn take(&mut self, news: News) {
        let now = self.writer.now();
        match news {
            News::Report(AgentEvent::Usage(usage)) => self.writer.note_usage(usage),
            // A sub-agent is not prompted again, so it cannot wait for credentials.
            News::Report(AgentEvent::Ended(Outcome::AuthRequired(failure))) => {
                self.writer.take(AgentEvent::Ended(Outcome::Failed(failure)));
            }
            News::Report(report) => self.writer.take(report),
            News::Ask(AskNews::Asked(ask)) => {
                let event = lifecycle::asked(self.writer.task(), now, &ask);
                self.writer.push(event);
            }
            News::Ask(AskNews::Closed(ask, resolution)) => {
                let task = self.writer.task();
                let others = task.open_asks.iter().any(|open| open.request_id != ask.request_id);
                let event = lifecycle::child_ask_closed(task, now, &ask, resolution, others);
                self.writer.push(event);
            }
            News::RootOver(TaskState::Canceled) => self.writer.push(lifecycle::canceled(now)),
            News::RootOver(state) => {
                let text = format!(
                    "The task that this sub-agent worked for is {state}, and the sub-agent had not ended."
                );
                let event = lifecycle::failed(self.writer.task(), now, Failure::new(text));
                self.writer.push(event);
            }
            News::Working(_) | News::Write(_) => {}
        }
    }
}
