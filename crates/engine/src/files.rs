//! Files that an agent hands over: kept first, then told.

use longshore_model::{AgentFile, BlockKind, BlockRef, Error, Principal, Result, Task, TaskEvent};
use sha2::{Digest, Sha256};

use crate::actor::Surroundings;
use crate::port::{FileFacts, NewFile};
use crate::{lifecycle, names};

/// Keeps the file and gives the event that tells of it. `None`: it was told before, or is one too many.
pub(crate) async fn keep(
    around: &Surroundings,
    owner: &Principal,
    task: &Task,
    block: BlockRef,
    file: AgentFile,
) -> Result<Option<TaskEvent>> {
    let rules = &around.config.files;
    let known = task.artifacts.iter().filter(|artifact| artifact.kind == BlockKind::File);
    if known.clone().any(|artifact| artifact.id == block.id) {
        return Ok(None);
    }
    let AgentFile { name, media_type, bytes } = file;
    let size = bytes.len() as u64;
    match known.count() {
        kept if kept < rules.max_per_task => {}
        kept if kept == rules.max_per_task => {
            let text = format!(
                "The task keeps {kept} files, which is the limit; this one and any more are not kept."
            );
            return Ok(Some(lifecycle::file_dropped(block, name, text)));
        }
        _ => return Ok(None),
    }
    if size > rules.max_bytes {
        let text = format!("The file has {size} bytes; more than {} are not kept.", rules.max_bytes);
        return Ok(Some(lifecycle::file_dropped(block, name, text)));
    }
    let content = std::sync::Arc::clone(&bytes);
    let digest = tokio::task::spawn_blocking(move || Sha256::digest(&content).into());
    let facts = FileFacts {
        name,
        media_type,
        size,
        sha256: digest.await.map_err(Error::internal)?,
        at: around.clock.now(),
    };
    let id = names::of_file(&task.id, &block.id, &facts.sha256);
    let url = format!("{}{id}", rules.base_url);
    let event = lifecycle::file_kept(block, &facts, url);
    let file = NewFile { id, owner: owner.clone(), task: task.id.clone(), facts, bytes };
    around.store.put_file(file).await?;
    Ok(Some(event))
}
