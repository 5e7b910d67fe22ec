//! A store that lives as long as the process: for tests and for `--store memory`.

mod asks;
mod keys;

use std::collections::HashMap;
use std::collections::hash_map;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_engine::port::{
    Append, Appended, Binding, Bound, BoxFuture, Create, Created, Head, ListQuery, PageCursor, Store,
    StoredTask, TaskPage, TurnRecord,
};
use longshore_model::{
    AskKind, ContextId, Entry, Error, Interrupt, Principal, RequestId, Result, Seq, SessionId, Task, TaskId,
    TaskState,
};

use self::asks::Asks;
use self::keys::Keys;
use crate::rules::{self, Naming, OwnedSession};

/// Everything behind one mutex, which is never held across an await.
///
/// It keeps each task folded, so it has no use for the snapshots that it is given. What it gives is in memory anyway,
/// so that only the limits of a question bound its answer, not bytes.
#[derive(Default)]
pub struct MemoryStore {
    kept: Mutex<Kept>,
}

impl MemoryStore {
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
    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created>> {
        Box::pin(async move { self.kept().create(create) })
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

    fn binding<'a>(
        &'a self,
        owner: &'a Principal,
        context: &'a ContextId,
    ) -> BoxFuture<'a, Result<Option<Bound>>> {
        let key = (owner.clone(), context.clone());
        Box::pin(async move { Ok(self.kept().bindings.get(&key).cloned()) })
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
}

#[derive(Default)]
struct Kept {
    tasks: HashMap<TaskId, Row>,
    /// Oldest first.
    created: Vec<TaskId>,
    keys: HashMap<Principal, Keys>,
    bindings: HashMap<(Principal, ContextId), Bound>,
    sessions: HashMap<SessionId, OwnedSession>,
    asks: Asks,
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
        let seq = Seq::START.plus(self.log.len());
        let context = self.task.context_id.clone();
        Head { context, seq, first: Seq::START.next(), state: self.state() }
    }

    fn state(&self) -> TaskState {
        self.task.status.state
    }
}

impl Kept {
    fn create(&mut self, create: Create) -> Result<Created> {
        let task = rules::begin(&create)?;
        if let Some(existing) = self.earlier_send(&create) {
            return Ok(existing);
        }
        let naming = create.session.as_ref().map_or(Naming::Stands, |name| self.name_session(&create, name));
        if let Naming::Refused(answer) = naming {
            return Ok(answer);
        }
        let hash_map::Entry::Vacant(place) = self.tasks.entry(create.task.clone()) else {
            return Err(rules::duplicate_task());
        };
        let log = vec![Entry { seq: Seq::START.next(), event: create.first }];
        place.insert(Row { owner: create.owner.clone(), task, log, turn: None });
        self.created.push(create.task.clone());
        if let Naming::Binds(session) = naming {
            self.bindings.insert((create.owner.clone(), create.context), Bound { session, named: true });
        }
        let keys = self.keys.entry(create.owner).or_default();
        keys.drop_expired(create.idempotency.valid_since, rules::EXPIRED_KEYS);
        keys.insert(create.idempotency.digest, create.task, create.at);
        Ok(Created::New)
    }

    fn earlier_send(&self, create: &Create) -> Option<Created> {
        let task = self.keys.get(&create.owner)?.get(&create.idempotency)?;
        let context = self.tasks.get(task)?.task.context_id.clone();
        Some(Created::Existing { task: task.clone(), context })
    }

    fn name_session(&self, create: &Create, name: &SessionId) -> Naming {
        let bound = self.bindings.get(&(create.owner.clone(), create.context.clone()));
        rules::name_session(name, &create.owner, bound, self.sessions.get(name))
    }

    fn append(&mut self, append: Append) -> Result<Appended> {
        rules::check_append(&append)?;
        let row =
            self.tasks.get_mut(&append.task).ok_or_else(|| Error::task_not_found(append.task.as_str()))?;
        let Head { seq: head, state, .. } = row.head();
        if state.is_terminal() {
            return Ok(Appended::Terminal);
        }
        if head != append.expected {
            return Ok(Appended::Conflict { head });
        }
        self.asks.check(&append.asks, &row.owner, &row.task.context_id)?;
        for event in append.events {
            row.task.apply(&event);
            row.log.push(Entry { seq: Seq::START.plus(row.log.len()).next(), event });
        }
        if append.turn.is_some() {
            row.turn = append.turn;
        }
        self.asks.change(&append.task, append.asks, append.at);
        if row.state().is_terminal() {
            self.asks.drop_open(&append.task, append.at);
        }
        Ok(Appended::Head(row.head().seq))
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
            seq: row.head().seq,
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
        let place = (owner.clone(), context);
        if let Some(standing) = rules::standing(self.bindings.get(&place).cloned(), replaces.as_ref()) {
            return Ok(standing);
        }
        if self.sessions.get(&session.id).is_some_and(|known| known.owner != owner) {
            return Err(rules::foreign_session(&session.id));
        }
        self.sessions.insert(session.id.clone(), OwnedSession { owner, session: session.clone() });
        let bound = Bound { session, named: false };
        self.bindings.insert(place, bound.clone());
        Ok(bound)
    }

    fn unfinished(&self) -> Vec<StoredTask> {
        let rows = self.created.iter().filter_map(|id| self.tasks.get(id));
        rows.filter(|row| !row.state().is_terminal()).map(|row| self.stored(row)).collect()
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
        metadata: task.metadata.clone(),
    }
}
