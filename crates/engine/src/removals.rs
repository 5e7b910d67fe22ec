//! Directories and sessions that a command is removing or resetting. No turn begins there until the command is done.
//!
//! A turn enters the queue of its session before it checks for removals here, and a removal registers here before it checks
//! the queues. So at least one of the two sees the other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_model::SessionId;
use tokio::sync::watch;

use crate::port::Session;

/// The removals in progress.
#[derive(Debug, Default)]
pub(crate) struct Removals(watch::Sender<Vec<Arc<RemovalTarget>>>);

/// The target of a removal: a directory with all sessions in it, and sessions in any directory.
#[derive(Debug, Default)]
pub(crate) struct RemovalTarget {
    pub(crate) directory: Option<PathBuf>,
    pub(crate) sessions: BTreeSet<SessionId>,
}

/// A removal in progress. Dropping it ends the removal.
#[derive(Debug)]
pub(crate) struct Removal {
    removals: Arc<Removals>,
    target: Arc<RemovalTarget>,
}

impl RemovalTarget {
    /// Whether this directory is inside the removed one.
    pub(crate) fn contains_directory(&self, directory: &str) -> bool {
        self.directory.as_ref().is_some_and(|target| Path::new(directory).starts_with(target))
    }

    fn contains(&self, session: &Session) -> bool {
        self.sessions.contains(&session.id) || self.contains_directory(&session.directory)
    }
}

impl Removals {
    pub(crate) fn begin(self: &Arc<Self>, target: RemovalTarget) -> Removal {
        let target = Arc::new(target);
        self.0.send_modify(|all| all.push(Arc::clone(&target)));
        Removal { removals: Arc::clone(self), target }
    }

    /// Whether this session or its directory is being removed.
    pub(crate) fn affects(&self, session: &Session) -> bool {
        is_affected(&self.0.borrow(), session)
    }

    /// Waits until no removal affects this session.
    pub(crate) async fn wait_until_over(&self, session: &Session) {
        // Cannot fail, because `self` holds the sender of the channel.
        let _ = self.0.subscribe().wait_for(|all| !is_affected(all, session)).await;
    }
}

fn is_affected(removals: &[Arc<RemovalTarget>], session: &Session) -> bool {
    removals.iter().any(|target| target.contains(session))
}

impl Removal {
    pub(crate) fn target(&self) -> &RemovalTarget {
        &self.target
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.removals.0.send_modify(|all| all.retain(|target| !Arc::ptr_eq(target, &self.target)));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn session(id: &str, directory: &str) -> Session {
        Session { id: SessionId::parse(id).unwrap(), directory: directory.to_owned() }
    }

    fn directory(path: &str) -> RemovalTarget {
        RemovalTarget { directory: Some(PathBuf::from(path)), ..RemovalTarget::default() }
    }

    #[tokio::test]
    async fn a_session_inside_a_worktree_waits_for_every_removal_of_it() {
        let removals: Arc<Removals> = Arc::default();
        let (first, second) =
            (removals.begin(directory("/trees/one")), removals.begin(directory("/trees/one")));
        let at = |directory: &str| removals.affects(&session("ses_1", directory));
        assert!(at("/trees/one") && at("/trees/one/below"));
        assert!(!at("/trees/one-more") && !at("/trees"));
        let below = session("ses_1", "/trees/one/below");
        let mut waiting = Box::pin(removals.wait_until_over(&below));
        assert_eq!((&mut waiting).now_or_never(), None);
        drop(first);
        assert_eq!((&mut waiting).now_or_never(), None);
        drop(second);
        waiting.await;
        assert!(!removals.affects(&session("ses_1", "/trees/one")));
    }

    #[test]
    fn a_removed_session_is_affected_in_any_directory() {
        let removals: Arc<Removals> = Arc::default();
        let sessions = [session("ses_1", "").id].into();
        let removal = removals.begin(RemovalTarget { directory: None, sessions });
        assert!(removals.affects(&session("ses_1", "/anywhere")));
        assert!(!removals.affects(&session("ses_2", "/anywhere")));
        drop(removal);
        assert!(!removals.affects(&session("ses_1", "/anywhere")));
    }
}
