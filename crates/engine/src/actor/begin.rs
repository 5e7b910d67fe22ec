//! How a turn begins: in the session of its context, with a prompt that is on record before it is sent.

mod patience;

use std::path::Path;
use std::sync::Arc;

use longshore_model::{Error, ErrorKind, Message, Result, Retry, Role, SessionId};
use tokio::time::Instant;

use self::patience::Patience;
use super::{Actor, Begun, Prompted, RETRY_FIRST, RETRY_LONGEST, Stop, limit};
use crate::lanes::{LaneKey, Ticket};
use crate::port::{
    Admission, Binding, Bound, Input, NewSession, Prompting, Resume, Session, Turn, TurnRecord, TurnRequest,
};
use crate::simulation::Flaw;
use crate::{fail_point, intake, lifecycle};

impl Actor {
    /// Takes up a turn that an earlier run began. An agent that is away is waited for: its turn may still run.
    pub(super) async fn resume(
        &mut self,
        begun: Begun,
        prompted: &mut Option<Prompted>,
    ) -> Result<Turn, Stop> {
        let Begun { record, mut place, resumed, .. } = begun;
        self.asks.run_in(&record.session.id);
        let running = Prompting::default();
        running.mark();
        let place = self
            .unless_stopped(async {
                place.ready().await;
                place
            })
            .await?;
        *prompted = Some(Prompted { record: record.clone(), running: running.clone(), _place: place });
        // Whether the turn takes too long or is done by now, the agent knows, and may be about to come back as well.
        let deadline = self.deadline().map(|deadline| deadline.max(Instant::now() + limit::PATIENCE));
        let mut pause = RETRY_FIRST;
        loop {
            let resume = Resume {
                artifacts: self.writer.task().artifacts.clone(),
                joined: record.joined.clone(),
                children: resumed.clone(),
                open_asks: self.asks.requests(),
            };
            let resume = if self.writer.has(Flaw::NoResume) { Resume::default() } else { resume };
            match self.start_turn(&record, Vec::new(), Some(resume), running.clone()).await? {
                Ok(turn) => return Ok(turn),
                Err(error) if error.retry() == Retry::Later => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(self.fail(&error).await);
                    }
                    tracing::warn!(task = %self.writer.task().id, error = ?error, "the agent is away; will ask again");
                    self.unless_stopped(tokio::time::sleep(pause)).await?;
                    pause = (pause * 2).min(RETRY_LONGEST);
                }
                Err(error) => return Err(self.fail(&error).await),
            }
        }
    }

    /// Finds or makes the session and prompts it, durably. A session that the agent forgot is replaced once, unless
    /// the caller named it. An agent that is away is waited for while nothing was prompted.
    pub(super) async fn begin(&mut self, prompted: &mut Option<Prompted>) -> Result<Turn, Stop> {
        let (owner, context) = (self.owner.clone(), self.writer.task().context_id.clone());
        let place = self
            .ask_store(|around| {
                let (store, owner, context) = (Arc::clone(&around.store), owner.clone(), context.clone());
                async move { store.place(&owner, &context).await }
            })
            .await?;
        let directory = place.directory;
        let mut patience = Patience::new(self.around.config.start_patience);
        let mut bound = match place.bound {
            Some(bound) => bound,
            None => self.open_session(directory.clone(), None, &mut patience).await?,
        };
        self.writer.begin_turn();
        let mut may_replace = true;
        loop {
            let session = bound.session.clone();
            let place = self.wait_for_session(&session).await?;
            let input = match self.input(&session).await? {
                Ok(input) => input,
                Err(error) => return Err(self.fail(&error).await),
            };
            let prompt = self.around.agent.new_prompt();
            let record = TurnRecord { session: session.clone(), prompt, joined: Vec::new() };
            self.asks.run_in(&session.id);
            // The record of the turn goes with this event: both are durable before the agent is prompted.
            let working = lifecycle::working(self.writer.now());
            self.writer.push(working);
            self.flush(Some(record.clone())).await?;
            fail_point::hit("turn.recorded");
            self.is_running = true;
            let running = Prompting::default();
            *prompted = Some(Prompted { record: record.clone(), running: running.clone(), _place: place });
            let started = loop {
                let started = self.start_turn(&record, input.clone(), None, running.clone()).await?;
                let Err(error) = &started else { break started };
                if running.has_begun() || !self.waits_for(error, &mut patience).await? {
                    break started;
                }
            };
            match started {
                Ok(turn) => {
                    if self.writer.task().status.message.is_some() {
                        let waited = lifecycle::waited(self.writer.task());
                        self.writer.push(waited);
                        self.flush(None).await?;
                    }
                    return Ok(turn);
                }
                Err(error) if error.kind() == ErrorKind::SessionGone && may_replace && !bound.named => {
                    let forgotten = record.session.id;
                    tracing::warn!(session = %forgotten, "the agent forgot the session; making a new one");
                    may_replace = false;
                    self.is_running = false;
                    *prompted = None;
                    bound = self.open_session(directory.clone(), Some(forgotten), &mut patience).await?;
                }
                Err(error) => return Err(self.fail(&error).await),
            }
        }
    }

    async fn wait_for_session(&mut self, session: &Session) -> Result<Ticket, Stop> {
        let key = LaneKey::Session(session.id.clone());
        let mut place = self.around.lanes.enter(key, self.writer.task().id.clone());
        self.unless_stopped(async {
            place.ready().await;
            place
        })
        .await
    }

    /// The content of the newest message, checked once more: it may have waited for long.
    async fn input(&mut self, session: &Session) -> Result<Result<Vec<Input>>, Stop> {
        let newest = |message: &&Message| message.role == Role::User;
        let parts = self.writer.task().history.iter().rev().find(newest);
        let parts = parts.map(|message| message.parts.clone()).unwrap_or_default();
        let (rules, directory) = (self.around.config.intake.clone(), session.directory.clone());
        self.unless_stopped(async move { intake::prepare(&rules, Path::new(&directory), &parts).await }).await
    }

    /// Makes a session and binds the context to it. When the context was bound meanwhile, that binding stands.
    async fn open_session(
        &mut self,
        directory: Option<String>,
        replaces: Option<SessionId>,
        patience: &mut Patience,
    ) -> Result<Bound, Stop> {
        let options = self.writer.task().terms.prompt.clone();
        let session = loop {
            let (agent, directory, options) =
                (Arc::clone(&self.around.agent), directory.clone(), options.clone());
            let opened = self
                .unless_stopped(async move {
                    let directory = if let Some(directory) = directory {
                        directory
                    } else {
                        // A context of an earlier version that had no session yet.
                        let wishes =
                            Admission { directory: None, workspace: None, current: None, options: &options };
                        agent.admit(wishes).await?.directory
                    };
                    agent.open_session(NewSession { directory }).await
                })
                .await?;
            match opened {
                Ok(session) => break session,
                Err(error) if self.waits_for(&error, patience).await? => {}
                Err(error) => return Err(self.fail(&error).await),
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
        self.ask_store(|around| {
            let (store, binding) = (Arc::clone(&around.store), binding.clone());
            async move { store.bind(binding).await }
        })
        .await
    }

    /// Whether a start that failed like this is made once more, after the pause that this takes. The task tells that it
    /// waits.
    async fn waits_for(&mut self, error: &Error, patience: &mut Patience) -> Result<bool, Stop> {
        if error.kind() != ErrorKind::AgentUnavailable || error.is_lasting() {
            return Ok(false);
        }
        let deadline = self.is_running.then(|| self.deadline()).flatten();
        let Some(pause) = patience.next_pause(&self.writer.task().id, deadline) else { return Ok(false) };
        tracing::warn!(task = %self.writer.task().id, error = ?error, "the agent is away; will start the turn again");
        if self.writer.task().status.message.is_none() {
            let why = "The agent cannot be reached now. Nothing was sent to it yet; the gateway goes on trying for a while.";
            let waiting = lifecycle::waiting(self.writer.task(), why.to_owned());
            self.writer.push(waiting);
            self.flush(None).await?;
        }
        self.unless_stopped(tokio::time::sleep(pause)).await?;
        Ok(true)
    }

    async fn start_turn(
        &mut self,
        record: &TurnRecord,
        input: Vec<Input>,
        resume: Option<Resume>,
        prompting: Prompting,
    ) -> Result<Result<Turn, Error>, Stop> {
        let request = TurnRequest {
            task: self.writer.task().id.clone(),
            session: record.session.clone(),
            prompt: record.prompt.clone(),
            input,
            options: self.writer.task().terms.prompt.clone(),
            resume,
            prompting,
        };
        let agent = Arc::clone(&self.around.agent);
        self.unless_stopped(async move { agent.start_turn(request).await }).await
    }
}
