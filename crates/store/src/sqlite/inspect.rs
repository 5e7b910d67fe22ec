//! Checks the whole file: runs SQLite's own check, and verifies that each task and each event is as it was written.

use std::collections::BTreeMap;

use longshore_model::{ContextId, Epoch, Error, Principal, TaskEvent, TaskId, TaskState};
use rusqlite::{Connection, named_params};

use super::fault::{Fault, Outcome, damaged};
use super::from_sql;
use super::known_damage::{Damage, DamagedTask};
use super::read::{self, Parts, Sequence};

/// The most messages that are read of SQLite's check. More would not help.
const MAX_MESSAGES: usize = 1000;

/// How many tasks are checked in one read transaction. The number is small because the write-ahead log cannot be restarted during
/// one.
const TASKS_AT_ONCE: usize = 16;

/// Checks the file. Others may write meanwhile: SQLite's own check, and the check of each task, see one read transaction each.
/// `current`: the epoch of the opened store.
pub(super) fn inspect(db: &Connection, current: Option<Epoch>) -> Outcome<Damage> {
    let mut damage = Damage::default();
    let mut suspects = BTreeMap::new();
    let messages = match messages(db) {
        Err(Fault(error)) if is_interrupt(&error) => return Err(Fault(error)),
        messages => messages,
    };
    if messages.as_ref().is_ok_and(|messages| messages.len() >= MAX_MESSAGES) {
        damage.structure.push("there is more damage than is listed".to_owned());
    }
    for message in messages.unwrap_or_else(|fault| vec![fault.0.to_string()]) {
        // If a row of `tasks` is missing from an index, either the row or the index was overwritten.
        match row_of_tasks(&message) {
            Some(ordinal) => drop(suspects.insert(ordinal, message)),
            None => damage.structure.push(message),
        }
    }
    // Each index of `tasks` involves the id or the owner of a task, so a damaged index means that one of these may be wrong.
    damage.hides_names = !suspects.is_empty();
    let mut unfinished = Vec::new();
    for some in ordinals(db)?.chunks(TASKS_AT_ONCE) {
        db.execute_batch("BEGIN")?;
        let checked = some.iter().try_for_each(|ordinal| {
            let mut id = None;
            let reason = match check_task(db, *ordinal, &mut id) {
                Err(Fault(error)) if is_interrupt(&error) => return Err(Fault(error)),
                Err(Fault(error)) => {
                    Some(error.cause().map_or_else(|| error.to_string(), ToString::to_string))
                }
                // Retention has removed the task since the ordinals were read.
                Ok(None) => return Ok(()),
                Ok(Some(state)) => {
                    if !state.is_terminal() && !began_in(db, *ordinal, current) {
                        unfinished.push((*ordinal, id.clone()));
                    }
                    suspects.remove(ordinal)
                }
            };
            if let Some(reason) = reason {
                damage.hides_names |= id.is_none();
                damage.tasks.insert(*ordinal, DamagedTask { id, reason });
            }
            Ok(())
        });
        // SQLite ends the transaction itself when it finds the file damaged.
        if !db.is_autocommit() {
            db.execute_batch("ROLLBACK")?;
        }
        checked?;
    }
    // Only the log itself tells where the log of an unfinished task ends. So the checks above cannot notice that its last events
    // are lost.
    if !damage.structure.is_empty() || damage.hides_names {
        let reason = "its last events may be missing".to_owned();
        for (ordinal, id) in unfinished {
            damage.tasks.entry(ordinal).or_insert_with(|| DamagedTask { id, reason: reason.clone() });
        }
    }
    Ok(damage)
}

/// Whether the check was canceled because the store is being closed.
pub(super) fn is_interrupt(error: &Error) -> bool {
    let cause = error.cause().and_then(|cause| cause.downcast_ref::<rusqlite::Error>());
    cause.and_then(rusqlite::Error::sqlite_error_code) == Some(rusqlite::ErrorCode::OperationInterrupted)
}

fn messages(db: &Connection) -> Outcome<Vec<String>> {
    let mut statement = db.prepare(&format!("PRAGMA integrity_check({MAX_MESSAGES})"))?;
    let found = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut found: Vec<String> = found.collect::<rusqlite::Result<_>>()?;
    found.retain(|message| message != "ok");
    Ok(found)
}

/// The ordinal of the task in a message of SQLite, such as `row 17 missing from index tasks_by_owner`.
fn row_of_tasks(message: &str) -> Option<i64> {
    let (row, index) = message.strip_prefix("row ")?.split_once(" missing from index ")?;
    let of_tasks = ["tasks_", "sqlite_autoindex_tasks_"].iter().any(|name| index.starts_with(name));
    of_tasks.then(|| row.parse().ok()).flatten()
}

/// The ordinals of all tasks of which anything is left. Reads the other tables too, in case the table of tasks cannot be scanned.
pub(super) fn ordinals(db: &Connection) -> Outcome<Vec<i64>> {
    let mut found = std::collections::BTreeSet::new();
    for sql in [
        "SELECT ordinal FROM tasks NOT INDEXED",
        "SELECT ordinal FROM tasks INDEXED BY tasks_by_owner WHERE owner IS NOT NULL",
        "SELECT task FROM snapshots",
        "SELECT DISTINCT task FROM events",
    ] {
        let mut statement = db.prepare(sql)?;
        let mut rows = statement.query([])?;
        // An error ends the scan. SQLite's own check has already reported it.
        while let Ok(Some(row)) = rows.next() {
            found.extend(row.get::<_, i64>(0));
        }
    }
    Ok(found.into_iter().collect())
}

/// Whether the log of the task began in this epoch. If so, its writer still knows where the log ends.
fn began_in(db: &Connection, ordinal: i64, epoch: Option<Epoch>) -> bool {
    let Some(Epoch(epoch)) = epoch else { return false };
    let sql = "SELECT EXISTS (SELECT 1 FROM events WHERE task = ? AND seq = 1 AND epoch = ?)";
    let found = db.prepare_cached(sql).and_then(|mut sql| sql.query_row((ordinal, epoch), |row| row.get(0)));
    found.unwrap_or(false)
}

/// Whether a single task and its owner are certain without a check of the whole file. The task must have ended, or begun in this
/// epoch.
pub(super) fn is_whole(db: &Connection, owner: &Principal, task: &TaskId, current: Epoch) -> bool {
    let row = "SELECT ordinal, status_at FROM tasks WHERE id = ?";
    let found = db.query_row(row, [task.as_str()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
    let Ok((ordinal, status_at)) = found else { return false };
    let mut id = None;
    let state = check_task(db, ordinal, &mut id);
    let index =
        "SELECT ordinal FROM tasks INDEXED BY tasks_by_owner WHERE owner = ? AND status_at = ? AND id = ?";
    let of_owner =
        db.query_row(index, (owner.as_str(), status_at, task.as_str()), |row| row.get::<_, i64>(0));
    matches!(state, Ok(Some(state)) if state.is_terminal() || began_in(db, ordinal, Some(current)))
        && id.as_ref() == Some(task)
        && of_owner.ok() == Some(ordinal)
}

/// Checks a task and returns its state. Sets `id` as soon as it is read. Fails if the task is damaged or a part of it is missing.
/// `None`: retention has removed the task.
fn check_task(db: &Connection, ordinal: i64, id: &mut Option<TaskId>) -> Outcome<Option<TaskState>> {
    let sql = read::select_tasks(Parts::All, "tasks", "tasks.ordinal = :task");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(named_params! { ":task": ordinal })?;
    let Some(row) = rows.next()? else {
        let rest = "SELECT EXISTS (SELECT 1 FROM events WHERE task = ?1)
                    OR EXISTS (SELECT 1 FROM snapshots WHERE task = ?1)";
        let is_left: bool = db.prepare_cached(rest)?.query_row([ordinal], |row| row.get(0))?;
        return if is_left { Err(damaged("task", "its row is missing")) } else { Ok(None) };
    };
    *id = read::page_cursor(row).ok().map(|cursor| cursor.task);
    let found = read::read_task(db, Parts::All, row)?;
    let (task, what) = (found.task, format!("task {}", row.get_ref(1)?.as_str()?));
    let differs = |column: &str| Err(damaged(&what, format!("its {column} differs from its log")));
    if Some(&task.id) != id.as_ref() {
        return differs("id");
    }
    if TaskState::parse(read::text(&what, row, 14)?) != Some(task.status.state) {
        return differs("state");
    }
    if row.get::<_, i64>(12)? != task.status.at.0 {
        return differs("time");
    }
    if ContextId::parse(read::text(&what, row, 15)?).ok() != Some(task.context_id) {
        return differs("context");
    }
    check_log(db, ordinal, &task.id, row.get(3)?)?;
    Ok(Some(task.status.state))
}

fn check_log(db: &Connection, ordinal: i64, task: &TaskId, head: i64) -> Outcome<()> {
    let (first, is_folded, summary): (i64, bool, i64) = db
        .prepare_cached("SELECT first, folded, summary_seq FROM tasks WHERE ordinal = ?")?
        .query_row([ordinal], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    // If a damaged task was ended, its old events stay in the log before `first`. Any other log has no event before `first`.
    let from = if is_folded { first } else { 0 };
    let mut statement = db.prepare_cached(concat!(
        "SELECT seq, body, epoch, kind, ",
        event_sum!(),
        " FROM events WHERE task = ? AND seq >= ? ORDER BY seq"
    ))?;
    let mut rows = statement.query([ordinal, from])?;
    let mut sequence = Sequence(from_sql(first - 1));
    let mut newest = None;
    while let Some(row) = rows.next()? {
        let entry = sequence.next(read::entry(task, ordinal, row)?, task)?;
        if !matches!(entry.event, TaskEvent::Artifact(_)) {
            newest = Some(entry.seq);
        }
    }
    // A list without artifacts reads the log only up to this number.
    if newest.is_some_and(|newest| newest != from_sql(summary)) {
        return Err(damaged(&format!("task {task}"), "the number of its newest status differs from its log"));
    }
    sequence.check_end(task, from_sql(head))
}

#[cfg(test)]
mod tests;
