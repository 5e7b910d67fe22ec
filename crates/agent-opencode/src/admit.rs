//! Where callers may work: in the workspace, and in the worktrees and workspaces of its project.
//!
//! A path is resolved before it is judged. One that is outside costs OpenCode no request, unless it looks like a worktree
//! of the project here, and only OpenCode's own lists then say that it is one. All refusals of a directory read the same,
//! so that they do not tell what exists outside.

mod repository;
mod worktrees;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_engine::port::{Admission, Admitted};
use longshore_model::{Error, PromptOptions, RequestedLocation, Result, WorkspaceId};

pub(crate) use self::worktrees::last_segment;
use crate::catalog::Catalog;
use crate::id;

const DIRECTORY: &str = "metadata.opencode.directory";
const WORKSPACE: &str = "metadata.opencode.workspace.id";

/// Decides about what callers wish.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) catalog: Arc<Catalog>,
    /// The workspace root, resolved.
    pub(crate) root: String,
    /// Callers may work elsewhere than in the root itself.
    pub(crate) allow_override: bool,
    pub(crate) defaults: PromptOptions,
}

impl Gate {
    pub(crate) async fn admit(&self, wishes: Admission<'_>) -> Result<Admitted> {
        let directory = named(wishes.directory).map(|path| (path, DIRECTORY));
        let directory = self.place(named(wishes.workspace), directory, wishes.current).await?;
        self.catalog.check(&directory, wishes.options, &self.defaults).await?;
        Ok(Admitted { directory })
    }

    /// Where something is to be looked at or done.
    pub(crate) async fn place_of(&self, wish: &RequestedLocation) -> Result<String> {
        let workspace = wish.workspace.as_ref().map(WorkspaceId::as_str);
        let directory = wish.directory.as_ref();
        let directory = directory.and_then(|wished| Some((named(Some(&wished.path))?, wished.field)));
        self.place(workspace, directory, None).await
    }

    /// Whether a session that works there may be used by callers.
    pub(crate) async fn is_open_to_callers(&self, directory: &str) -> Result<bool> {
        if directory == self.root {
            return Ok(true);
        }
        match resolved(Path::new(directory)).await {
            Some(found) => self.is_in_bounds(&found).await,
            None => Ok(false),
        }
    }

    /// `directory`: the path, and the parameter that had it.
    async fn place(
        &self,
        workspace: Option<&str>,
        directory: Option<(&str, &str)>,
        current: Option<&str>,
    ) -> Result<String> {
        // A workspace is looked at first, and then a directory is not.
        if let Some(workspace) = workspace {
            return self.workspace(workspace).await;
        }
        match directory {
            Some((directory, field)) => self.directory(directory, field).await,
            None => Ok(current.unwrap_or(&self.root).to_owned()),
        }
    }

    async fn directory(&self, wish: &str, field: &str) -> Result<String> {
        if is_unspeakable(wish) {
            return Err(Error::invalid(
                field,
                "A directory's path cannot have control characters, nor a percent sign with two hexadecimal digits behind \
                 it: OpenCode would read another path.",
            ));
        }
        let Some(found) = resolved(&Path::new(&self.root).join(wish)).await else {
            return Err(self.out_of_bounds(field));
        };
        if !self.is_in_bounds(&found).await? {
            return Err(self.out_of_bounds(field));
        }
        spoken(found, field)
    }

    /// The directory of a workspace of OpenCode. OpenCode made it, so it can be anywhere.
    async fn workspace(&self, id: &str) -> Result<String> {
        if !self.allow_override {
            return Err(Error::invalid(
                WORKSPACE,
                "This gateway works in its own workspace only; leave this out.",
            ));
        }
        // OpenCode's ids have this form, and it is asked for no other.
        let found = if id.starts_with("wrk") { self.catalog.workspace(id).await? } else { None };
        let directory = match found.and_then(|workspace| workspace.directory) {
            Some(directory) => resolved(Path::new(&directory)).await,
            None => None,
        };
        let Some(directory) = directory else {
            return Err(Error::invalid(
                WORKSPACE,
                "OpenCode has no workspace of this name with a directory here; leave it out, or make one.",
            ));
        };
        spoken(directory, WORKSPACE)
    }

    async fn is_in_bounds(&self, found: &Path) -> Result<bool> {
        if found == Path::new(&self.root) {
            return Ok(true);
        }
        if !self.allow_override {
            return Ok(false);
        }
        if found.starts_with(&self.root) {
            return Ok(true);
        }
        let Some(worktree) = repository::worktree_of(Path::new(&self.root), found).await else {
            return self.is_in_workspace(found).await;
        };
        for anew in [false, true] {
            for listed in self.catalog.worktrees(anew).await?.iter() {
                if resolved(Path::new(listed)).await.as_ref() == Some(&worktree) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// OpenCode lists a workspace there. One that holds the root opens nothing but itself.
    async fn is_in_workspace(&self, found: &Path) -> Result<bool> {
        for anew in [false, true] {
            let listed = self.catalog.workspaces(anew).await?;
            for directory in listed.iter().filter_map(|workspace| workspace.directory.as_deref()) {
                let Some(workspace) = resolved(Path::new(directory)).await else { continue };
                let is_below =
                    found.starts_with(&workspace) && !Path::new(&self.root).starts_with(&workspace);
                if found == workspace || is_below {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn out_of_bounds(&self, field: &str) -> Error {
        let allowed = if self.allow_override {
            "The directory must exist, and be in the gateway's workspace or in a worktree or workspace of its project that \
             OpenCode lists."
        } else {
            "This gateway works in the root of its workspace only; leave this out."
        };
        Error::invalid(field, allowed)
    }
}

/// What a caller wrote, if it is more than blanks.
fn named(wish: Option<&str>) -> Option<&str> {
    wish.map(str::trim).filter(|wish| !wish.is_empty())
}

/// The real path of a directory that exists.
async fn resolved(path: &Path) -> Option<PathBuf> {
    let found = tokio::fs::canonicalize(path).await.ok()?;
    tokio::fs::metadata(&found).await.is_ok_and(|what| what.is_dir()).then_some(found)
}

/// What cannot be said to OpenCode, or in a line of a log.
fn is_unspeakable(path: &str) -> bool {
    id::is_misread(path) || path.chars().any(char::is_control)
}

/// A link can lead to a path that cannot be said.
fn spoken(path: PathBuf, field: &str) -> Result<String> {
    let text = path.into_os_string().into_string().ok().filter(|path| !is_unspeakable(path));
    text.ok_or_else(|| {
        Error::invalid(
            field,
            "OpenCode cannot work in a directory with such a path; choose or rename another.",
        )
    })
}
