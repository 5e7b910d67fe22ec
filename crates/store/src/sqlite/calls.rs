//! The calls that agents make to other agents.

use longshore_engine::port::{BoxFuture, CallStore, MAX_CALLS, StoredCall};
use longshore_model::{Json, Principal, Result, TaskId, Timestamp};
use rusqlite::{Connection, Row, ToSql, named_params};

use super::fault::{Outcome, damaged};
use super::queue::Owner;
use super::read::{skip_damaged, text};
use super::{SqliteStore, to_i64, write};

/// A call with its task. The caller of the query adds the condition.
const SELECT: &str = "SELECT calls.id, tasks.id, calls.owner, calls.open, calls.at, calls.record
    FROM calls JOIN tasks ON tasks.ordinal = calls.task";

impl CallStore for SqliteStore {
    fn put_call(&self, call: StoredCall) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.writer.run(Owner::Principal(call.owner.clone()), move |db| put(db, &call)))
    }

    fn call<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<StoredCall>>> {
        let id = id.to_owned();
        Box::pin(async move {
            let found = self.quick.run(Owner::Gateway, move |db| list(db, "calls.id = ?1", &id)).await?;
            Ok(found.into_iter().next())
        })
    }

    fn calls_of<'a>(&'a self, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredCall>>> {
        let task = task.as_str().to_owned();
        Box::pin(self.quick.run(Owner::Gateway, move |db| list(db, "tasks.id = ?1", &task)))
    }

    fn open_calls(&self) -> BoxFuture<'_, Result<Vec<StoredCall>>> {
        Box::pin(self.quick.run(Owner::Gateway, |db| list(db, "calls.open = 1 AND ?1", &true)))
    }
}

fn put(db: &Connection, call: &StoredCall) -> Outcome<bool> {
    let task = write::find_task_row(db, call.task.as_str())?.filter(|task| task.owner == call.owner);
    let Some(task) = task else { return Ok(false) };
    db.prepare_cached(
        "INSERT INTO calls (id, task, owner, open, at, record) VALUES (:id, :task, :owner, :open, :at, :record)
         ON CONFLICT (id) DO UPDATE SET task = :task, owner = :owner, open = :open, at = :at, record = :record",
    )?
    .execute(named_params! {
        ":id": call.id,
        ":task": task.ordinal,
        ":owner": call.owner.as_str(),
        ":open": call.is_open,
        ":at": call.at.0,
        ":record": call.record.get(),
    })?;
    Ok(true)
}

/// Leaves out calls that cannot be read: their tools get no result, and their peers are left alone.
fn list(db: &Connection, which: &str, value: &dyn ToSql) -> Outcome<Vec<StoredCall>> {
    let sql = format!("{SELECT} WHERE {which} ORDER BY calls.id LIMIT {}", to_i64(MAX_CALLS));
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query([value])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.extend(skip_damaged(call(row))?);
    }
    Ok(found)
}

fn call(row: &Row<'_>) -> Outcome<StoredCall> {
    let id = text("call", row, 0)?.to_owned();
    let what = format!("call {id}");
    Ok(StoredCall {
        task: TaskId::parse(text(&what, row, 1)?).map_err(|cause| damaged(&what, cause))?,
        owner: Principal::new(text(&what, row, 2)?),
        is_open: row.get(3)?,
        at: Timestamp(row.get(4)?),
        record: Json::parse(text(&what, row, 5)?).ok_or_else(|| damaged(&what, "its record is not JSON"))?,
        id,
    })
}
