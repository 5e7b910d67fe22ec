//! The commands other than `serve`.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, bail};
use longshore_agent_opencode::managed;
use longshore_demo_model::DemoModel;
use longshore_engine::Tasks;
use longshore_store::DamagedTask;
use secrecy::ExposeSecret as _;

use crate::cli;
use crate::config::Plan;
use crate::config::plan::{AgentPlan, StorePlan};
use crate::data_dir::{self, DataDir};
use crate::output;
use crate::signals::Signals;

/// `longshore demo-model`: runs until a signal.
pub(crate) async fn demo_model(options: &cli::DemoModel) -> anyhow::Result<()> {
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let tasks = Tasks::new();
    let address = SocketAddr::new(options.host, options.port);
    let model = DemoModel::start(address, &tasks).await.with_context(|| {
        format!("cannot listen on {address}; choose another port with --port (0 takes a free one)")
    })?;
    output::print(format_args!("The demo model listens on {}", model.base_url()));
    signals.next().await;
    drop(model);
    tasks.stop().await;
    Ok(())
}

/// `longshore token`: prints the token alone, so that a shell can use it.
pub(crate) fn token(plan: &Plan) -> anyhow::Result<()> {
    let configured = plan.credential_sources.join(", ");
    if let Some(token) = data_dir::existing_token(&plan.data_dir)? {
        if plan.credentials.is_some() {
            output::warn(format_args!(
                "`longshore serve` does not accept this token while other credentials are configured: {configured}"
            ));
        }
        output::print(token.expose_secret());
        return Ok(());
    }
    if plan.credentials.is_some() {
        bail!(
            "there is no generated token to print. You configured your own credentials, and callers must use these: \
             {configured}. Longshore generates a token only if no credential is configured"
        );
    }
    let (workspace, data_dir) = (plan.workspace.display(), plan.data_dir.display());
    match (&plan.agent, data_dir::of_other_kind(&plan.data_dir)) {
        (AgentPlan::Demo { .. }, Some(_)) => bail!(
            "there is no token of a demo, because {workspace} was served only without --demo. To print the token of \
             that gateway, run the same command without --demo"
        ),
        (_, Some(_)) => bail!(
            "{workspace} was served only with --demo, and a demo has a token of its own. To print it, run the same \
             command with --demo: `longshore token --demo`"
        ),
        (_, None) => bail!(
            "there is no token: no gateway has served {workspace} with the data directory {data_dir}; run `longshore \
             serve` first, or name the served directory with --workspace or its data directory with --data-dir"
        ),
    }
}

/// `longshore stop`: ends an OpenCode that was left running, if there is one.
pub(crate) async fn stop(plan: &Plan) -> anyhow::Result<()> {
    // A running gateway would lose its agent, so the gateway must be stopped instead.
    let _data_dir = if plan.data_dir.is_dir() { Some(DataDir::take(&plan.data_dir)?) } else { None };
    let result = match managed::stop(&plan.data_dir).await? {
        0 => "No OpenCode was left running.".to_owned(),
        1 => "Ended OpenCode.".to_owned(),
        processes => format!("Ended OpenCode and the processes that it had started ({processes} processes)."),
    };
    output::print(result);
    Ok(())
}

/// `longshore check`: lists the damage in the store. Fails if there is any.
pub(crate) fn check(plan: &Plan) -> anyhow::Result<()> {
    let StorePlan::Sqlite { path, .. } = &plan.store else {
        bail!("tasks are kept in memory only (--store memory), so there is nothing to check");
    };
    let file = path.display();
    check_exists(path)?;
    let data_dir = DataDir::take(&plan.data_dir)?;
    data_dir.check_store(path)?;
    let damage =
        longshore_store::find_damage(path).with_context(|| format!("cannot check the store {file}"))?;
    for (ordinal, DamagedTask { id, reason }) in &damage.tasks {
        match id {
            Some(id) => output::print(format_args!("damaged: task {id}: {reason}")),
            None => output::print(format_args!("damaged: task number {ordinal}, whose id is lost: {reason}")),
        }
    }
    for message in &damage.structure {
        output::print(format_args!("damaged: {message}"));
    }
    if damage.is_none() {
        output::print(format_args!("The store {file} is whole."));
        return Ok(());
    }
    bail!(
        "the store {file} is damaged: {} tasks, and {} findings about the file; restore it from a backup, keep what is whole with \
         `longshore repair`, or serve what is whole",
        damage.tasks.len(),
        damage.structure.len()
    )
}

pub(crate) fn check_exists(store: &Path) -> anyhow::Result<()> {
    let file = store.display();
    if !store.try_exists().with_context(|| format!("cannot access the store {file}"))? {
        bail!("there is no store at {file}; --workspace, --data-dir and --database select the store");
    }
    Ok(())
}
