//! Replaces a file as a whole: a new file takes the place of the old one in one step, so that a reader sees either the old
//! content or the new content. If the old file has other names (hard links), they keep the old content.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

use super::{AllowedDirectories, STEP, open_file};
use crate::ProtectedPaths;

/// The permissions of a file that did not exist before, before the umask is applied.
const NEW: u32 = 0o666;

/// How many names are tried for the draft. A name is in use only if a process with the same number left a draft behind.
const MAX_TRIES: usize = 100;

impl AllowedDirectories {
    /// Replaces a regular file, or creates one in an existing directory. Follows a symbolic link if its target is below an allowed
    /// directory. Fails for a file that the gateway may not write, and for a file of `protected`.
    pub fn replace(&self, path: &Path, content: &[u8], protected: &ProtectedPaths) -> io::Result<()> {
        let path = match path.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
                    return Err(io::Error::other("not a file"));
                };
                directory.canonicalize()?.join(name)
            }
            found => found?,
        };
        let (directory, name) = self.open_directory_of(&path)?;
        let old = match open_file(&directory, name, OFlags::RDWR) {
            Ok(file) => Some(file.metadata()?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let is_protected = match &old {
            Some(metadata) => protected.deny_found(&path, metadata),
            None => protected.deny(&path),
        };
        if is_protected {
            return Err(io::Error::other("a file of the gateway itself"));
        }
        let mode = old.map(|old| old.permissions().mode() & 0o777);
        // The draft is created with the old permissions, so that nobody who may not read the old file can ever read the draft.
        let (draft, mut file) = create_draft(&directory, mode.unwrap_or(NEW))?;
        // The umask may have removed permissions when the draft was created.
        let kept = mode.map_or(Ok(()), |mode| file.set_permissions(Permissions::from_mode(mode)));
        let written = kept
            .and_then(|()| file.write_all(content))
            // Without this, a power failure could keep the new name but lose the content.
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(renameat(&directory, draft.as_str(), &directory, name)?));
        if written.is_err() {
            // The result is ignored: the first error says more than an error of the clean-up.
            let _ = unlinkat(&directory, draft.as_str(), AtFlags::empty());
        }
        written
    }
}

/// Creates a new file beside the file that it will replace.
fn create_draft(directory: &OwnedFd, mode: u32) -> io::Result<(String, File)> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let flags = STEP | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut tries = 0;
    loop {
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!(".longshore-draft-{}-{number}", std::process::id());
        match openat(directory, OsStr::new(&name), flags, Mode::from_raw_mode(mode)) {
            Ok(file) => return Ok((name, file.into())),
            Err(rustix::io::Errno::EXIST) if tries < MAX_TRIES => tries += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::path::PathBuf;
    use std::sync::atomic::AtomicBool;

    use super::*;

    struct World {
        _holder: tempfile::TempDir,
        inside: PathBuf,
        outside: PathBuf,
        protected: ProtectedPaths,
    }

    fn world() -> World {
        let holder = tempfile::tempdir().unwrap();
        let root = holder.path().canonicalize().unwrap();
        let (inside, outside) = (root.join("inside"), root.join("outside"));
        fs::create_dir_all(inside.join("sub")).unwrap();
        fs::create_dir_all(inside.join("data")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(inside.join("file"), "old").unwrap();
        fs::write(inside.join("data/token"), "token").unwrap();
        fs::write(outside.join("file"), "secret").unwrap();
        let protected = ProtectedPaths::new([inside.join("data"), inside.join("longshore.toml")]);
        World { _holder: holder, inside, outside, protected }
    }

    impl World {
        fn replace(&self, path: &Path) -> io::Result<()> {
            AllowedDirectories::resolve(&[&self.inside]).replace(path, b"new", &self.protected)
        }

        /// The names of all files in the workspace.
        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.inside).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    #[test]
    fn a_file_is_replaced_or_made_and_keeps_its_permissions() {
        let world = world();
        symlink(world.inside.join("file"), world.inside.join("link")).unwrap();
        fs::set_permissions(world.inside.join("file"), Permissions::from_mode(0o751)).unwrap();
        for path in ["link", "sub/new", "sub/../made"] {
            world.replace(&world.inside.join(path)).unwrap();
            assert_eq!(fs::read_to_string(world.inside.join(path)).unwrap(), "new", "{path}");
        }
        assert!(world.inside.join("link").is_symlink());
        assert_eq!(world.inside.join("file").metadata().unwrap().mode() & 0o777, 0o751);
        assert_eq!(world.names(), ["data", "file", "link", "made", "sub"]);
    }

    #[test]
    fn a_private_file_stays_private_while_it_is_written() {
        let world = world();
        fs::set_permissions(world.inside.join("file"), Permissions::from_mode(0o600)).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut modes = BTreeSet::new();
                while !is_over.load(Ordering::Relaxed) {
                    let entries = fs::read_dir(&world.inside).unwrap().map(Result::unwrap);
                    for draft in
                        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(".longshore"))
                    {
                        // The draft may have been renamed to its final name meanwhile.
                        modes.extend(draft.metadata().map(|metadata| metadata.mode() & 0o777));
                    }
                }
                modes
            });
            let content = vec![b'x'; 4 * 1024 * 1024];
            let directories = AllowedDirectories::resolve(&[&world.inside]);
            let path = world.inside.join("file");
            let written = (0..20).try_for_each(|_| directories.replace(&path, &content, &world.protected));
            is_over.store(true, Ordering::Relaxed);
            let modes = watcher.join().unwrap();
            written.unwrap();
            assert!(modes.is_subset(&BTreeSet::from([0o600])), "{modes:?}");
        });
    }

    #[test]
    fn nothing_outside_and_nothing_of_the_gateway_is_written() {
        let world = world();
        symlink(world.outside.join("file"), world.inside.join("link")).unwrap();
        symlink(&world.outside, world.inside.join("directory")).unwrap();
        symlink(world.outside.join("absent"), world.inside.join("dangling")).unwrap();
        symlink(world.inside.join("data"), world.inside.join("alias")).unwrap();
        fs::hard_link(world.inside.join("data/token"), world.inside.join("hard")).unwrap();
        fs::hard_link(world.outside.join("file"), world.inside.join("shared")).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(world.inside.join("pipe")).status();
        assert!(pipe.unwrap().success());
        for path in [
            "../outside/file",
            "../outside/new",
            "link",
            "directory/file",
            "directory/new",
            "data/token",
            "data/new",
            "alias/new",
            "hard",
            "longshore.toml",
            "sub",
            "pipe",
            "absent/new",
            "dangling",
            "sub/..",
        ] {
            world.replace(&world.inside.join(path)).unwrap_err();
        }
        // The replaced hard link no longer shares its content with the other names.
        world.replace(&world.inside.join("shared")).unwrap();
        assert_eq!(fs::read_to_string(world.outside.join("file")).unwrap(), "secret");
        assert_eq!(fs::read_dir(&world.outside).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(world.inside.join("data/token")).unwrap(), "token");
        let left = world.names().iter().any(|name| name.starts_with(".longshore"));
        assert!(!left && !world.inside.join("longshore.toml").exists(), "{:?}", world.names());
    }
}
