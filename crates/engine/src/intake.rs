//! What a message may hold: the parts of a message, checked, and made into what an agent is given.
//!
//! The same check runs twice: before anything is kept or done, and again when the turn begins, which may be much later.

use std::path::Path;

use longshore_model::{Part, Result};

use crate::config::IntakeRules;
use crate::port::Input;

/// Checks the parts and makes of them what an agent is given. `directory` is where the context works; files may be taken
/// from there and from the workspace's root.
pub(crate) async fn prepare(_rules: &IntakeRules, _directory: &Path, parts: &[Part]) -> Result<Vec<Input>> {
    Ok(parts.iter().filter_map(|part| part.as_text().map(|text| Input::Text(text.to_owned()))).collect())
}
