//! A consistent copy of the store, taken while a gateway may be writing to it.
//!
//! SQLite copies the file in one read transaction on its own connection, so the copy has exactly what was committed by then. The
//! gateway keeps working meanwhile; only its write-ahead log cannot shrink until the copy is done.
//!
//! The copy contains a mark that it is a copy. A gateway that opens it must not start waiting tasks on its own, because the
//! original gateway may have started them since the backup.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use longshore_model::{Epoch, Error, ErrorKind, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::fault::{Fault, Outcome};
use super::schema;

/// The content of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backup {
    pub tasks: u64,
    pub events: u64,
    pub bytes: u64,
}

/// Copies the store at `from` to a new file at `to`, which only its owner can read, and checks the copy.
///
/// On return the copy is on the disk. On failure, nothing is left at `to`. Blocks.
pub fn backup(from: &Path, to: &Path) -> Result<Backup> {
    let store = schema::open_reader(from)?;
    schema::check_not_empty(&store)?;
    // Create the file first: SQLite accepts an existing empty file, but would create one that others can read.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(schema::PRIVATE)
        .open(to)
        .map_err(|cause| cannot_write("The backup file cannot be created.").caused_by(cause))?;
    copy(&store, to).inspect_err(|_| {
        // Report the first failure. A second one, from removing the rest, would say less.
        let _ = fs::remove_file(to);
    })
}

fn copy(store: &Connection, to: &Path) -> Result<Backup> {
    let name = to.to_str().ok_or_else(|| cannot_write("The name of the backup is not UTF-8."))?;
    store.execute("VACUUM INTO ?", [name]).map_err(|cause| refused(cause).0)?;
    mark(to).map_err(|cause| refused(cause).0)?;
    let bytes = File::open(to)
        .and_then(|file| file.sync_all().and_then(|()| file.metadata()))
        .map_err(|cause| cannot_write("The backup may not be on the disk.").caused_by(cause))?
        .len();
    let copy = schema::open_reader(to)?;
    Ok(inspect(&copy, bytes)?)
}

/// Adds a table that only copies have. It records an epoch; every event of the copy was written in that epoch or before.
fn mark(copy: &Path) -> rusqlite::Result<()> {
    let copy = Connection::open_with_flags(copy, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    copy.execute_batch(
        "BEGIN;
         DROP TABLE IF EXISTS restored;
         CREATE TABLE restored (epoch INTEGER NOT NULL) STRICT;
         INSERT INTO restored SELECT last FROM epochs;
         COMMIT;",
    )
}

/// The last epoch before the backup, if the store is a restored copy.
pub(super) fn restored(db: &Connection) -> Outcome<Option<Epoch>> {
    let marked = db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'restored'")?.exists([])?;
    if !marked {
        return Ok(None);
    }
    Ok(db.query_row("SELECT max(epoch) FROM restored", [], |row| row.get::<_, Option<u32>>(0))?.map(Epoch))
}

pub(super) fn unmark(db: &Connection) -> Outcome<()> {
    Ok(db.execute_batch("DROP TABLE IF EXISTS restored")?)
}

/// Runs SQLite's integrity checks on the copy, and counts its content.
fn inspect(copy: &Connection, bytes: u64) -> Outcome<Backup> {
    let found: String = copy.pragma_query_value(None, "integrity_check", |row| row.get(0))?;
    let count = |sql: &str| copy.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs);
    let stray = count("SELECT count(*) FROM pragma_foreign_key_check")?;
    if found != "ok" || stray > 0 {
        let text = "The store is damaged: the copy does not pass SQLite's own check.";
        return Err(Fault(
            cannot_write(text).caused_by(format!("{found}; {stray} rows without their owner")),
        ));
    }
    Ok(Backup {
        tasks: count("SELECT count(*) FROM tasks")?,
        events: count("SELECT count(*) FROM events")?,
        bytes,
    })
}

/// Converts an error of the copy. SQLite does not say which file failed. A full disk means the copy, because only the copy grows.
fn refused(cause: rusqlite::Error) -> Fault {
    match cause.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            Fault(cannot_write("The copy could not be written. Is the target disk full?").caused_by(cause))
        }
        _ => cause.into(),
    }
}

fn cannot_write(text: &str) -> Error {
    Error::new(ErrorKind::Unavailable, text)
}

#[cfg(test)]
mod tests;
