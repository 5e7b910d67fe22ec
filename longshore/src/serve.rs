//! `longshore serve`: start, show, serve, end.

use std::time::Duration;

use anyhow::Context as _;
use longshore_engine::Tasks;
use rand::distr::{Alphanumeric, SampleString as _};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::banner::Banner;
use crate::config::Plan;
use crate::data_dir::DataDir;
use crate::output;
use crate::signals::{Ended, Signals};
use crate::upstream::Upstream;
use crate::wire_up::{self, Gateway, Ground};

/// How long background tasks may take to end. What runs on then is cut off by the end of the process; the log holds
/// everything that anybody has seen.
const TASKS_GRACE: Duration = Duration::from_secs(5);

/// How long a thread that looks up a name or reads a disk may take to come back. Nobody waits for its answer any more.
const THREADS_GRACE: Duration = Duration::from_secs(1);

/// Serves until a signal. A second signal does not wait for open requests.
pub(crate) fn serve(plan: &Plan, runtime: Runtime) -> anyhow::Result<()> {
    // Kept until nothing runs any more, so that at no time two gateways write to one store or manage one OpenCode.
    let mut taken = None;
    let served = runtime.block_on(start(plan, &mut taken));
    runtime.shutdown_timeout(THREADS_GRACE);
    served
}

/// From the first signal that is caught to the end of the agent.
async fn start(plan: &Plan, taken: &mut Option<DataDir>) -> anyhow::Result<()> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let data_dir = tokio::select! {
        data_dir = DataDir::take_for(plan) => taken.insert(data_dir?),
        _ = signals.next() => return Ok(()),
    };
    let ground = wire_up::prepare(plan, data_dir).await?;
    let upstream = tokio::select! {
        upstream = ground.start_agent(plan) => upstream?,
        // An OpenCode that was about to start ends with the future that started it.
        ended = signals.next() => {
            Upstream::give_up(plan, ended).await;
            return Ok(());
        }
    };
    let served = run(plan, ground, &upstream, &mut signals).await;
    upstream.end(*served.as_ref().unwrap_or(&Ended::BySystem)).await;
    served.map(drop)
}

/// From the start of the engine to the end of its last task.
async fn run(
    plan: &Plan,
    ground: Ground,
    upstream: &Upstream,
    signals: &mut Signals,
) -> anyhow::Result<Ended> {
    let (tasks, telling) = (ground.tasks.clone(), ground.telling.clone());
    let gateway = tokio::select! {
        gateway = ground.finish(plan, upstream) => gateway?,
        // As after a crash: what was taken up is taken up again by the next start.
        ended = signals.next() => {
            stop_tasks(&tasks).await;
            return Ok(ended);
        }
    };
    output::say(banner(plan, &gateway, upstream));
    let Gateway { edge, listener, .. } = gateway;

    let shutdown = CancellationToken::new();
    let serving = edge.serve(listener, shutdown.clone());
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = signals.next() => ended,
        served = &mut serving => return served.context("the listener failed").map(|()| Ended::BySystem),
    };
    shutdown.cancel();
    let orderly = async {
        serving.await.context("the listener failed")?;
        // The engine stops before its agent does, so that no task takes the end of the agent for a failure.
        stop_tasks(&tasks).await;
        // What they did last is told, too.
        stop_tasks(&telling).await;
        Ok(ended)
    };
    tokio::select! {
        done = orderly => done,
        again = signals.next() => {
            tracing::warn!("ended by a second signal, without waiting for open requests");
            Ok(ended.or(again))
        }
    }
}

fn banner(plan: &Plan, gateway: &Gateway, upstream: &Upstream) -> String {
    let chance = Alphanumeric.sample_string(&mut rand::rng(), 8);
    Banner {
        workspace: &plan.workspace,
        agent: upstream.description(),
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
