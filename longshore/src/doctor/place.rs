//! Checks the data directory, the store, the disk, and the limits of the system.

use std::fmt::Display;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use longshore_store::Damage;

use super::Finding;
use crate::config::Plan;
use crate::config::plan::StorePlan;
use crate::data_dir::DataDir;
use crate::{disk, limits};

pub(super) fn check(plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(problem) = &plan.misplaced {
        findings.push(Finding::problem("data", problem.to_string(), "Choose another place with --data-dir."));
    }
    findings.push(data_dir(&plan.data_dir));
    findings.push(store(plan));
    findings.extend(free_disk(plan));
    findings.push(open_files(plan));
    findings
}

fn data_dir(path: &Path) -> Finding {
    let what = "data";
    let shown = path.display();
    let Ok(found) = path.metadata() else {
        return match nearest(path) {
            Some(parent) if writable(parent) => {
                Finding::fine(what, format!("{shown} will be created by the first start"))
            }
            _ => Finding::problem(
                what,
                format!("{shown} does not exist and cannot be created"),
                "Make its parent directory writable, or choose another place with --data-dir.",
            ),
        };
    };
    if !found.is_dir() {
        return Finding::problem(
            what,
            format!("{shown} is not a directory"),
            "Move this file away, or choose another place with --data-dir.",
        );
    }
    if !writable(path) {
        return Finding::problem(
            what,
            format!("no file can be written in {shown}"),
            "Make it writable for this user and make sure that the disk has space, or choose another place with --data-dir.",
        );
    }
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Finding::warning(
            what,
            format!("{shown} is open to other users (mode {mode:o})"),
            "Run `chmod 700` on it.",
        );
    }
    Finding::fine(what, format!("{shown} can be written"))
}

/// The nearest existing directory above a path.
fn nearest(path: &Path) -> Option<&Path> {
    path.ancestors().skip(1).find(|parent| parent.is_dir())
}

/// Whether a file can be created in the directory. Permissions alone do not tell, because the disk may be full or read-only.
fn writable(directory: &Path) -> bool {
    tempfile_in(directory).is_ok()
}

fn tempfile_in(directory: &Path) -> std::io::Result<()> {
    let file = directory.join(format!(".longshore-doctor-{}", std::process::id()));
    std::fs::OpenOptions::new().write(true).create_new(true).open(&file)?;
    std::fs::remove_file(&file)
}

fn store(plan: &Plan) -> Finding {
    let what = "store";
    let StorePlan::Sqlite { path, .. } = &plan.store else {
        return Finding::warning(
            what,
            "tasks are kept in memory only, and are lost when the gateway ends",
            "Leave --store memory out to keep them.",
        );
    };
    let shown = path.display();
    if !plan.data_dir.is_dir() {
        return Finding::fine(what, format!("{shown} will be created by the first start"));
    }
    checked(&plan.data_dir, path, longshore_store::find_damage)
}

/// Checks a store that no gateway has open.
fn checked<E: Display>(
    data_dir: &Path,
    path: &Path,
    find_damage: impl FnOnce(&Path) -> Result<Damage, E>,
) -> Finding {
    let what = "store";
    let shown = path.display();
    // While a gateway runs, it reports damage of the store itself.
    let Ok(locked) = DataDir::take(data_dir) else {
        return Finding::fine(what, format!("{shown} is in use by a running gateway"));
    };
    let noted = locked.check_store(path);
    // Release the lock, because the check takes long and only reads, and a gateway may start meanwhile.
    drop(locked);
    if let Err(error) = noted {
        return Finding::problem(
            what,
            format!("{error:#}"),
            "Restore the store from a backup (`longshore backup` makes one).",
        );
    }
    if !path.exists() {
        return Finding::fine(what, format!("{shown} will be created by the first start"));
    }
    match find_damage(path) {
        Ok(damage) if damage.is_none() => Finding::fine(what, format!("{shown} is whole")),
        Ok(damage) => Finding::problem(
            what,
            format!(
                "{shown} is damaged: {} tasks, and {} findings about the file",
                damage.tasks.len(),
                damage.structure.len()
            ),
            "`longshore check` names the damage. Restore the store from a backup, or keep what is whole with `longshore repair`.",
        ),
        Err(error) => Finding::problem(
            what,
            format!("{shown} cannot be read: {error}"),
            "Restore the store from a backup, or keep what is whole with `longshore repair`.",
        ),
    }
}

fn free_disk(plan: &Plan) -> Option<Finding> {
    let what = "disk";
    let place =
        std::iter::once(plan.data_dir.as_path()).chain(nearest(&plan.data_dir)).find(|path| path.is_dir())?;
    let free = disk::free_space(place)?;
    let wanted = plan.min_free_disk as u64;
    if free < wanted {
        return Some(Finding::problem(
            what,
            format!(
                "only {free} bytes are free, and new messages are refused below {wanted} (data.min_free_disk)"
            ),
            "Free some space, keep the data on another disk with --data-dir, or lower --min-free-disk.",
        ));
    }
    Some(Finding::fine(what, format!("{} MiB are free", free / (1024 * 1024))))
}

fn open_files(plan: &Plan) -> Finding {
    limits::raise_open_files();
    match limits::connections(plan.limits.connections, limits::open_files()) {
        (_, Some(warning)) => Finding::warning(
            "limits",
            warning,
            "Raise the limit of open files (`ulimit -n`, or LimitNOFILE in a systemd unit), or lower --max-connections.",
        ),
        (connections, None) => {
            Finding::fine("limits", format!("{connections} connections are possible at once"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_can_start_while_the_doctor_reads_the_store() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("longshore.db");
        std::fs::write(&store, "tasks").unwrap();
        let mut could_start = false;
        let finding = checked(directory.path(), &store, |_| {
            could_start = DataDir::take(directory.path()).is_ok();
            Ok::<_, String>(Damage::default())
        });
        assert!(could_start, "the doctor holds the lock of the data directory");
        assert_eq!(finding, Finding::fine("store", format!("{} is whole", store.display())));
    }
}
