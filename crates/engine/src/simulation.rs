//! What a simulation may change about an engine: when its tasks run, what it calls things, and which mistakes it makes.
//!
//! The feature `simulation` is on where tests are built and nowhere else, and even there nothing changes for a [`Tasks`]
//! that was not made by [`Tasks::simulated`].
//!
//! [`Tasks`]: crate::Tasks
//! [`Tasks::simulated`]: crate::Tasks::simulated

#[cfg(feature = "simulation")]
use std::{future::Future, pin::Pin, sync::Arc, task::Context, task::Poll};

/// A mistake that an engine can be made to make, to show that it would be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Readers are shown what the store does not have yet.
    PublishBeforeCommit,
    /// A turn that is taken up again is not told what its log holds.
    NoReconcile,
    /// A task that is over goes on, and its log takes more.
    NoTerminalGuard,
}

/// Decides what chance decides outside a simulation.
#[cfg(feature = "simulation")]
pub trait Simulation: Send + Sync + std::fmt::Debug {
    /// How often a task that was woken lets others go first.
    fn gives_way(&self) -> u32;

    /// A task was spawned. Whoever aborts them all at once does to the engine what a kill does to its process, but for
    /// destructors, which run.
    fn spawned(&self, task: tokio::task::AbortHandle);

    /// A fresh name for a task or a context.
    fn new_id(&self) -> String;

    fn has(&self, flaw: Flaw) -> bool;
}

/// The simulation, if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    #[cfg(feature = "simulation")]
    simulation: Option<Arc<dyn Simulation>>,
}

#[cfg(not(feature = "simulation"))]
#[expect(clippy::unused_self, reason = "the same calls as with a simulation")]
impl Hooks {
    pub(crate) fn has(&self, _flaw: Flaw) -> bool {
        false
    }

    pub(crate) fn new_id(&self) -> String {
        uuid::Uuid::now_v7().to_string()
    }
}

#[cfg(feature = "simulation")]
impl Hooks {
    pub(crate) fn of(simulation: Arc<dyn Simulation>) -> Self {
        Self { simulation: Some(simulation) }
    }

    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.simulation.as_ref().is_some_and(|simulation| simulation.has(flaw))
    }

    pub(crate) fn new_id(&self) -> String {
        let simulated = self.simulation.as_ref().map(|simulation| simulation.new_id());
        simulated.unwrap_or_else(|| uuid::Uuid::now_v7().to_string())
    }

    pub(crate) fn spawned(&self, task: tokio::task::AbortHandle) {
        if let Some(simulation) = &self.simulation {
            simulation.spawned(task);
        }
    }

    /// The future, run when the simulation wants it.
    pub(crate) fn shuffled<F: Future>(&self, future: F) -> Shuffled<F> {
        Shuffled { future: Box::pin(future), simulation: self.simulation.clone(), left: None }
    }
}

/// Lets others go first before each time that it runs.
#[cfg(feature = "simulation")]
pub(crate) struct Shuffled<F> {
    future: Pin<Box<F>>,
    simulation: Option<Arc<dyn Simulation>>,
    /// How often it still gives way. `None`: it has run since it was woken.
    left: Option<u32>,
}

#[cfg(feature = "simulation")]
impl<F: Future> Future for Shuffled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(simulation) = &self.simulation {
            let left = self.left.unwrap_or_else(|| simulation.gives_way());
            if left > 0 {
                self.left = Some(left - 1);
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.left = None;
        }
        self.future.as_mut().poll(context)
    }
}
