//! Tasks that the store can no longer read.

use longshore_model::Failure;

use crate::lifecycle;
use crate::service::Engine;

const REASON: &str = "The stored task is damaged, so the gateway cannot go on with it: what it said last is lost, and its turn \
                      may still run at the agent. A backup of the gateway's store may have more of it.";

impl Engine {
    /// Ends what was left unfinished and cannot be read any more. Nobody would own it: it would work for ever.
    ///
    /// A store that cannot be written keeps the gateway from that, and from nothing else.
    pub(crate) async fn end_damaged(&self) {
        let now = self.around().clock.now();
        let failure = Failure::new(REASON);
        let end = Box::new(move |task: &_| lifecycle::failed(task, now, failure.clone()));
        match self.around().store.end_damaged(now, end).await {
            Ok(ended) => {
                for task in ended {
                    tracing::error!(%task, "a task is damaged, and has ended for that");
                }
            }
            Err(error) => tracing::error!(error = ?error, "tasks that are damaged could not be ended"),
        }
    }
}
