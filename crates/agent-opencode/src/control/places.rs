//! Acts upon the project's workspaces and worktrees.

use std::collections::HashMap;

use longshore_engine::port::{Inhabitant, Inhabited, Session};
use longshore_model::{
    ControlResult, Error, ErrorKind, NewWorkspace, NewWorktree, Result, SessionId, WorkspaceId, WorktreeRef,
};

use super::ready::{Listening, Readiness};
use super::{Doing, failure, told};
use crate::OpenCode;
use crate::api;
use crate::client::CallError;

/// The kind of workspace that is a worktree, and that OpenCode says is ready.
const WORKTREE: &str = "worktree";

impl OpenCode {
    pub(super) async fn created_workspace(&self, new: &NewWorkspace) -> Result<ControlResult> {
        let (client, root) = (&self.for_callers, self.gate.root.as_str());
        if let Some(id) = &new.id {
            let listed = client.whole_workspaces(root).await;
            let listed = listed.map_err(|cause| cause.told(&Doing::looking("list the workspaces")))?;
            if listed.iter().any(|workspace| workspace.id == id.as_str()) {
                return Err(Error::invalid(
                    "request.id",
                    "OpenCode has a workspace of this name; choose another.",
                ));
            }
        }
        let doing = Doing::changing("make the workspace");
        let _place = client.long_place().await.map_err(|cause| cause.told(&doing))?;
        let listening = if new.kind == WORKTREE { Some(self.listen().await?) } else { None };
        let made = client.create_workspace(root, new).await.and_then(told::workspace);
        // Also when it failed: OpenCode may have made it nevertheless.
        self.gate.catalog.forget_places().await;
        let made = made.map_err(|cause| cause.told(&doing))?;
        if let (Some(listening), Some(directory)) = (listening, &made.directory) {
            self.until_ready(listening, directory, "workspace").await?;
        }
        Ok(ControlResult::Workspace(Some(made)))
    }

    pub(super) async fn removed_workspace(&self, id: &WorkspaceId) -> Result<ControlResult> {
        let Some(found) = self.own_workspace(id).await? else { return Ok(ControlResult::Workspace(None)) };
        let directory = match &found.directory {
            Some(directory) => Some(resolved(directory).await),
            None => None,
        };
        let removed = self.for_callers.remove_workspace(&self.gate.root, id.as_str()).await;
        let removed = removed.and_then(|removed| removed.map(told::workspace).transpose());
        self.gate.catalog.forget_places().await;
        if let (Ok(Some(_)), Some(directory)) = (&removed, &directory) {
            self.watch.leave(directory);
        }
        Ok(ControlResult::Workspace(
            removed.map_err(|cause| cause.told(&Doing::changing("remove the workspace")))?,
        ))
    }

    /// What goes with it. OpenCode deletes its sessions, and those that work for them.
    pub(super) async fn removable_workspace(&self, id: &WorkspaceId) -> Result<Option<Inhabited>> {
        let Some(found) = self.own_workspace(id).await? else { return Ok(None) };
        let directory = match found.directory {
            Some(directory) => Some(resolved(&directory).await),
            None => None,
        };
        // A session can be of a workspace and work elsewhere, so those of all directories are looked at.
        let doing = Doing::looking("see which sessions are in the workspace");
        let all = self.for_callers.project_sessions(&self.gate.root).await;
        let all = all.map_err(|cause| cause.told(&doing))?;
        let sessions = inhabitants(&all, id.as_str()).map_err(|cause| cause.told(&doing))?;
        Ok(Some(Inhabited { directory, sessions }))
    }

    /// One that may be removed. OpenCode removes the workspaces of any project by their names. `None`: the project has none of this
    /// name.
    async fn own_workspace(&self, id: &WorkspaceId) -> Result<Option<api::control::Workspace>> {
        let listed = self.for_callers.whole_workspaces(&self.gate.root).await;
        let listed = listed.map_err(|cause| cause.told(&Doing::looking("list the workspaces")))?;
        let found = listed.into_iter().find(|workspace| workspace.id == id.as_str());
        if let Some(directory) = found.as_ref().and_then(|found| found.directory.as_ref())
            && self.gate.holds_root(directory).await
        {
            return Err(Error::invalid(
                "workspace_id",
                "The gateway itself works in this workspace, so it cannot be removed.",
            ));
        }
        Ok(found)
    }

    pub(super) async fn created_worktree(&self, new: &NewWorktree) -> Result<ControlResult> {
        let (client, root) = (&self.for_callers, self.gate.root.as_str());
        let doing = Doing::changing("make the worktree");
        let _place = client.long_place().await.map_err(|cause| cause.told(&doing))?;
        let listening = self.listen().await?;
        let made = client.create_worktree(root, new.name.as_deref(), new.start_command.as_deref()).await;
        self.gate.catalog.forget_places().await;
        let made = told::worktree(made.map_err(|cause| cause.told(&doing))?);
        self.until_ready(listening, &made.directory, "worktree").await?;
        Ok(ControlResult::Worktree(made))
    }

    pub(super) async fn removed_worktree(&self, wanted: &WorktreeRef) -> Result<ControlResult> {
        let listed = self.listed().await?;
        let directory = self.gate.worktree(wanted, &listed).await?;
        let here = resolved(directory).await;
        let removed = self.for_callers.remove_worktree(&self.gate.root, directory).await;
        self.gate.catalog.forget_places().await;
        if let Ok(true) = removed {
            self.watch.leave(&here);
        }
        Ok(ControlResult::Ok(removed.map_err(|cause| cause.told(&Doing::changing("remove the worktree")))?))
    }

    pub(super) async fn reset_worktree(&self, wanted: &WorktreeRef) -> Result<ControlResult> {
        let listed = self.listed().await?;
        let directory = self.gate.worktree(wanted, &listed).await?;
        let reset = self.for_callers.reset_worktree(&self.gate.root, directory).await;
        self.gate.catalog.forget_places().await;
        Ok(ControlResult::Ok(reset.map_err(|cause| cause.told(&Doing::changing("reset the worktree")))?))
    }

    /// Where it is, resolved as the directories of sessions are.
    pub(super) async fn removable_worktree(&self, wanted: &WorktreeRef) -> Result<String> {
        let listed = self.listed().await?;
        Ok(resolved(self.gate.worktree(wanted, &listed).await?).await)
    }

    /// What OpenCode lists now.
    async fn listed(&self) -> Result<Vec<String>> {
        let listed = self.for_callers.worktrees(&self.gate.root).await;
        listed.map_err(|cause| cause.told(&Doing::looking("list the worktrees")))
    }

    /// Nothing has been done yet when this fails.
    async fn listen(&self) -> Result<Listening> {
        let listening = Listening::begin(&self.for_callers).await;
        listening.map_err(|cause| cause.told(&Doing::looking("listen to OpenCode")))
    }

    async fn until_ready(&self, mut listening: Listening, directory: &str, what: &str) -> Result<()> {
        let readiness = loop {
            match listening.hear(directory).await {
                Some(readiness) => break readiness,
                None if self.is_made(directory).await => break Readiness::Ready,
                None => {}
            }
        };
        match readiness {
            Readiness::Ready => Ok(()),
            Readiness::Failed(why) => Err(failure::unexpected(&format!(
                "OpenCode made the {what}, and could not make it ready: {}",
                if why.is_empty() { "it gave no reason." } else { &why }
            ))
            .detail("detail", why)),
            Readiness::Unknown => Err(Error::new(
                ErrorKind::UpstreamUnreachable,
                format!(
                    "OpenCode made the {what}, and did not say in time that it is ready. It is there: look at the list before \
                     you make another."
                ),
            )),
        }
    }

    /// Whether a worktree is there with its files, as far as the disk and OpenCode's list tell.
    async fn is_made(&self, directory: &str) -> bool {
        let is_on_disk = !self.is_root_here || self.gate.is_made(directory).await;
        is_on_disk && self.listed().await.is_ok_and(|listed| listed.iter().any(|one| one == directory))
    }
}

/// A directory as those of sessions are written. One that is not here stays as it is.
async fn resolved(directory: &str) -> String {
    let resolved = tokio::fs::canonicalize(directory).await.ok();
    let resolved = resolved.and_then(|path| path.into_os_string().into_string().ok());
    resolved.unwrap_or_else(|| directory.to_owned())
}

/// The sessions of a workspace, and all that work for them.
fn inhabitants(all: &[api::Session], workspace: &str) -> Result<Vec<Inhabitant>, CallError> {
    let mut below: HashMap<&str, Vec<&api::Session>> = HashMap::new();
    for session in all {
        if let Some(parent) = &session.parent {
            below.entry(parent).or_default().push(session);
        }
    }
    let is_inside = |session: &&api::Session| session.workspace.as_deref() == Some(workspace);
    let mut going: Vec<&api::Session> = all.iter().filter(is_inside).collect();
    let mut found = Vec::new();
    // Those below are taken out of the map, so that each comes once, in a circle too.
    while let Some(session) = going.pop() {
        found.push(inhabitant(session)?);
        let children = below.remove(session.id.as_str()).unwrap_or_default();
        going.extend(children.into_iter().filter(|child| !is_inside(child)));
    }
    Ok(found)
}

/// One that is not understood must not be overlooked.
fn inhabitant(session: &api::Session) -> Result<Inhabitant, CallError> {
    let strange = |_| CallError::Garbled("a session with a strange name".to_owned());
    let parent = session.parent.as_deref().map(SessionId::parse).transpose().map_err(strange)?;
    let directory = session.directory.clone();
    let directory =
        directory.ok_or_else(|| CallError::Garbled("a session without a directory".to_owned()))?;
    let id = SessionId::parse(&session.id).map_err(strange)?;
    Ok(Inhabitant { session: Session { id, directory }, parent })
}
