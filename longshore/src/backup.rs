//! `longshore backup`: a copy of a data directory, from which a gateway can be started.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use longshore_store::Backup;

use crate::config::Plan;
use crate::config::plan::StorePlan;
use crate::signals::Signals;
use crate::{data_dir, output};

/// How often the removal of a draft is tried, which somebody may still be writing.
const REMOVALS: u32 = 100;

/// Copies the store and what belongs to it into a new directory. The gateway may run meanwhile. A signal ends it, and then
/// the copying may go on for a moment, to nowhere: the runtime must not wait for it.
pub(crate) async fn backup(plan: &Plan, target: &Path) -> anyhow::Result<()> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let StorePlan::Sqlite { path: store, .. } = &plan.store else {
        bail!("tasks are kept in memory only (--store memory), so there is nothing to back up");
    };
    if !store.try_exists().with_context(|| format!("cannot look for the store {}", store.display()))? {
        bail!(
            "there is no store at {}; --workspace, --data-dir and --database say where it is",
            store.display()
        );
    }
    let draft = Draft::make(target)?;
    let (from, to) = (store.clone(), draft.0.join("longshore.db"));
    let copying = tokio::task::spawn_blocking(move || longshore_store::backup(&from, &to));
    let copied = tokio::select! {
        biased;
        _ = signals.next() => {
            drop(draft);
            bail!("it was told to end, and nothing is left of the backup");
        }
        copied = copying => copied.context("the copying broke")?,
    };
    let copied = copied.with_context(|| format!("cannot copy the store {}", store.display()))?;
    data_dir::copy_marks(&plan.data_dir, &draft.0)?;
    draft.become_the_backup(target)?;
    output::say(summary(&copied, target, *store != plan.data_dir.join("longshore.db")));
    Ok(())
}

/// What to do with it, too: a backup that nobody can use is none.
fn summary(copied: &Backup, target: &Path, store_is_named: bool) -> String {
    let (target, kilobytes) = (target.display(), copied.bytes.div_ceil(1024));
    let database = if store_is_named { format!(" --database {target}/longshore.db") } else { String::new() };
    format!(
        "Backed up {} tasks with {} events ({kilobytes} kB) to {target}\n\
         To serve it, end the gateway that it is a copy of, then: longshore serve --data-dir {target}{database}",
        copied.tasks, copied.events
    )
}

/// A backup that is being made. It is removed unless it becomes whole.
struct Draft(PathBuf);

impl Draft {
    /// Beside the target, so that it can become it in one step.
    fn make(target: &Path) -> anyhow::Result<Self> {
        let taken = target.symlink_metadata().map(drop);
        match taken {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot use {}", target.display())),
            Ok(()) => bail!("{} is there already; choose a new name for the backup", target.display()),
        }
        let Some(name) = target.file_name() else { bail!("{} is no name for a backup", target.display()) };
        let mut name = name.to_owned();
        name.push(format!(".part-{}", std::process::id()));
        let draft = target.with_file_name(name);
        DirBuilder::new()
            .mode(0o700)
            .create(&draft)
            .with_context(|| format!("cannot make the directory {}", draft.display()))?;
        Ok(Self(draft))
    }

    /// From here on it is there, whole and on the disk.
    fn become_the_backup(mut self, target: &Path) -> anyhow::Result<()> {
        let done = sync(&self.0).and_then(|()| std::fs::rename(&self.0, target));
        done.with_context(|| format!("cannot put the backup at {}", target.display()))?;
        self.0.clear();
        // A name alone has no parent.
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync(parent.unwrap_or(Path::new(".")))
            .with_context(|| format!("the backup {} may not survive a loss of power", target.display()))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Empty: it has become the backup.
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

/// The names in a directory are on the disk.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
