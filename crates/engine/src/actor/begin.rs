//! How a turn begins: in the session of its context, with a prompt that is on record before it is sent.

mod patience;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use longshore_model::{
    Error, ErrorKind, Message, Order, Result, Retry, Role, SessionId, TaskState, TraceContext,
};
use tokio::time::Instant;

use self::patience::Patience;
use super::{Actor, Begun, Prompted, RETRY_FIRST, RETRY_LONGEST, Stop, Surroundings, limit};
use crate::control::content;
use crate::gate::Pass;
use crate::intake::Naming;
use crate::lanes::{LaneKey, Ticket};
use crate::port::{
    Admission, Agent, Binding, Bound, Input, NewSession, Prompting, Resume, Session, Turn, TurnRecord,
    TurnRequest, on_behalf_of,
};
use crate::simulation::Flaw;
use crate::{fail_point, intake, left_turns, lifecycle};

/// How long a start may take before it is looked whether the agent is there at all.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// How long a start may take before it is looked whether a turn that is over here keeps the session, each time. After that
/// it takes as long as the agent lets it: then the session is somebody else's.
const LOOK_INTO_SESSION: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(8), Duration::from_secs(20)];

/// How often it is looked whether work of somebody else in the session is over.
const LOOK_AT_OTHERS: Duration = Duration::from_millis(500);

impl Actor {
    /// Takes up a turn that an earlier run began. An agent that is away is waited for: its turn may still run.
    pub(super) async fn resume(
        &mut self,
        begun: Begun,
        prompted: &mut Option<Prompted>,
    ) -> Result<Turn, Stop> {
        let Begun { record, place, resumed, .. } = begun;
        self.asks.run_in(&record.session.id);
        let running = Prompting::default();
        running.mark();
        // Before anything is waited for: the turn may run, so whoever ends the task has to stop it.
        let pass = self.around.gate.enter_running(&self.owner);
        let begun =
            prompted.insert(Prompted { record: record.clone(), running: running.clone(), place, pass });
        self.unless_stopped(begun.place.ready()).await?;
        // Whether the turn takes too long or is done by now, the agent knows, and may be about to come back as well.
        let deadline = self.deadline(&record).map(|deadline| deadline.max(Instant::now() + limit::PATIENCE));
        let mut pause = RETRY_FIRST;
        loop {
            let resume = Resume {
                artifacts: self.writer.task().artifacts.clone(),
                joined: record.joined.clone(),
                children: resumed.clone(),
                open_asks: self.asks.requests(),
            };
            let resume = if self.writer.has(Flaw::NoResume) { Resume::default() } else { resume };
            let request = self.turn_request(&record, Vec::new(), Some(resume), running.clone());
            let agent = Arc::clone(&self.around.agent);
            match self.unless_stopped(async move { agent.start_turn(request).await }).await? {
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
        let place = match self.new_context.take() {
            Some(place) => place,
            None => {
                self.ask_store(|around| {
                    let (store, owner, context) = (Arc::clone(&around.store), owner.clone(), context.clone());
                    async move { store.place(&owner, &context).await }
                })
                .await?
            }
        };
        let directory = place.directory;
        let mut patience = Patience::new(self.around.config.start_patience);
        // One that has no session yet does not ask for one either before it may run: a flood of messages must not become a
        // flood of sessions.
        let mut pass = None;
        let mut bound = if let Some(bound) = place.bound {
            // It may have become ours by this message alone, or may not have been used for long.
            if let Some(control) = &self.around.control {
                control.watch(vec![bound.session.clone()]);
            }
            bound
        } else {
            pass = Some(self.wait_at_gate().await?);
            self.open_session(directory.clone(), None, &mut patience).await?
        };
        if let Some(ordered_in) = &self.writer.task().terms.ordered_in
            && self.order().is_some()
            && *ordered_in != bound.session.id
        {
            let text = "The agent no longer has the session that the order is for. Give it to another one.";
            let gone = Error::new(ErrorKind::SessionGone, text);
            return Err(self.fail(&gone).await);
        }
        self.writer.begin_turn();
        // Whoever orders something in a session wants it there or not at all.
        let mut may_replace = self.order().is_none();
        // Since when somebody else has the session.
        let mut others: Option<Instant> = None;
        // Its place in the lane, when somebody else went before it there.
        let mut kept = None;
        loop {
            let session = bound.session.clone();
            let entered = Instant::now();
            let (place, admitted) = self.wait_for_session(&session, kept.take(), pass.take()).await?;
            // Others had their turn meanwhile: whoever is in the way now is somebody else.
            others = others.filter(|_| entered.elapsed() < LOOK_AT_OTHERS);
            let input = match self.input(&session).await? {
                Ok(input) => input,
                Err(error) => return Err(self.fail(&error).await),
            };
            let prompt = self.around.agent.new_prompt();
            let record = TurnRecord { session: session.clone(), prompt, joined: Vec::new() };
            self.asks.run_in(&session.id);
            let running = Prompting::default();
            *prompted =
                Some(Prompted { record: record.clone(), running: running.clone(), place, pass: admitted });
            self.is_running = true;
            let mut tried;
            let started = loop {
                // The record of the turn goes with this event: both are durable before the agent is prompted.
                let working = lifecycle::working(self.writer.now());
                self.works();
                self.writer.push(working);
                self.flush(Some(record.clone())).await?;
                fail_point::hit("turn.recorded");
                tried = Instant::now();
                let may_wait = patience.is_left();
                let started = self.try_to_start(&record, &input, &running, may_wait).await?;
                let Err(error) = &started else { break Some(started) };
                if running.has_begun() || !self.waits_for(error, tried, &mut patience).await? {
                    break Some(started);
                }
                if prompted.as_mut().is_some_and(|prompted| !prompted.place.is_still_first()) {
                    break None;
                }
            };
            let Some(started) = started else {
                // Somebody began something at the agent itself meanwhile, and that goes first.
                self.turn_away_parked().await?;
                kept = prompted.take().map(|prompted| prompted.place);
                continue;
            };
            match started {
                Ok(turn) => return Ok(turn),
                Err(error) if error.kind() == ErrorKind::SessionGone && may_replace && !bound.named => {
                    let forgotten = record.session.id;
                    tracing::warn!(session = %forgotten, "the agent forgot the session; making a new one");
                    may_replace = false;
                    self.is_running = false;
                    pass = prompted.take().map(|prompted| prompted.pass);
                    self.tell_unsent("The agent no longer has the session of this context, so the task begins in a new one.")
                        .await?;
                    bound = self.open_session(directory.clone(), Some(forgotten), &mut patience).await?;
                }
                Err(error)
                    if error.kind() == ErrorKind::SessionBusy
                        && self.around.control.is_some()
                        && !running.has_begun() =>
                {
                    // Others may go first, and what keeps the session most of all.
                    *prompted = None;
                    let since = *others.get_or_insert(tried);
                    if !self.wait_for_others(&session, since).await? {
                        return Err(self.fail(&error).await);
                    }
                }
                Err(error) => return Err(self.fail(&error).await),
            }
        }
    }

    /// Somebody else works in the session, at the agent itself. Waits until that is over, or has become a task that goes first.
    /// Says whether it did in time.
    async fn wait_for_others(&mut self, session: &Session, since: Instant) -> Result<bool, Stop> {
        self.tell_unsent(
            "Somebody else works in the session of this task, at the agent itself. Nothing was sent for the task yet; it begins \
             when that is over.",
        )
        .await?;
        // Not before the log says that it waits: whoever is turned away is told so.
        self.turn_away_parked().await?;
        let key = LaneKey::Session(session.id.clone());
        let allowed = self.around.config.wait_for_others;
        while allowed.is_none_or(|allowed| since.elapsed() < allowed) {
            self.unless_stopped(tokio::time::sleep(LOOK_AT_OTHERS)).await?;
            if self.around.lanes.holder(&key).is_some() {
                return Ok(true);
            }
            let (agent, session) = (Arc::clone(&self.around.agent), session.clone());
            let is_busy = self.unless_stopped(async move { agent.is_busy(&session).await }).await?;
            // One that cannot say so is asked for the turn.
            if !matches!(is_busy, Ok(true)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// From here on the agent is at it.
    fn works(&mut self) {
        let now = self.writer.now();
        if let Some(span) = &mut self.span {
            span.works(now);
        }
    }

    /// Waits for the session, and to be let in at the gate, unless it was before.
    async fn wait_for_session(
        &mut self,
        session: &Session,
        kept: Option<Ticket>,
        mut pass: Option<Pass>,
    ) -> Result<(Ticket, Pass), Stop> {
        let mut place = kept.unwrap_or_else(|| {
            let key = LaneKey::Session(session.id.clone());
            self.around.lanes.enter(key, self.writer.task().id.clone())
        });
        loop {
            if place.ready().now_or_never().is_none() {
                self.tell_waiting();
                // Whoever has the session may themselves wait at the gate.
                drop(pass.take());
                self.unless_stopped(place.ready()).await?;
            }
            if self.around.removals.take(session) {
                self.tell_waiting();
                drop(pass.take());
                let (removals, session) = (Arc::clone(&self.around.removals), session.clone());
                self.unless_stopped(async move { removals.over(&session).await }).await?;
            }
            let pass = match pass.take() {
                Some(pass) => pass,
                None => self.wait_at_gate().await?,
            };
            // Somebody may have begun something at the agent itself meanwhile, and that goes first.
            if place.is_still_first() {
                return Ok((place, pass));
            }
        }
    }

    /// Waits until the turn may run, as far as the number of turns goes.
    async fn wait_at_gate(&mut self) -> Result<Pass, Stop> {
        let mut pass = self.around.gate.enter(&self.owner);
        if pass.ready().now_or_never().is_none() {
            self.tell_waiting();
        }
        self.unless_stopped(pass.ready()).await?;
        Ok(pass)
    }

    /// The content of the newest message, checked once more: it may have waited for long.
    async fn input(&mut self, session: &Session) -> Result<Result<Vec<Input>>, Stop> {
        let newest = |message: &&Message| message.role == Role::User;
        let parts = self.writer.task().history.iter().rev().find(newest);
        let parts = parts.map(|message| message.parts.clone()).unwrap_or_default();
        let content = self.order().map(|order| content::of_message(order, &parts));
        let (rules, directory) = (self.around.config.intake.clone(), session.directory.clone());
        self.unless_stopped(async move {
            match content {
                Some(content) => content::prepare(&rules, &directory, &content, Naming::MESSAGE).await,
                None => intake::prepare(&rules, Path::new(&directory), &parts).await,
            }
        })
        .await
    }

    /// What the agent is ordered to do with the newest message. `None`: it is prompted with it, as with every message that came
    /// after the order.
    fn order(&self) -> Option<&Order> {
        let task = self.writer.task();
        let is_first = task.history.iter().filter(|message| message.role == Role::User).count() <= 1;
        task.terms.order.as_ref().filter(|_| is_first)
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
            let tried = Instant::now();
            let (agent, directory, options) =
                (Arc::clone(&self.around.agent), directory.clone(), options.clone());
            let opened = self
                .unless_stopped(on_behalf_of(self.trace_of_turn(), async move {
                    let directory = if let Some(directory) = directory {
                        directory
                    } else {
                        // A context of an earlier version that had no session yet.
                        let wishes =
                            Admission { directory: None, workspace: None, current: None, options: &options };
                        agent.admit(wishes).await?.directory
                    };
                    agent.open_session(NewSession { directory }).await
                }))
                .await?;
            match opened {
                Ok(session) => break session,
                Err(error) if self.waits_for(&error, tried, patience).await? => {}
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

    /// Whether a start that was tried then and failed like this is made once more, after the wait that this takes: for the
    /// agent, or for the calls that the gateway itself has under way. Surely nothing was prompted, and the log says so meanwhile.
    async fn waits_for(
        &mut self,
        error: &Error,
        tried: Instant,
        patience: &mut Patience,
    ) -> Result<bool, Stop> {
        if error.kind() == ErrorKind::UpstreamBackpressure {
            self.wait_for_the_crowd(error).await?;
            return Ok(true);
        }
        if !is_away(error) {
            return Ok(false);
        }
        let task = self.writer.task().id.clone();
        patience.failed(tried);
        let Some(mut pause) = patience.next_pause(&task) else { return Ok(false) };
        tracing::warn!(%task, error = ?error, "the agent is away; will start the turn again");
        self.tell_unsent(
            "The agent cannot be reached now. Nothing was sent to it yet; the gateway goes on trying for a while.",
        )
        .await?;
        loop {
            let paused = Instant::now();
            self.unless_stopped(tokio::time::sleep(pause)).await?;
            let agent = Arc::clone(&self.around.agent);
            let checked = self.unless_stopped(async move { agent.check().await }).await?;
            patience.spend(paused);
            if checked.is_err_and(|error| is_away(&error))
                && let Some(next) = patience.next_pause(&task)
            {
                pause = next;
            } else {
                // It is back, or it is time to give up: with the words that the start has for it.
                return Ok(true);
            }
        }
    }

    /// The agent is there, and it is our own bound that keeps the turn waiting. That passes, however long it takes, so it is
    /// no reason to fail a task that was taken on.
    async fn wait_for_the_crowd(&mut self, error: &Error) -> Result<(), Stop> {
        tracing::warn!(task = %self.writer.task().id, error = ?error, "too many calls at once; will start the turn again");
        self.tell_unsent(
            "The gateway has as many calls to the agent under way as it may have. Nothing was sent for this task yet; it begins \
             when there is room.",
        )
        .await?;
        let pause = error.retry_after().unwrap_or(RETRY_LONGEST).max(RETRY_FIRST);
        self.unless_stopped(tokio::time::sleep(pause)).await
    }

    /// The task waits, and whoever takes it up begins it: of what its record names, nothing was sent.
    async fn tell_unsent(&mut self, why: &str) -> Result<(), Stop> {
        self.tell_waiting();
        let (task, now) = (self.writer.task(), self.writer.now());
        if task.status.state == TaskState::Submitted && task.status.message.is_some() {
            return Ok(());
        }
        let waiting = lifecycle::waiting(task, now, why.to_owned());
        self.writer.push(waiting);
        self.flush(None).await
    }

    /// Starts the turn. With `may_wait` it comes back from an agent that is away: elsewhere that can be waited for without
    /// a record that says that the agent may have the prompt.
    async fn try_to_start(
        &mut self,
        record: &TurnRecord,
        input: &[Input],
        prompting: &Prompting,
        may_wait: bool,
    ) -> Result<Result<Turn>, Stop> {
        let (around, running) = (self.around.clone(), prompting.clone());
        let bare = self.turn_request(record, Vec::new(), None, prompting.clone());
        let started = self.unless_stopped(async move {
            let (agent, session) = (&*around.agent, &bare.session.id);
            let mut looks = LOOK_INTO_SESSION.into_iter();
            loop {
                let request = TurnRequest { input: input.to_vec(), ..bare.clone() };
                let left = tokio::select! {
                    // In this order: whether the prompt goes out is known when it is decided to come back.
                    biased;
                    started = agent.start_turn(request) => return started,
                    error = goes_away(agent, &running), if may_wait => return Err(error),
                    left = find_left(&around, session, &running, &mut looks) => left,
                };
                // Not beside the start: a prompt that goes out meanwhile would be stopped with the rest. With it goes its place
                // among the calls that wait, if that and not the session is what it waited for: only the driver knows.
                left_turns::stop_in(&around, session, &left).await;
            }
        });
        let started = started.await;
        if let Err(Stop::Left) = &started
            && !prompting.has_begun()
            && !self.writer.is_over()
        {
            // If it cannot be written, the next start looks for a prompt that was never sent, and says that it is not known.
            let why = "The gateway stopped before it had sent anything to the agent, and begins anew when it is back.";
            let _ = self.tell_unsent(why).await;
        }
        started
    }

    /// Where what is done for the turn stands: below its own span, if it has one.
    fn trace_of_turn(&self) -> Option<TraceContext> {
        self.span.as_ref().map(|span| span.context()).or(self.trace.as_ref()).cloned()
    }

    fn turn_request(
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
            options: self.writer.task().terms.prompt.clone(),
            order: self.order().cloned(),
            is_adopted: self.is_adopted(record),
            trace: self.trace_of_turn(),
            resume,
            prompting,
        }
    }
}

/// The agent cannot be reached, and may come back by itself.
fn is_away(error: &Error) -> bool {
    error.kind() == ErrorKind::AgentUnavailable && !error.is_lasting()
}

/// Waits until a look at the session finds turns that are over here and may keep it. For ever, once the prompt goes out, or
/// when there are no looks left.
async fn find_left(
    around: &Surroundings,
    session: &SessionId,
    prompting: &Prompting,
    looks: &mut impl Iterator<Item = Duration>,
) -> Vec<TurnRecord> {
    for look_after in looks {
        tokio::time::sleep(look_after).await;
        let left = left_turns::find_in(around, session).await;
        if prompting.has_begun() {
            break;
        }
        if !left.is_empty() {
            return left;
        }
    }
    std::future::pending().await
}

/// Waits until the agent says that it is away, and gives what it says. For ever, once the prompt goes out.
async fn goes_away(agent: &dyn Agent, prompting: &Prompting) -> Error {
    loop {
        tokio::time::sleep(LOOK_AFTER).await;
        let checked = agent.check().await;
        if prompting.has_begun() {
            return std::future::pending().await;
        }
        match checked {
            Err(error) if is_away(&error) => return error,
            _ => {}
        }
    }
}
