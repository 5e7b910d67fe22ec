//! Carries out one call: sends the message, follows the peer's task to its end, and passes asks and answers on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_client::{Client, Error, ErrorKind, Event, Metadata, Outgoing, Part, Task, TaskStream};
use longshore_model::{AgentEvent, RequestId, Resolution, TaskState, TraceContext};
use longshore_wire::extension::Extension;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::call::{AnswerError, Call, GivenAnswer, Report};
use crate::context::Context;
use crate::place::{self, ConnectError, words};
use crate::record::{End, Ending, OpenAsk, Record, ask_id};
use crate::remote::RemoteAsk;
use crate::slots::Slot;
use crate::{ask, audit, remote, show};

/// The most attempts to send a message, as long as the peer certainly has not received it.
const SEND_ATTEMPTS: u32 = 4;

/// How long the gateway tries to reach the peer again after it lost the connection to it. Then the call ends as
/// [`Ending::Unknown`].
const LOOK_FOR_PEER: Duration = Duration::from_mins(10);

/// The first and the longest pause between two attempts. Each pause is twice the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// How long the request to cancel the peer's task may take. Then the gateway gives up.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a canceled call waits for the id of the peer's task, if the message may have arrived. Without the id, the gateway
/// cannot cancel the task.
const LEARN_TASK: Duration = Duration::from_secs(5);

/// How often the gateway polls a peer's task that waits for an answer and whose stream has ended. Somebody else may have answered.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// The most events that are read of one call. No honest task has so many, so a peer that sends more is flooding the gateway.
const MAX_EVENTS: usize = 200_000;

/// The least time between two progress lines that only say that the peer works.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The age up to which a call may send again a message that may have arrived. A Longshore peer detects repeated messages for ten
/// minutes by default. Its operator may have set a shorter time, which its card does not tell.
const RESEND_WITHIN: Duration = Duration::from_mins(1);

/// Runs a call to its end. `is_new`: its message was never sent. If the gateway stops, this returns and the call resumes after the
/// restart.
pub(crate) async fn run(
    ctx: Arc<Context>,
    call: Arc<Call>,
    mut answers: mpsc::Receiver<GivenAnswer>,
    is_new: bool,
) {
    let record = call.record();
    let limits = ctx.places.limits(&call.place);
    let spent = ctx.clock.now().0.saturating_sub(record.at.0);
    let left = limits.duration.saturating_sub(Duration::from_millis(u64::try_from(spent).unwrap_or(0)));
    // An earlier run of the gateway may have sent the message.
    let is_sent = AtomicBool::new(!is_new);
    let mut driver = Driver::new(&ctx, &call, &is_sent);
    let (mut end, is_stopped) = {
        let mut following = Box::pin(driver.follow(&mut answers, is_new));
        let (end, is_stopped) = tokio::select! {
            biased;
            () = ctx.tasks.stopping().cancelled() => return,
            () = call.cancel.cancelled() => (End::new(Ending::Canceled, "The call was canceled."), true),
            end = &mut following => (end, false),
            () = sleep(left) => (End::failed(format!(
                "The call took longer than the {} s that this gateway allows, and was canceled.",
                limits.duration.as_secs()
            )), true),
        };
        // Wait for the id of the peer's task. Without it, nobody could cancel the task.
        if is_stopped && is_sent.load(Ordering::SeqCst) && call.record().body.remote_task.is_none() {
            tokio::select! {
                _ = &mut following => {}
                () = has_task(&call) => {}
                () = sleep(LEARN_TASK) => {}
            }
        }
        (end, is_stopped)
    };
    let is_over = driver.is_remote_over || !is_sent.load(Ordering::SeqCst) || driver.cancel_remote().await;
    if is_stopped && !is_over {
        end = End::new(
            Ending::Unknown,
            format!("{} But the peer could not be told so, and may still work on it.", end.reason),
        );
    }
    finish(&ctx, &call, end).await;
}

/// Records the end of a call, and reports it to the turn.
async fn finish(ctx: &Context, call: &Call, end: End) {
    let mut record = call.record().as_ref().clone();
    let open_ask = record.body.ask.take();
    ctx.metrics.peer_calls.of(show::label(end.how)).increment();
    record.body.end = Some(end);
    ctx.store(&record).await;
    if let Some(ask) = open_ask {
        call.report(closed(ask.id, Resolution::Dropped)).await;
    }
    call.report(show::tool(&record)).await;
    if let Some(usage) = record.body.usage {
        call.report(Report::Usage { call: record.id.clone(), usage }).await;
    }
    let id = record.id.clone();
    call.change(|known| *known = record);
    // A running turn removes its calls itself when it ends.
    if !call.is_shown() {
        ctx.live().remove(&id);
    }
}

fn closed(request_id: RequestId, resolution: Resolution) -> Report {
    Report::Event(AgentEvent::AskClosed { request_id, resolution })
}

async fn has_task(call: &Call) {
    let mut view = call.view.subscribe();
    // The error cannot happen: the sender lives as long as the call.
    let _ = view.wait_for(|view| view.record.body.remote_task.is_some()).await;
}

struct Driver<'a> {
    ctx: &'a Context,
    call: &'a Call,
    /// Whether the message was sent and may have arrived.
    is_sent: &'a AtomicBool,
    client: Option<Client>,
    /// Whether the peer's task has ended, or the peer has made no task.
    is_remote_over: bool,
    /// The identity of the ask that was answered last.
    answered: Option<String>,
    /// Whether the peer gives its asks ids. A status without an id may then repeat an ask that had one.
    names_asks: bool,
    /// The id of the status message when the driver last checked what the task asks.
    seen: Option<String>,
    events: usize,
    noted: Instant,
}

/// The next thing that happens to a running call.
enum Next {
    Given(Option<GivenAnswer>),
    Event(Option<Box<Event>>),
    Look,
}

impl<'a> Driver<'a> {
    fn new(ctx: &'a Context, call: &'a Call, is_sent: &'a AtomicBool) -> Self {
        Self {
            ctx,
            call,
            is_sent,
            client: None,
            is_remote_over: false,
            answered: None,
            names_asks: false,
            seen: None,
            events: 0,
            noted: Instant::now(),
        }
    }

    fn record(&self) -> Arc<Record> {
        self.call.record()
    }

    async fn follow(&mut self, answers: &mut mpsc::Receiver<GivenAnswer>, is_new: bool) -> End {
        let record = self.record();
        // A stored call may have been sent, so a new one is stored only when it may be sent.
        let slot = self.slot(&record, is_new).await;
        if is_new && slot.is_none() {
            let (most, most_each) = (self.ctx.in_all.at_once, self.ctx.slots.most_each);
            return End::failed(format!(
                "The agents of this gateway already have {most} calls that run, or {most_each} for the same user, the most at the \
                 same time. Nothing was sent. Try again later."
            ));
        }
        if is_new {
            match self.ctx.calls.put_call(record.to_stored()).await {
                Ok(true) => {}
                Ok(false) => return End::failed("The task that calls no longer exists. Nothing was sent."),
                Err(error) => {
                    tracing::warn!(call = record.id, error = ?error, "a call of a peer could not be stored");
                    return End::failed(
                        "The gateway could not store the call, so nothing was sent. Try again later.",
                    );
                }
            }
        }
        self.call.report(show::tool(&record)).await;
        let mut may_have_arrived = !is_new;
        let (mut attempts, mut lost_since, mut pause) = (0, None::<Instant>, FIRST_PAUSE);
        loop {
            let error = match self.attempt(answers, &mut may_have_arrived, &mut lost_since, &mut pause).await
            {
                Ok(end) => return end,
                Err(error) => error,
            };
            attempts += 1;
            let has_task = self.record().body.remote_task.is_some();
            let is_passing = matches!(
                error.kind(),
                ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::Lost | ErrorKind::Unavailable
            );
            let since = *lost_since.get_or_insert_with(Instant::now);
            let may_retry = if has_task || may_have_arrived {
                since.elapsed() < LOOK_FOR_PEER
            } else {
                attempts < SEND_ATTEMPTS
            };
            if !is_passing || !may_retry {
                let unknown = is_passing && (has_task || may_have_arrived);
                let how = if unknown { Ending::Unknown } else { Ending::Failed };
                return End::new(how, words(&error));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A slot among the calls of all tasks. A new call waits for one. `None`: it waited too long. A call of an earlier run had one
    /// there, and its peer may wait for an answer: it goes on without, if all are taken.
    async fn slot(&self, record: &Record, is_new: bool) -> Option<Slot> {
        let slots = &self.ctx.slots;
        let slot = slots.try_take(&record.owner);
        if slot.is_some() || !is_new {
            return slot;
        }
        self.call.note("waits until another call of this gateway has ended".to_owned());
        timeout(self.ctx.in_all.wait, slots.take(&record.owner)).await.ok()
    }

    /// Connects, sends the message or subscribes to the peer's task, and follows the task until it ends or the connection breaks.
    async fn attempt(
        &mut self,
        answers: &mut mpsc::Receiver<GivenAnswer>,
        may_have_arrived: &mut bool,
        lost_since: &mut Option<Instant>,
        pause: &mut Duration,
    ) -> Result<End, Error> {
        let record = self.record();
        let client = if let Some(client) = &self.client {
            client.clone()
        } else {
            let trace = record.body.trace.as_deref().and_then(TraceContext::parse);
            let client = match self.ctx.places.connect(&self.call.place, trace).await {
                Ok(client) => client,
                Err(ConnectError::Client(error)) => return Err(error),
                Err(ConnectError::Refused(reason)) => {
                    let caller = Some((&record.owner, &record.task));
                    audit::refused(caller, &record.body.session, &record.body.peer, &reason);
                    return Ok(End::failed(reason));
                }
            };
            self.client.insert(client).clone()
        };
        let mut stream = if let Some(task) = &record.body.remote_task {
            match client.subscribe(task).await {
                Err(error) if error.kind() == ErrorKind::TaskNotFound => {
                    self.is_remote_over = true;
                    let text = "The peer no longer knows the task of the call, so how it ended is not known.";
                    return Ok(End::new(Ending::Unknown, text));
                }
                stream => stream?,
            }
        } else {
            if *may_have_arrived && !self.may_send_again(&client, &record).await? {
                return Ok(End::new(
                    Ending::Unknown,
                    "Whether the message reached the peer is not known: the connection was lost, or a server between did not pass on \
                     an answer. The peer does not say that it knows a repeated message again, so it was not sent again.",
                ));
            }
            self.is_sent.store(true, Ordering::SeqCst);
            match client.stream(outgoing(&record)).await {
                Err(error) => {
                    *may_have_arrived |= error.may_have_arrived();
                    self.is_sent.store(*may_have_arrived, Ordering::SeqCst);
                    return Err(error);
                }
                Ok(stream) => stream,
            }
        };
        *may_have_arrived = true;
        let followed = self.take_all(&client, &mut stream, answers, lost_since, pause).await;
        if let Err(error) = &followed
            && matches!(error.kind(), ErrorKind::TaskNotFound)
        {
            self.is_remote_over = true;
        }
        followed
    }

    /// Whether a repeated message is safe: the peer says that it detects repeated message ids, and the call is young enough.
    async fn may_send_again(&self, client: &Client, record: &Record) -> Result<bool, Error> {
        let age = self.ctx.clock.now().0.saturating_sub(record.at.0);
        if u128::try_from(age).unwrap_or(0) > RESEND_WITHIN.as_millis() {
            return Ok(false);
        }
        let Some(card) = client.card() else { return Ok(false) };
        if says_that_it_deduplicates(&card.json, 0) {
            return Ok(true);
        }
        if !card.has_extended {
            return Ok(false);
        }
        match client.extended_card().await {
            Ok(card) => Ok(says_that_it_deduplicates(&card, 0)),
            Err(error) if matches!(error.retry(), longshore_client::Retry::Later(_)) => Err(error),
            Err(_) => Ok(false),
        }
    }

    async fn take_all(
        &mut self,
        client: &Client,
        stream: &mut TaskStream,
        answers: &mut mpsc::Receiver<GivenAnswer>,
        lost_since: &mut Option<Instant>,
        pause: &mut Duration,
    ) -> Result<End, Error> {
        let mut has_stream_ended = false;
        loop {
            let next = tokio::select! {
                given = answers.recv() => Next::Given(given),
                event = stream.next(), if !has_stream_ended => Next::Event(event?.map(Box::new)),
                () = sleep(LOOK_EVERY), if has_stream_ended => Next::Look,
            };
            match next {
                Next::Given(Some(given)) => {
                    if self.answer(stream, given).await {
                        has_stream_ended = false;
                    }
                }
                // Unreachable: the call, with the sender, lives as long as this function.
                Next::Given(None) => {}
                Next::Look => {
                    let task = self.record().body.remote_task.clone().unwrap_or_default();
                    let now = client.get(&task).await?;
                    if now.status.state == Some(TaskState::InputRequired) {
                        // The task may wait for the same answer again, so an ask that was answered before is shown again.
                        let asked = remote::ask(&now, &Metadata::new());
                        if let Some(end) = self.show_ask(asked, true).await {
                            return Ok(end);
                        }
                    } else {
                        *stream = client.subscribe(&task).await?;
                        has_stream_ended = false;
                    }
                }
                Next::Event(event) => {
                    (*lost_since, *pause) = (None, FIRST_PAUSE);
                    has_stream_ended = event.is_none();
                    if let Some(end) = self.take(client, stream.task(), event.as_deref()).await? {
                        return Ok(end);
                    }
                }
            }
        }
    }

    /// Handles an event of the stream. `event`: `None` at the end of the stream. Returns how the call ended, if it did.
    async fn take(
        &mut self,
        client: &Client,
        task: Option<&Task>,
        event: Option<&Event>,
    ) -> Result<Option<End>, Error> {
        let limit = self.ctx.places.limits(&self.call.place).result_bytes;
        self.events += 1;
        if self.events > MAX_EVENTS {
            return Ok(Some(End::failed(
                "The peer sent more events than this gateway reads, and the call was canceled.",
            )));
        }
        if let Some(Event::Message(message)) = event {
            self.is_remote_over = true;
            let said = remote::said_in(message, limit);
            let context = Some(message.context_id.clone()).filter(|context| !context.is_empty());
            self.call.change(|record| record.body.context = context.or(record.body.context.take()));
            return Ok(Some(completed(said)));
        }
        let Some(task) = task else {
            return Ok(event.is_none().then(|| End::failed("The peer ended its answer without a task.")));
        };
        let is_last = event.is_none();
        if let Some(event) = event {
            self.learn(task, event).await;
        }
        let state = task.status.state;
        Ok(match state {
            Some(TaskState::Completed) => {
                self.is_remote_over = true;
                Some(completed(remote::said(task, limit)))
            }
            Some(TaskState::Failed | TaskState::Rejected | TaskState::Canceled) => {
                self.is_remote_over = true;
                let said = remote::said(task, limit);
                let reason = reason(task, state);
                Some(End { text: said.text, artifacts: said.artifacts, ..End::failed(reason) })
            }
            Some(TaskState::AuthRequired) => Some(End::failed(
                "The peer lacks credentials that it needs for its own work. Its operator must give them to it. The call was canceled.",
            )),
            Some(TaskState::InputRequired) => return self.asked(client, task, event).await,
            _ if is_last => Some(End::failed(
                "The peer ended its stream before the task was over, and the task was canceled.",
            )),
            _ => {
                self.answered = None;
                self.close_ask().await;
                None
            }
        })
    }

    /// Stores the usage, the task's id and the progress that an event reports.
    async fn learn(&mut self, task: &Task, event: &Event) {
        let record = self.record();
        let usage =
            remote::metadata(event).and_then(remote::usage).filter(|usage| record.body.usage != Some(*usage));
        if let Some(usage) = usage {
            self.call.change(|record| record.body.usage = Some(usage));
            self.call.report(Report::Usage { call: record.id.clone(), usage }).await;
        }
        if record.body.remote_task.is_none() && !task.id.is_empty() {
            let context = Some(task.context_id.clone()).filter(|context| !context.is_empty());
            self.call.change(|record| {
                record.body.remote_task = Some(task.id.clone());
                record.body.context = context.or(record.body.context.take());
            });
            let record = self.record();
            self.ctx.store(&record).await;
            self.call.report(show::tool(&record)).await;
        }
        let name = self.call.place.name();
        match remote::line(event) {
            Some(line) => {
                self.noted = Instant::now();
                self.call.note(format!("{name}: {line}"));
            }
            None if self.noted.elapsed() >= LINE_EVERY => {
                self.noted = Instant::now();
                self.call.note(format!("{name} works ({} events)", self.events));
            }
            None => {}
        }
    }

    /// Handles a task that waits for input: finds out what the peer asks now. The event alone may not tell, for example if it only
    /// changes the title of the task, or reports that one of several asks is closed.
    async fn asked(
        &mut self,
        client: &Client,
        task: &Task,
        event: Option<&Event>,
    ) -> Result<Option<End>, Error> {
        let none = Metadata::new();
        let metadata = event.and_then(remote::metadata).unwrap_or(&none);
        let mut asked = remote::ask(task, metadata);
        self.names_asks |= asked.id.is_some();
        let open = self.record().body.ask.clone();
        let is_last = event.is_none();
        if is_last && open.is_some() {
            return Ok(None);
        }
        if self.names_asks || lists_interrupts(client) {
            let message = task.status.message.as_ref();
            let message = message.map(|message| message.message_id.clone()).unwrap_or_default();
            let is_seen = self.seen.as_ref() == Some(&message);
            self.seen = Some(message);
            let must_read = match (&asked.id, open.and_then(|open| open.remote)) {
                (Some(id), Some(open)) => *id != open,
                (Some(_), None) => false,
                (None, _) => is_last || !is_seen || remote::is_resolved(metadata),
            };
            if asked.id.is_none() && !must_read {
                return Ok(None);
            }
            if must_read {
                // If several asks are open, the task names the oldest one.
                let now = client.get(&task.id).await?;
                if now.status.state != Some(TaskState::InputRequired) {
                    return Ok(None);
                }
                asked = remote::ask(&now, &none);
            }
        }
        // A peer whose asks have no ids may ask the same again. It then ends its stream.
        let may_repeat = is_last && asked.id.is_none();
        Ok(self.show_ask(asked, may_repeat).await)
    }

    /// Shows an ask on the calling task, unless it is open there already. `may_repeat`: also show an ask that was just answered.
    async fn show_ask(&mut self, mut asked: RemoteAsk, may_repeat: bool) -> Option<End> {
        let record = self.record();
        let open = record.body.ask.as_ref();
        let names_asks = self.names_asks || self.client.as_ref().is_some_and(lists_interrupts);
        if asked.id.is_none() && names_asks {
            if open.is_some() {
                return None;
            }
            // The peer has not said what kind of ask this is. It may be a permission request, which only the user may answer.
            asked.is_for_user = true;
        }
        let is_known = open.is_some_and(|open| open.identity == asked.identity);
        let is_answered = self.answered.as_ref() == Some(&asked.identity);
        if is_known || (is_answered && !may_repeat) {
            return None;
        }
        self.close_ask().await;
        let limits = self.ctx.places.limits(&self.call.place);
        let number = record.body.asks + 1;
        if number > limits.asks {
            return Some(End::failed(format!(
                "The peer asked more often than the {} times that this gateway allows, and the call was canceled.",
                limits.asks
            )));
        }
        let shown = ask::of_task(
            &ask_id(&record.id, number),
            self.call.place.name(),
            &asked,
            &record.body.session,
            record.body.tool_call.clone(),
        );
        let open = OpenAsk {
            id: shown.request_id.clone(),
            question: asked.question.clone(),
            identity: asked.identity,
            is_permission: asked.is_for_user,
            remote: asked.id,
            shown: Box::new(shown.clone()),
        };
        self.call.change(|record| {
            record.body.asks = number;
            record.body.ask = Some(open);
        });
        self.ctx.store(&self.record()).await;
        self.call.report(Report::Event(AgentEvent::Asked(Box::new(shown)))).await;
        self.call.note(format!(
            "{} asks: {}",
            self.call.place.name(),
            asked.question.lines().next().unwrap_or_default()
        ));
        None
    }

    /// Closes the open ask, if there is one: somebody else has answered it.
    async fn close_ask(&self) {
        let Some(ask) = self.record().body.ask.clone() else { return };
        self.call.change(|record| record.body.ask = None);
        self.ctx.store(&self.record()).await;
        self.call.report(closed(ask.id, Resolution::Elsewhere)).await;
    }

    /// Sends an answer to the peer. Returns whether the peer accepted it.
    async fn answer(&mut self, stream: &mut TaskStream, given: GivenAnswer) -> bool {
        let GivenAnswer { ask, answer, key, done } = given;
        let record = self.record();
        let open = record.body.ask.clone().filter(|open| ask.as_ref().is_none_or(|ask| *ask == open.id));
        let Some(open) = open.filter(|open| !(key.is_some() && open.is_permission)) else {
            let _ = done.send(Err(AnswerError::NotOpen));
            return false;
        };
        if let Some(key) = &key {
            self.call.change(|record| record.note_answer(key, &open.id));
            self.ctx.store(&self.record()).await;
        }
        let parts = ask::parts(&open, &answer);
        let mut message =
            Outgoing::new(format!("{}-answer-{}", record.message_id(), record.body.asks), parts);
        (message.task_id, message.context_id) =
            (record.body.remote_task.clone(), record.body.context.clone());
        message.metadata = metadata(&record);
        match stream.send(message).await {
            Ok(()) => {
                self.answered = Some(open.identity);
                self.call.change(|record| record.body.ask = None);
                self.ctx.store(&self.record()).await;
                if key.is_some() {
                    self.call.report(closed(open.id, Resolution::Elsewhere)).await;
                }
                let _ = done.send(Ok(()));
                true
            }
            Err(error) => {
                let may_retry = matches!(error.retry(), longshore_client::Retry::Later(_));
                let _ = done.send(Err(AnswerError::Refused { reason: words(&error), may_retry }));
                false
            }
        }
    }

    /// Cancels the peer's task, if its id is known. Gives up after [`CANCEL_TIMEOUT`]. Returns whether the task is over.
    async fn cancel_remote(&self) -> bool {
        let Some(task) = self.record().body.remote_task.clone() else { return false };
        let canceling = async {
            let client = match &self.client {
                Some(client) => client.clone(),
                None => self.ctx.places.connect(&self.call.place, None).await.ok()?,
            };
            let mut pause = FIRST_PAUSE;
            loop {
                match client.cancel(&task).await {
                    Err(error) if matches!(error.retry(), longshore_client::Retry::Later(_)) => {
                        sleep(pause).await;
                    }
                    Ok(_) => return Some(()),
                    Err(error) => {
                        let is_over =
                            matches!(error.kind(), ErrorKind::TaskNotCancelable | ErrorKind::TaskNotFound);
                        return is_over.then_some(());
                    }
                }
                pause *= 2;
            }
        };
        let is_over = timeout(CANCEL_TIMEOUT, canceling).await.ok().flatten().is_some();
        if !is_over {
            tracing::warn!(
                call = self.call.id(),
                peer = self.call.place.name(),
                "a task could not be canceled at its peer"
            );
        }
        is_over
    }
}

fn completed(said: remote::Said) -> End {
    End { text: said.text, artifacts: said.artifacts, ..End::new(Ending::Completed, "") }
}

fn reason(task: &Task, state: Option<TaskState>) -> String {
    let message = task.status.message.as_ref().map(longshore_client::Message::text);
    let text = message.filter(|text| !text.trim().is_empty());
    let word = state.map_or("ended", TaskState::as_str);
    match text {
        Some(text) => {
            format!("The peer's task is {word}: {}", longshore_model::redact::cut_at(text.trim(), 1_000))
        }
        None => format!("The peer's task is {word}. It gave no reason."),
    }
}

fn outgoing(record: &Record) -> Outgoing {
    let mut message = Outgoing::new(record.message_id(), vec![Part::text(record.body.text.as_str())]);
    message.context_id.clone_from(&record.body.context);
    message.metadata = metadata(record);
    message
}

fn metadata(record: &Record) -> Metadata {
    let shared = json!({"hops": record.body.hops});
    Metadata::from_iter([("shared".to_owned(), shared)])
}

/// Whether the peer's card says that the agent names its asks and their types.
fn lists_interrupts(client: &Client) -> bool {
    client.card().is_some_and(|card| place::lists(card, Extension::InteractiveInterrupt))
}

/// Searches a Longshore card for the field that says that a repeated message id leads to the same task.
fn says_that_it_deduplicates(json: &Value, depth: usize) -> bool {
    const DEEPEST: usize = 16;
    let same = |value: &Value| value["same_message_id"]["behavior"] == "return_existing_task";
    match json {
        _ if depth > DEEPEST => false,
        Value::Object(fields) => {
            same(json) || fields.values().any(|value| says_that_it_deduplicates(value, depth + 1))
        }
        Value::Array(items) => items.iter().any(|value| says_that_it_deduplicates(value, depth + 1)),
        _ => false,
    }
}
