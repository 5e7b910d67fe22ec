//! Taking up, at the start of the gateway, the tasks that its last run left unfinished.

use longshore_model::Result;

use crate::service::Engine;

impl Engine {
    /// Gives every unfinished task an owner again, in the order in which they were made, and says how many there
    /// were. Call it before the first request is served.
    ///
    /// A task that was waiting goes on waiting. A task whose prompt may have been sent is looked up at the agent
    /// and goes on from where its log ends; it is never prompted again.
    pub async fn recover(&self) -> Result<usize> {
        let unfinished = self.store().unfinished().await?;
        let owners: Vec<_> = unfinished.into_iter().map(|stored| self.take_up(stored)).collect();
        // Every place in every lane is taken now, so it does not matter which owner runs first.
        let count = owners.len();
        for ownership in owners {
            self.own(ownership);
        }
        Ok(count)
    }
}
