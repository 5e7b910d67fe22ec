//! The commands other than `serve`.

use std::net::SocketAddr;

use anyhow::Context as _;
use longshore_agent_opencode::managed;
use longshore_demo_model::DemoModel;
use longshore_engine::Tasks;
use secrecy::ExposeSecret as _;

use crate::cli;
use crate::config::Plan;
use crate::data_dir::{self, DataDir};
use crate::output;
use crate::signals::Signals;

/// `longshore demo-model`: until a signal.
pub(crate) async fn demo_model(options: &cli::DemoModel) -> anyhow::Result<()> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let tasks = Tasks::new();
    let address = SocketAddr::new(options.host, options.port);
    let model = DemoModel::start(address, &tasks).await.with_context(|| {
        format!("cannot listen on {address}; choose another port with --port (0 takes a free one)")
    })?;
    output::say(format_args!("The demo model listens on {}", model.base_url()));
    signals.next().await;
    drop(model);
    tasks.stop().await;
    Ok(())
}

/// `longshore token`: the token alone, so that a shell can take it.
pub(crate) fn token(plan: &Plan) -> anyhow::Result<()> {
    if plan.credentials.is_some() {
        output::warn("credentials are configured, so `longshore serve` does not take this token");
    }
    output::say(data_dir::token(&plan.data_dir)?.expose_secret());
    Ok(())
}

/// `longshore stop`: ends an OpenCode that was left running. That there is none is fine.
pub(crate) async fn stop(plan: &Plan) -> anyhow::Result<()> {
    // A gateway that runs would be left without its agent, so it is the gateway that must be ended.
    let _data_dir = if plan.data_dir.is_dir() { Some(DataDir::take(&plan.data_dir)?) } else { None };
    let said = match managed::stop(&plan.data_dir).await? {
        0 => "No OpenCode was left running.".to_owned(),
        1 => "Ended OpenCode.".to_owned(),
        processes => format!("Ended OpenCode and what it had started ({processes} processes)."),
    };
    output::say(said);
    Ok(())
}
