//! What people read: results on standard output, everything else on standard error.

#![expect(clippy::print_stderr, reason = "this is the one module that prints")]

use std::fmt::Display;
use std::io::Write as _;

/// A result, or a line of the start. A reader that has gone away is no reason to stop.
pub(crate) fn say(line: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// A warning, before the log is set up or whatever its level is.
pub(crate) fn warn(line: impl Display) {
    eprintln!("warning: {line}");
}

/// Why the program ends.
pub(crate) fn fail(line: impl Display) {
    eprintln!("error: {line}");
}
