//! Decides which worktrees callers may remove or reset.
//!
//! OpenCode deletes any directory that a request names. Its list of worktrees also contains clones, and every other directory
//! of the project that OpenCode has ever seen. So the gateway's requests name a directory only if OpenCode lists it and the
//! disk shows that it is a worktree of the root's own repository. They never name the root, a directory that contains the root,
//! or a directory with files of the gateway. The directory is spelled as OpenCode spells it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_model::{Error, Result, WorktreeRef};

use super::{AccessPolicy, is_unsafe_path, repository, resolve_directory};

const DIRECTORY: &str = "request.directory";
const NAME: &str = "request.name";

impl AccessPolicy {
    /// The requested worktree in OpenCode's spelling. `listed`: OpenCode's current list.
    pub(crate) async fn worktree<'a>(&self, wanted: &WorktreeRef, listed: &'a [String]) -> Result<&'a str> {
        match wanted {
            WorktreeRef::Directory(directory) => {
                if is_unsafe_path(directory) {
                    return Err(not_listed(DIRECTORY));
                }
                let wanted = resolve_directory(&Path::new(&self.root).join(directory.trim())).await;
                let Some(wanted) = wanted else { return Err(not_listed(DIRECTORY)) };
                for spelling in listed {
                    if self.resolve_own(spelling).await.as_ref() == Some(&wanted) {
                        return Ok(spelling);
                    }
                }
                Err(not_listed(DIRECTORY))
            }
            WorktreeRef::Name(name) => {
                let (mut found, mut known): (Option<(&str, PathBuf)>, usize) = (None, 0);
                for spelling in listed.iter().filter(|spelling| last_segment(spelling) == Some(name)) {
                    let Some(directory) = self.resolve_own(spelling).await else { continue };
                    // A worktree that is listed twice counts once.
                    if found.as_ref().is_none_or(|(_, other)| *other != directory) {
                        known += 1;
                        found = Some((spelling, directory));
                    }
                }
                match found {
                    Some((spelling, _)) if known == 1 => Ok(spelling),
                    Some(_) => Err(Error::invalid(
                        NAME,
                        "OpenCode lists several worktrees of this name; give the directory of one instead.",
                    )),
                    None => Err(not_listed(NAME)),
                }
            }
        }
    }

    /// Whether a directory that OpenCode lists is a worktree of the root's own repository, and not the root itself.
    pub(crate) async fn is_own_worktree(&self, spelling: &str) -> bool {
        self.resolve_own(spelling).await.is_some()
    }

    /// The directory of a worktree that OpenCode lists. `None`: callers may not touch it.
    async fn resolve_own(&self, spelling: &str) -> Option<PathBuf> {
        let (root, directory) = (Path::new(&self.root), resolve_directory(Path::new(spelling)).await?);
        let is_safe = Path::new(spelling).is_absolute() && !root.starts_with(&directory);
        let is_safe = is_safe && !self.concerns_secrets(&directory).await;
        let is_own = is_safe && repository::worktree_of(root, &directory).await.as_ref() == Some(&directory);
        is_own.then_some(directory)
    }

    /// Whether the directory is the root, or contains the root or a file of the gateway. Removing the directory would remove these.
    pub(crate) async fn is_needed(&self, directory: &str) -> bool {
        let found = resolve_directory(Path::new(directory)).await;
        let found = found.as_deref().unwrap_or(Path::new(directory));
        Path::new(&self.root).starts_with(found) || self.concerns_secrets(found).await
    }

    /// Whether the directory contains a file of the gateway, or is one of its directories.
    async fn concerns_secrets(&self, directory: &Path) -> bool {
        let (protected, directory) = (Arc::clone(&self.protected), directory.to_owned());
        let concerns = move || protected.deny(&directory) || protected.are_within(&directory);
        // A directory that could not be checked counts as protected.
        tokio::task::spawn_blocking(concerns).await.unwrap_or(true)
    }

    /// The branch that is checked out in the directory.
    pub(crate) async fn branch(&self, directory: &str) -> Option<String> {
        repository::branch(Path::new(directory)).await
    }

    /// Whether a worktree that OpenCode is creating exists with all its files.
    pub(crate) async fn is_checked_out(&self, directory: &str) -> bool {
        repository::is_checked_out(Path::new(directory)).await
    }
}

pub(crate) fn last_segment(directory: &str) -> Option<&str> {
    directory.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty())
}

fn not_listed(field: &str) -> Error {
    Error::invalid(
        field,
        "OpenCode lists no such worktree of the gateway's own repository other than the workspace itself; \
         opencode.worktrees.list lists the worktrees.",
    )
}
