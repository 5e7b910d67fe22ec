//! Worktrees and workspaces that are to be removed or reset: not while a session works there, and not with the sessions of others.

use std::collections::BTreeSet;
use std::path::PathBuf;

use longshore_model::{ControlQuery, ControlResult, Error, ErrorKind, Result, WorkspaceId, WorktreeRef};

use super::claims::Pending;
use super::guard::Guard;
use super::listing::Belongs;
use super::refusal;
use super::removals::{Going, Removal};
use crate::port::{Control, Inhabitant, Inhabited};
use crate::service::Engine;

/// A place that is about to go. No turn begins there until this is dropped.
#[derive(Debug)]
pub(super) struct Closed {
    _removal: Removal,
    /// Nobody takes the sessions of nobody's that go with it.
    _reserved: Vec<Pending>,
}

impl Engine {
    /// Refuses while a turn, or a call that has its session for itself, is in the worktree or is about to be.
    pub(super) async fn close_worktree(
        &self,
        control: &dyn Control,
        worktree: &WorktreeRef,
    ) -> Result<Closed> {
        let directory = Some(PathBuf::from(control.worktree(worktree).await?));
        let removal = self.close(control, Going { directory, ..Going::default() }).await?;
        Ok(Closed { _removal: removal, _reserved: Vec::new() })
    }

    /// The same for a workspace, whose sessions the agent deletes with it: so it is refused too if one of them is somebody else's,
    /// or nobody's and the caller may not take it. `None`: there is no such workspace.
    pub(super) async fn close_workspace(
        &self,
        guard: Guard<'_>,
        workspace: &WorkspaceId,
    ) -> Result<Option<Closed>> {
        let Some(Inhabited { directory, sessions }) = guard.control.workspace(workspace).await? else {
            return Ok(None);
        };
        let reserved = guard.reserve_all(&sessions).await?;
        let going = Going {
            directory: directory.map(PathBuf::from),
            sessions: sessions.iter().map(|inhabitant| inhabitant.session.id.clone()).collect(),
        };
        let removal = self.close(guard.control, going).await?;
        check_at_rest(guard.control, &sessions).await?;
        Ok(Some(Closed { _removal: removal, _reserved: reserved }))
    }

    async fn close(&self, control: &dyn Control, going: Going) -> Result<Removal> {
        // Before anybody is looked for: whoever comes after the look finds it.
        let removal = self.around().removals.begin(going);
        let going = removal.going();
        for id in self.around().lanes.sessions() {
            if going.sessions.contains(&id) {
                return Err(refusal::works_there());
            }
            let directory = match self.around().store.owner_of(None, &id).await? {
                Some(owned) => Some(owned.session.directory),
                None => control.find(&id).await?.map(|known| known.session.directory),
            };
            if directory.is_some_and(|directory| going.holds(&directory)) {
                return Err(refusal::works_there());
            }
        }
        Ok(removal)
    }
}

impl Guard<'_> {
    /// Keeps those that are nobody's from others, and refuses if the caller may not delete them all.
    async fn reserve_all(&self, sessions: &[Inhabitant]) -> Result<Vec<Pending>> {
        let parents = sessions.iter().map(|one| (one.session.id.clone(), one.parent.clone()));
        let mut families = self.families(parents.collect()).await?;
        let mut nobodys = BTreeSet::new();
        for Inhabitant { session, .. } in sessions {
            match families.belongs(&session.id).await? {
                Belongs::To(owner) if owner == self.caller.principal => {}
                Belongs::To(_) if self.changes_all() => {}
                Belongs::To(_) | Belongs::Unknown => return Err(refusal::lives_there()),
                Belongs::ToNobody { root } => {
                    nobodys.insert(root);
                }
            }
        }
        let mut reserved = Vec::new();
        for root in nobodys {
            // Which session it is is not told.
            let forbidden = |error: Error| match error.kind() {
                ErrorKind::SessionForbidden => refusal::lives_there(),
                _ => error,
            };
            reserved.extend(self.reserve(&root, &root).await.map_err(forbidden)?.pending());
        }
        Ok(reserved)
    }
}

/// Refuses while somebody works there who does not go through the gateway.
async fn check_at_rest(control: &dyn Control, sessions: &[Inhabitant]) -> Result<()> {
    let directories: BTreeSet<_> = sessions.iter().map(|one| one.session.directory.as_str()).collect();
    for directory in directories {
        let ControlResult::Statuses(busy) = control.look(directory, None, &ControlQuery::Statuses).await?
        else {
            return Err(Error::internal("the agent told of something else than its sessions"));
        };
        let is_going = |id| sessions.iter().any(|inhabitant| inhabitant.session.id == id);
        if busy.into_iter().any(|status| is_going(status.session)) {
            return Err(refusal::works_there());
        }
    }
    Ok(())
}
