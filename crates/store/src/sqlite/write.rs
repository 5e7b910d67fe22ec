//! The writes for each kind of request: first the checks, then the rows.

use longshore_engine::port::{Created, IdempotencyKey, PushPut, RecordedSends, TurnRecord};
use longshore_model::{ContextId, Epoch, Error, Principal, Seq, TaskId, TaskState, Timestamp};
use rusqlite::{Connection, named_params};

use super::fault::{Outcome, damaged};
use super::record::{EventText, NewTask, SnapshotText, TurnText};
use super::write_connection::WriteContext;
use super::{checksum, contexts, from_sql, push, to_sql, turns};
use crate::rules::{self, Root};

/// The size of a probe. It is longer than one SQLite page, so that it needs free space like large events do.
const PROBE_BYTES: i64 = 8 * 1024;

pub(super) fn create(db: &mut WriteContext<'_>, new: &NewTask) -> Outcome<Created> {
    if let Some(key) = &new.idempotency
        && let Some(existing) = earlier_send(db, &new.owner, key)?
    {
        return Ok(existing);
    }
    if let Some((_, TurnText { record, .. })) = &new.begun
        && let Some(existing) = earlier_turn(db, new, record)?
    {
        return Ok(existing);
    }
    let location = contexts::location(db, &new.owner, &new.context)?;
    let known = match new.requested.used_session() {
        Some(id) => contexts::find_session(db, id)?,
        None => None,
    };
    let placement = match rules::decide_placement(&new.requested, &new.owner, &location, known.as_ref()) {
        Ok(placement) => placement,
        Err(answer) => return Ok(answer),
    };
    if let Some(id) = &new.root {
        rules::check_root(root(db, id)?.as_ref(), &new.owner, &new.context)?;
    }
    if let Some(limit) = new.push.as_ref().map(|push| push::reached(db, None, push)).transpose()?.flatten() {
        return Ok(Created::PushFull(limit));
    }
    let turn = new.begun.as_ref().map(|(_, turn)| &turn.record);
    let head = Seq::START.plus(1 + new.begun.iter().len());
    let is_new = db
        .prepare_cached(
            "INSERT INTO tasks (id, owner, context, state, status_at, summary_seq, first, root, output,
                                session, directory, prompt, joined)
             VALUES (:id, :owner, :context, :state, :status_at, :head, 1, :root, :output,
                     :session, :directory, :prompt, :joined)
             ON CONFLICT (id) DO NOTHING",
        )?
        .execute(named_params! {
            ":id": new.id.as_str(),
            ":owner": new.owner.as_str(),
            ":context": new.context.as_str(),
            ":state": new.status.0.as_str(),
            ":status_at": new.status.1.0,
            ":root": new.root.as_ref().map(TaskId::as_str),
            ":output": new.output,
            ":head": to_sql(head),
            ":session": turn.map(|turn| turn.session.id.as_str()),
            ":directory": turn.map(|turn| &turn.session.directory),
            ":prompt": turn.map(|turn| turn.prompt.as_str()),
            ":joined": new.begun.as_ref().and_then(|(_, turn)| turn.joined.as_ref()),
        })?;
    if is_new == 0 {
        return Err(rules::duplicate_task().into());
    }
    let ordinal = db.last_insert_rowid();
    insert_event(db, ordinal, (Seq::START.next(), new.epoch), new.at, &new.first)?;
    put_snapshot(db, ordinal, head, &new.snapshot)?;
    contexts::put_placement(db, new, &placement)?;
    if let Some((working, TurnText { record, .. })) = &new.begun {
        insert_event(db, ordinal, (head, new.epoch), new.at, working)?;
        contexts::note_use(db, &record.session.id, new.at)?;
    }
    if let Some(key) = &new.idempotency {
        put_key(db, &new.owner, key, ordinal, new.at)?;
    }
    if let Some(new) = &new.push
        && push::put(db, new)? != PushPut::Stored
    {
        return Err(Error::internal("the push configuration of a new task names another task").into());
    }
    Ok(Created::New)
}

/// Inserts a row and deletes it again, to check that the store can write. The commit writes the touched pages, as it does for
/// an event.
pub(super) fn probe(db: &Connection) -> Outcome<()> {
    db.prepare_cached("INSERT INTO probes (body) VALUES (zeroblob(?))")?.execute([PROBE_BYTES])?;
    db.prepare_cached("DELETE FROM probes")?.execute([])?;
    Ok(())
}

pub(super) fn record_sends(db: &Connection, noted: &RecordedSends) -> Outcome<()> {
    let task = find_task_row(db, noted.task.as_str())?.filter(|task| task.owner == noted.owner);
    let Some(task) = task else { return Err(Error::task_not_found(noted.task.as_str()).into()) };
    for key in &noted.keys {
        put_key(db, &noted.owner, key, task.ordinal, noted.at)?;
    }
    Ok(())
}

/// The task and context of an earlier send with this key, if the key has not expired.
pub(super) fn earlier_send(
    db: &Connection,
    owner: &Principal,
    key: &IdempotencyKey,
) -> Outcome<Option<Created>> {
    let mut statement = db.prepare_cached(
        "SELECT tasks.id, tasks.context FROM idempotency JOIN tasks ON tasks.ordinal = idempotency.task
         WHERE idempotency.owner = :owner AND digest = :digest AND idempotency.at >= :valid_since",
    )?;
    let mut rows = statement.query(named_params! {
        ":owner": owner.as_str(),
        ":digest": key.digest,
        ":valid_since": key.valid_since.0,
    })?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let id = row.get_ref(0)?.as_str()?;
    let what = format!("task {id}");
    let task = TaskId::parse(id).map_err(|cause| damaged(&what, cause))?;
    let context = ContextId::parse(row.get_ref(1)?.as_str()?).map_err(|cause| damaged(&what, cause))?;
    Ok(Some(Created::Existing { task, context }))
}

/// The existing task for this turn, or the existing task with the id of the new one.
fn earlier_turn(db: &Connection, new: &NewTask, turn: &TurnRecord) -> Outcome<Option<Created>> {
    if let Some(known) = turns::find(db, &turn.session.id, &turn.prompt)? {
        let existing = Created::Existing { task: known.task, context: known.context };
        return Ok((known.owner == new.owner).then_some(existing));
    }
    let known = find_task_row(db, new.id.as_str())?.filter(|known| known.owner == new.owner);
    Ok(known.map(|known| Created::Existing { task: new.id.clone(), context: known.context }))
}

/// Stores the idempotency key of this send, and deletes some expired keys.
pub(super) fn put_key(
    db: &Connection,
    owner: &Principal,
    key: &IdempotencyKey,
    ordinal: i64,
    at: Timestamp,
) -> Outcome<()> {
    delete_expired(db, owner, key)?;
    db.prepare_cached(
        "INSERT OR REPLACE INTO idempotency (owner, digest, task, at) VALUES (:owner, :digest, :task, :at)",
    )?
    .execute(named_params! {
        ":owner": owner.as_str(),
        ":digest": key.digest,
        ":task": ordinal,
        ":at": at.0,
    })?;
    Ok(())
}

/// Deletes some expired keys. Checks first whether there are any, because there hardly ever are, and the DELETE would build a
/// temporary table even if it finds nothing.
fn delete_expired(db: &Connection, owner: &Principal, key: &IdempotencyKey) -> Outcome<()> {
    if db.prepare_cached(HAS_EXPIRED)?.exists((owner.as_str(), key.valid_since.0))? {
        db.prepare_cached(DELETE_EXPIRED)?.execute(named_params! {
            ":owner": owner.as_str(),
            ":valid_since": key.valid_since.0,
            ":limit": rules::EXPIRED_KEYS,
        })?;
    }
    Ok(())
}

pub(super) const HAS_EXPIRED: &str = "SELECT 1 FROM idempotency WHERE owner = ?1 AND at < ?2 LIMIT 1";

pub(super) const DELETE_EXPIRED: &str = "DELETE FROM idempotency WHERE owner = :owner AND digest IN (
     SELECT digest FROM idempotency WHERE owner = :owner AND at < :valid_since ORDER BY at LIMIT :limit)";

/// The facts about a root against which a sub-agent's task is checked.
fn root(db: &Connection, id: &TaskId) -> Outcome<Option<Root>> {
    let mut statement =
        db.prepare_cached("SELECT owner, context, root IS NOT NULL FROM tasks WHERE id = :id")?;
    let mut rows = statement.query(named_params! { ":id": id.as_str() })?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let owner = Principal::new(row.get_ref(0)?.as_str()?);
    let context =
        ContextId::parse(row.get_ref(1)?.as_str()?).map_err(|cause| damaged(&format!("task {id}"), cause))?;
    Ok(Some(Root { owner, context, is_child: row.get(2)? }))
}

/// The columns of a task's row that an append needs.
pub(super) struct TaskRow {
    pub(super) ordinal: i64,
    pub(super) owner: Principal,
    pub(super) context: ContextId,
    pub(super) head: Seq,
    pub(super) state: TaskState,
}

pub(super) fn find_task_row(db: &Connection, id: &str) -> Outcome<Option<TaskRow>> {
    let sql = concat!("SELECT ordinal, owner, context, ", head!(), ", state FROM tasks WHERE id = :id");
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(named_params! { ":id": id })?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let what = || format!("task {id}");
    Ok(Some(TaskRow {
        ordinal: row.get(0)?,
        owner: Principal::new(row.get_ref(1)?.as_str()?),
        context: ContextId::parse(row.get_ref(2)?.as_str()?).map_err(|cause| damaged(&what(), cause))?,
        head: from_sql(row.get(3)?),
        state: TaskState::parse(row.get_ref(4)?.as_str()?)
            .ok_or_else(|| damaged(&what(), "unknown state"))?,
    }))
}

pub(super) const INSERT_EVENT: &str =
    "INSERT INTO events (task, seq, at, kind, body, epoch, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

pub(super) fn insert_event(
    db: &Connection,
    task: i64,
    (seq, epoch): (Seq, Epoch),
    at: Timestamp,
    event: &EventText,
) -> Outcome<()> {
    let sum = checksum::of_event(task, to_sql(seq), epoch, event.kind, event.body.as_bytes());
    db.prepare_cached(INSERT_EVENT)?.execute((
        task,
        to_sql(seq),
        at.0,
        event.kind,
        &event.body,
        epoch.0,
        sum,
    ))?;
    Ok(())
}

pub(super) fn put_snapshot(db: &Connection, task: i64, seq: Seq, snapshot: &SnapshotText) -> Outcome<()> {
    let SnapshotText { summary, artifacts } = snapshot;
    let sum = checksum::of_snapshot(task, to_sql(seq), summary.as_bytes(), artifacts.as_bytes());
    db.prepare_cached(
        "INSERT OR REPLACE INTO snapshots (task, seq, summary, artifacts, sum)
         VALUES (:task, :seq, :summary, :artifacts, :sum)",
    )?
    .execute(named_params! {
        ":task": task,
        ":seq": to_sql(seq),
        ":summary": summary,
        ":artifacts": artifacts,
        ":sum": sum,
    })?;
    Ok(())
}
