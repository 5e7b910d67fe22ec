//! What is folded and removed of what is over, in steps.
//!
//! What is to be done is found by a thread that reads; the writer is asked only to do it, and never for long.

use longshore_engine::port::{Retained, Retention};
use longshore_model::{Result, Timestamp};
use rusqlite::{Connection, OptionalExtension, Params, named_params};

use super::fault::Outcome;
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
    let found = reader.run(move |db| Work::find(db, &retention)).await?;
    if found.is_nothing() {
        return Ok(Retained::default());
    }
    writer.run(move |db| found.run(db)).await
}

/// What there is to do. What is over stays as it is, so this can be found by one thread and done by another.
struct Work {
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
        let Retention { now, fold_before, drop_before, keys_before } = *retention;
        Ok(Self {
            // What is to go is folded first: that is done in steps.
            folds: match fold_before.max(drop_before) {
                Some(before) => foldable(db, before)?,
                None => Vec::new(),
            },
            drops: match drop_before {
                Some(before) => {
                    ordinals(db, DROPPABLE, named_params! { ":before": before.0, ":limit": TASKS })?
                }
                None => Vec::new(),
            },
            keys: expired_keys(db, keys_before)?,
            asks: ordinals(
                db,
                OLD_ASKS,
                named_params! { ":before": rules::asks_kept_since(now).0, ":limit": ROWS },
            )?,
        })
    }

    fn is_nothing(&self) -> bool {
        self.folds.is_empty() && self.drops.is_empty() && self.keys.is_empty() && self.asks.is_empty()
    }

    /// Some of it. Whoever looks again finds the rest.
    fn run(self, db: &Connection) -> Outcome<Retained> {
        let mut allowance = Allowance { rows: ROWS, bytes: BYTES };
        let mut done = Retained { more: true, ..Retained::default() };
        for (task, foldable) in self.folds {
            if allowance.is_left() && fold(db, task, foldable, &mut allowance)? {
                done.folded += 1;
            }
        }
        for root in self.drops {
            while allowance.is_left() && !is_gone(db, root)? {
                done.dropped += usize::from(drop_one(db, root, &mut allowance)?);
            }
        }
        for (owner, digest) in self.keys {
            db.prepare_cached("DELETE FROM idempotency WHERE owner = :owner AND digest = :digest")?
                .execute(named_params! { ":owner": owner, ":digest": digest })?;
        }
        for ask in self.asks {
            db.prepare_cached("DELETE FROM interrupts WHERE ordinal = ?")?.execute([ask])?;
        }
        Ok(done)
    }
}

/// What a step may still remove.
struct Allowance {
    rows: i64,
    bytes: i64,
}

impl Allowance {
    fn is_left(&self) -> bool {
        self.rows > 0 && self.bytes > 0
    }

    fn take(&mut self, bytes: i64) {
        self.rows -= 1;
        self.bytes -= bytes;
    }
}

// All three use `tasks_over`, with the words of its condition.

const FOLDABLE: &str = "SELECT ordinal FROM tasks INDEXED BY tasks_over
     WHERE state IN ('completed', 'failed', 'canceled', 'rejected') AND folded = 0 AND status_at < :before
     ORDER BY status_at LIMIT :limit";

/// A root goes when all of its sub-agents can.
const DROPPABLE: &str = "SELECT ordinal FROM tasks INDEXED BY tasks_over
     WHERE state IN ('completed', 'failed', 'canceled', 'rejected') AND folded = 1 AND status_at < :before
       AND root IS NULL
       AND NOT EXISTS (SELECT 1 FROM tasks AS below
                       WHERE below.root = tasks.id AND (below.folded = 0 OR below.status_at >= :before))
     ORDER BY status_at LIMIT :limit";

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

fn foldable(db: &Connection, before: Timestamp) -> Outcome<Vec<(i64, Foldable)>> {
    let old = ordinals(db, FOLDABLE, named_params! { ":before": before.0, ":limit": TASKS })?;
    old.into_iter().map(|task| Ok((task, look_at(db, task)?))).collect()
}

/// Nothing is folded away of a task that cannot be read without it.
fn look_at(db: &Connection, task: i64) -> Outcome<Foldable> {
    let begun = "SELECT first > 1 FROM tasks WHERE ordinal = ?";
    if db.prepare_cached(begun)?.query_row([task], |row| row.get(0))? {
        // It was looked at before the first step.
        return Ok(Foldable::Known);
    }
    let sql = read::select_tasks(Parts::All, "tasks", "tasks.ordinal = :task");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(named_params! { ":task": task })?;
    let Some(row) = rows.next()? else { return Ok(Foldable::Damaged) };
    let (head, snapshot) = (from_sql(row.get(3)?), from_sql(row.get(8)?));
    Ok(match read::unless_damaged(read::found(db, Parts::All, row))? {
        None => Foldable::Damaged,
        Some(_) if snapshot >= head => Foldable::Known,
        Some(found) => Foldable::Anew(SnapshotText::of(&found.task)?),
    })
}

/// Removes events from the front of the log, the last one never. Says whether the log is folded now.
fn fold(db: &Connection, task: i64, foldable: Foldable, allowance: &mut Allowance) -> Outcome<bool> {
    let find = "SELECT head, first FROM tasks WHERE ordinal = ?";
    let place =
        db.prepare_cached(find)?.query_row([task], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((head, first)): Option<(i64, i64)> = place else { return Ok(false) };
    let first = match foldable {
        Foldable::Damaged => {
            db.prepare_cached("UPDATE tasks SET folded = 1 WHERE ordinal = ?")?.execute([task])?;
            return Ok(false);
        }
        Foldable::Anew(snapshot) => {
            write::put_snapshot(db, task, from_sql(head), &snapshot)?;
            remove_events(db, task, head, allowance)?.unwrap_or(first)
        }
        Foldable::Known => remove_events(db, task, head, allowance)?.unwrap_or(first),
    };
    db.prepare_cached("UPDATE tasks SET first = :first, folded = :first = head WHERE ordinal = :task")?
        .execute(named_params! { ":first": first, ":task": task })?;
    Ok(first == head)
}

/// Removes events before `end`, as many as are allowed, oldest first. Gives the number of the first that is left,
/// if any was there.
fn remove_events(db: &Connection, task: i64, end: i64, allowance: &mut Allowance) -> Outcome<Option<i64>> {
    let mut statement = db.prepare_cached(
        "SELECT seq, octet_length(body) FROM events WHERE task = :task AND seq < :end ORDER BY seq LIMIT :limit",
    )?;
    let mut rows = statement.query(named_params! { ":task": task, ":end": end, ":limit": allowance.rows })?;
    let mut last = None;
    while allowance.is_left()
        && let Some(row) = rows.next()?
    {
        last = Some(row.get::<_, i64>(0)?);
        allowance.take(row.get(1)?);
    }
    drop(rows);
    let Some(last) = last else { return Ok(None) };
    db.prepare_cached("DELETE FROM events WHERE task = :task AND seq <= :last")?
        .execute(named_params! { ":task": task, ":last": last })?;
    let rest = "SELECT min(seq) FROM events WHERE task = ?";
    Ok(db.prepare_cached(rest)?.query_row([task], |row| row.get(0))?)
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
