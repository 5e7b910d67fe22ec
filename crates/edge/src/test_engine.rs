//! An engine for unit tests.

use std::sync::Arc;

use longshore_engine::port::{Store, SystemClock};
use longshore_engine::{Engine, EngineConfig, EngineParts, Tasks};
use longshore_testkit::scripted_agent::ScriptedAgent;

pub(crate) fn engine(store: Arc<dyn Store>, agent: Arc<ScriptedAgent>) -> Engine {
    Engine::new(EngineParts {
        store,
        agent,
        control: None,
        clock: Arc::new(SystemClock),
        tasks: Tasks::new(),
        metrics: Arc::default(),
        config: EngineConfig::default(),
    })
}

/// An engine with an empty store in memory and an agent that echoes every prompt.
pub(crate) fn echoing() -> Engine {
    engine(Arc::new(longshore_store::memory()), ScriptedAgent::echo())
}
