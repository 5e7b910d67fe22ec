//! The record of a running OpenCode: a file that tells the next start of the gateway how to reach OpenCode.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use longshore_model::{Error, Result};
use longshore_processes::{Identity, Process, new_marker, terminate};
use serde::{Deserialize, Serialize};
use url::Url;

use super::health;

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) port: u16,
    pub(super) password: String,
    /// The value in the environment of OpenCode and its tools by which these processes are found.
    pub(super) marker: String,
    /// The directory in which OpenCode was started. Its sessions belong to this directory.
    pub(super) workspace: PathBuf,
    /// The identity of the process. `None`: OpenCode has not been started yet.
    #[serde(flatten)]
    process: Option<Identity>,
    /// OpenCode's version. `None`: OpenCode has not responded yet.
    pub(super) version: Option<String>,
    /// The settings with which OpenCode was started: see [`super::ManagedConfig::configured`].
    #[serde(default)]
    pub(super) configured: Option<String>,
}

impl Record {
    pub(super) fn new(port: u16, password: String, workspace: &Path) -> Self {
        Self {
            port,
            password,
            marker: new_marker(),
            workspace: workspace.to_owned(),
            process: None,
            version: None,
            configured: None,
        }
    }

    /// The record in a data directory. `None`: there is none, or it cannot be read.
    pub(super) fn read(data_dir: &Path) -> Option<Self> {
        Self::load(data_dir).unwrap_or_else(|error| {
            tracing::warn!(cause = ?error.cause(), "{error}");
            None
        })
    }

    /// The record in a data directory. Fails if there is one that cannot be read.
    pub(super) fn load(data_dir: &Path) -> Result<Option<Self>> {
        let unreadable = || {
            super::unavailable(
                "The record of the managed OpenCode, managed.json in the data directory, cannot be read, so the gateway cannot \
                 know whether an OpenCode is still running. Look for `opencode serve` by hand, end it and delete the file.",
            )
        };
        match std::fs::read(file(data_dir)) {
            Ok(text) => {
                serde_json::from_slice(&text).map(Some).map_err(|error| unreadable().caused_by(error))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable().caused_by(error)),
        }
    }

    /// Writes the file atomically, readable only by the owner.
    pub(super) fn write(&self, data_dir: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(Error::internal)?;
        let draft = data_dir.join("managed.json.draft");
        let written = (|| {
            // A draft that a crash left behind may have other permissions.
            ignore_absent(std::fs::remove_file(&draft))?;
            let mut output =
                std::fs::File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
            output.write_all(&text)?;
            output.sync_all()?;
            std::fs::rename(&draft, file(data_dir))
        })();
        written.map_err(|source| {
            super::unavailable("The data directory cannot be written to, so OpenCode cannot be managed.")
                .caused_by(source)
        })
    }

    pub(super) fn remove(data_dir: &Path) -> Result<()> {
        ignore_absent(std::fs::remove_file(file(data_dir))).map_err(Error::internal)
    }

    /// Records the process that was just started.
    pub(super) fn set_process(&mut self, process: Process) {
        self.process = Some(Identity::of(process));
        self.version = None;
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Identity::pid)
    }

    /// The process, if it still runs.
    pub(super) fn running_process(&self) -> Option<Process> {
        self.process.as_ref()?.running()
    }

    /// Terminates OpenCode and all processes that it started, and returns their number.
    pub(super) async fn terminate(&self) -> Result<usize> {
        terminate(self.running_process(), &self.marker).await.map_err(|error| {
            let text =
                "OpenCode, or a tool that it left running, cannot be terminated. End the processes by hand.";
            super::unavailable(text).caused_by(error)
        })
    }

    /// Whether OpenCode runs, responds, and belongs to this workspace.
    pub(super) async fn is_adoptable(&self, workspace: &Path) -> bool {
        self.workspace == workspace
            && self.running_process().is_some()
            && self.version.is_some()
            && health::version(self.port, &self.password, || self.running_process().is_some()).await.is_ok()
    }

    pub(super) fn base_url(&self) -> Url {
        let mut url = Url::parse("http://127.0.0.1/").expect("a fixed URL");
        url.set_port(Some(self.port)).expect("an http URL can have a port");
        url
    }
}

/// Omits the password, because records are logged.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("port", &self.port)
            .field("process", &self.process)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("managed.json")
}

fn ignore_absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
