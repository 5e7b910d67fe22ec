//! Unfinished tasks that are damaged: nobody can go on with them, so they end, with what is left of them.

use longshore_engine::port::EndTask;
use longshore_model::{ContextId, Epoch, Task, TaskEvent, TaskId, TaskState, TaskStatus, Timestamp};
use rusqlite::{Connection, named_params};

use super::fault::Outcome;
use super::read::{self, Unreadable};
use super::record::{EventText, SnapshotText};
use super::{asks, from_sql, to_sql, write};
use crate::rules;

/// Ends them all. Gives those that have a name.
pub(super) fn end_damaged(
    db: &Connection,
    epoch: Epoch,
    at: Timestamp,
    end: &EndTask,
) -> Outcome<Vec<TaskId>> {
    let mut ended = Vec::new();
    for damaged in read::unreadable(db)? {
        asks::close(db, damaged.ordinal, None, &rules::dropped(at))?;
        match rest(db, &damaged)? {
            Some(task) => {
                write_end(db, &damaged, task, (epoch, at), end)?;
                ended.extend(TaskId::parse(&damaged.id));
            }
            // Nobody can ask for it, since it has no name. Then it is enough that nobody counts it among those that work.
            None => set_state(db, &damaged, at)?,
        }
    }
    Ok(ended)
}

/// The task up to what is damaged. `None`: not even its name is left.
fn rest(db: &Connection, damaged: &Unreadable) -> Outcome<Option<Task>> {
    let (Ok(id), Ok(context_id)) = (TaskId::parse(&damaged.id), ContextId::parse(&damaged.context)) else {
        return Ok(None);
    };
    if let Some(mut task) = damaged.snapshot() {
        fold_readable(db, damaged, damaged.snapshot_seq, |event| task.apply(event))?;
        return Ok(Some(task));
    }
    let mut task = None;
    fold_readable(db, damaged, 0, |event| match &mut task {
        None => task = Task::begin(id.clone(), event),
        Some(task) => task.apply(event),
    })?;
    Ok(Some(task.unwrap_or_else(|| nameless_work(id, context_id))))
}

/// Events after `from`, up to the first that cannot be read: what follows a hole would be put together wrong.
fn fold_readable(
    db: &Connection,
    damaged: &Unreadable,
    from: i64,
    mut fold: impl FnMut(&TaskEvent),
) -> Outcome<()> {
    let sql = "SELECT body FROM events WHERE task = :task AND seq > :from AND seq <= :head ORDER BY seq";
    let mut statement = db.prepare_cached(sql)?;
    let range = named_params! { ":task": damaged.ordinal, ":from": from, ":head": damaged.head };
    let mut rows = statement.query(range)?;
    while let Some(row) = rows.next()? {
        let Ok(event) = serde_json::from_slice(row.get_ref(0)?.as_bytes()?) else { break };
        fold(&event);
    }
    Ok(())
}

/// A task of which nobody knows what it was to do.
fn nameless_work(id: TaskId, context_id: ContextId) -> Task {
    Task {
        id,
        context_id,
        status: TaskStatus { state: TaskState::Working, at: Timestamp(0), message: None },
        artifacts: Vec::new(),
        history: Vec::new(),
        session: None,
        usage: None,
        open_asks: Vec::new(),
        terms: Box::default(),
        parent: None,
        metadata: None,
    }
}

/// The log goes on behind the damage, and a snapshot spares whoever asks for the task from reading it.
fn write_end(
    db: &Connection,
    damaged: &Unreadable,
    mut task: Task,
    (epoch, at): (Epoch, Timestamp),
    end: &EndTask,
) -> Outcome<()> {
    let event = end(&task);
    task.apply(&event);
    let seq = from_sql(damaged.head).next();
    write::insert_event(db, damaged.ordinal, (seq, epoch), at, &EventText::of(&event)?)?;
    write::put_snapshot(db, damaged.ordinal, seq, &SnapshotText::of(&task)?)?;
    db.prepare_cached(
        "UPDATE tasks SET head = :seq, summary_seq = :seq, epoch = :epoch WHERE ordinal = :task",
    )?
    .execute(named_params! { ":seq": to_sql(seq), ":epoch": epoch.0, ":task": damaged.ordinal })?;
    set_state(db, damaged, at)
}

/// The turn is forgotten too: it may be what is damaged.
fn set_state(db: &Connection, damaged: &Unreadable, at: Timestamp) -> Outcome<()> {
    db.prepare_cached(
        "UPDATE tasks SET state = :state, status_at = :at, session = NULL, directory = NULL, prompt = NULL, joined = NULL
         WHERE ordinal = :task",
    )?
    .execute(named_params! { ":state": TaskState::Failed.as_str(), ":at": at.0, ":task": damaged.ordinal })?;
    Ok(())
}

#[cfg(test)]
mod tests;
