//! Acts upon the project's workspaces and worktrees.

use longshore_model::{Error, ErrorKind, NewWorkspace, NewWorktree, Result, Told, WorkspaceId, WorktreeRef};

use super::ready::{Listening, Readiness};
use super::{Doing, failure, told};
use crate::OpenCode;

/// The kind of workspace that is a worktree, and that OpenCode says is ready.
const WORKTREE: &str = "worktree";

impl OpenCode {
    pub(super) async fn created_workspace(&self, new: &NewWorkspace) -> Result<Told> {
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
        Ok(Told::Workspace(Some(made)))
    }

    pub(super) async fn removed_workspace(&self, id: &WorkspaceId) -> Result<Told> {
        let (client, root) = (&self.for_callers, self.gate.root.as_str());
        let listed = client.whole_workspaces(root).await;
        let listed = listed.map_err(|cause| cause.told(&Doing::looking("list the workspaces")))?;
        // OpenCode removes the workspaces of any project by their names.
        let Some(found) = listed.into_iter().find(|workspace| workspace.id == id.as_str()) else {
            return Ok(Told::Workspace(None));
        };
        if let Some(directory) = &found.directory
            && self.gate.holds_root(directory).await
        {
            return Err(Error::invalid(
                "workspace_id",
                "The gateway itself works in this workspace, so it cannot be removed.",
            ));
        }
        let removed = client.remove_workspace(root, id.as_str()).await;
        let removed = removed.and_then(|removed| removed.map(told::workspace).transpose());
        self.gate.catalog.forget_places().await;
        Ok(Told::Workspace(removed.map_err(|cause| cause.told(&Doing::changing("remove the workspace")))?))
    }

    pub(super) async fn created_worktree(&self, new: &NewWorktree) -> Result<Told> {
        let (client, root) = (&self.for_callers, self.gate.root.as_str());
        let doing = Doing::changing("make the worktree");
        let _place = client.long_place().await.map_err(|cause| cause.told(&doing))?;
        let listening = self.listen().await?;
        let made = client.create_worktree(root, new.name.as_deref(), new.start_command.as_deref()).await;
        self.gate.catalog.forget_places().await;
        let made = told::worktree(made.map_err(|cause| cause.told(&doing))?);
        self.until_ready(listening, &made.directory, "worktree").await?;
        Ok(Told::Worktree(made))
    }

    pub(super) async fn removed_worktree(&self, wanted: &WorktreeRef) -> Result<Told> {
        let listed = self.listed().await?;
        let directory = self.gate.worktree(wanted, &listed).await?;
        let removed = self.for_callers.remove_worktree(&self.gate.root, directory).await;
        self.gate.catalog.forget_places().await;
        Ok(Told::Ok(removed.map_err(|cause| cause.told(&Doing::changing("remove the worktree")))?))
    }

    pub(super) async fn reset_worktree(&self, wanted: &WorktreeRef) -> Result<Told> {
        let listed = self.listed().await?;
        let directory = self.gate.worktree(wanted, &listed).await?;
        let reset = self.for_callers.reset_worktree(&self.gate.root, directory).await;
        self.gate.catalog.forget_places().await;
        Ok(Told::Ok(reset.map_err(|cause| cause.told(&Doing::changing("reset the worktree")))?))
    }

    /// Where it is, resolved as the directories of sessions are.
    pub(super) async fn removable_worktree(&self, wanted: &WorktreeRef) -> Result<String> {
        let listed = self.listed().await?;
        let spelling = self.gate.worktree(wanted, &listed).await?;
        let resolved = tokio::fs::canonicalize(spelling).await.ok();
        let resolved = resolved.and_then(|path| path.into_os_string().into_string().ok());
        Ok(resolved.unwrap_or_else(|| spelling.to_owned()))
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
