//! Messages that come in: each makes a task, answers one that asks, or joins one that runs.

use std::path::Path;

use longshore_model::{
    Ask, ContextId, Delivery, Error, ErrorKind, Message, Principal, PromptOptions, Result, SendMessage, Seq,
    SessionId, Task, TaskEvent, TaskId, TaskState, Terms, Timestamp, Wishes,
};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Engine, Opening, Sent, Snapshot};
use crate::actor::{Inbox, Ownership};
use crate::joins::Joining;
use crate::lanes::{LaneKey, Ticket};
use crate::port::{
    Admission, ContextPlace, Create, Created, IdempotencyKey, Input, ListQuery, Session, StoredTask,
};
use crate::{answer, idempotency, intake};

/// Where a caller names a session, and a directory.
const SESSION_FIELD: &str = "metadata.shared.session.id";
const DIRECTORY_FIELD: &str = "metadata.opencode.directory";

/// In so many of a context's newest tasks a message is looked for that may have been sent before; in older ones it is not.
const RECENT: usize = 20;

/// What was looked at before anything was kept: the message can be worked on.
struct Admitted {
    /// Where the context works, or will.
    directory: String,
    directory_named: bool,
    input: Vec<Input>,
}

impl Engine {
    /// Makes a task of the message, durably, and starts it when its turn comes.
    pub async fn send(&self, caller: &Principal, command: SendMessage) -> Result<Sent> {
        // A caller who goes away must not leave a task behind that nobody owns, so the making of it runs apart.
        let (engine, caller) = (self.clone(), caller.clone());
        let made = self.around.tasks.spawn("send", async move {
            match command.message.task_id.clone() {
                Some(task) => engine.follow_up(caller, task, command).await,
                None => engine.submit(caller, command).await,
            }
        });
        made.await.map_err(Error::internal)?
    }

    async fn submit(&self, caller: Principal, mut command: SendMessage) -> Result<Sent> {
        let digest = idempotency::digest(&command);
        if command.wishes.delivery != Delivery::Queue
            && let Some(sent) = self.taken_before(&caller, &command.message).await?
        {
            return Ok(sent);
        }
        let place = match &command.message.context_id {
            Some(context) => self.around.store.place(&caller, context).await?,
            None => ContextPlace::default(),
        };
        let admitted = self.admit(&command.message, &command.wishes, &place).await?;
        let context = command.message.context_id.clone().unwrap_or_else(new_context_id);
        let lane = LaneKey::Context(caller.clone(), context.clone());
        if command.wishes.delivery == Delivery::Steer
            && let Some(running) = self.around.lanes.holder(&lane)
        {
            command.message.context_id = Some(context.clone());
            let options = command.wishes.prompt.clone();
            let Admitted { input, .. } = &admitted;
            let joined =
                self.join(&caller, &running, command.message.clone(), input.clone(), options).await?;
            if let Some(snapshot) = joined {
                return self.attached(&caller, running, snapshot).await;
            }
            // It ended by itself, or had not begun: then there is nothing to steer, and the message goes the usual way.
        }
        self.make(caller, command, context, lane, place, admitted, digest).await
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "all of it was found out on the way here, and is used once"
    )]
    async fn make(
        &self,
        caller: Principal,
        command: SendMessage,
        context: ContextId,
        lane: LaneKey,
        place: ContextPlace,
        admitted: Admitted,
        digest: [u8; 32],
    ) -> Result<Sent> {
        let now = self.around.clock.now();
        let task_id = new_task_id();
        let SendMessage { mut message, config, wishes, may_claim, .. } = command;
        self.check_room(&caller, &lane)?;
        // The place is taken and the log made known before the store is asked: the order of messages is the order
        // in which they came, and whoever finds the task in the store finds its owner too.
        let ticket = self.enter(lane, &task_id, wishes.delivery, &place).await?;
        message.context_id = Some(context.clone());
        message.task_id = Some(task_id.clone());
        let terms = Terms { output: config.accepted_output_modes, prompt: wishes.prompt };
        let first = TaskEvent::Submitted {
            context_id: context.clone(),
            message,
            at: now,
            terms: Box::new(terms),
            parent: None,
        };
        let (registration, live, inbox) = self.register(caller.clone(), task_id.clone(), Seq::START);
        let create = Create {
            owner: caller.clone(),
            task: task_id.clone(),
            context: context.clone(),
            first: first.clone(),
            at: now,
            idempotency: Some(IdempotencyKey { digest, valid_since: self.window_start(now) }),
            directory: admitted.directory,
            directory_named: admitted.directory_named,
            session: wishes.session,
            claim: None,
        };
        match self.create(create, may_claim).await? {
            Created::New => {}
            Created::Existing { task, .. } => return self.sent(&caller, task).await,
            refused => return Err(refusal(&refused)),
        }
        let task = Task::begin(task_id.clone(), &first)
            .ok_or_else(|| Error::internal("a first event that makes no task"))?;
        let head = Seq::START.next();
        live.publish(head, vec![first]);
        // The reader is made before the actor runs, so that it cannot miss the live log of a very short task.
        let sent = self.sent(&caller, task_id).await?;
        self.own(Ownership {
            owner: caller,
            registration,
            inbox,
            live,
            task,
            head,
            place: Some(ticket),
            begun: None,
            open_asks: Vec::new(),
        });
        Ok(sent)
    }

    /// The task that took the same message before, if its sender lost the answer. What waits for its turn finds out when its
    /// task is made; what would join or be refused must know before.
    async fn taken_before(&self, caller: &Principal, message: &Message) -> Result<Option<Sent>> {
        let Some(context) = &message.context_id else { return Ok(None) };
        let query = ListQuery {
            owner: caller.clone(),
            context: Some(context.clone()),
            state: None,
            status_after: Some(self.window_start(self.around.clock.now())),
            limit: RECENT,
            after: None,
            roots_only: true,
            with_artifacts: false,
        };
        for task in self.around.store.list(query).await?.tasks {
            let taken = Message { task_id: Some(task.id.clone()), ..message.clone() };
            match task.history.iter().position(|kept| *kept == taken) {
                None => {}
                Some(0) => return self.sent(caller, task.id).await.map(Some),
                Some(_) => {
                    let snapshot = self.get(caller, &task.id).await?;
                    return self.attached(caller, task.id, snapshot).await.map(Some);
                }
            }
        }
        Ok(None)
    }

    /// Looks at everything that the caller asks for, before anything is kept or done.
    async fn admit(&self, message: &Message, wishes: &Wishes, place: &ContextPlace) -> Result<Admitted> {
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
        let created = self.around.store.create(create.clone()).await?;
        let (Created::UnknownSession, true, Some(id)) = (&created, may_claim, &create.session) else {
            return Ok(created);
        };
        // Nobody's session: the agent may know it, and then the caller may have it.
        match self.around.agent.find_session(id).await? {
            Some(session) => self.around.store.create(Create { claim: Some(session), ..create }).await,
            None => Ok(created),
        }
    }

    /// Takes a place among the messages of a context, the way that the caller wants it.
    async fn enter(
        &self,
        lane: LaneKey,
        task: &TaskId,
        delivery: Delivery,
        place: &ContextPlace,
    ) -> Result<Ticket> {
        let lanes = &self.around.lanes;
        if delivery != Delivery::Reject {
            return Ok(lanes.enter(lane, task.clone()));
        }
        let bound = place.bound.as_ref().map(|bound| &bound.session);
        if let Some(session) = bound
            && self.is_taken(session).await?
        {
            return Err(busy());
        }
        lanes.enter_if_free(lane, task.clone()).ok_or_else(busy)
    }

    /// Whether a turn runs in the session, one of ours or somebody else's.
    async fn is_taken(&self, session: &Session) -> Result<bool> {
        if self.around.lanes.holder(&LaneKey::Session(session.id.clone())).is_some() {
            return Ok(true);
        }
        match self.around.agent.is_busy(session).await {
            Ok(busy) => Ok(busy),
            // The turn will find out, and say so.
            Err(_) => Ok(false),
        }
    }

    fn check_room(&self, caller: &Principal, lane: &LaneKey) -> Result<()> {
        let config = &self.around.config;
        let full = |what: &str, limit: usize| {
            let text =
                format!("{what} has {limit} unfinished tasks, which is the limit; wait for some to end.");
            Err(Error::new(ErrorKind::TooManyRequests, text))
        };
        if self.around.lanes.len(lane) >= config.max_unfinished_per_context {
            return full("This context", config.max_unfinished_per_context);
        }
        if self.around.registry.unfinished(caller) >= config.max_unfinished_per_principal {
            return full("Your account", config.max_unfinished_per_principal);
        }
        Ok(())
    }

    /// A message on a task that exists: the answer to what it asks, one more word to what it does, or another try.
    async fn follow_up(&self, caller: Principal, task: TaskId, command: SendMessage) -> Result<Sent> {
        let SendMessage { mut message, wishes, .. } = command;
        let stored = self.around.store.get(&caller, &task).await?;
        let stored = stored.ok_or_else(|| Error::task_not_found(&task))?;
        let context = stored.task.context_id.clone();
        if message.context_id.as_ref().is_some_and(|named| *named != context) {
            return Err(Error::invalid(
                "message.contextId",
                "is not the context of the task in message.taskId; leave it out, or send the task's own",
            ));
        }
        message.context_id = Some(context);
        // The same message again, because its answer got lost: it was taken, and the caller is attached.
        if stored.task.history.contains(&message) {
            return self.attached(&caller, task, Snapshot { task: stored.task, seq: stored.seq }).await;
        }
        if stored.task.parent.is_some() {
            return self.answer_of_sub_agent(caller, stored, message).await;
        }
        let snapshot = match stored.task.status.state {
            TaskState::InputRequired
                if !stored.open_asks.is_empty() && wishes.delivery != Delivery::Steer =>
            {
                let open: Vec<&Ask> = stored.open_asks.iter().map(|open| &open.ask).collect();
                let (request, answer) = answer::read(&message, &open)?;
                self.deliver(&caller, &task, request, answer, Some(message)).await?
            }
            TaskState::Working | TaskState::InputRequired | TaskState::AuthRequired => {
                check_session(&stored, wishes.session.as_ref())?;
                let place = self.around.store.place(&caller, &stored.task.context_id).await?;
                let Admitted { input, .. } = self.admit(&message, &wishes, &place).await?;
                match self.join(&caller, &task, message, input, wishes.prompt).await? {
                    Some(snapshot) => snapshot,
                    None => return Err(takes_no_message(&self.get(&caller, &task).await?.task)),
                }
            }
            _ => return Err(takes_no_message(&stored.task)),
        };
        self.attached(&caller, task, snapshot).await
    }

    /// A message on the task of a sub-agent can only answer what that one asks.
    async fn answer_of_sub_agent(
        &self,
        caller: Principal,
        stored: StoredTask,
        message: Message,
    ) -> Result<Sent> {
        let (Some(parent), true) =
            (&stored.task.parent, stored.task.status.state == TaskState::InputRequired)
        else {
            return Err(takes_no_message(&stored.task));
        };
        // The root task owns what its sub-agents ask.
        let root = self.around.store.get(&caller, &parent.root).await?;
        let root = root.ok_or_else(|| Error::task_not_found(&parent.root))?;
        let asks = root.open_asks.iter().map(|open| &open.ask);
        let open: Vec<&Ask> = asks.filter(|ask| ask.session == parent.session).collect();
        if open.is_empty() {
            return Err(takes_no_message(&stored.task));
        }
        let (request, answer) = answer::read(&message, &open)?;
        self.deliver(&caller, &parent.root, request, answer, None).await?;
        let task = stored.task.id;
        let snapshot = self.get(&caller, &task).await?;
        self.attached(&caller, task, snapshot).await
    }

    /// Hands a message to a task that runs, or that waits for credentials. `None`: it does neither.
    async fn join(
        &self,
        caller: &Principal,
        task: &TaskId,
        message: Message,
        input: Vec<Input>,
        options: PromptOptions,
    ) -> Result<Option<Snapshot>> {
        let mut message = message;
        message.task_id = Some(task.clone());
        let (reply, told) = oneshot::channel();
        let joining = Joining { message: message.clone(), input, options, reply };
        if let Some(inbox) = self.around.registry.inbox(task)
            && inbox.send(Inbox::Join(Box::new(joining))).await.is_ok()
            && let Ok(told) = told.await
        {
            return told.map(Some);
        }
        // Nobody said what became of it. The log does.
        let Snapshot { task, seq } = self.get(caller, task).await?;
        Ok(task.history.contains(&message).then_some(Snapshot { task, seq }))
    }

    async fn sent(&self, caller: &Principal, task: TaskId) -> Result<Sent> {
        let head = self.head(caller, &task).await?;
        Ok(Sent { reader: self.reader(task.clone(), &head, Seq::START), opening: Opening::Tail, task })
    }

    /// The caller's message went to a task that was there: it goes on from here.
    async fn attached(&self, caller: &Principal, task: TaskId, snapshot: Snapshot) -> Result<Sent> {
        let head = self.head(caller, &task).await?;
        let reader = self.reader(task.clone(), &head, snapshot.seq);
        Ok(Sent { task, opening: Opening::Snapshot(snapshot), reader })
    }

    fn window_start(&self, now: Timestamp) -> Timestamp {
        let window = i64::try_from(self.around.config.idempotency_window.as_millis()).unwrap_or(i64::MAX);
        Timestamp(now.0.saturating_sub(window))
    }
}

fn check_session(stored: &StoredTask, named: Option<&SessionId>) -> Result<()> {
    let own = stored.turn.as_ref().map(|turn| &turn.session.id);
    match named {
        Some(named) if own != Some(named) => Err(refusal(&Created::OtherSession)),
        _ => Ok(()),
    }
}

/// Why the store made no task.
fn refusal(created: &Created) -> Error {
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

fn busy() -> Error {
    let text = "The session is busy, and the message asks not to wait (delivery: reject). Send it again later, or \
                without that wish.";
    Error::new(ErrorKind::SessionBusy, text)
}

fn takes_no_message(task: &Task) -> Error {
    let state = task.status.state;
    let text = if task.parent.is_some() && !state.is_terminal() {
        "The task is the work of a sub-agent, which takes messages only to answer what it asks; send this one to the \
         task that it works for."
            .to_owned()
    } else if state.is_terminal() {
        format!(
            "The task is {state} and takes no more messages; send this one without taskId, with its contextId."
        )
    } else {
        format!(
            "The task is {state} and has not begun; send this message without taskId, with its contextId, and it \
             will be taken up when the task is over."
        )
    };
    Error::new(ErrorKind::UnsupportedOperation, text)
        .detail("taskId", task.id.as_str())
        .detail("state", state.as_str())
}

fn new_task_id() -> TaskId {
    TaskId::parse(&Uuid::now_v7().to_string()).expect("a UUID is an id")
}

fn new_context_id() -> ContextId {
    ContextId::parse(&Uuid::now_v7().to_string()).expect("a UUID is an id")
}
