//! A record for each process of the agent: a file by which the next start of the gateway ends processes that a killed gateway left.
//!
//! The file exists while its process runs. It contains the marker, the process id and the start time, so that the next start never
//! ends another process that got the same id.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use longshore_model::{Error, ErrorKind, Result};
use longshore_processes::{Identity, Process, terminate};
use serde::{Deserialize, Serialize};

/// The record of one agent process.
#[derive(Debug)]
pub(crate) struct Record {
    file: PathBuf,
    content: Content,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    marker: String,
    /// The identity of the process. `None`: it has not been started yet.
    #[serde(flatten)]
    process: Option<Identity>,
}

impl Record {
    /// `records`: the directory of all records.
    pub(crate) fn new(records: &Path, marker: String) -> Self {
        Self { file: records.join(format!("{marker}.json")), content: Content { marker, process: None } }
    }

    /// Adds the identity of the process that was just started.
    pub(crate) fn note(&mut self, pid: u32) -> io::Result<()> {
        // `None`: the process has already ended.
        self.content.process = Process::find(pid).map(Identity::of);
        self.write()
    }

    /// Writes the file atomically, readable only by its owner. Does not sync it, because no process survives a power failure.
    pub(crate) fn write(&self) -> io::Result<()> {
        if let Some(records) = self.file.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(records)?;
        }
        let draft = self.file.with_extension("new");
        ignore_absent(std::fs::remove_file(&draft))?;
        let mut output = File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
        serde_json::to_writer(&mut output, &self.content)?;
        output.write_all(b"\n")?;
        std::fs::rename(draft, &self.file)
    }

    /// Deletes the file, because no process of the agent is left. If that fails, the next start finds no process to end.
    pub(crate) fn remove(&self) {
        if let Err(error) = ignore_absent(std::fs::remove_file(&self.file)) {
            tracing::warn!(%error, "the record of an ended agent could not be removed");
        }
    }
}

/// Ends the processes that a killed gateway left behind: those of its agent, and all that these started. Most agents end when their
/// input closes, but not all do, and not with all their tools.
pub(crate) async fn end_left_behind(records: &Path) -> Result<()> {
    let files = match std::fs::read_dir(records) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => Err(error),
    };
    let unusable = |error: io::Error| {
        let text = "The records of the last agent processes in the data directory cannot be read, so it is not known whether these \
                    still run.";
        Error::new(ErrorKind::AgentUnavailable, text).caused_by(error)
    };
    for file in files.map_err(unusable)? {
        end_process_of(&std::fs::read(&file).map_err(unusable)?).await?;
        ignore_absent(std::fs::remove_file(&file)).map_err(unusable)?;
    }
    Ok(())
}

async fn end_process_of(record: &[u8]) -> Result<()> {
    let Content { marker, process } = match serde_json::from_slice(record) {
        Ok(content) => content,
        // Files are renamed into place. So this file is a draft, before whose renaming no process is started, or it is no record.
        Err(error) => {
            tracing::debug!(%error, "a record of an agent process is not complete");
            return Ok(());
        }
    };
    let ended = terminate(process.as_ref().and_then(Identity::running), &marker).await.map_err(|error| {
        let text = "The agent of the last run, or a tool that it started, cannot be ended. End the processes by hand.";
        Error::new(ErrorKind::AgentUnavailable, text).caused_by(error)
    })?;
    if ended > 0 {
        tracing::warn!(processes = ended, "ended the agent that a killed gateway left behind");
    }
    Ok(())
}

fn ignore_absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
