//! The process of an agent: starts it with a clean environment, keeps the end of its error output, and ends it together with all
//! processes of its group.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep};

/// The variables that an agent gets from the gateway's environment: no credentials, nothing of the gateway itself.
pub const INHERITED: &[&str] = &[
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
];

/// How often the process is checked while it should end. No event announces the end of a process that must not be reaped yet.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// How an agent is started and ended.
#[derive(Clone, Debug)]
pub struct ProcessConfig {
    pub program: OsString,
    pub arguments: Vec<OsString>,
    pub directory: PathBuf,
    /// The whole environment: see [`environment`].
    pub environment: BTreeMap<OsString, OsString>,
    /// How much of the error output is kept: the last bytes.
    pub log_bytes: usize,
    /// How long the agent may take to end by itself after its input was closed.
    pub patience: Duration,
    /// How long it may take after SIGTERM, before it is killed.
    pub grace: Duration,
}

impl ProcessConfig {
    pub fn new(program: impl Into<OsString>, directory: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            directory: directory.into(),
            environment: BTreeMap::new(),
            log_bytes: 16 * 1024,
            patience: Duration::from_secs(10),
            grace: Duration::from_secs(3),
        }
    }
}

/// The environment of an agent: the inherited variables, and those that the configuration names.
pub fn environment(
    gateway: impl IntoIterator<Item = (OsString, OsString)>,
    named: &BTreeMap<String, String>,
) -> BTreeMap<OsString, OsString> {
    let is_inherited = |name: &OsStr| INHERITED.iter().any(|inherited| name == *inherited);
    let inherited = gateway.into_iter().filter(|(name, _)| is_inherited(name));
    inherited.chain(named.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}

/// A running agent. When it is dropped, its whole group is killed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// `None`: the group was killed.
    group: Option<Pid>,
    log: Log,
    patience: Duration,
    grace: Duration,
}

/// The pipes of an agent.
#[derive(Debug)]
pub struct Pipes {
    pub input: ChildStdin,
    pub output: ChildStdout,
    pub errors: ChildStderr,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// By itself, after its input was closed or before.
    ByItself,
    Terminated,
    Killed,
}

impl Process {
    pub fn start(config: &ProcessConfig) -> io::Result<(Self, Pipes)> {
        let mut child = Command::new(&config.program)
            .args(&config.arguments)
            .current_dir(&config.directory)
            .env_clear()
            .envs(&config.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C on the gateway's terminal must not reach the agent, and one signal must reach its children.
            .process_group(0)
            .spawn()?;
        let group = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let missing = || io::Error::other("a pipe of the new process is missing");
        let pipes = Pipes {
            input: child.stdin.take().ok_or_else(missing)?,
            output: child.stdout.take().ok_or_else(missing)?,
            errors: child.stderr.take().ok_or_else(missing)?,
        };
        let log = Log { most: config.log_bytes, bytes: Arc::default() };
        Ok((Self { child, group, log, patience: config.patience, grace: config.grace }, pipes))
    }

    /// The end of the error output, for the gateway's own log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Waits until the agent has ended, whose input must be closed; after a while sends SIGTERM and then SIGKILL. In the end kills
    /// whatever is left of its group.
    pub async fn end(self) -> io::Result<(Ending, ExitStatus)> {
        let patience = self.patience;
        self.end_within(patience).await
    }

    /// Like [`Self::end`], with another time for the agent to end by itself.
    pub async fn end_within(mut self, patience: Duration) -> io::Result<(Ending, ExitStatus)> {
        let ending = if self.has_exited_within(patience).await {
            Ending::ByItself
        } else {
            self.signal(Signal::TERM);
            if self.has_exited_within(self.grace).await { Ending::Terminated } else { Ending::Killed }
        };
        // Before the process is reaped: until then, its id and that of its group cannot be reused.
        self.kill_group();
        Ok((ending, self.child.wait().await?))
    }

    async fn has_exited_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let Some(pid) = self.group else { return true };
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            // An error means that there is no such child.
            if !matches!(waitid(WaitId::Pid(pid), options), Ok(None)) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            sleep(CHECK_EVERY).await;
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group
            && let Err(error) = kill_process_group(group, signal)
        {
            tracing::debug!(%error, "an agent's process group could not be signalled");
        }
    }

    fn kill_group(&mut self) {
        self.signal(Signal::KILL);
        self.group = None;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.group.is_some() {
            self.kill_group();
        }
    }
}

/// The last bytes of an agent's error output. Clones share them.
#[derive(Clone, Debug)]
pub struct Log {
    most: usize,
    bytes: Arc<Mutex<VecDeque<u8>>>,
}

impl Log {
    /// Reads until the agent closes its error output. Spawn it: an agent whose error output is not read may block.
    pub async fn fill(self, mut errors: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 4096];
        loop {
            match errors.read(&mut buffer).await {
                Ok(0) => return,
                Ok(read) => self.push(&buffer[..read]),
                Err(error) => {
                    tracing::debug!(%error, "an agent's error output cannot be read");
                    return;
                }
            }
        }
    }

    fn push(&self, more: &[u8]) {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.extend(more);
        let over = bytes.len().saturating_sub(self.most);
        bytes.drain(..over);
    }

    pub fn text(&self) -> String {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(bytes.make_contiguous()).trim().to_owned()
    }
}

#[cfg(test)]
mod tests;
