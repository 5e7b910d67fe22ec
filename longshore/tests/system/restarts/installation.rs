//! A data directory and a port that successive gateways use.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_testkit::gateway::{TOKEN, until};
use rand::RngExt as _;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;

const LONGSHORE: &str = env!("CARGO_BIN_EXE_longshore");

/// A program that starts, listens and ends as OpenCode does, and has no other function.
const FAKE_OPENCODE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/agent-opencode/src/managed/fake_opencode.py");

const MANAGED: &str = "--opencode";

/// How long a test waits. Generous, because tests share the machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// More lines than a gateway prints at its start.
const LINES: usize = 1_000;

pub(crate) struct Installation {
    root: TempDir,
    /// The same port for every gateway, so that clients find the next gateway at the same address.
    port: u16,
    workspace: PathBuf,
    agent: [String; 2],
    /// The behaviour of the fake OpenCode program.
    behaviour: &'static str,
}

impl Installation {
    /// For gateways that are attached to a running OpenCode.
    pub(crate) fn attached(opencode_url: &str, workspace: impl Into<PathBuf>) -> Self {
        let root = tempfile::tempdir().expect("a test can make a directory");
        Self::with(root, workspace.into(), ["--opencode-url", opencode_url], "")
    }

    /// For gateways that start the fake OpenCode program with this behaviour.
    pub(crate) fn managing(behaviour: &'static str) -> Self {
        let root = tempfile::tempdir().expect("a test can make a directory");
        let workspace = root.path().join("workspace");
        std::fs::create_dir(&workspace).expect("a directory can be made");
        Self::with(root, workspace, [MANAGED, FAKE_OPENCODE], behaviour)
    }

    fn with(root: TempDir, workspace: PathBuf, agent: [&str; 2], behaviour: &'static str) -> Self {
        Self { root, port: free_port(), workspace, agent: agent.map(str::to_owned), behaviour }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// Starts a gateway and does not wait for it.
    pub(crate) fn launch(&self, flags: &[&str]) -> Gateway {
        let mut child = self.command("serve");
        child.args(["--port", &self.port.to_string(), "--log-level", "info"]).args(&self.agent).args(flags);
        let mut child =
            child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
        let stdout = child.stdout.take().expect("standard output is piped");
        let stdout = tokio::process::ChildStdout::from_std(stdout).expect("a pipe can be read");
        let stderr = child.stderr.take().expect("standard error is piped");
        let stderr = tokio::process::ChildStderr::from_std(stderr).expect("a pipe can be read");
        Gateway { child, out: Output::of(stdout), err: Output::of(stderr) }
    }

    /// `longshore stdio`, not started yet.
    pub(crate) fn stdio(&self) -> Command {
        let mut command = self.command("stdio");
        command.args(["--log-level", "info"]).args(&self.agent);
        command
    }

    /// Starts a gateway and waits until it listens.
    pub(crate) async fn start(&self, flags: &[&str]) -> Gateway {
        let mut gateway = self.launch(flags);
        gateway.says("  url ").await;
        gateway
    }

    /// Runs `longshore stop`. Returns its output.
    pub(crate) fn stop(&self) -> String {
        let stopped = self.command("stop").output().expect("longshore can be run");
        assert!(stopped.status.success(), "{stopped:?}");
        String::from_utf8(stopped.stdout).expect("it says UTF-8")
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(LONGSHORE);
        command
            .arg(subcommand)
            .arg("--data-dir")
            .arg(self.data())
            .arg("--workspace")
            .arg(&self.workspace)
            .env_clear()
            .env("HOME", self.root.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("A2A_BEARER_TOKEN", TOKEN)
            .env("FAKE_OPENCODE", self.behaviour)
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Installation {
    /// Ends an OpenCode that a failed test has left running.
    fn drop(&mut self) {
        if self.agent[0] == MANAGED {
            let _ = self.command("stop").output();
        }
    }
}

/// A free port below the range of ephemeral ports, so that no connection gets it while the gateway is down.
fn free_port() -> u16 {
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut rng = rand::rng();
    let tried = std::iter::repeat_with(|| rng.random_range(10_000..32_000)).take(100);
    tried.into_iter().find(free).expect("one of many ports is free")
}

pub(crate) struct Gateway {
    child: Child,
    out: Output,
    err: Output,
}

impl Gateway {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the test started the process");
    }

    /// Waits for a line of standard output with these words, and returns it.
    pub(crate) async fn says(&mut self, words: &str) -> String {
        match self.out.until(words).await {
            Some(line) => line,
            None => panic!("it did not say {words:?} but {:?}; {}", self.out.seen, self.err.rest().await),
        }
    }

    /// The same on standard error.
    pub(crate) async fn logs(&mut self, words: &str) -> String {
        match self.err.until(words).await {
            Some(line) => line,
            None => panic!("it did not log {words:?} but {:?}", self.err.seen),
        }
    }

    /// The lines of standard output that [`Self::says`] has read.
    pub(crate) fn said(&self) -> String {
        self.out.seen.join("\n")
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// Waits for the exit. Returns the status and the whole log.
    pub(crate) async fn ended(&mut self) -> (ExitStatus, String) {
        let mut status = None;
        until(PATIENCE, "the gateway ends", || {
            status = self.child.try_wait().expect("a child can be waited for");
            status.is_some()
        })
        .await;
        (status.expect("the wait above ends with a status"), self.err.rest().await)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "the gateway logged:\n{}", self.err.so_far());
        }
    }
}

/// The lines of a pipe. A task reads them, so that the gateway never blocks.
struct Output {
    lines: mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Output {
    fn of<R: tokio::io::AsyncRead + Unpin + Send + 'static>(pipe: R) -> Self {
        let (line, lines) = mpsc::channel(LINES);
        Tasks::new().spawn("output", async move {
            let mut pipe = BufReader::new(pipe).lines();
            while let Ok(Some(read)) = pipe.next_line().await {
                // The receiver may be gone, and lines beyond the limit are dropped.
                let _ = line.try_send(read);
            }
        });
        Self { lines, seen: Vec::new() }
    }

    async fn until(&mut self, words: &str) -> Option<String> {
        loop {
            let line = tokio::time::timeout(PATIENCE, self.lines.recv()).await.ok()??;
            self.seen.push(line.clone());
            if line.contains(words) {
                return Some(line);
            }
        }
    }

    fn so_far(&mut self) -> String {
        while let Ok(line) = self.lines.try_recv() {
            self.seen.push(line);
        }
        self.seen.join("\n")
    }

    async fn rest(&mut self) -> String {
        while let Some(line) = self.lines.recv().await {
            self.seen.push(line);
        }
        self.seen.join("\n")
    }
}
