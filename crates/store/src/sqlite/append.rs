//! Appends to the log of a task, which are the most frequent writes.

use std::sync::LazyLock;

use longshore_engine::port::Appended;
use longshore_model::{Error, TaskState};
use rusqlite::{CachedStatement, Connection, named_params};

use super::fault::Outcome;
use super::push::{self, PushTasks};
use super::record::{Batch, TurnText};
use super::row_cache::RowCache;
use super::write::{self, TaskRow};
use super::write_connection::WriteContext;
use super::{asks, checksum, contexts, to_sql};
use crate::rules;

/// The statements and caches that appends need in addition to the connection.
pub(super) struct Appends<'db> {
    check: CachedStatement<'db>,
    pub(super) rows: &'db mut RowCache,
    pub(super) push: &'db mut PushTasks,
}

impl<'db> Appends<'db> {
    pub(super) fn new(
        db: &'db Connection,
        rows: &'db mut RowCache,
        push: &'db mut PushTasks,
    ) -> Outcome<Self> {
        Ok(Self { check: db.prepare_cached(&HAS_EXPECTED_HEAD)?, rows, push })
    }

    /// Whether the row belongs to the batch's task, the task has not ended, and the log's head is the one that the batch expects.
    fn check(&mut self, ordinal: i64, batch: &Batch) -> Outcome<bool> {
        Ok(self.check.exists((ordinal, batch.task.as_str(), to_sql(batch.expected)))?)
    }
}

/// All checks of an append in one query. An unknown state is refused like a terminal one. The query joins the states by OR, because
/// SQLite would build a temporary table for an IN list each time.
///
/// The query only reads: the head follows from the log itself. Writing the head into the task's row too would cost one more page
/// for each piece of output, as much as the event itself. The check is safe: the caller holds the write connection and is the only
/// writer, the read is in the same transaction, and two events with one number would violate the primary key.
static HAS_EXPECTED_HEAD: LazyLock<String> = LazyLock::new(|| {
    let states: Vec<String> = [TaskState::Working]
        .into_iter()
        .chain(
            TaskState::ALL.into_iter().filter(|state| !state.is_terminal() && *state != TaskState::Working),
        )
        .map(|state| format!("state = '{}'", state.as_str()))
        .collect();
    format!(
        "SELECT 1 FROM tasks WHERE ordinal = ?1 AND id = ?2 AND {} = ?3 AND ({})",
        head!(),
        states.join(" OR ")
    )
});

/// Appends a batch. Runs inside a transaction that the caller commits or rolls back.
pub(super) fn append(db: &mut WriteContext<'_>, batch: &Batch) -> Outcome<Appended> {
    let known = db.appends.rows.ordinal(&batch.task);
    let ordinal = match known {
        Some(ordinal) if !batch.needs_owner() && db.appends.check(ordinal, batch)? => ordinal,
        _ => match find(db, batch)? {
            Ok(task) => {
                put_owner_changes(db, &task, batch)?;
                task.ordinal
            }
            Err(refused) => return Ok(refused),
        },
    };
    insert(db, ordinal, batch)?;
    put_task_changes(db, ordinal, batch)?;
    if db.appends.push.wants(ordinal, batch) {
        push::note_growth(db, ordinal, batch.at)?;
    }
    if batch.is_terminal() {
        // When a task ends, none of its asks stays open.
        asks::close(db, ordinal, None, &rules::dropped(batch.at))?;
        db.appends.rows.forget(&batch.task);
    } else {
        db.appends.rows.remember(&batch.task, ordinal, batch.new_head());
    }
    Ok(Appended::Head(batch.new_head()))
}

/// Appends one piece of output to a task whose cached row makes the other checks unnecessary. The single statement is its own
/// transaction, which costs less than BEGIN and COMMIT.
pub(super) fn append_output(
    db: &Connection,
    rows: &mut RowCache,
    ordinal: i64,
    batch: &Batch,
) -> Outcome<Appended> {
    insert(db, ordinal, batch)?;
    rows.remember(&batch.task, ordinal, batch.new_head());
    Ok(Appended::Head(batch.new_head()))
}

fn insert(db: &Connection, ordinal: i64, batch: &Batch) -> Outcome<()> {
    let mut statement = db.prepare_cached(write::INSERT_EVENT)?;
    for (index, event) in batch.events.iter().enumerate() {
        let seq = batch.expected.plus(index).next();
        let sum = checksum::of_event(ordinal, to_sql(seq), batch.epoch, event.kind, event.body.as_bytes());
        statement.execute((ordinal, to_sql(seq), batch.at.0, event.kind, &event.body, batch.epoch.0, sum))?;
    }
    Ok(())
}

/// Finds the task's row. The inner error is the reason why nothing is appended.
fn find(db: &Connection, batch: &Batch) -> Outcome<Result<TaskRow, Appended>> {
    let Some(task) = write::find_task_row(db, batch.task.as_str())? else {
        return Err(Error::task_not_found(batch.task.as_str()).into());
    };
    if task.state.is_terminal() {
        return Ok(Err(Appended::Terminal));
    }
    if task.head != batch.expected {
        return Ok(Err(Appended::Conflict { head: task.head }));
    }
    Ok(Ok(task))
}

/// Writes the changes that depend on the task's owner and context: idempotency keys and asks.
fn put_owner_changes(db: &Connection, task: &TaskRow, batch: &Batch) -> Outcome<()> {
    asks::change(db, task, batch)?;
    if let Some(key) = &batch.forgotten {
        db.prepare_cached(
            "DELETE FROM idempotency WHERE owner = :owner AND digest = :digest AND task = :task",
        )?
        .execute(named_params! {
            ":owner": task.owner.as_str(),
            ":digest": key.digest,
            ":task": task.ordinal,
        })?;
    }
    if let Some(key) = &batch.joined {
        write::put_key(db, &task.owner, key, task.ordinal, batch.at)?;
    }
    Ok(())
}

/// Writes the batch's changes to the task's row and to the task's snapshot. A batch that has only output of the agent changes
/// neither.
fn put_task_changes(db: &Connection, ordinal: i64, batch: &Batch) -> Outcome<()> {
    let summary_seq = to_sql(batch.expected.plus(batch.summarised));
    if let Some((state, at)) = batch.status {
        db.prepare_cached(
            "UPDATE tasks SET summary_seq = ?2, state = ?3, status_at = ?4 WHERE ordinal = ?1",
        )?
        .execute((ordinal, summary_seq, state.as_str(), at.0))?;
    } else if batch.summarised > 0 {
        db.prepare_cached("UPDATE tasks SET summary_seq = ?2 WHERE ordinal = ?1")?
            .execute((ordinal, summary_seq))?;
    }
    if let Some(TurnText { record: turn, joined }) = &batch.turn {
        contexts::note_use(db, &turn.session.id, batch.at)?;
        db.prepare_cached(
            "UPDATE tasks SET session = :session, directory = :directory, prompt = :prompt, joined = :joined
             WHERE ordinal = :task",
        )?
        .execute(named_params! {
            ":session": turn.session.id.as_str(),
            ":directory": turn.session.directory,
            ":prompt": turn.prompt.as_str(),
            ":joined": joined,
            ":task": ordinal,
        })?;
    }
    if let Some(snapshot) = &batch.snapshot {
        write::put_snapshot(db, ordinal, batch.new_head(), snapshot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
