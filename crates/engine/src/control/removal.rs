//! Checks before a command removes or resets a place (a directory, or a workspace of the agent): no session may be at work there,
//! and no session of another caller may be deleted with the place.

use std::collections::BTreeSet;
use std::path::PathBuf;

use longshore_model::{ControlQuery, ControlResult, Error, ErrorKind, Result};

use super::guard::Guard;
use super::listing::Owner;
use crate::claims::Reservation;
use crate::control_errors;
use crate::port::{Control, RemovedPlace, RemovedSession};
use crate::removals::{Removal, RemovalTarget};
use crate::service::Engine;

/// A place that is about to be removed or reset. No turn begins there until this value is dropped.
#[derive(Debug)]
pub(super) struct ClosedToTurns {
    _removal: Removal,
    /// Keeps other callers from claiming the unowned sessions that are deleted with the place.
    _reserved: Vec<Reservation>,
}

impl Engine {
    /// Keeps new turns out of the place. Fails if a turn, or a command that needs its session for itself, runs there or waits to
    /// run there. Also fails if the command would delete a session of another caller, or an unowned session that the caller may
    /// not claim.
    pub(super) async fn close_place(&self, guard: Guard<'_>, place: RemovedPlace) -> Result<ClosedToTurns> {
        let RemovedPlace { directory, sessions } = place;
        let reserved = guard.reserve_unowned(&sessions).await?;
        let target = RemovalTarget {
            directory: directory.map(PathBuf::from),
            sessions: sessions.iter().map(|inhabitant| inhabitant.session.id.clone()).collect(),
        };
        let removal = self.close(guard.control, target).await?;
        check_idle(guard.control, &sessions).await?;
        Ok(ClosedToTurns { _removal: removal, _reserved: reserved })
    }

    async fn close(&self, control: &dyn Control, target: RemovalTarget) -> Result<Removal> {
        // Registered before the check, so that a turn that begins after the check sees the removal.
        let removal = self.ctx().control_state.removals.begin(target);
        let target = removal.target();
        for id in self.ctx().live.queues.sessions() {
            if target.sessions.contains(&id) {
                return Err(control_errors::works_there());
            }
            let directory = match self.ctx().ports.store.owner_of(None, &id).await? {
                Some(owned) => Some(owned.session.directory),
                None => control.find(&id).await?.map(|known| known.session.directory),
            };
            if directory.is_some_and(|directory| target.contains_directory(&directory)) {
                return Err(control_errors::works_there());
            }
        }
        Ok(removal)
    }
}

impl Guard<'_> {
    /// Reserves the unowned sessions. Fails if the caller may not delete all of the sessions.
    async fn reserve_unowned(&self, sessions: &[RemovedSession]) -> Result<Vec<Reservation>> {
        let parents = sessions.iter().map(|one| (one.session.id.clone(), one.parent.clone()));
        let mut session_tree = self.session_tree(parents.collect()).await?;
        let mut unowned = BTreeSet::new();
        for RemovedSession { session, .. } in sessions {
            match session_tree.owner(&session.id).await? {
                Owner::Principal(owner) if owner == self.caller.principal => {}
                Owner::Principal(_) if self.changes_all() => {}
                Owner::Principal(_) | Owner::Unknown => return Err(control_errors::not_all_yours()),
                Owner::Unowned { root } => {
                    unowned.insert(root);
                }
            }
        }
        let mut reserved = Vec::new();
        for root in unowned {
            // The error must not name the session, which may belong to another caller.
            let forbidden = |error: Error| match error.kind() {
                ErrorKind::SessionForbidden => control_errors::not_all_yours(),
                _ => error,
            };
            reserved.extend(self.reserve(&root, &root).await.map_err(forbidden)?.reservation());
        }
        Ok(reserved)
    }
}

/// Fails if another client of the agent works in one of the sessions.
async fn check_idle(control: &dyn Control, sessions: &[RemovedSession]) -> Result<()> {
    let directories: BTreeSet<_> = sessions.iter().map(|one| one.session.directory.as_str()).collect();
    for directory in directories {
        let ControlResult::Statuses(busy) = control.query(directory, None, &ControlQuery::Statuses).await?
        else {
            return Err(Error::internal("the agent returned something else than the status of its sessions"));
        };
        let is_going = |id| sessions.iter().any(|inhabitant| inhabitant.session.id == id);
        if busy.into_iter().any(|status| is_going(status.session)) {
            return Err(control_errors::works_there());
        }
    }
    Ok(())
}
