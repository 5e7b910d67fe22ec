//! Decides in which directories callers may work, and which options they may use.
//!
//! A path is resolved before it is checked. All refusals of a directory have the same text, so that they do not reveal which paths
//! exist outside the workspace.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_engine::ProtectedPaths;
use longshore_engine::port::{Admission, Admitted};
use longshore_model::{Error, PromptOptions, RequestedLocation, Result};

const DIRECTORY: &str = "metadata.opencode.directory";
const WORKSPACE: &str = "metadata.opencode.workspace.id";
const NO_WORKSPACES: &str = "This agent has no workspaces of its own; leave this field out.";

/// The directory tree that callers may work in.
#[derive(Debug)]
pub(super) struct Workspace {
    /// The resolved path of the workspace.
    root: PathBuf,
    /// Whether callers may work in directories below the root.
    allow_override: bool,
    protected: Arc<ProtectedPaths>,
}

impl Workspace {
    pub(super) fn new(root: &Path, allow_override: bool, protected: Arc<ProtectedPaths>) -> Self {
        let root = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        Self { root, allow_override, protected }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) async fn admit(&self, request: Admission<'_>) -> Result<Admitted> {
        if unless_blank(request.workspace).is_some() {
            return Err(Error::invalid(WORKSPACE, NO_WORKSPACES));
        }
        refuse_absent_options(request.options)?;
        let directory = match (unless_blank(request.directory), request.current) {
            (Some(requested), _) => self.resolve(requested, DIRECTORY).await?,
            (None, Some(current)) => current.to_owned(),
            (None, None) => text(&self.root, DIRECTORY)?,
        };
        Ok(Admitted { directory })
    }

    /// The directory of a location that a call names.
    pub(super) async fn locate(&self, location: &RequestedLocation) -> Result<String> {
        match (&location.workspace, &location.directory) {
            (Some(_), _) => Err(Error::invalid(WORKSPACE, NO_WORKSPACES)),
            (None, Some(directory)) => self.resolve(&directory.path, directory.field).await,
            (None, None) => text(&self.root, DIRECTORY),
        }
    }

    /// Whether callers may work in this directory, which the agent reports for a session.
    pub(super) async fn is_open(&self, directory: &str) -> bool {
        self.resolve(directory, DIRECTORY).await.is_ok_and(|found| found == directory)
    }

    /// Fails if an admitted directory no longer exists, or its path leads to another directory now.
    pub(super) async fn check_unchanged(&self, directory: &str) -> Result<()> {
        match tokio::fs::canonicalize(directory).await {
            Ok(found) if found == Path::new(directory) => Ok(()),
            _ => Err(Error::invalid(
                DIRECTORY,
                "This directory was removed, or replaced by a link, after it was checked; choose another.",
            )),
        }
    }

    /// Resolves a requested directory. `field`: the request field that holds the directory, for the error.
    async fn resolve(&self, requested: &str, field: &str) -> Result<String> {
        let found = tokio::fs::canonicalize(self.root.join(requested)).await.map_err(|_| refusal(field))?;
        if !self.allow_override && found != self.root {
            return Err(Error::invalid(
                field,
                "This gateway works in the root of its workspace only; leave this field out.",
            ));
        }
        let is_directory = tokio::fs::metadata(&found).await.is_ok_and(|found| found.is_dir());
        if !is_directory || !found.starts_with(&self.root) || self.is_protected(&found).await {
            return Err(refusal(field));
        }
        text(&found, field)
    }

    /// Whether a directory is protected. One that could not be checked counts as protected. The root never does, because the
    /// operator chose it.
    async fn is_protected(&self, found: &Path) -> bool {
        if found == self.root {
            return false;
        }
        let (protected, found) = (Arc::clone(&self.protected), found.to_owned());
        tokio::task::spawn_blocking(move || protected.deny(&found)).await.unwrap_or(true)
    }
}

/// Refuses options that ACP does not have.
fn refuse_absent_options(options: &PromptOptions) -> Result<()> {
    for (field, value) in [
        ("metadata.opencode.agent", &options.agent),
        ("metadata.opencode.variant", &options.variant),
        ("metadata.opencode.system", &options.system),
    ] {
        if value.is_some() {
            return Err(Error::invalid(field, "This agent has no such option; leave this field out."));
        }
    }
    Ok(())
}

fn unless_blank(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn text(path: &Path, field: &str) -> Result<String> {
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control));
    text.map(str::to_owned).ok_or_else(|| {
        Error::invalid(
            field,
            "A directory's path must be UTF-8 without control characters; choose another, or rename it.",
        )
    })
}

fn refusal(field: &str) -> Error {
    Error::invalid(field, "The directory must exist and be in the gateway's workspace.")
}
