//! Output for people.

use std::fmt::Display;
use std::io::Write as _;

/// Prints a line of progress or of a result. A reader that has gone away is no reason to stop.
pub fn say(line: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
