//! Worktrees that are being removed or reset: no turn begins there meanwhile.
//!
//! Whoever begins a turn takes its place in the lane of its session and then looks here; whoever removes a worktree says so here
//! and then looks at the lanes. So one of the two always sees the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

/// What is being removed now.
#[derive(Debug, Default)]
pub(crate) struct Removals(watch::Sender<Vec<PathBuf>>);

/// A worktree is being removed, until this is dropped.
#[derive(Debug)]
pub(crate) struct Removal {
    removals: Arc<Removals>,
    worktree: PathBuf,
}

impl Removals {
    pub(crate) fn begin(self: &Arc<Self>, worktree: &str) -> Removal {
        let worktree = PathBuf::from(worktree);
        self.0.send_modify(|all| all.push(worktree.clone()));
        Removal { removals: Arc::clone(self), worktree }
    }

    /// Whether what this directory is in is being removed.
    pub(crate) fn are_at(&self, directory: &str) -> bool {
        holds(&self.0.borrow(), directory)
    }

    /// Waits until that is over.
    pub(crate) async fn over(&self, directory: &str) {
        // The sender is here, so that an error cannot come.
        let _ = self.0.subscribe().wait_for(|all| !holds(all, directory)).await;
    }
}

fn holds(removals: &[PathBuf], directory: &str) -> bool {
    removals.iter().any(|removed| Path::new(directory).starts_with(removed))
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.removals.0.send_modify(|all| {
            if let Some(at) = all.iter().position(|worktree| *worktree == self.worktree) {
                all.swap_remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_below_a_worktree_waits_for_every_removal_of_it() {
        let removals: Arc<Removals> = Arc::default();
        let (first, second) = (removals.begin("/trees/one"), removals.begin("/trees/one"));
        assert!(removals.are_at("/trees/one") && removals.are_at("/trees/one/below"));
        assert!(!removals.are_at("/trees/one-more") && !removals.are_at("/trees"));
        let mut waiting = Box::pin(removals.over("/trees/one/below"));
        assert_eq!((&mut waiting).now_or_never(), None);
        drop(first);
        assert_eq!((&mut waiting).now_or_never(), None);
        drop(second);
        waiting.await;
        assert!(!removals.are_at("/trees/one"));
    }
}
