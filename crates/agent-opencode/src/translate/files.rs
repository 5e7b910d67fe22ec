//! Collects the files of a turn: the files that its tools return, and the paths of the files that it wrote.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_model::{AgentEvent, AgentFile, ArtifactId, BlockKind, BlockRef, MessageId, RemoteFile};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use serde_json::value::RawValue;
use url::Url;

use super::Translator;
use crate::api::{Attachment, Part};

/// The largest file that is reported. A larger file is left out.
pub(crate) const MAX_FILE_BYTES: usize = 25 * 1024 * 1024;

/// How many paths of written files are kept per turn. Further files are left out.
pub(crate) const MAX_WRITTEN: usize = 100;

/// The longest URL of a file that is passed on. A longer one is left out.
const MAX_URL_BYTES: usize = 4096;

/// The longest path that an operating system accepts. A longer text is no path.
const MAX_PATH_BYTES: usize = 4096;

/// How many texts in the arguments of a tool call are checked. If a call has more, its files are withheld.
const MAX_PATHS: usize = 1000;

/// The media type of a file whose type is unknown.
pub(crate) const ANY_TYPE: &str = "application/octet-stream";

#[derive(Debug, Default)]
pub(super) struct Files {
    /// The ids of the files that were reported, including those before a restart of the gateway.
    reported: HashSet<String>,
    /// The absolute paths of written files, in the order in which they were first written.
    written: Vec<String>,
    /// For each file that will be reported, the paths that its tool call names, by the id of the file.
    sources: HashMap<String, Vec<String>>,
}

/// The content of a tool's attachment.
enum Attached {
    File(AgentFile),
    Remote(RemoteFile),
}

impl Files {
    /// Marks a file as reported. Returns whether it was not reported before.
    pub(super) fn mark_reported(&mut self, id: &str) -> bool {
        self.reported.insert(id.to_owned())
    }

    /// Collects the files that a tool call returns, and the paths that the call reports as written. The patch of a step is not
    /// used, because it also contains changes that others made in the worktree meanwhile.
    pub(super) fn collect_from_tool(&mut self, part: &Part, out: &mut Vec<AgentEvent>) {
        let Some(state) = part.state.as_ref().filter(|state| state.status == "completed") else { return };
        for (nth, attachment) in state.attachments.iter().enumerate() {
            let id = format!("{}.file.{nth}", part.id);
            if !self.mark_reported(&id) {
                continue;
            }
            let block = match ArtifactId::parse(&id) {
                Ok(id) => {
                    BlockRef { id, kind: BlockKind::File, message: MessageId::parse(&part.message).ok() }
                }
                Err(cause) => {
                    tracing::warn!(%cause, "a file of a tool was left out");
                    continue;
                }
            };
            out.push(match attached(attachment) {
                Ok(Attached::File(file)) => {
                    if let Some(paths) = named_paths(state.input.as_deref()) {
                        self.sources.insert(id, paths);
                        AgentEvent::File { block, file }
                    } else {
                        tracing::warn!(id, "a file of a tool was withheld: its call has too many arguments");
                        let reason =
                            "A file of the agent was withheld: its tool call has too many arguments to check.";
                        AgentEvent::WithheldFile { block, name: file.name, reason: reason.to_owned() }
                    }
                }
                Ok(Attached::Remote(file)) => AgentEvent::RemoteFile { block, file },
                Err(why) => {
                    tracing::warn!(id, why, "a file of a tool was left out");
                    let (name, reason) =
                        (name_of(attachment), format!("A file of the agent was left out: {why}."));
                    AgentEvent::WithheldFile { block, name, reason }
                }
            });
        }
        if matches!(part.tool.as_deref(), Some("write" | "edit" | "apply_patch"))
            && let Some(metadata) = &state.metadata
        {
            for path in metadata.changed_files() {
                self.note_written(path);
            }
        }
    }

    fn note_written(&mut self, path: &str) {
        if self.written.len() < MAX_WRITTEN && !self.written.iter().any(|known| known == path) {
            self.written.push(path.to_owned());
        }
    }
}

impl Translator {
    /// The paths that the turn wrote, as OpenCode names them.
    pub(crate) fn take_written(&mut self) -> Vec<String> {
        std::mem::take(&mut self.blocks.files().written)
    }

    /// The paths that were named in the tool call that returned a file. They may be relative to the session's directory. `None`:
    /// the file is unknown.
    pub(crate) fn take_file_sources(&mut self, id: &str) -> Option<Vec<String>> {
        self.blocks.files().sources.remove(id)
    }

    /// Marks a file as reported. Returns whether it was not reported before.
    pub(crate) fn mark_file_reported(&mut self, id: &str) -> bool {
        self.blocks.files().mark_reported(id)
    }
}

fn attached(attachment: &Attachment) -> Result<Attached, &'static str> {
    let Some(data) = attachment.url.strip_prefix("data:") else {
        return remote(attachment).map(Attached::Remote);
    };
    let (head, data) = data.split_once(',').ok_or("its data: URL has no comma")?;
    let is_base64 = head.ends_with(";base64");
    if data.len() / 4 * 3 > MAX_FILE_BYTES && is_base64 {
        return Err("it is too large");
    }
    let bytes = if is_base64 {
        STANDARD.decode(data).map_err(|_| "its data is not valid base64")?
    } else {
        percent_decode_str(data).collect()
    };
    if bytes.len() > MAX_FILE_BYTES {
        return Err("it is too large");
    }
    let media_type = media_type(&[attachment.mime.as_str(), head.split(';').next().unwrap_or_default()]);
    Ok(Attached::File(AgentFile { name: name_of(attachment), media_type, bytes: bytes.into() }))
}

/// Converts an attachment that is only a URL. The gateway neither reads a file by its path nor fetches a URL; the client decides
/// whether to fetch the URL.
fn remote(attachment: &Attachment) -> Result<RemoteFile, &'static str> {
    if attachment.url.len() > MAX_URL_BYTES {
        return Err("its URL is too long");
    }
    let url = Url::parse(&attachment.url).map_err(|_| "its URL is not valid")?;
    match url.scheme() {
        "https" => {}
        "file" => return Err("the agent named it by its path, and the gateway does not read it"),
        _ => return Err("its URL is neither a data: URL nor an https: URL"),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("its URL contains a password");
    }
    let media_type = media_type(&[attachment.mime.as_str()]);
    Ok(RemoteFile { name: name_of(attachment), media_type, url: url.into() })
}

fn name_of(attachment: &Attachment) -> Option<String> {
    attachment.filename.clone().filter(|name| !name.is_empty())
}

/// The first media type that was declared.
fn media_type(declared: &[&str]) -> String {
    declared.iter().find(|media_type| !media_type.is_empty()).copied().unwrap_or(ANY_TYPE).to_owned()
}

/// The texts in the arguments of a tool call that may be paths, at any depth. `None`: there are too many.
fn named_paths(input: Option<&RawValue>) -> Option<Vec<String>> {
    let Some(input) = input else { return Some(Vec::new()) };
    let mut found = Vec::new();
    // Parsing fails if the arguments are nested too deeply.
    let is_complete = collect_paths(serde_json::from_str(input.get()).ok()?, &mut found);
    is_complete.then_some(found)
}

/// Collects the texts in a value. Returns false if there are too many.
fn collect_paths(value: Value, found: &mut Vec<String>) -> bool {
    match value {
        Value::String(text) => {
            let path = path_of_url(&text).unwrap_or(text);
            if path.len() <= MAX_PATH_BYTES {
                found.push(path);
            }
            found.len() <= MAX_PATHS
        }
        Value::Array(items) => items.into_iter().all(|item| collect_paths(item, found)),
        Value::Object(fields) => fields
            .into_iter()
            .all(|(key, value)| collect_paths(Value::String(key), found) && collect_paths(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// The path of a `file:` URL. The host in the URL is ignored.
fn path_of_url(text: &str) -> Option<String> {
    let scheme = text.trim_start().get(..5)?;
    let url = scheme.eq_ignore_ascii_case("file:").then(|| Url::parse(text).ok())??;
    Some(percent_decode_str(url.path()).decode_utf8_lossy().into_owned())
}
