//! The output of the child processes of a test, which a failed test shows.

#![expect(clippy::print_stderr, reason = "a failed test shows the logs of its processes")]

use std::path::Path;

use tokio::io::{AsyncBufRead, Lines};
use tokio::task::JoinSet;

/// How many characters at the end of a log are shown: the end shows what went wrong.
const SHOWN: usize = 6_000;

/// Reads until the process ends, so that its output never blocks it.
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
