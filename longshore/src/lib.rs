//! The `longshore` program: command line, configuration, wiring, telemetry and signals.
//!
//! This is the only crate that sees both a trait of the engine and what implements it.

pub mod cli;
pub mod config;

mod backup;
mod banner;
mod commands;
mod data_dir;
mod deployment;
mod limited;
mod limits;
mod output;
mod serve;
mod signals;
mod telemetry;
mod upstream;
mod wire_up;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;

use cli::{Cli, ConfigFile, Subcommands};
use config::{Checked, Flags, Plan, Problems, Surroundings};

/// The program was asked for something that it cannot do as asked: bad flags (clap's own code) or a bad configuration.
const EXIT_USAGE: u8 = 2;

/// As many threads as suit the machine.
const AS_SUITS: usize = 0;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let Err(error) = run(Cli::parse().command) else { return ExitCode::SUCCESS };
    if let Some(problems) = error.downcast_ref::<Problems>() {
        output::fail(format_args!("the configuration cannot be used:\n{problems}"));
        return ExitCode::from(EXIT_USAGE);
    }
    output::fail(format_args!("{error:#}"));
    ExitCode::FAILURE
}

fn run(command: Subcommands) -> anyhow::Result<()> {
    match command {
        Subcommands::Serve(options) => {
            let plan = plan(&options.settings.0, &options.config)?;
            limits::raise_open_files();
            serve::serve(&plan, runtime(plan.listen.threads)?)
        }
        Subcommands::DemoModel(options) => runtime(AS_SUITS)?.block_on(commands::demo_model(&options)),
        Subcommands::Stop(options) => {
            let plan = plan(&options.settings.0, &options.config)?;
            runtime(AS_SUITS)?.block_on(commands::stop(&plan))
        }
        Subcommands::Token(options) => commands::token(&plan(&options.settings.0, &options.config)?),
        Subcommands::Backup(options) => {
            let plan = plan(&options.settings.0, &options.config)?;
            let runtime = runtime(AS_SUITS)?;
            let done = runtime.block_on(backup::backup(&plan, &options.target));
            runtime.shutdown_background();
            done
        }
        Subcommands::Settings => {
            output::say(config::reference::markdown().trim_end());
            Ok(())
        }
        Subcommands::Methods => {
            output::say(longshore_edge::methods_reference().trim_end());
            Ok(())
        }
    }
}

/// Reads the configuration, says what its owner should know, and sets up the log that it asks for.
fn plan(flags: &Flags, file: &ConfigFile) -> anyhow::Result<Plan> {
    let surroundings = Surroundings::of_process().context("cannot tell the current directory")?;
    let Checked { plan, warnings } = config::load(flags, file.config.as_deref(), &surroundings)?;
    for warning in warnings {
        output::warn(warning);
    }
    telemetry::start(&plan.log);
    Ok(plan)
}

fn runtime(threads: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    let threads = if threads == AS_SUITS { half_of_the_cores() } else { threads };
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// An event goes from one task to the next, and two threads that pass it on wake each other up for it. So there are fewer
/// than cores: the store has a thread that is about as busy as one of these, and the agent is a process beside.
fn half_of_the_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}
