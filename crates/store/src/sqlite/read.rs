//! Queries. Each function runs in one read transaction.

use longshore_engine::port::{
    EndedTurn, Head, MAX_ENDED, PAGE_BYTES, PAGE_TASKS, PageCursor, READ_BYTES, Session, StoredTask,
    TurnRecord, UnfinishedPage,
};
use longshore_model::{
    ContextId, Entry, Epoch, Error, ErrorKind, Principal, PromptId, Seq, SessionId, Task, TaskId, TaskState,
    Timestamp,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, Rows, named_params};
use serde::de::DeserializeOwned;

use super::fault::{Fault, Outcome, damaged};
use super::known_damage::KnownDamage;
use super::record::ARTIFACT;
use super::{asks, checksum, from_sql, to_sql};

pub(super) fn events(
    db: &Connection,
    known: &KnownDamage,
    task: &TaskId,
    after: Seq,
    limit: usize,
) -> Outcome<Vec<Entry>> {
    let find = concat!("SELECT ordinal, first, ", head!(), " FROM tasks WHERE id = :id");
    let row = db
        .prepare_cached(find)?
        .query_row(named_params! { ":id": task.as_str() }, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((ordinal, first, head)): Option<(i64, i64, i64)> = row else {
        known.check_not_found()?;
        return Err(Error::task_not_found(task.as_str()).into());
    };
    known.check(ordinal, task)?;
    // The log of a damaged task that was ended may still have events before `first`.
    let after = to_sql(after).max(first - 1);
    let mut statement = db.prepare_cached(concat!(
        "SELECT seq, body, epoch, kind, ",
        event_sum!(),
        " FROM events WHERE task = :task AND seq > :after ORDER BY seq LIMIT :limit"
    ))?;
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let range = named_params! { ":task": ordinal, ":after": after, ":limit": most };
    let (mut entries, mut bytes) = (Vec::new(), 0);
    let mut rows = statement.query(range)?;
    let mut sequence = Sequence(from_sql(after));
    while bytes < READ_BYTES && entries.len() < limit {
        let Some(row) = rows.next()? else {
            sequence.check_end(task, from_sql(head))?;
            break;
        };
        bytes += row.get_ref(1)?.as_bytes()?.len();
        entries.push(sequence.next(entry(task, ordinal, row)?, task)?);
    }
    Ok(entries)
}

/// Reads something small, to check that the file is readable.
pub(super) fn check_readable(db: &Connection) -> Outcome<()> {
    db.prepare_cached("SELECT EXISTS (SELECT 1 FROM tasks)")?.query_row([], |_| Ok(()))?;
    Ok(())
}

pub(super) fn get(
    db: &Connection,
    known: &KnownDamage,
    owner: &Principal,
    task: &TaskId,
) -> Outcome<Option<StoredTask>> {
    let sql = select_tasks(Parts::All, "tasks", "tasks.id = :id AND tasks.owner = :owner");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(named_params! { ":id": task.as_str(), ":owner": owner.as_str() })?;
    let Some(row) = rows.next()? else { return known.check_not_found().map(|()| None) };
    known.check(row.get(0)?, task)?;
    Ok(Some(stored(db, row)?))
}

pub(super) fn head(
    db: &Connection,
    known: &KnownDamage,
    owner: &Principal,
    task: &TaskId,
) -> Outcome<Option<Head>> {
    let sql = concat!(
        "SELECT ",
        head!(),
        ", first, state, context, output, ",
        head_epoch!(),
        ", ordinal FROM tasks WHERE id = :id AND owner = :owner"
    );
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(named_params! { ":id": task.as_str(), ":owner": owner.as_str() })?;
    let Some(row) = rows.next()? else { return known.check_not_found().map(|()| None) };
    known.check(row.get(6)?, task)?;
    let what = || format!("task {task}");
    let state =
        TaskState::parse(row.get_ref(2)?.as_str()?).ok_or_else(|| damaged(&what(), "unknown state"))?;
    let context = ContextId::parse(row.get_ref(3)?.as_str()?).map_err(|cause| damaged(&what(), cause))?;
    let output = decode_or_default(&what(), row.get_ref(4)?)?;
    let (seq, first, epoch) = (from_sql(row.get(0)?), from_sql(row.get(1)?), Epoch(row.get(5)?));
    Ok(Some(Head { context, seq, epoch, first, state, output }))
}

/// One page of the unfinished tasks. Skips damaged ones, so that none of them keeps the gateway from starting.
pub(super) fn unfinished(db: &Connection, cursor: u64) -> Outcome<UnfinishedPage> {
    let mut statement = db.prepare_cached(&select_unfinished())?;
    let after = i64::try_from(cursor).unwrap_or(i64::MAX);
    let mut rows = statement.query(named_params! { ":after": after })?;
    let (mut tasks, mut has_damage, mut bytes, mut count) = (Vec::new(), false, 0, 0);
    while let Some(row) = rows.next()? {
        for column in [9, 10] {
            bytes += row.get_ref(column)?.as_bytes_or_null().unwrap_or_default().map_or(0, <[u8]>::len);
        }
        count += 1;
        match skip_damaged(read_resumable(db, row))? {
            Some(stored) => tasks.push(stored),
            None => has_damage = true,
        }
        if bytes >= PAGE_BYTES || count >= PAGE_TASKS {
            let next = Some(row.get::<_, i64>(0)?.unsigned_abs());
            return Ok(UnfinishedPage { tasks, has_damage, next });
        }
    }
    Ok(UnfinishedPage { tasks, has_damage, next: None })
}

/// The recently ended tasks with their turns. Skips tasks whose turn cannot be read.
pub(super) fn ended_turns(db: &Connection, since: Timestamp) -> Outcome<Vec<EndedTurn>> {
    let mut statement = db.prepare_cached(&select_ended())?;
    let limit = i64::try_from(MAX_ENDED).unwrap_or(i64::MAX);
    let rows = statement.query(named_params! { ":since": since.0, ":limit": limit })?;
    let ended = collect_undamaged(rows, |row| {
        let PageCursor { task, .. } = page_cursor(row)?;
        Ok(turn(&format!("task {task}"), row)?.map(|turn| EndedTurn { task, turn }))
    })?;
    Ok(ended.into_iter().flatten().collect())
}

/// An unfinished task that cannot be read.
pub(super) struct Unreadable {
    pub(super) ordinal: i64,
    pub(super) id: Option<TaskId>,
    pub(super) context: Option<ContextId>,
    pub(super) head: i64,
    /// The readable snapshot: a sequence number, and the task as of that event.
    pub(super) snapshot: Option<(i64, Task)>,
}

/// Every unfinished task that [`unfinished`] skips.
pub(super) fn unreadable(db: &Connection) -> Outcome<Vec<Unreadable>> {
    let mut statement = db.prepare_cached(&select_unfinished())?;
    let (mut rows, mut found) = (statement.query(named_params! { ":after": 0 })?, Vec::new());
    while let Some(row) = rows.next()? {
        match read_resumable(db, row) {
            Ok(_) => {}
            Err(Fault(error)) if error.kind() == ErrorKind::Internal => found.push(Unreadable {
                ordinal: row.get(0)?,
                id: text("", row, 1).ok().and_then(|id| TaskId::parse(id).ok()),
                context: text("", row, 15).ok().and_then(|context| ContextId::parse(context).ok()),
                head: row.get(3)?,
                snapshot: snapshot("", row).ok(),
            }),
            Err(fault) => return Err(fault),
        }
    }
    Ok(found)
}

/// The tasks of a root's sub-agents. Skips damaged ones, so that none of them keeps the root from continuing.
pub(super) fn children(db: &Connection, root: &TaskId) -> Outcome<Vec<StoredTask>> {
    let mut statement = db.prepare_cached(&select_children())?;
    collect_undamaged(statement.query(named_params! { ":root": root.as_str() })?, |row| stored(db, row))
}

fn collect_undamaged<T>(mut rows: Rows<'_>, read: impl Fn(&Row<'_>) -> Outcome<T>) -> Outcome<Vec<T>> {
    let mut tasks = Vec::new();
    while let Some(row) = rows.next()? {
        tasks.extend(skip_damaged(read(row))?);
    }
    Ok(tasks)
}

/// Turns the error for a damaged task into `None`, and logs it. A request for the task itself still reports the damage.
pub(super) fn skip_damaged<T>(read: Outcome<T>) -> Outcome<Option<T>> {
    match read {
        Ok(task) => Ok(Some(task)),
        Err(Fault(error)) if error.kind() == ErrorKind::Internal => {
            tracing::error!(%error, cause = error.cause().map(tracing::field::display), "a damaged task is skipped");
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

/// The terminal states, spelled exactly like in the index `tasks_unfinished`. Otherwise SQLite could not use the index.
pub(super) const TERMINAL_WORDS: &str = "'completed', 'failed', 'canceled', 'rejected'";

pub(super) fn select_unfinished() -> String {
    let condition =
        format!("tasks.state NOT IN ({TERMINAL_WORDS}) AND tasks.ordinal > :after ORDER BY tasks.ordinal");
    select_tasks(Parts::All, "tasks INDEXED BY tasks_unfinished", &condition)
}

/// Selects ended tasks. The first condition repeats that of the index `tasks_over`. Otherwise SQLite could not use the index.
pub(super) fn select_ended() -> String {
    let condition = format!(
        "tasks.state IN ({TERMINAL_WORDS}) AND tasks.folded IN (0, 1) AND tasks.status_at >= :since
         AND (tasks.state IN ('canceled', 'failed') OR tasks.joined IS NOT NULL)
         AND tasks.session IS NOT NULL AND tasks.root IS NULL
         ORDER BY tasks.status_at DESC, tasks.ordinal DESC LIMIT :limit"
    );
    select_tasks(Parts::WithoutArtifacts, "tasks INDEXED BY tasks_over", &condition)
}

pub(super) fn select_children() -> String {
    let condition = "tasks.root = :root ORDER BY tasks.ordinal";
    select_tasks(Parts::All, "tasks INDEXED BY tasks_by_root", condition)
}

/// The parts of a task that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Parts {
    All,
    WithoutArtifacts,
}

/// A query whose rows [`read_task`] can read. `tasks`: the table, optionally with the index to use. The query also finds tasks
/// without a snapshot, which count as damaged.
pub(super) fn select_tasks(parts: Parts, tasks: &str, condition: &str) -> String {
    // If the artifacts are not read, the head of the log is not needed.
    let (artifacts, head, epoch, sum) = match parts {
        Parts::All => ("snapshots.artifacts", head!(), head_epoch!(), SNAPSHOT_SUM),
        Parts::WithoutArtifacts => ("NULL", "tasks.summary_seq", "0", "NULL"),
    };
    format!(
        "SELECT tasks.ordinal, tasks.id, tasks.owner, {head}, tasks.summary_seq, tasks.session,
                tasks.directory, tasks.prompt, snapshots.seq, snapshots.summary, {artifacts}, tasks.joined,
                tasks.status_at, {epoch}, tasks.state, tasks.context,
                {sum}
         FROM {tasks} LEFT JOIN snapshots ON snapshots.task = tasks.ordinal WHERE {condition}"
    )
}

/// A task that was read, and its size.
pub(super) struct FoundTask {
    pub(super) task: Task,
    /// The newest event that is part of the task, and its epoch. Valid only if all parts were read.
    head: Seq,
    epoch: Epoch,
    turn: Option<TurnRecord>,
    /// The size in bytes of the snapshot and of the events after it.
    pub(super) bytes: usize,
}

/// Like [`stored`], but also checks the columns that an append uses.
fn read_resumable(db: &Connection, row: &Row<'_>) -> Outcome<StoredTask> {
    let stored = stored(db, row)?;
    let what = format!("task {}", stored.task.id);
    TaskState::parse(text(&what, row, 14)?).ok_or_else(|| damaged(&what, "unknown state"))?;
    ContextId::parse(text(&what, row, 15)?).map_err(|cause| damaged(&what, cause))?;
    Ok(stored)
}

/// The whole task of a row.
fn stored(db: &Connection, row: &Row<'_>) -> Outcome<StoredTask> {
    let FoundTask { task, head, epoch, turn, .. } = read_task(db, Parts::All, row)?;
    // A task that has ended has no open asks.
    let open_asks =
        if task.status.state.is_terminal() { Vec::new() } else { asks::open_of_task(db, row.get(0)?)? };
    let owner = Principal::new(text(&format!("task {}", task.id), row, 2)?);
    Ok(StoredTask { owner, task, seq: head, epoch, turn, open_asks })
}

/// The task of a row: its snapshot and the tail of its log.
pub(super) fn read_task(db: &Connection, parts: Parts, row: &Row<'_>) -> Outcome<FoundTask> {
    let ordinal: i64 = row.get(0)?;
    let id = text("task", row, 1)?;
    let what = format!("task {id}");
    let id = TaskId::parse(id).map_err(|cause| damaged(&what, cause))?;
    let (head, summary_seq) = (from_sql(row.get(3)?), from_sql(row.get(4)?));
    let (from, mut task) = snapshot(&what, row)?;
    let from = from_sql(from);
    let mut bytes =
        row.get_ref(9)?.as_bytes()?.len() + row.get_ref(10)?.as_bytes_or_null()?.map_or(0, <[u8]>::len);
    let tail = match parts {
        Parts::All => Tail { with_artifacts: true, from, to: head },
        Parts::WithoutArtifacts => Tail { with_artifacts: false, from, to: summary_seq },
    };
    bytes += tail.fold_into(db, ordinal, &id, &mut task)?;
    Ok(FoundTask { task, head, epoch: Epoch(row.get(13)?), turn: turn(&what, row)?, bytes })
}

/// The snapshot of a row: a sequence number and the task as of that event, with its artifacts if they were selected.
fn snapshot(what: &str, row: &Row<'_>) -> Outcome<(i64, Task)> {
    let seq: Option<i64> = row.get(8)?;
    let seq = seq.ok_or_else(|| damaged(what, "it has no snapshot"))?;
    let (summary, artifacts) = (row.get_ref(9)?.as_bytes()?, row.get_ref(10)?.as_bytes_or_null()?);
    // The checksum includes the artifacts, so it can be compared only if they were read.
    if let Some(artifacts) = artifacts {
        let sum: i64 = row.get(16)?;
        if sum != UNSUMMED && sum != checksum::of_snapshot(row.get(0)?, seq, summary, artifacts) {
            return Err(damaged(what, "the checksum of its snapshot differs"));
        }
    }
    let mut task: Task = decode(what, row.get_ref(9)?)?;
    task.artifacts = decode_or_default(what, row.get_ref(10)?)?;
    Ok((seq, task))
}

/// The snapshot of a task. `None`: it is missing or damaged.
pub(super) fn snapshot_of(db: &Connection, ordinal: i64) -> Option<(i64, Task)> {
    let sql = format!(
        "SELECT task, NULL, NULL, NULL, NULL, NULL, NULL, NULL, seq, summary, artifacts, NULL, NULL, NULL, NULL, NULL,
                {SNAPSHOT_SUM} FROM snapshots WHERE task = ?"
    );
    let mut statement = db.prepare_cached(&sql).ok()?;
    let mut rows = statement.query([ordinal]).ok()?;
    snapshot("", rows.next().ok()??).ok()
}

/// The range of events after a snapshot.
struct Tail {
    with_artifacts: bool,
    /// The start of the range, exclusive.
    from: Seq,
    /// The end of the range, inclusive.
    to: Seq,
}

impl Tail {
    /// Applies the events to the task. Returns their size in bytes.
    fn fold_into(&self, db: &Connection, ordinal: i64, id: &TaskId, task: &mut Task) -> Outcome<usize> {
        if self.from >= self.to {
            return Ok(0);
        }
        let mut statement = db.prepare_cached(concat!(
            "SELECT seq, body, epoch, kind, ",
            event_sum!(),
            " FROM events
             WHERE task = :task AND seq > :from AND seq <= :to AND (:whole OR kind <> :artifact) ORDER BY seq"
        ))?;
        let range = named_params! {
            ":task": ordinal,
            ":from": to_sql(self.from),
            ":to": to_sql(self.to),
            ":whole": self.with_artifacts,
            ":artifact": ARTIFACT,
        };
        let mut bytes = 0;
        let mut rows = statement.query(range)?;
        let mut sequence = Sequence(self.from);
        while let Some(row) = rows.next()? {
            bytes += row.get_ref(1)?.as_bytes()?.len();
            let mut entry = entry(id, ordinal, row)?;
            if self.with_artifacts {
                entry = sequence.next(entry, id)?;
            }
            task.apply(&entry.event);
        }
        if self.with_artifacts {
            sequence.check_end(id, self.to)?;
        }
        Ok(bytes)
    }
}

/// The checksum of a snapshot, with the special values of [`event_sum`].
const SNAPSHOT_SUM: &str =
    "CASE WHEN snapshots.sum IS NULL AND (SELECT unsummed FROM epochs WHERE only = 1) >= 0
                                 THEN -1 ELSE snapshots.sum END";

/// The checksum value of rows that were written before checksums existed.
const UNSUMMED: i64 = -1;

/// The event of a row with the columns `seq, body, epoch, kind` and [`event_sum`].
pub(super) fn entry(task: &TaskId, ordinal: i64, row: &Row<'_>) -> Outcome<Entry> {
    let number: i64 = row.get(0)?;
    let (seq, epoch) = (from_sql(number), Epoch(row.get(2)?));
    let what = || format!("event {seq} of task {task}");
    let (body, kind) = (row.get_ref(1)?, text(&what(), row, 3)?);
    let sum: i64 = row.get(4)?;
    if sum != UNSUMMED && sum != checksum::of_event(ordinal, number, epoch, kind, body.as_bytes()?) {
        return Err(damaged(&what(), "its checksum differs"));
    }
    Ok(Entry { seq, epoch, event: decode(&what(), body)? })
}

/// Checks that no event is missing. The field is the number of the last event.
pub(super) struct Sequence(pub(super) Seq);

impl Sequence {
    pub(super) fn next(&mut self, entry: Entry, task: &TaskId) -> Outcome<Entry> {
        if entry.seq != self.0.next() {
            return Err(damaged(&format!("task {task}"), format!("event {} is missing", self.0.next())));
        }
        self.0 = entry.seq;
        Ok(entry)
    }

    pub(super) fn check_end(&self, task: &TaskId, head: Seq) -> Outcome<()> {
        if self.0 < head {
            return Err(damaged(&format!("task {task}"), format!("its events after {} are missing", self.0)));
        }
        Ok(())
    }
}

fn turn(what: &str, row: &Row<'_>) -> Outcome<Option<TurnRecord>> {
    let Some(session) = text_or_null(what, row, 5)? else { return Ok(None) };
    let id = SessionId::parse(session).map_err(|cause| damaged(what, cause))?;
    let directory = text(what, row, 6)?.to_owned();
    let prompt = PromptId::parse(text(what, row, 7)?).map_err(|cause| damaged(what, cause))?;
    let joined = decode_or_default(what, row.get_ref(11)?)?;
    Ok(Some(TurnRecord { session: Session { id, directory }, prompt, joined }))
}

/// The position of a row's task in a list, as a cursor.
pub(super) fn page_cursor(row: &Row<'_>) -> Outcome<PageCursor> {
    let id = text("task", row, 1)?;
    let task = TaskId::parse(id).map_err(|cause| damaged(&format!("task {id}"), cause))?;
    Ok(PageCursor { status_at: Timestamp(row.get(12)?), task })
}

/// The text of a column that must not be NULL.
pub(super) fn text<'row>(what: &str, row: &'row Row<'_>, column: usize) -> Outcome<&'row str> {
    row.get_ref(column)?.as_str().map_err(|cause| damaged(what, cause))
}

pub(super) fn text_or_null<'row>(
    what: &str,
    row: &'row Row<'_>,
    column: usize,
) -> Outcome<Option<&'row str>> {
    row.get_ref(column)?.as_str_or_null().map_err(|cause| damaged(what, cause))
}

/// Decodes JSON. NULL stands for an empty value.
pub(super) fn decode_or_default<T: DeserializeOwned + Default>(
    what: &str,
    value: ValueRef<'_>,
) -> Outcome<T> {
    if value == ValueRef::Null { Ok(T::default()) } else { decode(what, value) }
}

pub(super) fn decode<T: DeserializeOwned>(what: &str, value: ValueRef<'_>) -> Outcome<T> {
    serde_json::from_slice(value.as_bytes()?).map_err(|cause| damaged(what, cause))
}
