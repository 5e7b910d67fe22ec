//! One function per operation: authorise, find or make the task, read.

use std::sync::Arc;
use std::time::Duration;

use longshore_model::{
    Answer, Ask, AskKind, Closed, ContextId, Error, ErrorKind, Interrupt, ListTasks, Message, PartContent,
    Principal, RequestId, Resolution, Result, SendMessage, Seq, Task, TaskEvent, TaskId, Terms, Timestamp,
};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::actor::{Actor, Begun, INBOX, Inbox, Ownership, Surroundings};
use crate::asks::{self, Given};
use crate::config::EngineConfig;
use crate::lanes::LaneKey;
use crate::live::LiveLog;
use crate::port::{Agent, Clock, Create, Created, Head, IdempotencyKey, ListQuery, Store, StoredTask};
use crate::reader::TaskReader;
use crate::registry::{Registration, Registry};
use crate::tasks::Tasks;
use crate::{answer, idempotency, page_token};

/// How long a cancel waits for the owner of the task, who answers at once unless the store is away.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);

/// Where a caller names a session.
const SESSION_FIELD: &str = "metadata.shared.session.id";

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

/// The task that a message made or went to, and a reader of its log.
#[derive(Debug)]
pub struct Sent {
    pub task: TaskId,
    /// `Tail` for a task that this message made, now or before: the reader gives all of it.
    pub opening: Opening,
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
    /// The reader has something to give at once: events that were missed, or the end of a task that is over.
    pub is_behind: bool,
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
        let registry = Arc::new(Registry::new(tasks.stopping().clone()));
        Self { around: Surroundings { store, agent, clock, tasks, registry, lanes: Arc::default(), config } }
    }

    /// Makes a task of the message, durably, and starts it when its turn comes.
    pub async fn send(&self, caller: &Principal, command: SendMessage) -> Result<Sent> {
        check_content(&command.message)?;
        if let Some(task) = command.message.task_id.clone() {
            return self.follow_up(caller, &task, command.message).await;
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
        let lane = LaneKey::Context(caller.clone(), context.clone());
        self.check_room(&caller, &lane)?;
        let mut message = command.message;
        message.context_id = Some(context.clone());
        message.task_id = Some(task_id.clone());
        let terms = Terms { output: command.config.accepted_output_modes, prompt: command.wishes.prompt };
        let first = TaskEvent::Submitted {
            context_id: context.clone(),
            message,
            at: now,
            terms: Box::new(terms),
            parent: None,
        };

        // The place is taken and the log made known before the store is asked: the order of messages is the order
        // in which they came, and whoever finds the task in the store finds its owner too.
        let place = self.around.lanes.enter(lane);
        let (registration, live, inbox) = self.register(caller.clone(), task_id.clone(), Seq::START);
        let create = Create {
            owner: caller.clone(),
            task: task_id.clone(),
            context: context.clone(),
            first: first.clone(),
            at: now,
            idempotency: Some(IdempotencyKey { digest, valid_since: self.window_start(now) }),
            directory: String::new(),
            directory_named: false,
            session: command.wishes.session,
            claim: None,
        };
        match self.around.store.create(create).await? {
            Created::New => {}
            Created::Existing { task, context } => return Ok(self.sent(task, context)),
            Created::OtherSession => {
                return Err(Error::invalid(
                    SESSION_FIELD,
                    "is not the session of this context; start another context with it",
                ));
            }
            // Another's session and one that nobody knows look the same from outside.
            Created::OtherDirectory => {
                return Err(Error::invalid("metadata.opencode.directory", "is not the directory of this context"));
            }
            Created::UnknownSession | Created::ForeignSession => {
                return Err(Error::invalid(SESSION_FIELD, "is no session that you may use"));
            }
        }
        let task = Task::begin(task_id.clone(), &first)
            .ok_or_else(|| Error::internal("a first event that makes no task"))?;
        let head = Seq::START.next();
        live.publish(head, vec![first]);
        // The reader is made before the actor runs, so that it cannot miss the live log of a very short task.
        let sent = self.sent(task_id, context);
        self.own(Ownership {
            owner: caller,
            registration,
            inbox,
            live,
            task,
            head,
            place,
            begun: None,
            open_asks: Vec::new(),
        });
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
                roots_only: false,
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
        self.head(caller, task).await?;
        if let Some(inbox) = self.around.registry.inbox(task) {
            let (reply, answer) = oneshot::channel();
            let asked = async {
                inbox.send(Inbox::Cancel { reply }).await.ok()?;
                answer.await.ok()
            };
            match tokio::time::timeout(CANCEL_PATIENCE, asked).await {
                Ok(Some(answer)) => return answer,
                // The task ended by itself before it could be canceled, or its owner stopped.
                Ok(None) => {}
                Err(_) => {
                    let text = "The store does not take the cancel now. It stands, and is done when the store is back.";
                    return Err(Error::new(ErrorKind::Unavailable, text));
                }
            }
        }
        let state = self.head(caller, task).await?.state;
        if !state.is_terminal() {
            return Err(self.around.registry.no_owner());
        }
        let text = format!("The task is already {state} and cannot be canceled.");
        Err(Error::new(ErrorKind::TaskNotCancelable, text)
            .detail("taskId", task.as_str())
            .detail("state", state.as_str()))
    }

    /// A reader from where the caller left off, or from now on.
    pub async fn subscribe(
        &self,
        caller: &Principal,
        task: &TaskId,
        after: Option<Seq>,
    ) -> Result<Subscription> {
        let head = self.head(caller, task).await?;
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
            let reader = self.reader(task.clone(), head.context, snapshot.seq);
            return Ok(Subscription { opening: Opening::Snapshot(snapshot), reader, is_behind: false });
        };
        if cursor > head.seq || cursor.next() < head.first {
            let snapshot = self.get(caller, task).await?;
            let bounds = GapBounds { requested: cursor, first: head.first, head: snapshot.seq };
            let reader = self.reader(task.clone(), head.context, snapshot.seq);
            return Ok(Subscription { opening: Opening::Gap(snapshot, bounds), reader, is_behind: false });
        }
        let is_behind = cursor < head.seq || head.state.is_terminal();
        let reader = self.reader(task.clone(), head.context, cursor);
        Ok(Subscription { opening: Opening::Tail, reader, is_behind })
    }

    /// Waits until the task is over or asks something, and gives it as it is then.
    pub async fn settled(&self, caller: &Principal, mut reader: TaskReader) -> Result<Snapshot> {
        if reader.cursor() > Seq::START {
            // Behind a message that answered one of several asks: the task still waits for the others.
            let snapshot = self.get(caller, reader.task_id()).await?;
            if snapshot.task.status.state.is_settled() {
                return Ok(snapshot);
            }
        }
        while let Some(entries) = reader.next().await? {
            let newest = entries.iter().rev().find_map(|entry| entry.entry.event.status());
            if newest.is_some_and(|status| status.state.is_settled()) {
                // What was asked in the middle of a log may have been answered long ago.
                let snapshot = self.get(caller, reader.task_id()).await?;
                if snapshot.task.status.state.is_settled() {
                    return Ok(snapshot);
                }
            }
        }
        self.get(caller, reader.task_id()).await
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.around.store
    }

    /// Makes an unfinished task ready to be owned again: all its places in the lanes are taken.
    pub(crate) fn take_up(&self, stored: StoredTask) -> Ownership {
        let StoredTask { owner, task, seq: head, turn, open_asks } = stored;
        tracing::info!(task = %task.id, state = %task.status.state, "taking up a task");
        let lanes = &self.around.lanes;
        let place = lanes.enter(LaneKey::Context(owner.clone(), task.context_id.clone()));
        let begun = turn
            .map(|record| Begun { place: lanes.enter(LaneKey::Session(record.session.id.clone())), record });
        let (registration, live, inbox) = self.register(owner.clone(), task.id.clone(), head);
        Ownership { owner, registration, inbox, live, task, head, place, begun, open_asks }
    }

    pub(crate) fn own(&self, ownership: Ownership) {
        let actor = Actor::new(self.around.clone(), ownership);
        self.around.tasks.spawn("task", actor.run());
    }

    fn register(
        &self,
        owner: Principal,
        task: TaskId,
        head: Seq,
    ) -> (Registration, Arc<LiveLog>, mpsc::Receiver<Inbox>) {
        let live = Arc::new(LiveLog::new(task, head));
        let (sender, inbox) = mpsc::channel(INBOX);
        let registration = self.around.registry.insert(owner, Arc::clone(&live), sender);
        (registration, live, inbox)
    }

    async fn head(&self, caller: &Principal, task: &TaskId) -> Result<Head> {
        let head = self.around.store.head(caller, task).await?;
        head.ok_or_else(|| Error::task_not_found(task))
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

    fn sent(&self, task: TaskId, context: ContextId) -> Sent {
        Sent { reader: self.reader(task.clone(), context, Seq::START), opening: Opening::Tail, task }
    }

    fn reader(&self, task: TaskId, context: ContextId, cursor: Seq) -> TaskReader {
        let (store, registry) = (Arc::clone(&self.around.store), Arc::clone(&self.around.registry));
        TaskReader::new(store, registry, task, context, cursor)
    }

    fn window_start(&self, now: Timestamp) -> Timestamp {
        let window = i64::try_from(self.around.config.idempotency_window.as_millis()).unwrap_or(i64::MAX);
        Timestamp(now.0.saturating_sub(window))
    }

    /// A message on a task that exists: the answer to what it asks.
    async fn follow_up(&self, caller: &Principal, task: &TaskId, mut message: Message) -> Result<Sent> {
        let stored = self.around.store.get(caller, task).await?;
        let stored = stored.ok_or_else(|| Error::task_not_found(task))?;
        let context = stored.task.context_id.clone();
        if message.context_id.as_ref().is_some_and(|named| *named != context) {
            return Err(Error::invalid(
                "message.contextId",
                "is not the context of the task in message.taskId; leave it out, or send the task's own",
            ));
        }
        message.context_id = Some(context.clone());
        // The same message again, because its answer got lost: it was taken, and the caller is attached.
        let snapshot = if stored.task.history.contains(&message) {
            Snapshot { task: stored.task, seq: stored.seq }
        } else {
            if !stored.task.status.state.is_interrupted() || stored.open_asks.is_empty() {
                return Err(takes_no_message(&stored.task));
            }
            let open: Vec<&Ask> = stored.open_asks.iter().map(|open| &open.ask).collect();
            let (request, answer) = answer::read(&message, &open)?;
            self.deliver(caller, task, request, answer, Some(message)).await?
        };
        let reader = self.reader(task.clone(), context, snapshot.seq);
        Ok(Sent { task: task.clone(), opening: Opening::Snapshot(snapshot), reader })
    }

    /// Answers an ask by its name.
    pub async fn answer(&self, caller: &Principal, request: &RequestId, answer: Answer) -> Result<()> {
        let known = self.around.store.interrupt(request).await?;
        // Another's ask and one that never was look the same from outside.
        let known = known.filter(|known| known.owner == *caller).ok_or_else(|| asks::not_open(request))?;
        if let Some(closed) = &known.closed {
            return Err(self.too_late(request, closed));
        }
        if known.ask.kind != answer.kind() {
            return Err(asks::type_mismatch(&known.ask, &answer));
        }
        self.deliver(caller, &known.task, request.clone(), answer, None).await.map(drop)
    }

    /// The open asks of a caller, soonest deadline first.
    pub async fn open_asks(&self, caller: &Principal, kind: AskKind) -> Result<Vec<Interrupt>> {
        self.around.store.open_interrupts(caller, kind).await
    }

    /// Hands an answer to the owner of the task, and waits until the agent has it and the log says so.
    async fn deliver(
        &self,
        caller: &Principal,
        task: &TaskId,
        request: RequestId,
        answer: Answer,
        message: Option<Message>,
    ) -> Result<Snapshot> {
        let (reply, told) = oneshot::channel();
        let given = Given { request: request.clone(), answer, by: caller.clone(), message, reply };
        if let Some(inbox) = self.around.registry.inbox(task)
            && inbox.send(Inbox::Answer(Box::new(given))).await.is_ok()
            && let Ok(told) = told.await
        {
            return told;
        }
        // The owner went away: with the turn, and nobody asks any more, or with the gateway, and the ask stays open.
        if self.head(caller, task).await?.state.is_terminal() {
            return Err(asks::not_open(&request));
        }
        Err(self.around.registry.no_owner())
    }

    fn too_late(&self, request: &RequestId, closed: &Closed) -> Error {
        let tombstone = i64::try_from(self.around.config.asks.tombstone.as_millis()).unwrap_or(i64::MAX);
        let is_told = closed.at.0.saturating_add(tombstone) > self.around.clock.now().0;
        if closed.resolution != Resolution::Expired || !is_told {
            return asks::not_open(request);
        }
        let text = format!("The ask {request} was not answered in time.");
        Error::new(ErrorKind::InterruptExpired, text).detail("requestId", request.as_str())
    }
}

fn takes_no_message(task: &Task) -> Error {
    let state = task.status.state;
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
        .detail("taskId", task.id.as_str())
        .detail("state", state.as_str())
}

/// Only what the agent can take today, and what the card says.
fn check_content(message: &Message) -> Result<()> {
    for (index, part) in message.parts.iter().enumerate() {
        let is_taken = |media_type: &str| match part.content {
            PartContent::Text(_) => media_type.starts_with("text/"),
            PartContent::Data(_) => media_type == "application/json" || media_type.ends_with("+json"),
            PartContent::Raw(_) | PartContent::Url(_) => false,
        };
        let is_file = matches!(part.content, PartContent::Raw(_) | PartContent::Url(_));
        // Parameters such as a character set do not change the kind.
        let media_type = part.media_type.as_deref().unwrap_or("").split(';').next().unwrap_or("").trim();
        if is_file || !(media_type.is_empty() || is_taken(&media_type.to_ascii_lowercase())) {
            let text = format!(
                "message.parts[{index}]: this agent takes text as text/* and data as application/json."
            );
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
