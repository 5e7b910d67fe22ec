//! Serves the agent's requests to the gateway: reads and writes text files (`fs/*`), and runs commands (`terminal/*`).
//!
//! Both are off unless the operator allows them. A file must be in the directory of the session, and must not be one of the
//! gateway's own files. A command starts in the session's directory and ends with the turn in which it was started. Its access to
//! the machine is not limited. A process that leaves the process group of its command ends with the agent.

mod command;
mod files;
mod output;
mod request;
mod terminals;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use longshore_engine::{ProtectedPaths, Tasks};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

pub use self::request::{FileRequest, Kind, NewTerminal, Refusal, Request, TerminalRequest, Variable};
pub use self::terminals::Report;
pub(crate) use self::terminals::{Reserved, Terminals};

/// How many requests of an agent are served at the same time. Further requests are refused.
const MAX_REQUESTS: usize = 64;

/// How many requests may wait for the end of a command. Further requests are refused.
const MAX_WAITS: usize = 128;

/// How many long answers may exist at the same time, while they are built or wait for the agent to read them. Further requests
/// wait.
const MAX_LONG_ANSWERS: usize = 4;

/// The log target of audit lines. They are written at every configured log level, and contain only names.
const AUDIT: &str = "longshore::audit";

/// Which file requests of the agent are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileAccess {
    #[default]
    Off,
    Read,
    ReadWrite,
}

/// Which requests of the agent are served. By default none.
#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    pub files: FileAccess,
    pub terminals: bool,
    /// The resolved root of the directories of all sessions.
    pub root: PathBuf,
    /// The gateway's own files.
    pub protected: Arc<ProtectedPaths>,
    /// The environment of commands. A request can add variables to it.
    pub environment: BTreeMap<OsString, OsString>,
}

impl ClientConfig {
    /// The client capabilities that `initialize` sends to the agent.
    pub(crate) fn capabilities(&self) -> Value {
        let (reads, writes) = (self.files != FileAccess::Off, self.files == FileAccess::ReadWrite);
        json!({"fs": {"readTextFile": reads, "writeTextFile": writes}, "terminal": self.terminals})
    }

    /// Whether this method is served.
    fn offers(&self, method: &str) -> bool {
        match method {
            "fs/read_text_file" => self.files != FileAccess::Off,
            "fs/write_text_file" => self.files == FileAccess::ReadWrite,
            _ => self.terminals && method.starts_with("terminal/"),
        }
    }
}

/// Serves the requests of one agent process.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) config: ClientConfig,
    pub(crate) terminals: Terminals,
    pub(crate) tasks: Tasks,
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) waits: Arc<Semaphore>,
    pub(crate) long_answers: Arc<Semaphore>,
}

impl Client {
    pub(crate) fn new(config: ClientConfig, tasks: &Tasks) -> Self {
        Self {
            config,
            terminals: Terminals::default(),
            tasks: tasks.clone(),
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
            waits: Arc::new(Semaphore::new(MAX_WAITS)),
            long_answers: Arc::new(Semaphore::new(MAX_LONG_ANSWERS)),
        }
    }

    /// Parses a request. `None`: the method is not served.
    pub(crate) fn read(&self, method: &str, params: Option<&str>) -> Option<Result<Request, Refusal>> {
        if !self.config.offers(method) {
            return None;
        }
        Request::read(method, params.unwrap_or("{}"))
    }
}
