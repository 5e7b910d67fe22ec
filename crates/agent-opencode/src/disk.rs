//! Files on this machine, which others may change at any time: opened once, without following a link, and looked at
//! through the open handle only.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

/// The path below a directory, links resolved. `None`: it is not there, or is not in it.
pub(crate) async fn inside(directory: &Path, path: &Path) -> Option<(PathBuf, PathBuf)> {
    let directory = tokio::fs::canonicalize(directory).await.ok()?;
    let path = tokio::fs::canonicalize(directory.join(path)).await.ok()?;
    let rest = path.strip_prefix(&directory).ok()?.to_owned();
    Some((directory, rest))
}

/// The content of a regular file, or its first `most` bytes. `rest` has no links in it: if it has some by now, somebody
/// put them there since it was resolved, and nothing is read.
pub(crate) async fn read(directory: PathBuf, rest: PathBuf, most: u64) -> io::Result<Vec<u8>> {
    let read = move || {
        let file = open_below(&directory, &rest)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}

/// Goes down step by step, each step inside the directory that the one before has open.
fn open_below(directory: &Path, rest: &Path) -> io::Result<File> {
    let step = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut names = Vec::new();
    for component in rest.components() {
        match component {
            Component::Normal(name) => names.push(name),
            _ => return Err(io::Error::other("it is no resolved path")),
        }
    }
    let last = names.pop().ok_or_else(|| io::Error::other("it is no regular file"))?;
    let mut at = openat(CWD, directory, step | OFlags::DIRECTORY, Mode::empty())?;
    for name in names {
        at = openat(&at, name, step | OFlags::DIRECTORY, Mode::empty())?;
    }
    // Not to wait for the other end of a pipe, nor to make a terminal ours.
    let file = openat(&at, last, step | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[tokio::test]
    async fn nothing_that_changes_after_a_path_was_resolved_leads_out_or_holds_up() {
        for what in ["the file", "a link", "a link above", "a pipe", "a directory"] {
            let place = tempfile::tempdir().unwrap();
            let (inside, outside) = (place.path().join("inside"), place.path().join("outside"));
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
    async fn what_is_outside_is_not_found() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("inside");
        fs::create_dir_all(&directory).unwrap();
        fs::write(place.path().join("secret"), "").unwrap();
        symlink(place.path().join("secret"), directory.join("link")).unwrap();
        fs::write(directory.join("file"), "").unwrap();
        for (path, is_inside) in [("file", true), ("link", false), ("../secret", false), ("none", false)] {
            assert_eq!(inside(&directory, Path::new(path)).await.is_some(), is_inside, "{path}");
        }
    }
}
