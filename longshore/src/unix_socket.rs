//! The unix socket: created with its permissions, and removed at the end.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;
use rustix::process::umask;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, sleep};

use crate::config::listen::UnixPlan;
use crate::config::table;

/// How long the start waits for the lock of the directory, and how often it tries. The kernel does not notify when a lock becomes
/// free. After that time the start continues without the lock, because in a shared directory another user can hold it for ever.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_RETRY: Duration = Duration::from_millis(50);

const IN_USE: &str = "another process listens on it; end that process, or choose another path";

/// The file of a socket. Dropping this removes the file, unless another file has its name by then.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// The time when the file was made. The inode number alone is not enough, because some file systems reuse the number of a
    /// removed file.
    made: (i64, i64),
}

/// Listens on the socket. Replaces a file that an earlier process left behind.
pub(crate) async fn bind(plan: &UnixPlan) -> anyhow::Result<(UnixListener, SocketFile)> {
    let path = &plan.path;
    let setting = table::UNIX_SOCKET.key;
    let failed = || format!("cannot listen on the unix socket {} ({setting})", path.display());
    // The lock is needed because two gateways that start at once could both replace the old file, and one would remove the other's.
    let _lock = lock_directory(path).await.with_context(failed)?;
    remove_abandoned(path).await.with_context(failed)?;
    let listener = bind_with_mode(path, plan.mode).map_err(explained).with_context(failed)?;
    let metadata = std::fs::symlink_metadata(path).with_context(failed)?;
    let made = (metadata.mtime(), metadata.mtime_nsec());
    let file = SocketFile { path: path.clone(), device: metadata.dev(), inode: metadata.ino(), made };
    listener.set_nonblocking(true).with_context(failed)?;
    Ok((UnixListener::from_std(listener).with_context(failed)?, file))
}

async fn lock_directory(path: &Path) -> anyhow::Result<File> {
    let Some(parent) = path.parent() else { bail!("the path names no file; give the path of a file") };
    let directory =
        File::open(parent).context("its directory cannot be opened; create it, or choose another path")?;
    let patience = Instant::now() + LOCK_PATIENCE;
    // Stop waiting at any other error, because it means that the file system has no locks.
    while flock(&directory, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
        && Instant::now() < patience
    {
        sleep(LOCK_RETRY).await;
    }
    Ok(directory)
}

/// Removes the file of a socket on which no process listens any more.
async fn remove_abandoned(path: &Path) -> anyhow::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !metadata.file_type().is_socket() {
        bail!("there is another file with this name; choose another path, or remove the file");
    }
    match UnixStream::connect(path).await {
        Ok(_) => bail!("{IN_USE}"),
        // A process listens on the socket but accepts no connections, so their queue is full.
        Err(error) if error.kind() == ErrorKind::WouldBlock => bail!("{IN_USE}"),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)
            .context("the socket that an earlier process left behind cannot be removed"),
        Err(error) => {
            Err(error).context("the existing socket cannot be tried; remove it, or choose another path")
        }
    }
}

/// Binds the socket. Its file has the right permissions from the first moment on.
fn bind_with_mode(path: &Path, mode: u32) -> io::Result<StdListener> {
    // The mask applies to the whole process. At the start no other thread creates files; if one did, its file would only get fewer
    // permissions.
    let before = umask(Mode::from_raw_mode(!mode & 0o777));
    let bound = StdListener::bind(path);
    umask(before);
    bound
}

fn explained(error: io::Error) -> anyhow::Error {
    let is_too_long = error.kind() == ErrorKind::InvalidInput;
    let error = anyhow::Error::new(error);
    if is_too_long { error.context("the path is too long for a socket; choose a shorter one") } else { error }
}

impl SocketFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn is(&self, metadata: &Metadata) -> bool {
        (metadata.dev(), metadata.ino()) == (self.device, self.inode)
            && (metadata.mtime(), metadata.mtime_nsec()) == self.made
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_own = std::fs::symlink_metadata(&self.path).is_ok_and(|metadata| self.is(&metadata));
        if is_own && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, "the unix socket could not be removed; the next start replaces it");
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixSocket;

    use super::*;

    fn plan() -> (tempfile::TempDir, UnixPlan) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        (directory, UnixPlan { path, mode: 0o600, principal: None })
    }

    #[tokio::test]
    async fn the_socket_of_a_successor_stays_even_if_it_has_the_number_of_the_old_one() {
        let (directory, plan) = plan();
        let (listener, mut file) = bind(&plan).await.unwrap();
        drop(listener);
        // Wait until the file system's clock, which is coarse, has advanced.
        let probe = directory.path().join("probe");
        while {
            std::fs::write(&probe, "").unwrap();
            probe.metadata().unwrap().modified().unwrap()
                <= plan.path.symlink_metadata().unwrap().modified().unwrap()
        } {}
        let (_listener, successor) = bind(&plan).await.unwrap();
        // Pretend that the inode number was reused, as ext4 does.
        file.inode = successor.inode;
        drop(file);
        assert!(plan.path.exists());
        drop(successor);
        assert!(!plan.path.exists());
    }

    #[tokio::test]
    async fn a_socket_whose_listener_is_stuck_is_in_use() {
        let (_directory, plan) = plan();
        let socket = UnixSocket::new_stream().unwrap();
        socket.bind(&plan.path).unwrap();
        let _stuck = socket.listen(0).unwrap();
        let _waiting = UnixStream::connect(&plan.path).await.unwrap();
        let error = bind(&plan).await.unwrap_err();
        assert!(format!("{error:#}").contains("another process listens on it"), "{error:#}");
    }

    #[tokio::test]
    async fn a_lock_that_another_process_holds_does_not_prevent_the_start() {
        let (directory, plan) = plan();
        let held = File::open(directory.path()).unwrap();
        flock(&held, FlockOperation::LockShared).unwrap();
        bind(&plan).await.unwrap();
    }
}
