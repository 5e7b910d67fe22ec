//! `longshore push` and `longshore keys`: commands for operators about push notifications. They work on the store while no gateway
//! runs.

use anyhow::{Context as _, anyhow, bail};
use longshore_engine::port::PushQueue;
use longshore_model::DeadLetter;
use longshore_seal::Rotation;
use longshore_store::{SqliteOptions, SqliteStore, StoredSecrets};

use crate::cli::{ConfigFile, DeadLetters, PushCommand};
use crate::config::plan::StorePlan;
use crate::config::{Flags, Plan};
use crate::data_dir::DataDir;
use crate::{commands, output, push, runtime};

/// The number of dead letters that are read at a time.
const PAGE: usize = 500;

pub(crate) fn push(
    command: &PushCommand,
    plan: impl FnOnce(&Flags, &ConfigFile) -> anyhow::Result<Plan>,
) -> anyhow::Result<()> {
    let (settings, config) = match command {
        PushCommand::Dead(options) => (&options.settings, &options.config),
        PushCommand::Replay(options) | PushCommand::Drop(options) => (&options.settings, &options.config),
    };
    let plan = plan(&settings.0, config)?;
    let runtime = runtime(1)?;
    let (_data_dir, store) = open(&plan)?;
    runtime.block_on(async {
        match command {
            PushCommand::Dead(_) => dead(&store).await,
            PushCommand::Replay(letters) => {
                let done = each(&store, letters, PushQueue::replay).await?;
                output::print(format_args!("{} will be sent again when the gateway starts.", counted(done)));
                Ok(())
            }
            PushCommand::Drop(letters) => {
                let done = each(&store, letters, PushQueue::drop_dead).await?;
                output::print(format_args!("Dropped {}.", counted(done)));
                Ok(())
            }
        }
    })
}

async fn dead(store: &dyn PushQueue) -> anyhow::Result<()> {
    let letters = all(store).await?;
    for DeadLetter { number, owner, task, config, event, reason, attempts, at, .. } in &letters {
        output::print(format_args!(
            "{number}  {at}  principal {owner}, task {task}, configuration {config}, event {event}: {reason} ({attempts} attempts)",
            at = time(at.0),
            owner = owner.as_str(),
        ));
    }
    if letters.is_empty() {
        output::print("There are no dead letters.");
    }
    Ok(())
}

fn time(milliseconds: i64) -> String {
    let since = std::time::Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0));
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + since)
}

async fn all(store: &dyn PushQueue) -> anyhow::Result<Vec<DeadLetter>> {
    let mut letters: Vec<DeadLetter> = Vec::new();
    loop {
        let after = letters.last().map_or(0, |letter| letter.number);
        let page = store.dead(after, PAGE).await?;
        if page.is_empty() {
            return Ok(letters);
        }
        letters.extend(page);
    }
}

async fn each<'s, F>(
    store: &'s SqliteStore,
    letters: &DeadLetters,
    mut work: impl FnMut(&'s SqliteStore, u64) -> F,
) -> anyhow::Result<usize>
where
    F: Future<Output = longshore_model::Result<bool>>,
{
    let numbers = if letters.all {
        all(store).await?.iter().map(|letter| letter.number).collect()
    } else {
        letters.numbers.clone()
    };
    let mut done = 0;
    for number in numbers {
        if !work(store, number).await? {
            bail!("there is no dead letter {number}; `longshore push dead` lists them");
        }
        done += 1;
    }
    Ok(done)
}

fn counted(letters: usize) -> String {
    if letters == 1 { "1 dead letter".to_owned() } else { format!("{letters} dead letters") }
}

/// Opens the store while no gateway runs.
fn open(plan: &Plan) -> anyhow::Result<(DataDir, SqliteStore)> {
    let StorePlan::Sqlite { path, .. } = &plan.store else {
        bail!("tasks are kept in memory only (--store memory), so there are no dead letters");
    };
    commands::check_exists(plan, path)?;
    let data_dir = DataDir::take(&plan.data_dir)?;
    data_dir.check_store(path)?;
    let store = longshore_store::sqlite(path, SqliteOptions::default());
    let store = store.with_context(|| format!("cannot open the store {}", path.display()))?;
    Ok((data_dir, store))
}

/// `longshore keys rotate`.
pub(crate) fn rotate(plan: &Plan) -> anyhow::Result<()> {
    let StorePlan::Sqlite { path, .. } = &plan.store else {
        bail!("secrets are kept in memory only (--store memory), with a key that ends with the gateway");
    };
    commands::check_exists(plan, path)?;
    let data_dir = DataDir::take(&plan.data_dir)?;
    data_dir.check_store(path)?;
    let mut secrets =
        StoredSecrets::open(path).with_context(|| format!("cannot open the store {}", path.display()))?;
    let rotated = push::sealer(plan, data_dir.path()).rotate(&mut secrets);
    let Rotation { active, resealed, unreadable, unused } =
        rotated.map_err(|error| anyhow!("cannot rotate the keys: {error}; repeat the command"))?;
    output::print(format_args!("The key {active} seals from now on; {resealed} secrets were sealed again."));
    if !unused.is_empty() {
        let ids: Vec<&str> = unused.iter().map(longshore_seal::KeyId::as_str).collect();
        let what = match plan.push.keys {
            Some(_) => "Nothing needs these keys any more; remove them from push.keys",
            None => "These keys were removed",
        };
        output::print(format_args!("{what}: {}.", ids.join(", ")));
    }
    if unreadable > 0 {
        bail!(
            "{unreadable} secrets cannot be opened with any of the keys; put their keys back and repeat the command, or let their \
             callers register them again"
        );
    }
    Ok(())
}
