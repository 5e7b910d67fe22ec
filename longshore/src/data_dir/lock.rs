//! The lock of a data directory. One process at a time holds it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};
use tokio::time::Instant;

use super::files::cannot_write;
use crate::output;

/// How often a process that waits tries to get the lock. The kernel does not notify when a lock becomes free.
const RETRY_EVERY: Duration = Duration::from_millis(100);

/// The shortest wait for a lock. Another command may hold the lock for a moment, only to check whether it is free.
pub(super) const GLANCE: Duration = Duration::from_millis(300);

/// Opens the lock file. Creates it and its directory if necessary.
pub(super) fn lock_file(path: &Path) -> anyhow::Result<File> {
    create(path)?;
    warn_if_open_to_others(path)?;
    let file = path.join("lock");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(&file).with_context(|| cannot_write(&file))
}

/// Tries to lock the file. Returns false if another process holds the lock.
pub(super) fn try_lock(lock: &File, path: &Path) -> anyhow::Result<bool> {
    match flock(lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Tries to lock the file for up to `patience`. Returns false if another process still holds the lock then.
pub(super) async fn lock_within(patience: Duration, lock: &File, path: &Path) -> anyhow::Result<bool> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        tokio::time::sleep_until(deadline.min(Instant::now() + RETRY_EVERY)).await;
        if try_lock(lock, path)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The process that holds a data directory, as the text " (process 123)". Empty if the lock file does not name it.
pub(super) fn holder(path: &Path) -> String {
    match std::fs::read_to_string(path.join("lock")) {
        Ok(text) if text.trim().parse::<u32>().is_ok() => format!(" (process {})", text.trim()),
        _ => String::new(),
    }
}

fn create(path: &Path) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot create the data directory {}", path.display()))?;
    Ok(())
}

fn warn_if_open_to_others(path: &Path) -> io::Result<()> {
    let mode = path.metadata()?.permissions().mode() & 0o777;
    // Do not change the directory's mode, because other users may need access to it. The files in it are private anyway.
    if mode & 0o077 != 0 {
        output::warn(format_args!(
            "the data directory {} is open to other users (mode {mode:o}); `chmod 700` closes it",
            path.display()
        ));
    }
    Ok(())
}
