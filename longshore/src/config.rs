//! Configuration: flags, then environment, then `longshore.toml`, then defaults, become one checked [`Plan`].
//!
//! [`table`] says what can be set. [`file`], [`environment`] and the command line each turn what they find
//! into text under a setting's key; [`read`] picks the strongest and checks it; [`plan`] builds the plan, with what
//! `declared` says about where the agent works.
//! Nothing after this module looks at a flag, a variable or the file again.

pub mod credentials;
mod declared;
pub mod environment;
pub mod file;
pub mod limits;
pub mod plan;
pub mod problem;
pub mod read;
pub mod reference;
pub mod setting;
pub mod table;
pub mod traces;
pub mod unsupported;

mod callers;
mod nearest;
mod place;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use environment::Environment;
pub use plan::Plan;
pub use problem::{Problem, Problems};

/// The file that is read when `--config` names no other.
pub const DEFAULT_FILE: &str = "longshore.toml";

/// What the command line gave: text under the key of each setting that was named.
pub type Flags = BTreeMap<&'static str, String>;

/// Everything that configuration depends on, so that tests can choose it.
#[derive(Clone, Debug)]
pub struct Surroundings {
    pub directory: PathBuf,
    pub environment: Environment,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> std::io::Result<Self> {
        Ok(Self { directory: std::env::current_dir()?, environment: Environment::of_process() })
    }
}

/// A plan, and what its owner should know about it although it works.
#[derive(Debug)]
pub struct Checked {
    pub plan: Plan,
    pub warnings: Vec<String>,
}

/// Reads all layers and checks them. Fails with every problem that was found, not only the first.
pub fn load(flags: &Flags, config: Option<&Path>, surroundings: &Surroundings) -> Result<Checked, Problems> {
    let mut problems = Vec::new();
    let file = match file::find(config, &surroundings.directory) {
        Ok(Some(found)) => file::parse(&found.name, &found.text, &mut problems),
        Ok(None) => file::FileSettings::new(),
        Err(problem) => {
            problems.push(problem);
            file::FileSettings::new()
        }
    };
    let mut reader = read::Reader::new(flags, &surroundings.environment, &file, problems);
    let plan = plan::build(&mut reader, surroundings);
    let (problems, mut warnings) = reader.finish();
    warnings.extend(environment::warnings(&surroundings.environment));
    match (plan, problems.is_empty()) {
        (Some(plan), true) => Ok(Checked { plan, warnings }),
        _ => Err(Problems(problems)),
    }
}

#[cfg(test)]
mod tests;
