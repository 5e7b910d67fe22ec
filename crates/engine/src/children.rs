//! The sub-agents of a turn as the root task's actor sees them: which ones exist, and the actors of their tasks.

use std::collections::BTreeMap;

use longshore_model::{
    AgentEvent, Ask, ChildEvent, ChildStart, ErrorKind, Failure, Interrupt, InterruptNote, Message,
    MessageId, Outcome, Parent, Part, Principal, Result, Retry, Role, Seq, SessionId, Task, TaskEvent,
    TaskId, TaskOptions, TaskState,
};
use tokio::sync::oneshot;

use crate::actor_request::ActorRequest;
use crate::asks::AskChangeForChild;
use crate::child::{ChildActor, ChildReport};
use crate::derived_ids;
use crate::engine_context::EngineContext;
use crate::port::{Create, ResumedChild, ResumedChildState, Session, Store, StoredTask};
use crate::queue;
use crate::registry::{Registered, Registration};
use crate::snapshot::Snapshot;
use crate::states;
use crate::writer::Writer;

/// How many reports may wait for the actor of a child task. If the queue is full, the turn waits. A full queue means that the
/// store is slow, and then it is slow for all tasks.
const REPORT_CAPACITY: usize = 64;

/// The prompt of a sub-agent is cut to this many characters when it becomes the message of the child task. The agent's own
/// records have the full prompt.
const MAX_PROMPT_CHARS: usize = 64 * 1024;

/// The type and the model of a sub-agent are cut to this many characters. The agent's model writes the type, so it can be long.
const MAX_NAME_CHARS: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Children {
    /// Ordered, so that the child tasks end in the same order each time.
    by_session: BTreeMap<SessionId, Child>,
    are_behind: bool,
    /// A child task that may or may not exist, because the store did not confirm that it was created.
    pending_create: Option<Box<PendingCreate>>,
}

/// A child task that is being created. It stays registered the whole time: a caller who finds the task in the store must also
/// find its actor.
#[derive(Debug)]
struct PendingCreate {
    create: Create,
    created: Task,
    registered: RegisteredTask,
}

#[derive(Debug)]
struct Child {
    task: TaskId,
    depth: u32,
    /// The channel to the actor of the child task. `None`: the sub-agent has ended.
    reports: Option<queue::Sender<ChildReport>>,
}

/// The facts about the root task that its child tasks inherit.
pub(crate) struct Root<'a> {
    pub(crate) owner: &'a Principal,
    pub(crate) task: &'a Task,
    pub(crate) session: &'a Session,
}

impl Children {
    /// Adds the sub-agents of an earlier run of the gateway, and starts actors for the unfinished ones.
    pub(crate) fn resume(&mut self, ctx: &EngineContext, session: &Session, stored: Vec<StoredTask>) {
        for child in stored {
            let Some(parent) = child.task.parent.clone() else { continue };
            let (task, depth) = (child.task.id.clone(), parent.depth);
            let is_over = child.task.status.state.is_terminal();
            let reports = if is_over { None } else { start_actor(ctx, &session.directory, child) };
            self.by_session.insert(parent.session, Child { task, depth, reports });
        }
    }

    /// Whether the actors may still have reports that are not in their logs.
    pub(crate) fn are_behind(&self) -> bool {
        self.are_behind
    }

    /// Waits until everything that the actors have received is in their logs. If the future is dropped before it ends, some of
    /// it may be missing.
    pub(crate) fn caught_up(&mut self) -> impl Future<Output = ()> + use<> {
        self.are_behind = false;
        let all: Vec<_> = self.by_session.values().filter_map(|child| child.reports.clone()).collect();
        async move {
            for reports in all {
                let (written, is_written) = oneshot::channel();
                // An actor whose task is over receives no more reports, and has written all earlier ones.
                if reports.send(ChildReport::Write(written)).await.is_ok() {
                    let _ = is_written.await;
                }
            }
        }
    }

    /// Passes an event of a sub-agent to the actor of its child task. Creates the task and the actor for a new sub-agent.
    pub(crate) async fn take(
        &mut self,
        ctx: &EngineContext,
        root: Root<'_>,
        session: SessionId,
        event: ChildEvent,
    ) -> Result<()> {
        match event {
            ChildEvent::Started(start) => self.start(ctx, root, session, start).await,
            ChildEvent::Working(prompt) => {
                self.report(&session, ChildReport::Working(prompt)).await;
                Ok(())
            }
            ChildEvent::Model(model) => {
                self.report(&session, ChildReport::Model(short(&model))).await;
                Ok(())
            }
            ChildEvent::Report(report) => {
                self.report(&session, ChildReport::Report(report)).await;
                Ok(())
            }
        }
    }

    /// Passes a change of an ask to the actor of the sub-agent that asked.
    pub(crate) async fn report_ask(&mut self, change: AskChangeForChild) {
        let session = match &change {
            AskChangeForChild::Asked(Ask { session, .. }) | AskChangeForChild::Closed { session, .. } => {
                session.clone()
            }
        };
        self.report(&session, ChildReport::Ask(change)).await;
    }

    /// Ends the tasks of all sub-agents, because the root task has ended in `state`.
    pub(crate) async fn end(self, state: TaskState) {
        for reports in self.by_session.into_values().filter_map(|child| child.reports) {
            // An actor whose task has already ended receives no more reports.
            let _ = reports.send(ChildReport::RootOver(state)).await;
        }
    }

    async fn start(
        &mut self,
        ctx: &EngineContext,
        root: Root<'_>,
        session: SessionId,
        start: ChildStart,
    ) -> Result<()> {
        let task = derived_ids::child_task(&root.task.id, &session, start.call.as_deref());
        if self.by_session.get(&session).is_some_and(|known| known.task == task) {
            return Ok(());
        }
        let caller = self.by_session.get(&start.caller);
        let parent = Parent {
            root: root.task.id.clone(),
            task: caller.map_or_else(|| root.task.id.clone(), |caller| caller.task.clone()),
            call: start.call.clone(),
            depth: caller.map_or(0, |caller| caller.depth) + 1,
            session: session.clone(),
            kind: start.kind.as_deref().map(short),
            model: start.model.as_deref().map(short),
        };
        let depth = parent.depth;
        let pending_create = match self.pending_create.take().filter(|pending| pending.create.task == task) {
            Some(pending_create) => pending_create,
            None => Box::new(PendingCreate::new(ctx, create(ctx, &root, task.clone(), parent, &start))?),
        };
        let reports = self.create_and_start(ctx, &root, &session, pending_create).await?;
        let before = self.by_session.insert(session, Child { task, depth, reports });
        if let Some(reports) = before.and_then(|before| before.reports) {
            let text = "The sub-agent was called again before it had ended.";
            let ended = AgentEvent::Ended(Outcome::Failed(Failure::new(text)));
            // An actor whose task is over receives no more reports.
            let _ = reports.send(ChildReport::Report(ended)).await;
        }
        Ok(())
    }

    /// Creates the task, unless it exists, and starts its actor.
    async fn create_and_start(
        &mut self,
        ctx: &EngineContext,
        root: &Root<'_>,
        session: &SessionId,
        pending_create: Box<PendingCreate>,
    ) -> Result<Option<queue::Sender<ChildReport>>> {
        let existing = match ctx.ports.store.create(pending_create.create.clone()).await {
            Ok(_) => Ok(None),
            // An attempt that returned an error may have created the task nevertheless.
            Err(error) => match ctx.ports.store.get(root.owner, &pending_create.create.task).await {
                Ok(Some(stored)) => Ok(Some(stored)),
                Ok(None) => Err(error),
                Err(error) => Err(error),
            },
        };
        match existing {
            Ok(Some(stored)) if stored.seq != Seq::START.next() || stored.task != pending_create.created => {
                if stored.seq == Seq::START.next() {
                    states::count(&ctx.metrics, TaskState::Submitted);
                }
                // Registers the stored task before dropping the unneeded registration of `pending_create`.
                Ok(start_actor(ctx, &root.session.directory, stored))
            }
            Ok(_) => {
                states::count(&ctx.metrics, TaskState::Submitted);
                let own_session = Session { id: session.clone(), directory: root.session.directory.clone() };
                Ok(Some(pending_create.registered.start(ctx, root.owner, own_session)))
            }
            Err(error) => {
                if error.retry() == Retry::Later {
                    self.pending_create = Some(pending_create);
                }
                Err(error)
            }
        }
    }

    async fn report(&mut self, session: &SessionId, report: ChildReport) {
        let Some(child) = self.by_session.get_mut(session) else {
            tracing::debug!(%session, "a report of a sub-agent that was not announced");
            return;
        };
        let Some(sender) = &child.reports else { return };
        self.are_behind = true;
        if sender.send(report).await.is_err() {
            // A caller canceled the child task, or the task is over.
            child.reports = None;
        }
    }
}

/// The sub-agents in the form that the driver of a resumed turn needs.
pub(crate) fn resumed(stored: &[StoredTask]) -> Vec<ResumedChild> {
    let child = |stored: &StoredTask| {
        let parent = stored.task.parent.as_ref()?;
        let state = if stored.task.status.state.is_terminal() {
            ResumedChildState::Over
        } else {
            let prompt = stored.turn.as_ref().map(|turn| turn.prompt.clone());
            ResumedChildState::Running { prompt, artifacts: stored.task.artifacts.clone() }
        };
        Some(ResumedChild { session: parent.session.clone(), call: parent.call.clone(), state })
    };
    stored.iter().filter_map(child).collect()
}

/// The changes to the root task's asks that the log of a child task lacks, because the gateway stopped between the two
/// writes.
pub(crate) async fn missed_asks(
    store: &dyn Store,
    root: &[Interrupt],
    child: &StoredTask,
) -> Result<Vec<AskChangeForChild>> {
    let StoredTask { owner, task: child, .. } = child;
    let Some(parent) = child.parent.as_ref().filter(|_| !child.status.state.is_terminal()) else {
        return Ok(Vec::new());
    };
    let knows = |ask: &Ask| child.open_asks.iter().any(|open| open.request_id == ask.request_id);
    let asks = root.iter().map(|open| &open.ask);
    let opened = asks.filter(|ask| ask.session == parent.session && !knows(ask));
    let mut missed: Vec<_> = opened.cloned().map(AskChangeForChild::Asked).collect();
    for open in &child.open_asks {
        if root.iter().any(|known| known.ask.request_id == open.request_id) {
            continue;
        }
        let stored = match store.interrupt(owner, &open.request_id).await {
            // The entry that says how the ask ended cannot be read. One such ask must not keep the gateway from starting.
            Err(error) if error.kind() == ErrorKind::Internal => {
                tracing::error!(task = %child.id, request = %open.request_id, error = ?error, "an ask is damaged");
                None
            }
            stored => stored?,
        };
        if let Some(interrupt) = stored
            && let Some(closed) = &interrupt.closed
        {
            let (session, note) = (parent.session.clone(), InterruptNote::resolved(&interrupt, closed));
            missed.push(AskChangeForChild::Closed { session, note });
        }
    }
    Ok(missed)
}

/// Starts an actor for the unfinished task of a sub-agent that works in `directory`. Returns the sender for reports to the
/// actor. `None`: the task has no parent, so it is not a child task.
pub(crate) fn start_actor(
    ctx: &EngineContext,
    directory: &str,
    stored: StoredTask,
) -> Option<queue::Sender<ChildReport>> {
    let id = stored.task.parent.as_ref()?.session.clone();
    let session = Session { id, directory: directory.to_owned() };
    let owner = stored.owner.clone();
    Some(RegisteredTask::register(ctx, &owner, stored.into()).start(ctx, &owner, session))
}

impl PendingCreate {
    /// Registers the task before the store is called.
    fn new(ctx: &EngineContext, create: Create) -> Result<Self> {
        let from = Snapshot::first(create.task.clone(), &create.first, ctx.ports.store.epoch())?;
        let created = from.task.clone();
        let registered = RegisteredTask::register(ctx, &create.owner, from);
        Ok(Self { create, created, registered })
    }
}

/// A task that is registered but has no running actor yet.
#[derive(Debug)]
struct RegisteredTask {
    registration: Registration,
    inbox: queue::Receiver<ActorRequest>,
    writer: Writer,
}

impl RegisteredTask {
    fn register(ctx: &EngineContext, owner: &Principal, from: Snapshot) -> Self {
        let registered = ctx.live.registry.register(None, from.task.id.clone(), from.seq);
        let Registered { registration, live, inbox } = registered;
        let bytes = ctx.live.unfinished.count_bytes(owner, from.task.weight());
        let writer = Writer::new(ctx, live, owner.clone(), from, bytes);
        Self { registration, inbox, writer }
    }

    fn start(self, ctx: &EngineContext, owner: &Principal, session: Session) -> queue::Sender<ChildReport> {
        let Self { registration, inbox, writer } = self;
        let (sender, reports) = queue::channel(REPORT_CAPACITY);
        let (ctx, owner) = (ctx.clone(), owner.clone());
        let tasks = ctx.tasks.clone();
        let actor = ChildActor { ctx, owner, registration, inbox, writer, session, reports };
        tasks.spawn("sub-agent", actor.run());
        sender
    }
}

fn short(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).collect()
}

fn create(ctx: &EngineContext, root: &Root<'_>, task: TaskId, parent: Parent, start: &ChildStart) -> Create {
    let at = ctx.ports.clock.now();
    let id = MessageId::parse(&format!("{task}.prompt")).expect("an id and letters are an id");
    let prompt: String = start.prompt.chars().take(MAX_PROMPT_CHARS).collect();
    let mut message = Message::new(id, Role::User, vec![Part::text(prompt)]);
    message.context_id = Some(root.task.context_id.clone());
    message.task_id = Some(task.clone());
    let first = TaskEvent::Submitted {
        context_id: root.task.context_id.clone(),
        message,
        at,
        // A child task accepts the same media types as the root task, because the same clients read both.
        options: Box::new(TaskOptions { output: root.task.options.output.clone(), ..TaskOptions::default() }),
        parent: Some(Box::new(parent)),
    };
    Create {
        owner: root.owner.clone(),
        task,
        context: root.task.context_id.clone(),
        first,
        at,
        idempotency: None,
        directory: root.session.directory.clone(),
        directory_named: false,
        session: None,
        claim: None,
        begun: None,
        push: None,
    }
}
