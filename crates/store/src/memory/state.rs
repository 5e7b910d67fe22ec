//! The whole content of the memory store, behind its mutex, and the queries on it.

use std::collections::{BTreeMap, HashMap, HashSet};

use longshore_engine::port::{
    Append, Appended, AskChange, Binding, Bound, Claim, Claimed, ContextLocation, Create, Created, EndedTurn,
    Head, IdempotencyKey, MAX_ENDED, NewFile, PAGE_TASKS, PushPut, RecordedSends, RunningTurn, Session,
    StoredBytes, StoredTask, TurnRecord, UnfinishedPage, caller_trace,
};
use longshore_model::{
    ContextId, Entry, Error, FileId, Principal, PromptId, RequestId, Result, Seq, SessionId, Task, TaskId,
    TaskState, Timestamp,
};

use super::EPOCH;
use super::approvals::Approvals;
use super::asks::Asks;
use super::calls::Calls;
use super::files::Files;
use super::keys::{Digest, Keys};
use super::push::Push;
use super::retain::EndedTasks;
use super::sessions::Sessions;
use crate::rules::{self, PlacementRequest, Root};

#[derive(Default)]
pub(super) struct State {
    pub(super) tasks: HashMap<TaskId, Row>,
    /// All tasks by their numbers, which are given in the order of creation.
    pub(super) created: BTreeMap<u64, TaskId>,
    /// The tasks of the sub-agents of each root task, oldest first. Roots without such tasks are missing.
    pub(super) descendants: HashMap<TaskId, Vec<TaskId>>,
    pub(super) ended: EndedTasks,
    pub(super) keys: HashMap<Principal, Keys>,
    pub(super) contexts: HashMap<(Principal, ContextId), Context>,
    pub(super) sessions: Sessions,
    pub(super) asks: Asks,
    pub(super) approvals: Approvals,
    pub(super) files: Files,
    pub(super) bytes: Bytes,
    pub(super) push: Push,
    pub(super) calls: Calls,
    #[cfg(feature = "simulation")]
    has_no_terminal_guard: bool,
}

#[derive(Default)]
pub(super) struct Context {
    pub(super) location: ContextLocation,
    /// When the context was bound, if it is bound.
    pub(super) bound_at: Timestamp,
    /// The number of the context's tasks.
    pub(super) tasks: usize,
}

pub(super) struct Row {
    pub(super) number: u64,
    pub(super) owner: Principal,
    /// The task, folded to the head of the log.
    pub(super) task: Task,
    pub(super) log: Vec<Entry>,
    /// The oldest event that the log still has.
    pub(super) first: Seq,
    pub(super) turn: Option<TurnRecord>,
    /// The size of the log, the files and the calls.
    pub(super) bytes: u64,
    // The keys and asks below were stored for the task, and are removed with it.
    pub(super) keys: HashSet<Digest>,
    pub(super) asks: HashSet<RequestId>,
    pub(super) files: HashSet<FileId>,
}

/// The approximate number of stored bytes.
#[derive(Default)]
pub(super) struct Bytes {
    of_owner: HashMap<Principal, u64>,
    in_all: u64,
}

impl Bytes {
    pub(super) fn get(&self, owner: &Principal) -> StoredBytes {
        StoredBytes { of_owner: self.of_owner.get(owner).copied().unwrap_or(0), in_all: self.in_all }
    }

    pub(super) fn add(&mut self, row: &mut Row, bytes: u64) {
        row.bytes += bytes;
        self.in_all += bytes;
        match self.of_owner.get_mut(&row.owner) {
            Some(own) => *own += bytes,
            None => drop(self.of_owner.insert(row.owner.clone(), bytes)),
        }
    }

    pub(super) fn subtract(&mut self, row: &mut Row, bytes: u64) {
        let bytes = bytes.min(row.bytes);
        row.bytes -= bytes;
        self.in_all -= bytes;
        if let Some(own) = self.of_owner.get_mut(&row.owner) {
            *own -= bytes;
        }
    }
}

impl Row {
    fn head(&self) -> Head {
        Head {
            context: self.task.context_id.clone(),
            seq: self.seq(),
            epoch: EPOCH,
            first: self.first,
            state: self.state(),
            output: self.task.options.output.clone(),
        }
    }

    pub(super) fn seq(&self) -> Seq {
        Seq(self.first.0 - 1).plus(self.log.len())
    }

    pub(super) fn state(&self) -> TaskState {
        self.task.status.state
    }
}

impl State {
    #[cfg(feature = "simulation")]
    pub(super) fn without_terminal_guard() -> Self {
        Self { has_no_terminal_guard: true, ..Self::default() }
    }

    pub(super) fn create(&mut self, create: Create) -> Result<Created> {
        let task = rules::begin(&create)?;
        let requested = PlacementRequest::new(&create)?;
        if let Some(existing) = self.earlier_send(&create).or_else(|| self.earlier_turn(&create)) {
            return Ok(existing);
        }
        let location = self.location(&create.owner, &create.context);
        let known = requested.used_session().and_then(|id| self.sessions.get(id));
        let placement = match rules::decide_placement(&requested, &create.owner, &location, known) {
            Ok(placement) => placement,
            Err(answer) => return Ok(answer),
        };
        if let Some(parent) = &task.parent {
            rules::check_root(self.root(&parent.root).as_ref(), &create.owner, &create.context)?;
        }
        if self.tasks.contains_key(&create.task) {
            return Err(rules::duplicate_task());
        }
        if let Some(limit) = create.push.as_ref().and_then(|push| self.push_limit(push)) {
            return Ok(Created::PushFull(limit));
        }

        if let Some(parent) = &task.parent {
            self.note_growth(&parent.root);
            self.descendants.entry(parent.root.clone()).or_default().push(create.task.clone());
        }
        let first = Seq::START.next();
        let mut row = Row {
            number: self.created.last_key_value().map_or(0, |(last, _)| last + 1),
            owner: create.owner.clone(),
            task,
            log: vec![Entry { seq: first, epoch: EPOCH, event: create.first }],
            first,
            turn: None,
            bytes: 0,
            keys: HashSet::new(),
            asks: HashSet::new(),
            files: HashSet::new(),
        };
        let bytes = row.log.iter().map(|entry| entry.event.weight() as u64).sum();
        self.bytes.add(&mut row, bytes);
        if let Some(key) = create.idempotency {
            put_key(&mut self.keys, &mut row, &key, create.at);
        }
        if let Some(session) = &placement.claim {
            self.sessions.put(&create.owner, session, create.at);
        }
        if let Some(RunningTurn { working, turn }) = create.begun {
            row.log.push(Entry { seq: first.next(), epoch: EPOCH, event: working });
            self.sessions.put_turn(&turn, row.number, create.at);
            row.turn = Some(turn);
        }
        self.created.insert(row.number, create.task.clone());
        self.tasks.insert(create.task, row);
        if let Some(bound) = placement.binding {
            self.put_binding((create.owner.clone(), create.context.clone()), bound, create.at);
        }
        let context = self.contexts.entry((create.owner, create.context)).or_default();
        context.tasks += 1;
        context.location.directory = placement.directory.or(location.directory);
        if let Some(push) = create.push
            && self.put_push(*push, caller_trace()) != PushPut::Stored
        {
            return Err(Error::internal("the push configuration of a new task names another task"));
        }
        Ok(Created::New)
    }

    pub(super) fn record_sends(&mut self, noted: RecordedSends) -> Result<()> {
        let RecordedSends { owner, task, keys, at } = noted;
        let Some(row) = self.tasks.get_mut(&task).filter(|row| row.owner == owner) else {
            return Err(Error::task_not_found(task.as_str()));
        };
        for key in keys {
            put_key(&mut self.keys, row, &key, at);
        }
        Ok(())
    }

    /// The task that belongs to an idempotency key, unless the key has expired.
    pub(super) fn task_of_key(&self, owner: &Principal, key: &IdempotencyKey) -> Option<&TaskId> {
        self.keys.get(owner)?.get(key)
    }

    fn earlier_send(&self, create: &Create) -> Option<Created> {
        let task = self.task_of_key(&create.owner, create.idempotency.as_ref()?)?;
        let context = self.tasks.get(task)?.task.context_id.clone();
        Some(Created::Existing { task: task.clone(), context })
    }

    /// The existing task for the turn of a `Create`, or the existing task with the id of the new one.
    fn earlier_turn(&self, create: &Create) -> Option<Created> {
        let turn = &create.begun.as_ref()?.turn;
        let task = self.turn_of(&turn.session.id, &turn.prompt).or_else(|| {
            let row = self.tasks.get(&create.task).filter(|row| row.owner == create.owner)?;
            Some(row.task.id.clone())
        })?;
        let row = self.owned(&create.owner, &task)?;
        Some(Created::Existing { context: row.task.context_id.clone(), task })
    }

    fn root(&self, id: &TaskId) -> Option<Root> {
        let Row { owner, task, .. } = self.tasks.get(id)?;
        let (owner, context) = (owner.clone(), task.context_id.clone());
        Some(Root { owner, context, is_child: task.parent.is_some() })
    }

    pub(super) fn append(&mut self, append: Append) -> Result<Appended> {
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
        for event in append.events.iter() {
            self.bytes.add(row, event.weight() as u64);
            row.task.apply(event);
            // Clone the event, because a shared event would also keep its encoded forms in memory.
            row.log.push(Entry { seq: row.seq().next(), epoch: EPOCH, event: event.clone() });
        }
        if let Some(turn) = append.turn {
            if let Some(before) = &row.turn {
                self.sessions.drop_turn(before, row.number);
            }
            self.sessions.put_turn(&turn, row.number, append.at);
            row.turn = Some(turn);
        }
        if let Some(key) = append.forgotten
            && let Some(keys) = self.keys.get_mut(&row.owner)
        {
            keys.remove(&key.digest, &append.task);
        }
        if let Some(key) = append.joined {
            put_key(&mut self.keys, row, &key, append.at);
        }
        row.asks.extend(append.asks.iter().filter_map(|change| match change {
            AskChange::Opened(interrupt) => Some(interrupt.ask.request_id.clone()),
            AskChange::Closed { .. } => None,
        }));
        self.asks.change(&append.task, append.asks, append.at);
        let (head, is_over) = (row.seq(), row.state().is_terminal());
        self.push.note_growth(&append.task, append.at, &append.events.iter());
        if is_over {
            self.asks.drop_open(&append.task, append.at);
            self.note_end(&append.task);
        }
        Ok(Appended::Head(head))
    }

    pub(super) fn read(&self, task: &TaskId, after: Seq, limit: usize) -> Result<Vec<Entry>> {
        let row = self.tasks.get(task).ok_or_else(|| Error::task_not_found(task.as_str()))?;
        // A cursor past the head counts as the head.
        let skip = usize::try_from(after.0.saturating_sub(row.first.0 - 1)).unwrap_or(usize::MAX);
        Ok(row.log.iter().skip(skip).take(limit).cloned().collect())
    }

    fn owned(&self, owner: &Principal, task: &TaskId) -> Option<&Row> {
        self.tasks.get(task).filter(|row| row.owner == *owner)
    }

    pub(super) fn head(&self, owner: &Principal, task: &TaskId) -> Option<Head> {
        self.owned(owner, task).map(Row::head)
    }

    pub(super) fn get(&self, owner: &Principal, task: &TaskId) -> Option<StoredTask> {
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

    pub(super) fn session(&self, owner: &Principal, id: &SessionId) -> Option<Session> {
        self.sessions.get(id).filter(|known| known.owner == *owner).map(|known| known.session.clone())
    }

    pub(super) fn location(&self, owner: &Principal, context: &ContextId) -> ContextLocation {
        let context = self.contexts.get(&(owner.clone(), context.clone()));
        context.map(|context| context.location.clone()).unwrap_or_default()
    }

    pub(super) fn bind(&mut self, binding: Binding) -> Result<Bound> {
        let Binding { owner, context, session, replaces, at } = binding;
        let bound = self.location(&owner, &context).bound;
        if let Some(existing) = rules::conflicting_binding(bound, replaces.as_ref()) {
            return Ok(existing);
        }
        if self.sessions.get(&session.id).is_some_and(|known| known.owner != owner) {
            return Err(rules::foreign_session(&session.id));
        }
        self.sessions.put(&owner, &session, at);
        let bound = Bound { session, named: false };
        self.put_binding((owner, context), bound.clone(), at);
        Ok(bound)
    }

    fn put_binding(&mut self, key: (Principal, ContextId), bound: Bound, at: Timestamp) {
        let (id, name) = (bound.session.id.clone(), key.1.clone());
        let context = self.contexts.entry(key).or_default();
        if let Some(before) = context.location.bound.replace(bound) {
            self.sessions.unbind(&before.session.id, &name, context.bound_at);
        }
        context.bound_at = at;
        self.sessions.bind(&id, &name, at);
    }

    pub(super) fn claim(&mut self, claim: &Claim) -> Claimed {
        let Claim { owner, session, at } = claim;
        let claimed = rules::claim(owner, self.sessions.get(&session.id));
        if claimed == Claimed::Now {
            self.sessions.put(owner, session, *at);
        }
        claimed
    }

    pub(super) fn turn_of(&self, session: &SessionId, prompt: &PromptId) -> Option<TaskId> {
        self.created.get(&self.sessions.turn_of(session, prompt)?).cloned()
    }

    pub(super) fn put_file(&mut self, file: NewFile) -> Result<()> {
        let (task, id, bytes) = (file.task.clone(), file.id.clone(), file.facts.size);
        self.files.put(file, self.tasks.get(&task).map(|row| &row.owner))?;
        if let Some(row) = self.tasks.get_mut(&task)
            && row.files.insert(id)
        {
            self.bytes.add(row, bytes);
        }
        Ok(())
    }

    pub(super) fn children(&self, root: &TaskId) -> Vec<StoredTask> {
        self.rows_of(self.descendants.get(root).into_iter().flatten()).map(|row| self.stored(row)).collect()
    }

    /// One page of the unfinished tasks. Numbers of tasks begin with 0. The cursor of a page is the number after its last task.
    pub(super) fn unfinished_after(&self, cursor: u64) -> UnfinishedPage {
        let created = self.created.range(cursor..).map(|(_, id)| id);
        let unfinished = self.rows_of(created).filter(|row| !row.state().is_terminal());
        let rows: Vec<&Row> = unfinished.take(PAGE_TASKS).collect();
        let next = rows.last().filter(|_| rows.len() == PAGE_TASKS).map(|last| last.number + 1);
        UnfinishedPage {
            tasks: rows.into_iter().map(|row| self.stored(row)).collect(),
            has_damage: false,
            next,
        }
    }

    pub(super) fn ended_turns(&self, since: Timestamp) -> Vec<EndedTurn> {
        let ended = self.rows_of(self.created.values().rev()).filter(|row| {
            let is_stopped = matches!(row.state(), TaskState::Canceled | TaskState::Failed);
            let has_joined = row.turn.as_ref().is_some_and(|turn| !turn.joined.is_empty());
            row.state().is_terminal()
                && (is_stopped || has_joined)
                && row.task.status.at >= since
                && row.task.parent.is_none()
        });
        let turn = |row: &Row| Some((row.task.status.at, row.task.id.clone(), row.turn.clone()?));
        let mut turns: Vec<_> = ended.filter_map(turn).collect();
        // The sort is stable, so tasks that ended at the same time stay in order.
        turns.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        turns.into_iter().take(MAX_ENDED).map(|(_, task, turn)| EndedTurn { task, turn }).collect()
    }

    pub(super) fn rows_of<'a>(
        &'a self,
        tasks: impl Iterator<Item = &'a TaskId>,
    ) -> impl Iterator<Item = &'a Row> {
        tasks.filter_map(|id| self.tasks.get(id))
    }
}

/// Stores the idempotency key of the message that started or joined the task of a row, and removes some expired keys of the owner.
fn put_key(keys: &mut HashMap<Principal, Keys>, row: &mut Row, key: &IdempotencyKey, at: Timestamp) {
    let keys = keys.entry(row.owner.clone()).or_default();
    keys.drop_expired(key.valid_since, rules::EXPIRED_KEYS);
    keys.insert(key.digest, row.task.id.clone(), at);
    row.keys.insert(key.digest);
}
