//! `longshore serve`: start, show, serve, end.

use std::time::Duration;

use anyhow::Context as _;
use longshore_engine::Tasks;
use rand::distr::{Alphanumeric, SampleString as _};
use tokio_util::sync::CancellationToken;

use crate::banner::Banner;
use crate::config::Plan;
use crate::output;
use crate::signals::Signals;
use crate::wire_up::{self, Gateway};

/// How long background tasks may take to end. What runs on then is cut off by the end of the process; the log holds
/// everything that anybody has seen.
const TASKS_GRACE: Duration = Duration::from_secs(5);

/// Serves until a signal. A second signal ends the process at once.
pub(crate) async fn serve(plan: &Plan) -> anyhow::Result<()> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let ground = wire_up::prepare(plan).await?;
    let upstream = tokio::select! {
        upstream = ground.start_agent(plan) => upstream?,
        // The agent that was about to start dies with the future that started it.
        _ = signals.next() => {
            stop_tasks(ground.tasks()).await;
            return Ok(());
        }
    };
    let gateway = ground.finish(plan, upstream).await?;
    output::say(banner(plan, &gateway));
    let Gateway { edge, listener, tasks, upstream, .. } = gateway;

    let shutdown = CancellationToken::new();
    let serving = edge.serve(listener, shutdown.clone());
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = signals.next() => ended,
        served = &mut serving => return served.context("the listener failed"),
    };
    shutdown.cancel();
    let orderly = async {
        let served = serving.await.context("the listener failed");
        // The engine stops before its agent does, so that no task takes the end of the agent for a failure.
        stop_tasks(&tasks).await;
        served
    };
    let served = tokio::select! {
        served = orderly => served,
        _ = signals.next() => {
            tracing::warn!("ended by a second signal, without waiting for open requests");
            Ok(())
        }
    };
    upstream.end(ended).await;
    served
}

fn banner(plan: &Plan, gateway: &Gateway) -> String {
    let chance = Alphanumeric.sample_string(&mut rand::rng(), 8);
    Banner {
        workspace: &plan.workspace,
        agent: gateway.upstream.description(),
        local_url: &gateway.addresses.local,
        public_url: &gateway.addresses.public,
        token: gateway.token.as_ref(),
        credentials: plan.credentials.as_deref().unwrap_or_default(),
        message_id: &format!("hello-{chance}"),
    }
    .text()
}

async fn stop_tasks(tasks: &Tasks) {
    if tokio::time::timeout(TASKS_GRACE, tasks.stop()).await.is_err() {
        tracing::warn!(running = tasks.running(), "background tasks did not end in time");
    }
}
