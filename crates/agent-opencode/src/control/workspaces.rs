//! Commands that change the project's workspaces and worktrees.

use std::collections::HashMap;

use longshore_engine::port::{RemovedPlace, RemovedSession, Removes, Session};
use longshore_model::{
    ControlCommand, ControlResult, Error, ErrorKind, NewWorkspace, NewWorktree, Result, SessionId,
    WorkspaceId, WorktreeRef,
};

use super::readiness::{Readiness, ReadinessEvents};
use super::{ForPurpose as _, Purpose, failure, results};
use crate::OpenCode;
use crate::api;
use crate::client::CallError;

/// The kind of an OpenCode workspace that is a worktree. OpenCode reports when such a workspace is ready.
const WORKTREE: &str = "worktree";

impl OpenCode {
    pub(super) async fn create_workspace(&self, new: &NewWorkspace) -> Result<ControlResult> {
        let (client, root) = (&self.for_callers, self.access.root.as_str());
        if let Some(id) = &new.id {
            let listed = client.whole_workspaces(root).await;
            let listed = listed.for_purpose(Purpose::query("list the workspaces"))?;
            if listed.iter().any(|workspace| workspace.id == id.as_str()) {
                return Err(Error::invalid(
                    "request.id",
                    "OpenCode already has a workspace with this id; choose another.",
                ));
            }
        }
        let purpose = Purpose::change("create the workspace");
        let _slot = client.long_slot().await.for_purpose(purpose)?;
        let events = if new.kind == WORKTREE { Some(self.subscribe().await?) } else { None };
        let made = client.create_workspace(root, new).await.and_then(results::workspace);
        // The cached lists are discarded even after a failure, because OpenCode may have created the workspace nevertheless.
        self.access.catalog.forget_workspaces().await;
        let made = made.for_purpose(purpose)?;
        if let (Some(events), Some(directory)) = (events, &made.directory) {
            self.wait_until_ready(events, directory, "workspace").await?;
        }
        Ok(ControlResult::Workspace(Some(made)))
    }

    pub(super) async fn remove_workspace(&self, id: &WorkspaceId) -> Result<ControlResult> {
        let Some(found) = self.own_workspace(id).await? else { return Ok(ControlResult::Workspace(None)) };
        let directory = match &found.directory {
            Some(directory) => Some(resolved(directory).await),
            None => None,
        };
        let removed = self.for_callers.remove_workspace(&self.access.root, id.as_str()).await;
        let removed = removed.and_then(|removed| removed.map(results::workspace).transpose());
        self.access.catalog.forget_workspaces().await;
        if let (Ok(Some(_)), Some(directory)) = (&removed, &directory) {
            self.watch.remove_directory(directory);
        }
        Ok(ControlResult::Workspace(removed.for_purpose(Purpose::change("remove the workspace"))?))
    }

    /// Implements [`longshore_engine::port::Control::removes`].
    pub(super) async fn removed_by(&self, command: &ControlCommand) -> Result<Removes> {
        Ok(match command {
            ControlCommand::RemoveWorktree(worktree) | ControlCommand::ResetWorktree(worktree) => {
                let directory = Some(self.removable_worktree(worktree).await?);
                Removes::Place(RemovedPlace { directory, sessions: Vec::new() })
            }
            ControlCommand::RemoveWorkspace(workspace) => match self.removable_workspace(workspace).await? {
                Some(place) => Removes::Place(place),
                None => Removes::Absent(Box::new(ControlResult::Workspace(None))),
            },
            _ => Removes::Nothing,
        })
    }

    /// The sessions that are deleted with a workspace: OpenCode deletes the sessions of the workspace and their descendants.
    async fn removable_workspace(&self, id: &WorkspaceId) -> Result<Option<RemovedPlace>> {
        let Some(found) = self.own_workspace(id).await? else { return Ok(None) };
        let directory = match found.directory {
            Some(directory) => Some(resolved(&directory).await),
            None => None,
        };
        // A session that belongs to a workspace may work in another directory, so the sessions of all directories are read.
        let purpose = Purpose::query("read which sessions are in the workspace");
        let all = self.for_callers.project_sessions(&self.access.root).await;
        let all = all.for_purpose(purpose)?;
        let sessions = inhabitants(&all, id.as_str()).for_purpose(purpose)?;
        Ok(Some(RemovedPlace { directory, sessions }))
    }

    /// Finds an OpenCode workspace that the caller may remove. Looks only at the workspaces of this project, because OpenCode
    /// itself would remove one of any project. `None`: this project has no OpenCode workspace with this id. Fails for the workspace
    /// in which the gateway itself works.
    async fn own_workspace(&self, id: &WorkspaceId) -> Result<Option<api::control::Workspace>> {
        let listed = self.for_callers.whole_workspaces(&self.access.root).await;
        let listed = listed.for_purpose(Purpose::query("list the workspaces"))?;
        let found = listed.into_iter().find(|workspace| workspace.id == id.as_str());
        if let Some(directory) = found.as_ref().and_then(|found| found.directory.as_ref())
            && self.access.is_needed(directory).await
        {
            return Err(Error::invalid(
                "workspace_id",
                "The gateway itself works in this workspace, so the workspace cannot be removed.",
            ));
        }
        Ok(found)
    }

    pub(super) async fn create_worktree(&self, new: &NewWorktree) -> Result<ControlResult> {
        let (client, root) = (&self.for_callers, self.access.root.as_str());
        let purpose = Purpose::change("create the worktree");
        let _slot = client.long_slot().await.for_purpose(purpose)?;
        let events = self.subscribe().await?;
        let made = client.create_worktree(root, new.name.as_deref(), new.start_command.as_deref()).await;
        self.access.catalog.forget_workspaces().await;
        let made = results::worktree(made.for_purpose(purpose)?);
        self.wait_until_ready(events, &made.directory, "worktree").await?;
        Ok(ControlResult::Worktree(made))
    }

    pub(super) async fn remove_worktree(&self, wanted: &WorktreeRef) -> Result<ControlResult> {
        let listed = self.list_worktrees().await?;
        let directory = self.access.worktree(wanted, &listed).await?;
        let here = resolved(directory).await;
        let removed = self.for_callers.remove_worktree(&self.access.root, directory).await;
        self.access.catalog.forget_workspaces().await;
        if let Ok(true) = removed {
            self.watch.remove_directory(&here);
        }
        Ok(ControlResult::Ok(removed.for_purpose(Purpose::change("remove the worktree"))?))
    }

    pub(super) async fn reset_worktree(&self, wanted: &WorktreeRef) -> Result<ControlResult> {
        let listed = self.list_worktrees().await?;
        let directory = self.access.worktree(wanted, &listed).await?;
        let reset = self.for_callers.reset_worktree(&self.access.root, directory).await;
        self.access.catalog.forget_workspaces().await;
        Ok(ControlResult::Ok(reset.for_purpose(Purpose::change("reset the worktree"))?))
    }

    /// Resolves the directory of a worktree in the same way as the directories of sessions.
    async fn removable_worktree(&self, wanted: &WorktreeRef) -> Result<String> {
        let listed = self.list_worktrees().await?;
        Ok(resolved(self.access.worktree(wanted, &listed).await?).await)
    }

    /// The worktrees that OpenCode lists now.
    async fn list_worktrees(&self) -> Result<Vec<String>> {
        let listed = self.for_callers.worktrees(&self.access.root).await;
        listed.for_purpose(Purpose::query("list the worktrees"))
    }

    /// Opens the stream of readiness events. If this fails, nothing has been changed yet.
    async fn subscribe(&self) -> Result<ReadinessEvents> {
        let events = ReadinessEvents::open(&self.for_callers).await;
        events.for_purpose(Purpose::query("subscribe to OpenCode's events"))
    }

    async fn wait_until_ready(&self, mut events: ReadinessEvents, directory: &str, what: &str) -> Result<()> {
        let readiness = loop {
            match events.next_outcome(directory).await {
                Some(readiness) => break readiness,
                None if self.is_checked_out(directory).await => break Readiness::Ready,
                None => {}
            }
        };
        match readiness {
            Readiness::Ready => Ok(()),
            Readiness::Failed(why) => Err(failure::unexpected(&format!(
                "OpenCode created the {what}, but could not make it ready: {}",
                if why.is_empty() { "OpenCode gave no reason." } else { &why }
            ))
            .detail("detail", why)),
            Readiness::Unknown => Err(Error::new(
                ErrorKind::UpstreamUnreachable,
                format!(
                    "OpenCode created the {what}, but did not report in time that it is ready. The {what} exists: check the \
                     list before you create another."
                ),
            )),
        }
    }

    /// Whether a worktree exists with its files, according to the disk and to OpenCode's list.
    async fn is_checked_out(&self, directory: &str) -> bool {
        let is_on_disk = !self.is_root_here || self.access.is_checked_out(directory).await;
        is_on_disk
            && self.list_worktrees().await.is_ok_and(|listed| listed.iter().any(|one| one == directory))
    }
}

/// Resolves a directory in the same way as the directories of sessions. Returns a directory on another machine unchanged.
async fn resolved(directory: &str) -> String {
    let resolved = tokio::fs::canonicalize(directory).await.ok();
    let resolved = resolved.and_then(|path| path.into_os_string().into_string().ok());
    resolved.unwrap_or_else(|| directory.to_owned())
}

/// The sessions of a workspace, and all their descendants.
fn inhabitants(all: &[api::Session], workspace: &str) -> Result<Vec<RemovedSession>, CallError> {
    let mut below: HashMap<&str, Vec<&api::Session>> = HashMap::new();
    for session in all {
        if let Some(parent) = &session.parent {
            below.entry(parent).or_default().push(session);
        }
    }
    let is_inside = |session: &&api::Session| session.workspace.as_deref() == Some(workspace);
    let mut going: Vec<&api::Session> = all.iter().filter(is_inside).collect();
    let mut found = Vec::new();
    // Each session's children are removed from the map when they are visited, so a cycle of parents terminates.
    while let Some(session) = going.pop() {
        found.push(inhabitant(session)?);
        let children = below.remove(session.id.as_str()).unwrap_or_default();
        going.extend(children.into_iter().filter(|child| !is_inside(child)));
    }
    Ok(found)
}

/// Fails for an unreadable session, so that no session is overlooked.
fn inhabitant(session: &api::Session) -> Result<RemovedSession, CallError> {
    let malformed = |_| CallError::Garbled("a session with a malformed name".to_owned());
    let parent = session.parent.as_deref().map(SessionId::parse).transpose().map_err(malformed)?;
    let directory = session.directory.clone();
    let directory =
        directory.ok_or_else(|| CallError::Garbled("a session without a directory".to_owned()))?;
    let id = SessionId::parse(&session.id).map_err(malformed)?;
    Ok(RemovedSession { session: Session { id, directory }, parent })
}
