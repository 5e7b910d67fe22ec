//! Assembles the parts of the engine and of the delivery that push notifications need.

use std::path::Path;
use std::sync::Arc;

use longshore_engine::PushParts;
use longshore_engine::port::{CallStore, Clock, PushConfigs, PushQueue, Store};
use longshore_meter::Metrics;
use longshore_outbound::{Guard, Outbound, Trust};
use longshore_push::{Delivery, DeliveryParts};
use longshore_seal::{KeysFromEnvironment, Sealer};

use crate::config::Plan;
use crate::data_dir::KeyFile;
use crate::receivers::GuardedReceivers;

/// One store, as the different traits that it implements.
#[derive(Clone, Debug)]
pub(crate) struct Stores {
    pub(crate) store: Arc<dyn Store>,
    configs: Arc<dyn PushConfigs>,
    queue: Arc<dyn PushQueue>,
    pub(crate) calls: Arc<dyn CallStore>,
}

impl Stores {
    pub(crate) fn of(store: impl Store + PushConfigs + PushQueue + CallStore + 'static) -> Self {
        let store = Arc::new(store);
        Self { store: store.clone(), configs: store.clone(), queue: store.clone(), calls: store }
    }
}

/// The sealer for the secrets of callers. It reads or makes the keys only when the first secret is stored.
pub(crate) fn sealer(plan: &Plan, data_dir: &Path) -> Sealer {
    match &plan.push.keys {
        Some(keys) => Sealer::new(KeysFromEnvironment::new(keys.clone())),
        None => Sealer::new(KeyFile::of(data_dir)),
    }
}

/// The parts with which callers register push notifications, and the part that delivers them. `None`: the operator has switched
/// push notifications off; stored ones stay in the queue.
pub(crate) fn prepare(
    plan: &Plan,
    stores: &Stores,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
) -> Option<(PushParts, Delivery)> {
    if !plan.push.enabled {
        return None;
    }
    let guard = Guard::new(plan.push.receivers.clone());
    let trust = Trust::new(None).expect("only a list of authorities can be invalid");
    let outbound = Outbound::new(guard, trust, plan.push.timeouts);
    let delivery = Delivery::new(DeliveryParts {
        store: Arc::clone(&stores.store),
        configs: Arc::clone(&stores.configs),
        queue: Arc::clone(&stores.queue),
        transport: Arc::new(outbound.clone()),
        clock: Arc::clone(clock),
        metrics: Arc::clone(metrics),
        rules: plan.push.delivery.clone(),
    });
    let receivers = Arc::new(GuardedReceivers(outbound));
    let parts = PushParts { configs: delivery.configs(), receivers, rules: plan.push.rules };
    Some((parts, delivery))
}
