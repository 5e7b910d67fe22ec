//! The state that all calls share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_engine::port::{CallStore, Clock, Store};
use longshore_meter::Metrics;

use crate::call::Call;
use crate::calls::PeerParts;
use crate::config::InAll;
use crate::hops::{HopRules, Identity};
use crate::place::Places;
use crate::record::Record;
use crate::slots::Slots;
use crate::turns::Turns;

/// The pauses between the attempts to store a change of a call. If all attempts fail, the next stored
/// change includes this one. The change is lost if the gateway ends before that.
const STORE_AGAIN: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) places: Places,
    pub(crate) at_once: usize,
    pub(crate) per_task: usize,
    pub(crate) in_all: InAll,
    pub(crate) slots: Slots,
    pub(crate) hop_rules: HopRules,
    pub(crate) identity: Identity,
    pub(crate) calls: Arc<dyn CallStore>,
    /// The store that holds the calling tasks.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tasks: Tasks,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) turns: Turns,
    /// The calls that run, and the ended calls of turns that still run, by call id.
    live: Mutex<HashMap<String, Arc<Call>>>,
}

impl Context {
    pub(crate) fn new(parts: PeerParts) -> Self {
        let PeerParts { config, identity, calls, store, clock, tasks, metrics } = parts;
        Self {
            places: Places::new(&config),
            at_once: config.at_once,
            per_task: config.per_task,
            in_all: config.in_all,
            slots: Slots::new(config.in_all.at_once),
            hop_rules: config.hops,
            identity,
            calls,
            store,
            clock,
            tasks,
            metrics,
            turns: Turns::default(),
            live: Mutex::default(),
        }
    }

    /// Stores a changed call. Retries on errors, and then only logs.
    pub(crate) async fn store(&self, record: &Record) {
        for pause in STORE_AGAIN.into_iter().map(Some).chain([None]) {
            let Err(error) = self.calls.put_call(record.to_stored()).await else { return };
            tracing::warn!(call = record.id, error = ?error, "the state of a call could not be stored");
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
            }
        }
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, HashMap<String, Arc<Call>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
