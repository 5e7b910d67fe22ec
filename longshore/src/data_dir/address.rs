//! The recorded address of the gateway that serves a data directory, for commands that call it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};

use super::DataDir;
use super::files::write_private_with;

/// The file with the address at which this machine reaches the gateway. A running gateway holds a lock on it.
pub(super) const ADDRESS: &str = "address";

/// The recorded address of this gateway. It must be dropped before the gateway closes its listeners, because another program could
/// then listen at the address and must not get the token.
#[derive(Debug)]
pub(crate) struct NotedAddress {
    path: PathBuf,
    /// The locked file. The kernel releases the lock when the process is killed.
    _lock: File,
}

impl Drop for NotedAddress {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, "could not remove the address of the gateway from the data directory");
        }
    }
}

impl DataDir {
    /// Records the address of the gateway for commands that call it. A failure, for example on a full disk, does not prevent the
    /// start, because these commands also accept a URL.
    pub(crate) fn note_address(&self, address: &str) -> Option<NotedAddress> {
        let path = self.path.join(ADDRESS);
        let noted = write_private_with(&path, address, |file| {
            Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
        });
        match noted {
            Ok(file) => Some(NotedAddress { path, _lock: file }),
            Err(error) => {
                tracing::warn!(%error, "could not note the address of the gateway in the data directory");
                None
            }
        }
    }
}

/// The address of the running gateway of a data directory. `None`: no gateway runs.
pub(crate) fn address(path: &Path) -> anyhow::Result<Option<String>> {
    let path = path.join(ADDRESS);
    let cannot_read = || format!("cannot read {}", path.display());
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.with_context(cannot_read)?,
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => {}
        // The lock was free: a gateway that was killed has left the file behind.
        Ok(()) => return Ok(None),
        Err(error) => return Err(error).with_context(cannot_read),
    }
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(cannot_read)?;
    Ok(Some(text.strip_suffix('\n').unwrap_or(&text).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::files::write_private;
    use crate::data_dir::tests::mode;

    #[test]
    fn only_the_address_of_a_gateway_that_runs_is_known() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let known = || address(&path).unwrap();
        assert_eq!(known(), None);
        let data_dir = DataDir::take(&path).unwrap();
        let noted = data_dir.note_address("http://127.0.0.1:1").unwrap();
        for _ in 0..2 {
            assert_eq!(known().as_deref(), Some("http://127.0.0.1:1"), "asking changes nothing");
        }
        assert_eq!(mode(&path.join(ADDRESS)), 0o600);
        drop(noted);
        assert!(!path.join(ADDRESS).exists());
        // The file in the state in which a killed gateway, or one of an earlier version, leaves it.
        write_private(&path.join(ADDRESS), "http://127.0.0.1:2").unwrap();
        assert_eq!(known(), None);
        let _noted = data_dir.note_address("http://127.0.0.1:3").unwrap();
        assert_eq!(known().as_deref(), Some("http://127.0.0.1:3"));
    }
}
