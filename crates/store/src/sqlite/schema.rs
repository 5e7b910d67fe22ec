//! Creates, opens and migrates the database file.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use longshore_model::{Error, ErrorKind, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::Durability;
use super::fault::{Fault, Outcome};
use super::files;

/// The migrations, applied in order, each once. The file's `user_version` is the number of applied ones.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_log.sql"),
    include_str!("migrations/0002_interrupts.sql"),
    include_str!("migrations/0003_places_children_files.sql"),
    include_str!("migrations/0004_probes.sql"),
    include_str!("migrations/0005_epochs_folding.sql"),
    include_str!("migrations/0006_sessions_turns.sql"),
    include_str!("migrations/0007_checksums_approvals.sql"),
    include_str!("migrations/0008_options.sql"),
    include_str!("migrations/0009_push.sql"),
    include_str!("migrations/0010_approved_actions.sql"),
    include_str!("migrations/0011_calls.sql"),
];

/// How long a statement waits for a lock of another program, such as a backup, before it fails.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How many prepared statements a connection caches: enough for all in this crate except the rarest list filters.
const STATEMENTS: usize = 96;

/// How long a checkpoint that holds the writer waits for readers of the log. Then it gives up.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_millis(5);

/// The writer's page cache in KiB. A small one is enough: the system's cache of the write-ahead log also holds the pages that the
/// writer has written, so a miss costs one read without the disk.
const WRITER_CACHE: i64 = 1024;

/// SQLite truncates the write-ahead log to this many bytes after a checkpoint. The limit exists so that one busy hour does not take
/// the disk space for ever. It is higher than the usual size of the log at its restart, because truncating takes the writer some 40
/// ms, and growing again takes longer.
const WAL_LIMIT: i64 = 128 * 1024 * 1024;

/// Opens the file for writing; creates and migrates it if necessary.
pub(super) fn open_writer(path: &Path, durability: Durability) -> Result<Connection> {
    create_private(path)?;
    Ok(prepare_writer(path, durability)?)
}

/// Opens the file for reading. It must have been opened for writing before.
pub(super) fn open_reader(path: &Path) -> Outcome<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Opens a file for reading that may be shorter than its header says.
pub(super) fn open_damaged(path: &Path) -> Outcome<Connection> {
    let db = open_reader(path)?;
    db.pragma_update(None, "writable_schema", true)?;
    Ok(db)
}

/// Opens the file for checkpoints only. It must have been opened for writing before.
pub(super) fn open_checkpointer(path: &Path, durability: Durability) -> Outcome<Connection> {
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    db.busy_timeout(CHECKPOINT_TIMEOUT)?;
    db.pragma_update(None, "synchronous", durability.synchronous())?;
    db.pragma_update(None, "journal_size_limit", WAL_LIMIT)?;
    Ok(db)
}

/// Opens the plain file, to sync it. It must have been opened for writing before. Closing it before the last connection drops
/// the locks that this process has on the file.
pub(super) fn open_file(path: &Path) -> Result<File> {
    File::open(path).map_err(Error::internal)
}

/// Checks that this program knows the file's schema and that the file has a schema.
pub(super) fn check_not_empty(db: &Connection) -> Result<()> {
    if check_schema(db, MIGRATIONS.len())? == 0 {
        return Err(Error::new(ErrorKind::Unavailable, "The store is empty: no gateway has used it yet."));
    }
    Ok(())
}

/// Checks that the file has the schema of this program.
pub(super) fn check_current(db: &Connection) -> Result<()> {
    check_not_empty(db)?;
    if applied(db)? < MIGRATIONS.len() {
        return Err(Error::new(
            ErrorKind::Unavailable,
            "The store was written by an earlier version and cannot be checked yet. Start this gateway once on it, then check.",
        ));
    }
    Ok(())
}

fn prepare_writer(path: &Path, durability: Durability) -> Outcome<Connection> {
    let mut db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // Check before anything is written, so that a refused file stays unchanged. Use a transaction, because another program may be
    // creating the tables.
    check_schema(&*db.transaction()?, MIGRATIONS.len())?;
    restrict_access(path).map_err(not_private)?;
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
    // The number is negative because a positive one would count pages.
    db.pragma_update(None, "cache_size", -WRITER_CACHE)?;
    migrate(&mut db, MIGRATIONS)?;
    files::remove_incomplete(&db)?;
    Ok(db)
}

fn connect(path: &Path, access: OpenFlags) -> Outcome<Connection> {
    // No mutex is needed, because only one thread at a time uses a connection. Without the URI flag, SQLite takes a path literally.
    let db = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    // Keep query plans independent of bound values. Otherwise SQLite would make a plan for each new value, which costs more than
    // most of the statements here.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(db)
}

/// File mode with access for the owner only, because the files hold what people wrote.
pub(super) const PRIVATE: u32 = 0o600;

/// Creates the file for its owner only, if it does not exist. SQLite gives `-wal` and `-shm` the mode of the file.
fn create_private(path: &Path) -> Result<()> {
    // Do not open an existing file, because closing it again would drop the locks that this process has on it.
    match OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::new(
            ErrorKind::Unavailable,
            "The gateway's store cannot be made in the data directory. Make sure that the directory is there and \
             that the gateway owns it.",
        )
        .caused_by(error)),
        _ => Ok(()),
    }
}

/// Removes the access of others from an existing file and its `-wal` and `-shm`, because the file may come from a backup or a copy.
/// Never adds a permission. Changes the files by name: opening and closing a file would drop locks (see [`create_private`]).
fn restrict_access(path: &Path) -> io::Result<()> {
    // Follow a link, because SQLite puts its files next to the link's target.
    let path = path.canonicalize()?;
    for suffix in ["", "-wal", "-shm"] {
        let mut name = OsString::from(&path);
        name.push(suffix);
        let mode = match fs::metadata(&name) {
            Ok(metadata) => metadata.permissions().mode(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if mode & 0o7777 & !PRIVATE != 0 {
            fs::set_permissions(&name, Permissions::from_mode(mode & PRIVATE))?;
        }
    }
    Ok(())
}

fn not_private(cause: io::Error) -> Fault {
    let error = Error::new(
        ErrorKind::Unavailable,
        "Others than the gateway may read its store, and the gateway cannot change that. Make sure that the gateway \
         owns the files of its data directory.",
    );
    Fault(error.caused_by(cause))
}

/// Applies the missing migrations, either all or none.
fn migrate(db: &mut Connection, migrations: &[&str]) -> Outcome<()> {
    // Use an immediate transaction, so that of two programs that start at once, the second sees the migrations of the first.
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let applied = check_schema(&transaction, migrations.len())?;
    for migration in &migrations[applied..] {
        transaction.execute_batch(migration)?;
    }
    if applied < migrations.len() {
        // A pragma takes no bound parameter, so the number is formatted into the text.
        transaction.execute_batch(&format!("PRAGMA user_version = {}", migrations.len()))?;
    }
    Ok(transaction.commit()?)
}

fn applied(db: &Connection) -> Outcome<usize> {
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    // Treat a negative version like one that is too large: this program knows neither.
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

/// Checks that this program may write the file. Returns the number of applied migrations.
fn check_schema(db: &Connection, known: usize) -> Outcome<usize> {
    let applied = applied(db)?;
    check_version(applied, known)?;
    if applied == 0 {
        check_empty(db)?;
    }
    Ok(applied)
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

/// Refuses a database without a version number that has tables, because it belongs to another program.
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
