//! Reads files on this machine that others may change at any time. A file is opened once, without following links, and is then
//! inspected only through the open handle.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use longshore_engine::ProtectedPaths;
use rustix::fs::{CWD, Mode, OFlags, openat};

/// Resolves all links of a path. Returns the directory and the path relative to it. `None`: there is no such file in the directory.
pub(crate) async fn inside(directory: &Path, path: &Path) -> Option<(PathBuf, PathBuf)> {
    let directory = tokio::fs::canonicalize(directory).await.ok()?;
    let path = tokio::fs::canonicalize(directory.join(path)).await.ok()?;
    let rest = path.strip_prefix(&directory).ok()?.to_owned();
    Some((directory, rest))
}

/// Whether one of these absolute paths is protected from callers. A path that could not be checked counts as protected.
pub(crate) async fn is_protected(
    protected: &Arc<ProtectedPaths>,
    paths: impl IntoIterator<Item = impl Into<PathBuf>>,
) -> bool {
    let (protected, paths) =
        (Arc::clone(protected), paths.into_iter().map(Into::into).collect::<Vec<PathBuf>>());
    let is_denied = move || paths.iter().any(|path| protected.deny(path));
    tokio::task::spawn_blocking(is_denied).await.unwrap_or(true)
}

/// Reads the first `most` bytes of a regular file. `rest` must be resolved. If it contains a link now, the link was created later,
/// and nothing is read.
pub(crate) async fn read(directory: PathBuf, rest: PathBuf, most: u64) -> io::Result<Vec<u8>> {
    let read = move || {
        let file = open_below(&directory, &rest)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}

/// Opens each component of the path relative to the open handle of the one before.
fn open_below(directory: &Path, rest: &Path) -> io::Result<File> {
    let step = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut names = Vec::new();
    for component in rest.components() {
        match component {
            Component::Normal(name) => names.push(name),
            _ => return Err(io::Error::other("not a resolved path")),
        }
    }
    let last = names.pop().ok_or_else(|| io::Error::other("not a regular file"))?;
    let mut at = openat(CWD, directory, step | OFlags::DIRECTORY, Mode::empty())?;
    for name in names {
        at = openat(&at, name, step | OFlags::DIRECTORY, Mode::empty())?;
    }
    // NONBLOCK: opening a pipe does not wait for its writer. NOCTTY: a terminal does not become the controlling terminal.
    let file = openat(&at, last, step | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[tokio::test]
    async fn a_path_that_changes_after_it_was_resolved_neither_leads_outside_nor_blocks() {
        for what in ["the file", "a link", "a link above", "a pipe", "a directory"] {
            let temp = tempfile::tempdir().unwrap();
            let (inside, outside) = (temp.path().join("inside"), temp.path().join("outside"));
            fs::create_dir_all(inside.join("sub")).unwrap();
            fs::create_dir_all(&outside).unwrap();
            fs::write(inside.join("sub/file"), "inside").unwrap();
            fs::write(outside.join("file"), "secret").unwrap();
            let (base, rest) = super::inside(&inside, Path::new("sub/file")).await.unwrap();
            let path = base.join(&rest);
            if !matches!(what, "the file" | "a link above") {
                fs::remove_file(&path).unwrap();
            }
            match what {
                "a link" => symlink(outside.join("file"), &path).unwrap(),
                "a link above" => {
                    fs::rename(inside.join("sub"), inside.join("moved")).unwrap();
                    symlink(&outside, inside.join("sub")).unwrap();
                }
                "a pipe" => {
                    rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
                }
                "a directory" => fs::create_dir(&path).unwrap(),
                _ => {}
            }
            for (most, expected) in [(100, b"inside".as_slice()), (3, b"ins")] {
                let read = read(base.clone(), rest.clone(), most).await;
                match what {
                    "the file" => assert_eq!(read.unwrap(), expected),
                    _ => assert!(read.is_err(), "{what}: {read:?}"),
                }
            }
        }
    }

    #[tokio::test]
    async fn a_file_outside_the_directory_is_not_found() {
        let temp = tempfile::tempdir().unwrap();
        let directory = temp.path().join("inside");
        fs::create_dir_all(&directory).unwrap();
        fs::write(temp.path().join("secret"), "").unwrap();
        symlink(temp.path().join("secret"), directory.join("link")).unwrap();
        fs::write(directory.join("file"), "").unwrap();
        for (path, is_inside) in [("file", true), ("link", false), ("../secret", false), ("none", false)] {
            assert_eq!(inside(&directory, Path::new(path)).await.is_some(), is_inside, "{path}");
        }
    }
}
