//! Reports the files that a turn wrote, at the end of the turn.

use std::fmt::Write as _;
use std::path::Path;

use longshore_model::{AgentEvent, AgentFile, ArtifactId, BlockKind, BlockRef};
use sha2::{Digest as _, Sha256};

use super::{Closed, Driver};
use crate::disk;
use crate::translate::{ANY_TYPE, MAX_FILE_BYTES, Translator};

impl Driver {
    /// Reports the files that a member wrote, if the operator has enabled that.
    pub(super) async fn report_written_files(
        &mut self,
        member: Option<usize>,
        paths: Vec<String>,
    ) -> Result<(), Closed> {
        if !self.written_files {
            return Ok(());
        }
        for path in paths {
            let found = disk::inside(Path::new(&self.session.directory), Path::new(&path)).await;
            let Some((directory, rest)) = found else { continue };
            if disk::is_protected(&self.protected, [directory.join(&rest)]).await {
                continue;
            }
            let Some(name) = rest.to_str().map(str::to_owned) else { continue };
            let id = artifact_id(&name);
            if !self
                .translator_mut(member)
                .is_some_and(|translator| translator.mark_file_reported(id.as_str()))
            {
                continue;
            }
            self.wait_for_file_slot().await?;
            let read = disk::read(directory, rest, MAX_FILE_BYTES as u64 + 1).await;
            match read {
                Ok(bytes) if bytes.len() > MAX_FILE_BYTES => {
                    tracing::warn!(%id, "left out a file that a turn wrote: it is too large");
                }
                Ok(bytes) => {
                    let media_type = media_type(&name).to_owned();
                    let file = AgentFile { name: Some(name), media_type, bytes: bytes.into() };
                    let block = BlockRef { id, kind: BlockKind::File, message: None };
                    self.send(member, AgentEvent::File { block, file }).await?;
                }
                Err(cause) => tracing::warn!(%id, %cause, "left out a file that a turn wrote"),
            }
        }
        Ok(())
    }

    /// Withholds a file that a tool returned if the tool was asked to read one of the gateway's own files, or if nobody knows what
    /// the tool was asked to read.
    pub(super) async fn unless_protected(
        &mut self,
        member: Option<usize>,
        block: BlockRef,
        file: AgentFile,
    ) -> AgentEvent {
        let translator = self.translator_mut(member);
        let sources = translator.and_then(|translator| translator.take_file_sources(block.id.as_str()));
        if let Some(sources) = sources {
            let directory = Path::new(&self.session.directory);
            let paths = sources.into_iter().map(|path| directory.join(path));
            if !disk::is_protected(&self.protected, paths).await {
                return AgentEvent::File { block, file };
            }
        }
        tracing::warn!(session = %self.session.id, id = %block.id, "withheld a file of the gateway that a tool returned");
        let reason = "A file of the agent was withheld: it belongs to the gateway itself.".to_owned();
        AgentEvent::WithheldFile { block, name: file.name, reason }
    }

    /// Waits until the engine has taken all events, so that at most one file waits in memory.
    pub(super) async fn wait_for_file_slot(&self) -> Result<(), Closed> {
        if self.events.emptied().await { Ok(()) } else { Err(Closed) }
    }

    fn translator_mut(&mut self, member: Option<usize>) -> Option<&mut Translator> {
        match member {
            None => Some(&mut self.tree.root.translator),
            Some(at) => self.tree.children[at].live_mut().map(|live| &mut live.member.translator),
        }
    }
}

fn artifact_id(path: &str) -> ArtifactId {
    let mut id = "written.".to_owned();
    for byte in &Sha256::digest(path)[..8] {
        write!(id, "{byte:02x}").expect("writing to a string cannot fail");
    }
    ArtifactId::parse(&id).expect("letters, digits and a dot")
}

/// The media type for the extension of the file's name.
fn media_type(name: &str) -> &'static str {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "css" => "text/css",
        "csv" => "text/csv",
        "gif" => "image/gif",
        "htm" | "html" => "text/html",
        "jpeg" | "jpg" => "image/jpeg",
        "js" => "text/javascript",
        "json" => "application/json",
        "md" => "text/markdown",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "py" | "rs" | "sh" | "toml" | "ts" | "txt" => "text/plain",
        "svg" => "image/svg+xml",
        "webp" => "image/webp",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "zip" => "application/zip",
        _ => ANY_TYPE,
    }
}
