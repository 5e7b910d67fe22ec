//! What the agent has to offer by name, kept for a while: cards are asked for often, and the agent makes its lists anew each time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_model::Offers;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::actor::Surroundings;
use crate::port::Control;

/// How long what the agent said is taken for what it would say.
const FRESH: Duration = Duration::from_mins(1);

/// When an agent that could not say is asked again.
const AGAIN: Duration = Duration::from_secs(5);

/// How long somebody waits for the agent. Then it is told what was known last.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct KnownOffers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Arc<Offers>,
    fresh_until: Option<Instant>,
    /// Somebody asks. Closed when the answer is there.
    asking: Option<watch::Receiver<()>>,
}

impl KnownOffers {
    pub(crate) async fn get(
        self: &Arc<Self>,
        around: &Surroundings,
        control: &Arc<dyn Control>,
    ) -> Arc<Offers> {
        let mut asking = {
            let mut state = self.lock();
            if state.fresh_until.is_some_and(|until| Instant::now() < until) {
                return Arc::clone(&state.last);
            }
            // Whoever asked may have broken, and then nobody does.
            if state.asking.as_ref().is_some_and(|asking| asking.has_changed().is_err()) {
                state.asking = None;
            }
            state.asking.get_or_insert_with(|| self.ask(around, Arc::clone(control))).clone()
        };
        // Either way: what is known by now.
        let _ = timeout(PATIENCE, asking.changed()).await;
        Arc::clone(&self.lock().last)
    }

    /// Asks apart from whoever wants to know: the answer is kept also when nobody waits for it any more.
    fn ask(self: &Arc<Self>, around: &Surroundings, control: Arc<dyn Control>) -> watch::Receiver<()> {
        let (answered, asking) = watch::channel(());
        let (known, stopping) = (Arc::clone(self), around.tasks.stopping().clone());
        around.tasks.spawn("offers", async move {
            let told = tokio::select! {
                biased;
                () = stopping.cancelled() => None,
                told = control.offers() => Some(told),
            };
            let mut state = known.lock();
            state.asking = None;
            state.fresh_until = Some(match told {
                Some(Ok(offers)) => {
                    state.last = Arc::new(offers);
                    Instant::now() + FRESH
                }
                Some(Err(error)) => {
                    tracing::debug!(error = ?error, "the agent does not say what it offers");
                    Instant::now() + AGAIN
                }
                None => Instant::now() + AGAIN,
            });
            drop(state);
            drop(answered);
        });
        asking
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
