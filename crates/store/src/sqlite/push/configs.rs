//! Stores the push configurations of callers.

use longshore_engine::port::{MAX_PUSH_PAGE, PushCounts, PushLimit, PushPut};
use longshore_model::{Principal, PushConfigId, TaskId};
use rusqlite::{Connection, OptionalExtension as _, named_params};

use super::super::fault::{Outcome, damaged};
use super::super::read::text;
use super::super::write_connection::WriteContext;
use super::super::{to_sql, write};
use super::record::{COLUMNS, NewPush, StoredPush};
use crate::rules;

pub(in crate::sqlite) fn put(db: &mut WriteContext<'_>, new: &NewPush) -> Outcome<PushPut> {
    let task = write::find_task_row(db, new.task.as_str())?.filter(|task| task.owner == new.owner);
    let Some(task) = task else { return Ok(PushPut::NoTask) };
    let replaced: Option<i64> = db
        .prepare_cached("SELECT ordinal FROM push_configs WHERE task = :task AND id = :id")?
        .query_row(named_params! { ":task": task.ordinal, ":id": new.id.as_str() }, |row| row.get(0))
        .optional()?;
    if replaced.is_none()
        && let Some(limit) = reached(db, Some(task.ordinal), new)?
    {
        return Ok(PushPut::Full(limit));
    }
    // A replaced configuration is due at once: events that its lease was about to send may still be unsent.
    let waits = replaced.is_some() || new.after < task.head;
    db.prepare_cached(
        "INSERT INTO push_configs (task, id, owner, format, events, view, trace, sealed, created, cursor, grown_at, due_at, active)
         VALUES (:task, :id, :owner, :format, :events, :view, :trace, :sealed, :created, :cursor, :grown_at, :grown_at, :active)
         ON CONFLICT (task, id) DO UPDATE SET
             format = :format, events = :events, view = :view, trace = :trace, sealed = :sealed, created = :created,
             grown_at = :grown_at, due_at = :grown_at, lease = NULL, replays = NULL, attempts = 0,
             first_failed_at = NULL, active = 1",
    )?
    .execute(named_params! {
        ":task": task.ordinal,
        ":id": new.id.as_str(),
        ":owner": new.owner.as_str(),
        ":format": new.format.as_str(),
        ":events": new.events,
        ":view": new.view,
        ":trace": new.trace,
        ":sealed": new.sealed,
        ":created": new.created.0,
        ":cursor": to_sql(new.after),
        ":grown_at": waits.then_some(new.created.0),
        ":active": waits || !task.state.is_terminal(),
    })?;
    if !task.state.is_terminal() {
        let (db, push) = db.with_push();
        push.add(db, task.ordinal, new.wanted)?;
    }
    Ok(PushPut::Stored)
}

/// The limit that one more configuration would exceed. `task`: `None` for a task that is about to be created.
pub(in crate::sqlite) fn reached(
    db: &Connection,
    task: Option<i64>,
    new: &NewPush,
) -> Outcome<Option<PushLimit>> {
    let of_task = match task {
        Some(task) => db
            .prepare_cached("SELECT count(*) FROM push_configs WHERE task = ?")?
            .query_row([task], |row| row.get::<_, i64>(0))?,
        None => 0,
    };
    let counts = counts(db, new.owner.as_str())?;
    Ok(rules::push_limit(&new.limits, of_task.unsigned_abs(), counts))
}

pub(super) fn counts(db: &Connection, owner: &str) -> Outcome<PushCounts> {
    let of_owner: i64 = db
        .prepare_cached("SELECT count(*) FROM push_configs WHERE active = 1 AND owner = ?")?
        .query_row([owner], |row| row.get(0))?;
    let in_all: i64 = db
        .prepare_cached("SELECT count(*) FROM push_configs WHERE active = 1")?
        .query_row([], |row| row.get(0))?;
    Ok(PushCounts { of_owner: of_owner.unsigned_abs(), in_all: in_all.unsigned_abs() })
}

pub(super) fn get(
    db: &Connection,
    owner: &Principal,
    task: &TaskId,
    id: &PushConfigId,
) -> Outcome<Option<StoredPush>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM push_configs JOIN tasks ON tasks.ordinal = task
         WHERE tasks.id = :task AND tasks.owner = :owner AND push_configs.id = :id"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let key = named_params! { ":task": task.as_str(), ":owner": owner.as_str(), ":id": id.as_str() };
    let mut rows = statement.query(key)?;
    rows.next()?.map(StoredPush::read).transpose()
}

pub(super) fn ids(db: &Connection, owner: &Principal, task: &TaskId) -> Outcome<Vec<PushConfigId>> {
    let mut statement = db.prepare_cached(
        "SELECT push_configs.id FROM push_configs JOIN tasks ON tasks.ordinal = task
         WHERE tasks.id = :task AND tasks.owner = :owner ORDER BY push_configs.id LIMIT :limit",
    )?;
    let mut rows = statement.query(named_params! {
        ":task": task.as_str(),
        ":owner": owner.as_str(),
        ":limit": super::super::to_i64(MAX_PUSH_PAGE),
    })?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let what = "push configuration";
        found.push(PushConfigId::parse(text(what, row, 0)?).map_err(|cause| damaged(what, cause))?);
    }
    Ok(found)
}

pub(super) fn list(
    db: &Connection,
    owner: &Principal,
    task: &TaskId,
    after: Option<&PushConfigId>,
    limit: usize,
) -> Outcome<Vec<StoredPush>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM push_configs JOIN tasks ON tasks.ordinal = task
         WHERE tasks.id = :task AND tasks.owner = :owner AND push_configs.id > :after
         ORDER BY push_configs.id LIMIT :limit"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(named_params! {
        ":task": task.as_str(),
        ":owner": owner.as_str(),
        ":after": after.map_or("", PushConfigId::as_str),
        ":limit": super::super::to_i64(limit.min(MAX_PUSH_PAGE)),
    })?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(StoredPush::read(row)?);
    }
    Ok(found)
}

pub(super) fn delete(db: &Connection, owner: &Principal, task: &TaskId, id: &PushConfigId) -> Outcome<bool> {
    let removed = db
        .prepare_cached(
            "DELETE FROM push_configs WHERE id = :id
             AND task = (SELECT ordinal FROM tasks WHERE tasks.id = :task AND tasks.owner = :owner)",
        )?
        .execute(named_params! { ":task": task.as_str(), ":owner": owner.as_str(), ":id": id.as_str() })?;
    Ok(removed > 0)
}
