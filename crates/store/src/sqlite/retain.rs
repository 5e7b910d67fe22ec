//! Retention: folds the logs of finished tasks and removes old data, in steps.
//!
//! A reader thread finds the work, so that the writer only has to carry it out, and never for long.

use longshore_engine::port::{Retention, RetentionStep};
use longshore_model::{Principal, Result, Timestamp};
use rusqlite::{Connection, OptionalExtension, Params, named_params};

use super::fault::Outcome;
use super::queue::Owner;
use super::read::{self, Parts};
use super::reader::Reader;
use super::record::SnapshotText;
use super::writer::Writer;
use super::{calls, from_sql, to_i64, write};
use crate::rules;

/// The most tasks that one step considers.
const STEP_TASKS: i64 = 32;

/// The most rows that the writer removes in one step.
const STEP_ROWS: i64 = 512;

/// The most bytes that a step removes. A step ends after the row with which the removed bytes reach this number.
const STEP_BYTES: i64 = 1024 * 1024;

/// The largest snapshot that is written. SQLite holds no row of more than a billion bytes.
const MAX_SNAPSHOT_BYTES: usize = 950_000_000;

/// How many bytes were removed for each owner. The number can be negative, because a new snapshot may need more than was removed.
pub(super) type Freed = Vec<(Principal, i64)>;

/// Runs one step.
pub(super) async fn retain(
    reader: &Reader,
    writer: &Writer,
    retention: Retention,
) -> Result<(RetentionStep, Freed)> {
    let found = reader.run(Owner::Gateway, move |db| Step::find(db, &retention)).await?;
    if found.is_empty() {
        return Ok(<_>::default());
    }
    writer.run_large(Owner::Gateway, move |db| found.run(db)).await
}

/// The work of one step. The reader finds it, and the writer does it later. Meanwhile an ordinal may belong to another row, because
/// SQLite reuses the ordinals of deleted rows. So the writer checks the age of each row again.
struct Step {
    retention: Retention,
    folds: Vec<(i64, Foldable)>,
    /// The ordinals of root tasks whose trees are removed.
    drops: Vec<i64>,
    /// Idempotency keys to remove: owner and digest.
    keys: Vec<(String, Vec<u8>)>,
    asks: Vec<i64>,
}

/// Whether the log of a task can be folded.
enum Foldable {
    /// The stored snapshot is up to date.
    AsStored,
    /// The stored snapshot is older than the end of the task. The value is an up-to-date one.
    WithSnapshot(SnapshotText),
    /// The task cannot be read, or its snapshot would be too large. Its log is the only copy of its content, so it stays.
    Damaged,
}

impl Step {
    fn find(db: &Connection, retention: &Retention) -> Outcome<Self> {
        Ok(Self {
            retention: *retention,
            folds: match fold_cutoff(retention) {
                Some(before) => foldable(db, before)?,
                None => Vec::new(),
            },
            drops: match retention.drop_before {
                Some(before) => {
                    ordinals(db, DROPPABLE, named_params! { ":before": before.0, ":limit": STEP_TASKS })?
                }
                None => Vec::new(),
            },
            keys: expired_keys(db, retention.keys_before)?,
            asks: ordinals(
                db,
                OLD_ASKS,
                named_params! { ":before": rules::asks_kept_since(retention.now).0, ":limit": STEP_ROWS },
            )?,
        })
    }

    fn is_empty(&self) -> bool {
        self.folds.is_empty() && self.drops.is_empty() && self.keys.is_empty() && self.asks.is_empty()
    }

    /// Does as much of the work as the budget allows. The next step does the rest.
    fn run(&self, db: &Connection) -> Outcome<(RetentionStep, Freed)> {
        let (mut budget, mut done) = (Budget::for_step(), RetentionStep::default());
        let before = db.total_changes();
        if let Some(before) = fold_cutoff(&self.retention) {
            for (task, foldable) in &self.folds {
                if budget.is_left() && fold(db, (*task, before), foldable, &mut budget)? {
                    done.folded += 1;
                }
            }
        }
        if let Some(before) = self.retention.drop_before {
            for &root in &self.drops {
                if budget.is_left() && is_droppable(db, root, before)? {
                    done.dropped += drop_tree(db, root, &mut budget)?;
                }
            }
        }
        for (owner, digest) in &self.keys {
            db.prepare_cached(
                "DELETE FROM idempotency WHERE owner = :owner AND digest = :digest AND at < :before",
            )?
            .execute(named_params! {
                ":owner": owner,
                ":digest": digest,
                ":before": self.retention.keys_before.0,
            })?;
        }
        let asks_before = rules::asks_kept_since(self.retention.now);
        for ask in &self.asks {
            db.prepare_cached("DELETE FROM interrupts WHERE ordinal = :ask AND closed_at < :before")?
                .execute(named_params! { ":ask": ask, ":before": asks_before.0 })?;
        }
        // Request another step only if rows have changed. Otherwise a caller that repeats while there is more would never stop.
        done.more = db.total_changes() > before;
        Ok((done, budget.freed))
    }
}

/// The time before which ended tasks are folded. Tasks to be removed are folded first, because folding works in steps.
fn fold_cutoff(retention: &Retention) -> Option<Timestamp> {
    retention.fold_before.max(retention.drop_before)
}

/// The amount that a step may still remove.
struct Budget {
    rows: i64,
    bytes: i64,
    /// The amount that was removed so far.
    freed: Freed,
}

impl Budget {
    fn for_step() -> Self {
        Self { rows: STEP_ROWS, bytes: STEP_BYTES, freed: Freed::new() }
    }

    fn is_left(&self) -> bool {
        self.rows > 0 && self.bytes > 0
    }

    fn take(&mut self, bytes: i64) {
        self.rows -= 1;
        self.bytes -= bytes;
    }

    /// Records the removed bytes of an owner. `bytes`: the bytes that the budget had left before their removal.
    fn free(&mut self, owner: &str, bytes: i64) {
        self.freed.push((Principal::new(owner), bytes.saturating_sub(self.bytes)));
    }
}

// The queries below repeat the condition of the index `tasks_over` literally, because SQLite can use the index only then.

macro_rules! is_foldable {
    () => {
        "state IN ('completed', 'failed', 'canceled', 'rejected') AND folded = 0 AND status_at < :before"
    };
}

const FOLDABLE: &str = concat!(
    "SELECT ordinal FROM tasks INDEXED BY tasks_over WHERE ",
    is_foldable!(),
    " ORDER BY status_at LIMIT :limit"
);

const STILL_FOLDABLE: &str =
    concat!("SELECT ", head!(), " FROM tasks WHERE ordinal = :task AND ", is_foldable!());

/// The condition for a root to be removed. A root is removed only together with all tasks of its sub-agents.
macro_rules! is_droppable {
    () => {
        "state IN ('completed', 'failed', 'canceled', 'rejected') AND folded = 1 AND status_at < :before
         AND root IS NULL
         AND NOT EXISTS (SELECT 1 FROM tasks AS below
                         WHERE below.root = tasks.id AND (below.folded = 0 OR below.status_at >= :before))"
    };
}

const DROPPABLE: &str = concat!(
    "SELECT ordinal FROM tasks INDEXED BY tasks_over WHERE ",
    is_droppable!(),
    " ORDER BY status_at LIMIT :limit"
);

const STILL_DROPPABLE: &str =
    concat!("SELECT EXISTS (SELECT 1 FROM tasks WHERE ordinal = :task AND ", is_droppable!(), ")");

const OLD_ASKS: &str =
    "SELECT ordinal FROM interrupts WHERE closed_at < :before ORDER BY closed_at LIMIT :limit";

fn ordinals(db: &Connection, sql: &str, params: impl Params) -> Outcome<Vec<i64>> {
    let mut statement = db.prepare_cached(sql)?;
    let found = statement.query_map(params, |row| row.get(0))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

fn expired_keys(db: &Connection, before: Timestamp) -> Outcome<Vec<(String, Vec<u8>)>> {
    let sql = "SELECT owner, digest FROM idempotency WHERE at < :before LIMIT :limit";
    let mut statement = db.prepare_cached(sql)?;
    let range = named_params! { ":before": before.0, ":limit": STEP_ROWS };
    let found = statement.query_map(range, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// Finds tasks to fold, at most as many as one step can fold. Further ones would only have to be read again in the next step.
fn foldable(db: &Connection, before: Timestamp) -> Outcome<Vec<(i64, Foldable)>> {
    let (mut budget, mut found) = (Budget::for_step(), Vec::new());
    for task in ordinals(db, FOLDABLE, named_params! { ":before": before.0, ":limit": STEP_TASKS })? {
        if !budget.is_left() {
            break;
        }
        found.push((task, check_foldable(db, task, &mut budget)?));
    }
    Ok(found)
}

/// Checks whether a task can be folded. A task whose snapshot cannot be read cannot.
fn check_foldable(db: &Connection, task: i64, budget: &mut Budget) -> Outcome<Foldable> {
    let (rows, is_started): (i64, bool) = db
        .prepare_cached(concat!("SELECT ", head!(), " - first, first > 1 FROM tasks WHERE ordinal = ?"))?
        .query_row([task], |row| Ok((row.get(0)?, row.get(1)?)))?;
    budget.rows -= rows;
    if is_started {
        // An earlier step has checked and begun to fold this task.
        return Ok(Foldable::AsStored);
    }
    let sql = read::select_tasks(Parts::All, "tasks", "tasks.ordinal = :task");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(named_params! { ":task": task })?;
    let Some(row) = rows.next()? else { return Ok(Foldable::Damaged) };
    let (head, snapshot): (i64, Option<i64>) = (row.get(3)?, row.get(8)?);
    let Some(found) = read::skip_damaged(read::read_task(db, Parts::All, row))? else {
        return Ok(Foldable::Damaged);
    };
    budget.bytes -= i64::try_from(found.bytes).unwrap_or(i64::MAX);
    if snapshot.is_some_and(|snapshot| snapshot >= head) {
        return Ok(Foldable::AsStored);
    }
    let snapshot = SnapshotText::encode(&found.task)?;
    let is_too_large = snapshot.len() > MAX_SNAPSHOT_BYTES;
    Ok(if is_too_large { Foldable::Damaged } else { Foldable::WithSnapshot(snapshot) })
}

/// Removes events from the start of the log, but never the last one. Returns whether the log is completely folded.
fn fold(
    db: &Connection,
    (task, before): (i64, Timestamp),
    foldable: &Foldable,
    budget: &mut Budget,
) -> Outcome<bool> {
    let head = db
        .prepare_cached(STILL_FOLDABLE)?
        .query_row(named_params! { ":task": task, ":before": before.0 }, |row| row.get(0))
        .optional()?;
    let Some(head): Option<i64> = head else { return Ok(false) };
    let mut left = budget.bytes;
    match foldable {
        Foldable::Damaged => {
            db.prepare_cached("UPDATE tasks SET folded = 1 WHERE ordinal = ?")?.execute([task])?;
            return Ok(false);
        }
        Foldable::WithSnapshot(snapshot) => {
            left += snapshot_bytes(db, task)? - to_i64(snapshot.len());
            write::put_snapshot(db, task, from_sql(head), snapshot)?;
        }
        Foldable::AsStored => {}
    }
    // If a damaged log lacks its last event, no event may be left.
    let first = remove_events(db, task, head, budget)?.unwrap_or(head);
    let owner = "SELECT owner FROM tasks WHERE ordinal = ?";
    budget.free(&db.prepare_cached(owner)?.query_row([task], |row| row.get::<_, String>(0))?, left);
    let is_folded = first == head;
    db.prepare_cached("UPDATE tasks SET first = :first, folded = :folded WHERE ordinal = :task")?
        .execute(named_params! { ":first": first, ":folded": is_folded, ":task": task })?;
    Ok(is_folded)
}

fn snapshot_bytes(db: &Connection, task: i64) -> Outcome<i64> {
    let sql = "SELECT octet_length(summary) + octet_length(artifacts) FROM snapshots WHERE task = ?";
    let bytes = db.prepare_cached(sql)?.query_row([task], |row| row.get(0)).optional()?;
    Ok(bytes.unwrap_or(0))
}

/// Removes events before `end`, oldest first, within the budget. Returns the number of the first event that is left.
fn remove_events(db: &Connection, task: i64, end: i64, budget: &mut Budget) -> Outcome<Option<i64>> {
    let mut statement = db.prepare_cached(
        "SELECT seq, octet_length(body) FROM events WHERE task = :task AND seq < :end ORDER BY seq LIMIT :limit",
    )?;
    let mut rows = statement.query(named_params! { ":task": task, ":end": end, ":limit": budget.rows })?;
    let mut last = 0;
    while budget.is_left()
        && let Some(row) = rows.next()?
    {
        last = row.get(0)?;
        budget.take(row.get(1)?);
    }
    drop(rows);
    db.prepare_cached("DELETE FROM events WHERE task = :task AND seq <= :last")?
        .execute(named_params! { ":task": task, ":last": last })?;
    let rest = "SELECT min(seq) FROM events WHERE task = ?";
    Ok(db.prepare_cached(rest)?.query_row([task], |row| row.get(0))?)
}

fn is_droppable(db: &Connection, root: i64, before: Timestamp) -> Outcome<bool> {
    Ok(db
        .prepare_cached(STILL_DROPPABLE)?
        .query_row(named_params! { ":task": root, ":before": before.0 }, |row| row.get(0))?)
}

/// Removes the tasks of a tree within the budget. Returns the number of removed tasks.
fn drop_tree(db: &Connection, root: i64, budget: &mut Budget) -> Outcome<usize> {
    let mut dropped = 0;
    while budget.is_left() && !is_gone(db, root)? {
        dropped += usize::from(drop_next(db, root, budget)?);
    }
    Ok(dropped)
}

fn is_gone(db: &Connection, task: i64) -> Outcome<bool> {
    let there = "SELECT EXISTS (SELECT 1 FROM tasks WHERE ordinal = ?)";
    Ok(!db.prepare_cached(there)?.query_row([task], |row| row.get::<_, bool>(0))?)
}

/// Removes one task of the tree, the root last, or a part of its content. Returns whether a task was removed.
fn drop_next(db: &Connection, root: i64, budget: &mut Budget) -> Outcome<bool> {
    let below = "SELECT below.ordinal FROM tasks JOIN tasks AS below ON below.root = tasks.id
                 WHERE tasks.ordinal = ? LIMIT 1";
    let below = db.prepare_cached(below)?.query_row([root], |row| row.get(0)).optional()?;
    let task = below.unwrap_or(root);
    let of_task = "SELECT owner, context FROM tasks WHERE ordinal = ?";
    let (owner, context): (String, String) =
        db.prepare_cached(of_task)?.query_row([task], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let rest = snapshot_bytes(db, task)? + calls::bytes_of_task(db, task)?;
    let left = budget.bytes;
    // An ended damaged task was not folded, so its log must be removed too.
    remove_events(db, task, i64::MAX, budget)?;
    while budget.is_left() && remove_chunk(db, task, budget)? {}
    if !budget.is_left() {
        budget.free(&owner, left);
        return Ok(false);
    }
    db.prepare_cached("DELETE FROM tasks WHERE ordinal = ?")?.execute([task])?;
    budget.take(rest);
    budget.free(&owner, left);
    forget_context(db, &owner, &context)?;
    Ok(true)
}

/// Removes one chunk of a file of the task, or a file without chunks. Returns whether there may be more.
fn remove_chunk(db: &Connection, task: i64, budget: &mut Budget) -> Outcome<bool> {
    let find = "SELECT ordinal FROM files WHERE task = ? LIMIT 1";
    let file: Option<i64> = db.prepare_cached(find)?.query_row([task], |row| row.get(0)).optional()?;
    let Some(file) = file else { return Ok(false) };
    let find = "SELECT rowid, octet_length(bytes) FROM file_chunks WHERE file = ? LIMIT 1";
    let chunk =
        db.prepare_cached(find)?.query_row([file], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((chunk, bytes)): Option<(i64, i64)> = chunk else {
        db.prepare_cached("DELETE FROM files WHERE ordinal = ?")?.execute([file])?;
        return Ok(true);
    };
    // This makes the file invisible before its first chunk is removed.
    db.prepare_cached("UPDATE files SET complete = 0 WHERE ordinal = ?")?.execute([file])?;
    db.prepare_cached("DELETE FROM file_chunks WHERE rowid = ?")?.execute([chunk])?;
    budget.take(bytes);
    Ok(true)
}

/// Removes the directory and the binding of a context that has no tasks. Keeps the owner of the session, so that no other caller
/// can get the session.
fn forget_context(db: &Connection, owner: &str, context: &str) -> Outcome<()> {
    let left = "SELECT EXISTS (SELECT 1 FROM tasks WHERE owner = :owner AND context = :context)";
    let key = named_params! { ":owner": owner, ":context": context };
    if db.prepare_cached(left)?.query_row(key, |row| row.get::<_, bool>(0))? {
        return Ok(());
    }
    for sql in [
        "DELETE FROM bindings WHERE owner = :owner AND context = :context",
        "DELETE FROM contexts WHERE owner = :owner AND context = :context",
        "DELETE FROM approvals WHERE owner = :owner AND context = :context",
    ] {
        db.prepare_cached(sql)?.execute(key)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
