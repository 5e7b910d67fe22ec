//! Deletes old data, so that the store does not grow for ever. Runs in the background in small steps, so that no turn waits.

use std::time::Duration;

use longshore_model::Timestamp;

use crate::port::{Retention, RetentionStep};
use crate::retry::sleep_unless_stopping;
use crate::service::Engine;

/// How often retention checks for old data.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// The pause between two steps, in which other writers can write.
const BETWEEN_STEPS: Duration = Duration::from_millis(5);

impl Engine {
    /// Starts to fold and delete old data as configured. Must be called once.
    pub fn start_retention(&self) {
        let engine = self.clone();
        self.ctx().tasks.spawn("retention", async move { engine.retain_until_stopped().await });
    }

    async fn retain_until_stopped(&self) {
        let mut done = RetentionStep::default();
        loop {
            let pause = match self.ctx().ports.store.retain(self.retention()).await {
                Ok(step) => {
                    done.folded += step.folded;
                    done.dropped += step.dropped;
                    if step.more { BETWEEN_STEPS } else { CHECK_INTERVAL }
                }
                // The next round tries again. Data that is kept too long does no harm.
                Err(error) => {
                    tracing::warn!(error = ?error, "old tasks could not be folded or deleted");
                    CHECK_INTERVAL
                }
            };
            if pause == CHECK_INTERVAL && done != RetentionStep::default() {
                let RetentionStep { folded, dropped, .. } = std::mem::take(&mut done);
                tracing::info!(folded, dropped, "folded the logs of old tasks, and deleted older tasks");
            }
            if !sleep_unless_stopping(&self.ctx().tasks, pause).await {
                return;
            }
        }
    }

    fn retention(&self) -> Retention {
        let (now, config) = (self.ctx().ports.clock.now(), &self.ctx().config);
        let keys_before = before(now, config.idempotency_window);
        Retention {
            now,
            fold_before: config.retention.fold_after.map(|age| before(now, age)),
            // Deleting a task deletes its idempotency keys. The task stays while one of them counts, because otherwise a repeated
            // send would create another task.
            drop_before: config.retention.keep_tasks.map(|age| before(now, age).min(keys_before)),
            keys_before,
        }
    }
}

fn before(now: Timestamp, age: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)))
}
