//! Keeps the store from growing for ever: in the background, in small steps, so that no turn waits for it.

use std::time::Duration;

use longshore_model::Timestamp;

use crate::port::{Retention, RetentionStep};
use crate::retry::sleep_unless_stopping;
use crate::service::Engine;

/// How often retention checks for old data.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// The pause between two steps, for other writers.
const BETWEEN_STEPS: Duration = Duration::from_millis(5);

impl Engine {
    /// Folds and deletes old data from now on, as configured. Call it once.
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
                // The next step tries again. Data that is kept too long does no harm.
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
            // The keys of a task are deleted with it. While one of them counts the task stays: otherwise the same send would
            // make another task.
            drop_before: config.retention.keep_tasks.map(|age| before(now, age).min(keys_before)),
            keys_before,
        }
    }
}

fn before(now: Timestamp, age: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)))
}
