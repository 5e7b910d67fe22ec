//! `longshore serve` and `longshore stdio`: start the gateway, serve until a signal or the end of the input, and stop it.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Context as _;
use longshore_edge::contract::ListedInterface;
use longshore_edge::{Caller, Rights};
use longshore_engine::Tasks;
use longshore_model::Principal;
use rand::distr::{Alphanumeric, SampleString as _};
use secrecy::SecretString;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::banner::{Banner, GeneratedToken, READY};
use crate::config::Plan;
use crate::config::credentials::DEFAULT_PRINCIPAL;
use crate::data_dir::DataDir;
use crate::listeners::OpenListeners;
use crate::output;
use crate::signals::{Ended, Signals};
use crate::upstream::Upstream;
use crate::wire_up::{self, Front, Gateway, PreparedGateway};

/// How long background tasks may take to end. After that, the process ends anyway. No event is lost, because the log of each task
/// holds every event that a client has seen.
const TASKS_GRACE: Duration = Duration::from_secs(5);

/// How long the process waits for threads that resolve a host name or read a disk. Their results are no longer needed.
const THREADS_GRACE: Duration = Duration::from_secs(1);

/// Serves until a signal or the end of the input. After a second signal, the gateway does not wait for open requests.
pub(crate) fn serve(plan: &Plan, runtime: Runtime, front: Front) -> anyhow::Result<()> {
    // Hold the lock until nothing runs any more, so that two gateways never write to one store or manage one OpenCode.
    let mut locked = None;
    let served = runtime.block_on(start(plan, front, &mut locked));
    runtime.shutdown_timeout(THREADS_GRACE);
    served
}

/// Locks the data directory, starts the agent, runs the gateway, and ends the agent.
async fn start(plan: &Plan, front: Front, locked: &mut Option<DataDir>) -> anyhow::Result<()> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let data_dir = tokio::select! {
        data_dir = DataDir::take_for(plan) => locked.insert(data_dir.map_err(|error| explained(error, front))?),
        _ = signals.next() => return Ok(()),
    };
    let prepared = wire_up::prepare(plan, data_dir, &mut signals, front).await?;
    let upstream = tokio::select! {
        upstream = prepared.start_agent(plan) => upstream?,
        // Dropping the future terminates an OpenCode that is still starting.
        ended = signals.next() => {
            Upstream::abandon_start(plan, ended).await;
            return Ok(());
        }
    };
    let served = Box::pin(run(plan, prepared, &upstream, &mut signals, front)).await;
    upstream.end(*served.as_ref().unwrap_or(&Ended::BySystem)).await;
    served.map(drop)
}

/// Starts the engine, serves until a signal, and stops all tasks.
async fn run(
    plan: &Plan,
    prepared: PreparedGateway,
    upstream: &Upstream,
    signals: &mut Signals,
    front: Front,
) -> anyhow::Result<Ended> {
    let (tasks, reporting) = (prepared.tasks.clone(), prepared.reporting.clone());
    let gateway = tokio::select! {
        gateway = prepared.finish(plan, upstream) => gateway?,
        // Abandon the start, like after a crash. The next start resumes the unfinished tasks.
        ended = signals.next() => {
            stop_tasks(&tasks).await;
            return Ok(ended);
        }
    };
    let Gateway { edge, mut open, interfaces, token } = gateway;
    let shutdown = CancellationToken::new();
    let listeners = std::mem::take(&mut open.listeners);
    let serving = async {
        match front {
            Front::Listeners => edge.serve(listeners, shutdown.clone()).await,
            Front::Stdio => {
                let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
                edge.serve_stdio(input, output, parent(), shutdown.clone()).await
            }
        }
    };
    let mut serving = Box::pin(serving);
    // The gateway already serves. Only the banner waits until OpenCode is ready.
    let announcing = async {
        match front {
            Front::Listeners => announce(plan, &open, &interfaces, token.as_ref(), upstream).await,
            Front::Stdio => upstream.until_ready(|reason: &str| output::progress(reason)).await,
        }
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = signals.next() => ended,
        served = &mut serving => {
            served.context("the listener failed")?;
            // The input has ended.
            stop_tasks(&tasks).await;
            stop_tasks(&reporting).await;
            return Ok(Ended::BySystem);
        }
        () = announcing => return Ok(Ended::BySystem),
    };
    drop(open.noted.take());
    shutdown.cancel();
    let stopped = async {
        serving.await.context("the listener failed")?;
        // Stop the engine before its agent, so that no task takes the end of the agent for a failure.
        stop_tasks(&tasks).await;
        // Stop the exporters last, so that they also report the last work of the other tasks.
        stop_tasks(&reporting).await;
        Ok(ended)
    };
    tokio::select! {
        done = stopped => done,
        again = signals.next() => {
            tracing::warn!("ended by a second signal, without waiting for open requests");
            Ok(ended.or(again))
        }
    }
}

/// The caller for the process that started this one. It has the rights of the gateway's owner.
fn parent() -> Caller {
    Caller { principal: Principal::new(DEFAULT_PRINCIPAL), rights: Rights::of_owner() }
}

/// Adds to an error what a parent of `longshore stdio` can do if another gateway already uses the data directory.
fn explained(error: anyhow::Error, front: Front) -> anyhow::Error {
    match front {
        Front::Listeners => error,
        Front::Stdio => error.context(
            "the standard input and output cannot be served; a gateway that runs already can be called at its URL or on its \
             unix socket",
        ),
    }
}

/// Prints the banner as soon as OpenCode is ready.
async fn announce(
    plan: &Plan,
    open: &OpenListeners,
    interfaces: &[ListedInterface],
    token: Option<&SecretString>,
    upstream: &Upstream,
) {
    let random = Alphanumeric.sample_string(&mut rand::rng(), 8);
    let program = std::env::current_exe().unwrap_or_else(|_| "longshore".into());
    let token = token.map(|token| {
        if std::io::stdout().is_terminal() {
            GeneratedToken::Shown(token)
        } else {
            GeneratedToken::PrintedBy { program: &program, data_dir: &plan.data_dir }
        }
    });
    let banner = Banner {
        workspace: &plan.workspace,
        agent: upstream.description(),
        local_url: open.addresses.local.as_deref(),
        public_url: open.addresses.shown(),
        interfaces,
        socket: open.socket_path(),
        token,
        credentials: plan.credentials.as_deref().unwrap_or_default(),
        message_id: &format!("hello-{random}"),
    };
    let mut has_waited = false;
    let waiting = |reason: &str| {
        has_waited = true;
        output::print(banner.text(Some(reason)));
    };
    upstream.until_ready(waiting).await;
    if has_waited {
        output::print(READY);
    } else {
        output::print(banner.text(None));
    }
}

async fn stop_tasks(tasks: &Tasks) {
    if tokio::time::timeout(TASKS_GRACE, tasks.stop()).await.is_err() {
        tracing::warn!(running = tasks.running(), "background tasks did not end in time");
    }
}
