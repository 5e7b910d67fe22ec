//! Worktrees that are to be removed or reset: not while a session works there.

use std::path::Path;

use longshore_model::{Result, WorktreeRef};

use super::refusal;
use super::removals::Removal;
use crate::port::Control;
use crate::service::Engine;

impl Engine {
    /// Refuses while a turn, or a call that has its session for itself, is in the worktree or is about to be. None begins there
    /// until what this gives is dropped.
    pub(super) async fn close_worktree(
        &self,
        control: &dyn Control,
        worktree: &WorktreeRef,
    ) -> Result<Removal> {
        let worktree = control.worktree(worktree).await?;
        // Before anybody is looked for: whoever comes after the look finds it.
        let removal = self.around().removals.begin(&worktree);
        for id in self.around().lanes.sessions() {
            let directory = match self.around().store.owner_of(None, &id).await? {
                Some(owned) => Some(owned.session.directory),
                None => control.find(&id).await?.map(|known| known.session.directory),
            };
            if directory.is_some_and(|directory| Path::new(&directory).starts_with(&worktree)) {
                return Err(refusal::works_there());
            }
        }
        Ok(removal)
    }
}
