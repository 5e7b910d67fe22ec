//! Copies everything that is undamaged from a damaged file to a new one.
//!
//! The damaged file is only read. An undamaged task is copied unchanged. Of a damaged task, the repair keeps the part that the
//! checksums confirm. If that part contains the task's end, the task stays ended and its log is reduced to one event, as by
//! retention. Otherwise the task ends as failed, and its status gives the reason. A task whose id or owner is in doubt is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use longshore_engine::port::EndTask;
use longshore_model::{
    ContextId, Epoch, Error, ErrorKind, Result, StatusUpdate, Task, TaskEvent, TaskId, Timestamp,
};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, Statement, params_from_iter};
use sha2::{Digest, Sha256};

use super::fault::Outcome;
use super::known_damage::Damage;
use super::read::{self, Unreadable};
use super::record::{self, EventText, SnapshotText};
use super::{Durability, backup, epoch, from_sql, inspect, salvage, schema, to_sql, write};

/// The result of a repair: what was kept and what was lost.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Repaired {
    /// The damage of the old file.
    pub damage: Damage,
    /// How many tasks are unchanged, and how many events their logs have.
    pub tasks: u64,
    pub events: u64,
    /// Tasks that are unchanged except that their events are lost.
    pub without_log: Vec<TaskId>,
    /// Tasks that the repair ended as failed, with the part that was left of them.
    pub ended: Vec<TaskId>,
    /// Tasks that are lost: the id of each, or its ordinal if the id is lost too.
    pub lost: Vec<String>,
    /// The number of lost rows of other tables: sessions, asks, idempotency keys, push configurations and files.
    pub rows_lost: u64,
    /// How many approvals (answers `always`) were removed, because nothing confirms them.
    pub approvals_forgotten: u64,
}

impl Repaired {
    /// Whether anything was lost.
    pub fn has_losses(&self) -> bool {
        let tasks = self.without_log.len() + self.ended.len() + self.lost.len();
        tasks > 0 || self.rows_lost > 0 || self.approvals_forgotten > 0 || !self.damage.structure.is_empty()
    }
}

/// Copies what is left of the store at `from` to a new file at `to`. No gateway may use the store. `end` makes the last event of a
/// task that cannot be continued. `None`: nothing is damaged, and nothing was written. On failure, nothing is left at `to`. Blocks.
pub fn repair(from: &Path, to: &Path, at: Timestamp, end: &EndTask) -> Result<Option<Repaired>> {
    let old = schema::open_damaged(from)?;
    schema::check_current(&old)?;
    let damage = inspect::inspect(&old, None)?;
    if damage.is_none() {
        return Ok(None);
    }
    let repaired = copy(&old, to, damage, (at, end)).and_then(|repaired| {
        let left = super::find_damage(to)?;
        if left.is_none() { Ok(repaired) } else { Err(still_damaged(&left)) }
    });
    if repaired.is_err() {
        for suffix in ["", "-wal", "-shm"] {
            let mut name = to.as_os_str().to_owned();
            name.push(suffix);
            // Ignore a failure here, so that the failure of the repair is reported.
            let _ = std::fs::remove_file(name);
        }
    }
    repaired.map(Some)
}

fn still_damaged(left: &Damage) -> Error {
    let text =
        "The repaired store does not pass the check. Nothing was changed; restore the store from a backup.";
    Error::new(ErrorKind::Internal, text).caused_by(format!("{left:?}"))
}

fn copy(old: &Connection, to: &Path, damage: Damage, (at, end): (Timestamp, &EndTask)) -> Result<Repaired> {
    let new = open_draft(to)?;
    let mut repair =
        Repair { old, new: &new, epoch: Epoch(0), found: Repaired { damage, ..Repaired::default() } };
    repair.run(at, end)?;
    let found = repair.found;
    new.close().map_err(|(_, cause)| Error::internal(cause))?;
    std::fs::File::open(to).and_then(|file| file.sync_all()).map_err(Error::internal)?;
    Ok(found)
}

/// Opens the new file. Its journal is not on the disk, where it would need as much space again. The file is deleted if the repair
/// fails.
fn open_draft(to: &Path) -> Outcome<Connection> {
    let new = schema::open_writer(to, Durability::Process)?;
    new.pragma_update_and_check(None, "journal_mode", "MEMORY", |_| Ok(()))?;
    Ok(new)
}

struct Repair<'a> {
    old: &'a Connection,
    new: &'a Connection,
    /// The epoch of the events that the repair itself writes.
    epoch: Epoch,
    found: Repaired,
}

impl Repair<'_> {
    fn run(&mut self, at: Timestamp, end: &EndTask) -> Outcome<()> {
        // Turn off the checks, because rows are copied table by table. Rows that refer to nothing are removed at the end.
        self.new.pragma_update(None, "foreign_keys", false)?;
        self.new.execute_batch("BEGIN IMMEDIATE")?;
        self.copy_epochs()?;
        self.copy_tasks(at, end)?;
        self.copy_rows()?;
        self.copy_files()?;
        if let Ok(Some(Epoch(restored))) = backup::restored(self.old) {
            self.new.execute_batch("CREATE TABLE restored (epoch INTEGER NOT NULL) STRICT")?;
            self.new.execute("INSERT INTO restored VALUES (?)", [restored])?;
        }
        self.new.execute_batch("COMMIT")?;
        self.new.pragma_update(None, "foreign_keys", true)?;
        self.drop_orphans()
    }

    fn copy_epochs(&mut self) -> Outcome<()> {
        let known = self.old.query_row("SELECT last, unsummed FROM epochs WHERE only = 1", [], |row| {
            Ok((row.get::<_, u32>(0)?, row.get::<_, i64>(1)?))
        });
        // If the row of `epochs` is lost, every event must have a checksum, and the new epoch must be later than all.
        let (last, unsummed) = known.unwrap_or((0, -1));
        let newest =
            self.old.query_row("SELECT max(epoch) FROM events", [], |row| row.get::<_, Option<u32>>(0));
        self.new.execute("UPDATE epochs SET last = ?, unsummed = ?", (last, unsummed))?;
        let minimum = newest.ok().flatten().unwrap_or(0).max(last).saturating_add(1);
        self.epoch =
            epoch::EpochClaim::with_minimum(self.new, Durability::Process, minimum.max(epoch::now()))?.epoch;
        self.new.execute("UPDATE epochs SET last = ?", [self.epoch.0])?;
        Ok(())
    }

    fn copy_tasks(&mut self, at: Timestamp, end: &EndTask) -> Outcome<()> {
        let names = Names::read(self.old);
        for ordinal in inspect::ordinals(self.old)? {
            if !self.found.damage.tasks.contains_key(&ordinal) {
                self.found.events += self.copy_whole(ordinal)?;
                self.found.tasks += 1;
                continue;
            }
            let Some((owner, id)) = names.of(ordinal) else {
                let id = self.found.damage.tasks.get(&ordinal).and_then(|task| task.id.as_ref());
                let name = id.map_or_else(|| format!("number {ordinal}"), ToString::to_string);
                self.found.lost.push(name);
                continue;
            };
            match self.salvage(ordinal, &id, names.contexts.get(&ordinal)) {
                Some((head, task)) => self.put_salvaged((ordinal, &owner), head, task, (at, end))?,
                None => self.found.lost.push(id.to_string()),
            }
        }
        Ok(())
    }

    /// Copies the rows of a task unchanged. Returns the number of its events.
    fn copy_whole(&self, ordinal: i64) -> Outcome<u64> {
        let tasks = "ordinal, id, owner, context, state, status_at, summary_seq, first, session, directory, prompt, root, output,
                     joined, folded";
        let mut copied = 0;
        for (table, columns, key) in [
            ("tasks", tasks, "ordinal"),
            ("snapshots", "task, seq, summary, artifacts, sum", "task"),
            ("events", "task, seq, at, kind, body, epoch, sum", "task"),
        ] {
            let mut insert = self.insert(table, columns)?;
            let sql = format!("SELECT {columns} FROM {table} WHERE {key} = ?");
            let mut select = self.old.prepare_cached(&sql)?;
            let mut rows = select.query([ordinal])?;
            copied = 0;
            while let Some(row) = rows.next()? {
                insert.execute(params_from_iter(values(row)?))?;
                copied += 1;
            }
        }
        Ok(copied)
    }

    fn insert(&self, table: &str, columns: &str) -> Outcome<Statement<'_>> {
        let places = vec!["?"; columns.split(',').count()].join(", ");
        Ok(self.new.prepare(&format!("INSERT OR IGNORE INTO {table} ({columns}) VALUES ({places})"))?)
    }

    /// The head of a damaged task's log, and the part of the task that its checksums confirm.
    fn salvage(&self, ordinal: i64, id: &TaskId, context: Option<&ContextId>) -> Option<(i64, Task)> {
        let newest = "SELECT max(seq) FROM events WHERE task = ?";
        let newest = self.old.query_row(newest, [ordinal], |row| row.get::<_, Option<i64>>(0)).ok().flatten();
        let recorded = "SELECT summary_seq FROM tasks WHERE ordinal = ?";
        let recorded = self.old.query_row(recorded, [ordinal], |row| row.get::<_, i64>(0)).unwrap_or(0);
        let snapshot = read::snapshot_of(self.old, ordinal).filter(|(_, task)| task.id == *id);
        // Ignore a number so large that it was probably overwritten, because it would leave no room for the next event.
        let recorded = if recorded < i64::from(u32::MAX) { recorded } else { 0 };
        let head = newest.unwrap_or(0).max(recorded).max(snapshot.as_ref().map_or(0, |(seq, _)| *seq)).max(1);
        let left = Unreadable { ordinal, id: Some(id.clone()), context: context.cloned(), head, snapshot };
        let task = salvage::salvage_task(self.old, &left).ok().flatten()?;
        Some((head, task))
    }

    fn put_salvaged(
        &mut self,
        (ordinal, owner): (i64, &str),
        head: i64,
        mut task: Task,
        (at, end): (Timestamp, &EndTask),
    ) -> Outcome<()> {
        let (seq, event) = if task.status.state.is_terminal() {
            self.found.without_log.push(task.id.clone());
            (from_sql(head), TaskEvent::Status(Box::new(StatusUpdate::new(task.status.clone()))))
        } else {
            let event = end(&task);
            task.apply(&event);
            task.open_asks.clear();
            self.found.ended.push(task.id.clone());
            (from_sql(head).next(), event)
        };
        let output = &task.options.output;
        let output = if output.is_unrestricted() { None } else { Some(record::to_text(output)?) };
        self.new.execute(
            "INSERT INTO tasks (ordinal, id, owner, context, state, status_at, summary_seq, first, folded, root, output)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, 1, ?8, ?9)",
            (
                ordinal,
                task.id.as_str(),
                owner,
                task.context_id.as_str(),
                task.status.state.as_str(),
                task.status.at.0,
                to_sql(seq),
                task.parent.as_ref().map(|parent| parent.root.as_str()),
                output,
            ),
        )?;
        write::insert_event(self.new, ordinal, (seq, self.epoch), at, &EventText::encode(&event)?)?;
        write::put_snapshot(self.new, ordinal, seq, &SnapshotText::encode(&task)?)
    }

    /// Copies the rows of the other tables. These rows have no checksums. A row is kept if its texts are valid and if its task or
    /// session has the same owner as the row.
    fn copy_rows(&mut self) -> Outcome<()> {
        let is_known_context =
            "EXISTS (SELECT 1 FROM tasks WHERE tasks.owner = new.owner AND tasks.context = new.context)";
        let is_of_task =
            "EXISTS (SELECT 1 FROM tasks WHERE tasks.ordinal = new.task AND tasks.owner = new.owner)";
        let is_open_of_live = "AND (new.resolution IS NOT NULL OR EXISTS (SELECT 1 FROM tasks
             WHERE tasks.ordinal = new.task AND tasks.state NOT IN ('completed', 'failed', 'canceled', 'rejected')))";
        let of_session =
            "EXISTS (SELECT 1 FROM sessions WHERE sessions.id = new.session AND sessions.owner = new.owner)";
        let interrupts =
            "ordinal, request, task, owner, kind, session, summary, details, questions, asked_at, expires_at,
                          resolution, closed_at, closed_by, how, call, permission, options";
        let no_other =
            "NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.session = new.id AND tasks.owner <> new.owner)";
        self.copy_table("sessions", "id, owner, directory, at", no_other)?;
        // Restore the owners of sessions whose row is lost, so that no other caller can get such a session.
        self.new.execute(
            "INSERT OR IGNORE INTO sessions (id, owner, directory, at)
             SELECT session, owner, directory, status_at FROM tasks WHERE session IS NOT NULL",
            [],
        )?;
        self.copy_table("contexts", "owner, context, directory, at", is_known_context)?;
        self.copy_table(
            "bindings",
            "owner, context, session, directory, named, at",
            &format!("{is_known_context} AND {of_session}"),
        )?;
        self.copy_table("idempotency", "owner, digest, task, at", is_of_task)?;
        self.copy_table("interrupts", interrupts, &format!("{is_of_task} {is_open_of_live}"))?;
        let configs = "ordinal, task, id, owner, format, events, view, trace, sealed, created, cursor, grown_at, due_at,
                       lease, replays, attempts, first_failed_at, active";
        self.copy_table("push_configs", configs, is_of_task)?;
        // Make all configurations due: the repair may have added an event, and a copied time could hide it.
        self.new.execute("UPDATE push_configs SET grown_at = 0, due_at = 0", [])?;
        let letters = "number, config, event, reason, attempts, first_failed_at, at, replay";
        let of_config = "EXISTS (SELECT 1 FROM push_configs WHERE push_configs.ordinal = new.config)";
        self.copy_table("push_dead", letters, of_config)?;
        self.copy_table("calls", "id, task, owner, open, at, record", is_of_task)?;
        let approvals = self.old.query_row("SELECT count(*) FROM approvals", [], |row| row.get::<_, i64>(0));
        self.found.approvals_forgotten = approvals.unwrap_or(0).unsigned_abs();
        Ok(())
    }

    /// Copies the readable rows that fulfil the condition on `new`.
    fn copy_table(&mut self, table: &str, columns: &str, condition: &str) -> Outcome<()> {
        let places =
            columns.split(',').map(|column| format!("? AS {}", column.trim())).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "INSERT OR IGNORE INTO {table} ({columns}) SELECT * FROM (SELECT {places}) AS new WHERE {condition}"
        );
        let mut insert = self.new.prepare(&sql)?;
        let mut seen = BTreeSet::new();
        // An unreadable page ends a scan. A second scan in the other direction finds the rows behind that page.
        for order in ["", "ORDER BY 1 DESC"] {
            let select = format!("SELECT {columns} FROM {table} NOT INDEXED {order}");
            let Ok(mut statement) = self.old.prepare(&select) else { continue };
            let Ok(mut rows) = statement.query([]) else { continue };
            let is_complete = loop {
                match rows.next() {
                    Ok(Some(row)) => {
                        let Ok(row) = values(row) else {
                            self.found.rows_lost += 1;
                            continue;
                        };
                        if seen.insert(format!("{row:?}"))
                            && insert.execute(params_from_iter(row)).unwrap_or(0) == 0
                        {
                            self.found.rows_lost += 1;
                        }
                    }
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            if is_complete {
                break;
            }
        }
        Ok(())
    }

    /// Copies the files whose content has the recorded hash.
    fn copy_files(&mut self) -> Outcome<()> {
        let before = self.found.rows_lost;
        let columns = "ordinal, id, task, owner, name, media_type, size, sha256, at, complete";
        let of_task =
            "EXISTS (SELECT 1 FROM tasks WHERE tasks.ordinal = new.task AND tasks.owner = new.owner)
                       AND new.complete = 1";
        self.copy_table("files", columns, of_task)?;
        self.found.rows_lost = before;
        let files: Vec<(i64, i64, Vec<u8>)> = self
            .new
            .prepare("SELECT ordinal, size, sha256 FROM files")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<rusqlite::Result<_>>()?;
        for (file, size, sha256) in files {
            if !self.copy_chunks(file, size, &sha256).unwrap_or(false) {
                self.new.execute("DELETE FROM file_chunks WHERE file = ?", [file])?;
                self.new.execute("DELETE FROM files WHERE ordinal = ?", [file])?;
                self.found.rows_lost += 1;
            }
        }
        Ok(())
    }

    fn copy_chunks(&self, file: i64, size: i64, sha256: &[u8]) -> Outcome<bool> {
        let mut insert = self.insert("file_chunks", "file, place, bytes")?;
        let mut select = self
            .old
            .prepare_cached("SELECT file, place, bytes FROM file_chunks WHERE file = ? ORDER BY place")?;
        let mut rows = select.query([file])?;
        let (mut hash, mut length) = (Sha256::new(), 0);
        while let Some(row) = rows.next()? {
            let bytes = row.get_ref(2)?.as_blob()?;
            hash.update(bytes);
            length += bytes.len();
            insert.execute(params_from_iter(values(row)?))?;
        }
        Ok(i64::try_from(length) == Ok(size) && hash.finalize().as_slice() == sha256)
    }

    /// Removes the tasks of sub-agents whose root is lost.
    fn drop_orphans(&mut self) -> Outcome<()> {
        loop {
            let orphan = "SELECT ordinal, id FROM tasks WHERE root IS NOT NULL AND root NOT IN (SELECT id FROM tasks) LIMIT 1";
            let orphan: Option<(i64, String)> =
                self.new.query_row(orphan, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            let Some((ordinal, id)) = orphan else { return Ok(()) };
            self.new.execute("DELETE FROM tasks WHERE ordinal = ?", [ordinal])?;
            let is_other = |task: &TaskId| task.as_str() != id;
            self.found.without_log.retain(is_other);
            self.found.ended.retain(is_other);
            self.found.lost.push(id);
        }
    }
}

/// Reads the values of a row. Fails if a text is not UTF-8.
fn values(row: &Row<'_>) -> Outcome<Vec<Value>> {
    let mut found = Vec::new();
    for column in 0..row.as_ref().column_count() {
        found.push(match row.get_ref(column)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::Integer(number),
            ValueRef::Real(number) => Value::Real(number),
            ValueRef::Text(_) => Value::Text(row.get(column)?),
            ValueRef::Blob(bytes) => Value::Blob(bytes.to_owned()),
        });
    }
    Ok(found)
}

/// The owners and ids of the tasks according to the rows and to each index. A value is believed if two of these agree, because each
/// is on its own page.
#[derive(Default)]
struct Names {
    votes: BTreeMap<i64, Vec<(String, TaskId)>>,
    /// The context of each task for which the row and the index agree.
    contexts: BTreeMap<i64, ContextId>,
}

impl Names {
    fn read(old: &Connection) -> Self {
        let mut names = Self::default();
        let mut contexts: BTreeMap<i64, String> = BTreeMap::new();
        for (tasks, context) in [
            ("tasks NOT INDEXED", "context"),
            ("tasks INDEXED BY tasks_by_owner", "NULL"),
            ("tasks INDEXED BY tasks_by_context", "context"),
            ("tasks INDEXED BY tasks_by_state", "NULL"),
        ] {
            for order in ["ASC", "DESC"] {
                let key = if tasks.ends_with("NOT INDEXED") { "ordinal" } else { "owner" };
                let sql = format!(
                    "SELECT ordinal, owner, id, {context} FROM {tasks} WHERE owner IS NOT NULL ORDER BY {key} {order}"
                );
                let Ok(mut statement) = old.prepare(&sql) else { continue };
                let Ok(mut rows) = statement.query([]) else { continue };
                let mut seen = BTreeSet::new();
                let is_complete = loop {
                    let row = match rows.next() {
                        Ok(Some(row)) => row,
                        Ok(None) => break true,
                        Err(_) => break false,
                    };
                    let (Ok(ordinal), Ok(owner), Ok(id)) = (row.get(0), row.get(1), row.get::<_, String>(2))
                    else {
                        continue;
                    };
                    if let (Ok(id), true) = (TaskId::parse(&id), seen.insert(ordinal)) {
                        names.votes.entry(ordinal).or_default().push((owner, id));
                    }
                    if let Ok(Some(context)) = row.get::<_, Option<String>>(3)
                        && contexts.insert(ordinal, context.clone()).as_ref() == Some(&context)
                        && let Ok(context) = ContextId::parse(&context)
                    {
                        names.contexts.insert(ordinal, context);
                    }
                };
                if is_complete {
                    break;
                }
            }
        }
        names
    }

    fn of(&self, ordinal: i64) -> Option<(String, TaskId)> {
        let votes = self.votes.get(&ordinal)?;
        votes.iter().find(|name| votes.iter().filter(|other| other == name).count() > 1).cloned()
    }
}

#[cfg(test)]
mod tests;
