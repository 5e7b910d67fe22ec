//! The metadata that a tool reports in addition to its output. Each tool has its own fields.

use serde::{Deserialize, Deserializer};

use super::{ModelRef, if_valid};

#[derive(Deserialize, Debug, Default)]
pub(crate) struct ToolMetadata {
    /// The whole output so far, while the tool runs.
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) output: Option<String>,
    /// For `task`: the session of the sub-agent.
    #[serde(default, rename = "sessionId", deserialize_with = "if_valid")]
    pub(crate) session: Option<String>,
    /// For `task`: the model of the sub-agent.
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) model: Option<ModelRef>,
    /// For `write`: the file, as an absolute path.
    #[serde(default, rename = "filepath", deserialize_with = "if_valid")]
    written: Option<String>,
    /// For `edit`: an object that names the changed file.
    #[serde(default, rename = "filediff")]
    edited: serde_json::Value,
    /// For `apply_patch`: a list of objects, one for each changed file.
    #[serde(default, rename = "files")]
    patched: serde_json::Value,
}

impl ToolMetadata {
    /// The files that the call changed, as absolute paths.
    pub(crate) fn changed_files(&self) -> impl Iterator<Item = &str> {
        let patched = self.patched.as_array().into_iter().flatten();
        let patched = patched.filter_map(|file| file["movePath"].as_str().or(file["filePath"].as_str()));
        self.written.as_deref().into_iter().chain(self.edited["file"].as_str()).chain(patched)
    }
}

#[derive(Deserialize, Debug)]
pub(crate) struct ToolTime {
    /// When the call began, in milliseconds since the epoch.
    pub(crate) start: Option<f64>,
}

/// A file that a tool returns.
#[derive(Deserialize, Debug)]
pub(crate) struct Attachment {
    #[serde(default)]
    pub(crate) mime: String,
    #[serde(default)]
    pub(crate) url: String,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) filename: Option<String>,
}

/// Deserializes a list. A value of another type becomes an empty list.
pub(super) fn list_or_nothing<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    super::if_valid(deserializer).map(Option::unwrap_or_default)
}
