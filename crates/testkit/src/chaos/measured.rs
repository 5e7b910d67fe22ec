//! What the campaign tests measured. `make chaos` collects it for its report.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write as _};

/// The variable with the file to which the campaign tests write their rows. Without it they only print them.
const ROWS: &str = "LONGSHORE_CAMPAIGN_ROWS";

/// Reports what one campaign test did, and what it measured. Both become cells of a Markdown table.
///
/// # Errors
///
/// The file for the rows cannot be written.
pub fn report(done: impl Display, measured: impl Display) -> io::Result<()> {
    let row = format!("| {done} | {measured} |\n");
    io::stderr().write_all(row.as_bytes())?;
    match std::env::var_os(ROWS) {
        Some(file) => OpenOptions::new().create(true).append(true).open(file)?.write_all(row.as_bytes()),
        None => Ok(()),
    }
}
