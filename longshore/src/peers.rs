//! Assembles what the agent needs to call other agents, and the gateway's identity towards them.

use std::sync::Arc;

use longshore_engine::Tasks;
use longshore_engine::port::Clock;
use longshore_meter::Metrics;
use longshore_peers::{Identity, PeerCalls, PeerParts};

use crate::config::Plan;
use crate::data_dir::{self, DataDir};
use crate::push::Stores;

/// Prepares calls to other agents. `None`: the agent may call nobody.
pub(crate) fn prepare(
    plan: &Plan,
    data_dir: &DataDir,
    stores: &Stores,
    clock: &Arc<dyn Clock>,
    tasks: &Tasks,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Option<PeerCalls>> {
    let Some(config) = plan.peers.clone() else { return Ok(None) };
    let identity = Identity::of_secret(&data_dir::secret(data_dir.path())?);
    Ok(Some(PeerCalls::new(PeerParts {
        config,
        identity,
        calls: Arc::clone(&stores.calls),
        store: Arc::clone(&stores.store),
        clock: Arc::clone(clock),
        tasks: tasks.clone(),
        metrics: Arc::clone(metrics),
    })))
}
