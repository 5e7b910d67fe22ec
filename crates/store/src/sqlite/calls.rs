//! The calls that agents make to other agents.

use longshore_engine::port::{BoxFuture, CallPage, CallStore, MAX_CALLS, PAGE_BYTES, PAGE_CALLS, StoredCall};
use longshore_model::{Json, Principal, Result, TaskId, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, named_params};

use super::fault::{Outcome, damaged};
use super::queue::Owner;
use super::read::{skip_damaged, text};
use super::{SqliteStore, to_i64, write};

/// Selects calls with their tasks. The caller appends the condition.
const SELECT: &str = "SELECT calls.id, tasks.id, calls.owner, calls.open, calls.at, calls.record
    FROM calls JOIN tasks ON tasks.ordinal = calls.task";

impl CallStore for SqliteStore {
    fn put_call(&self, call: StoredCall) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let (owner, bytes) = (call.owner.clone(), self.bytes.clone());
            let queued = Owner::Principal(owner.clone());
            // Counted by the writer: a canceled call drops this future while its record is written.
            let count = move |grown: &Option<i64>| bytes.add(&owner, grown.unwrap_or(0));
            let grown = self.writer.run_then(queued, move |db| put(db, &call), count).await?;
            Ok(grown.is_some())
        })
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

    fn open_calls<'a>(&'a self, after: Option<&'a str>) -> BoxFuture<'a, Result<CallPage>> {
        // Without a cursor start at the empty id, which sorts before all others.
        let after = after.unwrap_or_default().to_owned();
        Box::pin(self.quick.run(Owner::Gateway, move |db| open_page(db, &after)))
    }
}

/// Stores a call. Returns by how many bytes its record has grown. `None`: there is no such task.
fn put(db: &Connection, call: &StoredCall) -> Outcome<Option<i64>> {
    let task = write::find_task_row(db, call.task.as_str())?.filter(|task| task.owner == call.owner);
    let Some(task) = task else { return Ok(None) };
    let before: Option<i64> = db
        .prepare_cached("SELECT octet_length(record) FROM calls WHERE id = ?")?
        .query_row([&call.id], |row| row.get(0))
        .optional()?;
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
    Ok(Some(to_i64(call.record.get().len()) - before.unwrap_or(0)))
}

/// The number of bytes of the records of a task.
pub(super) fn bytes_of_task(db: &Connection, task: i64) -> Outcome<i64> {
    let sql = "SELECT coalesce(sum(octet_length(record)), 0) FROM calls WHERE task = ?";
    Ok(db.prepare_cached(sql)?.query_row([task], |row| row.get(0))?)
}

/// Leaves out unreadable calls: their tools get no result, and the calls are not canceled at their peers.
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

fn open_page(db: &Connection, after: &str) -> Outcome<CallPage> {
    let sql = format!("{SELECT} WHERE calls.open = 1 AND calls.id > ?1 ORDER BY calls.id LIMIT {PAGE_CALLS}");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query([after])?;
    let (mut page, mut count, mut bytes) = (CallPage::default(), 0, 0);
    while count < PAGE_CALLS && bytes < PAGE_BYTES {
        let Some(row) = rows.next()? else {
            page.next = None;
            return Ok(page);
        };
        count += 1;
        if let Some(id) = skip_damaged(text("call", row, 0).map(str::to_owned))? {
            page.next = Some(id);
        }
        if let Some(call) = skip_damaged(call(row))? {
            bytes += call.record.get().len();
            page.calls.push(call);
        }
    }
    Ok(page)
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
