//! Files that an agent hands over: kept first, then told.

use std::collections::HashSet;
use std::time::Duration;

use longshore_model::{
    AgentFile, ArtifactId, BlockKind, BlockRef, Error, Principal, Result, Retry, Task, TaskEvent, TaskId,
};
use sha2::{Digest, Sha256};

use crate::actor::Surroundings;
use crate::port::{FileFacts, NewFile};
use crate::{lifecycle, names};

/// First and longest pause before a store that is away is asked again.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// How often a file is tried to be kept, which takes half a minute. A turn does not wait for ever for a store that takes
/// everything but its file.
const TRIES: u32 = 12;

/// Whose files are kept, and which are known already.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    owner: Principal,
    task: TaskId,
    known: HashSet<ArtifactId>,
}

impl Keeper {
    pub(crate) fn new(owner: &Principal, task: &Task) -> Self {
        let files = task.artifacts.iter().filter(|artifact| artifact.kind == BlockKind::File);
        let known = files.map(|artifact| artifact.id.clone()).collect();
        Self { owner: owner.clone(), task: task.id.clone(), known }
    }

    /// Keeps the file and gives the event that tells of it. A store that is away is waited for; what cannot be kept is
    /// told in words. `None`: it was told before, or is one too many, or the gateway stops.
    pub(crate) async fn keep(
        self,
        around: Surroundings,
        block: BlockRef,
        file: AgentFile,
    ) -> Option<TaskEvent> {
        let rules = &around.config.files;
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
        let mut pause = RETRY_FIRST;
        for attempt in 1.. {
            match self.put(&around, &block, file.clone()).await {
                Ok(event) => return Some(event),
                Err(error) if error.retry() == Retry::Later && attempt < TRIES => {
                    tracing::warn!(task = %self.task, error = ?error, "a file cannot be kept now; will try again");
                    tokio::select! {
                        biased;
                        () = around.tasks.stopping().cancelled() => return None,
                        () = tokio::time::sleep(pause) => pause = (pause * 2).min(RETRY_LONGEST),
                    }
                }
                Err(error) => {
                    tracing::error!(task = %self.task, error = ?error, "a file could not be kept");
                    let text = "The file could not be kept; the gateway's log says why.".to_owned();
                    return Some(lifecycle::file_dropped(block, name, text));
                }
            }
        }
        None
    }

    async fn put(&self, around: &Surroundings, block: &BlockRef, file: AgentFile) -> Result<TaskEvent> {
        let AgentFile { name, media_type, bytes } = file;
        let content = std::sync::Arc::clone(&bytes);
        let digest = tokio::task::spawn_blocking(move || Sha256::digest(&content).into());
        let facts = FileFacts {
            name,
            media_type,
            size: bytes.len() as u64,
            sha256: digest.await.map_err(Error::internal)?,
            at: around.clock.now(),
        };
        let id = names::of_file(&self.task, &block.id, &facts.sha256);
        let url = format!("{}{id}", around.config.files.base_url);
        let event = lifecycle::file_kept(block.clone(), &facts, url);
        let (owner, task) = (self.owner.clone(), self.task.clone());
        around.store.put_file(NewFile { id, owner, task, facts, bytes }).await?;
        Ok(event)
    }
}
