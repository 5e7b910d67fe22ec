//! Text for people: results on standard output, everything else on standard error.

#![expect(clippy::print_stderr, reason = "this is the only module that prints")]

use std::fmt::Display;
use std::io::Write as _;

/// Prints a result. A closed standard output does not stop the program.
pub(crate) fn print(line: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Prints a warning directly, because the log may not have been started, or its level may hide warnings.
pub(crate) fn warn(line: impl Display) {
    eprintln!("warning: {line}");
}

/// Prints why the program ends.
pub(crate) fn fail(line: impl Display) {
    eprintln!("error: {line}");
}
