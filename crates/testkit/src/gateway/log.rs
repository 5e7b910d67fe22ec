//! What the processes of a test said, for the one who has to find out why it failed.

#![expect(clippy::print_stderr, reason = "a failed test shows the logs of its processes")]

use std::path::Path;

use tokio::io::{AsyncBufRead, Lines};
use tokio::task::JoinSet;

/// More of a log is never shown: the end says what went wrong.
const SHOWN: usize = 6_000;

/// Reads on until the process ends, so that it never waits for somebody to read what it says.
pub(crate) fn keep_reading(mut lines: Lines<impl AsyncBufRead + Unpin + Send + 'static>) {
    let mut reading = JoinSet::new();
    reading.spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    reading.detach_all();
}

/// Shows the end of a log.
pub(super) fn show(whose: &str, file: &Path) {
    let Ok(bytes) = std::fs::read(file) else { return };
    let text = String::from_utf8_lossy(&bytes);
    let from = text.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
    eprintln!("--- the log of {whose}:\n{}\n---", &text[from..]);
}
