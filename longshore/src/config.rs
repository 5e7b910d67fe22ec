//! Configuration: flags, environment, `longshore.toml` and defaults, in this order, become one checked [`Plan`].
//!
//! [`table`] lists the settings. [`file`], [`environment`] and the command line each provide text under a setting's key;
//! [`read`] picks the value with the highest priority and checks it; [`plan`] builds the plan, with the declarations of
//! `declared` about where the agent works.
//! Code outside this module never reads a flag, a variable or the file.

mod agent_plan;
pub mod agents;
mod client;
pub mod command_line;
pub mod credentials;
mod declared;
mod entry;
pub mod environment;
pub mod file;
pub mod limits;
pub mod listen;
pub mod plan;
pub mod presets;
pub mod problem;
pub mod push;
pub mod read;
pub mod reference;
pub mod setting;
pub mod table;
pub mod traces;
pub mod unsupported;

mod callers;
mod opencode_variables;
pub mod paths;
mod peers;
mod placement;
mod syntax;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use environment::Environment;
pub use plan::Plan;
pub use problem::{Problem, Problems};

/// The name of the configuration file that is read without `--config`. It is in the user's directory for configurations.
pub const DEFAULT_FILE: &str = "longshore.toml";

/// The flags of the command line: the text of each setting under its key.
pub type Flags = BTreeMap<&'static str, String>;

/// The current directory and the environment of the process. A struct, so that tests can choose them.
#[derive(Clone, Debug)]
pub struct ProcessContext {
    pub directory: PathBuf,
    pub environment: Environment,
}

impl ProcessContext {
    /// The context of this process.
    pub fn read() -> std::io::Result<Self> {
        Ok(Self { directory: std::env::current_dir()?, environment: Environment::of_process() })
    }
}

/// A plan with the warnings about it.
#[derive(Debug)]
pub struct Checked {
    pub plan: Plan,
    pub warnings: Vec<String>,
}

/// Reads and checks all sources. If there are problems, returns all of them, not only the first.
pub fn load(flags: &Flags, config: Option<&Path>, context: &ProcessContext) -> Result<Checked, Problems> {
    let mut problems = Vec::new();
    let found = file::find(config, context).unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let file = found.as_ref().map(|found| found.settings(&mut problems)).unwrap_or_default();
    let mut reader = read::Reader::new(flags, &context.environment, &file, problems);
    let plan = plan::build(&mut reader, context);
    let (problems, mut warnings) = reader.finish();
    warnings.extend(environment::warnings(&context.environment));
    match (plan, problems.is_empty()) {
        (Some(mut plan), true) => {
            plan.config_file = found.map(|found| found.path);
            if config.is_none() {
                warnings.extend(file::unread(&plan, context));
            }
            Ok(Checked { plan, warnings })
        }
        _ => Err(Problems(problems)),
    }
}

/// Reads only the settings for calling an agent by its URL, so that problems with other settings do not matter.
pub fn load_client(
    config: Option<&Path>,
    context: &ProcessContext,
) -> Result<longshore_client::Settings, Problems> {
    let mut problems = Vec::new();
    let found = file::find(config, context).unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let file = found.as_ref().map(|found| found.settings(&mut problems)).unwrap_or_default();
    let flags = Flags::new();
    let mut reader = read::Reader::new(&flags, &context.environment, &file, problems);
    let settings = client::read(&mut reader);
    let (problems, _) = reader.finish();
    if problems.is_empty() { Ok(settings) } else { Err(Problems(problems)) }
}

#[cfg(test)]
mod tests;
