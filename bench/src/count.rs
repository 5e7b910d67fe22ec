//! Counts the instructions of the micro-benchmarks with callgrind: the counts are the same on a busy machine and on a quiet one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;

use crate::micro::Case;
use crate::number::{float, short};
use crate::output;

/// The file with the counts, next to the results of a run, which include them.
pub const INSTRUCTIONS: &str = "instructions.json";

/// Counts one case, or all, and prints the instructions per item.
pub fn callgrind(case: Option<Case>) -> Result<()> {
    let out = out();
    std::fs::create_dir_all(&out).context("cannot create the directory for the counts")?;
    let mut counts = read(&out);
    let cases = Case::value_variants().iter().copied();
    for case in cases.filter(|one| case.is_none_or(|wanted| wanted == *one)) {
        let items = case.prepare().items;
        // Enough to exceed the difference between two starts.
        let times = (20_000 / items).max(4);
        let (once, twice) = (instructions(case, times)?, instructions(case, 2 * times)?);
        let each = float(twice.saturating_sub(once)) / float(times * items);
        output::say(format_args!("{:14} {:>9} instructions per item", case.name(), short(each)));
        counts.insert(case.name(), each);
        std::fs::write(out.join(INSTRUCTIONS), serde_json::to_string_pretty(&counts)?)?;
    }
    Ok(())
}

/// The counts of the last time.
pub fn read(out: &Path) -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(out.join(INSTRUCTIONS)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The directory of the counts: in cargo's target directory, like the results of a run.
fn out() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from).join("bench")
}

fn instructions(case: Case, times: u64) -> Result<u64> {
    let me = std::env::current_exe().context("cannot find the path of this program")?;
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(me)
        .args(["count", &case.name(), &times.to_string()])
        .output()
        .context("valgrind is not installed")?;
    let output = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "{} failed under valgrind: {output}", case.name());
    collected(&output).with_context(|| format!("valgrind printed no count: {output}"))
}

fn collected(output: &str) -> Option<u64> {
    let line = output.lines().find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_callgrind_is_found() {
        let output = "==12== Events    : Ir\n==12== Collected : 1234567\n==12== \n";
        assert_eq!(collected(output), Some(1_234_567));
        assert_eq!(collected("==12== nothing"), None);
    }
}
