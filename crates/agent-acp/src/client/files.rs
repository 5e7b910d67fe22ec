//! `fs/*`: text files in the directory of a session.

use std::io::{self, BufRead, BufReader, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use longshore_engine::{AllowedDirectories, leads_into};
use serde_json::{Value, json};

use super::request::MAX_CONTENT;
use super::{AUDIT, Client, FileRequest, Refusal};

/// How many bytes may come before the first requested line of a file.
const MAX_SKIPPED: u64 = 256 * 1024 * 1024;

const OUTSIDE: Refusal = Refusal::invalid(
    "The path must be that of a regular file in the directory of the session, and of no file of the gateway itself.",
);

const ABSENT: Refusal = Refusal::not_found("There is no such file or directory.");

const TOO_LONG: Refusal =
    Refusal::failed("The text is longer than 4 MiB. Read a part of it with `line` and `limit`.");

impl Client {
    /// Reads or writes a file. `directory`: the directory of the session.
    pub(crate) async fn serve_file(
        &self,
        session: &str,
        directory: PathBuf,
        request: FileRequest,
    ) -> Result<Value, Refusal> {
        let files =
            Files { root: self.config.root.clone(), directory, protected: self.config.protected.clone() };
        let session = session.to_owned();
        let work = move || match request {
            FileRequest::Read { path, line, limit } => {
                files.read(&path, line, limit).map(|content| json!({"content": content}))
            }
            FileRequest::Write { path, content } => {
                let written = files.write(&path, &content);
                let name = files.shown(&path);
                let outcome = if written.is_ok() { "success" } else { "refused" };
                let bytes = content.len();
                tracing::info!(target: AUDIT, session, file = ?name, bytes, outcome, "the agent wrote a file");
                written.map(|()| json!({}))
            }
        };
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|_| Err(Refusal::failed("The file could not be read or written.")))
    }
}

/// The files that the agent may access in a session.
struct Files {
    root: PathBuf,
    directory: PathBuf,
    protected: std::sync::Arc<longshore_engine::ProtectedPaths>,
}

impl Files {
    fn allowed(&self) -> AllowedDirectories {
        AllowedDirectories::below(&self.root, &self.directory)
    }

    fn read(&self, path: &str, line: Option<u64>, limit: Option<u64>) -> Result<String, Refusal> {
        let path = self.directory.join(path);
        let file =
            self.allowed().open(&path, &self.protected).map_err(|error| self.refusal(&path, &error))?;
        let skipped = line.unwrap_or(1).saturating_sub(1);
        lines(BufReader::new(file), skipped, limit)
    }

    fn write(&self, path: &str, content: &str) -> Result<(), Refusal> {
        let path = self.directory.join(path);
        let replaced = self.allowed().replace(&path, content.as_bytes(), &self.protected);
        replaced.map_err(|error| self.refusal(&path, &error))
    }

    /// The refusal for an error. It does not reveal what exists outside of the session's directory.
    fn refusal(&self, path: &Path, error: &io::Error) -> Refusal {
        let is_inside = leads_into(path, &self.directory) && !self.protected.deny(path);
        match error.kind() {
            _ if !is_inside => OUTSIDE,
            ErrorKind::NotFound => ABSENT,
            ErrorKind::PermissionDenied => Refusal::failed("The user of the gateway may not open the file."),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Refusal::failed("The disk is full."),
            // The path leads to a directory, or a link leads outside.
            _ => OUTSIDE,
        }
    }

    /// The path as it is written to the audit log.
    fn shown<'p>(&self, path: &'p str) -> &'p str {
        let shown = self.directory.to_str().and_then(|directory| path.strip_prefix(directory));
        shown.unwrap_or(path)
    }
}

/// Reads at most `limit` lines with their line breaks, after `skipped` lines.
fn lines(mut file: impl BufRead, skipped: u64, limit: Option<u64>) -> Result<String, Refusal> {
    let failed = |_| Refusal::failed("The file could not be read.");
    let mut room = MAX_SKIPPED;
    for _ in 0..skipped {
        let read = file.by_ref().take(room).skip_until(b'\n').map_err(failed)?;
        room -= read as u64;
        if read == 0 {
            break;
        }
    }
    if room == 0 {
        return Err(Refusal::failed(
            "The first line is more than 256 MiB into the file, which is the limit.",
        ));
    }
    let mut content = Vec::new();
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 {
        let room = (MAX_CONTENT - content.len() + 1) as u64;
        let read = file.by_ref().take(room).read_until(b'\n', &mut content).map_err(failed)?;
        if content.len() > MAX_CONTENT {
            return Err(TOO_LONG);
        }
        if read == 0 {
            break;
        }
        left -= 1;
    }
    String::from_utf8(content).map_err(|_| Refusal::failed("The file is no UTF-8 text."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_their_line_breaks() {
        let text = "one\ntwo\r\n\nfour";
        for (line, limit, expected) in [
            (None, None, text),
            (Some(0), Some(1), "one\n"),
            (Some(1), Some(2), "one\ntwo\r\n"),
            (Some(2), None, "two\r\n\nfour"),
            (Some(4), Some(9), "four"),
            (Some(5), None, ""),
            (Some(u64::MAX), Some(u64::MAX), ""),
            (None, Some(0), ""),
        ] {
            let skipped = line.unwrap_or(1_u64).saturating_sub(1);
            assert_eq!(lines(text.as_bytes(), skipped, limit).as_deref(), Ok(expected), "{line:?} {limit:?}");
        }
    }

    #[test]
    fn a_long_text_is_refused_and_a_part_of_it_is_read() {
        let text = "x".repeat(99) + "\n";
        let text = text.repeat(MAX_CONTENT / 100 + 1);
        assert_eq!(lines(text.as_bytes(), 0, None), Err(TOO_LONG));
        assert_eq!(lines(text.as_bytes(), 40_000, Some(2)).map(|part| part.len()), Ok(200));
        assert_eq!(lines(BufReader::new(io::repeat(b'x')), 0, Some(1)), Err(TOO_LONG));
        let endless = lines(BufReader::new(io::repeat(b'x')), 1, None).unwrap_err();
        assert!(endless.text.contains("256 MiB"), "{endless:?}");
        assert!(lines([0xff_u8].as_slice(), 0, None).is_err());
    }
}
