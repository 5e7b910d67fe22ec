//! `longshore repair`: replaces a damaged store with a new one that contains everything undamaged, and keeps the damaged one.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use longshore_engine::end_of_repaired;
use longshore_engine::port::{Clock as _, SystemClock};
use longshore_store::Repaired;

use crate::config::Plan;
use crate::config::plan::StorePlan;
use crate::data_dir::DataDir;
use crate::{commands, disk, output};

/// The exit code of a repair that lost something.
const EXIT_LOSSES: u8 = 3;

/// The suffixes of a store's files. The database comes first: without it a start is refused, so no start sees a partly moved store.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

pub(crate) fn repair(plan: &Plan) -> anyhow::Result<ExitCode> {
    let StorePlan::Sqlite { path, .. } = &plan.store else {
        bail!("tasks are kept in memory only (--store memory), so there is nothing to repair");
    };
    let (now, draft) = (SystemClock.now(), with_suffix(path, ".repaired"));
    if !path.exists() && draft.exists() {
        return finish(plan, path, &draft, now.0 / 1000);
    }
    commands::check_exists(plan, path)?;
    let data_dir = DataDir::take(&plan.data_dir)?;
    data_dir.check_store(path)?;
    check_room(path)?;
    // Remove the draft of a repair that was killed.
    for suffix in SUFFIXES {
        remove(&with_suffix(&draft, suffix))?;
    }
    let repaired = longshore_store::repair(path, &draft, now, &end_of_repaired(now)).with_context(|| {
        format!("cannot repair the store {}; nothing was changed; restore it from a backup", path.display())
    })?;
    let Some(repaired) = repaired else {
        output::print(format_args!("The store {} is whole; nothing was changed.", path.display()));
        return Ok(ExitCode::SUCCESS);
    };
    let report = report(&repaired);
    let kept = set_aside(path, now.0 / 1000, &report)?;
    put_in_place(&draft, path)?;
    output::print(&report);
    output::print(format_args!(
        "The damaged store is in {}; delete it when nothing in it is needed.",
        kept.display()
    ));
    Ok(if repaired.has_losses() { ExitCode::from(EXIT_LOSSES) } else { ExitCode::SUCCESS })
}

/// Completes a repair that was killed after it had moved the damaged store away.
fn finish(plan: &Plan, path: &Path, draft: &Path, seconds: i64) -> anyhow::Result<ExitCode> {
    let _data_dir = DataDir::take(&plan.data_dir)?;
    if !longshore_store::find_damage(draft)?.is_none() {
        bail!("the repaired store {} is damaged; restore the store from a backup", draft.display());
    }
    // Move the rest of the damaged store away too, so that it is not taken for a part of the repaired one.
    set_aside(path, seconds, "The rest of a damaged store; an earlier repair was interrupted.")?;
    put_in_place(draft, path)?;
    output::print(format_args!(
        "Finished an earlier repair: {} is the repaired store. The directories {}.damaged-* have the damaged one and a report.",
        path.display(),
        path.display()
    ));
    Ok(ExitCode::from(EXIT_LOSSES))
}

fn put_in_place(draft: &Path, path: &Path) -> anyhow::Result<()> {
    fs::rename(draft, path).and_then(|()| sync(&parent(path))).with_context(|| {
        format!("cannot move the repaired store from {} to {}", draft.display(), path.display())
    })
}

/// Checks the free space. The repaired store is written beside the damaged one, and is not larger.
fn check_room(store: &Path) -> anyhow::Result<()> {
    let needed: u64 = SUFFIXES
        .iter()
        .filter_map(|suffix| fs::metadata(with_suffix(store, suffix)).ok())
        .map(|file| file.len())
        .sum();
    match disk::free_space(&parent(store)) {
        Some(free) if free < needed => bail!(
            "the disk of {} has {free} bytes free, and a repair needs {needed}, because it keeps the damaged store; free some \
             space, or copy the data directory to another disk and repair it there with --data-dir",
            store.display()
        ),
        _ => Ok(()),
    }
}

/// Moves the damaged store to a new directory beside it, with the report.
fn set_aside(store: &Path, seconds: i64, report: &str) -> anyhow::Result<PathBuf> {
    let kept = with_suffix(store, &format!(".damaged-{seconds}"));
    let done = || -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(&kept)?;
        fs::write(kept.join("report.txt"), report)?;
        for suffix in SUFFIXES {
            let file = with_suffix(store, suffix);
            if let Some(name) = file.file_name()
                && file.exists()
            {
                fs::rename(&file, kept.join(name))?;
            }
        }
        sync(&kept)?;
        sync(&parent(store))
    };
    done().with_context(|| format!("cannot move the damaged store to {}", kept.display()))?;
    Ok(kept)
}

/// The report of everything that was lost.
fn report(repaired: &Repaired) -> String {
    let Repaired { damage, tasks, events, without_log, ended, lost, rows_lost, approvals_forgotten } =
        repaired;
    let mut lines = vec![format!("Kept {tasks} tasks with {events} events as they were.")];
    lines.extend(damage.structure.iter().map(|message| format!("damaged: {message}")));
    lines.extend(without_log.iter().map(|task| format!("kept without its events: task {task}")));
    lines.extend(ended.iter().map(|task| format!("ended as failed, with what was left: task {task}")));
    lines.extend(lost.iter().map(|name| format!("lost: task {name}")));
    if *rows_lost > 0 {
        lines.push(format!(
            "lost: {rows_lost} other records (sessions, asks, keys of sends, push configurations, files)"
        ));
    }
    if *approvals_forgotten > 0 {
        lines.push(format!("forgotten: {approvals_forgotten} answers `always`; the agent asks again"));
    }
    lines.join("\n")
}

fn remove(file: &Path) -> anyhow::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file.display()))
        }
        _ => Ok(()),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// The directory of a path. A bare name has an empty parent, which becomes `.`.
fn parent(path: &Path) -> PathBuf {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
