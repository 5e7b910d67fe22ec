//! One at a time: starting, adopting, restarting and ending the OpenCode of a data directory.

use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use longshore_model::Result;
use tokio::time::Instant;

/// How often it is tried again.
const TRY_EVERY: Duration = Duration::from_millis(50);

/// Held until it is dropped, or its process ends.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock, but no longer than `patience`.
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
                        "Another Longshore is starting or ending the OpenCode of this data directory and does not \
                         come to an end. End it, or use another data directory.",
                    ));
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(TRY_EVERY).await,
            }
        }
    }
}
