//! The queue for the delivery: leases, cursors and dead letters.

use longshore_engine::port::{Burial, LeasedPush, MAX_DEAD_LETTERS, MAX_PUSH_PAGE, PushLease, PushRetry};
use longshore_model::{
    DeadLetter, Epoch, Principal, PushConfig, PushConfigId, Seq, TaskId, Timestamp, TraceContext,
};
use rusqlite::{Connection, OptionalExtension as _, named_params};

use super::super::fault::{Outcome, damaged};
use super::super::read::{TERMINAL_WORDS, skip_damaged, text};
use super::super::write_connection::WriteContext;
use super::super::{from_sql, to_i64, to_sql};
use super::record::{COLUMNS, StoredPush};

/// A lease whose configuration still has sealed secrets.
pub(super) struct Leased {
    pub(super) lease: PushLease,
    pub(super) config: Option<PushConfig>,
    owner: Principal,
    cursor: Seq,
    attempts: u32,
    first_failed_at: Option<Timestamp>,
    trace: Option<TraceContext>,
    replays: Option<Seq>,
}

impl Leased {
    /// Turns this into a lease with an opened configuration. `None`: the configuration could not be opened.
    pub(super) fn complete(self) -> Option<LeasedPush> {
        let Self { lease, config, owner, cursor, attempts, first_failed_at, trace, replays } = self;
        let config = config?;
        Some(LeasedPush { lease, owner, config, cursor, attempts, first_failed_at, trace, replays })
    }
}

/// Marks the configurations of a task as due because the log has grown. Runs in the transaction of the append.
pub(in crate::sqlite) fn note_growth(db: &mut WriteContext<'_>, task: i64, at: Timestamp) -> Outcome<()> {
    let changed = db
        .prepare_cached(
            "UPDATE push_configs SET grown_at = :at, due_at = coalesce(due_at, :at)
             WHERE task = :task AND grown_at IS NULL",
        )?
        .execute(named_params! { ":at": at.0, ":task": task })?;
    if changed > 0 {
        // The woken delivery reads through the write connection, so it sees this transaction committed.
        db.with_push().1.has_grown();
    }
    Ok(())
}

/// Ends all leases of the last run. Their holders ended with that process.
pub(in crate::sqlite) fn void_leases(db: &Connection) -> Outcome<()> {
    db.execute_batch(
        "UPDATE push_configs SET lease = NULL, replays = NULL, grown_at = coalesce(grown_at, 0), due_at = 0
         WHERE lease IS NOT NULL",
    )?;
    Ok(())
}

pub(super) fn due(
    db: &mut WriteContext<'_>,
    epoch: Epoch,
    now: Timestamp,
    limit: usize,
    until: Timestamp,
) -> Outcome<Vec<(StoredPush, Leased)>> {
    let sql = format!(
        "SELECT {COLUMNS}, push_configs.ordinal, cursor, attempts, first_failed_at,
                (SELECT min(event) FROM push_dead WHERE config = push_configs.ordinal AND replay = 1)
         FROM push_configs INDEXED BY push_due JOIN tasks ON tasks.ordinal = task
         WHERE due_at <= :now ORDER BY due_at LIMIT :limit"
    );
    let (db, push) = db.with_push();
    let (mut found, mut damaged_rows) = (Vec::new(), Vec::new());
    let mut select = db.prepare_cached(&sql)?;
    let mut rows = select.query(named_params! { ":now": now.0, ":limit": to_i64(limit) })?;
    while let Some(row) = rows.next()? {
        let ordinal: i64 = row.get(9)?;
        let replays: Option<i64> = row.get(13)?;
        let Some(stored) = skip_damaged(StoredPush::read(row))? else {
            damaged_rows.push(ordinal);
            continue;
        };
        let (task, id) = stored.id();
        let lease = PushLease { task: task.clone(), config: id.clone(), number: push.next_lease(epoch) };
        let leased = Leased {
            lease,
            config: None,
            owner: stored.owner.clone(),
            cursor: from_sql(row.get(10)?),
            attempts: row.get(11)?,
            first_failed_at: row.get::<_, Option<i64>>(12)?.map(Timestamp),
            trace: stored.trace.clone(),
            replays: replays.map(from_sql),
        };
        found.push((ordinal, stored, leased));
    }
    drop(rows);
    let mut take = db.prepare_cached(
        "UPDATE push_configs SET lease = :lease, replays = :replays, due_at = :until,
                grown_at = CASE WHEN :replays IS NULL THEN NULL ELSE grown_at END
         WHERE ordinal = :ordinal",
    )?;
    for (ordinal, _, leased) in &found {
        take.execute(named_params! {
            ":ordinal": ordinal,
            ":lease": leased.lease.number.cast_signed(),
            ":replays": leased.replays.map(to_sql),
            ":until": until.0,
        })?;
    }
    for ordinal in damaged_rows {
        // Make it due only later. Otherwise damaged rows would always be first, and other configurations would never be served.
        db.prepare_cached("UPDATE push_configs SET due_at = ?2 WHERE ordinal = ?1")?
            .execute((ordinal, now.0.saturating_add(super::UNREADABLE_PAUSE)))?;
    }
    Ok(found.into_iter().map(|(_, stored, leased)| (stored, leased)).collect())
}

pub(super) fn next_due(db: &Connection) -> Outcome<Option<Timestamp>> {
    let sql = "SELECT min(due_at) FROM push_configs INDEXED BY push_due WHERE due_at IS NOT NULL";
    let next: Option<i64> = db.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(next.map(Timestamp))
}

/// The row of a lease that is still valid, and the event that the lease replays, if it is a replay. `None`: the lease is not valid.
fn held(db: &Connection, lease: &PushLease) -> Outcome<Option<(i64, Option<i64>)>> {
    Ok(db
        .prepare_cached(
            "SELECT push_configs.ordinal, replays FROM push_configs JOIN tasks ON tasks.ordinal = task
             WHERE tasks.id = :task AND push_configs.id = :id AND lease = :lease",
        )?
        .query_row(
            named_params! {
                ":task": lease.task.as_str(),
                ":id": lease.config.as_str(),
                ":lease": lease.number.cast_signed(),
            },
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?)
}

pub(super) fn advance(
    db: &Connection,
    lease: &PushLease,
    cursor: Seq,
    keep: Option<Timestamp>,
    is_accepted: bool,
) -> Outcome<bool> {
    let Some((config, replays)) = held(db, lease)? else { return Ok(false) };
    if let Some(event) = replays {
        db.prepare_cached("DELETE FROM push_dead WHERE config = ? AND event = ?")?
            .execute((config, event))?;
    } else {
        move_cursor(db, config, cursor)?;
    }
    db.prepare_cached(
        "UPDATE push_configs SET attempts = 0, first_failed_at = iif(?2, NULL, first_failed_at) WHERE ordinal = ?1",
    )?
    .execute((config, is_accepted))?;
    end(db, config, keep)?;
    Ok(true)
}

fn move_cursor(db: &Connection, config: i64, cursor: Seq) -> Outcome<()> {
    db.prepare_cached("UPDATE push_configs SET cursor = max(cursor, ?2) WHERE ordinal = ?1")?
        .execute((config, to_sql(cursor)))?;
    Ok(())
}

/// Renews a lease until `keep`, or ends it if `keep` is `None`.
fn end(db: &Connection, config: i64, keep: Option<Timestamp>) -> Outcome<()> {
    if let Some(until) = keep {
        db.prepare_cached("UPDATE push_configs SET due_at = ?2 WHERE ordinal = ?1")?
            .execute((config, until.0))?;
        return Ok(());
    }
    let sql = format!(
        "UPDATE push_configs SET lease = NULL, replays = NULL, due_at = next,
                active = next IS NOT NULL
                    OR (SELECT state NOT IN ({TERMINAL_WORDS}) FROM tasks WHERE tasks.ordinal = push_configs.task)
         FROM (SELECT CASE WHEN EXISTS (SELECT 1 FROM push_dead WHERE config = ?1 AND replay = 1) THEN 0
                           ELSE (SELECT grown_at FROM push_configs WHERE ordinal = ?1) END AS next)
         WHERE push_configs.ordinal = ?1"
    );
    db.prepare_cached(&sql)?.execute([config])?;
    Ok(())
}

pub(super) fn postpone(db: &Connection, lease: &PushLease, retry: PushRetry) -> Outcome<bool> {
    let Some((config, _)) = held(db, lease)? else { return Ok(false) };
    db.prepare_cached(
        "UPDATE push_configs SET lease = NULL, replays = NULL, grown_at = :at, due_at = :at,
                attempts = :attempts, first_failed_at = :first_failed_at
         WHERE ordinal = :config",
    )?
    .execute(named_params! {
        ":config": config,
        ":at": retry.at.0,
        ":attempts": retry.attempts,
        ":first_failed_at": retry.first_failed_at.map(|at| at.0),
    })?;
    Ok(true)
}

pub(super) fn bury(
    db: &Connection,
    lease: &PushLease,
    dead: &Burial,
    keep: Option<Timestamp>,
) -> Outcome<bool> {
    let Some((config, replays)) = held(db, lease)? else { return Ok(false) };
    db.prepare_cached(
        "INSERT INTO push_dead (config, event, reason, attempts, first_failed_at, at)
         VALUES (:config, :event, :reason, :attempts, :first_failed_at, :at)
         ON CONFLICT (config, event) DO UPDATE SET reason = :reason, attempts = attempts + :attempts, at = :at, replay = 0",
    )?
    .execute(named_params! {
        ":config": config,
        ":event": to_sql(dead.event),
        ":reason": dead.reason,
        ":attempts": dead.attempts,
        ":first_failed_at": dead.first_failed_at.0,
        ":at": dead.at.0,
    })?;
    db.prepare_cached(
        "DELETE FROM push_dead WHERE number IN (
             SELECT number FROM push_dead WHERE config = ? ORDER BY number DESC LIMIT -1 OFFSET ?)",
    )?
    .execute((config, MAX_DEAD_LETTERS.cast_signed()))?;
    if replays.is_none() {
        move_cursor(db, config, dead.event)?;
    }
    db.prepare_cached("UPDATE push_configs SET attempts = 0 WHERE ordinal = ?")?.execute([config])?;
    end(db, config, keep)?;
    Ok(true)
}

pub(super) fn dead(db: &Connection, after: u64, limit: usize) -> Outcome<Vec<DeadLetter>> {
    let mut statement = db.prepare_cached(
        "SELECT number, push_configs.owner, tasks.id, push_configs.id, event, reason, push_dead.attempts,
                push_dead.first_failed_at, at
         FROM push_dead JOIN push_configs ON push_configs.ordinal = config JOIN tasks ON tasks.ordinal = task
         WHERE number > ? ORDER BY number LIMIT ?",
    )?;
    let mut rows = statement.query((after.cast_signed(), to_i64(limit.min(MAX_PUSH_PAGE))))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let number = row.get::<_, i64>(0)?.unsigned_abs();
        let what = format!("dead letter {number}");
        found.push(DeadLetter {
            number,
            owner: Principal::new(text(&what, row, 1)?),
            task: TaskId::parse(text(&what, row, 2)?).map_err(|cause| damaged(&what, cause))?,
            config: PushConfigId::parse(text(&what, row, 3)?).map_err(|cause| damaged(&what, cause))?,
            event: from_sql(row.get(4)?),
            reason: text(&what, row, 5)?.to_owned(),
            attempts: row.get(6)?,
            first_failed_at: Timestamp(row.get(7)?),
            at: Timestamp(row.get(8)?),
        });
    }
    Ok(found)
}

pub(super) fn replay(db: &Connection, number: u64) -> Outcome<bool> {
    let marked = db
        .prepare_cached("UPDATE push_dead SET replay = 1 WHERE number = ?")?
        .execute([number.cast_signed()])?;
    // A configuration with a valid lease finds the dead letter when the lease ends.
    db.prepare_cached(
        "UPDATE push_configs SET due_at = 0, active = 1
         WHERE lease IS NULL AND ordinal = (SELECT config FROM push_dead WHERE number = ?)",
    )?
    .execute([number.cast_signed()])?;
    Ok(marked > 0)
}

pub(super) fn drop_dead(db: &Connection, number: u64) -> Outcome<bool> {
    let removed =
        db.prepare_cached("DELETE FROM push_dead WHERE number = ?")?.execute([number.cast_signed()])?;
    Ok(removed > 0)
}
