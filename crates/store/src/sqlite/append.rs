//! What is appended to the log of a task. Nothing else is written so often.

use std::sync::LazyLock;

use longshore_engine::port::Appended;
use longshore_model::{Error, TaskState};
use rusqlite::{CachedStatement, Connection, named_params};

use super::fault::Outcome;
use super::pen::Writing;
use super::record::{Batch, TurnText};
use super::rows::Rows;
use super::write::{self, Standing};
use super::{asks, contexts, to_sql};
use crate::rules;

/// What appends need besides the connection.
pub(super) struct Appends<'db> {
    check: CachedStatement<'db>,
    pub(super) rows: &'db mut Rows,
}

impl<'db> Appends<'db> {
    pub(super) fn new(db: &'db Connection, rows: &'db mut Rows) -> Outcome<Self> {
        Ok(Self { check: db.prepare_cached(&IS_AT)?, rows })
    }

    /// Whether the task in this row is the batch's, works, and has the head that the batch expects.
    fn check(&mut self, ordinal: i64, batch: &Batch) -> Outcome<bool> {
        Ok(self.check.exists((ordinal, batch.task.as_str(), to_sql(batch.expected)))?)
    }
}

/// The guards in one. A word that is no state's is refused with those of tasks that are over. Not as a list: SQLite would
/// make a table of it each time.
///
/// It only reads: what is appended is the new head, since the log itself tells where it ends. Writing that into the row of
/// the task too would cost a page for each piece of output, as much as the event. It cannot tell wrong: whoever
/// asks has the pen and is the only one who writes, what is read is of the same transaction, and two events with one number
/// would break the key of the table.
static IS_AT: LazyLock<String> = LazyLock::new(|| {
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

/// In a transaction, whose end the caller sees to.
pub(super) fn append(db: &mut Writing<'_>, batch: &Batch) -> Outcome<Appended> {
    let known = db.appends.rows.of(&batch.task);
    let ordinal = match known {
        Some(ordinal) if !batch.is_of_the_owner() && db.appends.check(ordinal, batch)? => ordinal,
        _ => match find(db, batch)? {
            Ok(task) => {
                put_what_is_the_owners(db, &task, batch)?;
                task.ordinal
            }
            Err(refused) => return Ok(refused),
        },
    };
    insert(db, ordinal, batch)?;
    put_rest(db, ordinal, batch)?;
    if batch.is_terminal() {
        // None stays open.
        asks::close(db, ordinal, None, &rules::dropped(batch.at))?;
        db.appends.rows.forget(&batch.task);
    } else {
        db.appends.rows.know(&batch.task, ordinal, batch.new_head());
    }
    Ok(Appended::Head(batch.new_head()))
}

/// Appends one piece of output to a task of which all is known that is checked otherwise. The one statement is a transaction
/// by itself, and less work than one that is begun and committed.
pub(super) fn append_output(
    db: &Connection,
    rows: &mut Rows,
    ordinal: i64,
    batch: &Batch,
) -> Outcome<Appended> {
    insert(db, ordinal, batch)?;
    rows.know(&batch.task, ordinal, batch.new_head());
    Ok(Appended::Head(batch.new_head()))
}

fn insert(db: &Connection, ordinal: i64, batch: &Batch) -> Outcome<()> {
    let mut statement = db.prepare_cached(write::INSERT_EVENT)?;
    for (place, event) in batch.events.iter().enumerate() {
        let seq = batch.expected.plus(place).next();
        statement.execute((ordinal, to_sql(seq), batch.at.0, event.kind, &event.body, batch.epoch.0))?;
    }
    Ok(())
}

/// The task, or why nothing is appended to it.
fn find(db: &Connection, batch: &Batch) -> Outcome<Result<Standing, Appended>> {
    let Some(task) = write::standing(db, batch.task.as_str())? else {
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

/// Keys and asks: for them it matters whose the task is, and in which context.
fn put_what_is_the_owners(db: &Connection, task: &Standing, batch: &Batch) -> Outcome<()> {
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

/// What a batch changes of its task's row, and its snapshot. Output alone changes nothing there.
fn put_rest(db: &Connection, ordinal: i64, batch: &Batch) -> Outcome<()> {
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
