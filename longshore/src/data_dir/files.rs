//! The small text files of a data directory. Each is written atomically, and only its owner can read it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;

/// Reads a text that [`write_private`] wrote. `None`: there is no such file.
pub(super) fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text.strip_suffix('\n').unwrap_or(&text).to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Writes the file atomically. Only its owner can read it.
pub(super) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    write_private_with(path, text, |_| Ok(())).map(drop)
}

/// Like [`write_private`], but returns the open file. `prepare` is called with the file before it gets its name.
pub(super) fn write_private_with(
    path: &Path,
    text: &str,
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<File> {
    let draft = path.with_extension("new");
    // Remove a draft that a crash left behind, because it may have other permissions.
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    prepare(&file)?;
    std::fs::rename(draft, path)?;
    // Sync the directory, because the new name must survive a loss of power: the file may be a key that seals secrets from now on.
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(file)
}

pub(super) fn cannot_write(file: &Path) -> String {
    format!(
        "cannot write {}; the gateway needs a data directory that it owns, on a disk that is writable and has free space \
         (choose another with --data-dir)",
        file.display()
    )
}
