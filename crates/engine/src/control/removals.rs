//! Places that are being removed or reset: no turn begins there meanwhile.
//!
//! Whoever begins a turn takes its place in the lane of its session and then looks here; whoever removes a place says so here
//! and then looks at the lanes. So one of the two always sees the other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_model::SessionId;
use tokio::sync::watch;

use crate::port::Session;

/// What is being removed now.
#[derive(Debug, Default)]
pub(crate) struct Removals(watch::Sender<Vec<Arc<Going>>>);

/// What goes: a directory with all that works in it, and sessions wherever they work.
#[derive(Debug, Default)]
pub(crate) struct Going {
    pub(crate) directory: Option<PathBuf>,
    pub(crate) sessions: BTreeSet<SessionId>,
}

/// Something is being removed, until this is dropped.
#[derive(Debug)]
pub(crate) struct Removal {
    removals: Arc<Removals>,
    going: Arc<Going>,
}

impl Going {
    /// Whether this directory is in what goes.
    pub(crate) fn holds(&self, directory: &str) -> bool {
        self.directory.as_ref().is_some_and(|going| Path::new(directory).starts_with(going))
    }

    fn takes(&self, session: &Session) -> bool {
        self.sessions.contains(&session.id) || self.holds(&session.directory)
    }
}

impl Removals {
    pub(crate) fn begin(self: &Arc<Self>, going: Going) -> Removal {
        let going = Arc::new(going);
        self.0.send_modify(|all| all.push(Arc::clone(&going)));
        Removal { removals: Arc::clone(self), going }
    }

    /// Whether this session, or what it works in, is being removed.
    pub(crate) fn take(&self, session: &Session) -> bool {
        is_taken(&self.0.borrow(), session)
    }

    /// Waits until that is over.
    pub(crate) async fn over(&self, session: &Session) {
        // The sender is here, so that an error cannot come.
        let _ = self.0.subscribe().wait_for(|all| !is_taken(all, session)).await;
    }
}

fn is_taken(removals: &[Arc<Going>], session: &Session) -> bool {
    removals.iter().any(|going| going.takes(session))
}

impl Removal {
    pub(crate) fn going(&self) -> &Going {
        &self.going
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.removals.0.send_modify(|all| all.retain(|going| !Arc::ptr_eq(going, &self.going)));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn session(id: &str, directory: &str) -> Session {
        Session { id: SessionId::parse(id).unwrap(), directory: directory.to_owned() }
    }

    fn directory(path: &str) -> Going {
        Going { directory: Some(PathBuf::from(path)), ..Going::default() }
    }

    #[tokio::test]
    async fn what_is_below_a_worktree_waits_for_every_removal_of_it() {
        let removals: Arc<Removals> = Arc::default();
        let (first, second) =
            (removals.begin(directory("/trees/one")), removals.begin(directory("/trees/one")));
        let at = |directory: &str| removals.take(&session("ses_1", directory));
        assert!(at("/trees/one") && at("/trees/one/below"));
        assert!(!at("/trees/one-more") && !at("/trees"));
        let below = session("ses_1", "/trees/one/below");
        let mut waiting = Box::pin(removals.over(&below));
        assert_eq!((&mut waiting).now_or_never(), None);
        drop(first);
        assert_eq!((&mut waiting).now_or_never(), None);
        drop(second);
        waiting.await;
        assert!(!removals.take(&session("ses_1", "/trees/one")));
    }

    #[test]
    fn a_session_that_goes_is_taken_wherever_it_works() {
        let removals: Arc<Removals> = Arc::default();
        let sessions = [session("ses_1", "").id].into();
        let removal = removals.begin(Going { directory: None, sessions });
        assert!(removals.take(&session("ses_1", "/anywhere")));
        assert!(!removals.take(&session("ses_2", "/anywhere")));
        drop(removal);
        assert!(!removals.take(&session("ses_1", "/anywhere")));
    }
}
