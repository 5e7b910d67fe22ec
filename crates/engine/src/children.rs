//! The sub-agents of a turn, seen from the owner of the root task: which there are, and who writes their logs.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_model::{
    AgentEvent, Ask, ChildEvent, ChildStart, Error, ErrorKind, Failure, Interrupt, Message, MessageId,
    Outcome, Parent, Part, Principal, Result, Retry, Role, Seq, SessionId, Task, TaskEvent, TaskId,
    TaskOptions, TaskState,
};
use tokio::sync::oneshot;

use crate::actor::{INBOX, Inbox, Surroundings};
use crate::asks::AskNews;
use crate::child::{ChildActor, News};
use crate::live::LiveLog;
use crate::names;
use crate::port::{Create, ResumedChild, ResumedChildState, Session, Store, StoredTask};
use crate::queue;
use crate::registry::Registration;
use crate::service::Snapshot;
use crate::states;
use crate::writer::Writer;

/// News that may wait for the owner of a sub-agent's task. At the bound the turn waits: the store is slow for all.
const NEWS: usize = 64;

/// The longest prompt of a sub-agent that its task shows as its message, in characters. The agent's own list has it whole.
const MAX_PROMPT_CHARS: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Children {
    /// In an order, so that they end in the same one each time.
    by_session: BTreeMap<SessionId, Child>,
    are_behind: bool,
    /// One whose task may be there or not: the store did not say.
    unsure: Option<Box<Unsure>>,
}

/// A sub-agent's task that was to be made. It has its place all the while: whoever finds it in the store must not find it without
/// an owner.
#[derive(Debug)]
struct Unsure {
    create: Create,
    begun: Task,
    place: Place,
}

#[derive(Debug)]
struct Child {
    task: TaskId,
    depth: u32,
    /// `None`: it is over.
    news: Option<queue::Sender<News>>,
}

/// The root task, as far as its sub-agents' tasks take after it.
pub(crate) struct Root<'a> {
    pub(crate) owner: &'a Principal,
    pub(crate) task: &'a Task,
    pub(crate) session: &'a Session,
}

impl Children {
    /// Those that an earlier run of the gateway knew: gives the unfinished ones an owner again.
    pub(crate) fn take_up(&mut self, around: &Surroundings, session: &Session, stored: Vec<StoredTask>) {
        for child in stored {
            let Some(parent) = child.task.parent.clone() else { continue };
            let (task, depth) = (child.task.id.clone(), parent.depth);
            let is_over = child.task.status.state.is_terminal();
            let news = if is_over { None } else { own(around, &session.directory, child) };
            self.by_session.insert(parent.session, Child { task, depth, news });
        }
    }

    /// Their owners have not said yet that everything they were told is in their logs.
    pub(crate) fn are_behind(&self) -> bool {
        self.are_behind
    }

    /// Waits until everything that they were told is in their logs. Dropping this does not make it so.
    pub(crate) fn caught_up(&mut self) -> impl Future<Output = ()> + use<> {
        self.are_behind = false;
        let all: Vec<_> = self.by_session.values().filter_map(|child| child.news.clone()).collect();
        async move {
            for news in all {
                let (written, is_written) = oneshot::channel();
                // One whose task is over does not listen any more, and has written everything.
                if news.send(News::Write(written)).await.is_ok() {
                    let _ = is_written.await;
                }
            }
        }
    }

    /// Takes what a sub-agent reports.
    pub(crate) async fn take(
        &mut self,
        around: &Surroundings,
        root: Root<'_>,
        session: SessionId,
        event: ChildEvent,
    ) -> Result<()> {
        match event {
            ChildEvent::Started(start) => self.start(around, root, session, start).await,
            ChildEvent::Working(prompt) => {
                self.tell(&session, News::Working(prompt)).await;
                Ok(())
            }
            ChildEvent::Report(report) => {
                self.tell(&session, News::Report(report)).await;
                Ok(())
            }
        }
    }

    /// An ask of a sub-agent, which the root task owns.
    pub(crate) async fn tell_of_ask(&mut self, news: AskNews) {
        let session = match &news {
            AskNews::Asked(ask) | AskNews::Closed(ask, _) => ask.session.clone(),
        };
        self.tell(&session, News::Ask(news)).await;
    }

    /// The root task is over, as `state`: so are they.
    pub(crate) async fn end(self, state: TaskState) {
        for news in self.by_session.into_values().filter_map(|child| child.news) {
            // One whose task is over by itself does not listen any more.
            let _ = news.send(News::RootOver(state)).await;
        }
    }

    async fn start(
        &mut self,
        around: &Surroundings,
        root: Root<'_>,
        session: SessionId,
        start: ChildStart,
    ) -> Result<()> {
        let task = names::of_child(&root.task.id, &session, start.call.as_deref());
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
        };
        let depth = parent.depth;
        let unsure = match self.unsure.take().filter(|unsure| unsure.create.task == task) {
            Some(unsure) => unsure,
            None => Box::new(Unsure::new(around, create(around, &root, task.clone(), parent, &start))?),
        };
        let news = self.make(around, &root, &session, unsure).await?;
        let before = self.by_session.insert(session, Child { task, depth, news });
        if let Some(news) = before.and_then(|before| before.news) {
            let text = "The sub-agent was called again before it had ended.";
            let ended = AgentEvent::Ended(Outcome::Failed(Failure::new(text)));
            // One that is over does not listen any more.
            let _ = news.send(News::Report(ended)).await;
        }
        Ok(())
    }

    /// Makes the task, unless it is there, and gives it its owner.
    async fn make(
        &mut self,
        around: &Surroundings,
        root: &Root<'_>,
        session: &SessionId,
        unsure: Box<Unsure>,
    ) -> Result<Option<queue::Sender<News>>> {
        let made = match around.store.create(unsure.create.clone()).await {
            Ok(_) => Ok(None),
            // An attempt that was said to have failed may have gone through after all.
            Err(error) => match around.store.get(root.owner, &unsure.create.task).await {
                Ok(Some(stored)) => Ok(Some(stored)),
                Ok(None) => Err(error),
                Err(error) => Err(error),
            },
        };
        match made {
            Ok(Some(stored)) if stored.seq != Seq::START.next() || stored.task != unsure.begun => {
                if stored.seq == Seq::START.next() {
                    states::count(&around.metrics, TaskState::Submitted);
                }
                // Its own place first, then the one that it does not need goes.
                Ok(own(around, &root.session.directory, stored))
            }
            Ok(_) => {
                states::count(&around.metrics, TaskState::Submitted);
                let own_session = Session { id: session.clone(), directory: root.session.directory.clone() };
                Ok(Some(unsure.place.own(around, root.owner, own_session)))
            }
            Err(error) => {
                if error.retry() == Retry::Later {
                    self.unsure = Some(unsure);
                }
                Err(error)
            }
        }
    }

    async fn tell(&mut self, session: &SessionId, news: News) {
        let Some(child) = self.by_session.get_mut(session) else {
            tracing::debug!(%session, "a report of a sub-agent that was not announced");
            return;
        };
        let Some(sender) = &child.news else { return };
        self.are_behind = true;
        if sender.send(news).await.is_err() {
            // Canceled by its owner, or over.
            child.news = None;
        }
    }
}

/// What the driver of a turn that is taken up again has to know of its sub-agents.
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

/// What the log of a sub-agent's task lacks of the asks that the root task owns: the gateway ended in between.
pub(crate) async fn missed_asks(
    store: &dyn Store,
    root: &[Interrupt],
    child: &StoredTask,
) -> Result<Vec<AskNews>> {
    let StoredTask { owner, task: child, .. } = child;
    let Some(parent) = child.parent.as_ref().filter(|_| !child.status.state.is_terminal()) else {
        return Ok(Vec::new());
    };
    let knows = |ask: &Ask| child.open_asks.iter().any(|open| open.request_id == ask.request_id);
    let asks = root.iter().map(|open| &open.ask);
    let opened = asks.filter(|ask| ask.session == parent.session && !knows(ask));
    let mut missed: Vec<_> = opened.cloned().map(AskNews::Asked).collect();
    for open in &child.open_asks {
        if root.iter().any(|known| known.ask.request_id == open.request_id) {
            continue;
        }
        let stored = match store.interrupt(owner, &open.request_id).await {
            // What became of it cannot be told. One ask must not keep the gateway from starting.
            Err(error) if error.kind() == ErrorKind::Internal => {
                tracing::error!(task = %child.id, request = %open.request_id, error = ?error, "an ask is damaged");
                None
            }
            stored => stored?,
        };
        if let Some(Interrupt { ask, closed: Some(closed), .. }) = stored {
            missed.push(AskNews::Closed(ask, closed.resolution));
        }
    }
    Ok(missed)
}

/// Makes somebody the owner of a sub-agent's task that was left unfinished, and gives the way to tell them. The turn
/// works in `directory`.
pub(crate) fn own(around: &Surroundings, directory: &str, stored: StoredTask) -> Option<queue::Sender<News>> {
    let id = stored.task.parent.as_ref()?.session.clone();
    let session = Session { id, directory: directory.to_owned() };
    let StoredTask { owner, task, seq, epoch, .. } = stored;
    Some(Place::register(around, &owner, Snapshot { task, seq, epoch }).own(around, &owner, session))
}

impl Unsure {
    /// Registered before the store is asked.
    fn new(around: &Surroundings, create: Create) -> Result<Self> {
        let begun = Task::begin(create.task.clone(), &create.first)
            .ok_or_else(|| Error::internal("a first event that makes no task"))?;
        let from = Snapshot { task: begun.clone(), seq: Seq::START.next(), epoch: around.store.epoch() };
        let place = Place::register(around, &create.owner, from);
        Ok(Self { create, begun, place })
    }
}

/// A task that has a place among those that are owned, and no owner yet.
#[derive(Debug)]
struct Place {
    registration: Registration,
    inbox: queue::Receiver<Inbox>,
    writer: Writer,
}

impl Place {
    fn register(around: &Surroundings, owner: &Principal, from: Snapshot) -> Self {
        let live = Arc::new(LiveLog::new(from.task.id.clone(), from.seq));
        let (sender, inbox) = queue::channel(INBOX);
        let registration = around.registry.insert(None, Arc::clone(&live), sender);
        let writer = Writer::new(
            Arc::clone(&around.store),
            Arc::clone(&around.clock),
            around.tasks.clone(),
            Arc::clone(&around.metrics),
            live,
            owner.clone(),
            from,
        );
        Self { registration, inbox, writer }
    }

    fn own(self, around: &Surroundings, owner: &Principal, session: Session) -> queue::Sender<News> {
        let Self { registration, inbox, writer } = self;
        let (sender, news) = queue::channel(NEWS);
        let (around, owner) = (around.clone(), owner.clone());
        let tasks = around.tasks.clone();
        let actor = ChildActor { around, owner, registration, inbox, writer, session, news };
        tasks.spawn("sub-agent", actor.run());
        sender
    }
}

fn create(
    around: &Surroundings,
    root: &Root<'_>,
    task: TaskId,
    parent: Parent,
    start: &ChildStart,
) -> Create {
    let at = around.clock.now();
    let id = MessageId::parse(&format!("{task}.prompt")).expect("an id and letters are an id");
    let prompt: String = start.prompt.chars().take(MAX_PROMPT_CHARS).collect();
    let mut message = Message::new(id, Role::User, vec![Part::text(prompt)]);
    message.context_id = Some(root.task.context_id.clone());
    message.task_id = Some(task.clone());
    let first = TaskEvent::Submitted {
        context_id: root.task.context_id.clone(),
        message,
        at,
        // Its readers are those of the root task.
        terms: Box::new(TaskOptions { output: root.task.terms.output.clone(), ..TaskOptions::default() }),
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
    }
}
