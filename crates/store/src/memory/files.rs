//! Files of tasks.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_engine::port::{FileFacts, NewFile};
use longshore_model::{FileId, Principal, Result};

use crate::rules::{self, FileIdentity};

#[derive(Default)]
pub(super) struct Files(HashMap<FileId, NewFile>);

impl Files {
    pub(super) fn put(&mut self, file: NewFile, task_owner: Option<&Principal>) -> Result<()> {
        rules::check_file(&file)?;
        if let Some(known) = self.0.get(&file.id) {
            return FileIdentity::new(known).check(&file);
        }
        rules::check_file_task(&file, task_owner)?;
        self.0.insert(file.id.clone(), file);
        Ok(())
    }

    pub(super) fn forget(&mut self, id: &FileId) {
        self.0.remove(id);
    }

    pub(super) fn facts(&self, owner: &Principal, id: &FileId) -> Option<FileFacts> {
        self.0.get(id).filter(|file| file.owner == *owner).map(|file| file.facts.clone())
    }

    pub(super) fn content(&self, id: &FileId) -> Option<Arc<[u8]>> {
        self.0.get(id).map(|file| file.bytes.clone())
    }
}

/// The bytes from `offset` on: `length`, or fewer at the end of the file.
pub(super) fn range(bytes: &[u8], offset: u64, length: usize) -> Vec<u8> {
    let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let end = begin.saturating_add(length).min(bytes.len());
    bytes[begin..end].to_vec()
}
