//! `longshore backup`: copies a data directory, so that a gateway can be started from the copy.

use std::fmt::Write as _;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use longshore_engine::leads_into;
use longshore_store::Backup;

use crate::config::Plan;
use crate::config::plan::StorePlan;
use crate::signals::Signals;
use crate::{commands, data_dir, output};

/// The maximum number of attempts to remove a draft. An attempt fails while another thread still writes to the draft.
const REMOVALS: u32 = 100;

/// Copies the store and its token into a new directory. The gateway may run meanwhile. The runtime must not wait for the copying
/// thread: after a signal that thread may continue for a moment, but its result is discarded.
pub(crate) async fn backup(plan: &Plan, target: &Path) -> anyhow::Result<()> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let StorePlan::Sqlite { path: store, .. } = &plan.store else {
        bail!("tasks are kept in memory only (--store memory), so there is nothing to back up");
    };
    commands::check_exists(plan, store)?;
    let draft = Draft::make(target)?;
    let (from, to) = (store.clone(), draft.0.join("longshore.db"));
    let copying = tokio::task::spawn_blocking(move || longshore_store::backup(&from, &to));
    let copied = tokio::select! {
        biased;
        _ = signals.next() => {
            drop(draft);
            bail!("ended by a signal; nothing is left of the backup");
        }
        copied = copying => copied.context("the copying thread failed")?,
    };
    let copied = copied.with_context(|| format!("cannot copy the store {}", store.display()))?;
    data_dir::copy_owner_files(&plan.data_dir, &draft.0)?;
    draft.publish(target)?;
    if leads_into(target, &plan.workspace) {
        output::warn(
            "the backup is in the workspace, where callers and the agent can read the token in it; move it out",
        );
    }
    let owner = data_dir::owner(&plan.data_dir)?;
    output::print(summary(&copied, target, owner, *store != plan.data_dir.join("longshore.db")));
    Ok(())
}

/// The report of a backup, with a command that serves the copy. The command must work as printed, so `demo` and `workspace` must be
/// those of the original.
fn summary(
    copied: &Backup,
    target: &Path,
    (demo, workspace): (bool, Option<String>),
    store_is_named: bool,
) -> String {
    let kilobytes = copied.bytes.div_ceil(1024);
    let word = |path: &Path| output::shell_word(&path.to_string_lossy());
    let mut command = format!("longshore serve --data-dir {}", word(target));
    if store_is_named {
        let _ = write!(command, " --database {}", word(&target.join("longshore.db")));
    }
    if let Some(workspace) = workspace {
        let _ = write!(command, " --workspace {}", output::shell_word(&workspace));
    }
    if demo {
        command.push_str(" --demo");
    }
    format!(
        "Backed up {} tasks with {} events ({kilobytes} kB) to {}\n\
         It has the token and the keys that open the secrets in the store: keep it as safe as the original.\n\
         To serve it, stop the original gateway, then run: {command}",
        copied.tasks,
        copied.events,
        target.display()
    )
}

/// An unfinished backup. It is removed when it is dropped, unless it was published.
struct Draft(PathBuf);

impl Draft {
    /// Creates the draft next to the target, so that one rename can publish it.
    fn make(target: &Path) -> anyhow::Result<Self> {
        let taken = target.symlink_metadata().map(drop);
        match taken {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot use {}", target.display())),
            Ok(()) => bail!("{} is there already; choose a new name for the backup", target.display()),
        }
        let parent = parent(target);
        if !parent.is_dir() {
            bail!(
                "there is no directory {} to put the backup into; create it with `mkdir -p {}`, or choose another target",
                parent.display(),
                output::shell_word(&parent.to_string_lossy())
            );
        }
        let Some(name) = target.file_name() else { bail!("{} cannot name a backup", target.display()) };
        let mut name = name.to_owned();
        name.push(format!(".part-{}", std::process::id()));
        let draft = target.with_file_name(name);
        DirBuilder::new()
            .mode(0o700)
            .create(&draft)
            .with_context(|| format!("cannot create the directory {}", draft.display()))?;
        Ok(Self(draft))
    }

    /// Makes the complete backup appear at the target, and syncs it to the disk.
    fn publish(mut self, target: &Path) -> anyhow::Result<()> {
        let done = sync(&self.0).and_then(|()| std::fs::rename(&self.0, target));
        done.with_context(|| format!("cannot move the backup to {}", target.display()))?;
        self.0.clear();
        sync(parent(target))
            .with_context(|| format!("the backup {} may not survive a loss of power", target.display()))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // The path is empty if the backup was published.
        if self.0.as_os_str().is_empty() {
            return;
        }
        let mut removed = std::fs::remove_dir_all(&self.0);
        for _ in 0..REMOVALS {
            match &removed {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                _ => break,
            }
            removed = std::fs::remove_dir_all(&self.0);
        }
        if let Err(error) = removed {
            output::warn(format_args!("{} could not be removed: {error}", self.0.display()));
        }
    }
}

fn parent(target: &Path) -> &Path {
    // A bare name has an empty parent.
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Syncs the entries of a directory to the disk.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
