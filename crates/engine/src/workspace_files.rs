//! Files of the workspace. Each file is opened once, without leaving the workspace, and is then read only through the open
//! handle. Files are written in the same way: relative to an open directory.

mod replace;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use sha2::{Digest as _, Sha256};

use crate::ProtectedPaths;
use crate::port::ContentFacts;

/// The resolved directories whose files may be read or written.
#[derive(Debug)]
pub struct AllowedDirectories {
    roots: Vec<PathBuf>,
    /// If set, only files below this directory are allowed.
    within: Option<PathBuf>,
}

/// A regular file below one of the allowed directories.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    /// The path without symbolic links.
    pub(crate) path: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) facts: ContentFacts,
    /// The whole content. `None`: it is longer than the `keep` argument of `read` allows.
    pub(crate) kept: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(crate) enum ReadError {
    TooLarge,
    Failed(io::Error),
}

impl AllowedDirectories {
    /// Resolves the directories. Leaves out a directory that does not exist, because it has no files.
    pub fn resolve(directories: &[&Path]) -> Self {
        let resolved = directories.iter().filter(|directory| directory.is_absolute());
        let roots = resolved.filter_map(|directory| directory.canonicalize().ok()).collect();
        Self { roots, within: None }
    }

    /// Allows files below `directory`, which was resolved earlier and is below `root`. If `directory`, or a directory between the
    /// two, has become a symbolic link since, no file is allowed.
    pub fn below(root: &Path, directory: &Path) -> Self {
        Self { within: Some(directory.to_owned()), ..Self::resolve(&[root]) }
    }

    /// Finds and opens a regular file. Symbolic links are followed as long as they lead to a file below one of the allowed
    /// directories.
    pub fn open(&self, path: &Path, protected: &ProtectedPaths) -> io::Result<OpenFile> {
        let found = self.open_resolved(path.canonicalize()?)?;
        if protected.deny_found(&found.path, &found.file.metadata()?) {
            return Err(io::Error::other("a file of the gateway itself"));
        }
        Ok(found)
    }

    /// Opens a resolved path. If the path contains symbolic links now, they were created after it was resolved, and the path is not
    /// opened.
    fn open_resolved(&self, path: PathBuf) -> io::Result<OpenFile> {
        let (directory, name) = self.open_directory_of(&path)?;
        let file = open_file(&directory, name, OFlags::RDONLY)?;
        Ok(OpenFile { file, path })
    }

    /// Opens the parent directory of a resolved path. Also returns the name of the file in that directory.
    fn open_directory_of<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
        let is_within = self.within.as_ref().is_none_or(|directory| path.starts_with(directory));
        let below = |root: &'_ PathBuf| Some((root.clone(), path.strip_prefix(root).ok()?));
        let found = self.roots.iter().find_map(below).filter(|_| is_within);
        let (root, rest) = found.ok_or_else(|| io::Error::other("outside the workspace"))?;
        open_directory(&root, rest)
    }
}

impl OpenFile {
    pub(crate) fn read_whole(self, limit: u64, keep: u64) -> Result<Content, ReadError> {
        if self.file.metadata().map_err(ReadError::Failed)?.len() > limit {
            return Err(ReadError::TooLarge);
        }
        read(self.file, limit, keep)
    }
}

/// Reads the file piece by piece, for callers that need only a part.
impl Read for OpenFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

/// Reads to the end, or until there are more than `limit` bytes, because a file may grow while it is read.
fn read(mut file: impl Read, limit: u64, keep: u64) -> Result<Content, ReadError> {
    let mut hasher = Sha256::new();
    let mut kept = Some(Vec::new());
    let mut total = 0_u64;
    let mut chunk = vec![0; CHUNK];
    loop {
        let chunk = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => &chunk[..read],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ReadError::Failed(error)),
        };
        total += chunk.len() as u64;
        if total > limit {
            return Err(ReadError::TooLarge);
        }
        hasher.update(chunk);
        kept = kept.filter(|_| total <= keep);
        if let Some(kept) = &mut kept {
            kept.extend_from_slice(chunk);
        }
    }
    Ok(Content { facts: ContentFacts { bytes: total, sha256: hasher.finalize().into() }, kept })
}

const CHUNK: usize = 64 * 1024;

/// The flags with which each component of a path is opened.
const STEP: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);

/// Opens one path component after the other, each relative to the directory opened before, and follows no symbolic link. So no
/// concurrent change of the path can lead out of the allowed directory. Returns the last directory, and the name of the file in
/// it.
fn open_directory<'p>(root: &Path, rest: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
    let mut names = Vec::new();
    for component in rest.components() {
        match component {
            Component::Normal(name) => names.push(name),
            _ => return Err(io::Error::other("not a resolved path")),
        }
    }
    let last = names.pop().ok_or_else(|| io::Error::other("not a regular file"))?;
    let flags = STEP | OFlags::RDONLY | OFlags::DIRECTORY;
    let mut directory = openat(CWD, root, flags, Mode::empty())?;
    for name in names {
        directory = openat(&directory, name, flags, Mode::empty())?;
    }
    Ok((directory, last))
}

/// Opens a regular file in an open directory. `access`: whether for reading only, or also for writing.
fn open_file(directory: &OwnedFd, name: &OsStr, access: OFlags) -> io::Result<File> {
    // `NONBLOCK`: opening a pipe does not wait for its other end. `NOCTTY`: a terminal does not become the controlling one.
    let flags = STEP | access | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(openat(directory, name, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A workspace with a file, and a file outside that no caller may see.
    struct TestWorkspace {
        _holder: tempfile::TempDir,
        inside: PathBuf,
        outside: PathBuf,
        allowed: AllowedDirectories,
    }

    fn workspace() -> TestWorkspace {
        let holder = tempfile::tempdir().unwrap();
        let (inside, outside) = (holder.path().join("inside"), holder.path().join("outside"));
        fs::create_dir_all(inside.join("sub")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(inside.join("sub/file"), "inside").unwrap();
        fs::write(outside.join("file"), "secret").unwrap();
        let allowed =
            AllowedDirectories::resolve(&[&inside, Path::new("relative"), Path::new("/no/such/place")]);
        assert_eq!(allowed.roots.len(), 1);
        TestWorkspace { _holder: holder, inside, outside, allowed }
    }

    fn fifo(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn a_file_that_becomes_a_link_after_it_was_resolved_is_not_opened() {
        let workspace = workspace();
        let path = workspace.inside.join("sub/file").canonicalize().unwrap();
        assert!(workspace.allowed.open_resolved(path.clone()).is_ok());
        fs::remove_file(&path).unwrap();
        symlink(workspace.outside.join("file"), &path).unwrap();
        workspace.allowed.open_resolved(path.clone()).unwrap_err();
        workspace.allowed.open(&path, &ProtectedPaths::default()).unwrap_err();
    }

    #[test]
    fn a_directory_that_becomes_a_link_after_it_was_resolved_is_not_followed() {
        let workspace = workspace();
        let path = workspace.inside.join("sub/file").canonicalize().unwrap();
        fs::rename(workspace.inside.join("sub"), workspace.inside.join("moved")).unwrap();
        symlink(&workspace.outside, workspace.inside.join("sub")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret", "an ordinary open follows the link");
        workspace.allowed.open_resolved(path).unwrap_err();
    }

    #[test]
    fn a_directory_that_became_a_link_allows_nothing() {
        let workspace = workspace();
        let root = workspace.inside.canonicalize().unwrap();
        let directory = root.join("sub");
        let open = |path: &str| {
            let allowed = AllowedDirectories::below(&root, &directory);
            allowed.open(&directory.join(path), &ProtectedPaths::default())
        };
        fs::write(root.join("beside"), "beside").unwrap();
        open("file").unwrap();
        open("../beside").unwrap_err();
        fs::rename(&directory, root.join("moved")).unwrap();
        for target in [&workspace.outside, &root.join("moved")] {
            symlink(target, &directory).unwrap();
            open("file").unwrap_err();
            fs::remove_file(&directory).unwrap();
        }
    }

    #[test]
    fn a_file_that_becomes_a_pipe_after_it_was_resolved_does_not_block() {
        let workspace = workspace();
        let path = workspace.inside.join("sub/file").canonicalize().unwrap();
        fs::remove_file(&path).unwrap();
        fifo(&path);
        let error = workspace.allowed.open_resolved(path).unwrap_err();
        assert_eq!(error.to_string(), "not a regular file");
    }

    #[test]
    fn an_opened_file_is_read_even_when_its_path_changes() {
        let workspace = workspace();
        let path = workspace.inside.join("sub/file");
        let found = workspace.allowed.open(&path, &ProtectedPaths::default()).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(workspace.outside.join("file"), &path).unwrap();
        assert_eq!(found.read_whole(100, 100).unwrap().kept.as_deref(), Some(b"inside".as_slice()));
    }

    #[test]
    fn a_file_that_grows_without_end_is_read_to_the_limit_only() {
        assert!(matches!(read(io::repeat(b'x'), 2 * CHUNK as u64, 10), Err(ReadError::TooLarge)));
    }

    #[test]
    fn a_file_that_grew_since_it_was_opened_is_checked_at_its_new_size() {
        let workspace = workspace();
        let path = workspace.inside.join("sub/file");
        let found = workspace.allowed.open(&path, &ProtectedPaths::default()).unwrap();
        fs::write(&path, "more than before").unwrap();
        assert!(matches!(found.read_whole(6, 6), Err(ReadError::TooLarge)));
    }

    #[test]
    fn the_content_is_hashed_whole_and_kept_when_it_is_short() {
        let workspace = workspace();
        let path = workspace.inside.join("big");
        let content: Vec<u8> = (0..=255).cycle().take(2 * CHUNK + 77).collect();
        fs::write(&path, &content).unwrap();
        let length = content.len() as u64;
        for (limit, keep, expected) in
            [(length, length, Some(true)), (length, length - 1, Some(false)), (length - 1, 0, None)]
        {
            let read =
                workspace.allowed.open(&path, &ProtectedPaths::default()).unwrap().read_whole(limit, keep);
            assert_eq!(read.as_ref().ok().map(|read| read.kept.is_some()), expected, "{limit} {keep}");
            if let Ok(read) = read {
                let facts = ContentFacts { bytes: length, sha256: Sha256::digest(&content).into() };
                assert_eq!(read.facts, facts);
                assert!(read.kept.is_none_or(|kept| kept == content));
            }
        }
    }
}
