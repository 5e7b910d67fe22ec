//! The files of a turn: those that its tools hand back, and the names of those that it wrote.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_model::{AgentEvent, AgentFile, ArtifactId, BlockKind, BlockRef, MessageId};
use percent_encoding::percent_decode_str;

use super::Translator;
use crate::api::{Attachment, Part};

/// The largest file that is handed over. A larger one is left out.
pub(crate) const MAX_FILE_BYTES: usize = 25 * 1024 * 1024;

/// Files that a turn wrote, of which the names are kept. Any more are left out.
pub(crate) const MAX_WRITTEN: usize = 100;

/// For files whose type nobody names.
pub(crate) const ANY_TYPE: &str = "application/octet-stream";

#[derive(Debug, Default)]
pub(super) struct Files {
    /// The names of those that were told, in this life of the gateway or before.
    reported: HashSet<String>,
    /// Absolute paths, in the order in which they were first written.
    written: Vec<String>,
}

impl Files {
    /// Whether a file was not told yet. From now on it was.
    pub(super) fn is_new(&mut self, id: &str) -> bool {
        self.reported.insert(id.to_owned())
    }

    /// Takes in a tool call: what it hands back, and what it says it wrote. A step's patch is no help: it has whatever
    /// changed in the worktree meanwhile, by anybody.
    pub(super) fn collect_from_tool(&mut self, part: &Part, out: &mut Vec<AgentEvent>) {
        let Some(state) = part.state.as_ref().filter(|state| state.status == "completed") else { return };
        for (nth, attachment) in state.attachments.iter().enumerate() {
            let id = format!("{}.file.{nth}", part.id);
            if !self.is_new(&id) {
                continue;
            }
            match (ArtifactId::parse(&id), file(attachment)) {
                (Ok(id), Ok(file)) => {
                    let message = MessageId::parse(&part.message).ok();
                    let block = BlockRef { id, kind: BlockKind::File, message };
                    out.push(AgentEvent::File { block, file });
                }
                (_, Err(why)) => tracing::warn!(id, why, "a file of a tool was left out"),
                (Err(cause), _) => tracing::warn!(%cause, "a file of a tool was left out"),
            }
        }
        if matches!(part.tool.as_deref(), Some("write" | "edit" | "apply_patch"))
            && let Some(metadata) = &state.metadata
        {
            for path in metadata.changed_files() {
                self.wrote(path);
            }
        }
    }

    fn wrote(&mut self, path: &str) {
        if self.written.len() < MAX_WRITTEN && !self.written.iter().any(|known| known == path) {
            self.written.push(path.to_owned());
        }
    }
}

impl Translator {
    /// The files that the turn wrote, as OpenCode names them.
    pub(crate) fn take_written(&mut self) -> Vec<String> {
        std::mem::take(&mut self.blocks.files().written)
    }

    /// Whether a file was not told yet. From now on it was.
    pub(crate) fn is_new_file(&mut self, id: &str) -> bool {
        self.blocks.files().is_new(id)
    }
}

fn file(attachment: &Attachment) -> Result<AgentFile, &'static str> {
    let data = attachment.url.strip_prefix("data:").ok_or("it is no data of its own")?;
    let (head, data) = data.split_once(',').ok_or("its data have no beginning")?;
    let is_base64 = head.ends_with(";base64");
    if data.len() / 4 * 3 > MAX_FILE_BYTES && is_base64 {
        return Err("it is too large");
    }
    let bytes = if is_base64 {
        STANDARD.decode(data).map_err(|_| "its data are damaged")?
    } else {
        percent_decode_str(data).collect()
    };
    if bytes.len() > MAX_FILE_BYTES {
        return Err("it is too large");
    }
    let declared = [attachment.mime.as_str(), head.split(';').next().unwrap_or_default(), ANY_TYPE];
    let media_type = declared.into_iter().find(|media_type| !media_type.is_empty()).unwrap_or(ANY_TYPE);
    Ok(AgentFile {
        name: attachment.filename.clone().filter(|name| !name.is_empty()),
        media_type: media_type.to_owned(),
        bytes: bytes.into(),
    })
}
