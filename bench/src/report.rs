//! The report: a table of what was asked for, plots, and the numbers behind them, as measured.

mod page;
mod rows;
mod svg;

use std::path::Path;

use anyhow::{Context as _, Result};

pub use self::page::page;
pub use self::rows::{Row, rows};
use crate::results::Results;

/// The same table for a terminal.
pub fn summary(results: &Results) -> Vec<String> {
    let rows = rows(results);
    let width =
        |cell: fn(&Row) -> &str| rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or_default();
    let (what, ours, peer) = (width(|row| &row.what), width(|row| &row.longshore), width(|row| &row.peer));
    let line = |row: &Row| {
        let met = match row.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        format!(
            "{:what$}  {:>ours$}  {:>peer$}  {:>10}  {:14} {met}",
            row.what, row.longshore, row.peer, row.ratio, row.budget
        )
        .trim_end()
        .to_owned()
    };
    rows.iter().map(line).collect()
}

/// Writes `performance.md` and its plots.
pub fn write(results: &Results, docs: &Path, notes: Option<&Path>) -> Result<()> {
    // Nobody need have said anything.
    let notes = notes.and_then(|notes| std::fs::read_to_string(notes).ok()).unwrap_or_default();
    let (text, plots) = page(results, &notes);
    let folder = docs.join("performance");
    std::fs::create_dir_all(&folder).context("cannot make a place for the plots")?;
    for (name, plot) in plots {
        std::fs::write(folder.join(name), plot).context("cannot write a plot")?;
    }
    std::fs::write(docs.join("performance.md"), text).context("cannot write the report")
}

#[cfg(test)]
mod tests;
