//! An answer of OpenCode that is kept for a while.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use longshore_model::Result as ModelResult;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::client::{CallError, Client};

/// OpenCode is not asked again sooner: not after it did not answer, and not for what it just did not have.
pub(crate) const PAUSE: Duration = Duration::from_secs(5);

/// How long OpenCode has for one answer. In a new directory it first loads providers and plugins, which takes it seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The last answer. Of several callers that need a new one, one asks and the others wait for it.
#[derive(Debug)]
pub(crate) struct Cached<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    answer: Option<(Instant, Arc<T>)>,
    failed: Option<(Instant, CallError)>,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { answer: None, failed: None }) }
    }
}

impl<T> Cached<T> {
    /// An answer that is not older than this. `None`: OpenCode does not answer, now or a moment ago. Fails only where it could
    /// not be asked.
    pub(crate) async fn get<F>(
        &self,
        max_age: Duration,
        client: &Client,
        ask: impl FnOnce(Client) -> F,
    ) -> ModelResult<Option<Arc<T>>>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        match self.get_or_why(max_age, client, ask).await {
            Ok(answer) => Ok(Some(answer)),
            Err(cause @ CallError::Crowded { .. }) => Err(cause.into_error("see what OpenCode has")),
            Err(_) => Ok(None),
        }
    }

    /// An answer that is not older than this, or why OpenCode gives none, now or a moment ago.
    ///
    /// Who asks has a place for it first: to wait for one takes as long as each may wait, and keeps nobody else waiting.
    pub(crate) async fn get_or_why<F>(
        &self,
        max_age: Duration,
        client: &Client,
        ask: impl FnOnce(Client) -> F,
    ) -> Result<Arc<T>, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        loop {
            // Whoever asks now speaks for this one too.
            let mut state = self.state.lock().await;
            if let ControlFlow::Break(known) = state.known(max_age) {
                return known;
            }
            if let Some(place) = client.place_now() {
                return state.note(patiently(ask(client.placed(&place))).await);
            }
            drop(state);
            let place = client.place().await?;
            // Somebody else came first: there is no need to hold a place meanwhile.
            let Ok(mut state) = self.state.try_lock() else { continue };
            return match state.known(max_age) {
                ControlFlow::Break(known) => known,
                ControlFlow::Continue(()) => state.note(patiently(ask(client.placed(&place))).await),
            };
        }
    }

    /// What was answered is no longer so.
    pub(crate) async fn forget(&self) {
        let mut state = self.state.lock().await;
        (state.answer, state.failed) = (None, None);
    }
}

impl<T> State<T> {
    /// Breaks with what is to be said without asking, if anything is.
    fn known(&self, max_age: Duration) -> ControlFlow<Result<Arc<T>, CallError>> {
        match (&self.answer, &self.failed) {
            (Some((at, answer)), _) if at.elapsed() < max_age => ControlFlow::Break(Ok(Arc::clone(answer))),
            (_, Some((at, cause))) if at.elapsed() < PAUSE => ControlFlow::Break(Err(cause.clone())),
            _ => ControlFlow::Continue(()),
        }
    }

    fn note(&mut self, answered: Result<T, CallError>) -> Result<Arc<T>, CallError> {
        match answered {
            Ok(answer) => {
                let answer = Arc::new(answer);
                self.answer = Some((Instant::now(), Arc::clone(&answer)));
                self.failed = None;
                Ok(answer)
            }
            Err(cause) => {
                tracing::debug!(%cause, "OpenCode did not say what it has");
                self.failed = Some((Instant::now(), cause.clone()));
                Err(cause)
            }
        }
    }
}

/// Gives OpenCode some time for an answer.
pub(crate) async fn patiently<T>(ask: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    timeout(PATIENCE, ask).await.unwrap_or(Err(CallError::NoAnswer))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::Endpoint;

    /// Of one place.
    fn client() -> Client {
        let endpoint = Endpoint {
            base_url: "http://host".parse().unwrap(),
            username: "opencode".to_owned(),
            password: None,
        };
        Client::new(endpoint, Duration::from_mins(1), 1, Arc::default()).unwrap()
    }

    /// Each look: after how long, the greatest age, what OpenCode would answer, and what comes of it.
    #[tokio::test(start_paused = true)]
    async fn answers_are_kept_and_failures_are_not_repeated_at_once() {
        let (cached, client) = (Cached::default(), client());
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
            let got = cached.get(Duration::from_secs(age), &client, |_| ask).await.unwrap();
            assert_eq!((got.as_deref().copied(), asked.get()), (expected, calls), "look {step}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_could_not_ask_does_not_keep_others_from_asking() {
        let cached = Cached::default();
        let age = Duration::from_mins(1);
        let client = client();
        let held = client.place().await.unwrap();
        let refused = cached.get(age, &client.for_callers(), |_| async { Ok("b") }).await.unwrap_err();
        assert_eq!(refused.kind(), longshore_model::ErrorKind::UpstreamBackpressure);
        drop(held);
        let got = cached.get(age, &client.for_callers(), |_| async { Ok("a") }).await.unwrap();
        assert_eq!(got.as_deref(), Some(&"a"));
    }

    /// They do not take up the places meanwhile, and one who leaves in the middle of asking is no answer.
    #[tokio::test(start_paused = true)]
    async fn those_who_come_while_somebody_asks_wait_for_the_answer_without_a_place() {
        let (cached, client) = (Cached::default(), client());
        let age = Duration::from_mins(1);
        let mut first = Box::pin(cached.get(age, &client, |_| std::future::pending()));
        assert!(first.as_mut().now_or_never().is_none());
        let mut second = Box::pin(cached.get(age, &client, |_| async { Ok("a") }));
        let mut third = Box::pin(cached.get(age, &client, |_| async { Ok("b") }));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        assert!(client.place_now().is_none(), "the first one has the only place");
        drop(first);
        let (second, third) = tokio::join!(second, third);
        let (second, third) = (second.unwrap(), third.unwrap());
        assert!(second.is_some() && second == third, "{second:?} {third:?}");
        assert!(client.place_now().is_some());
    }
}
