//! One function per operation: authorise, find or make the task, read.

use std::sync::Arc;

use longshore_model::{
    ContextId, Error, ErrorKind, ListTasks, Message, PartContent, Principal, Result, SendMessage, Seq,
    SessionId, Task, TaskEvent, TaskId, Timestamp,
};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::actor::{Actor, INBOX, Inbox, Ownership, Surroundings};
use crate::config::EngineConfig;
use crate::lanes::LaneKey;
use crate::live::LiveLog;
use crate::port::{Agent, Binding, Clock, Create, Created, IdempotencyKey, ListQuery, Store, StoredTask};
use crate::reader::TaskReader;
use crate::tasks::Tasks;
use crate::{idempotency, page_token};

/// The engine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine {
    around: Surroundings,
}

/// What an engine is made of.
#[derive(Debug)]
pub struct EngineParts {
    pub store: Arc<dyn Store>,
    pub agent: Arc<dyn Agent>,
    pub clock: Arc<dyn Clock>,
    pub tasks: Tasks,
    pub config: EngineConfig,
}

/// A task that was made, or found to have been made before, and a reader at the start of its log.
#[derive(Debug)]
pub struct Sent {
    pub task: TaskId,
    pub reader: TaskReader,
}

/// A task as of an event.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    pub task: Task,
    pub seq: Seq,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Listing {
    pub tasks: Vec<Task>,
    /// On all pages together.
    pub total: u64,
    pub page_size: u32,
    /// Empty on the last page.
    pub next_page_token: String,
}

#[derive(Debug)]
pub struct Subscription {
    pub opening: Opening,
    pub reader: TaskReader,
}

/// How a subscription begins.
#[derive(Debug)]
pub enum Opening {
    /// With the task as it is; the reader stands behind it.
    Snapshot(Snapshot),
    /// With nothing: the reader gives exactly the events that were missed.
    Tail,
    /// The cursor is beyond the log, or older than what is kept: here is the task as it is; the reader stands
    /// behind it. The caller must be told that there is a gap.
    Gap(Snapshot, GapBounds),
}

/// Which cursors could have been served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GapBounds {
    pub requested: Seq,
    pub first: Seq,
    pub head: Seq,
}

impl Engine {
    pub fn new(parts: EngineParts) -> Self {
        let EngineParts { store, agent, clock, tasks, config } = parts;
        let (registry, lanes) = (Arc::default(), Arc::default());
        Self { around: Surroundings { store, agent, clock, tasks, registry, lanes, config } }
    }

    /// Makes a task of the message, durably, and starts it when its turn comes.
    pub async fn send(&self, caller: &Principal, command: SendMessage) -> Result<Sent> {
        check_content(&command.message)?;
        if let Some(task) = &command.message.task_id {
            return Err(self.refuse_follow_up(caller, task, &command.message).await);
        }
        // A caller who goes away must not leave a task behind that nobody owns, so the making of it runs apart.
        let (engine, caller) = (self.clone(), caller.clone());
        let made = self.around.tasks.spawn("send", async move { engine.submit(caller, command).await });
        made.await.map_err(Error::internal)?
    }

    async fn submit(&self, caller: Principal, command: SendMessage) -> Result<Sent> {
        let now = self.around.clock.now();
        let digest = idempotency::digest(&command);
        let task_id = new_task_id();
        let context = command.message.context_id.clone().unwrap_or_else(new_context_id);
        if let Some(session) = &command.session {
            self.bind_known_session(&caller, &context, session, now).await?;
        }
        let mut message = command.message;
        message.context_id = Some(context.clone());
        message.task_id = Some(task_id.clone());
        let first = TaskEvent::Submitted { context_id: context.clone(), message, at: now };

        // The place is taken and the log made known before the store is asked: the order of messages is the order
        // in which they came, and whoever finds the task in the store finds its owner too.
        let place = self.around.lanes.enter(LaneKey::Context(caller.clone(), context.clone()));
        let (live, inbox) = self.register(task_id.clone(), Seq::START);
        let create = Create {
            owner: caller.clone(),
            task: task_id.clone(),
            context: context.clone(),
            first: first.clone(),
            at: now,
            idempotency: IdempotencyKey { digest, valid_since: self.window_start(now) },
        };
        let created = self.around.store.create(create).await;
        if !matches!(created, Ok(Created::New)) {
            self.around.registry.remove(&task_id);
        }
        if let Created::Existing(task) = created? {
            let existing = self.get(&caller, &task).await?;
            return Ok(self.sent(task, existing.task.context_id));
        }
        let task = Task::begin(task_id.clone(), &first)
            .ok_or_else(|| Error::internal("a first event that makes no task"))?;
        live.publish(Seq::START.next(), vec![first]);
        // The reader is made before the actor runs, so that it cannot miss the live log of a very short task.
        let sent = self.sent(task_id, context);
        let head = Seq::START.next();
        self.own(Ownership { owner: caller, inbox, live, task, head, place, begun: None });
        Ok(sent)
    }

    pub async fn get(&self, caller: &Principal, task: &TaskId) -> Result<Snapshot> {
        let stored = self.around.store.get(caller, task).await?;
        let stored = stored.ok_or_else(|| Error::task_not_found(task))?;
        Ok(Snapshot { task: stored.task, seq: stored.seq })
    }

    pub async fn list(&self, caller: &Principal, query: ListTasks) -> Result<Listing> {
        let after = match query.page_token.as_deref() {
            None | Some("") => None,
            Some(token) => Some(page_token::decode(token)?),
        };
        let page = self
            .around
            .store
            .list(ListQuery {
                owner: caller.clone(),
                context: query.context_id,
                state: query.state,
                status_after: query.status_after,
                limit: query.page_size as usize,
                after,
                with_artifacts: query.include_artifacts,
            })
            .await?;
        Ok(Listing {
            tasks: page.tasks,
            total: page.total,
            page_size: query.page_size,
            next_page_token: page.next.as_ref().map(page_token::encode).unwrap_or_default(),
        })
    }

    /// Ends the task, then tells the agent. The conversation stays bound to its session.
    pub async fn cancel(&self, caller: &Principal, task: &TaskId) -> Result<Snapshot> {
        let snapshot = self.get(caller, task).await?;
        let state = snapshot.task.status.state;
        if !state.is_terminal()
            && let Some(inbox) = self.around.registry.inbox(task)
        {
            let (reply, answer) = oneshot::channel();
            if inbox.send(Inbox::Cancel { reply }).await.is_ok()
                && let Ok(answer) = answer.await
            {
                return answer;
            }
        }
        // The task ended by itself before it could be canceled.
        let state = self.get(caller, task).await?.task.status.state;
        if state.is_terminal() {
            let text = format!("The task is already {state} and cannot be canceled.");
            return Err(Error::new(ErrorKind::TaskNotCancelable, text)
                .detail("taskId", task.as_str())
                .detail("state", state.as_str()));
        }
        Err(Error::new(ErrorKind::Unavailable, "The gateway is shutting down; cancel again when it is back."))
    }

    /// A reader from where the caller left off, or from now on.
    pub async fn subscribe(
        &self,
        caller: &Principal,
        task: &TaskId,
        after: Option<Seq>,
    ) -> Result<Subscription> {
        let head = self.around.store.head(caller, task).await?;
        let head = head.ok_or_else(|| Error::task_not_found(task))?;
        let Some(cursor) = after else {
            let snapshot = self.get(caller, task).await?;
            if snapshot.task.status.state.is_terminal() {
                let text = format!(
                    "The task is {}: there is nothing to subscribe to. Get the task, or send Last-Event-ID to read \
                     the events that you missed.",
                    snapshot.task.status.state
                );
                return Err(Error::new(ErrorKind::UnsupportedOperation, text).detail("taskId", task.as_str()));
            }
            let reader = self.reader(task.clone(), snapshot.task.context_id.clone(), snapshot.seq);
            return Ok(Subscription { opening: Opening::Snapshot(snapshot), reader });
        };
        let snapshot = self.get(caller, task).await?;
        let context = snapshot.task.context_id.clone();
        // The task may have grown since its head was read; the snapshot is newer.
        if cursor > snapshot.seq || cursor.next() < head.first {
            let bounds = GapBounds { requested: cursor, first: head.first, head: snapshot.seq };
            let reader = self.reader(task.clone(), context, snapshot.seq);
            return Ok(Subscription { opening: Opening::Gap(snapshot, bounds), reader });
        }
        Ok(Subscription { opening: Opening::Tail, reader: self.reader(task.clone(), context, cursor) })
    }

    /// Waits until the task is over or asks something, and gives it as it is then.
    pub async fn settled(&self, caller: &Principal, mut reader: TaskReader) -> Result<Snapshot> {
        while let Some(entries) = reader.next().await? {
            if entries.iter().any(|entry| entry.entry.event.is_settling()) {
                break;
            }
        }
        self.get(caller, reader.task_id()).await
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.around.store
    }

    /// Gives an unfinished task an owner again.
    pub(crate) fn take_up(&self, stored: StoredTask) {
        let StoredTask { owner, task, seq, turn } = stored;
        let place = self.around.lanes.enter(LaneKey::Context(owner.clone(), task.context_id.clone()));
        let (live, inbox) = self.register(task.id.clone(), seq);
        self.own(Ownership { owner, inbox, live, task, head: seq, place, begun: turn });
    }

    fn own(&self, ownership: Ownership) {
        let actor = Actor::new(self.around.clone(), ownership);
        self.around.tasks.spawn("task", actor.run());
    }

    fn register(&self, task: TaskId, head: Seq) -> (Arc<LiveLog>, mpsc::Receiver<Inbox>) {
        let live = Arc::new(LiveLog::new(task, head));
        let (sender, inbox) = mpsc::channel(INBOX);
        self.around.registry.insert(Arc::clone(&live), sender);
        (live, inbox)
    }

    fn sent(&self, task: TaskId, context: ContextId) -> Sent {
        Sent { reader: self.reader(task.clone(), context, Seq::START), task }
    }

    fn reader(&self, task: TaskId, context: ContextId, cursor: Seq) -> TaskReader {
        let (store, registry) = (Arc::clone(&self.around.store), Arc::clone(&self.around.registry));
        TaskReader::new(store, registry, task, context, cursor)
    }

    /// Binds the context to a session that the caller has used before. Nothing happens when it is bound to it.
    async fn bind_known_session(
        &self,
        caller: &Principal,
        context: &ContextId,
        session: &SessionId,
        at: Timestamp,
    ) -> Result<()> {
        const FIELD: &str = "metadata.shared.session.id";
        match self.around.store.binding(caller, context).await? {
            Some(bound) if bound.id == *session => return Ok(()),
            Some(_) => {
                return Err(Error::invalid(
                    FIELD,
                    "is not the session of this context; start another context with it",
                ));
            }
            None => {}
        }
        // Another's session and one that nobody knows look the same from outside.
        let known = self.around.store.session(session).await?.filter(|known| known.owner == *caller);
        let known = known.ok_or_else(|| Error::invalid(FIELD, "is no session that you may use"))?;
        let (owner, context) = (caller.clone(), context.clone());
        self.around.store.bind(Binding { owner, context, session: known.session, at }).await
    }

    fn window_start(&self, now: Timestamp) -> Timestamp {
        let window = i64::try_from(self.around.config.idempotency_window.as_millis()).unwrap_or(i64::MAX);
        Timestamp(now.0.saturating_sub(window))
    }

    /// A message on a task that exists. A turn takes one message, so there is no task that can take another.
    async fn refuse_follow_up(&self, caller: &Principal, task: &TaskId, message: &Message) -> Error {
        let snapshot = match self.get(caller, task).await {
            Ok(snapshot) => snapshot,
            Err(error) => return error,
        };
        if let Some(context) = &message.context_id
            && *context != snapshot.task.context_id
        {
            return Error::invalid(
                "message.contextId",
                "is not the context of the task in message.taskId; leave it out, or send the task's own",
            );
        }
        let state = snapshot.task.status.state;
        let text = if state.is_terminal() {
            format!(
                "The task is {state} and takes no more messages; send this one without taskId, with its contextId."
            )
        } else {
            format!(
                "The task is {state} and asks for nothing; send this message without taskId, with its contextId, and it \
                 will be taken up when the task is over."
            )
        };
        Error::new(ErrorKind::UnsupportedOperation, text)
            .detail("taskId", task.as_str())
            .detail("state", state.as_str())
    }
}

/// Only what the agent can take today, and what the card says.
fn check_content(message: &Message) -> Result<()> {
    for (index, part) in message.parts.iter().enumerate() {
        if matches!(part.content, PartContent::Raw(_) | PartContent::Url(_)) {
            let text =
                format!("message.parts[{index}]: files are not taken; send text/plain or application/json.");
            return Err(Error::new(ErrorKind::ContentTypeNotSupported, text));
        }
    }
    Ok(())
}

fn new_task_id() -> TaskId {
    TaskId::parse(&Uuid::now_v7().to_string()).expect("a UUID is an id")
}

fn new_context_id() -> ContextId {
    ContextId::parse(&Uuid::now_v7().to_string()).expect("a UUID is an id")
}
