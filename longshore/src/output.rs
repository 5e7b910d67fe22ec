//! Text for people: results on standard output, everything else on standard error.

#![expect(clippy::print_stderr, reason = "this is the only module that prints")]

use std::fmt::Display;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether standard output carries messages of a protocol.
static IS_RESERVED: AtomicBool = AtomicBool::new(false);

/// Reserves standard output for messages. From now on, everything that is printed goes to standard error.
pub(crate) fn reserve_stdout() {
    IS_RESERVED.store(true, Ordering::Relaxed);
}

use longshore_client::is_plain;

/// Prints a result. A closed standard output does not stop the program.
pub(crate) fn print(line: impl Display) {
    if IS_RESERVED.load(Ordering::Relaxed) {
        return progress(line);
    }
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Writes a part of a result, without a line end. A closed standard output does not stop the program.
pub(crate) fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// Writes text that is not part of the result, without a line end.
pub(crate) fn write_aside(text: &str) {
    eprint!("{text}");
}

/// Prints a warning without the log, because the log may not have been started, or its level may hide warnings.
pub(crate) fn warn(line: impl Display) {
    eprintln!("warning: {line}");
}

/// Prints that a step is still running. Not part of the result.
pub(crate) fn progress(line: impl Display) {
    eprintln!("{line}");
}

/// Formats a word for a shell. Adds quotes if the word needs them.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    shell_quoted(text)
}

/// Formats a word for a shell, always in quotes. Some shells take the brackets of an IPv6 address for a pattern.
pub(crate) fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Prints why the program ends. Removes control characters, because the reason can contain text of an agent.
pub(crate) fn fail(line: impl Display) {
    eprintln!("error: {}", harmless(&line.to_string()));
}

/// Removes the characters that control a terminal, because they could change what a person sees of other text.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|c| is_plain(*c) || matches!(c, '\n' | '\t')).collect()
}

/// Like [`harmless`], but also removes line breaks and tabs.
pub(crate) fn harmless_line(text: &str) -> String {
    text.chars().filter(|c| is_plain(*c)).collect()
}
