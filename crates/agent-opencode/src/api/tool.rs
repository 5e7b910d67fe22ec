//! What a tool says about its call beside its output, each tool in its own words.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::string_or_nothing;

#[derive(Deserialize, Debug, Default)]
pub(crate) struct ToolMetadata {
    /// All output so far, while the tool runs.
    #[serde(default, deserialize_with = "string_or_nothing")]
    pub(crate) output: Option<String>,
    /// Of `task`: the sub-agent's session.
    #[serde(default, rename = "sessionId", deserialize_with = "string_or_nothing")]
    pub(crate) session: Option<String>,
    /// Of `write`: the file, as an absolute path.
    #[serde(default, rename = "filepath", deserialize_with = "string_or_nothing")]
    written: Option<String>,
    /// Of `edit`.
    #[serde(default, rename = "filediff")]
    edited: serde_json::Value,
    /// Of `apply_patch`.
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
    /// When the call began, in milliseconds of the epoch.
    #[serde(default)]
    pub(crate) start: Option<f64>,
}

/// A file that a tool hands back.
#[derive(Deserialize, Debug)]
pub(crate) struct Attachment {
    #[serde(default)]
    pub(crate) mime: String,
    #[serde(default)]
    pub(crate) url: String,
    #[serde(default, deserialize_with = "string_or_nothing")]
    pub(crate) filename: Option<String>,
}

/// A list, or nothing when it is none of the expected kind.
pub(super) fn list_or_nothing<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Loose<T> {
        List(Vec<T>),
        Other(IgnoredAny),
    }
    Ok(match Loose::deserialize(deserializer)? {
        Loose::List(list) => list,
        Loose::Other(_) => Vec::new(),
    })
}
