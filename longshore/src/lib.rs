//! The `longshore` program: command line, configuration, wiring, telemetry and signals.
//!
//! This is the only crate that sees both the traits of the engine and their implementations.

pub mod cli;
pub mod config;

mod acp_upstream;
mod agents;
mod attach;
mod backup;
mod banner;
mod calling;
mod client;
mod commands;
mod data_dir;
mod deployment;
mod disk;
mod doctor;
mod limited;
mod limits;
mod listeners;
mod manual;
mod mcp_bridge;
mod output;
mod peers;
mod push;
mod push_commands;
mod receivers;
mod repair;
mod serve;
mod signals;
mod telemetry;
mod tls;
mod unix_socket;
mod upstream;
mod wire_up;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;

use cli::{AgentsCommand, CheckAgent, Cli, ConfigFile, KeysCommand, Subcommands};
use config::{Checked, Flags, Plan, Problems, ProcessContext};
use wire_up::Front;

/// The exit code for bad flags (clap uses the same) and for a bad configuration.
const EXIT_USAGE: u8 = 2;

/// The number of threads that stands for the automatic choice, by the number of cores.
const AUTOMATIC: usize = 0;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    // Only in release builds, because tests and debuggers of a debug build need to read the memory of the process.
    if !cfg!(debug_assertions) {
        limits::refuse_dumps();
    }
    let error = match run(Cli::parse().command) {
        Ok(code) => return code,
        Err(error) => error,
    };
    if let Some(problems) = error.downcast_ref::<Problems>() {
        output::fail(format_args!("the configuration cannot be used:\n{problems}"));
        return ExitCode::from(EXIT_USAGE);
    }
    output::fail(format_args!("{error:#}"));
    ExitCode::FAILURE
}

fn run(command: Subcommands) -> anyhow::Result<ExitCode> {
    let done = match command {
        Subcommands::Repair(options) => return repair::repair(&plan(&options.settings.0, &options.config)?),
        Subcommands::Serve(options) => serve(&options, Front::Listeners),
        Subcommands::Stdio(options) => {
            output::reserve_stdout();
            serve(&options, Front::Stdio)
        }
        Subcommands::Attach(options) => {
            attach::attach(&plan(&options.settings.0, &options.config)?, &context()?)
        }
        Subcommands::Call(options) => return call(client::Command::Call(options)),
        Subcommands::Tasks(options) => return call(client::Command::Tasks(options)),
        Subcommands::Asks(options) => return call(client::Command::Asks(options)),
        Subcommands::Mcp(options) => {
            output::reserve_stdout();
            // The gateway's agent starts its MCP server with this command and these variables. A URL would name another gateway.
            return match mcp_bridge::from_environment().filter(|_| options.target.url.is_none()) {
                Some((socket, token)) => {
                    mcp_bridge::warn_of_ignored(&options.target);
                    serve_bridge(socket, token)
                }
                None => call(client::Command::Mcp(options)),
            };
        }
        Subcommands::Card(options) => return call(client::Command::Card(options)),
        Subcommands::Doctor(options) => {
            let runtime = runtime(1)?;
            let done = runtime.block_on(doctor::doctor(&options));
            runtime.shutdown_background();
            return done;
        }
        Subcommands::DemoModel(options) => runtime(AUTOMATIC)?.block_on(commands::demo_model(&options)),
        Subcommands::Stop(options) => {
            let plan = plan(&options.settings.0, &options.config)?;
            runtime(AUTOMATIC)?.block_on(commands::stop(&plan))
        }
        Subcommands::Token(options) => commands::token(&plan(&options.settings.0, &options.config)?),
        Subcommands::Backup(options) => {
            let plan = plan(&options.settings.0, &options.config)?;
            let runtime = runtime(AUTOMATIC)?;
            let done = runtime.block_on(backup::backup(&plan, &options.target));
            runtime.shutdown_background();
            done
        }
        Subcommands::Check(options) => commands::check(&plan(&options.settings.0, &options.config)?),
        Subcommands::Push(cli::Push { command }) => push_commands::push(&command, plan),
        Subcommands::Keys(cli::Keys { command: KeysCommand::Rotate(options) }) => {
            push_commands::rotate(&plan(&options.settings.0, &options.config)?)
        }
        Subcommands::Agents(cli::Agents { command: None }) => {
            agents::list(&context()?);
            Ok(())
        }
        Subcommands::Agents(cli::Agents { command: Some(AgentsCommand::Check(options)) }) => {
            return check_agent(&options);
        }
        Subcommands::Completions(options) => {
            output::write(&manual::completions(options.shell));
            Ok(())
        }
        Subcommands::Man(options) => manual::man(options.out.as_deref()),
        Subcommands::Settings => {
            output::print(config::reference::markdown().trim_end());
            Ok(())
        }
        Subcommands::Methods => {
            output::print(longshore_edge::opencode::methods_reference().trim_end());
            Ok(())
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn serve(options: &cli::Serve, front: Front) -> anyhow::Result<()> {
    let mut plan = plan(&options.settings.0, &options.config)?;
    if let Some(problem) = plan.misplaced {
        return Err(Problems(vec![problem]).into());
    }
    plan.resume_restored = options.resume_restored;
    limits::raise_open_files();
    serve::serve(&plan, runtime(plan.listen.threads)?, front)
}

/// Runs a command that calls an agent. It uses one thread, which is enough for one stream.
fn call(command: client::Command) -> anyhow::Result<ExitCode> {
    let runtime = runtime(1)?;
    let code = runtime.block_on(client::run(command));
    // Do not wait for threads: one may still wait for a line on standard input.
    runtime.shutdown_background();
    Ok(code)
}

/// Runs the bridge: the MCP server that the gateway's agent starts.
fn serve_bridge(socket: OsString, token: String) -> anyhow::Result<ExitCode> {
    let runtime = runtime(1)?;
    let served = runtime.block_on(mcp_bridge::run(socket, token));
    // Do not wait for threads: one may still wait for a line on standard input.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

fn check_agent(options: &CheckAgent) -> anyhow::Result<ExitCode> {
    // The configuration may have problems. It can name the agent only if it has none.
    let configured = config::load(&options.settings.0, options.config.config.as_deref(), &context()?).ok();
    let flags = agents::flags(options, configured.as_ref().map(|checked| &checked.plan));
    let plan = plan(&flags, &options.config)?;
    let runtime = runtime(AUTOMATIC)?;
    let done = runtime.block_on(agents::check(&plan));
    runtime.shutdown_background();
    done
}

fn context() -> anyhow::Result<ProcessContext> {
    ProcessContext::read().context("cannot determine the current directory")
}

/// Reads the configuration, prints its warnings, and starts the configured log.
fn plan(flags: &Flags, file: &ConfigFile) -> anyhow::Result<Plan> {
    let context = context()?;
    let Checked { plan, warnings } = config::load(flags, file.config.as_deref(), &context)?;
    for warning in warnings {
        output::warn(warning);
    }
    telemetry::start(&plan.log);
    Ok(plan)
}

fn runtime(threads: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    let threads = if threads == AUTOMATIC { half_of_the_cores() } else { threads };
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// The default number of runtime threads: half of the cores. An event passes from task to task. If two of these tasks run on two
/// threads, the threads must wake each other, so fewer threads than cores are faster. The other cores are for the store's thread,
/// which is about as busy as one of these threads, and for the agent, which is a separate process.
fn half_of_the_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}
