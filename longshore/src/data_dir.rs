//! Locks and reads the data directory. One gateway at a time uses it, and only the owner can read its files.

mod address;
mod files;
mod lock;
mod secrets;

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};

pub(crate) use self::address::{NotedAddress, address};
use self::files::{cannot_write, read, write_private};
use self::lock::{holder, lock_file, lock_within, try_lock};
pub(crate) use self::secrets::{KeyFile, existing_token, secret, token};
use crate::acp_upstream;
use crate::config::Plan;
use crate::config::paths::DEMO_SUFFIX;
use crate::config::plan::AgentPlan;
use crate::output;

/// The content of the file `kind` of a demo.
const DEMO: &str = "demo";

/// The file that contains the name of the store that was used last.
const STORE_NOTE: &str = "store";

/// The gateway's own files in the data directory, besides the store. Each is first written to a file with the extension `new`.
const OWN_FILES: [&str; 13] = [
    STORE_NOTE,
    "kind",
    "workspace",
    "token",
    secrets::KEYS,
    "lock",
    address::ADDRESS,
    ".gitignore",
    acp_upstream::RECORDS,
    secrets::SECRET,
    longshore_calling::SOCKET,
    longshore_calling::PLUGIN,
    longshore_calling::CONFIGURATION,
];

/// A data directory that is locked until this value is dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    /// The open lock file. Closing it releases the lock, however the process ends.
    _lock: File,
}

impl DataDir {
    /// Creates the directory if necessary, and locks it for the workspace of the plan. If another process holds the lock, waits as
    /// long as the plan says. Fails if the directory was made for another workspace or agent (see [`Self::check_owner`]).
    pub(crate) async fn take_for(plan: &Plan) -> anyhow::Result<Self> {
        let path = &plan.data_dir;
        let data_dir = Self::take_within(path, plan.lock_wait)
            .await?
            .check_owner(&kind(&plan.agent), &plan.workspace)?;
        if plan.agent_reaches_data_dir {
            // This file makes git and OpenCode's snapshots leave out everything in the directory, the file itself included.
            let ignore = path.join(".gitignore");
            // Do not replace the `.gitignore` of a project.
            if !ignore.exists() && *path != plan.workspace && !plan.allowed_roots.contains(path) {
                write_private(&ignore, "*").with_context(|| cannot_write(&ignore))?;
            }
        }
        Ok(data_dir)
    }

    /// Creates the directory if necessary, and locks it. Waits up to `patience` for another process to release the lock, and then
    /// fails.
    async fn take_within(path: &Path, patience: Duration) -> anyhow::Result<Self> {
        let lock = lock_file(path)?;
        if !try_lock(&lock, path)? && !lock_within(lock::GLANCE, &lock, path).await? {
            if patience.is_zero() {
                bail!(
                    "a gateway{} already uses the data directory {}; end it first, let this one wait for it with \
                     --lock-wait SECONDS, or choose another directory with --data-dir",
                    holder(path),
                    path.display()
                );
            }
            output::print(format_args!(
                "Waiting up to {patience:?} for the gateway{} that uses the data directory ...",
                holder(path)
            ));
            if !lock_within(patience, &lock, path).await? {
                bail!(
                    "a gateway{} still uses the data directory {} after {patience:?}; end it first, or choose another \
                     directory with --data-dir",
                    holder(path),
                    path.display()
                );
            }
        }
        Ok(Self::locked(lock, path))
    }

    /// Fails if a demo made the directory and this gateway is not a demo, or the other way round, because a demo has its own
    /// OpenCode home with its own sessions. Also fails if the directory was made for another agent or workspace, because the tasks,
    /// the sessions and a running OpenCode in it belong to these.
    fn check_owner(self, kind: &str, workspace: &Path) -> anyhow::Result<Self> {
        let path = &self.path;
        let (kind_file, workspace_file) = (path.join("kind"), path.join("workspace"));
        let (old_kind, old_workspace) = (read(&kind_file)?, read(&workspace_file)?);
        if let Some(old) = old_kind.as_deref().filter(|old| *old != kind) {
            let made = match old.split_once(' ') {
                Some((_, agent)) => format!("for the agent {agent}; serve that agent"),
                None if old == DEMO => "with --demo; add --demo".to_owned(),
                None if kind == DEMO => "without --demo; leave --demo out".to_owned(),
                None => "for OpenCode; leave --agent out".to_owned(),
            };
            let path = path.display();
            bail!("the data directory {path} was made {made}, or choose another one with --data-dir");
        }
        if let Some(old) = old_workspace.as_deref().filter(|old| Path::new(old) != workspace) {
            bail!(
                "the data directory {} belongs to the workspace {old}, not to {}; serve that workspace with --workspace {}, \
                 or choose another data directory with --data-dir",
                path.display(),
                workspace.display(),
                output::shell_word(old)
            );
        }
        if old_kind.is_none() {
            write_private(&kind_file, kind).with_context(|| cannot_write(&kind_file))?;
        }
        if old_workspace.is_none() {
            // The conversion loses nothing, because the plan accepts only a workspace whose path is UTF-8.
            write_private(&workspace_file, &workspace.to_string_lossy())
                .with_context(|| cannot_write(&workspace_file))?;
        }
        Ok(self)
    }

    /// Creates the directory if necessary, and locks it. Fails if another process holds the lock.
    pub(crate) fn take(path: &Path) -> anyhow::Result<Self> {
        let lock = lock_file(path)?;
        if !try_lock(&lock, path)? {
            bail!(
                "a gateway{} already uses the data directory {}; end it first, or choose another directory with --data-dir",
                holder(path),
                path.display()
            );
        }
        Ok(Self::locked(lock, path))
    }

    fn locked(mut lock: File, path: &Path) -> Self {
        // Write the process id only for error messages. The lock does not depend on it.
        let written = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        if let Err(error) = written {
            tracing::warn!(%error, "could not write the process id into the lock file of the data directory");
        }
        Self { path: path.to_owned(), _lock: lock }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if the store has the name of a file that the gateway uses for something else.
    fn check_name(&self, store: &Path) -> anyhow::Result<()> {
        let name = store.file_name().unwrap_or_default();
        let draft = Path::new(name).with_extension("");
        let is_taken = store.parent() == Some(&self.path)
            && OWN_FILES.iter().any(|own| {
                name == *own || (draft == Path::new(own) && store.extension() == Some("new".as_ref()))
            });
        if is_taken {
            bail!(
                "the gateway keeps another file at {}; choose another name with --database",
                store.display()
            );
        }
        Ok(())
    }

    /// Fails if this directory's gateway has used this store before and the store's file is missing or empty now. A new store in
    /// its place would hide that all tasks are lost.
    pub(crate) fn check_store(&self, store: &Path) -> anyhow::Result<()> {
        self.check_name(store)?;
        let note = self.path.join(STORE_NOTE);
        if read(&note)?.as_deref() != Some(&*self.store_name(store)) {
            return Ok(());
        }
        let what = match store.metadata() {
            Ok(metadata) if metadata.len() == 0 => "empty",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "missing",
            // Report any other problem only when the store is opened.
            _ => return Ok(()),
        };
        bail!(
            "the store {} is {what}, and a gateway has kept tasks in it before; restore it from a backup, or remove {} to start \
             with an empty store",
            store.display(),
            note.display()
        )
    }

    /// Records which store is in use, for [`Self::check_store`]. A failure, for example on a full disk, does not prevent the start,
    /// because it only makes that check weaker.
    pub(crate) fn note_store(&self, store: &Path) {
        let (note, name) = (self.path.join(STORE_NOTE), self.store_name(store));
        if read(&note).is_ok_and(|noted| noted.as_deref() == Some(&*name)) {
            return;
        }
        if let Err(error) = write_private(&note, &name) {
            tracing::warn!(%error, "could not note in the data directory which store is in use");
        }
    }

    /// The recorded path of the store. It is relative if the store is in the data directory, because the directory may be moved.
    fn store_name<'a>(&self, store: &'a Path) -> std::borrow::Cow<'a, str> {
        store.strip_prefix(&self.path).unwrap_or(store).to_string_lossy()
    }
}

/// The default data directory of the same workspace with the other choice of `--demo`. `None`: the workspace was never served with
/// that choice.
pub(crate) fn of_other_kind(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let other = match name.strip_suffix(DEMO_SUFFIX) {
        Some(own) => own.to_owned(),
        None => format!("{name}{DEMO_SUFFIX}"),
    };
    Some(path.with_file_name(other)).filter(|other| other.join(secrets::TOKEN).exists())
}

/// Whether a demo made the directory, and the workspace for which it was made.
pub(crate) fn owner(path: &Path) -> anyhow::Result<(bool, Option<String>)> {
    Ok((read(&path.join("kind"))?.as_deref() == Some(DEMO), read(&path.join("workspace"))?))
}

/// Copies the files that belong with a store to a new data directory: those that say which kind of agent and which workspace the
/// directory is for, the token, the sealing keys and the secret. Missing files are left out.
pub(crate) fn copy_owner_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    for name in ["kind", "workspace", secrets::TOKEN, secrets::KEYS, secrets::SECRET] {
        if let Some(text) = read(&from.join(name))? {
            let file = to.join(name);
            write_private(&file, &text).with_context(|| cannot_write(&file))?;
        }
    }
    Ok(())
}

/// The content of the file `kind`: the agent whose sessions the tasks of the directory belong to.
fn kind(agent: &AgentPlan) -> String {
    match agent {
        AgentPlan::Attached { .. } | AgentPlan::Managed { .. } => "own".to_owned(),
        AgentPlan::Demo { .. } => DEMO.to_owned(),
        AgentPlan::Acp(agent) => format!("acp {}", agent.name),
    }
}

#[cfg(test)]
mod tests;
