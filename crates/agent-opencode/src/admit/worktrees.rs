//! Which worktrees callers may have removed or reset.
//!
//! OpenCode deletes whatever directory it is told, and it lists clones and other directories that it ever saw among the
//! worktrees. So it is told only of what it lists itself and what the disk says is a worktree of the root's own repository,
//! in its own spelling, and never of the root or of what the root is in.

use std::path::{Path, PathBuf};

use longshore_model::{Error, Result, WorktreeRef};

use super::{Gate, is_unspeakable, repository, resolved};

const DIRECTORY: &str = "request.directory";
const NAME: &str = "request.name";

impl Gate {
    /// The worktree that is meant, as OpenCode spells it. `listed`: what OpenCode has just listed.
    pub(crate) async fn worktree<'a>(&self, wanted: &WorktreeRef, listed: &'a [String]) -> Result<&'a str> {
        match wanted {
            WorktreeRef::Directory(directory) => {
                if is_unspeakable(directory) {
                    return Err(not_listed(DIRECTORY));
                }
                let Some(wanted) = resolved(&Path::new(&self.root).join(directory.trim())).await else {
                    return Err(not_listed(DIRECTORY));
                };
                for spelling in listed {
                    if self.own(spelling).await.as_ref() == Some(&wanted) {
                        return Ok(spelling);
                    }
                }
                Err(not_listed(DIRECTORY))
            }
            WorktreeRef::Name(name) => {
                let (mut found, mut known): (Option<(&str, PathBuf)>, usize) = (None, 0);
                for spelling in listed.iter().filter(|spelling| last_segment(spelling) == Some(name)) {
                    let Some(directory) = self.own(spelling).await else { continue };
                    // One that is listed twice is one.
                    if found.as_ref().is_none_or(|(_, other)| *other != directory) {
                        known += 1;
                        found = Some((spelling, directory));
                    }
                }
                match found {
                    Some((spelling, _)) if known == 1 => Ok(spelling),
                    Some(_) => Err(Error::invalid(
                        NAME,
                        "OpenCode lists several worktrees of this name; name the directory of one.",
                    )),
                    None => Err(not_listed(NAME)),
                }
            }
        }
    }

    /// Whether a directory that OpenCode lists is a worktree of the root's own repository, and not the root itself.
    pub(crate) async fn is_own_worktree(&self, spelling: &str) -> bool {
        self.own(spelling).await.is_some()
    }

    /// Where a worktree is that OpenCode lists. `None`: it is none that callers may touch.
    async fn own(&self, spelling: &str) -> Option<PathBuf> {
        let (root, directory) = (Path::new(&self.root), resolved(Path::new(spelling)).await?);
        let is_safe = Path::new(spelling).is_absolute() && !root.starts_with(&directory);
        let is_own = is_safe && repository::worktree_of(root, &directory).await.as_ref() == Some(&directory);
        is_own.then_some(directory)
    }

    /// Whether what is done to this directory is done to the root as well.
    pub(crate) async fn holds_root(&self, directory: &str) -> bool {
        let found = resolved(Path::new(directory)).await;
        Path::new(&self.root).starts_with(found.as_deref().unwrap_or(Path::new(directory)))
    }

    /// The branch that is checked out there.
    pub(crate) async fn branch(&self, directory: &str) -> Option<String> {
        repository::branch(Path::new(directory)).await
    }

    /// Whether a worktree that OpenCode makes is there with its files.
    pub(crate) async fn is_made(&self, directory: &str) -> bool {
        repository::is_checked_out(Path::new(directory)).await
    }
}

pub(crate) fn last_segment(directory: &str) -> Option<&str> {
    directory.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty())
}

fn not_listed(field: &str) -> Error {
    Error::invalid(
        field,
        "OpenCode lists no such worktree of the gateway's own repository beside the workspace itself; \
         opencode.worktrees.list tells what there is.",
    )
}
