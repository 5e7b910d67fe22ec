//! Ends unfinished tasks that cannot be resumed because they are damaged. Keeps their readable content.

use std::sync::Arc;

use longshore_engine::port::EndTask;
use longshore_model::{ContextId, Epoch, Result, Task, TaskEvent, TaskId, TaskState, TaskStatus, Timestamp};
use rusqlite::{Connection, named_params};

use super::fault::Outcome;
use super::queue::Owner;
use super::read::{self, Sequence, Unreadable};
use super::reader::Reader;
use super::record::{EventText, SnapshotText};
use super::writer::Writer;
use super::{asks, from_sql, to_sql, write};
use crate::rules;

/// Ends each damaged task in its own request, so that a failure does not affect the others. Returns the ids of the ended tasks
/// whose id is readable.
pub(super) async fn end_damaged(
    reader: &Reader,
    writer: &Writer,
    (epoch, at): (Epoch, Timestamp),
    end: EndTask,
) -> Result<Vec<TaskId>> {
    let (end, mut ended) = (Arc::new(end), Vec::new());
    // There are nearly never any, and then nothing is written.
    for damaged in reader.run(Owner::Gateway, read::unreadable).await? {
        let (id, end) = (damaged.id.clone(), end.clone());
        match writer.run(Owner::Gateway, move |db| end_one(db, &damaged, (epoch, at), &end)).await {
            Ok(has_ended) => ended.extend(id.filter(|_| has_ended)),
            Err(error) => tracing::error!(?id, ?error, "a damaged task could not be ended"),
        }
    }
    Ok(ended)
}

/// Ends one damaged task. Returns whether this call ended it.
fn end_one(
    db: &Connection,
    damaged: &Unreadable,
    (epoch, at): (Epoch, Timestamp),
    end: &EndTask,
) -> Outcome<bool> {
    asks::close(db, damaged.ordinal, None, &rules::dropped(at))?;
    match salvage_task(db, damaged)? {
        Some(task) if task.status.state.is_terminal() => {
            // The task had already ended; only its row was wrong.
            set_row(db, damaged, Some(&task), task.status.state, task.status.at)?;
            Ok(false)
        }
        Some(task) => {
            write_end(db, damaged, task, (epoch, at), end)?;
            Ok(true)
        }
        // The id is unreadable, so no caller can request the task. It is enough to end the task in its row.
        None => {
            set_row(db, damaged, None, TaskState::Failed, at)?;
            Ok(true)
        }
    }
}

/// The task up to the damage. `None`: the id is unreadable too.
pub(super) fn salvage_task(db: &Connection, damaged: &Unreadable) -> Outcome<Option<Task>> {
    let Some(id) = &damaged.id else { return Ok(None) };
    if let Some((seq, mut task)) = damaged.snapshot.clone() {
        fold_readable(db, damaged, seq, |event| task.apply(event))?;
        return Ok(Some(task));
    }
    let mut task = None;
    fold_readable(db, damaged, 0, |event| match &mut task {
        None => task = Task::begin(id.clone(), event),
        Some(task) => task.apply(event),
    })?;
    Ok(task.or_else(|| Some(placeholder_task(id.clone(), damaged.context.clone()?))))
}

/// Applies the events after `from` up to the first unreadable one. Events after a gap would give a wrong task.
fn fold_readable(
    db: &Connection,
    damaged: &Unreadable,
    from: i64,
    mut fold: impl FnMut(&TaskEvent),
) -> Outcome<()> {
    let Some(id) = &damaged.id else { return Ok(()) };
    let sql = concat!(
        "SELECT seq, body, epoch, kind, ",
        event_sum!(),
        " FROM events WHERE task = :task AND seq > :from AND seq <= :head ORDER BY seq"
    );
    let mut statement = db.prepare_cached(sql)?;
    let range = named_params! { ":task": damaged.ordinal, ":from": from, ":head": damaged.head };
    let mut rows = statement.query(range)?;
    let mut sequence = Sequence(from_sql(from));
    while let Some(row) = rows.next()? {
        let Ok(entry) = read::entry(id, damaged.ordinal, row).and_then(|entry| sequence.next(entry, id))
        else {
            break;
        };
        fold(&entry.event);
    }
    Ok(())
}

/// A task without content, for one whose content is lost.
fn placeholder_task(id: TaskId, context_id: ContextId) -> Task {
    Task {
        id,
        context_id,
        status: TaskStatus { state: TaskState::Working, at: Timestamp(0), message: None },
        artifacts: Vec::new(),
        history: Vec::new(),
        session: None,
        usage: None,
        open_asks: Vec::new(),
        expired_asks: Vec::new(),
        options: Box::default(),
        parent: None,
        metadata: None,
    }
}

/// Appends the end after the damage, with a snapshot, so that reads of the task need not read the damaged log. Readers with a
/// cursor in the log are told that events are missing, and get the whole task. The old events stay in the file for a manual
/// inspection.
fn write_end(
    db: &Connection,
    damaged: &Unreadable,
    mut task: Task,
    (epoch, at): (Epoch, Timestamp),
    end: &EndTask,
) -> Outcome<()> {
    let event = end(&task);
    task.apply(&event);
    // Read the head from the log too, because the recorded head may be damaged.
    let newest: Option<i64> = db
        .prepare_cached("SELECT max(seq) FROM events WHERE task = ?")?
        .query_row([damaged.ordinal], |row| row.get(0))?;
    let seq = from_sql(damaged.head.max(newest.unwrap_or(0))).next();
    write::insert_event(db, damaged.ordinal, (seq, epoch), at, &EventText::encode(&event)?)?;
    write::put_snapshot(db, damaged.ordinal, seq, &SnapshotText::encode(&task)?)?;
    db.prepare_cached("UPDATE tasks SET summary_seq = :seq, first = :seq, folded = 1 WHERE ordinal = :task")?
        .execute(named_params! { ":seq": to_sql(seq), ":task": damaged.ordinal })?;
    set_row(db, damaged, Some(&task), TaskState::Failed, at)
}

/// Sets the state in the task's row. Clears the turn, because it may be damaged.
fn set_row(
    db: &Connection,
    damaged: &Unreadable,
    task: Option<&Task>,
    state: TaskState,
    at: Timestamp,
) -> Outcome<()> {
    db.prepare_cached(
        "UPDATE tasks SET state = :state, status_at = :at, context = coalesce(:context, context),
                          session = NULL, directory = NULL, prompt = NULL, joined = NULL
         WHERE ordinal = :task",
    )?
    .execute(named_params! {
        ":state": state.as_str(),
        ":at": at.0,
        ":context": task.map(|task| task.context_id.as_str()),
        ":task": damaged.ordinal,
    })?;
    Ok(())
}

#[cfg(test)]
mod tests;
