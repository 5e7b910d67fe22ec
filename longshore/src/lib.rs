//! The `longshore` program: command line, configuration, wiring, telemetry and signals.
//!
//! This is the only crate that sees both a trait of the engine and what implements it.

pub mod cli;
pub mod config;
pub mod output;

use std::process::ExitCode;

use clap::Parser as _;

/// The program was asked for something that it cannot do as asked: bad flags or a bad configuration.
const EXIT_USAGE: u8 = 2;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match cli.command {
        cli::Subcommands::Settings => output::say(config::reference::markdown().trim_end()),
        _ => return ExitCode::from(EXIT_USAGE),
    }
    ExitCode::SUCCESS
}
