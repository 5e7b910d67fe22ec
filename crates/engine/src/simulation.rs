//! The hooks through which a simulation controls an engine: when its tasks run, which ids it generates, and which mistakes it
//! makes on purpose.
//!
//! Only test builds switch the feature `simulation` on. Even there, nothing changes for a [`Tasks`] that was not made by
//! [`Tasks::simulated`].
//!
//! [`Tasks`]: crate::Tasks
//! [`Tasks::simulated`]: crate::Tasks::simulated

#[cfg(feature = "simulation")]
use std::{future::Future, pin::Pin, sync::Arc, task::Context, task::Poll, task::Waker};

/// A mistake that an engine makes on purpose, to show that the tests would find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Readers see events before the store has them.
    PublishBeforeCommit,
    /// After a restart, events that happened while the gateway was down are not read. The driver of the simulated agent makes
    /// this mistake, because reading those events is its job.
    NoReconcile,
    /// The driver of a resumed turn does not get the part of the turn that is in the log.
    NoResume,
    /// A finished task continues, and events are appended to its log.
    NoTerminalGuard,
}

/// Makes the choices that are random outside of a simulation.
#[cfg(feature = "simulation")]
pub trait Simulation: Send + Sync + std::fmt::Debug {
    /// A number for a task that is about to be spawned.
    fn new_task(&self) -> u64;

    /// Whether a woken task may take a step. If not, the simulation calls the waker later.
    fn may_run(&self, task: u64, waker: &Waker) -> bool;

    /// A task has ended, or was aborted.
    fn has_ended(&self, task: u64);

    /// The task with this name panicked.
    fn has_panicked(&self, name: &'static str);

    /// A task was spawned. Aborting all tasks at once has the effect of killing the engine's process, except that destructors
    /// run.
    fn spawned(&self, task: tokio::task::AbortHandle);

    /// A new id for a task or a context of the protocol.
    fn new_id(&self) -> String;

    fn has(&self, flaw: Flaw) -> bool;
}

/// The simulation of this engine, if there is one.
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

    pub(crate) fn has_panicked(&self, _name: &'static str) {}
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

    pub(crate) fn has_panicked(&self, name: &'static str) {
        if let Some(simulation) = &self.simulation {
            simulation.has_panicked(name);
        }
    }

    pub(crate) fn spawned(&self, task: tokio::task::AbortHandle) {
        if let Some(simulation) = &self.simulation {
            simulation.spawned(task);
        }
    }

    /// Wraps a future so that it makes progress only when the simulation allows it.
    pub(crate) fn conducted<F: Future>(&self, future: F) -> Conducted<F> {
        let part = self.simulation.clone().map(|simulation| Part { task: simulation.new_task(), simulation });
        Conducted { future: Box::pin(future), part }
    }
}

#[cfg(feature = "simulation")]
pub(crate) struct Conducted<F> {
    future: Pin<Box<F>>,
    part: Option<Part>,
}

/// A task's registration with a simulation.
#[cfg(feature = "simulation")]
struct Part {
    task: u64,
    simulation: Arc<dyn Simulation>,
}

#[cfg(feature = "simulation")]
impl Drop for Part {
    fn drop(&mut self) {
        self.simulation.has_ended(self.task);
    }
}

#[cfg(feature = "simulation")]
impl<F: Future> Future for Conducted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(Part { task, simulation }) = &self.part
            && !simulation.may_run(*task, context.waker())
        {
            return Poll::Pending;
        }
        self.future.as_mut().poll(context)
    }
}
