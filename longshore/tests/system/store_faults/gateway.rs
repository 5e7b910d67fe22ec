//! The gateway as a process on a [`DataDir`], and its clients.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_testkit::fake_opencode::FakeOpenCode;
use longshore_testkit::gateway::{TOKEN, until};
use longshore_testkit::raw::{Frame, Frames, RawClient};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::JoinHandle;

use crate::store_faults::data_dir::DataDir;

const LONGSHORE: &str = env!("CARGO_BIN_EXE_longshore");

/// How long a test waits. Generous, because tests share the machine, and a gateway whose store failed retries after
/// five seconds.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Gateway {
    child: Child,
    pub(crate) url: String,
    pub(crate) client: RawClient,
    /// What the gateway printed before its URL.
    pub(crate) said: String,
    log: JoinHandle<String>,
}

/// A program that has exited.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Gateway {
    /// Starts a gateway and waits until it listens.
    pub(crate) async fn start(data_dir: &DataDir, fake: &FakeOpenCode) -> Self {
        Self::try_start(data_dir, fake)
            .await
            .unwrap_or_else(|ended| panic!("the gateway did not start: {ended:?}"))
    }

    /// `Err`: the gateway exited instead.
    pub(crate) async fn try_start(data_dir: &DataDir, fake: &FakeOpenCode) -> Result<Self, Ended> {
        Self::try_start_with(data_dir, fake, &[]).await
    }

    pub(crate) async fn try_start_with(
        data_dir: &DataDir,
        fake: &FakeOpenCode,
        flags: &[&str],
    ) -> Result<Self, Ended> {
        let mut child = serve(data_dir, fake).args(flags).spawn().expect("longshore can be started");
        let stdout = child.stdout.take().expect("standard output is piped");
        let stderr = child.stderr.take().expect("standard error is piped");
        // A task reads the log, so that the gateway never blocks.
        let tasks = Tasks::new();
        let log = tasks.spawn("log", async move {
            let stderr = tokio::process::ChildStderr::from_std(stderr).expect("a pipe can be read");
            let (mut lines, mut log) = (BufReader::new(stderr).lines(), String::new());
            while let Ok(Some(line)) = lines.next_line().await {
                log.push_str(&line);
                log.push('\n');
            }
            log
        });
        let stdout = tokio::process::ChildStdout::from_std(stdout).expect("a pipe can be read");
        let (mut lines, mut said) = (BufReader::new(stdout).lines(), String::new());
        let ready = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(url) = line.trim_start().strip_prefix("url ") {
                    return Some(url.trim().to_owned());
                }
                said.push_str(&line);
            }
            None
        };
        let ready = tokio::time::timeout(PATIENCE, ready).await.expect("the gateway listens or ends");
        let Some(url) = ready else {
            let code = child.wait().expect("a child can be waited for").code();
            let stderr = log.await.expect("the log can be read");
            return Err(Ended { code, stdout: said, stderr });
        };
        tasks.spawn("output", async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { child, client: RawClient::new(url.clone(), TOKEN), url, said, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the gateway. Returns its log.
    pub(crate) async fn kill(mut self) -> String {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child ends");
        (&mut self.log).await.expect("the log can be read")
    }

    /// Ends the gateway with SIGTERM, and waits for its exit.
    pub(crate) async fn terminate(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("the test started the process");
        let mut status = None;
        until(PATIENCE, "the gateway ends after SIGTERM", || {
            status = self.child.try_wait().expect("a child can be waited for");
            status.is_some()
        })
        .await;
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
    }

    /// Fails if the gateway has exited.
    pub(crate) fn check_alive(&mut self) {
        let ended = self.child.try_wait().expect("a child can be waited for");
        assert!(ended.is_none(), "the gateway has ended: {ended:?}");
    }

    /// Sends a message in 1.0, and returns the stream of its task.
    pub(crate) async fn stream(&self, id: &str, text: &str) -> Frames {
        let message = longshore_testkit::raw::message(id, text);
        let stream = self.client.rest_stream("POST", "/message:stream", Some(&message), None).await;
        stream.unwrap_or_else(|answer| panic!("{id} was refused: {answer:?}"))
    }

    /// The whole log of a task that has ended, or that ends now.
    pub(crate) async fn log_of(&self, task: &str) -> Vec<Frame> {
        let path = format!("/tasks/{task}:subscribe");
        let stream = self.client.rest_stream("GET", &path, None, Some(0)).await;
        let stream = stream.unwrap_or_else(|answer| panic!("{task} cannot be read: {answer:?}"));
        tokio::time::timeout(PATIENCE, stream.all()).await.expect("the task ends")
    }

    /// The ids of all listed tasks.
    pub(crate) async fn listed(&self) -> BTreeSet<String> {
        let answer = self.client.rpc("ListTasks", json!({"pageSize": 100})).await;
        let tasks = answer.result()["tasks"].as_array().expect("a list has tasks").clone();
        tasks.iter().map(|task| task["id"].as_str().expect("a task has an id").to_owned()).collect()
    }

    /// Waits until `/health` reports this status of the store.
    pub(crate) async fn until_store_is(&self, status: &str) -> Value {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let health = self.client.rest("GET", "/health", None).await.body;
            if health["parts"]["store"]["status"] == status {
                return health;
            }
            assert!(tokio::time::Instant::now() < deadline, "expected the store to be {status}: {health}");
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(data_dir: &DataDir, fake: &FakeOpenCode) -> Command {
    let mut command = longshore(data_dir, "serve");
    command.args(["--port", "0", "--log-level", "info", "--opencode-url", &fake.url()]);
    command.arg("--workspace").arg(fake.directory());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `longshore <subcommand>` for a data directory.
pub(crate) fn longshore(data_dir: &DataDir, subcommand: &str) -> Command {
    let mut command = data_dir.command(LONGSHORE);
    command
        .arg(subcommand)
        .arg("--data-dir")
        .arg(data_dir.path())
        .env_clear()
        .env("HOME", data_dir.home())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("A2A_BEARER_TOKEN", TOKEN)
        // The disks of the tests are small.
        .env("LONGSHORE_MIN_FREE_DISK", "0")
        .stdin(Stdio::null());
    command
}

/// Reads until this text has arrived. Returns the frames.
pub(crate) async fn until_text(stream: &mut Frames, text: &str) -> Vec<Frame> {
    let (mut frames, mut seen) = (Vec::new(), String::new());
    while !seen.contains(text) {
        let next = tokio::time::timeout(PATIENCE, stream.next()).await.expect("the stream goes on");
        let frame = next.unwrap_or_else(|| panic!("the stream ended before {text:?}; it had {seen:?}"));
        seen.push_str(&text_of(std::slice::from_ref(&frame)));
        frames.push(frame);
    }
    frames
}

/// The rest of a stream.
pub(crate) async fn rest(mut stream: Frames) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(frame) = tokio::time::timeout(PATIENCE, stream.next()).await.expect("the stream goes on") {
        frames.push(frame);
    }
    frames
}

/// The text in the frames.
pub(crate) fn text_of(frames: &[Frame]) -> String {
    let parts =
        frames.iter().filter_map(|frame| frame.json["artifactUpdate"]["artifact"]["parts"].as_array());
    parts.flatten().filter_map(|part| part["text"].as_str()).collect()
}

pub(crate) fn task_of(frames: &[Frame]) -> String {
    frames[0].json["task"]["id"].as_str().expect("a stream begins with its task").to_owned()
}

/// The state at the end of a log.
pub(crate) fn end_of(frames: &[Frame]) -> &str {
    let last = &frames.last().expect("a log has events").json;
    last["statusUpdate"]["status"]["state"].as_str().unwrap_or_default()
}

/// Fails unless the log has each number at most once, in order, from 1 on. An update that only repeats the status is not sent.
pub(crate) fn check_numbers(frames: &[Frame]) {
    let ids: Vec<_> = frames.iter().map(|frame| frame.id.expect("a frame has a number")).collect();
    assert!(ids.first() == Some(&1) && ids.is_sorted_by(|one, next| one < next), "{ids:?}");
}
