//! Performs the operations in the same way for every protocol version and binding: passes a command to the engine, and returns
//! values or a reader of events. The bindings decode commands and encode replies.

mod control;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use longshore_engine::port::with_caller_trace;
use longshore_engine::{Engine, Listing, PushListing, Snapshot, Subscription, SubscriptionStart, Tasks};
use longshore_meter::Metrics;
use longshore_model::{
    CancelTask, CreatePushConfig, Error, ErrorKind, EventId, GetTask, Principal, PushConfig, PushView,
    Result, SendConfig, SendMessage, SubscribeToTask, Task, TaskId, TaskState,
};
use longshore_wire::contract::Deployment;
use longshore_wire::extension::{self as extensions, Activated, Exposure, Extension};
use longshore_wire::surface::Operation;
use longshore_wire::v1::encode::{Gap, View};
use longshore_wire::v1::extension;
use longshore_wire::v1::output;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub(crate) use self::control::{MAX_BACKGROUND_CALLS, MethodReply};
use crate::auth::{Caller, Capability};
use crate::command::{Command, RequestOptions};
use crate::documents::{Documents, ExtendedCards};
use crate::limits::{OpenedFor, Slot, Slots};
use crate::log::Log;
use crate::request_line::RequestLine;
use crate::response_format::ResponseFormat;
use crate::rules::Rules;
use crate::sse::{self, Event, OpenStream, Until};

/// The result of a command, which the bindings encode.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The task that a sent message created or joined.
    Sent(Task, View),
    Task(Task, View),
    Page(Listing, View),
    PushConfig(PushConfig),
    PushConfigs(PushListing),
    /// The push configuration was deleted.
    PushConfigDeleted,
    ExtendedCard(Arc<ExtendedCards>),
    Events(Box<EventReader>),
    /// The result of an extension method.
    Method(MethodReply),
}

/// A stream of events that is about to be read. Nothing has been encoded yet.
#[derive(Debug)]
pub(crate) struct EventReader {
    engine: Engine,
    caller: Principal,
    subscription: Subscription,
    view: View,
    until: Until,
    slot: Slot,
    line: RequestLine,
}

#[derive(Debug)]
pub(crate) struct Operations {
    pub(crate) engine: Engine,
    pub(crate) closing: CancellationToken,
    /// How long a blocking send may continue to wait after the shutdown has begun.
    pub(crate) shutdown_wait: Duration,
    /// The facts about this gateway from which its documents are built, such as the enabled methods.
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) documents: Arc<Documents>,
    /// Limits the number of open streams.
    pub(crate) slots: Arc<Slots>,
    pub(crate) metrics: Arc<Metrics>,
    /// Runs work that continues after the caller disconnects.
    pub(crate) tasks: Tasks,
    /// Limits how many slow calls of notifications run in the background.
    pub(crate) background_slots: Arc<Semaphore>,
}

impl Operations {
    /// Performs a command. Every binding calls this, with a caller that has passed the gate.
    pub(crate) async fn perform(
        &self,
        caller: &Caller,
        command: Command,
        options: &RequestOptions,
    ) -> Result<Reply> {
        with_caller_trace(Some(options.trace.clone()), self.perform_traced(caller, command, options)).await
    }

    async fn perform_traced(
        &self,
        caller: &Caller,
        command: Command,
        options: &RequestOptions,
    ) -> Result<Reply> {
        let engine = &self.engine;
        let exposure = caller.rights.exposure.unwrap_or(self.deployment.exposure);
        let view = View { activated: options.activated, exposure, ..View::default() };
        let (rules, line) = (Rules::for_version(options.version), &options.line);
        let command = self.admitted(caller, command, options)?;
        let principal = &caller.principal;
        Ok(match command {
            Command::Send(command) => self.send(principal, command, view, line).await?,
            Command::Stream(command) => Reply::Events(self.stream(principal, command, view, options).await?),
            Command::Get(GetTask { id, history_length }) => {
                let found = engine.get(principal, &id).await?;
                note(line, &found);
                Reply::Task(found.task, View { history_length, ..view })
            }
            Command::List(query) => {
                let (history_length, artifacts) = (query.history_length, query.include_artifacts);
                let view = View { history_length, artifacts, ..view };
                Reply::Page(engine.list(principal, query).await?, view)
            }
            Command::Cancel(CancelTask { id }) => {
                let canceled = self.cancel(principal, &id, rules).await?;
                note(line, &canceled);
                Reply::Task(canceled.task, view)
            }
            Command::Subscribe(SubscribeToTask { id }) => {
                let slot = self.slots.take(principal, OpenedFor::Subscription)?;
                let subscription = self.subscribe(principal, &id, options.resume_after, rules).await?;
                let until = Until::Terminal;
                Reply::Events(self.reader(principal, subscription, view, until, slot, line))
            }
            Command::CreatePushConfig(command) => {
                line.set_task(&command.task);
                Reply::PushConfig(engine.create_push_config(principal, command).await?)
            }
            Command::GetPushConfig(command) => {
                line.set_task(&command.task);
                Reply::PushConfig(engine.push_config(principal, command).await?)
            }
            Command::ListPushConfigs(command) => {
                line.set_task(&command.task);
                Reply::PushConfigs(engine.push_configs(principal, command).await?)
            }
            Command::DeletePushConfig(command) => {
                line.set_task(&command.task);
                engine.delete_push_config(principal, command).await?;
                Reply::PushConfigDeleted
            }
            Command::ExtendedCard => Reply::ExtendedCard(self.documents.extended_cards().await),
            Command::Method(call) => Reply::Method(self.call(caller, call, options).await?),
        })
    }

    /// Performs a notification: executes only commands, and does not wait for slow ones.
    pub(crate) async fn notify(
        &self,
        caller: &Caller,
        command: Command,
        options: &RequestOptions,
    ) -> Result<()> {
        with_caller_trace(Some(options.trace.clone()), self.notify_traced(caller, command, options)).await
    }

    async fn notify_traced(&self, caller: &Caller, command: Command, options: &RequestOptions) -> Result<()> {
        let principal = &caller.principal;
        match self.admitted(caller, command, options)? {
            Command::Send(command) | Command::Stream(command) => {
                self.engine.send(principal, command).await.map(drop)
            }
            Command::Cancel(CancelTask { id }) => self.engine.cancel(principal, &id).await.map(drop),
            Command::Method(call) => self.notify_call(caller, call, options).await,
            Command::CreatePushConfig(command) => {
                self.engine.create_push_config(principal, command).await.map(drop)
            }
            Command::DeletePushConfig(command) => self.engine.delete_push_config(principal, command).await,
            Command::Get(_)
            | Command::List(_)
            | Command::Subscribe(_)
            | Command::GetPushConfig(_)
            | Command::ListPushConfigs(_)
            | Command::ExtendedCard => Ok(()),
        }
    }

    /// Refuses an operation whose caller did not activate all required extensions. Bindings call this before they decode the
    /// parameters.
    pub(crate) fn check_required(&self, activated: Activated) -> Result<()> {
        extensions::check_required(activated, &self.deployment.required_extensions)
    }

    /// Checks the options of a send, and adds facts that the decoder does not know: the trace context, whether the caller's
    /// credential may claim sessions, and what the caller's push notifications may show. Executes nothing.
    fn admitted(&self, caller: &Caller, command: Command, options: &RequestOptions) -> Result<Command> {
        match &command {
            // The extended card tells callers which extensions are required, so it requires none itself. Extension methods have
            // their own checks.
            Command::ExtendedCard | Command::Method(_) => {}
            _ => self.check_required(options.activated)?,
        }
        Ok(match command {
            Command::Send(command) => Command::Send(self.admitted_message(caller, command, options)?),
            Command::Stream(command) => Command::Stream(self.admitted_message(caller, command, options)?),
            Command::CreatePushConfig(CreatePushConfig { task, mut request }) => {
                self.check_push()?;
                request.view = self.push_view(caller, options);
                Command::CreatePushConfig(CreatePushConfig { task, request })
            }
            command @ (Command::GetPushConfig(_)
            | Command::ListPushConfigs(_)
            | Command::DeletePushConfig(_)) => {
                self.check_push()?;
                command
            }
            other => other,
        })
    }

    fn admitted_message(
        &self,
        caller: &Caller,
        mut command: SendMessage,
        options: &RequestOptions,
    ) -> Result<SendMessage> {
        if let Some(push) = &mut command.config.push {
            self.check_push()?;
            push.view = self.push_view(caller, options);
        }
        extension::check_send_options(&command, options.activated)?;
        output::check_output_modes(&command.config.accepted_output_modes)?;
        let trace = Some(options.trace.clone());
        command.options.prompt.may_run = self.may_run(caller);
        Ok(SendMessage { may_claim: caller.may(Capability::SessionClaim), trace, ..command })
    }

    /// Fails if this deployment does not serve the operation. Bindings call this before they decode the parameters, because no
    /// parameters could make the call succeed.
    pub(crate) fn check_served(&self, operation: &Operation) -> Result<()> {
        operation.refused(&self.deployment).map_or(Ok(()), |_| self.check_push())
    }

    fn check_push(&self) -> Result<()> {
        if self.deployment.push {
            return Ok(());
        }
        let text = "Push notifications are not supported; stream, subscribe or get the task instead.";
        Err(Error::new(ErrorKind::PushNotSupported, text))
    }

    /// The view for push notifications. They show the same as responses to this caller.
    fn push_view(&self, caller: &Caller, options: &RequestOptions) -> PushView {
        let Exposure { raw_thinking, tool_trace } =
            caller.rights.exposure.unwrap_or(self.deployment.exposure);
        PushView {
            extensions: options.activated.uris().map(str::to_owned).collect(),
            raw_thinking,
            tool_trace,
        }
    }

    async fn send(
        &self,
        caller: &Principal,
        command: SendMessage,
        view: View,
        line: &RequestLine,
    ) -> Result<Reply> {
        let SendConfig { history_length, return_immediately, .. } = command.config;
        let sent = self.engine.send(caller, command).await?;
        // Recorded now, because the caller may disconnect while the turn runs.
        line.set_task(&sent.task);
        let snapshot = if return_immediately {
            self.engine.get(caller, &sent.task).await?
        } else {
            let settled = self.engine.settled(caller, sent.reader);
            self.unless_closing(settled, || task_still_running(&sent.task)).await?
        };
        note(line, &snapshot);
        Ok(Reply::Sent(snapshot.task, View { history_length, ..view }))
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
        // The task has ended, so its snapshot no longer changes.
        let ended = self.engine.get(caller, task).await?;
        let behind = self.engine.subscribe(caller, task, Some(ended.id())).await?;
        Ok(Subscription { opening: SubscriptionStart::Snapshot(ended), is_behind: false, ..behind })
    }

    async fn stream(
        &self,
        caller: &Principal,
        command: SendMessage,
        view: View,
        options: &RequestOptions,
    ) -> Result<Box<EventReader>> {
        let view = View { history_length: command.config.history_length, ..view };
        // A client that can answer an ask by an extension method does not need the stream to close first.
        let can_answer = view.activated.contains(Extension::InteractiveInterrupt);
        let closes_at_ask = Rules::for_version(options.version).closes_at_ask;
        let until = if closes_at_ask && !can_answer { Until::Settled } else { Until::Terminal };
        // The slot is taken before the agent is prompted, so that no turn starts whose stream would be refused.
        let slot = self.slots.take(caller, OpenedFor::Send)?;
        let sent = self.engine.send(caller, command).await?;
        // A client whose stream broke sends the same message again, with the id of the last event that it received.
        let subscription = if options.resume_after.is_some() {
            self.engine.subscribe(caller, &sent.task, options.resume_after).await?
        } else {
            Subscription { opening: sent.opening, reader: sent.reader, is_behind: true }
        };
        Ok(self.reader(caller, subscription, view, until, slot, &options.line))
    }

    fn reader(
        &self,
        caller: &Principal,
        subscription: Subscription,
        view: View,
        until: Until,
        slot: Slot,
        line: &RequestLine,
    ) -> Box<EventReader> {
        line.set_task(subscription.reader.task_id());
        let (engine, caller, line) = (self.engine.clone(), caller.clone(), line.clone());
        Box::new(EventReader { engine, caller, subscription, view, until, slot, line })
    }

    /// Waits for a result, but at most for `shutdown_wait` after the shutdown has begun. The work itself continues.
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

impl EventReader {
    /// Opens the stream in a format and loads its first events, if there are any. These events are already stored, so this does not
    /// wait for the agent. If they cannot be read, the caller gets a plain error instead of a stream.
    pub(crate) async fn open(self, format: ResponseFormat) -> Result<OpenStream<Log>> {
        let Self { engine, caller, subscription, view, until, slot, line } = self;
        let Subscription { opening, reader, is_behind } = subscription;
        let task = reader.task_id().clone();
        let mut source = Log::new(engine, caller, reader, &opening, format, view);
        let first = match opening {
            SubscriptionStart::Tail if is_behind => sse::first(&mut source).await?,
            SubscriptionStart::Tail => Vec::new(),
            SubscriptionStart::Snapshot(now) => vec![task_frame(&now, format, view, None)],
            SubscriptionStart::Gap(now, bounds) => {
                let gap = Gap { requested: bounds.requested, first: bounds.first, head: bounds.head };
                vec![task_frame(&now, format, view, Some(gap))]
            }
        };
        Ok(OpenStream { task, first, source, until, slot: Some(slot), line })
    }
}

/// Records the task of a request and its state in the log line.
fn note(line: &RequestLine, snapshot: &Snapshot) {
    line.set_task(&snapshot.task.id);
    line.set_state(snapshot.task.status.state);
}

fn task_still_running(task: &TaskId) -> Error {
    let text = format!("The gateway is shutting down. Task {task} goes on; get it or subscribe to it later.");
    Error::new(ErrorKind::Unavailable, text).detail("taskId", task.as_str())
}

fn task_frame(now: &Snapshot, format: ResponseFormat, view: View, gap: Option<Gap>) -> Event {
    Event {
        id: Some(now.id()),
        body: Some(format.snapshot(&now.task, now.id(), view, gap)),
        state: Some(now.task.status.state),
    }
}
