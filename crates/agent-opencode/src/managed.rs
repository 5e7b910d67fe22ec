//! An `opencode serve` that Longshore starts, finds again, watches and ends.
//!
//! It outlives the gateway: it has a process group of its own, its output goes to a file, and what is needed to
//! talk to it stands in a record in the data directory, all readable by the owner only. The next start adopts
//! it if it is still the same process and answers; otherwise what is left of it is ended and a new one started.
//!
//! | file | content |
//! |---|---|
//! | `managed.json` | port, password, process, marker, workspace, version |
//! | `managed.lock` | held while one is started, adopted or ended |
//! | `opencode.log` | its output since its last start; `opencode.log.1` that of the start before |
//!
//! Processes are found through Linux's `/proc`.

mod end;
mod health;
mod launch;
mod lock;
mod process;
mod record;
mod supervise;
mod vigil;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use longshore_model::{Error, ErrorKind, Result};
use secrecy::SecretString;
use tokio::process::Child;

use self::lock::Lock;
use self::record::Record;
pub use self::supervise::State;
use self::vigil::Vigil;
use crate::{Address, Endpoint};

/// The user name that OpenCode expects when none is configured.
const USERNAME: &str = "opencode";

/// How long [`stop`] waits for a gateway that is just starting or ending OpenCode.
const STOP_PATIENCE: Duration = Duration::from_secs(90);

/// What to start, and where.
#[derive(Clone, Debug)]
pub struct ManagedConfig {
    /// A path, or a name to be looked up on the `PATH`.
    pub program: PathBuf,
    /// Where the record and the output go.
    pub data_dir: PathBuf,
    /// The directory that OpenCode works in.
    pub workspace: PathBuf,
    /// Set for OpenCode, beside or instead of the gateway's own environment.
    pub env: BTreeMap<OsString, OsString>,
    /// OpenCode gets `env` only.
    pub env_clear: bool,
    /// An OpenCode that does not listen in this time is ended. It takes 2 to 4 s on a quiet machine.
    pub start_timeout: Duration,
}

/// A running OpenCode. Dropping this does not end it.
#[derive(Debug)]
pub struct Managed {
    config: ManagedConfig,
    record: Record,
    address: Address,
    vigil: Vigil,
    /// None when it was adopted: it is no child of ours then.
    child: Option<Child>,
}

impl Managed {
    /// Adopts the OpenCode of the data directory, or starts one.
    ///
    /// Dropping the future ends an OpenCode that is about to start.
    pub async fn start(config: ManagedConfig) -> Result<Self> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&config.data_dir)
            .map_err(|source| unavailable("The data directory cannot be made.").caused_by(source))?;
        // Whoever holds the lock may wait for OpenCode as long as we would, and end another before that.
        let lock = Lock::take(&config.data_dir, config.start_timeout + STOP_PATIENCE).await?;
        if let Some(record) = Record::read(&config.data_dir) {
            if record.is_adoptable(&config.workspace).await {
                tracing::info!(pid = record.pid(), "took over the OpenCode that was left running");
                return Ok(Self::new(config, record, None));
            }
            let ended = end::end(&record).await?;
            if ended > 0 {
                tracing::warn!(
                    processes = ended,
                    "ended what was left of an OpenCode that cannot be taken over"
                );
            }
            Record::remove(&config.data_dir)?;
        }
        let (record, child) = launch::somewhere(&config).await?;
        drop(lock);
        Ok(Self::new(config, record, Some(child)))
    }

    fn new(config: ManagedConfig, record: Record, child: Option<Child>) -> Self {
        let address = Address::from(record.base_url());
        Self { config, record, address, vigil: Vigil::default(), child }
    }

    /// Where it is and how to log in. It holds for as long as somebody supervises it.
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

    /// As OpenCode itself says it.
    pub fn version(&self) -> &str {
        self.record.version.as_deref().unwrap_or_default()
    }

    /// It was running already.
    pub fn is_adopted(&self) -> bool {
        self.child.is_none()
    }
}

/// Ends the OpenCode of a data directory with every tool that it left running, and says how many processes that
/// were. Nothing happens when there is none. It fails when the record cannot be read. A supervisor does not start it again
/// (the command line refuses to stop it while a gateway runs).
pub async fn stop(data_dir: &Path) -> Result<usize> {
    if !data_dir.is_dir() {
        return Ok(0);
    }
    let _lock = Lock::take(data_dir, STOP_PATIENCE).await?;
    let Some(record) = Record::load(data_dir)? else { return Ok(0) };
    let ended = end::end(&record).await?;
    Record::remove(data_dir)?;
    Ok(ended)
}

fn unavailable(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::AgentUnavailable, message)
}

/// A secret that nobody guesses: 192 random bits.
fn random_password() -> String {
    base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 24]>())
}

#[cfg(test)]
mod tests;
