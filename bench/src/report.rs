//! The report: a table of the budgets, plots, and the measured numbers.

mod asked;
mod page;
mod rows;
mod sound;
mod svg;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};

pub use self::page::page;
pub use self::rows::{Row, rows};
use crate::output;
use crate::results::Results;

pub type Reasons = BTreeMap<String, String>;

/// The table for a terminal.
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

/// Writes `performance.md`, its plots, and all results.
pub fn write(results: &Results, docs: &Path, reasons: Option<&Path>) -> Result<()> {
    let reasons = read_reasons(reasons)?;
    let rows = rows(results);
    for key in reasons.keys().filter(|key| !rows.iter().any(|row| row.key == key.as_str())) {
        output::say(format_args!("the reason for {key} belongs to no row"));
    }
    for row in rows.iter().filter(|row| row.met == Some(false) && !reasons.contains_key(row.key)) {
        output::say(format_args!("{} has no reason: {}", row.key, row.what));
    }
    let (text, plots) = page(results, &reasons);
    let folder = docs.join("performance");
    std::fs::create_dir_all(&folder).context("cannot create the directory of the plots")?;
    for (name, plot) in plots {
        std::fs::write(folder.join(name), plot).context("cannot write a plot")?;
    }
    let raw = serde_json::to_string_pretty(results)? + "\n";
    std::fs::write(folder.join("results.json"), raw).context("cannot write the numbers")?;
    std::fs::write(docs.join("performance.md"), text).context("cannot write the report")
}

/// The reasons for missed budgets, by the keys of their rows. The file is optional.
fn read_reasons(path: Option<&Path>) -> Result<Reasons> {
    let Some(path) = path.filter(|path| path.exists()) else { return Ok(Reasons::new()) };
    let text = std::fs::read_to_string(path).context("cannot read the reasons")?;
    toml::from_str(&text).context("the reasons are not `key = \"text\"`")
}

#[cfg(test)]
mod tests;
