//! Collects the files of a turn: those that its tools return, and the paths of the files that it wrote.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_model::{AgentEvent, AgentFile, ArtifactId, BlockKind, BlockRef, MessageId};
use percent_encoding::percent_decode_str;

use super::Translator;
use crate::api::{Attachment, Part};

/// The largest file that is reported. A larger file is left out.
pub(crate) const MAX_FILE_BYTES: usize = 25 * 1024 * 1024;

/// How many paths of written files are kept per turn. Further files are left out.
pub(crate) const MAX_WRITTEN: usize = 100;

/// The media type of a file whose type is unknown.
pub(crate) const ANY_TYPE: &str = "application/octet-stream";

#[derive(Debug, Default)]
pub(super) struct Files {
    /// The ids of the files that were reported, also before a restart of the gateway.
    reported: HashSet<String>,
    /// Absolute paths, in the order in which they were first written.
    written: Vec<String>,
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

    /// Marks a file as reported. Returns whether it was not reported before.
    pub(crate) fn mark_file_reported(&mut self, id: &str) -> bool {
        self.blocks.files().mark_reported(id)
    }
}

fn file(attachment: &Attachment) -> Result<AgentFile, &'static str> {
    let data = attachment.url.strip_prefix("data:").ok_or("its URL is not a data: URL")?;
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
    let declared = [attachment.mime.as_str(), head.split(';').next().unwrap_or_default(), ANY_TYPE];
    let media_type = declared.into_iter().find(|media_type| !media_type.is_empty()).unwrap_or(ANY_TYPE);
    Ok(AgentFile {
        name: attachment.filename.clone().filter(|name| !name.is_empty()),
        media_type: media_type.to_owned(),
        bytes: bytes.into(),
    })
}
