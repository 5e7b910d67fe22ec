//! Ends tasks that the store can no longer read.

use longshore_model::{Failure, Timestamp};

use crate::lifecycle;
use crate::port::EndTask;
use crate::service::Engine;

const REASON: &str = "The stored task is damaged, so the gateway cannot continue it: its last state is lost, and its turn \
                      may still run at the agent. A backup of the gateway's store may have more of it.";

const REPAIRED: &str = "The stored task was damaged, and `longshore repair` ended it: this is what is left of it, its last state \
                        is lost, and its turn may still run at the agent. A backup of the gateway's store may have more of it.";

/// Makes the last event of a task that a repair of the store could not fully restore.
pub fn end_of_repaired(now: Timestamp) -> EndTask {
    Box::new(move |task| lifecycle::failed(task, now, Failure::new(REPAIRED)))
}

impl Engine {
    /// Ends unfinished tasks that the store can no longer read. Such tasks would have no actor and never end.
    ///
    /// An error of the store is only logged, so that it does not keep the gateway from starting.
    pub(crate) async fn end_damaged(&self) {
        let now = self.ctx().ports.clock.now();
        let failure = Failure::new(REASON);
        let end = Box::new(move |task: &_| lifecycle::failed(task, now, failure.clone()));
        match self.ctx().ports.store.end_damaged(now, end).await {
            Ok(ended) => {
                for task in ended {
                    tracing::error!(%task, "a task is damaged and was ended");
                }
            }
            Err(error) => tracing::error!(error = ?error, "damaged tasks could not be ended"),
        }
    }
}
