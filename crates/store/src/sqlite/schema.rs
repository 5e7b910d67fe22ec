//! The file: how it is made, opened and brought up to date.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use longshore_model::{Error, ErrorKind, Result};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::Durability;
use super::fault::{Fault, Outcome};

/// Applied in order, each once. The number of those that were applied is the file's `user_version`.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_log.sql")];

/// How long a statement waits for a lock of another program, such as a backup, before it fails.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Prepared statements kept per connection: more than there are in this crate, but for the rarest list filters.
const STATEMENTS: usize = 40;

/// The write-ahead log is cut back to this after a checkpoint, in bytes, so that one busy hour does not hold the disk.
const WAL_LIMIT: i64 = 16 * 1024 * 1024;

/// Opens the file for writing; makes it and brings it up to date when need be.
pub(super) fn open_writer(path: &Path, durability: Durability) -> Result<Connection> {
    create_private(path)?;
    Ok(prepare_writer(path, durability)?)
}

/// Opens the file for reading. It must have been opened for writing before.
pub(super) fn open_reader(path: &Path) -> Result<Connection> {
    Ok(prepare_reader(path)?)
}

fn prepare_writer(path: &Path, durability: Durability) -> Outcome<Connection> {
    let mut db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // Before anything is written: a file that is refused stays as it is.
    check_version(applied(&db)?, MIGRATIONS.len())?;
    let mode: String = db.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(Fault(Error::new(
            ErrorKind::Unavailable,
            "The file system of the data directory cannot hold the gateway's store (SQLite has no WAL there). \
             Choose a data directory on a local disk.",
        )));
    }
    db.pragma_update(None, "synchronous", durability.synchronous())?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "journal_size_limit", WAL_LIMIT)?;
    migrate(&mut db, MIGRATIONS)?;
    Ok(db)
}

fn prepare_reader(path: &Path) -> Outcome<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

fn connect(path: &Path, access: OpenFlags) -> Outcome<Connection> {
    // A connection is used by one thread at a time, so it needs no mutex of its own. No URI flag: a path is a path.
    let db = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(db)
}

/// Makes the file, if it is not there, for its owner only. SQLite gives `-wal` and `-shm` the mode of the file.
fn create_private(path: &Path) -> Result<()> {
    // Not opened when it is there: closing it again would drop the locks that this process has on it.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::new(
            ErrorKind::Unavailable,
            "The gateway's store cannot be made in the data directory. Make sure that the directory is there and \
             that the gateway owns it.",
        )
        .caused_by(error)),
        _ => Ok(()),
    }
}

/// Applies what is missing, all of it or nothing.
fn migrate(db: &mut Connection, migrations: &[&str]) -> Outcome<()> {
    // Immediate, so that of two programs that start at once the second sees what the first has done.
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let applied = applied(&transaction)?;
    check_version(applied, migrations.len())?;
    if applied == 0 {
        check_empty(&transaction)?;
    }
    for migration in &migrations[applied..] {
        transaction.execute_batch(migration)?;
    }
    if applied < migrations.len() {
        // A pragma takes no parameter that is bound, so the number is written into the text.
        transaction.execute_batch(&format!("PRAGMA user_version = {}", migrations.len()))?;
    }
    Ok(transaction.commit()?)
}

fn applied(db: &Connection) -> Outcome<usize> {
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    // A negative number is nobody's schema, so it is as strange as one that is too big.
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

fn check_version(applied: usize, known: usize) -> Outcome<()> {
    if applied <= known {
        return Ok(());
    }
    Err(Fault(Error::new(
        ErrorKind::Unavailable,
        format!(
            "The gateway's store was written by a newer Longshore: its schema is number {applied}, and this program \
             knows up to {known}. Start the newer program, or choose another data directory."
        ),
    )))
}

/// A database without our version number that holds tables is somebody else's.
fn check_empty(db: &Connection) -> Outcome<()> {
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(());
    }
    Err(Fault(Error::new(
        ErrorKind::Unavailable,
        "The gateway's store is a database of another program. Choose another data directory.",
    )))
}

#[cfg(test)]
mod tests;
