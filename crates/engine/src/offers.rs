//! Caches the agents and commands that the agent offers. Clients request agent cards often, and the agent builds its lists
//! anew for each query.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_model::Offers;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::port::Control;
use crate::tasks::Tasks;

/// How long the cached lists are used.
const FRESH: Duration = Duration::from_mins(1);

/// How long after a failure the agent is queried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How long a caller waits for the agent's response. After that, the caller gets the last known lists.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct OfferCache(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Arc<Offers>,
    fresh_until: Option<Instant>,
    /// Set while a query is in progress. The channel closes when the response has arrived.
    pending: Option<watch::Receiver<()>>,
}

impl OfferCache {
    pub(crate) async fn get(self: &Arc<Self>, tasks: &Tasks, control: &Arc<dyn Control>) -> Arc<Offers> {
        let mut pending = {
            let mut state = self.lock();
            if state.fresh_until.is_some_and(|until| Instant::now() < until) {
                return Arc::clone(&state.last);
            }
            // The task that ran the query may have panicked. Then no query is in progress.
            if state.pending.as_ref().is_some_and(|pending| pending.has_changed().is_err()) {
                state.pending = None;
            }
            state.pending.get_or_insert_with(|| self.query(tasks, Arc::clone(control))).clone()
        };
        // The result of the wait does not matter: the known lists are returned whether the query succeeded, failed or timed out.
        let _ = timeout(PATIENCE, pending.changed()).await;
        Arc::clone(&self.lock().last)
    }

    /// Queries the agent in a background task, so that the response is cached even if no caller waits for it any more.
    fn query(self: &Arc<Self>, tasks: &Tasks, control: Arc<dyn Control>) -> watch::Receiver<()> {
        let (answered, pending) = watch::channel(());
        let (known, stopping) = (Arc::clone(self), tasks.stopping().clone());
        tasks.spawn("offers", async move {
            let listed = tokio::select! {
                biased;
                () = stopping.cancelled() => None,
                listed = control.offers() => Some(listed),
            };
            let mut state = known.lock();
            state.pending = None;
            state.fresh_until = Some(match listed {
                Some(Ok(offers)) => {
                    state.last = Arc::new(offers);
                    Instant::now() + FRESH
                }
                Some(Err(error)) => {
                    tracing::debug!(error = ?error, "the agent does not say what it offers");
                    Instant::now() + RETRY_AFTER
                }
                None => Instant::now() + RETRY_AFTER,
            });
            drop(state);
            drop(answered);
        });
        pending
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
