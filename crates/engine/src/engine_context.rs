//! State that all operations and all actors of one engine share.

use std::sync::Arc;

use longshore_meter::Metrics;
use longshore_model::{PromptId, Result};

use crate::claims::Claims;
use crate::config::{EngineConfig, PushRules};
use crate::offers::OfferCache;
use crate::open_asks::OpenAsks;
use crate::port::{
    Agent, Clock, Control, NoSpans, PushConfigs, Receivers, Session, SessionWatch, Spans, Store,
};
use crate::rare_line::RareLine;
use crate::registry::Registry;
use crate::removals::Removals;
use crate::tasks::Tasks;
use crate::turn_limiter::{TurnLimiter, TurnLimits};
use crate::turn_queue::TurnQueues;
use crate::unfinished::Unfinished;

/// The parts from which an engine is built.
#[derive(Debug)]
pub struct EngineParts {
    pub store: Arc<dyn Store>,
    pub agent: Arc<dyn Agent>,
    /// The agent's control surface, if it has one.
    pub control: Option<Arc<dyn Control>>,
    pub clock: Arc<dyn Clock>,
    pub tasks: Tasks,
    /// The metrics that the engine updates.
    pub metrics: Arc<Metrics>,
    pub config: EngineConfig,
}

/// The parts that push notifications need.
#[derive(Debug)]
pub struct PushParts {
    pub configs: Arc<dyn PushConfigs>,
    pub receivers: Arc<dyn Receivers>,
    pub rules: PushRules,
}

#[derive(Clone, Debug)]
pub(crate) struct EngineContext {
    pub(crate) ports: Ports,
    pub(crate) live: LiveState,
    pub(crate) control_state: ControlState,
    pub(crate) tasks: Tasks,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) config: Arc<EngineConfig>,
    /// The rate-limited log line about errors of the store.
    pub(crate) store_failures: Arc<RareLine>,
}

/// The parts outside of the engine that it uses, such as the store and the agent.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) agent: Arc<dyn Agent>,
    /// The agent's control surface. `None`: the agent has none.
    pub(crate) control: Option<Arc<dyn Control>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) spans: Arc<dyn Spans>,
    /// The parts for push notifications. `None`: callers cannot register any.
    pub(crate) push: Option<Arc<PushParts>>,
}

impl Ports {
    /// The agent's watch for external turns. `None`: only the gateway starts turns in this agent.
    pub(crate) fn session_watch(&self) -> Option<&dyn SessionWatch> {
        self.control.as_ref()?.session_watch()
    }

    /// Watches the sessions for external turns, if the agent can have any.
    pub(crate) fn watch(&self, sessions: Vec<Session>) {
        if let Some(watch) = self.session_watch() {
            watch.watch(sessions);
        }
    }
}

/// The unfinished tasks, and the turns that run or wait.
#[derive(Clone, Debug)]
pub(crate) struct LiveState {
    pub(crate) registry: Arc<Registry>,
    pub(crate) unfinished: Arc<Unfinished>,
    pub(crate) queues: Arc<TurnQueues>,
    pub(crate) limiter: Arc<TurnLimiter>,
    pub(crate) open_asks: Arc<OpenAsks>,
}

/// State of control calls that other control calls and turns have to check.
#[derive(Clone, Debug)]
pub(crate) struct ControlState {
    pub(crate) claims: Arc<Claims>,
    pub(crate) removals: Arc<Removals>,
    pub(crate) offers: Arc<OfferCache>,
}

impl Ports {
    /// Whether a turn runs in the session that belongs to no task of the gateway. False for an agent without external turns.
    pub(crate) async fn is_busy(&self, session: &Session) -> Result<bool> {
        match self.agent.unfollowed_turns() {
            Some(turns) => turns.is_busy(session).await,
            None => Ok(false),
        }
    }
}

impl EngineContext {
    pub(crate) fn new(parts: EngineParts) -> Self {
        let EngineParts { store, agent, control, clock, tasks, metrics, config } = parts;
        let limits = TurnLimits { in_all: config.turns, per_principal: config.turns_per_principal };
        Self {
            ports: Ports { store, agent, control, clock, spans: Arc::new(NoSpans), push: None },
            live: LiveState {
                registry: Arc::new(Registry::new(tasks.stopping().clone())),
                unfinished: Arc::new(Unfinished::new(&config)),
                queues: Arc::default(),
                limiter: Arc::new(TurnLimiter::new(limits, Arc::clone(&metrics))),
                open_asks: Arc::new(OpenAsks::new(Arc::clone(&metrics))),
            },
            control_state: ControlState {
                claims: Arc::new(Claims::new(config.control.claim_ttl)),
                removals: Arc::default(),
                offers: Arc::default(),
            },
            tasks,
            metrics,
            config: Arc::new(config),
            store_failures: Arc::default(),
        }
    }

    pub(crate) fn new_prompt(&self) -> PromptId {
        PromptId::parse(&self.tasks.hooks().new_id()).expect("a UUID is an id")
    }
}
