//! Files that an agent produces: each is stored first and then reported. Where no client can fetch files by URL, the report
//! contains small files.

use std::collections::HashSet;

use longshore_model::{
    AgentFile, ArtifactId, BlockKind, BlockRef, Error, Part, PartContent, Principal, Result, Retry, Task,
    TaskEvent, TaskId,
};
use sha2::{Digest, Sha256};

use crate::engine_context::EngineContext;
use crate::port::{FileFacts, NewFile};
use crate::retry::Backoff;
use crate::{derived_ids, lifecycle};

/// How often the gateway tries to store a file. All attempts together take half a minute: a turn must not wait for ever for a
/// store that accepts every write but this file.
const TRIES: u32 = 12;

/// Stores the files of one task, and remembers which are stored already.
#[derive(Clone, Debug)]
pub(crate) struct FileKeeper {
    owner: Principal,
    task: TaskId,
    known: HashSet<ArtifactId>,
    /// The bytes of files that are inside the task itself.
    inline: u64,
}

impl FileKeeper {
    pub(crate) fn new(owner: &Principal, task: &Task) -> Self {
        let files = || task.artifacts.iter().filter(|artifact| artifact.kind == BlockKind::File);
        let known = files().map(|artifact| artifact.id.clone()).collect();
        let bytes = |part: &Part| match &part.content {
            PartContent::Raw(bytes) => bytes.len() as u64,
            _ => 0,
        };
        let inline = files().flat_map(|artifact| &artifact.parts).map(bytes).sum();
        Self { owner: owner.clone(), task: task.id.clone(), known, inline }
    }

    /// Stores the file and returns the event that reports it. Waits for a store that cannot be reached; a file that cannot be
    /// stored is reported as text. `None`: there is nothing to report, because the file was reported before, the task already
    /// has a report that it has too many files, or the gateway stops.
    pub(crate) async fn keep(
        self,
        ctx: EngineContext,
        block: BlockRef,
        file: AgentFile,
    ) -> Option<TaskEvent> {
        let rules = &ctx.config.files;
        if self.known.contains(&block.id) {
            return None;
        }
        let size = file.bytes.len() as u64;
        let name = file.name.clone();
        match self.known.len() {
            kept if kept < rules.max_per_task => {}
            kept if kept == rules.max_per_task => {
                let text = format!(
                    "The task keeps {kept} files, which is the limit; this one and any more are not kept."
                );
                return Some(lifecycle::file_dropped(block, name, text));
            }
            _ => return None,
        }
        if size > rules.max_bytes {
            let text = format!("The file has {size} bytes; more than {} are not kept.", rules.max_bytes);
            return Some(lifecycle::file_dropped(block, name, text));
        }
        let mut backoff = Backoff::new();
        for attempt in 1.. {
            match self.put(&ctx, &block, file.clone()).await {
                Ok(event) => return Some(event),
                Err(error) if error.retry() == Retry::Later && attempt < TRIES => {
                    if let Some(failures) = ctx.store_failures.due() {
                        tracing::warn!(failures, task = %self.task, error = ?error, "a file cannot be stored now; will try again");
                    }
                    if !backoff.pause(&ctx.tasks).await {
                        return None;
                    }
                }
                Err(error) => {
                    tracing::error!(task = %self.task, error = ?error, "a file could not be stored");
                    let text = "The file could not be stored; the gateway's log says why.".to_owned();
                    return Some(lifecycle::file_dropped(block, name, text));
                }
            }
        }
        None
    }

    async fn put(&self, ctx: &EngineContext, block: &BlockRef, file: AgentFile) -> Result<TaskEvent> {
        let AgentFile { name, media_type, bytes } = file;
        let content = std::sync::Arc::clone(&bytes);
        let digest = tokio::task::spawn_blocking(move || Sha256::digest(&content).into());
        let facts = FileFacts {
            name,
            media_type,
            size: bytes.len() as u64,
            sha256: digest.await.map_err(Error::internal)?,
            at: ctx.ports.clock.now(),
        };
        let rules = &ctx.config.files;
        let allowed = rules.inline_per_task;
        if allowed.is_some_and(|allowed| facts.size <= allowed.saturating_sub(self.inline)) {
            return Ok(lifecycle::file_kept(block.clone(), &facts, PartContent::Raw(bytes.to_vec())));
        }
        let id = derived_ids::file(&self.task, &block.id, &facts.sha256);
        let event = match allowed {
            None => {
                let url = format!("{}{id}", rules.base_url);
                lifecycle::file_kept(block.clone(), &facts, PartContent::Url(url))
            }
            Some(allowed) => {
                let text = format!(
                    "The file has {} bytes, and a task carries at most {allowed} bytes of files here. It is stored: a gateway that \
                     listens on a port and uses this data directory serves it at /artifacts/{id}.",
                    facts.size
                );
                lifecycle::file_dropped(block.clone(), facts.name.clone(), text)
            }
        };
        let (owner, task) = (self.owner.clone(), self.task.clone());
        ctx.ports.store.put_file(NewFile { id, owner, task, facts, bytes }).await?;
        Ok(event)
    }
}
