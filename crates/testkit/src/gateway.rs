//! The real `longshore` with the real OpenCode, as processes of one test.
//!
//! Everything lives in one temporary directory: the data of the gateway, the workspace, and the home that both
//! see. The environment is empty but for the PATH, so that nothing of the user's own configuration takes part.
//! Dropping the [`Gateway`] ends the gateway and its OpenCode, and nothing else.

mod log;
mod opencode;
mod process;
mod workspace;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};

pub(crate) use log::keep_reading;
pub use opencode::{OpenCodeApi, Record};
pub use process::{Paused, is_alive, kill, resident_kilobytes, until};

/// The bearer token of every gateway that a test starts with [`Setup::demo`].
pub const TOKEN: &str = "a-token-for-tests-only-0123456789";

/// A gateway that has not said by then that it listens will never do so.
const START: Duration = Duration::from_mins(1);

/// How long an orderly end may take before the test fails.
const END: Duration = Duration::from_secs(30);

/// How to start a gateway.
#[derive(Clone, Debug)]
pub struct Setup {
    binary: PathBuf,
    flags: Vec<OsString>,
    environment: BTreeMap<OsString, OsString>,
    /// OpenCode is somebody else's: no program is needed, and none is ended.
    attached: bool,
}

impl Setup {
    /// `longshore serve --demo`: a managed OpenCode in a home of its own, and the built-in demo model.
    pub fn demo(binary: impl Into<PathBuf>) -> Self {
        Self::managed(binary, BTreeMap::new()).flag("--demo")
    }

    /// `longshore serve` with a managed OpenCode that finds its configuration through `environment`.
    pub fn managed(binary: impl Into<PathBuf>, environment: BTreeMap<OsString, OsString>) -> Self {
        let setup = Self { binary: binary.into(), flags: Vec::new(), environment, attached: false };
        setup.env("A2A_BEARER_TOKEN", TOKEN)
    }

    /// `longshore serve` with an OpenCode that runs at this URL, which may be a fake.
    pub fn attached(binary: impl Into<PathBuf>, opencode_url: &str) -> Self {
        let setup = Self { attached: true, ..Self::managed(binary, BTreeMap::new()) };
        setup.env("OPENCODE_BASE_URL", opencode_url)
    }

    #[must_use]
    pub fn flag(mut self, flag: impl Into<OsString>) -> Self {
        self.flags.push(flag.into());
        self
    }

    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }
}

/// A gateway that runs, or ran a moment ago.
#[derive(Debug)]
pub struct Gateway {
    setup: Setup,
    root: TempDir,
    child: Option<Child>,
    /// How the last one ended, if it ended by itself.
    end: Option<ExitStatus>,
    url: String,
}

impl Gateway {
    /// Starts a gateway and waits until it listens.
    pub async fn start(setup: Setup) -> Self {
        let root = tempfile::tempdir().expect("a test can make a temporary directory");
        Self::start_in(root, setup).await
    }

    /// The same in a directory that the caller has put things into.
    pub async fn start_in(root: TempDir, setup: Setup) -> Self {
        Self::try_start_in(root, setup).await.unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// The same. `Err`: it did not come to listen, and says why.
    pub async fn try_start_in(root: TempDir, setup: Setup) -> Result<Self, String> {
        if !setup.attached {
            require_opencode();
        }
        let mut gateway = Self { setup, root, child: None, end: None, url: String::new() };
        workspace::create(&gateway.workspace());
        gateway.launch(None).await?;
        Ok(gateway)
    }

    /// Starts it again, after [`Self::kill`] or [`Self::terminate`], on the same data.
    pub async fn restart(&mut self) {
        self.try_restart(None).await.unwrap_or_else(|problem| panic!("{problem}"));
    }

    /// The same, for a gateway that may die before it listens. `variable` is set for this life only.
    pub async fn try_restart(&mut self, variable: Option<(&str, &str)>) -> Result<(), String> {
        assert!(self.child.is_none(), "the gateway still runs: end it before it is started again");
        self.launch(variable).await
    }

    /// Whether it has ended by itself. Then it can be started again.
    pub fn has_ended(&mut self) -> bool {
        let Some(child) = &mut self.child else { return true };
        let ended = child.try_wait().expect("a child can be waited for");
        if ended.is_some() {
            (self.child, self.end) = (None, ended);
        }
        ended.is_some()
    }

    /// How the last one ended. None: it did not end by itself.
    pub fn end(&self) -> Option<ExitStatus> {
        self.end
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn data_dir(&self) -> PathBuf {
        self.root.path().join("data")
    }

    pub fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the gateway runs").id()
    }

    /// Ends the gateway as a crash would, and nothing but the gateway.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the gateway runs");
        child.kill().expect("a child can be killed");
        child.wait().expect("a killed child ends");
    }

    /// Ends the gateway with SIGTERM and waits for it.
    pub async fn terminate(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the gateway runs");
        process::terminate(child.id());
        let mut status = None;
        until(END, "the gateway ends after SIGTERM", || {
            status = child.try_wait().expect("a child can be waited for");
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

    /// The API of the managed OpenCode, once it runs.
    pub async fn opencode(&self) -> OpenCodeApi {
        let mut found = None;
        until(START, "the data directory says where the managed OpenCode is", || {
            found = Record::read(&self.data_dir());
            found.is_some()
        })
        .await;
        let record = found.expect("the wait above ends with a record");
        OpenCodeApi::new(record, self.workspace().canonicalize().expect("the workspace exists"))
    }

    /// What the gateway wrote to standard error.
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
            .stderr(log.expect("a log file can be made"))
            .spawn()
            .expect("longshore can be started");
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
            // One that has closed its standard output has an end of its own, or is about to have it.
            let mut child = self.child.take().expect("just started");
            let _ = child.kill();
            let status = child.wait().expect("a killed child ends");
            self.end = ready.is_ok().then_some(status);
            return Err(format!(
                "longshore did not say that it listens; it said:\n{}\nand logged:\n{}",
                seen.join("\n"),
                self.log()
            ));
        };
        self.url = url;
        keep_reading(lines);
        Ok(())
    }

    /// `longshore <subcommand>` in this test's surroundings.
    fn command(&self, subcommand: &str) -> Command {
        let home = self.root.path().join("home");
        std::fs::create_dir_all(&home).expect("a directory can be made");
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
        .expect("the path of the repository can stand in a PATH")
}

/// The URL in the line that says where the gateway is.
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
