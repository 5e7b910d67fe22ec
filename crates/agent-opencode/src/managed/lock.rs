//! A lock that lets only one process at a time start, adopt, restart or terminate the OpenCode of a data directory.

use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use longshore_model::Result;
use tokio::time::Instant;

/// How often the lock is tried.
const TRY_EVERY: Duration = Duration::from_millis(50);

/// The lock. It is held until this is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock for at most `patience`.
    pub(super) async fn take(data_dir: &Path, patience: Duration) -> Result<Self> {
        let deadline = Instant::now() + patience;
        let broken = |source: std::io::Error| {
            super::unavailable("The data directory cannot be locked, so OpenCode cannot be managed.")
                .caused_by(source)
        };
        let file = File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(data_dir.join("managed.lock"))
            .map_err(broken)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::Error(source)) => return Err(broken(source)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(super::unavailable(
                        "Another Longshore has been starting or stopping the OpenCode of this data directory for too long. \
                         End that process, or use another data directory.",
                    ));
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(TRY_EVERY).await,
            }
        }
    }
}
