//! Incoming messages: each message creates a task, unless it goes to an existing one.

use std::path::Path;

use longshore_meter::label::Limit;
use longshore_model::{
    ContextId, Delivery, Error, ErrorKind, Message, NativePrompt, Principal, Result, Retry, SendMessage,
    SendOptions, Seq, SessionId, TaskEvent, TaskId, TaskOptions, Timestamp,
};
use tokio::sync::oneshot;

use super::{Engine, Sent, Subscription, SubscriptionStart};
use crate::actor::{ActorParts, PendingPrompt};
use crate::actor_request::Joining;
use crate::config::WireNames;
use crate::log_entry::Events;
use crate::port::{
    Admission, ContextLocation, Create, Created, IdempotencyKey, Input, Session, with_caller,
    with_caller_trace,
};
use crate::retry::Backoff;
use crate::snapshot::Snapshot;
use crate::turn_queue::{QueueKey, QueueTicket};
use crate::unfinished::{LimitReached, UnfinishedSlot};
use crate::{derived_ids, fail_point, idempotency, intake, states};

/// The field in which a caller names a session.
const SESSION_FIELD: &str = "metadata.shared.session.id";

/// The result of the agent's checks before anything is stored.
pub(crate) struct Admitted {
    /// The directory of the context.
    pub(crate) directory: String,
    pub(crate) directory_named: bool,
    pub(crate) input: Vec<Input>,
}

/// A message that has passed all checks, with the results of the checks.
pub(crate) struct CheckedSend {
    pub(crate) caller: Principal,
    pub(crate) command: SendMessage,
    pub(crate) context: ContextId,
    pub(crate) session: Option<Session>,
    pub(crate) admitted: Admitted,
    pub(crate) key: IdempotencyKey,
    pub(crate) reserved: UnfinishedSlot,
    /// The native prompt of the message. `None`: the agent is prompted with the message itself.
    pub(crate) native: Option<NativeSend>,
    /// The named session, if it is unowned and the caller may claim it.
    pub(crate) claim: Option<Session>,
}

/// A native prompt, for which a message stands in its task.
pub(crate) struct NativeSend {
    pub(crate) prompt: NativePrompt,
    /// Gets the result: whether the agent accepted the prompt.
    pub(crate) accepted: oneshot::Sender<Result<()>>,
}

impl NativeSend {
    fn into_parts(self, key: &IdempotencyKey) -> (NativePrompt, Box<PendingPrompt>) {
        // The caller of a command waits for the end of the turn anyway, so it gets no early response while the command is
        // queued.
        let answers_when_queued = !matches!(self.prompt, NativePrompt::Command { .. });
        let accepted = Some(self.accepted);
        (self.prompt, Box::new(PendingPrompt { key: key.clone(), accepted, answers_when_queued }))
    }
}

/// The created task, or why the store created none.
type CreateResult = std::result::Result<Sent, Created>;

impl Engine {
    /// Creates a durable task for the message, and starts the task when its turn comes. A message that names a task goes to that
    /// task.
    pub async fn send(&self, caller: &Principal, mut command: SendMessage) -> Result<Sent> {
        intake::envelope::check(&self.ctx.config.intake, &self.ctx.metrics, &command)?;
        command.trace = command.trace.map(|trace| self.ctx.ports.spans.decided(trace));
        let push = command.config.push.clone();
        if let Some(push) = &push {
            self.check_push_in_send(caller, command.message.task_id.as_ref(), push).await?;
        }
        // Runs in a background task, so that a caller that disconnects cannot leave a task without an actor.
        let (engine, caller) = (self.clone(), caller.clone());
        let sending = with_caller_trace(command.trace.clone(), async move {
            let (sender, events) = (caller.clone(), command.options.push_events);
            let sent = match command.message.task_id.clone() {
                Some(task) => engine.follow_up(caller, task, command).await?,
                None => engine.submit(caller, command).await?,
            };
            // The push configuration of a new task is already stored with the task.
            if let Some(push) = push.filter(|_| !sent.is_new) {
                engine.put_push_of_send(&sender, &sent, *push, events).await?;
            }
            Ok(sent)
        });
        let made = self.ctx.tasks.spawn("send", sending);
        made.await.map_err(Error::internal)?
    }

    async fn submit(&self, caller: Principal, mut command: SendMessage) -> Result<Sent> {
        let context = command.message.context_id.clone().unwrap_or_else(|| self.new_context_id());
        let bytes = command.message.weight();
        let reserve = || self.reserve(&caller, &context, bytes);
        // A message that joins a turn may need no slot, and must not hold a slot while it waits for the turn.
        let reserved = (command.options.delivery != Delivery::Steer).then(reserve);
        let key = self.key(&command);
        // Checked before the limit: a caller that lost the response to an accepted send needs no new slot.
        if let Some(task) = self.ctx.ports.store.earlier_send(&caller, &key).await? {
            drop(reserved);
            return self.follow_again(&caller, task, &command.message).await;
        }
        let full = |full: LimitReached| full.refusal(&self.ctx.metrics);
        let reserved = reserved.transpose().map_err(full)?;
        let location = match &command.message.context_id {
            Some(context) => self.ctx.ports.store.context_location(&caller, context).await?,
            None => ContextLocation::default(),
        };
        let session_by_context = self.session_of_context_id(command.message.context_id.as_ref(), &location);
        if let (Some(named), None) = (&session_by_context, &command.options.session) {
            command.options.session = Some(named.clone());
        } else if session_by_context.is_some() && session_by_context != command.options.session {
            return Err(refusal(self.ctx.config.names, &Created::OtherSession));
        }
        let session = self.requested_session(&caller, &location, command.options.session.as_ref()).await?;
        let admitted = self.admit(&caller, &command.message, &command.options, &location).await?;
        if command.options.delivery == Delivery::Steer
            && let Some(sent) =
                self.steer(&caller, &context, session.as_ref(), &mut command, &key, &admitted).await?
        {
            return Ok(sent);
        }
        let reserved = match reserved.map_or_else(reserve, Ok) {
            Ok(reserved) => reserved,
            // A concurrent send of the same message may have got the last slot. Then the message was accepted.
            Err(reason) => match self.ctx.ports.store.earlier_send(&caller, &key).await? {
                Some(task) => return self.follow_again(&caller, task, &command.message).await,
                None => return Err(full(reason)),
            },
        };
        let (native, claim) = (None, None);
        let checked =
            CheckedSend { caller, command, context, session, admitted, key, reserved, native, claim };
        match self.create_task(checked).await? {
            Ok(sent) => Ok(sent),
            Err(Created::UnknownSession | Created::ForeignSession) if session_by_context.is_some() => {
                Err(Error::invalid("message.contextId", "stands for a session that you may not use"))
            }
            Err(created) => Err(refusal(self.ctx.config.names, &created)),
        }
    }

    /// Reserves a slot for a task that begins with a message of this many bytes.
    pub(crate) fn reserve(
        &self,
        caller: &Principal,
        context: &ContextId,
        bytes: usize,
    ) -> std::result::Result<UnfinishedSlot, LimitReached> {
        self.check_stored(caller)?;
        self.ctx.live.unfinished.reserve(caller, context, bytes)
    }

    /// Refuses a message of this many bytes to an existing task, if there is no room for it.
    pub(super) fn check_room(&self, caller: &Principal, bytes: usize) -> Result<()> {
        let checked =
            self.check_stored(caller).and_then(|()| self.ctx.live.unfinished.check_bytes(caller, bytes));
        checked.map_err(|full| full.refusal(&self.ctx.metrics))
    }

    /// Checks the limit of stored bytes. Only new messages are refused: a task in progress may always finish.
    fn check_stored(&self, caller: &Principal) -> std::result::Result<(), LimitReached> {
        let (config, stored) = (&self.ctx.config, self.ctx.ports.store.stored_bytes(caller));
        for (used, max, limit) in [
            (stored.of_owner, config.stored_bytes_per_principal, Limit::StoredBytesPerPrincipal),
            (stored.in_all, config.stored_bytes, Limit::StoredBytes),
        ] {
            if max > 0 && used >= max {
                return Err(LimitReached { limit, max });
            }
        }
        Ok(())
    }

    /// Joins the turn that runs in the context or session of the message. `None`: there is no turn to join, because the task ended
    /// by itself or had not begun, so the message creates a task.
    async fn steer(
        &self,
        caller: &Principal,
        context: &ContextId,
        session: Option<&Session>,
        command: &mut SendMessage,
        key: &IdempotencyKey,
        admitted: &Admitted,
    ) -> Result<Option<Sent>> {
        let queue = QueueKey::Context(caller.clone(), context.clone());
        let running = self.running(caller, &queue, session, &command.message).await?;
        let Some((running, context)) = running else { return Ok(None) };
        self.check_room(caller, command.message.weight())?;
        command.message.context_id = Some(context);
        let (key, input) = (key.clone(), admitted.input.clone());
        let (options, trace) = (command.options.prompt.clone(), command.trace.clone());
        let joining = |message, reply| Joining { message, key, input, options, trace, reply };
        match self.join(caller, &running, command.message.clone(), joining).await? {
            Some(snapshot) => self.follow_from(caller, running, snapshot).await.map(Some),
            None => Ok(None),
        }
    }

    /// The session that a context id stands for, unless the context is bound to another session. Callers get such ids in lists of
    /// sessions.
    fn session_of_context_id(
        &self,
        context: Option<&ContextId>,
        location: &ContextLocation,
    ) -> Option<SessionId> {
        let is_free = location.bound.is_none() && self.has_control();
        let names = self.ctx.config.names;
        context.filter(|_| is_free).and_then(|context| derived_ids::session_of_context(names, context))
    }

    pub(crate) async fn create_task(&self, send: CheckedSend) -> Result<CreateResult> {
        let CheckedSend { caller, command, context, session, admitted, key, reserved, native, claim } = send;
        let (now, task_id) = (self.now(), self.new_task_id());
        let (order, pending_prompt) = native.map(|native| native.into_parts(&key)).unzip();
        let SendMessage { mut message, config, options, may_claim, trace, .. } = command;
        // The queue is entered and the log is registered before the store is called. So messages keep the order in which
        // they came, and a caller who finds the task in the store also finds its actor.
        let queue = QueueKey::Context(caller.clone(), context.clone());
        let ticket = self.enter(queue, &task_id, options.delivery, session.as_ref()).await?;
        // A new context has no binding, unless the caller named a session.
        let new_context = (message.context_id.is_none() && options.session.is_none())
            .then(|| ContextLocation { directory: Some(admitted.directory.clone()), bound: None });
        message.context_id = Some(context.clone());
        message.task_id = Some(task_id.clone());
        let task_options = TaskOptions {
            output: config.accepted_output_modes,
            prompt: options.prompt,
            native_prompt_session: order.as_ref().and(options.session.clone()),
            order,
            adopted: false,
            session_title: options.session_title,
        };
        let first = TaskEvent::Submitted {
            context_id: context.clone(),
            message,
            at: now,
            options: Box::new(task_options),
            parent: None,
        };
        let push = match config.push {
            Some(push) => {
                let (task, events) = (task_id.clone(), options.push_events);
                Some(Box::new(self.new_push(&caller, task, *push, events, Seq::START)?))
            }
            None => None,
        };
        let snapshot = Snapshot::first(task_id.clone(), &first, self.ctx.ports.store.epoch())?;
        let registered = self.ctx.live.registry.register(Some(reserved), task_id.clone(), Seq::START);
        // The reader is created before the actor runs, so that it cannot miss the live log of a very short task. It is also
        // created before the task, so that nothing can fail once the task exists.
        let reader = self.reader_of(&caller, &snapshot.task, Seq::START);
        let create = Create {
            owner: caller.clone(),
            task: task_id.clone(),
            context,
            first: first.clone(),
            at: now,
            idempotency: Some(key),
            directory: admitted.directory,
            directory_named: admitted.directory_named,
            session: options.session,
            claim,
            begun: None,
            push,
        };
        let new = ActorParts {
            ticket: Some(ticket),
            trace,
            new_context,
            pending_prompt,
            ..ActorParts::new(caller.clone(), registered, snapshot)
        };
        match self.create(create, may_claim).await {
            Ok(Created::New) => {
                self.begin(new, first);
                Ok(Ok(Sent { task: task_id, opening: SubscriptionStart::Tail, reader, is_new: true }))
            }
            Ok(Created::Existing { task, .. }) => self.sent(&caller, task).await.map(Ok),
            Ok(Created::PushFull(limit)) => Err(self.push_full(limit)),
            Ok(refused) => Ok(Err(refused)),
            Err(error) => {
                // If a limit refused the task, the store has certainly not written it.
                if error.retry() == Retry::Later && error.find_detail("limit").is_none() {
                    let engine = self.clone();
                    self.ctx
                        .tasks
                        .spawn("unconfirmed-send", async move { engine.begin_if_created(new, first).await });
                }
                Err(error)
            }
        }
    }

    /// Publishes the first event of an existing task to readers, and starts the task's actor.
    fn begin(&self, new: ActorParts, first: TaskEvent) {
        states::count(&self.ctx.metrics, new.snapshot.task.status.state);
        // The turn has not begun, so the next event may take long.
        new.registered.live.publish(Events::number(new.snapshot.seq, new.snapshot.epoch, [first]), true);
        self.start_actor(new);
    }

    /// Starts a task whose creation returned an error, if the store has created it nevertheless. A repeated send then leads to
    /// this task.
    async fn begin_if_created(&self, new: ActorParts, first: TaskEvent) {
        let mut backoff = Backoff::new();
        loop {
            match self.ctx.ports.store.head(&new.owner, &new.snapshot.task.id).await {
                Ok(Some(_)) => return self.begin(new, first),
                Ok(None) => return,
                Err(error) if error.retry() == Retry::Later => {
                    if !backoff.pause(&self.ctx.tasks).await {
                        return;
                    }
                }
                Err(error) => {
                    tracing::error!(task = %new.snapshot.task.id, error = ?error, "cannot find out whether a task was created");
                    return;
                }
            }
        }
    }

    /// Checks everything that the caller requests, before anything is stored or done.
    pub(crate) async fn admit(
        &self,
        caller: &Principal,
        message: &Message,
        options: &SendOptions,
        location: &ContextLocation,
    ) -> Result<Admitted> {
        let admission = Admission {
            directory: options.directory.as_deref(),
            workspace: options.workspace.as_deref(),
            current: location.directory.as_deref(),
            options: &options.prompt,
        };
        let admitting = with_caller(caller.clone(), self.ctx.ports.agent.admit(admission));
        let admitted = admitting.await?.directory;
        let directory_named = options.directory.is_some() || options.workspace.is_some();
        let current = location.directory.as_ref();
        if directory_named && current.is_some_and(|current| *current != admitted) {
            return Err(refusal(self.ctx.config.names, &Created::OtherDirectory));
        }
        let directory = current.cloned().unwrap_or(admitted);
        let rules = &self.ctx.config.intake;
        let input = intake::prepare(rules, Path::new(&directory), &message.parts).await?;
        self.ctx.ports.agent.check_input(&directory, &input, &options.prompt)?;
        Ok(Admitted { directory, directory_named, input })
    }

    async fn create(&self, create: Create, may_claim: bool) -> Result<Created> {
        fail_point::hit("create.before");
        let created = self.ctx.ports.store.create(create.clone()).await?;
        fail_point::hit("create.after");
        let (Created::UnknownSession, true, Some(id)) = (&created, may_claim, &create.session) else {
            return Ok(created);
        };
        // The session is unowned. If the agent knows the session, the caller may be able to claim it.
        let Some(finder) = self.ctx.ports.agent.session_finder() else { return Ok(created) };
        match finder.find_session(id).await? {
            Some(session) => {
                // Fails if another caller is about to claim the session.
                let _pending = match self.ctx.control_state.claims.begin(&create.owner, id) {
                    Ok(pending) => pending,
                    Err(error) if error.kind() == ErrorKind::SessionForbidden => {
                        return Ok(Created::ForeignSession);
                    }
                    Err(error) => return Err(error),
                };
                self.ctx.ports.store.create(Create { claim: Some(session), ..create }).await
            }
            None => Ok(created),
        }
    }

    /// Enters the queue of a context. With [`Delivery::Reject`], fails if the session or the queue is busy.
    async fn enter(
        &self,
        queue: QueueKey,
        task: &TaskId,
        delivery: Delivery,
        session: Option<&Session>,
    ) -> Result<QueueTicket> {
        let queues = &self.ctx.live.queues;
        if delivery != Delivery::Reject {
            return Ok(queues.enter(queue, task.clone()));
        }
        if let Some(session) = session
            && self.is_busy(session).await?
        {
            return Err(busy());
        }
        queues.enter_if_free(queue, task.clone()).ok_or_else(busy)
    }

    /// The session that the message goes to, if the caller is known to own it: the session that the message names, or that of its
    /// context. A named session that cannot be used is refused later, when the task is created.
    async fn requested_session(
        &self,
        caller: &Principal,
        location: &ContextLocation,
        named: Option<&SessionId>,
    ) -> Result<Option<Session>> {
        let bound = location.bound.as_ref().map(|bound| &bound.session);
        match (named, bound) {
            (Some(named), Some(bound)) if bound.id != *named => {
                Err(refusal(self.ctx.config.names, &Created::OtherSession))
            }
            (Some(named), None) => self.ctx.ports.store.session(caller, named).await,
            (_, bound) => Ok(bound.cloned()),
        }
    }

    /// The task that runs in the context or session of the message, and the context of that task.
    async fn running(
        &self,
        caller: &Principal,
        queue: &QueueKey,
        session: Option<&Session>,
        message: &Message,
    ) -> Result<Option<(TaskId, ContextId)>> {
        let queues = &self.ctx.live.queues;
        let in_session = || queues.holder(&QueueKey::Session(session?.id.clone()));
        let Some(task) = queues.holder(queue).or_else(in_session) else { return Ok(None) };
        // The turn may belong to another context of the same session. A message that names its own context does not join it.
        let head = self.ctx.ports.store.head(caller, &task).await?;
        let context = head.map(|head| head.context);
        let may_join = |context: &ContextId| message.context_id.as_ref().is_none_or(|named| named == context);
        Ok(context.filter(may_join).map(|context| (task, context)))
    }

    /// Whether a turn runs in the session, started by the gateway or by another client of the agent.
    async fn is_busy(&self, session: &Session) -> Result<bool> {
        if self.ctx.live.queues.holder(&QueueKey::Session(session.id.clone())).is_some() {
            return Ok(true);
        }
        match self.ctx.ports.is_busy(session).await {
            Ok(busy) => Ok(busy),
            // The gateway may make no further call to the agent now. This caller does not want to wait, so it gets the error
            // and can retry.
            Err(error) if error.kind() == ErrorKind::UpstreamBackpressure => Err(error),
            // The turn itself will find out whether the session is busy, and report it.
            Err(_) => Ok(false),
        }
    }

    /// Handles a repeated send whose response was lost: returns the task of the first send.
    async fn follow_again(&self, caller: &Principal, task: TaskId, message: &Message) -> Result<Sent> {
        let now = self.get(caller, &task).await?;
        if now.task.history.first().is_some_and(|first| first.id == message.id) {
            return self.sent(caller, task).await;
        }
        self.follow_from(caller, task, now).await
    }

    async fn sent(&self, caller: &Principal, task: TaskId) -> Result<Sent> {
        let Subscription { opening, reader, .. } =
            self.subscribe(caller, &task, Some(Seq::START.into())).await?;
        Ok(Sent { task, opening, reader, is_new: false })
    }

    /// Lets the caller follow an existing task from this snapshot on, because the caller's message went to that task.
    pub(crate) async fn follow_from(
        &self,
        caller: &Principal,
        task: TaskId,
        snapshot: Snapshot,
    ) -> Result<Sent> {
        let head = self.head(caller, &task).await?;
        let reader = self.reader(caller, task.clone(), &head, snapshot.seq);
        Ok(Sent { task, opening: SubscriptionStart::Snapshot(snapshot), reader, is_new: false })
    }

    /// The idempotency key of a send. A repeated send of the same message has the same key.
    pub(crate) fn key(&self, command: &SendMessage) -> IdempotencyKey {
        self.valid_key(idempotency::digest(command))
    }

    pub(crate) fn valid_key(&self, digest: [u8; 32]) -> IdempotencyKey {
        let window = i64::try_from(self.ctx.config.idempotency_window.as_millis()).unwrap_or(i64::MAX);
        let valid_since = Timestamp(self.ctx.ports.clock.now().0.saturating_sub(window));
        IdempotencyKey { digest, valid_since }
    }

    pub(crate) fn new_task_id(&self) -> TaskId {
        TaskId::parse(&self.ctx.tasks.hooks().new_id()).expect("a UUID is an id")
    }

    pub(crate) fn new_context_id(&self) -> ContextId {
        ContextId::parse(&self.ctx.tasks.hooks().new_id()).expect("a UUID is an id")
    }
}

/// Why the store created no task.
pub(crate) fn refusal(names: WireNames, created: &Created) -> Error {
    match created {
        Created::OtherSession => {
            Error::invalid(SESSION_FIELD, "is not the session of this context; start another context with it")
        }
        Created::OtherDirectory => Error::invalid(
            names.directory_field,
            "is not the directory of this context, which keeps the one that it began with; start another context",
        ),
        // A caller cannot tell another caller's session from a session that does not exist.
        Created::UnknownSession | Created::ForeignSession => {
            Error::invalid(SESSION_FIELD, "is no session that you may use")
        }
        Created::New | Created::Existing { .. } | Created::PushFull(_) => {
            Error::internal("a task that was made was refused")
        }
    }
}

pub(crate) fn busy() -> Error {
    let text = "The session is busy, and the message asks not to wait (delivery: reject). Send it again later, or \
                without that option.";
    Error::new(ErrorKind::SessionBusy, text)
}
