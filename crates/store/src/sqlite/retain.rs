//! What is folded and removed of what is over, in steps.
//!
//! What is to be done is found by a thread that reads; the writer is asked only to do it, and never for long.

use longshore_engine::port::{Retained, Retention};
use longshore_model::{Result, Timestamp};
use rusqlite::{Connection, OptionalExtension, Params, named_params};

use super::fault::Outcome;
use super::queue::Owner;
use super::read::{self, Parts};
use super::reader::Reader;
use super::record::SnapshotText;
use super::writer::Writer;
use super::{from_sql, write};
use crate::rules;

/// So many tasks are looked at for one step.
const TASKS: i64 = 32;

/// The writer removes so many rows in one step at most,
const ROWS: i64 = 512;

/// and goes on to no other row behind the one with which it has removed so many bytes.
const BYTES: i64 = 1024 * 1024;

/// Does one step.
pub(super) async fn retain(reader: &Reader, writer: &Writer, retention: Retention) -> Result<Retained> {
    let found = reader.run(Owner::Gateway, move |db| Work::find(db, &retention)).await?;
    if found.is_nothing() {
        return Ok(Retained::default());
    }
    writer.run_large(Owner::Gateway, move |db| found.run(db)).await
}

/// What there is to do. It is found by one thread and done by another, later: a row may be another one by then, since
/// SQLite gives the ordinal of a row that is gone to a new one. So whoever does it looks again whether it is old.
struct Work {
    retention: Retention,
    folds: Vec<(i64, Foldable)>,
    /// Root tasks.
    drops: Vec<i64>,
    /// Whose, and which.
    keys: Vec<(String, Vec<u8>)>,
    asks: Vec<i64>,
}

/// Whether the log of a task can be folded.
enum Foldable {
    /// Its snapshot tells all of it.
    Known,
    /// Its snapshot is older than its end. This one is not.
    Anew(SnapshotText),
    /// It cannot be read. Then its log is all that is left of it, and stays.
    Damaged,
}

impl Work {
    fn find(db: &Connection, retention: &Retention) -> Outcome<Self> {
        Ok(Self {
            retention: *retention,
            folds: match folded_before(retention) {
                Some(before) => foldable(db, before)?,
                None => Vec::new(),
            },
            drops: match retention.drop_before {
                Some(before) => {
                    ordinals(db, DROPPABLE, named_params! { ":before": before.0, ":limit": TASKS })?
                }
                None => Vec::new(),
            },
            keys: expired_keys(db, retention.keys_before)?,
            asks: ordinals(
                db,
                OLD_ASKS,
                named_params! { ":before": rules::asks_kept_since(retention.now).0, ":limit": ROWS },
            )?,
        })
    }

    fn is_nothing(&self) -> bool {
        self.folds.is_empty() && self.drops.is_empty() && self.keys.is_empty() && self.asks.is_empty()
    }

    /// Some of it. Whoever looks again finds the rest.
    fn run(&self, db: &Connection) -> Outcome<Retained> {
        let (mut allowance, mut done) = (Allowance::of_a_step(), Retained::default());
        let before = db.total_changes();
        if let Some(before) = folded_before(&self.retention) {
            for (task, foldable) in &self.folds {
                if allowance.is_left() && fold(db, (*task, before), foldable, &mut allowance)? {
                    done.folded += 1;
                }
            }
        }
        if let Some(before) = self.retention.drop_before {
            for &root in &self.drops {
                if allowance.is_left() && is_droppable(db, root, before)? {
                    done.dropped += drop_tree(db, root, &mut allowance)?;
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
        // Else whoever asks until there is nothing more would do so for ever.
        done.more = db.total_changes() > before;
        Ok(done)
    }
}

/// What is to go is folded first: that is done in steps.
fn folded_before(retention: &Retention) -> Option<Timestamp> {
    retention.fold_before.max(retention.drop_before)
}

/// What a step may still remove.
struct Allowance {
    rows: i64,
    bytes: i64,
}

impl Allowance {
    fn of_a_step() -> Self {
        Self { rows: ROWS, bytes: BYTES }
    }

    fn is_left(&self) -> bool {
        self.rows > 0 && self.bytes > 0
    }

    fn take(&mut self, bytes: i64) {
        self.rows -= 1;
        self.bytes -= bytes;
    }
}

// Where they look for tasks they use `tasks_over`, with the words of its condition.

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

/// A root goes when all of its sub-agents can.
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
    let range = named_params! { ":before": before.0, ":limit": ROWS };
    let found = statement.query_map(range, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// As many as one step can fold: what is looked at beyond them would be looked at again for the next one.
fn foldable(db: &Connection, before: Timestamp) -> Outcome<Vec<(i64, Foldable)>> {
    let (mut allowance, mut found) = (Allowance::of_a_step(), Vec::new());
    for task in ordinals(db, FOLDABLE, named_params! { ":before": before.0, ":limit": TASKS })? {
        if !allowance.is_left() {
            break;
        }
        found.push((task, look_at(db, task, &mut allowance)?));
    }
    Ok(found)
}

/// Nothing is folded away of a task that cannot be read without it.
fn look_at(db: &Connection, task: i64, allowance: &mut Allowance) -> Outcome<Foldable> {
    let (rows, is_begun): (i64, bool) = db
        .prepare_cached(concat!("SELECT ", head!(), " - first, first > 1 FROM tasks WHERE ordinal = ?"))?
        .query_row([task], |row| Ok((row.get(0)?, row.get(1)?)))?;
    allowance.rows -= rows;
    if is_begun {
        // It was looked at before the first step.
        return Ok(Foldable::Known);
    }
    let sql = read::select_tasks(Parts::All, "tasks", "tasks.ordinal = :task");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(named_params! { ":task": task })?;
    let Some(row) = rows.next()? else { return Ok(Foldable::Damaged) };
    let (head, snapshot): (i64, Option<i64>) = (row.get(3)?, row.get(8)?);
    let Some(found) = read::unless_damaged(read::found(db, Parts::All, row))? else {
        return Ok(Foldable::Damaged);
    };
    allowance.bytes -= i64::try_from(found.bytes).unwrap_or(i64::MAX);
    if snapshot.is_some_and(|snapshot| snapshot >= head) {
        return Ok(Foldable::Known);
    }
    Ok(Foldable::Anew(SnapshotText::of(&found.task)?))
}

/// Removes events from the front of the log, the last one never. Says whether the log is folded now.
fn fold(
    db: &Connection,
    (task, before): (i64, Timestamp),
    foldable: &Foldable,
    allowance: &mut Allowance,
) -> Outcome<bool> {
    let place = db
        .prepare_cached(STILL_FOLDABLE)?
        .query_row(named_params! { ":task": task, ":before": before.0 }, |row| row.get(0))
        .optional()?;
    let Some(head): Option<i64> = place else { return Ok(false) };
    match foldable {
        Foldable::Damaged => {
            db.prepare_cached("UPDATE tasks SET folded = 1 WHERE ordinal = ?")?.execute([task])?;
            return Ok(false);
        }
        Foldable::Anew(snapshot) => write::put_snapshot(db, task, from_sql(head), snapshot)?,
        Foldable::Known => {}
    }
    // A log that lacks its last event may have none left.
    let first = remove_events(db, task, head, allowance)?.unwrap_or(head);
    let is_folded = first == head;
    db.prepare_cached("UPDATE tasks SET first = :first, folded = :folded WHERE ordinal = :task")?
        .execute(named_params! { ":first": first, ":folded": is_folded, ":task": task })?;
    Ok(is_folded)
}

/// Removes events before `end`, as many as are allowed, oldest first. Gives the number of the first that is left.
fn remove_events(db: &Connection, task: i64, end: i64, allowance: &mut Allowance) -> Outcome<Option<i64>> {
    let mut statement = db.prepare_cached(
        "SELECT seq, octet_length(body) FROM events WHERE task = :task AND seq < :end ORDER BY seq LIMIT :limit",
    )?;
    let mut rows = statement.query(named_params! { ":task": task, ":end": end, ":limit": allowance.rows })?;
    let mut last = 0;
    while allowance.is_left()
        && let Some(row) = rows.next()?
    {
        last = row.get(0)?;
        allowance.take(row.get(1)?);
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

/// Removes the tasks of a tree, as much of them as is allowed. Gives how many are gone.
fn drop_tree(db: &Connection, root: i64, allowance: &mut Allowance) -> Outcome<usize> {
    let mut dropped = 0;
    while allowance.is_left() && !is_gone(db, root)? {
        dropped += usize::from(drop_one(db, root, allowance)?);
    }
    Ok(dropped)
}

fn is_gone(db: &Connection, task: i64) -> Outcome<bool> {
    let there = "SELECT EXISTS (SELECT 1 FROM tasks WHERE ordinal = ?)";
    Ok(!db.prepare_cached(there)?.query_row([task], |row| row.get::<_, bool>(0))?)
}

/// Removes a task of the tree, the root last, or some of what it holds. Says whether a task is gone.
fn drop_one(db: &Connection, root: i64, allowance: &mut Allowance) -> Outcome<bool> {
    let below = "SELECT below.ordinal FROM tasks JOIN tasks AS below ON below.root = tasks.id
                 WHERE tasks.ordinal = ? LIMIT 1";
    let below = db.prepare_cached(below)?.query_row([root], |row| row.get(0)).optional()?;
    let task = below.unwrap_or(root);
    // The log of one that is damaged is still there.
    remove_events(db, task, i64::MAX, allowance)?;
    while allowance.is_left() && remove_chunk(db, task, allowance)? {}
    if !allowance.is_left() {
        return Ok(false);
    }
    let of_task = "SELECT owner, context FROM tasks WHERE ordinal = ?";
    let place: (String, String) =
        db.prepare_cached(of_task)?.query_row([task], |row| Ok((row.get(0)?, row.get(1)?)))?;
    db.prepare_cached("DELETE FROM tasks WHERE ordinal = ?")?.execute([task])?;
    allowance.take(0);
    forget_context(db, &place.0, &place.1)?;
    Ok(true)
}

/// Removes a piece of some file of the task, and with its last piece the file. Says whether there may be more.
fn remove_chunk(db: &Connection, task: i64, allowance: &mut Allowance) -> Outcome<bool> {
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
    // From now on the file is not there.
    db.prepare_cached("UPDATE files SET complete = 0 WHERE ordinal = ?")?.execute([file])?;
    db.prepare_cached("DELETE FROM file_chunks WHERE rowid = ?")?.execute([chunk])?;
    allowance.take(bytes);
    Ok(true)
}

/// Where a context works, and with which session, unless a task of it is left. Whose the session is stays known: another
/// must not get it.
fn forget_context(db: &Connection, owner: &str, context: &str) -> Outcome<()> {
    let left = "SELECT EXISTS (SELECT 1 FROM tasks WHERE owner = :owner AND context = :context)";
    let place = named_params! { ":owner": owner, ":context": context };
    if db.prepare_cached(left)?.query_row(place, |row| row.get::<_, bool>(0))? {
        return Ok(());
    }
    for sql in [
        "DELETE FROM bindings WHERE owner = :owner AND context = :context",
        "DELETE FROM contexts WHERE owner = :owner AND context = :context",
    ] {
        db.prepare_cached(sql)?.execute(place)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
