//! The free space of a disk.

use std::path::Path;

/// The free bytes of the disk that holds the path, without those that only root may use. `None`: the system does not report them.
pub(crate) fn free_space(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}
