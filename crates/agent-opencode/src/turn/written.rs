//! The files that a turn wrote, read when it ends.

use std::fmt::Write as _;
use std::path::Path;

use longshore_model::{AgentEvent, AgentFile, ArtifactId, BlockKind, BlockRef};
use sha2::{Digest as _, Sha256};

use super::{Driver, ReceiverGone};
use crate::disk;
use crate::translate::{ANY_TYPE, MAX_FILE_BYTES, Translator};

/// Media types by the end of a file's name. Any other is [`ANY_TYPE`].
const TYPES: &[(&str, &str)] = &[
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("rs", "text/plain"),
    ("py", "text/plain"),
    ("sh", "text/plain"),
    ("svg", "image/svg+xml"),
    ("toml", "text/plain"),
    ("ts", "text/plain"),
    ("txt", "text/plain"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
];

impl Driver {
    /// Tells the files that a member wrote, if it is wanted.
    pub(super) async fn report_written_files(&mut self, of: Option<usize>, paths: Vec<String>) -> Result<(), ReceiverGone> {
        if !self.written_files {
            return Ok(());
        }
        for path in paths {
            let found = disk::inside(Path::new(&self.session.directory), Path::new(&path)).await;
            let Some((directory, rest)) = found else { continue };
            let Some(name) = rest.to_str().map(str::to_owned) else { continue };
            let id = name_of(&name);
            if !self.translator_mut(of).is_some_and(|translator| translator.is_new_file(id.as_str())) {
                continue;
            }
            self.wait_for_file_slot().await?;
            let read = disk::read(directory, rest, MAX_FILE_BYTES as u64 + 1).await;
            match read {
                Ok(bytes) if bytes.len() > MAX_FILE_BYTES => {
                    tracing::warn!(%id, "a file that a turn wrote is too large and was left out");
                }
                Ok(bytes) => {
                    let media_type = media_type(&name).to_owned();
                    let file = AgentFile { name: Some(name), media_type, bytes: bytes.into() };
                    let block = BlockRef { id, kind: BlockKind::File, message: None };
                    self.send(of, AgentEvent::File { block, file }).await?;
                }
                Err(cause) => tracing::warn!(%id, %cause, "a file that a turn wrote was left out"),
            }
        }
        Ok(())
    }

    /// Waits until the engine has taken all that it was told: no more than one file at a time waits for it.
    pub(super) async fn wait_for_file_slot(&self) -> Result<(), ReceiverGone> {
        if self.events.emptied().await { Ok(()) } else { Err(ReceiverGone) }
    }

    fn translator_mut(&mut self, of: Option<usize>) -> Option<&mut Translator> {
        match of {
            None => Some(&mut self.tree.root.translator),
            Some(at) => self.tree.children[at].live_mut().map(|live| &mut live.member.translator),
        }
    }
}

fn name_of(path: &str) -> ArtifactId {
    let mut id = "written.".to_owned();
    for byte in &Sha256::digest(path)[..8] {
        write!(id, "{byte:02x}").expect("a string takes all that is written to it");
    }
    ArtifactId::parse(&id).expect("letters, digits and a dot")
}

fn media_type(name: &str) -> &'static str {
    let end = Path::new(name).extension().and_then(|end| end.to_str()).unwrap_or_default();
    let known = TYPES.iter().find(|(known, _)| end.eq_ignore_ascii_case(known));
    known.map_or(ANY_TYPE, |(_, media_type)| media_type)
}
