//! Keeping the store from growing for ever: in the background, in small steps, so that no turn waits for it.

use std::time::Duration;

use longshore_model::Timestamp;

use crate::port::{Retained, Retention};
use crate::service::Engine;

/// How often it is looked whether something has become old.
const EVERY: Duration = Duration::from_mins(1);

/// Between two steps, for whatever else wants to write.
const BETWEEN_STEPS: Duration = Duration::from_millis(5);

impl Engine {
    /// Folds and removes what is old, from now on, as the configuration says. Call it once.
    pub fn keep_tidy(&self) {
        let engine = self.clone();
        self.around().tasks.spawn("retention", async move { engine.tidy_until_stopped().await });
    }

    async fn tidy_until_stopped(&self) {
        let stopping = self.around().tasks.stopping().clone();
        let mut done = Retained::default();
        loop {
            let pause = match self.around().store.retain(self.retention()).await {
                Ok(step) => {
                    done.folded += step.folded;
                    done.dropped += step.dropped;
                    if step.more { BETWEEN_STEPS } else { EVERY }
                }
                // It is tried again. What is kept too long harms nobody.
                Err(error) => {
                    tracing::warn!(error = ?error, "what is old could not be folded or removed");
                    EVERY
                }
            };
            if pause == EVERY && done != Retained::default() {
                let Retained { folded, dropped, .. } = std::mem::take(&mut done);
                tracing::info!(folded, dropped, "folded the logs of old tasks, and removed older ones");
            }
            tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn retention(&self) -> Retention {
        let (now, config) = (self.around().clock.now(), &self.around().config);
        let keys_before = before(now, config.idempotency_window);
        Retention {
            now,
            fold_before: config.retention.fold_after.map(|age| before(now, age)),
            // With a task its keys go. While one of them counts the task stays: the same send again would make another.
            drop_before: config.retention.keep_tasks.map(|age| before(now, age).min(keys_before)),
            keys_before,
        }
    }
}

fn before(now: Timestamp, age: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)))
}
