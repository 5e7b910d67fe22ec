//! Begins a turn: finds its session, records the turn in the store, and only then prompts the agent.

use std::path::Path;
use std::sync::Arc;

use longshore_model::{Error, ErrorKind, Failure, Message, NativePrompt, Result, Retry, Role, Task};
use tokio::time::Instant;

use super::patience::Patience;
use super::start::EXTERNAL_TURN_POLL;
use super::{ActiveTurn, Actor, ResumedTurn, StopReason, limit};
use crate::intake::PartNames;
use crate::port::{Bound, Input, Prompting, Resume, Session, Turn, TurnRecord, with_caller};
use crate::retry::Backoff;
use crate::simulation::Flaw;
use crate::turn_limiter::TurnPermit;
use crate::turn_queue::QueueTicket;
use crate::{fail_point, held, intake, lifecycle, native_prompt};

/// State that one attempt to begin a turn passes on to the next.
struct Beginning {
    /// The directory of the context.
    directory: Option<String>,
    bound: Bound,
    patience: Patience,
    /// The permit of the turn limiter that an earlier attempt got.
    permit: Option<TurnPermit>,
    /// The ticket in the session queue of an earlier attempt, behind the external turn that goes first.
    ticket: Option<QueueTicket>,
    /// Whether a session that the agent no longer has may be replaced by a new one. Allowed once. Never allowed for a native
    /// prompt, because its caller names the session and wants the turn in that session or not at all.
    may_replace_session: bool,
    /// Since when another client of the agent has been using the session. `None`: no other client does.
    external_since: Option<Instant>,
}

/// The result of one attempt to start the turn, and when the attempt began.
struct Attempt {
    started: Result<Turn>,
    tried: Instant,
}

impl Actor {
    /// Resumes a turn that an earlier run of the gateway began. The turn may still run, so the actor waits while the agent
    /// cannot be reached. The task fails if the agent does not support resuming turns.
    pub(super) async fn resume(
        &mut self,
        resumed: ResumedTurn,
        active: &mut Option<ActiveTurn>,
    ) -> Result<Turn, StopReason> {
        let agent = self.ctx.ports.agent.describe();
        if !agent.resumes_turns {
            return Err(self.fail_with(interrupted(&agent.name)).await);
        }
        let ResumedTurn { record, ticket, known_children, .. } = resumed;
        self.asks.run_in(&record.session.id);
        let prompting = Prompting::default();
        prompting.mark();
        // Set before the first wait. The turn may be running, so if the task ends from here on, `shut_down` must also stop
        // the turn.
        let permit = self.ctx.live.limiter.enter_running(&self.owner);
        let turn = active.insert(ActiveTurn { record, prompting, ticket, permit });
        self.unless_stopped(turn.ticket.ready()).await?;
        self.load().await?;
        let ActiveTurn { record, prompting, .. } = turn;
        // The agent gets some time to become reachable even if the deadline has passed, because only the agent knows
        // whether the turn is over.
        let deadline = self.deadline(record).map(|deadline| deadline.max(Instant::now() + limit::PATIENCE));
        let mut backoff = Backoff::new();
        loop {
            let resume = Resume {
                artifacts: self.writer.task().artifacts.clone(),
                joined: record.joined.clone(),
                children: known_children.clone(),
                open_asks: self.asks.requests(),
            };
            let resume = if self.writer.has(Flaw::NoResume) { Resume::default() } else { resume };
            let request = self.turn_request(record, Vec::new(), Some(resume), prompting.clone());
            let agent = Arc::clone(&self.ctx.ports.agent);
            let back = agent.until_back();
            match self.unless_stopped(with_caller(self.owner.clone(), agent.start_turn(request))).await? {
                Ok(turn) => return Ok(turn),
                Err(error) if error.retry() == Retry::Later => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(self.fail(&error).await);
                    }
                    tracing::warn!(task = %self.writer.task().id, error = ?error, "the agent cannot be reached; will try again");
                    // The timeout ends early when the agent can be reached again.
                    let _ = self.unless_stopped(tokio::time::timeout(backoff.next_pause(), back)).await?;
                }
                Err(error) => return Err(self.fail(&error).await),
            }
        }
    }

    /// Finds or opens the session of the task, writes the turn to the store and then prompts the agent. A session that the
    /// agent no longer has is replaced once, unless the caller named it. If the agent cannot be reached and has certainly
    /// not been prompted, the task waits for it.
    pub(super) async fn begin(&mut self, active: &mut Option<ActiveTurn>) -> Result<Turn, StopReason> {
        let mut beginning = self.find_session().await?;
        self.check_prompt_session(&beginning.bound).await?;
        self.writer.begin_turn();
        loop {
            let input = self.enter_session(&mut beginning, active).await?;
            let Some(attempt) = self.attempt(&mut beginning, active, &input).await? else {
                // Another client of the agent started a turn meanwhile, and that turn goes first.
                self.reject_parked().await?;
                beginning.ticket = active.take().map(|active| active.ticket);
                continue;
            };
            match attempt.started {
                Ok(turn) => return Ok(turn),
                Err(error) => self.prepare_retry(&mut beginning, active, error, attempt.tried).await?,
            }
        }
    }

    async fn find_session(&mut self) -> Result<Beginning, StopReason> {
        let (owner, context) = (self.owner.clone(), self.writer.task().context_id.clone());
        let location = match self.new_context.take() {
            Some(location) => location,
            None => {
                self.call_store(|ctx| {
                    let (store, owner, context) =
                        (Arc::clone(&ctx.ports.store), owner.clone(), context.clone());
                    async move { store.context_location(&owner, &context).await }
                })
                .await?
            }
        };
        let directory = location.directory;
        let mut patience = Patience::new(self.ctx.config.start_patience);
        let (bound, permit) = if let Some(bound) = location.bound {
            // Watches the session again: the caller may have claimed it with this very message, or it was unused for so
            // long that it is no longer watched.
            self.ctx.ports.watch(vec![bound.session.clone()]);
            (bound, None)
        } else {
            // A task without a session does not open one before it may run: a flood of messages must not become a flood
            // of sessions.
            let permit = self.wait_for_permit().await?;
            (self.open_session(directory.clone(), None, &mut patience).await?, Some(permit))
        };
        if self.writer.task().options.native_prompt_session.is_some() {
            // Only the content says whether the newest message is still the native prompt.
            self.load().await?;
        }
        let may_replace_session = self.native_prompt().is_none();
        Ok(Beginning {
            directory,
            bound,
            patience,
            permit,
            ticket: None,
            may_replace_session,
            external_since: None,
        })
    }

    /// Fails when a native prompt names another session than the one that the context now has.
    async fn check_prompt_session(&mut self, bound: &Bound) -> Result<(), StopReason> {
        if let Some(named) = &self.writer.task().options.native_prompt_session
            && self.native_prompt().is_some()
            && *named != bound.session.id
        {
            let text =
                "The agent no longer has the session that the prompt is for. Send it to another session.";
            let gone = Error::new(ErrorKind::SessionGone, text);
            return Err(self.fail(&gone).await);
        }
        Ok(())
    }

    /// Waits for the session and for the turn limiter, and makes this the active turn.
    async fn enter_session(
        &mut self,
        beginning: &mut Beginning,
        active: &mut Option<ActiveTurn>,
    ) -> Result<Vec<Input>, StopReason> {
        let session = beginning.bound.session.clone();
        let entered = Instant::now();
        let (kept, permit) = (beginning.ticket.take(), beginning.permit.take());
        let (ticket, permit) = self.wait_for_session(&session, kept, permit).await?;
        // After a long wait other turns have run. If a client blocks the session now, it is a different client, and its
        // time is counted from zero.
        beginning.external_since =
            beginning.external_since.filter(|_| entered.elapsed() < EXTERNAL_TURN_POLL);
        self.load().await?;
        let input = match self.input(&session).await? {
            Ok(input) => input,
            Err(error) => return Err(self.fail(&error).await),
        };
        let prompt = self.ctx.new_prompt();
        self.asks.run_in(&session.id);
        let record = TurnRecord { session, prompt, joined: Vec::new() };
        *active = Some(ActiveTurn { record, prompting: Prompting::default(), ticket, permit });
        self.is_running = true;
        Ok(input)
    }

    /// Records the turn and starts it. Repeats both while the agent cannot be reached. `None`: an external turn goes first.
    async fn attempt(
        &mut self,
        beginning: &mut Beginning,
        active: &mut Option<ActiveTurn>,
        input: &[Input],
    ) -> Result<Option<Attempt>, StopReason> {
        let Some(ActiveTurn { record, prompting, ticket, .. }) = active else { return Ok(None) };
        loop {
            // The content may have been dropped while an earlier attempt waited for the agent.
            self.load().await?;
            // The event carries the record of the turn, so both are durable before the agent is prompted.
            let working = lifecycle::working(self.writer.now());
            self.mark_working();
            self.writer.push(working);
            self.flush(Some(record.clone())).await?;
            fail_point::hit("turn.recorded");
            let tried = Instant::now();
            let may_wait = beginning.patience.is_left();
            let started = self.start_turn(record, input, prompting, may_wait).await?;
            let Err(error) = &started else { return Ok(Some(Attempt { started, tried })) };
            if prompting.has_begun() || !self.waits_to_retry(error, tried, &mut beginning.patience).await? {
                return Ok(Some(Attempt { started, tried }));
            }
            if !ticket.is_still_first() {
                return Ok(None);
            }
        }
    }

    /// Handles a failed start: prepares the next attempt, or fails the task.
    async fn prepare_retry(
        &mut self,
        beginning: &mut Beginning,
        active: &mut Option<ActiveTurn>,
        error: Error,
        tried: Instant,
    ) -> Result<(), StopReason> {
        let Some(failed) = active else { return Err(self.fail(&error).await) };
        let session = failed.record.session.clone();
        match error.kind() {
            ErrorKind::SessionGone if beginning.may_replace_session && !beginning.bound.named => {
                tracing::warn!(session = %session.id, "the agent no longer has the session; opening a new one");
                beginning.may_replace_session = false;
                self.is_running = false;
                beginning.permit = active.take().map(|active| active.permit);
                self.report_unsent(
                    "The agent no longer has the session of this context, so the task begins in a new one. The agent does not know \
                     what was said in the old session.",
                )
                .await?;
                let (directory, patience) = (beginning.directory.clone(), &mut beginning.patience);
                beginning.bound = self.open_session(directory, Some(session.id), patience).await?;
                Ok(())
            }
            ErrorKind::SessionBusy
                if self.ctx.ports.session_watch().is_some() && !failed.prompting.has_begun() =>
            {
                // Releases the ticket so that other turns can go first, above all the turn that blocks the session.
                *active = None;
                let since = *beginning.external_since.get_or_insert(tried);
                if self.wait_for_external_turn(&session, since).await? {
                    return Ok(());
                }
                Err(self.fail(&error).await)
            }
            _ => Err(self.cannot_begin(&error).await),
        }
    }

    /// The content of the newest message. It is checked again, because the files may have changed while the message waited.
    async fn input(&mut self, session: &Session) -> Result<Result<Vec<Input>>, StopReason> {
        let newest = prompts(self.writer.task()).last();
        let parts = newest.map(|message| message.parts.clone()).unwrap_or_default();
        let content = self.native_prompt().map(|prompt| native_prompt::content_of_message(prompt, &parts));
        let (rules, directory) = (self.ctx.config.intake.clone(), session.directory.clone());
        self.unless_stopped(async move {
            match content {
                Some(content) => {
                    native_prompt::prepare(&rules, &directory, &content, PartNames::MESSAGE).await
                }
                None => intake::prepare(&rules, Path::new(&directory), &parts).await,
            }
        })
        .await
    }

    /// The native prompt behind the newest message. `None`: the agent is prompted with the message itself, as for every message
    /// that came after the native prompt.
    pub(super) fn native_prompt(&self) -> Option<&NativePrompt> {
        let task = self.writer.task();
        let is_first = prompts(task).count() <= 1;
        task.options.order.as_ref().filter(|_| is_first)
    }
}

fn interrupted(agent: &str) -> Failure {
    Failure::new(format!(
        "The gateway restarted while {agent} worked on this task, and {agent} cannot go on with a turn after that. What it said \
         until then is kept; look at what it did before you send the message again."
    ))
}

/// The user messages that prompt the agent. Leaves out messages that only release a held task. The first message always
/// counts as a prompt, whatever its text.
fn prompts(task: &Task) -> impl Iterator<Item = &Message> {
    let from_user = task.history.iter().filter(|message| message.role == Role::User);
    from_user
        .enumerate()
        .filter(|(at, message)| *at == 0 || !held::is_release(message))
        .map(|(_, message)| message)
}
