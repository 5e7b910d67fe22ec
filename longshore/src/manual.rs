//! Manual pages and shell completions. Both are generated from the command line, so they contain every command and flag.

use std::path::Path;

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::config::setting::Kind;
use crate::config::table;
use crate::output;

/// The completion script for a shell.
pub(crate) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    let mut command = with_choices(Cli::command());
    clap_complete::generate(shell, &mut command, "longshore", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// `longshore man`: prints the page of `longshore`, or writes a page for each command.
pub(crate) fn man(out: Option<&Path>) -> anyhow::Result<()> {
    let Some(directory) = out else {
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(documented()).render(&mut page);
        rendered.context("cannot make the manual page")?;
        output::write(&String::from_utf8_lossy(&page));
        return Ok(());
    };
    let place = directory.display();
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make the directory {place}"))?;
    clap_mangen::generate_to(documented(), directory)
        .with_context(|| format!("cannot write the manual pages to {place}"))
}

/// The commands with a page. `help` needs none.
fn documented() -> Command {
    Cli::command().disable_help_subcommand(true)
}

/// Adds the allowed values of the settings. The command line does not know them, because the configuration checks them.
fn with_choices(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        match table::by_key(argument.get_id().as_str()).map(|setting| setting.kind) {
            Some(Kind::Choice(choices)) => argument.value_parser(PossibleValuesParser::new(choices)),
            _ => argument,
        }
    });
    command.mut_subcommands(with_choices)
}
