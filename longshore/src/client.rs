//! The commands that call an agent: `call`, `tasks`, `asks`, `card` and `mcp`.

mod answer;
mod call;
mod card;
mod diff;
mod exit;
mod follow;
mod lists;
mod mcp;
mod message;
mod notify;
mod printer;
mod render;
mod stdin;
pub(crate) mod target;
mod words;

use std::process::ExitCode;

use crate::cli;
use crate::cli::client::{AsksCommand, TasksCommand};
use crate::output;

/// A command that calls an agent.
#[derive(Debug)]
pub(crate) enum Command {
    Call(cli::client::Call),
    Tasks(cli::client::Tasks),
    Asks(cli::client::Asks),
    Card(cli::client::Card),
    Mcp(cli::client::Mcp),
}

/// Runs a command. If it fails, prints the error and returns the exit code for it.
pub(crate) async fn run(command: Command) -> ExitCode {
    let done = match &command {
        Command::Call(options) => call::call(options).await,
        Command::Tasks(tasks) => match &tasks.command {
            TasksCommand::List(options) => lists::tasks(options).await,
            TasksCommand::Get(options) => lists::get(options).await,
            TasksCommand::Cancel(options) => lists::cancel(options).await,
            TasksCommand::Watch(options) => follow::watch(options).await,
            TasksCommand::Notify(options) => notify::notify(options).await,
        },
        Command::Asks(asks) => match &asks.command {
            AsksCommand::List(options) => lists::asks(options).await,
            AsksCommand::Answer(options) => follow::answer(options).await,
        },
        Command::Card(options) => card::card(options).await,
        Command::Mcp(options) => mcp::mcp(options).await,
    };
    match done {
        Ok(code) => code.into(),
        Err(failure) => {
            output::fail(&failure);
            failure.code().into()
        }
    }
}
