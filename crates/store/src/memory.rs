//! A store that lives as long as the process: for tests and for `--store memory`.

mod asks;
mod files;
mod keys;

use std::collections::HashMap;
use std::collections::hash_map;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_engine::port::{
    Append, Appended, Binding, Bound, BoxFuture, ContextPlace, Create, Created, FileFacts, Head,
    IdempotencyKey, ListQuery, NewFile, NotedSends, PageCursor, Session, Store, StoredTask, TaskPage,
    TurnRecord,
};
use longshore_model::{
    AskKind, ContextId, Entry, Epoch, Error, FileId, Interrupt, Principal, RequestId, Result, Seq, SessionId,
    Task, TaskId, TaskState,
};

use self::asks::Asks;
use self::files::Files;
use self::keys::Keys;
use crate::rules::{self, OwnedSession, Root, Wanted};

/// It is opened once.
const EPOCH: Epoch = Epoch(1);

/// Everything behind one mutex, which is never held across an await.
///
/// It keeps each task folded, so it has no use for the snapshots that it is given. What it gives is in memory anyway,
/// so that only the limits of a question bound its answer, not bytes.
#[derive(Default)]
pub struct MemoryStore {
    kept: Mutex<Kept>,
}

impl MemoryStore {
    /// A store that lets a task that is over go on: to show that simulations would find one.
    #[cfg(feature = "simulation")]
    pub fn without_terminal_guard() -> Self {
        let kept = Kept { has_no_terminal_guard: true, ..Kept::default() };
        Self { kept: Mutex::new(kept) }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A panic while the lock is held is a defect of this file; what was kept is still the best there is.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the content: a log line must not hold what callers wrote.
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn epoch(&self) -> Epoch {
        EPOCH
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created>> {
        Box::pin(async move { self.kept().create(create) })
    }

    fn note_sends(&self, noted: NotedSends) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.kept().note_sends(noted) })
    }

    fn earlier_send<'a>(
        &'a self,
        owner: &'a Principal,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<Option<TaskId>>> {
        Box::pin(async move { Ok(self.kept().keys.get(owner).and_then(|keys| keys.get(key).cloned())) })
    }

    fn session<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<Session>>> {
        Box::pin(async move {
            let known = self
                .kept()
                .sessions
                .get(id)
                .filter(|known| known.owner == *owner)
                .map(|known| known.session.clone());
            Ok(known)
        })
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended>> {
        Box::pin(async move { self.kept().append(append) })
    }

    fn read<'a>(&'a self, task: &'a TaskId, after: Seq, limit: usize) -> BoxFuture<'a, Result<Vec<Entry>>> {
        Box::pin(async move { self.kept().read(task, after, limit) })
    }

    fn get<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<StoredTask>>> {
        Box::pin(async move { Ok(self.kept().get(owner, task)) })
    }

    fn head<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Option<Head>>> {
        Box::pin(async move { Ok(self.kept().owned(owner, task).map(Row::head)) })
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<TaskPage>> {
        Box::pin(async move { Ok(self.kept().list(&query)) })
    }

    fn children<'a>(&'a self, root: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredTask>>> {
        Box::pin(async move { Ok(self.kept().children(root)) })
    }

    fn place<'a>(
        &'a self,
        owner: &'a Principal,
        context: &'a ContextId,
    ) -> BoxFuture<'a, Result<ContextPlace>> {
        let key = (owner.clone(), context.clone());
        Box::pin(async move { Ok(self.kept().places.get(&key).cloned().unwrap_or_default()) })
    }

    fn bind(&self, binding: Binding) -> BoxFuture<'_, Result<Bound>> {
        Box::pin(async move { self.kept().bind(binding) })
    }

    fn interrupt<'a>(&'a self, request: &'a RequestId) -> BoxFuture<'a, Result<Option<Interrupt>>> {
        Box::pin(async move { Ok(self.kept().asks.get(request).cloned()) })
    }

    fn open_interrupts<'a>(
        &'a self,
        owner: &'a Principal,
        kind: AskKind,
    ) -> BoxFuture<'a, Result<Vec<Interrupt>>> {
        Box::pin(async move { Ok(self.kept().asks.open_of_owner(owner, kind)) })
    }

    fn unfinished(&self) -> BoxFuture<'_, Result<Vec<StoredTask>>> {
        Box::pin(async move { Ok(self.kept().unfinished()) })
    }

    fn put_file(&self, file: NewFile) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let Kept { tasks, files, .. } = &mut *self.kept();
            let owner = tasks.get(&file.task).map(|row| &row.owner);
            files.put(file, owner)
        })
    }

    fn file<'a>(&'a self, owner: &'a Principal, id: &'a FileId) -> BoxFuture<'a, Result<Option<FileFacts>>> {
        Box::pin(async move { Ok(self.kept().files.facts(owner, id)) })
    }

    fn read_file<'a>(
        &'a self,
        id: &'a FileId,
        offset: u64,
        length: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            // Copied after the lock is gone.
            let content = self.kept().files.content(id);
            Ok(content.map(|bytes| files::range(&bytes, offset, length)))
        })
    }
}

#[derive(Default)]
struct Kept {
    tasks: HashMap<TaskId, Row>,
    /// Oldest first.
    created: Vec<TaskId>,
    keys: HashMap<Principal, Keys>,
    places: HashMap<(Principal, ContextId), ContextPlace>,
    sessions: HashMap<SessionId, OwnedSession>,
    asks: Asks,
    files: Files,
    #[cfg(feature = "simulation")]
    has_no_terminal_guard: bool,
}

struct Row {
    owner: Principal,
    /// Folded to the head of the log.
    task: Task,
    log: Vec<Entry>,
    turn: Option<TurnRecord>,
}

impl Row {
    fn head(&self) -> Head {
        Head {
            context: self.task.context_id.clone(),
            seq: self.seq(),
            epoch: EPOCH,
            first: Seq::START.next(),
            state: self.state(),
            output: self.task.terms.output.clone(),
        }
    }

    fn seq(&self) -> Seq {
        Seq::START.plus(self.log.len())
    }

    fn state(&self) -> TaskState {
        self.task.status.state
    }
}

impl Kept {
    fn create(&mut self, create: Create) -> Result<Created> {
        let task = rules::begin(&create)?;
        let wanted = Wanted::of(&create)?;
        if let Some(existing) = self.earlier_send(&create) {
            return Ok(existing);
        }
        let context = (create.owner.clone(), create.context.clone());
        let place = self.places.get(&context).cloned().unwrap_or_default();
        let known = wanted.session.as_ref().and_then(|name| self.sessions.get(name));
        let placement = match rules::place(&wanted, &create.owner, &place, known) {
            Ok(placement) => placement,
            Err(answer) => return Ok(answer),
        };
        if let Some(parent) = &task.parent {
            rules::check_root(self.root(&parent.root).as_ref(), &create.owner, &create.context)?;
        }
        let hash_map::Entry::Vacant(row) = self.tasks.entry(create.task.clone()) else {
            return Err(rules::duplicate_task());
        };

        let log = vec![Entry { seq: Seq::START.next(), epoch: EPOCH, event: create.first }];
        row.insert(Row { owner: create.owner.clone(), task, log, turn: None });
        self.created.push(create.task.clone());
        if let Some(session) = placement.claims {
            let owner = create.owner.clone();
            self.sessions.insert(session.id.clone(), OwnedSession { owner, session });
        }
        let place = ContextPlace {
            directory: placement.settles.or(place.directory),
            bound: placement.binds.or(place.bound),
        };
        self.places.insert(context, place);
        if let Some(key) = create.idempotency {
            let keys = self.keys.entry(create.owner).or_default();
            keys.drop_expired(key.valid_since, rules::EXPIRED_KEYS);
            keys.insert(key.digest, create.task, create.at);
        }
        Ok(Created::New)
    }

    fn note_sends(&mut self, noted: NotedSends) -> Result<()> {
        let NotedSends { owner, task, keys: new, at } = noted;
        if self.tasks.get(&task).is_none_or(|row| row.owner != owner) {
            return Err(Error::task_not_found(task.as_str()));
        }
        let keys = self.keys.entry(owner).or_default();
        for key in new {
            keys.drop_expired(key.valid_since, rules::EXPIRED_KEYS);
            keys.insert(key.digest, task.clone(), at);
        }
        Ok(())
    }

    fn earlier_send(&self, create: &Create) -> Option<Created> {
        let task = self.keys.get(&create.owner)?.get(create.idempotency.as_ref()?)?;
        let context = self.tasks.get(task)?.task.context_id.clone();
        Some(Created::Existing { task: task.clone(), context })
    }

    fn root(&self, id: &TaskId) -> Option<Root> {
        let Row { owner, task, .. } = self.tasks.get(id)?;
        let (owner, context) = (owner.clone(), task.context_id.clone());
        Some(Root { owner, context, is_child: task.parent.is_some() })
    }

    fn append(&mut self, append: Append) -> Result<Appended> {
        rules::check_append(&append)?;
        let row =
            self.tasks.get_mut(&append.task).ok_or_else(|| Error::task_not_found(append.task.as_str()))?;
        let head = row.seq();
        #[cfg(feature = "simulation")]
        let is_guarded = !self.has_no_terminal_guard;
        #[cfg(not(feature = "simulation"))]
        let is_guarded = true;
        if row.state().is_terminal() && is_guarded {
            return Ok(Appended::Terminal);
        }
        if head != append.expected {
            return Ok(Appended::Conflict { head });
        }
        self.asks.check(&append.asks, &row.owner, &row.task.context_id)?;
        for event in append.events {
            row.task.apply(&event);
            row.log.push(Entry { seq: Seq::START.plus(row.log.len()).next(), epoch: EPOCH, event });
        }
        if append.turn.is_some() {
            row.turn = append.turn;
        }
        if let Some(key) = append.forgotten
            && let Some(keys) = self.keys.get_mut(&row.owner)
        {
            keys.remove(&key.digest, &append.task);
        }
        if let Some(key) = append.joined {
            let keys = self.keys.entry(row.owner.clone()).or_default();
            keys.drop_expired(key.valid_since, rules::EXPIRED_KEYS);
            keys.insert(key.digest, append.task.clone(), append.at);
        }
        self.asks.change(&append.task, append.asks, append.at);
        if row.state().is_terminal() {
            self.asks.drop_open(&append.task, append.at);
        }
        Ok(Appended::Head(row.seq()))
    }

    fn read(&self, task: &TaskId, after: Seq, limit: usize) -> Result<Vec<Entry>> {
        let row = self.tasks.get(task).ok_or_else(|| Error::task_not_found(task.as_str()))?;
        // A cursor behind the head, however far, is at the head.
        let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
        Ok(row.log.iter().skip(skip).take(limit).cloned().collect())
    }

    fn owned(&self, owner: &Principal, task: &TaskId) -> Option<&Row> {
        self.tasks.get(task).filter(|row| row.owner == *owner)
    }

    fn get(&self, owner: &Principal, task: &TaskId) -> Option<StoredTask> {
        self.owned(owner, task).map(|row| self.stored(row))
    }

    fn stored(&self, row: &Row) -> StoredTask {
        StoredTask {
            owner: row.owner.clone(),
            task: row.task.clone(),
            seq: row.seq(),
            epoch: EPOCH,
            turn: row.turn.clone(),
            open_asks: self.asks.open_of_task(&row.task.id),
        }
    }

    fn list(&self, query: &ListQuery) -> TaskPage {
        let mut matching: Vec<&Task> = self
            .tasks
            .values()
            .filter(|row| row.owner == query.owner)
            .map(|row| &row.task)
            .filter(|task| query.context.as_ref().is_none_or(|context| task.context_id == *context))
            .filter(|task| query.state.is_none_or(|state| task.status.state == state))
            .filter(|task| query.status_after.is_none_or(|since| task.status.at >= since))
            .filter(|task| !query.roots_only || task.parent.is_none())
            .collect();
        matching.sort_unstable_by(|a, b| (b.status.at, &b.id).cmp(&(a.status.at, &a.id)));
        let total = matching.len() as u64;

        let begin = query.after.as_ref().map_or(0, |after| {
            matching.partition_point(|task| (task.status.at, &task.id) >= (after.status_at, &after.task))
        });
        let rest = &matching[begin..];
        let page = &rest[..query.limit.min(rest.len())];
        let next = page
            .last()
            .filter(|_| page.len() < rest.len())
            .map(|last| PageCursor { status_at: last.status.at, task: last.id.clone() });
        let tasks = page
            .iter()
            .map(|&task| if query.with_artifacts { task.clone() } else { without_artifacts(task) })
            .collect();
        TaskPage { tasks, total, next }
    }

    fn bind(&mut self, binding: Binding) -> Result<Bound> {
        let Binding { owner, context, session, replaces, .. } = binding;
        let context = (owner.clone(), context);
        let bound = self.places.get(&context).and_then(|place| place.bound.clone());
        if let Some(standing) = rules::standing(bound, replaces.as_ref()) {
            return Ok(standing);
        }
        if self.sessions.get(&session.id).is_some_and(|known| known.owner != owner) {
            return Err(rules::foreign_session(&session.id));
        }
        self.sessions.insert(session.id.clone(), OwnedSession { owner, session: session.clone() });
        let bound = Bound { session, named: false };
        self.places.entry(context).or_default().bound = Some(bound.clone());
        Ok(bound)
    }

    fn children(&self, root: &TaskId) -> Vec<StoredTask> {
        self.in_order(|row| row.task.parent.as_ref().is_some_and(|parent| parent.root == *root))
    }

    fn unfinished(&self) -> Vec<StoredTask> {
        self.in_order(|row| !row.state().is_terminal())
    }

    /// Those of all tasks, oldest first.
    fn in_order(&self, wanted: impl Fn(&Row) -> bool) -> Vec<StoredTask> {
        let rows = self.created.iter().filter_map(|id| self.tasks.get(id));
        rows.filter(|row| wanted(row)).map(|row| self.stored(row)).collect()
    }
}

fn without_artifacts(task: &Task) -> Task {
    Task {
        id: task.id.clone(),
        context_id: task.context_id.clone(),
        status: task.status.clone(),
        artifacts: Vec::new(),
        history: task.history.clone(),
        session: task.session.clone(),
        usage: task.usage,
        open_asks: task.open_asks.clone(),
        terms: task.terms.clone(),
        parent: task.parent.clone(),
        metadata: task.metadata.clone(),
    }
}
