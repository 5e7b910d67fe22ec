//! Performs the operations, the same way for every protocol version and binding: a decoded command goes to the engine, encoded
//! JSON or a stream of events comes back.

mod control;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use longshore_engine::{Engine, Snapshot, Subscription, SubscriptionStart, Tasks};
use longshore_meter::Metrics;
use longshore_model::{
    CancelTask, Error, ErrorKind, EventId, GetTask, ListTasks, Principal, Result, SendConfig, SendMessage,
    SubscribeToTask, TaskId, TaskState, TraceContext,
};
use longshore_wire::contract::Deployment;
use longshore_wire::extension::{Activated, Extension};
use longshore_wire::v1::encode::{Gap, View};
use longshore_wire::v1::extension;
use longshore_wire::v1::output;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub(crate) use self::control::{MAX_BACKGROUND_CALLS, MethodCall};
use crate::auth::{Caller, Capability};
use crate::limits::{OpenedFor, Slot, Slots};
use crate::log::Log;
use crate::request_line::RequestLine;
use crate::response_format::ResponseFormat;
use crate::rules::Rules;
use crate::sse::{self, Event, OpenStream, Until};

const LAST_EVENT_ID: &str = "Last-Event-ID";

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Operation {
    Send(SendMessage),
    Stream(SendMessage),
    Get(GetTask),
    List(ListTasks),
    Cancel(CancelTask),
    Subscribe(SubscribeToTask),
}

impl Operation {
    /// Adds the trace to an operation that starts a turn.
    pub(crate) fn traced(mut self, trace: &TraceContext) -> Self {
        if let Self::Send(command) | Self::Stream(command) = &mut self {
            command.trace = Some(trace.clone());
        }
        self
    }
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Json(Bytes),
    Events(Box<OpenStream<Log>>),
}

#[derive(Debug)]
pub(crate) struct Operations {
    pub(crate) engine: Engine,
    pub(crate) closing: CancellationToken,
    /// How long a blocking send may still wait after the shutdown has begun.
    pub(crate) shutdown_wait: Duration,
    /// The facts about this gateway from which its documents are built, such as the methods that are switched on.
    pub(crate) deployment: Arc<Deployment>,
    /// Limits the number of open streams.
    pub(crate) slots: Arc<Slots>,
    pub(crate) metrics: Arc<Metrics>,
    /// Runs work that continues after the caller disconnects.
    pub(crate) tasks: Tasks,
    /// Limits the slow calls that notifications run in the background.
    pub(crate) background_slots: Arc<Semaphore>,
}

impl Operations {
    pub(crate) async fn perform(
        &self,
        caller: &Caller,
        operation: Operation,
        headers: &HeaderMap,
        format: ResponseFormat,
        line: &RequestLine,
    ) -> Result<Outcome> {
        let engine = &self.engine;
        let activated = format.rules().activated(headers);
        let exposure = caller.rights.exposure.unwrap_or(self.deployment.exposure);
        let view = View { activated, exposure, ..View::default() };
        let operation = admitted(caller, operation, activated)?;
        let caller = &caller.principal;
        Ok(match operation {
            Operation::Send(command) => Outcome::Json(self.send(caller, command, format, view, line).await?),
            Operation::Stream(command) => {
                let stream = self.stream(caller, command, headers, format, view, line);
                Outcome::Events(stream.await?.into())
            }
            Operation::Get(GetTask { id, history_length }) => {
                let found = engine.get(caller, &id).await?;
                note(line, &found);
                Outcome::Json(format.task(&found.task, View { history_length, ..view }))
            }
            Operation::List(query) => {
                let (history_length, artifacts) = (query.history_length, query.include_artifacts);
                let view = View { history_length, artifacts, ..view };
                Outcome::Json(format.page(&engine.list(caller, query).await?, view))
            }
            Operation::Cancel(CancelTask { id }) => {
                let canceled = self.cancel(caller, &id, format.rules()).await?;
                note(line, &canceled);
                Outcome::Json(format.task(&canceled.task, view))
            }
            Operation::Subscribe(SubscribeToTask { id }) => {
                let slot = self.slots.take(caller, OpenedFor::Subscription)?;
                let subscription =
                    self.subscribe(caller, &id, last_event_id(headers)?, format.rules()).await?;
                let shown = Shown { format, view, until: Until::Terminal };
                let stream = self.open_stream(caller, subscription, shown, slot, line);
                Outcome::Events(stream.await?.into())
            }
        })
    }

    /// Handles a notification: only commands are executed, and nothing is waited for.
    pub(crate) async fn notify(
        &self,
        caller: &Caller,
        operation: Operation,
        activated: Activated,
    ) -> Result<()> {
        let operation = admitted(caller, operation, activated)?;
        let caller = &caller.principal;
        match operation {
            Operation::Send(command) | Operation::Stream(command) => {
                self.engine.send(caller, command).await.map(drop)
            }
            Operation::Cancel(CancelTask { id }) => self.engine.cancel(caller, &id).await.map(drop),
            Operation::Get(_) | Operation::List(_) | Operation::Subscribe(_) => Ok(()),
        }
    }

    async fn send(
        &self,
        caller: &Principal,
        command: SendMessage,
        format: ResponseFormat,
        view: View,
        line: &RequestLine,
    ) -> Result<Bytes> {
        let SendConfig { history_length, return_immediately, .. } = command.config;
        let sent = self.engine.send(caller, command).await?;
        // Noted now: the caller may disconnect while the turn runs.
        line.set_task(&sent.task);
        let snapshot = if return_immediately {
            self.engine.get(caller, &sent.task).await?
        } else {
            let settled = self.engine.settled(caller, sent.reader);
            self.unless_closing(settled, || task_still_running(&sent.task)).await?
        };
        note(line, &snapshot);
        Ok(format.sent(&snapshot.task, View { history_length, ..view }))
    }

    async fn cancel(&self, caller: &Principal, task: &TaskId, rules: &Rules) -> Result<Snapshot> {
        let refused = match self.engine.cancel(caller, task).await {
            Err(error) if rules.cancels_again && error.kind() == ErrorKind::TaskNotCancelable => error,
            answered => return answered,
        };
        let found = self.engine.get(caller, task).await?;
        if found.task.status.state == TaskState::Canceled { Ok(found) } else { Err(refused) }
    }

    async fn subscribe(
        &self,
        caller: &Principal,
        task: &TaskId,
        after: Option<EventId>,
        rules: &Rules,
    ) -> Result<Subscription> {
        match self.engine.subscribe(caller, task, after).await {
            Err(error) if rules.replays_ended && error.kind() == ErrorKind::UnsupportedOperation => {}
            answered => return answered,
        }
        // The task has ended, so the snapshot does not change any more.
        let ended = self.engine.get(caller, task).await?;
        let behind = self.engine.subscribe(caller, task, Some(ended.id())).await?;
        Ok(Subscription { opening: SubscriptionStart::Snapshot(ended), is_behind: false, ..behind })
    }

    async fn stream(
        &self,
        caller: &Principal,
        command: SendMessage,
        headers: &HeaderMap,
        format: ResponseFormat,
        view: View,
        line: &RequestLine,
    ) -> Result<OpenStream<Log>> {
        let view = View { history_length: command.config.history_length, ..view };
        // A client that can answer an ask by an extension method does not need the stream to close first.
        let can_answer = view.activated.contains(Extension::InteractiveInterrupt);
        let until =
            if format.rules().closes_at_ask && !can_answer { Until::Settled } else { Until::Terminal };
        let shown = Shown { format, view, until };
        let cursor = last_event_id(headers)?;
        // Taken before the agent is prompted, so that no turn starts whose stream would be refused.
        let slot = self.slots.take(caller, OpenedFor::Send)?;
        let sent = self.engine.send(caller, command).await?;
        // A client whose stream broke sends the same message again, with the id of the last event that it received.
        if cursor.is_some() {
            let subscription = self.engine.subscribe(caller, &sent.task, cursor).await?;
            return self.open_stream(caller, subscription, shown, slot, line).await;
        }
        let subscription = Subscription { opening: sent.opening, reader: sent.reader, is_behind: true };
        self.open_stream(caller, subscription, shown, slot, line).await
    }

    /// Opens a stream with its first events, if there are any yet. Those events are stored already, so this does not wait for
    /// the agent. If they cannot be read, the caller gets a plain error and no stream.
    async fn open_stream(
        &self,
        caller: &Principal,
        subscription: Subscription,
        Shown { format, view, until }: Shown,
        slot: Slot,
        line: &RequestLine,
    ) -> Result<OpenStream<Log>> {
        let Subscription { opening, reader, is_behind } = subscription;
        let task = reader.task_id().clone();
        line.set_task(&task);
        let mut source = Log::new(self.engine.clone(), caller.clone(), reader, &opening, format, view);
        let first = match opening {
            SubscriptionStart::Tail if is_behind => sse::first(&mut source).await?,
            SubscriptionStart::Tail => Vec::new(),
            SubscriptionStart::Snapshot(now) => vec![task_frame(&now, format, view, None)],
            SubscriptionStart::Gap(now, bounds) => {
                let gap = Gap { requested: bounds.requested, first: bounds.first, head: bounds.head };
                vec![task_frame(&now, format, view, Some(gap))]
            }
        };
        Ok(OpenStream { task, first, source, until, slot: Some(slot), line: line.clone() })
    }

    /// Waits for a result, but not longer than `shutdown_wait` after the shutdown began. The work itself continues.
    async fn unless_closing<T>(
        &self,
        wait: impl Future<Output = Result<T>>,
        still_running: impl FnOnce() -> Error,
    ) -> Result<T> {
        let shutdown_wait_over = async {
            self.closing.cancelled().await;
            tokio::time::sleep(self.shutdown_wait).await;
        };
        tokio::select! {
            biased;
            settled = wait => settled,
            () = shutdown_wait_over => Err(still_running()),
        }
    }
}

/// How the events of a stream are shown, and when it closes.
#[derive(Clone, Copy)]
struct Shown {
    format: ResponseFormat,
    view: View,
    until: Until,
}

/// Notes the task of a request, and its state, for the log.
fn note(line: &RequestLine, snapshot: &Snapshot) {
    line.set_task(&snapshot.task.id);
    line.set_state(snapshot.task.status.state);
}

fn task_still_running(task: &TaskId) -> Error {
    let text = format!("The gateway is shutting down. Task {task} goes on; get it or subscribe to it later.");
    Error::new(ErrorKind::Unavailable, text).detail("taskId", task.as_str())
}

/// The last event that the client received, from its `Last-Event-ID` header.
fn last_event_id(headers: &HeaderMap) -> Result<Option<EventId>> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let text = value.as_bytes().trim_ascii();
    if text.is_empty() {
        return Ok(None);
    }
    let problem = || Error::invalid(LAST_EVENT_ID, "must be the id of an event, such as 17.3, or its number");
    str::from_utf8(text).ok().and_then(EventId::parse).map(Some).ok_or_else(problem)
}

fn task_frame(now: &Snapshot, format: ResponseFormat, view: View, gap: Option<Gap>) -> Event {
    Event {
        id: Some(now.id()),
        json: Some(format.snapshot(&now.task, view, gap)),
        state: Some(now.task.status.state),
    }
}

/// Checks the options of a send and adds whether the caller's credential may claim sessions. Nothing is executed yet.
fn admitted(caller: &Caller, operation: Operation, activated: Activated) -> Result<Operation> {
    Ok(match operation {
        Operation::Send(command) => Operation::Send(admitted_message(caller, command, activated)?),
        Operation::Stream(command) => Operation::Stream(admitted_message(caller, command, activated)?),
        other => other,
    })
}

fn admitted_message(caller: &Caller, command: SendMessage, activated: Activated) -> Result<SendMessage> {
    if command.config.wants_push {
        return Err(push_not_supported());
    }
    extension::check_send_options(&command, activated)?;
    output::check_output_modes(&command.config.accepted_output_modes)?;
    Ok(SendMessage { may_claim: caller.may(Capability::SessionClaim), ..command })
}

pub(crate) fn push_not_supported() -> Error {
    Error::new(
        ErrorKind::PushNotSupported,
        "Push notifications are not supported; stream, subscribe or get the task instead.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_event_id_is_an_event_id_or_a_number() {
        type Cursor = std::result::Result<Option<&'static str>, ()>;

        let cases: [(Option<&str>, Cursor); 12] = [
            (None, Ok(None)),
            (Some(""), Ok(None)),
            (Some("0"), Ok(Some("0"))),
            (Some(" 17 "), Ok(Some("17"))),
            (Some("17.3"), Ok(Some("17.3"))),
            (Some("18446744073709551615"), Ok(Some("18446744073709551615"))),
            (Some("18446744073709551616"), Err(())),
            (Some("-1"), Err(())),
            (Some("+1"), Err(())),
            (Some("1."), Err(())),
            (Some("1.5.1"), Err(())),
            (Some("abc"), Err(())),
        ];
        for (value, expected) in cases {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(LAST_EVENT_ID, value.parse().unwrap());
            }
            let found = last_event_id(&headers);
            if let Err(error) = &found {
                assert_eq!(error.violations()[0].field, "Last-Event-ID");
            }
            let expected = expected.map(|id| id.map(str::to_owned));
            assert_eq!(found.map(|id| id.map(|id| id.to_string())).map_err(drop), expected, "{value:?}");
        }
    }
}
