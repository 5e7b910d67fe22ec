//! Decides where callers may work: in the workspace, in further directories that the operator has opened, and in the worktrees
//! and OpenCode workspaces of the project.
//!
//! A path is resolved before it is checked. A path outside the root is allowed only if it is in a worktree or an OpenCode
//! workspace that OpenCode lists. All refusals of a directory have the same text, so that they do not reveal which paths exist
//! outside the root.

mod repository;
mod worktrees;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_engine::ProtectedPaths;
use longshore_engine::port::{Admission, Admitted};
use longshore_model::{Error, RequestedLocation, Result, WorkspaceId};

pub(crate) use self::worktrees::last_segment;
use crate::catalog::{Catalog, Fields, Unverified};
use crate::directories::DirectoryKeeper;
use crate::rules::PromptRules;
use crate::{disk, id};

const DIRECTORY: &str = "metadata.opencode.directory";
const WORKSPACE: &str = "metadata.opencode.workspace.id";

/// Decides which requested directories, models and agents callers may use.
#[derive(Debug)]
pub(crate) struct AccessPolicy {
    pub(crate) catalog: Arc<Catalog>,
    /// The resolved workspace root.
    pub(crate) root: String,
    /// Further directories that the operator has opened to callers, resolved.
    pub(crate) other_roots: Vec<PathBuf>,
    /// Whether callers may work outside the root directory itself.
    pub(crate) allow_override: bool,
    pub(crate) protected: Arc<ProtectedPaths>,
    pub(crate) rules: Arc<PromptRules>,
    pub(crate) directories: Arc<DirectoryKeeper>,
}

impl AccessPolicy {
    pub(crate) async fn admit(&self, requested: Admission<'_>) -> Result<Admitted> {
        let directory = unless_blank(requested.directory).map(|path| (path, DIRECTORY));
        let directory = self.resolve(unless_blank(requested.workspace), directory, requested.current).await?;
        let (fields, unverified) = (Fields::OF_MESSAGE, Unverified::Accept);
        self.rules.check(requested.options, fields)?;
        let _in_use = self.directories.enter(&directory).await?;
        let defaults = &self.rules.defaults;
        self.catalog.check(&directory, requested.options, defaults, fields, unverified).await?;
        Ok(Admitted { directory })
    }

    /// The directory in which a query or command runs.
    pub(crate) async fn resolve_location(&self, requested: &RequestedLocation) -> Result<String> {
        let workspace = requested.workspace.as_ref().map(WorkspaceId::as_str);
        let directory = requested.directory.as_ref();
        let directory =
            directory.and_then(|directory| Some((unless_blank(Some(&directory.path))?, directory.field)));
        let directory = self.resolve(workspace, directory, None).await?;
        self.directories.enter_for_call(&directory).await?;
        Ok(directory)
    }

    /// Whether callers may use a session that works in this directory.
    pub(crate) async fn is_open_to_callers(&self, directory: &str) -> Result<bool> {
        if directory == self.root {
            return Ok(true);
        }
        match resolve_directory(Path::new(directory)).await {
            Some(found) => self.is_allowed(&found).await,
            None => Ok(false),
        }
    }

    /// Resolves a requested directory. `directory`: the path, and the name of the request field that holds it.
    async fn resolve(
        &self,
        workspace: Option<&str>,
        directory: Option<(&str, &str)>,
        current: Option<&str>,
    ) -> Result<String> {
        // An OpenCode workspace has priority over a directory.
        if let Some(workspace) = workspace {
            return self.workspace(workspace).await;
        }
        match directory {
            Some((directory, field)) => self.directory(directory, field).await,
            None => Ok(current.unwrap_or(&self.root).to_owned()),
        }
    }

    async fn directory(&self, requested: &str, field: &str) -> Result<String> {
        if is_unsafe_path(requested) {
            return Err(Error::invalid(
                field,
                "A directory's path must not contain control characters, nor a percent sign followed by two hexadecimal \
                 digits: OpenCode would read it as another path.",
            ));
        }
        let found = resolve_directory(&Path::new(&self.root).join(requested)).await;
        let Some(found) = found else { return Err(self.refusal(field)) };
        if !self.is_allowed(&found).await? {
            return Err(self.refusal(field));
        }
        into_text(found, field)
    }

    /// The directory of an OpenCode workspace. OpenCode chose it, so it can be anywhere.
    async fn workspace(&self, id: &str) -> Result<String> {
        if !self.allow_override {
            return Err(Error::invalid(
                WORKSPACE,
                "This gateway works in its own workspace only; leave this field out.",
            ));
        }
        // The ids of all OpenCode workspaces have this prefix, so OpenCode is not queried for other ids.
        let found = if id.starts_with("wrk") { self.catalog.workspace(id).await? } else { None };
        let directory = match found.and_then(|workspace| workspace.directory) {
            Some(directory) => resolve_directory(Path::new(&directory)).await,
            None => None,
        };
        let directory = match directory {
            Some(directory) if disk::is_protected(&self.protected, [&directory]).await => None,
            directory => directory,
        };
        let Some(directory) = directory else {
            return Err(Error::invalid(
                WORKSPACE,
                "OpenCode has no workspace with this id and a directory on this machine; leave it out, or create one.",
            ));
        };
        into_text(directory, WORKSPACE)
    }

    async fn is_allowed(&self, found: &Path) -> Result<bool> {
        if found == Path::new(&self.root) {
            return Ok(true);
        }
        if !self.allow_override || disk::is_protected(&self.protected, [found]).await {
            return Ok(false);
        }
        if found.starts_with(&self.root) || self.other_roots.iter().any(|root| found.starts_with(root)) {
            return Ok(true);
        }
        let Some(worktree) = repository::worktree_of(Path::new(&self.root), found).await else {
            return self.is_in_workspace(found).await;
        };
        for refresh in [false, true] {
            for listed in self.catalog.worktrees(refresh).await?.iter() {
                if resolve_directory(Path::new(listed)).await.as_ref() == Some(&worktree) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether the directory belongs to a workspace that OpenCode lists. If such a workspace contains the root, only the
    /// workspace's own directory is allowed, and not the directories below it.
    async fn is_in_workspace(&self, found: &Path) -> Result<bool> {
        for refresh in [false, true] {
            let listed = self.catalog.workspaces(refresh).await?;
            for directory in listed.iter().filter_map(|workspace| workspace.directory.as_deref()) {
                let Some(workspace) = resolve_directory(Path::new(directory)).await else { continue };
                let is_below =
                    found.starts_with(&workspace) && !Path::new(&self.root).starts_with(&workspace);
                if found == workspace || is_below {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn refusal(&self, field: &str) -> Error {
        let allowed = if self.allow_override {
            "The directory must exist, and be in the gateway's workspace, in a directory that its operator allowed, or in a \
             worktree or workspace of its project that OpenCode lists."
        } else {
            "This gateway works in the root of its workspace only; leave this field out."
        };
        Error::invalid(field, allowed)
    }
}

fn unless_blank(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// The resolved path of an existing directory. `None`: there is no such directory.
async fn resolve_directory(path: &Path) -> Option<PathBuf> {
    let found = tokio::fs::canonicalize(path).await.ok()?;
    tokio::fs::metadata(&found).await.is_ok_and(|what| what.is_dir()).then_some(found)
}

/// Whether OpenCode would decode the path into another path, or the path would garble the log.
fn is_unsafe_path(path: &str) -> bool {
    id::is_misread(path) || path.chars().any(char::is_control)
}

/// Converts a resolved path to text. Fails for an unsafe path, because a link can lead to one.
fn into_text(path: PathBuf, field: &str) -> Result<String> {
    let text = path.into_os_string().into_string().ok().filter(|path| !is_unsafe_path(path));
    text.ok_or_else(|| {
        Error::invalid(
            field,
            "OpenCode cannot work in a directory with such a path; choose another, or rename it.",
        )
    })
}
