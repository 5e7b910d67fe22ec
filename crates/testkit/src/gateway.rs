//! The real `longshore` with the real OpenCode, as child processes of one test.
//!
//! Everything is in one temporary directory: the gateway's data, the workspace, and the home of both. The environment contains
//! only the PATH, so that the user's own configuration has no effect. Dropping the [`Gateway`] stops the gateway and its
//! OpenCode, and nothing else.

mod log;
mod opencode;
mod process;
mod workspace;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};

pub(crate) use log::keep_reading;
pub use opencode::{OpenCodeApi, Record};
pub use process::{Paused, is_alive, kill, peak_kilobytes, resident_kilobytes, until};

/// The bearer token of every gateway that a test starts with [`Setup::demo`].
pub const TOKEN: &str = "a-token-for-tests-only-0123456789";

/// How long a gateway may take until it listens.
const START: Duration = Duration::from_mins(1);

/// How long an orderly shutdown may take before the test fails.
const END: Duration = Duration::from_secs(30);

/// How to start a gateway.
#[derive(Clone, Debug)]
#[must_use = "its methods return a changed copy"]
pub struct Setup {
    binary: PathBuf,
    flags: Vec<OsString>,
    environment: BTreeMap<OsString, OsString>,
    /// Relative to the temporary directory.
    data_dir: &'static str,
    /// No OpenCode is started: none is needed, and none is stopped.
    attached: bool,
}

impl Setup {
    /// `longshore serve --demo`: a managed OpenCode in a home of its own, and the built-in demo model.
    pub fn demo(binary: impl Into<PathBuf>) -> Self {
        Self::managed(binary, BTreeMap::new()).flag("--demo")
    }

    /// `longshore serve` with a managed OpenCode that finds its configuration through `environment`.
    pub fn managed(binary: impl Into<PathBuf>, environment: BTreeMap<OsString, OsString>) -> Self {
        let setup =
            Self { binary: binary.into(), flags: Vec::new(), environment, data_dir: "data", attached: false };
        setup.env("A2A_BEARER_TOKEN", TOKEN)
    }

    /// `longshore serve` with an OpenCode that runs at this URL, which may be a fake.
    pub fn attached(binary: impl Into<PathBuf>, opencode_url: &str) -> Self {
        let setup = Self { attached: true, ..Self::managed(binary, BTreeMap::new()) };
        setup.env("OPENCODE_BASE_URL", opencode_url)
    }

    /// `longshore serve --agent`: an agent that speaks ACP, and that ends with the gateway.
    pub fn acp(binary: impl Into<PathBuf>, agent: &str, environment: BTreeMap<OsString, OsString>) -> Self {
        let setup = Self { attached: true, ..Self::managed(binary, environment) };
        setup.flag("--agent").flag(agent)
    }

    /// Keeps the gateway's data in the workspace.
    pub fn data_in_workspace(mut self) -> Self {
        self.data_dir = "workspace/.longshore";
        self.flag("--data-dir-in-workspace")
    }

    pub fn flag(mut self, flag: impl Into<OsString>) -> Self {
        self.flags.push(flag.into());
        self
    }

    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }
}

/// A gateway that is running, or was running.
#[derive(Debug)]
pub struct Gateway {
    setup: Setup,
    root: TempDir,
    child: Option<Child>,
    /// The exit status of the last process, if it ended by itself.
    end: Option<ExitStatus>,
    url: String,
}

impl Gateway {
    /// Starts a gateway and waits until it listens.
    pub async fn start(setup: Setup) -> Self {
        let root = tempfile::tempdir().expect("cannot create a temporary directory");
        Self::start_in(root, setup).await
    }

    /// The same in a directory that the caller has prepared.
    pub async fn start_in(root: TempDir, setup: Setup) -> Self {
        Self::try_start_in(root, setup).await.unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// The same. `Err`: the gateway did not listen, and why.
    pub async fn try_start_in(root: TempDir, setup: Setup) -> Result<Self, String> {
        if !setup.attached {
            require_opencode();
        }
        let mut gateway = Self { setup, root, child: None, end: None, url: String::new() };
        workspace::create(&gateway.workspace());
        gateway.launch(None).await?;
        Ok(gateway)
    }

    /// Starts the gateway again on the same data, after [`Self::kill`] or [`Self::terminate`].
    pub async fn restart(&mut self) {
        self.try_restart(None).await.unwrap_or_else(|problem| panic!("{problem}"));
    }

    /// The same, for a gateway that may die before it listens. `variable` is set for this life only.
    pub async fn try_restart(&mut self, variable: Option<(&str, &str)>) -> Result<(), String> {
        assert!(self.child.is_none(), "the gateway is still running: stop it before it is started again");
        self.launch(variable).await
    }

    /// Whether the gateway has ended by itself. Then it can be started again.
    pub fn has_ended(&mut self) -> bool {
        let Some(child) = &mut self.child else { return true };
        let ended = child.try_wait().expect("cannot wait for the gateway");
        if ended.is_some() {
            (self.child, self.end) = (None, ended);
        }
        ended.is_some()
    }

    /// The exit status of the last process. `None`: it did not end by itself.
    pub fn end(&self) -> Option<ExitStatus> {
        self.end
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn data_dir(&self) -> PathBuf {
        self.root.path().join(self.setup.data_dir)
    }

    pub fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the gateway is running").id()
    }

    /// Kills only the gateway, as a crash would.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the gateway is running");
        child.kill().expect("cannot kill the gateway");
        child.wait().expect("a killed child ends");
    }

    /// Stops the gateway with SIGTERM and waits for its end.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.stop_with(Signal::TERM).await
    }

    /// Stops the gateway as Ctrl-C on its terminal does, and waits for its end.
    pub async fn interrupt(&mut self) -> ExitStatus {
        self.stop_with(Signal::INT).await
    }

    async fn stop_with(&mut self, signal: Signal) -> ExitStatus {
        let mut child = self.child.take().expect("the gateway is running");
        process::signal(child.id(), signal);
        let mut status = None;
        until(END, &format!("the gateway ends after {signal:?}"), || {
            status = child.try_wait().expect("cannot wait for the gateway");
            status.is_some()
        })
        .await;
        status.expect("the wait above ends with a status")
    }

    /// Runs `longshore stop` for this gateway's data.
    pub fn stop_opencode(&self) -> Output {
        let demo = self.setup.flags.iter().filter(|flag| *flag == "--demo");
        self.command("stop").args(demo).output().expect("longshore can be run")
    }

    /// The API of the managed OpenCode, once it is running.
    pub async fn opencode(&self) -> OpenCodeApi {
        let mut found = None;
        until(START, "the data directory contains the record of the managed OpenCode", || {
            found = Record::read(&self.data_dir());
            found.is_some()
        })
        .await;
        let record = found.expect("the wait above ends with a record");
        OpenCodeApi::new(record, self.workspace().canonicalize().expect("the workspace exists"))
    }

    /// The standard error of the gateway.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.root.path().join("gateway.log")
    }

    async fn launch(&mut self, variable: Option<(&str, &str)>) -> Result<(), String> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_file());
        let mut child = self
            .command("serve")
            .args(["--port", "0", "--log-level", "info"])
            .args(&self.setup.flags)
            .envs(variable)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.expect("cannot create the log file"))
            .spawn()
            .expect("cannot start longshore");
        let stdout = child.stdout.take().expect("standard output is piped");
        (self.child, self.end) = (Some(child), None);
        let stdout = tokio::process::ChildStdout::from_std(stdout).expect("a pipe can be read");
        let mut lines = BufReader::new(stdout).lines();
        let mut seen = Vec::new();
        let ready = async {
            while let Ok(Some(line)) = lines.next_line().await {
                seen.push(line);
                if let Some(url) = listening(seen.last().expect("just pushed")) {
                    return Some(url);
                }
            }
            None
        };
        let ready = tokio::time::timeout(START, ready).await;
        let Ok(Some(url)) = ready else {
            // A process that has closed its standard output ends by itself now.
            let mut child = self.child.take().expect("just started");
            let _ = child.kill();
            let status = child.wait().expect("a killed child ends");
            self.end = ready.is_ok().then_some(status);
            return Err(format!(
                "longshore did not report its address; it printed:\n{}\nand logged:\n{}",
                seen.join("\n"),
                self.log()
            ));
        };
        self.url = url;
        keep_reading(lines);
        Ok(())
    }

    /// `longshore <subcommand>` with the directories and the environment of this test.
    fn command(&self, subcommand: &str) -> Command {
        let home = self.root.path().join("home");
        std::fs::create_dir_all(&home).expect("cannot create the home");
        let mut command = Command::new(&self.setup.binary);
        command
            .arg(subcommand)
            .arg("--data-dir")
            .arg(self.data_dir())
            .arg("--workspace")
            .arg(self.workspace())
            .current_dir(self.root.path())
            .env_clear()
            .env("HOME", home)
            .env("PATH", path_with_tools())
            .envs(&self.setup.environment);
        command
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if self.setup.attached {
            if std::thread::panicking() {
                log::show("the gateway", &self.log_file());
            }
            return;
        }
        let stopped = self.stop_opencode();
        if std::thread::panicking() {
            log::show("the gateway", &self.log_file());
            log::show("the managed OpenCode", &opencode::output_file(&self.data_dir()));
        } else {
            assert!(
                stopped.status.success(),
                "`longshore stop` failed: {}{}",
                String::from_utf8_lossy(&stopped.stdout),
                String::from_utf8_lossy(&stopped.stderr)
            );
        }
    }
}

/// The PATH of the test, with the pinned tools in front.
pub fn path_with_tools() -> OsString {
    let old = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(tools()).chain(std::env::split_paths(&old)))
        .expect("a PATH cannot contain the path of the repository")
}

/// The URL in the line with the gateway's address.
fn listening(line: &str) -> Option<String> {
    let url = line.trim_start().strip_prefix("url ")?.trim();
    url.starts_with("http://").then(|| url.trim_end_matches('/').to_owned())
}

fn require_opencode() {
    for program in ["opencode", "rg"] {
        let file = tools().join(program);
        assert!(file.exists(), "{program} is not installed for the tests: run tools/install-opencode.sh");
    }
}

fn tools() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = crate_dir.ancestors().nth(2).expect("this crate lies two levels below the root");
    root.join(OsStr::new(".tools")).join("bin")
}
