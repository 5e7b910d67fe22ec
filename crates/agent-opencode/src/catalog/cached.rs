//! An answer of OpenCode that is kept for a while.

use std::sync::Arc;
use std::time::Duration;

use longshore_model::Result as ModelResult;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::client::CallError;

/// OpenCode is not asked again sooner: not after it did not answer, and not for what it just did not have.
pub(crate) const PAUSE: Duration = Duration::from_secs(5);

/// The last answer. Of several callers that need a new one, one asks and the others wait for it.
#[derive(Debug)]
pub(crate) struct Cached<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    answer: Option<(Instant, Arc<T>)>,
    failed: Option<Instant>,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { answer: None, failed: None }) }
    }
}

impl<T> Cached<T> {
    /// An answer that is not older than this. `None`: OpenCode does not answer, now or a moment ago. Fails only where it could
    /// not be asked.
    pub(crate) async fn get(
        &self,
        max_age: Duration,
        ask: impl Future<Output = Result<T, CallError>>,
    ) -> ModelResult<Option<Arc<T>>> {
        let mut state = self.state.lock().await;
        if let Some((at, answer)) = &state.answer
            && at.elapsed() < max_age
        {
            return Ok(Some(Arc::clone(answer)));
        }
        if state.failed.is_some_and(|at| at.elapsed() < PAUSE) {
            return Ok(None);
        }
        match ask.await {
            Ok(answer) => {
                let answer = Arc::new(answer);
                state.answer = Some((Instant::now(), Arc::clone(&answer)));
                state.failed = None;
                Ok(Some(answer))
            }
            Err(cause @ CallError::Crowded { .. }) => Err(cause.into_error("see what OpenCode has")),
            Err(cause) => {
                tracing::debug!(%cause, "OpenCode did not say what it has");
                state.failed = Some(Instant::now());
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Each look: after how long, the greatest age, what OpenCode would answer, and what comes of it.
    #[tokio::test(start_paused = true)]
    async fn answers_are_kept_and_failures_are_not_repeated_at_once() {
        let cached = Cached::default();
        let asked = Cell::new(0);
        let looks = [
            (0, 60, Some("a"), Some("a"), 1),
            (59, 60, Some("b"), Some("a"), 1),
            (1, 60, Some("b"), Some("b"), 2),
            // Somebody misses something in it.
            (4, 5, Some("c"), Some("b"), 2),
            (1, 5, Some("c"), Some("c"), 3),
            // OpenCode goes away.
            (61, 60, None, None, 4),
            (4, 60, Some("d"), None, 4),
            (1, 60, Some("d"), Some("d"), 5),
        ];
        for (step, (pause, age, answer, expected, calls)) in looks.into_iter().enumerate() {
            tokio::time::advance(Duration::from_secs(pause)).await;
            let ask = async {
                asked.set(asked.get() + 1);
                answer.ok_or(CallError::NoAnswer)
            };
            let got = cached.get(Duration::from_secs(age), ask).await.unwrap();
            assert_eq!((got.as_deref().copied(), asked.get()), (expected, calls), "look {step}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_could_not_ask_does_not_keep_others_from_asking() {
        let cached = Cached::default();
        let age = Duration::from_mins(1);
        let refused = cached.get(age, async { Err(CallError::Crowded { calls: 1 }) }).await.unwrap_err();
        assert_eq!(refused.kind(), longshore_model::ErrorKind::UpstreamBackpressure);
        assert_eq!(cached.get(age, async { Ok("a") }).await.unwrap().as_deref(), Some(&"a"));
    }
}
