//! The gateway's own secrets on the disk: its configuration, its data directory, and the credentials of the agent. No caller
//! may read, name, list or remove them through the gateway, wherever they are.
//!
//! A path is judged by its target and not by its spelling. Symbolic links are resolved, and every directory above the target is
//! compared by device and inode, so that a mount or a file system that ignores case gives no second name. A file with several
//! names (hard links) is compared with every protected file.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// The most protected files with which a file with several names is compared. If there are more, that file is refused.
const MAX_COMPARED: usize = 100_000;

/// Always protected, because it holds the environment of every process of this user, and so passwords.
const KERNEL_FILES: &str = "/proc";

/// Files and directories that callers must not reach. A directory protects everything below it.
#[derive(Clone, Debug, Default)]
pub struct ProtectedPaths {
    paths: Vec<PathBuf>,
    exceptions: Vec<PathBuf>,
}

/// Identifies a file or directory independently of its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::of(&metadata))
    }
}

impl ProtectedPaths {
    /// Protects these absolute paths. They may be symbolic links, and need not exist yet.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { paths: paths.into_iter().flat_map(with_target).collect(), exceptions: Vec::new() }
    }

    /// Excepts directories below the protected ones, so that callers may use them.
    #[must_use]
    pub fn except(mut self, directories: impl IntoIterator<Item = PathBuf>) -> Self {
        self.exceptions.extend(directories.into_iter().flat_map(with_target));
        self
    }

    /// Whether an absolute path leads to a protected file or into a protected directory. The path need not exist. Does disk IO.
    pub fn deny(&self, path: &Path) -> bool {
        let path = resolve(path);
        match fs::metadata(&path) {
            Ok(metadata) => self.deny_found(&path, &metadata),
            Err(_) => path.starts_with(KERNEL_FILES) || self.cover(&path),
        }
    }

    /// Like [`ProtectedPaths::deny`], for an existing file. `path` must be resolved. `metadata` may come from the open file.
    pub fn deny_found(&self, path: &Path, metadata: &Metadata) -> bool {
        path.starts_with(KERNEL_FILES)
            || self.cover(path)
            || (metadata.is_file() && metadata.nlink() > 1 && self.hold(Identity::of(metadata)))
    }

    /// Whether a directory is or contains a protected path, so that removing the directory would remove the path too.
    pub fn are_within(&self, directory: &Path) -> bool {
        let directory = resolve(directory);
        let identity = Identity::at(&directory);
        let is_it =
            |above: &Path| above == directory || (identity.is_some() && Identity::at(above) == identity);
        let is_above = |path: &Path| path.ancestors().any(is_it);
        self.paths.iter().any(|path| is_above(path) || is_above(&resolve(path)))
    }

    /// Whether a path is a protected path or below one. The nearest directory above it that is protected or excepted decides.
    fn cover(&self, path: &Path) -> bool {
        let identities = |paths: &[PathBuf]| paths.iter().map(|path| Identity::at(path)).collect::<Vec<_>>();
        let (protected, open) = (identities(&self.paths), identities(&self.exceptions));
        for above in path.ancestors() {
            let identity = Identity::at(above);
            let is_one_of = |paths: &[PathBuf], identities: &[Option<Identity>]| {
                paths.iter().any(|path| path == above)
                    || (identity.is_some() && identities.contains(&identity))
            };
            if is_one_of(&self.exceptions, &open) {
                return false;
            }
            if is_one_of(&self.paths, &protected) {
                return true;
            }
        }
        false
    }

    /// Whether one of the protected files has this identity.
    fn hold(&self, wanted: Identity) -> bool {
        let mut waiting = self.paths.clone();
        for compared in 0.. {
            let Some(path) = waiting.pop() else { return false };
            let is_wanted = Identity::at(&path) == Some(wanted);
            if is_wanted || compared == MAX_COMPARED {
                return true;
            }
            if !self.exceptions.contains(&path)
                && fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir())
            {
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                waiting.extend(entries.map(|entry| entry.path()));
            }
        }
        false
    }
}

/// Whether `path` leads to `directory` or to something inside it. The path need not exist.
pub fn leads_into(path: &Path, directory: &Path) -> bool {
    ProtectedPaths::new([directory.to_owned()]).cover(&resolve(path))
}

/// Returns both the path itself, because its links can change, and the path that it leads to now.
fn with_target(path: PathBuf) -> impl Iterator<Item = PathBuf> {
    let target = Some(resolve(&path)).filter(|target| *target != path);
    std::iter::once(path).chain(target)
}

/// Resolves the symbolic links of the path, as far as the path exists. In the rest, `..` is resolved by text only, as programs
/// do that do not read the disk.
fn resolve(path: &Path) -> PathBuf {
    let (mut existing, mut rest) = (path, Vec::new());
    let mut resolved = loop {
        if let Ok(resolved) = existing.canonicalize() {
            break resolved;
        }
        let mut components = existing.components();
        let Some(last) = components.next_back() else { return path.to_owned() };
        rest.push(last);
        existing = components.as_path();
    };
    for component in rest.into_iter().rev() {
        match component {
            Component::Normal(name) => resolved.push(name),
            Component::ParentDir => drop(resolved.pop()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    resolved
}

#[cfg(test)]
mod tests;
