//! Caches a response of OpenCode for a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::client::{CallError, Client};

/// The minimum time between two requests after a failure, or after a response that lacked the name that was looked up.
pub(crate) const PAUSE: Duration = Duration::from_secs(5);

/// How long OpenCode may take to respond. In a new directory it first loads providers and plugins, which takes seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The last response. When several callers need a new one, one sends the request and the others wait for it.
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
    /// Returns a response that is not older than `max_age`, or the error of a request that failed now or a moment ago.
    ///
    /// A caller acquires a slot before it sends the request. It does not hold the lock while it waits for the slot, so that it does
    /// not block other callers, whose waits may be shorter.
    pub(crate) async fn get<F>(
        &self,
        max_age: Duration,
        client: &Client,
        ask: impl FnOnce(Client) -> F,
    ) -> Result<Arc<T>, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        loop {
            // While another caller's request runs, wait here for its response.
            let mut state = self.state.lock().await;
            if let Some(known) = state.known(max_age) {
                return known;
            }
            if let Some(slot) = client.try_slot() {
                return state.note(with_timeout(ask(client.with_slot(&slot))).await);
            }
            drop(state);
            let slot = client.slot().await?;
            // Another caller already sends the request: releases the slot and waits for the response.
            let Ok(mut state) = self.state.try_lock() else { continue };
            return match state.known(max_age) {
                Some(known) => known,
                None => state.note(with_timeout(ask(client.with_slot(&slot))).await),
            };
        }
    }

    /// Discards the response, because it is outdated.
    pub(crate) async fn forget(&self) {
        let mut state = self.state.lock().await;
        (state.answer, state.failed) = (None, None);
    }
}

impl<T> State<T> {
    /// The cached result. `None`: it is too old, or there is none.
    fn known(&self, max_age: Duration) -> Option<Result<Arc<T>, CallError>> {
        match (&self.answer, &self.failed) {
            (Some((at, answer)), _) if at.elapsed() < max_age => Some(Ok(Arc::clone(answer))),
            (_, Some((at, cause))) if at.elapsed() < PAUSE => Some(Err(cause.clone())),
            _ => None,
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
                tracing::debug!(%cause, "OpenCode did not report what it offers");
                self.failed = Some((Instant::now(), cause.clone()));
                Err(cause)
            }
        }
    }
}

/// Limits the time for a response.
pub(crate) async fn with_timeout<T>(ask: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
    timeout(PATIENCE, ask).await.unwrap_or(Err(CallError::NoAnswer))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::Endpoint;

    /// A client with one slot.
    fn client() -> Client {
        let endpoint = Endpoint::without_password("http://host");
        Client::new(endpoint, Duration::from_mins(1), 1, Arc::default()).unwrap()
    }

    /// The columns: seconds since the last request, maximum age, OpenCode's response, the result, and the number of requests so
    /// far.
    #[tokio::test(start_paused = true)]
    async fn responses_are_cached_and_failures_are_not_retried_at_once() {
        let (cached, client) = (Cached::default(), client());
        let asked = Cell::new(0);
        let rows = [
            (0, 60, Some("a"), Some("a"), 1),
            (59, 60, Some("b"), Some("a"), 1),
            (1, 60, Some("b"), Some("b"), 2),
            // The cached response lacks a name.
            (4, 5, Some("c"), Some("b"), 2),
            (1, 5, Some("c"), Some("c"), 3),
            // OpenCode becomes unreachable.
            (61, 60, None, None, 4),
            (4, 60, Some("d"), None, 4),
            (1, 60, Some("d"), Some("d"), 5),
        ];
        for (step, (pause, age, answer, expected, calls)) in rows.into_iter().enumerate() {
            tokio::time::advance(Duration::from_secs(pause)).await;
            let ask = async {
                asked.set(asked.get() + 1);
                answer.ok_or(CallError::NoAnswer)
            };
            let got = cached.get(Duration::from_secs(age), &client, |_| ask).await.ok();
            assert_eq!((got.as_deref().copied(), asked.get()), (expected, calls), "row {step}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_without_a_slot_does_not_keep_others_from_asking() {
        let cached = Cached::default();
        let age = Duration::from_mins(1);
        let client = client();
        let held = client.slot().await.unwrap();
        let refused = cached.get(age, &client.for_callers(), |_| async { Ok("b") }).await.unwrap_err();
        assert!(matches!(refused, CallError::NoFreeSlot { .. }), "{refused}");
        drop(held);
        let got = cached.get(age, &client.for_callers(), |_| async { Ok("a") }).await.unwrap();
        assert_eq!(*got, "a");
    }

    /// The waiting callers hold no slots, and a caller that is dropped during its request leaves no response.
    #[tokio::test(start_paused = true)]
    async fn callers_wait_for_a_running_request_without_a_slot() {
        let (cached, client) = (Cached::default(), client());
        let age = Duration::from_mins(1);
        let mut first = Box::pin(cached.get(age, &client, |_| std::future::pending()));
        assert!(first.as_mut().now_or_never().is_none());
        let mut second = Box::pin(cached.get(age, &client, |_| async { Ok("a") }));
        let mut third = Box::pin(cached.get(age, &client, |_| async { Ok("b") }));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        assert!(client.try_slot().is_none(), "the first caller has the only slot");
        drop(first);
        let (second, third) = tokio::join!(second, third);
        let (second, third) = (second.unwrap(), third.unwrap());
        assert_eq!(second, third);
        assert!(client.try_slot().is_some());
    }
}
