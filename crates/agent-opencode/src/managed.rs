//! An `opencode serve` that Longshore starts, takes over, supervises and terminates.
//!
//! The process outlives the gateway: it has its own process group, its output goes to a file, and a record in the data directory
//! holds everything that is needed to reach it. Only the owner can read these files. The next start of the gateway *adopts* (takes
//! over) the process if it is still the same process and responds. Otherwise the gateway terminates what is left of it and starts
//! a new process. The *marker* is a random number in the environment of OpenCode and of every process that it starts. The gateway
//! finds these processes by it.
//!
//! | file | content |
//! |---|---|
//! | `managed.json` | port, password, process, marker, workspace, version |
//! | `managed.lock` | held while an OpenCode is started, adopted or terminated |
//! | `opencode.log` | the output since the last start; `opencode.log.1` holds that of the start before |
//!
//! Processes are found through Linux's `/proc`.

mod health;
mod launch;
mod liveness;
mod lock;
mod record;
mod supervise;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use longshore_model::{Error, ErrorKind, Result};
use secrecy::SecretString;
use tokio::process::Child;

pub use self::launch::MISSING_PROGRAM;
use self::liveness::LivenessCheck;
use self::lock::Lock;
use self::record::Record;
pub use self::supervise::State;
use crate::{Address, Endpoint};

/// The user name that OpenCode expects by default.
const USERNAME: &str = "opencode";

/// How long [`stop`] waits for a gateway that is just starting or terminating OpenCode.
const STOP_PATIENCE: Duration = Duration::from_secs(90);

/// How OpenCode is started, and in which directory.
#[derive(Clone, Debug)]
pub struct ManagedConfig {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: PathBuf,
    /// The directory for the record and the output.
    pub data_dir: PathBuf,
    /// The directory in which OpenCode works.
    pub workspace: PathBuf,
    /// Variables for OpenCode, in addition to the gateway's own environment. They override it.
    pub env: BTreeMap<OsString, OsString>,
    /// Whether OpenCode gets only `env`, and not the gateway's environment.
    pub env_clear: bool,
    /// Identifies the settings in `env` for which OpenCode must be restarted when they change. See [`Managed::is_outdated`].
    pub configured: Option<String>,
    /// How long OpenCode may take until it listens. After that it is terminated. The start takes 2 to 4 s on an idle machine.
    pub start_timeout: Duration,
}

/// A running OpenCode. Dropping this does not terminate it.
#[derive(Debug)]
pub struct Managed {
    config: ManagedConfig,
    record: Record,
    address: Address,
    liveness: LivenessCheck,
    /// The child process. `None`: OpenCode was adopted, so it is not a child of this process.
    child: Option<Child>,
}

impl Managed {
    /// Adopts the OpenCode of the data directory, or starts one.
    ///
    /// Dropping the future terminates an OpenCode that is still starting.
    pub async fn start(config: ManagedConfig) -> Result<Self> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&config.data_dir)
            .map_err(|source| unavailable("The data directory cannot be created.").caused_by(source))?;
        // The holder of the lock may first terminate one OpenCode and then wait for the start of another.
        let lock = Lock::take(&config.data_dir, config.start_timeout + STOP_PATIENCE).await?;
        if let Some(record) = Record::read(&config.data_dir) {
            if record.is_adoptable(&config.workspace).await {
                tracing::info!(pid = record.pid(), "adopted the OpenCode that was still running");
                return Ok(Self::new(config, record, None));
            }
            let ended = record.terminate().await?;
            if ended > 0 {
                tracing::warn!(
                    processes = ended,
                    "terminated the processes of an OpenCode that could not be adopted"
                );
            }
            Record::remove(&config.data_dir)?;
        }
        let (record, child) = launch::start_new(&config).await?;
        drop(lock);
        Ok(Self::new(config, record, Some(child)))
    }

    fn new(config: ManagedConfig, record: Record, child: Option<Child>) -> Self {
        let address = Address::supervised(record.base_url());
        Self { config, record, address, liveness: LivenessCheck::default(), child }
    }

    /// The address and the credentials. They stay valid while OpenCode is supervised.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            base_url: self.address.clone(),
            username: USERNAME.to_owned(),
            password: Some(SecretString::from(self.record.password.clone())),
        }
    }

    pub fn pid(&self) -> Option<u32> {
        self.record.pid()
    }

    /// OpenCode's own version number.
    pub fn version(&self) -> &str {
        self.record.version.as_deref().unwrap_or_default()
    }

    /// Whether OpenCode was already running with another [`ManagedConfig::configured`]. It is adopted nevertheless, because turns
    /// may run in it.
    pub fn is_outdated(&self) -> bool {
        self.record.configured != self.config.configured
    }

    /// Whether OpenCode was already running.
    pub fn is_adopted(&self) -> bool {
        self.child.is_none()
    }
}

/// The OpenCode of a data directory, if it is running.
pub fn running(data_dir: &Path) -> Option<Endpoint> {
    let record = Record::read(data_dir)?;
    record.running_process()?;
    Some(Endpoint {
        base_url: Address::supervised(record.base_url()),
        username: USERNAME.to_owned(),
        password: Some(SecretString::from(record.password)),
    })
}

/// Terminates the OpenCode of a data directory and all tools that it left running. Returns the number of terminated processes:
/// 0 if there is no such OpenCode. Fails if the record cannot be read. A supervisor does not start OpenCode again after this. (The command line refuses to stop
/// OpenCode while a gateway runs.)
pub async fn stop(data_dir: &Path) -> Result<usize> {
    if !data_dir.is_dir() {
        return Ok(0);
    }
    let _lock = Lock::take(data_dir, STOP_PATIENCE).await?;
    let Some(record) = Record::load(data_dir)? else { return Ok(0) };
    let ended = record.terminate().await?;
    Record::remove(data_dir)?;
    Ok(ended)
}

fn unavailable(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::AgentUnavailable, message)
}

/// A password of 192 random bits.
fn random_password() -> String {
    base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 24]>())
}

#[cfg(test)]
mod tests;
