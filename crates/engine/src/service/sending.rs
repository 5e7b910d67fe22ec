//! Messages that come in: each makes a task, unless it goes to one that exists.

use std::path::Path;

use longshore_model::{
    ContextId, Delivery, Error, ErrorKind, Message, Order, Principal, Result, Retry, SendMessage,
    SendOptions, Seq, SessionId, Task, TaskEvent, TaskId, TaskOptions, Timestamp,
};
use tokio::sync::oneshot;

use super::following::JoinRequest;
use super::{Engine, Opening, Sent, Snapshot, Subscription};
use crate::actor::{Ordered, Ownership, RETRY_FIRST, RETRY_LONGEST};
use crate::lanes::{LaneKey, Ticket};
use crate::log_entry::Events;
use crate::port::{Admission, ContextPlace, Create, Created, IdempotencyKey, Input, Session, on_behalf_of};
use crate::unfinished::{Full, Reserved};
use crate::{fail_point, idempotency, intake, names, states};

/// Where a caller names a session, and a directory.
const SESSION_FIELD: &str = "metadata.shared.session.id";
const DIRECTORY_FIELD: &str = "metadata.opencode.directory";

/// What was looked at before anything was kept: the message can be worked on.
pub(super) struct Admitted {
    /// Where the context works, or will.
    pub(super) directory: String,
    pub(super) directory_named: bool,
    pub(super) input: Vec<Input>,
}

/// A message that nothing stands against, and what was found out about it on the way.
pub(super) struct Ready {
    pub(super) caller: Principal,
    pub(super) command: SendMessage,
    pub(super) context: ContextId,
    pub(super) lane: LaneKey,
    pub(super) session: Option<Session>,
    pub(super) admitted: Admitted,
    pub(super) key: IdempotencyKey,
    pub(super) reserved: Reserved,
    /// What the agent is to do with it. `None`: it is prompted with it.
    pub(super) order: Option<Order>,
    /// The session that is named, if it is nobody's and the caller is known to be allowed to take it.
    pub(super) claim: Option<Session>,
    /// Whoever waits to hear whether the agent took the order.
    pub(super) orderer: Option<oneshot::Sender<Result<()>>>,
}

/// What came of it, or why the store made no task.
type Made = std::result::Result<Sent, Created>;

impl Engine {
    /// Makes a task of the message, durably, and starts it when its turn comes.
    pub async fn send(&self, caller: &Principal, mut command: SendMessage) -> Result<Sent> {
        command.trace = command.trace.map(|trace| self.around.spans.decided(trace));
        // A caller who goes away must not leave a task behind that nobody owns, so the making of it runs apart.
        let (engine, caller) = (self.clone(), caller.clone());
        let making = on_behalf_of(command.trace.clone(), async move {
            match command.message.task_id.clone() {
                Some(task) => engine.follow_up(caller, task, command).await,
                None => engine.submit(caller, command).await,
            }
        });
        let made = self.around.tasks.spawn("send", making);
        made.await.map_err(Error::internal)?
    }

    async fn submit(&self, caller: Principal, mut command: SendMessage) -> Result<Sent> {
        let context = command.message.context_id.clone().unwrap_or_else(|| self.new_context_id());
        let reserve = || self.around.unfinished.reserve(&caller, &context);
        // One that steers may need no place, and must not keep one while it waits for the turn that it joins.
        let reserved = (command.wishes.delivery != Delivery::Steer).then(reserve);
        let key = self.key(&command);
        // Also when there is no room: whoever lost the answer to a send that was taken needs none.
        if let Some(task) = self.around.store.earlier_send(&caller, &key).await? {
            drop(reserved);
            return self.attached_again(&caller, task, &command.message).await;
        }
        let full = |full: Full| full.refusal(&self.around.metrics);
        let reserved = reserved.transpose().map_err(full)?;
        let place = match &command.message.context_id {
            Some(context) => self.around.store.place(&caller, context).await?,
            None => ContextPlace::default(),
        };
        let by_context = self.session_named_by(command.message.context_id.as_ref(), &place);
        if let (Some(named), None) = (&by_context, &command.wishes.session) {
            command.wishes.session = Some(named.clone());
        } else if by_context.is_some() && by_context != command.wishes.session {
            return Err(refusal(&Created::OtherSession));
        }
        let session = self.wished_session(&caller, &place, command.wishes.session.as_ref()).await?;
        let admitted = self.admit(&command.message, &command.wishes, &place).await?;
        let lane = LaneKey::Context(caller.clone(), context.clone());
        if command.wishes.delivery == Delivery::Steer
            && let Some((running, context)) =
                self.running(&caller, &lane, session.as_ref(), &command.message).await?
        {
            command.message.context_id = Some(context);
            let joining = JoinRequest {
                message: command.message.clone(),
                key: key.clone(),
                input: admitted.input.clone(),
                options: command.wishes.prompt.clone(),
                trace: command.trace.clone(),
            };
            if let Some(snapshot) = self.join(&caller, &running, joining).await? {
                return self.attached(&caller, running, snapshot).await;
            }
            // It ended by itself, or had not begun: then there is nothing to steer, and the message goes the usual way.
        }
        let reserved = match reserved.map_or_else(reserve, Ok) {
            Ok(reserved) => reserved,
            // The same message, sent again meanwhile, may have taken the last place: then it was taken.
            Err(reason) => match self.around.store.earlier_send(&caller, &key).await? {
                Some(task) => return self.attached_again(&caller, task, &command.message).await,
                None => return Err(full(reason)),
            },
        };
        let (order, claim, orderer) = (None, None, None);
        let ready =
            Ready { caller, command, context, lane, session, admitted, key, reserved, order, claim, orderer };
        match self.make(ready).await? {
            Ok(sent) => Ok(sent),
            Err(Created::UnknownSession | Created::ForeignSession) if by_context.is_some() => {
                Err(Error::invalid("message.contextId", "stands for a session that you may not use"))
            }
            Err(created) => Err(refusal(&created)),
        }
    }

    /// The session that the name of a context stands for, when nothing else says where the context works: callers are told
    /// such names where they are told of sessions.
    fn session_named_by(&self, context: Option<&ContextId>, place: &ContextPlace) -> Option<SessionId> {
        let is_free = place.bound.is_none() && self.has_control();
        context.filter(|_| is_free).and_then(names::session_of)
    }

    pub(super) async fn make(&self, ready: Ready) -> Result<Made> {
        let Ready { caller, command, context, lane, session, admitted, key, reserved, order, claim, orderer } =
            ready;
        let now = self.around.clock.now();
        let task_id = self.new_task_id();
        let ordered = orderer.map(|orderer| {
            // Whoever waits for the end of a command can wait for its beginning.
            let is_impatient = !matches!(order, Some(Order::Command { .. }));
            Box::new(Ordered { key: key.clone(), orderer: Some(orderer), is_impatient })
        });
        let SendMessage { mut message, config, wishes, may_claim, trace, .. } = command;
        // The place is taken and the log made known before the store is asked: the order of messages is the order
        // in which they came, and whoever finds the task in the store finds its owner too.
        let ticket = self.enter(lane, &task_id, wishes.delivery, session.as_ref()).await?;
        // A context that this send makes is bound to nothing, unless the caller named a session.
        let new_context = (message.context_id.is_none() && wishes.session.is_none())
            .then(|| ContextPlace { directory: Some(admitted.directory.clone()), bound: None });
        message.context_id = Some(context.clone());
        message.task_id = Some(task_id.clone());
        let terms = TaskOptions {
            output: config.accepted_output_modes,
            prompt: wishes.prompt,
            ordered_in: order.as_ref().and(wishes.session.clone()),
            order,
            adopted: false,
        };
        let first = TaskEvent::Submitted {
            context_id: context.clone(),
            message,
            at: now,
            terms: Box::new(terms),
            parent: None,
        };
        let task = Task::begin(task_id.clone(), &first)
            .ok_or_else(|| Error::internal("a first event that makes no task"))?;
        let (registration, live, inbox) = self.register(reserved, task_id.clone(), Seq::START);
        // The reader is made before the actor runs, so that it cannot miss the live log of a very short task, and before
        // the task: nothing can fail any more once that is there.
        let reader = self.reader_of(&caller, &task, Seq::START);
        let create = Create {
            owner: caller.clone(),
            task: task_id.clone(),
            context,
            first: first.clone(),
            at: now,
            idempotency: Some(key),
            directory: admitted.directory,
            directory_named: admitted.directory_named,
            session: wishes.session,
            claim,
            begun: None,
        };
        let new = Ownership {
            owner: caller.clone(),
            registration,
            inbox,
            live,
            task,
            head: Seq::START.next(),
            epoch: self.around.store.epoch(),
            place: Some(ticket),
            begun: None,
            open_asks: Vec::new(),
            trace,
            new_context,
            ordered,
        };
        match self.create(create, may_claim).await {
            Ok(Created::New) => {
                self.begin(new, first);
                Ok(Ok(Sent { task: task_id, opening: Opening::Tail, reader }))
            }
            Ok(Created::Existing { task, .. }) => self.sent(&caller, task).await.map(Ok),
            Ok(refused) => Ok(Err(refused)),
            Err(error) => {
                if error.retry() == Retry::Later {
                    let engine = self.clone();
                    self.around
                        .tasks
                        .spawn("unsure-send", async move { engine.begin_if_made(new, first).await });
                }
                Err(error)
            }
        }
    }

    /// The task is there: shows its readers so, and gives it an owner.
    fn begin(&self, new: Ownership, first: TaskEvent) {
        states::count(&self.around.metrics, new.task.status.state);
        // It has not begun, so that nothing may come for long.
        new.live.publish(Events::number(new.head, new.epoch, [first]), true);
        self.own(new);
    }

    /// A task that was said not to be made may be there after all. Then it needs an owner, and whoever sends the message
    /// again is led to it.
    async fn begin_if_made(&self, new: Ownership, first: TaskEvent) {
        let mut pause = RETRY_FIRST;
        loop {
            match self.around.store.head(&new.owner, &new.task.id).await {
                Ok(Some(_)) => return self.begin(new, first),
                Ok(None) => return,
                Err(error) if error.retry() == Retry::Later => tokio::select! {
                    biased;
                    () = self.around.tasks.stopping().cancelled() => return,
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(RETRY_LONGEST),
                },
                Err(error) => {
                    tracing::error!(task = %new.task.id, error = ?error, "it is not known whether a task was made");
                    return;
                }
            }
        }
    }

    /// Looks at everything that the caller asks for, before anything is kept or done.
    pub(super) async fn admit(
        &self,
        message: &Message,
        wishes: &SendOptions,
        place: &ContextPlace,
    ) -> Result<Admitted> {
        let admission = Admission {
            directory: wishes.directory.as_deref(),
            workspace: wishes.workspace.as_deref(),
            current: place.directory.as_deref(),
            options: &wishes.prompt,
        };
        let admitted = self.around.agent.admit(admission).await?.directory;
        let directory_named = wishes.directory.is_some() || wishes.workspace.is_some();
        let stands = place.directory.as_ref();
        if directory_named && stands.is_some_and(|stands| *stands != admitted) {
            return Err(refusal(&Created::OtherDirectory));
        }
        let directory = stands.cloned().unwrap_or(admitted);
        let rules = &self.around.config.intake;
        let input = intake::prepare(rules, Path::new(&directory), &message.parts).await?;
        Ok(Admitted { directory, directory_named, input })
    }

    async fn create(&self, create: Create, may_claim: bool) -> Result<Created> {
        fail_point::hit("create.before");
        let created = self.around.store.create(create.clone()).await?;
        fail_point::hit("create.after");
        let (Created::UnknownSession, true, Some(id)) = (&created, may_claim, &create.session) else {
            return Ok(created);
        };
        // Nobody's session: the agent may know it, and then the caller may have it.
        match self.around.agent.find_session(id).await? {
            Some(session) => {
                // Somebody may be about to take it for something else.
                let _pending = match self.around.claims.begin(&create.owner, id) {
                    Ok(pending) => pending,
                    Err(error) if error.kind() == ErrorKind::SessionForbidden => {
                        return Ok(Created::ForeignSession);
                    }
                    Err(error) => return Err(error),
                };
                self.around.store.create(Create { claim: Some(session), ..create }).await
            }
            None => Ok(created),
        }
    }

    /// Takes a place among the messages of a context, the way that the caller wants it.
    async fn enter(
        &self,
        lane: LaneKey,
        task: &TaskId,
        delivery: Delivery,
        session: Option<&Session>,
    ) -> Result<Ticket> {
        let lanes = &self.around.lanes;
        if delivery != Delivery::Reject {
            return Ok(lanes.enter(lane, task.clone()));
        }
        if let Some(session) = session
            && self.is_taken(session).await?
        {
            return Err(busy());
        }
        lanes.enter_if_free(lane, task.clone()).ok_or_else(busy)
    }

    /// The session that the message goes to, as far as it is known to be the caller's: the one that it names, or that of its
    /// context. A session that it names in vain is refused when the task is made.
    async fn wished_session(
        &self,
        caller: &Principal,
        place: &ContextPlace,
        named: Option<&SessionId>,
    ) -> Result<Option<Session>> {
        let bound = place.bound.as_ref().map(|bound| &bound.session);
        match (named, bound) {
            (Some(named), Some(bound)) if bound.id != *named => Err(refusal(&Created::OtherSession)),
            (Some(named), None) => self.around.store.session(caller, named).await,
            (_, bound) => Ok(bound.cloned()),
        }
    }

    /// The task that runs where the message wants to go, and its context.
    async fn running(
        &self,
        caller: &Principal,
        lane: &LaneKey,
        session: Option<&Session>,
        message: &Message,
    ) -> Result<Option<(TaskId, ContextId)>> {
        let lanes = &self.around.lanes;
        let in_session = || lanes.holder(&LaneKey::Session(session?.id.clone()));
        let Some(task) = lanes.holder(lane).or_else(in_session) else { return Ok(None) };
        // Another context of the same session may be at work; a message that names its own context does not join that.
        let head = self.around.store.head(caller, &task).await?;
        let context = head.map(|head| head.context);
        let may_join = |context: &ContextId| message.context_id.as_ref().is_none_or(|named| named == context);
        Ok(context.filter(may_join).map(|context| (task, context)))
    }

    /// Whether a turn runs in the session, one of ours or somebody else's.
    async fn is_taken(&self, session: &Session) -> Result<bool> {
        if self.around.lanes.holder(&LaneKey::Session(session.id.clone())).is_some() {
            return Ok(true);
        }
        match self.around.agent.is_busy(session).await {
            Ok(busy) => Ok(busy),
            // Nobody could ask, and who does not want to wait would wait in the turn: better to come again.
            Err(error) if error.kind() == ErrorKind::UpstreamBackpressure => Err(error),
            // The turn will find out, and say so.
            Err(_) => Ok(false),
        }
    }

    /// The same send again, because its answer got lost.
    async fn attached_again(&self, caller: &Principal, task: TaskId, message: &Message) -> Result<Sent> {
        let now = self.get(caller, &task).await?;
        if now.task.history.first().is_some_and(|first| first.id == message.id) {
            return self.sent(caller, task).await;
        }
        self.attached(caller, task, now).await
    }

    async fn sent(&self, caller: &Principal, task: TaskId) -> Result<Sent> {
        let Subscription { opening, reader, .. } =
            self.subscribe(caller, &task, Some(Seq::START.into())).await?;
        Ok(Sent { task, opening, reader })
    }

    /// The caller's message went to a task that was there: it goes on from here.
    pub(super) async fn attached(
        &self,
        caller: &Principal,
        task: TaskId,
        snapshot: Snapshot,
    ) -> Result<Sent> {
        let head = self.head(caller, &task).await?;
        let reader = self.reader(caller, task.clone(), &head, snapshot.seq);
        Ok(Sent { task, opening: Opening::Snapshot(snapshot), reader })
    }

    /// Under which the same send is known again.
    pub(super) fn key(&self, command: &SendMessage) -> IdempotencyKey {
        self.valid_key(idempotency::digest(command))
    }

    pub(super) fn valid_key(&self, digest: [u8; 32]) -> IdempotencyKey {
        let window = i64::try_from(self.around.config.idempotency_window.as_millis()).unwrap_or(i64::MAX);
        let valid_since = Timestamp(self.around.clock.now().0.saturating_sub(window));
        IdempotencyKey { digest, valid_since }
    }

    pub(crate) fn new_task_id(&self) -> TaskId {
        TaskId::parse(&self.around.tasks.hooks().new_id()).expect("a UUID is an id")
    }

    pub(super) fn new_context_id(&self) -> ContextId {
        ContextId::parse(&self.around.tasks.hooks().new_id()).expect("a UUID is an id")
    }
}

/// Why the store made no task.
pub(super) fn refusal(created: &Created) -> Error {
    match created {
        Created::OtherSession => {
            Error::invalid(SESSION_FIELD, "is not the session of this context; start another context with it")
        }
        Created::OtherDirectory => Error::invalid(
            DIRECTORY_FIELD,
            "is not the directory of this context, which keeps the one that it began with; start another context",
        ),
        // Another's session and one that nobody knows look the same from outside.
        Created::UnknownSession | Created::ForeignSession => {
            Error::invalid(SESSION_FIELD, "is no session that you may use")
        }
        Created::New | Created::Existing { .. } => Error::internal("a task that was made was refused"),
    }
}

pub(super) fn busy() -> Error {
    let text = "The session is busy, and the message asks not to wait (delivery: reject). Send it again later, or \
                without that wish.";
    Error::new(ErrorKind::SessionBusy, text)
}
