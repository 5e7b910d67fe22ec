//! Reads standard input: the whole text, or single lines that a person types.

use std::io::{BufRead as _, IsTerminal as _, Read as _};

use super::exit::Failure;

/// The longest text that is accepted, in bytes.
const MAX_TEXT: u64 = 16 * 1024 * 1024;

/// The longest line that is read, in bytes. The rest of a longer line counts as the next line.
const MAX_LINE: u64 = 64 * 1024;

/// Reads all of standard input.
pub(crate) fn all() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MAX_TEXT + 1).read_to_string(&mut text);
    read.map_err(|error| Failure::usage(format!("standard input cannot be read: {error}")))?;
    if text.len() as u64 > MAX_TEXT {
        return Err(Failure::usage(format!("standard input has more than {MAX_TEXT} bytes")));
    }
    Ok(text)
}

/// Whether a person can be prompted: both standard input and standard error are terminals.
pub(crate) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Reads a line that a person types. `None`: standard input has ended. If the future is dropped, the next typed line is lost.
pub(crate) async fn line() -> Option<String> {
    let read = || {
        let mut line = String::new();
        let length = std::io::stdin().lock().take(MAX_LINE).read_line(&mut line).ok()?;
        (length > 0).then(|| line.trim().to_owned())
    };
    tokio::task::spawn_blocking(read).await.ok().flatten()
}
