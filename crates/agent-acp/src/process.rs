//! The process of an agent: starts it with a clean environment, keeps the end of its error output, and ends it together with all
//! processes that it started.
//!
//! These are the processes of its group, and those with its marker: a tool may have left the group.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_model::redact;
use longshore_processes::{MARKER, memory_bytes, new_marker, process_tree};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use crate::record::Record;

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

/// How often the process is checked if the kernel's signals about children cannot be received.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// How often the memory of an agent with a limit is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// How long an agent's output is read after its end, if a process that it started still holds the pipe. All that the agent itself
/// wrote is there by then.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

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
    /// The memory of the agent and of everything that it started. An agent that uses more is ended. `None`: no limit.
    pub memory_bytes: Option<u64>,
    /// The directory with the files that tell the next gateway what this one started. `None`: a gateway that is killed leaves no
    /// trace of its agent.
    pub records: Option<PathBuf>,
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
            memory_bytes: None,
            records: None,
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

/// A running agent. When it is dropped, all its processes are killed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    group: Group,
    marker: String,
    record: Option<Record>,
    memory_bytes: Option<u64>,
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
        let marker = new_marker();
        // Before the process starts, so that there is no moment in which a crash loses it.
        let record = config.records.as_deref().map(|records| Record::new(records, marker.clone()));
        record.as_ref().map_or(Ok(()), Record::write)?;
        let mut child = Command::new(&config.program)
            .args(&config.arguments)
            .current_dir(&config.directory)
            .env_clear()
            .envs(&config.environment)
            .env(MARKER, &marker)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C on the gateway's terminal must not reach the agent, and one signal must reach its children.
            .process_group(0)
            .spawn()
            .inspect_err(|_| record.iter().for_each(Record::remove))?;
        let id = child.id();
        let group = Group::of(id.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw));
        let missing = || io::Error::other("a pipe of the new process is missing");
        let pipes = Pipes {
            input: child.stdin.take().ok_or_else(missing)?,
            output: child.stdout.take().ok_or_else(missing)?,
            errors: child.stderr.take().ok_or_else(missing)?,
        };
        let log = Log { most: config.log_bytes, bytes: Arc::default() };
        let ProcessConfig { memory_bytes, patience, grace, .. } = *config;
        let mut process = Self { child, group, marker, record, memory_bytes, log, patience, grace };
        if let (Some(record), Some(pid)) = (&mut process.record, id) {
            // If this fails, the process is dropped here, and so killed.
            record.note(pid)?;
        }
        Ok((process, pipes))
    }

    /// The end of the error output, for the gateway's own log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The value of [`MARKER`] in the environment of the agent and of all that it starts.
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// The group of the process, which can be watched and signalled until the process is ended.
    pub fn group(&self) -> Group {
        self.group.clone()
    }

    /// Waits until the agent, with everything that it started, uses more memory than it may. Returns the limit in bytes.
    pub async fn over_memory(&self) -> u64 {
        let Some(most) = self.memory_bytes else { return std::future::pending().await };
        let pid = self.group.lock().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
        let root = pid.and_then(longshore_processes::Process::find);
        loop {
            sleep(MEASURE_EVERY).await;
            let marker = self.marker.clone();
            // On a thread of its own, because reading `/proc` may take long on a machine with many processes.
            let used = tokio::task::spawn_blocking(move || memory_bytes(&process_tree(root, &marker))).await;
            if used.is_ok_and(|used| used > most) {
                return most;
            }
        }
    }

    /// Waits until the agent has ended, whose input must be closed; after a while sends SIGTERM and then SIGKILL. In the end kills
    /// whatever the agent left behind.
    pub async fn end(self) -> io::Result<(Ending, ExitStatus)> {
        let patience = self.patience;
        self.end_within(patience).await
    }

    /// Like [`Self::end`], with another time for the agent to end by itself.
    pub async fn end_within(mut self, patience: Duration) -> io::Result<(Ending, ExitStatus)> {
        let ending = if timeout(patience, self.group.exited()).await.is_ok() {
            Ending::ByItself
        } else {
            self.group.signal(Signal::TERM);
            let is_over = timeout(self.grace, self.group.exited()).await.is_ok();
            if is_over { Ending::Terminated } else { Ending::Killed }
        };
        // Before the process is reaped: until then, its id and that of its group cannot be reused.
        self.group.kill();
        let status = self.child.wait().await?;
        let marker = self.marker.clone();
        // An error means that the runtime ends, and then the process is dropped.
        let _ = tokio::task::spawn_blocking(move || kill_marked(&marker)).await;
        self.is_over();
        Ok((ending, status))
    }

    /// Nothing is left of the agent.
    fn is_over(&mut self) {
        if let Some(record) = self.record.take() {
            record.remove();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An ended process has no record, and its group was killed.
        if self.group.kill() || self.record.is_some() {
            kill_marked(&self.marker);
            self.is_over();
        }
    }
}

/// Kills what the agent started and what left its group.
fn kill_marked(marker: &str) {
    for process in process_tree(None, marker) {
        tracing::debug!(pid = process.pid, "killed a process that an agent left behind");
        process.signal(Signal::KILL);
    }
}

/// The process group of an agent. Clones share it.
#[derive(Clone, Debug)]
pub struct Group(Arc<Mutex<Option<Pid>>>);

impl Group {
    fn of(leader: Option<Pid>) -> Self {
        Self(Arc::new(Mutex::new(leader)))
    }

    /// Waits until the agent itself has ended, whatever the processes do that it started. Leaves it to be reaped.
    pub async fn exited(&self) {
        // Received from here on, so that no end is missed.
        let mut children = signal(SignalKind::child()).ok();
        while !self.has_exited() {
            let told = match &mut children {
                Some(children) => children.recv().await.is_some(),
                None => false,
            };
            if !told {
                sleep(CHECK_EVERY).await;
            }
        }
    }

    fn has_exited(&self) -> bool {
        let Some(pid) = *self.lock() else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that there is no such child.
        !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
    }

    /// Sends a signal to all processes of the group, unless the group was ended.
    pub fn signal(&self, signal: Signal) {
        // Locked while it is signalled, so that the leader is not reaped meanwhile and its id reused.
        if let Some(group) = *self.lock()
            && let Err(error) = kill_process_group(group, signal)
        {
            tracing::debug!(%error, "an agent's process group could not be signalled");
        }
    }

    /// Kills the group for good. Returns whether it was not killed before.
    fn kill(&self) -> bool {
        self.signal(Signal::KILL);
        self.lock().take().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last bytes of an agent's error output. Clones share them.
#[derive(Clone, Debug)]
pub struct Log {
    most: usize,
    bytes: Arc<Mutex<VecDeque<u8>>>,
}

impl Log {
    /// Reads until the agent closes its error output, or has ended. Spawn it: an agent whose error output is not read may block.
    pub async fn fill(self, mut errors: impl AsyncRead + Unpin, group: Group) {
        let mut buffer = vec![0; 4096];
        // A process that the agent started may hold the pipe after the agent's end.
        let mut over = pin!(async {
            group.exited().await;
            sleep(LAST_WORDS).await;
        });
        loop {
            let read = tokio::select! {
                biased;
                () = &mut over => return,
                read = errors.read(&mut buffer) => read,
            };
            match read {
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

    /// The text, without the keys of model providers and code hosts.
    pub fn text(&self) -> String {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        redact::keys(String::from_utf8_lossy(bytes.make_contiguous()).trim())
    }
}

#[cfg(test)]
mod tests;
