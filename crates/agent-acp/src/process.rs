//! The process of an agent: starts it with a clean environment, keeps the end of its error output, and ends it together with all
//! processes that it started.
//!
//! These are the processes in its group, and those with its marker in their environment, because a tool may have left the group.

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

/// The variables that an agent inherits from the gateway's environment. None of them is a credential or a setting of the gateway.
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

/// How often the process is checked if the gateway cannot receive the kernel's signals about child processes.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// How often the memory of an agent with a limit is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// How long an agent's output is read after the agent's end, if a process that it started still holds the pipe. All output of the
/// agent itself is in the pipe by then.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

/// How an agent is started and ended.
#[derive(Clone, Debug)]
pub struct ProcessConfig {
    pub program: OsString,
    pub arguments: Vec<OsString>,
    pub directory: PathBuf,
    /// The complete environment of the process: see [`environment`].
    pub environment: BTreeMap<OsString, OsString>,
    /// How many bytes from the end of the error output are kept.
    pub log_bytes: usize,
    /// How long the agent may take to end by itself after its input was closed.
    pub patience: Duration,
    /// How long the agent may take to end after SIGTERM. After that it is killed.
    pub grace: Duration,
    /// The memory limit for the agent and all processes that it started. An agent that exceeds it is ended. `None`: no limit.
    pub memory_bytes: Option<u64>,
    /// The directory of the records by which the next gateway finds processes that this one left behind. `None`: there are no
    /// records, so after a kill of the gateway its agent is not found.
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

/// The environment of an agent: the inherited variables, and the configured ones.
pub fn environment(
    gateway: impl IntoIterator<Item = (OsString, OsString)>,
    named: &BTreeMap<String, String>,
) -> BTreeMap<OsString, OsString> {
    let is_inherited = |name: &OsStr| INHERITED.iter().any(|inherited| name == *inherited);
    let inherited = gateway.into_iter().filter(|(name, _)| is_inherited(name));
    inherited.chain(named.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}

/// A running agent. Dropping it kills all its processes.
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
    /// The process ended by itself, before or after its input was closed.
    ByItself,
    Terminated,
    Killed,
}

impl Process {
    pub fn start(config: &ProcessConfig) -> io::Result<(Self, Pipes)> {
        let marker = new_marker();
        // Written before the process starts, so that a crash at any moment leaves a record of the process.
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
            // Ctrl-C on the gateway's terminal must not reach the agent, and a signal to the group must reach the agent's children.
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
            // If this fails, the process is dropped here, which kills it.
            record.note(pid)?;
        }
        Ok((process, pipes))
    }

    /// The end of the error output, for the gateway's own log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The value of [`MARKER`] in the environment of the agent and of all processes that it starts.
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// The group of the process. It can be watched and signalled until the process is ended.
    pub fn group(&self) -> Group {
        self.group.clone()
    }

    /// Waits until the agent and its processes together exceed the memory limit. Returns the limit in bytes.
    pub async fn over_memory(&self) -> u64 {
        let Some(most) = self.memory_bytes else { return std::future::pending().await };
        let pid = self.group.lock().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
        let root = pid.and_then(longshore_processes::Process::find);
        loop {
            sleep(MEASURE_EVERY).await;
            let marker = self.marker.clone();
            // Runs on a blocking thread, because reading `/proc` may take long on a machine with many processes.
            let used = tokio::task::spawn_blocking(move || memory_bytes(&process_tree(root, &marker))).await;
            if used.is_ok_and(|used| used > most) {
                return most;
            }
        }
    }

    /// Waits until the agent has ended. Its input must be closed. Sends SIGTERM after a while, and then SIGKILL. Finally kills all
    /// processes that the agent left behind.
    pub async fn end(self) -> io::Result<(Ending, ExitStatus)> {
        let patience = self.patience;
        self.end_within(patience).await
    }

    /// Like [`Self::end`], with another time limit for the agent to end by itself.
    pub async fn end_within(mut self, patience: Duration) -> io::Result<(Ending, ExitStatus)> {
        let ending = if timeout(patience, self.group.exited()).await.is_ok() {
            Ending::ByItself
        } else {
            self.group.signal(Signal::TERM);
            let is_over = timeout(self.grace, self.group.exited()).await.is_ok();
            if is_over { Ending::Terminated } else { Ending::Killed }
        };
        // Done before the process is reaped, because until then the ids of the process and its group cannot be reused.
        self.group.kill();
        let status = self.child.wait().await?;
        let marker = self.marker.clone();
        // An error means that the runtime is ending. Then the process is dropped, which kills it.
        let _ = tokio::task::spawn_blocking(move || kill_marked(&marker)).await;
        self.is_over();
        Ok((ending, status))
    }

    /// Records that no process of the agent is left.
    fn is_over(&mut self) {
        if let Some(record) = self.record.take() {
            record.remove();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that was ended has no record any more, and its group was killed.
        if self.group.kill() || self.record.is_some() {
            kill_marked(&self.marker);
            self.is_over();
        }
    }
}

/// Kills the processes that the agent started and that have left its group.
fn kill_marked(marker: &str) {
    for process in process_tree(None, marker) {
        tracing::debug!(pid = process.pid, "killed a process that an agent left behind");
        process.signal(Signal::KILL);
    }
}

/// The process group of an agent. Clones share its state.
#[derive(Clone, Debug)]
pub struct Group(Arc<Mutex<Option<Pid>>>);

impl Group {
    fn of(leader: Option<Pid>) -> Self {
        Self(Arc::new(Mutex::new(leader)))
    }

    /// Waits until the agent itself has ended, even if processes that it started continue. Does not reap the agent.
    pub async fn exited(&self) {
        // Signals are received from here on, so that the end is not missed.
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
        // An error means that there is no such child process.
        !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
    }

    /// Sends a signal to all processes of the group, unless the group was ended.
    pub fn signal(&self, signal: Signal) {
        // The group stays locked during the signal, so that its leader is not reaped and its id not reused meanwhile.
        if let Some(group) = *self.lock()
            && let Err(error) = kill_process_group(group, signal)
        {
            tracing::debug!(%error, "an agent's process group could not be signalled");
        }
    }

    /// Kills the group for good. Returns whether it had not been killed before.
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
    /// Reads until the agent closes its error output or has ended. The caller spawns this, because an agent may block if nobody
    /// reads its error output.
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

    /// The text, in which the API keys of model providers and code hosts are redacted.
    pub fn text(&self) -> String {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        redact::keys(String::from_utf8_lossy(bytes.make_contiguous()).trim())
    }
}

#[cfg(test)]
mod tests;
