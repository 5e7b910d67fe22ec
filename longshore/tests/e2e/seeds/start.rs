//! The start as in the guide: first OpenCode, then the gateway with its settings in the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use longshore_demo_model::DemoModel;
use longshore_demo_model::home::demo_home;
use longshore_engine::Tasks;
use longshore_testkit::gateway::path_with_tools;
use rand::RngExt as _;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::document::{Example, Seed, examples};
use super::shell::Shell;
use super::{TABLE, Verdict};
use crate::client::within;
use crate::harness::LONGSHORE;

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_starts_as_in_the_guide() {
    let lines = Seed::Guide.lines();
    let found = examples(&lines);
    let rows = TABLE.iter().zip(&found);
    let starts: Vec<&Example> =
        rows.filter(|(row, _)| matches!(row.3, Verdict::Start)).map(|(_, example)| example).collect();
    let [upstream, plain, database, memory] = starts.as_slice() else { panic!("four examples: {starts:#?}") };
    let send = found.iter().rfind(|example| example.calls == "message/send").expect("an example that sends");

    let shell_use = found.iter().find(|example| example.calls == "opencode.sessions.shell");
    let shell_use = shell_use.expect("an example that uses a shell");

    let setup = GuideSetup::new().await;
    let opencode = setup.start(&upstream.text.replace("--port 4096", "--port 0"), "listening on ").await;
    let fill = |text: &str| {
        let workspace = setup.workspace().display().to_string();
        let filled = text.replace("/abs/path/to/workspace", &workspace).replace("8000", &setup.port);
        filled.replace("http://127.0.0.1:4096", &opencode.url)
    };
    let shell = Shell::new();
    // The id of the task that the example of a send creates or finds.
    let task_of = async |script: &str| -> String {
        let gateway = setup.start(script, "url ").await;
        let fill = |example: &Example, token: &str| {
            example.text.replace("http://127.0.0.1:8000", &gateway.url).replace("<your-token>", token)
        };
        assert_eq!(shell.run(&fill(send, "another")).status, 401);
        let task = shell.run(&fill(send, "dev-token")).result();
        // No example switches the shell on.
        let disabled = shell.run(&fill(shell_use, "dev-token")).error();
        assert_eq!(
            (&disabled["code"], &disabled["data"]["type"]),
            (&json!(-32601), &json!("METHOD_DISABLED")),
            "{disabled:#}"
        );
        assert_eq!(task["status"]["state"], "completed", "{task:#}");
        let card = shell.run(&format!("curl -sS {}/.well-known/agent-card.json", gateway.url)).json();
        assert_eq!(card["url"], gateway.url, "{card:#}");
        gateway.end().await;
        task["id"].as_str().expect("a task has an id").to_owned()
    };

    // Each start twice: stored tasks are found again, and the message is not answered twice.
    let plain = fill(&plain.text);
    assert_eq!(task_of(&plain).await, task_of(&plain).await, "by default tasks are kept");
    let database = fill(&database.text);
    assert_eq!(task_of(&database).await, task_of(&database).await, "tasks are kept in the database");
    assert!(setup.workspace().join("opencode-a2a.db").is_file(), "the database is not where it should be");
    let memory = format!("export {}\n{plain}", memory.text);
    assert_ne!(task_of(&memory).await, task_of(&memory).await, "tasks are kept in memory only");
    opencode.end().await;
}

/// A home, a workspace, and the program name of the guide for the gateway.
#[derive(Debug)]
struct GuideSetup {
    root: TempDir,
    environment: BTreeMap<OsString, OsString>,
    /// The port of the gateway.
    port: String,
    _model: DemoModel,
}

impl GuideSetup {
    async fn new() -> Self {
        let model = DemoModel::start(SocketAddr::from(([127, 0, 0, 1], 0)), &Tasks::new()).await;
        let model = model.expect("a free port on loopback");
        let root = tempfile::tempdir().expect("a test can make a temporary directory");
        let (bin, workspace) = (root.path().join("bin"), root.path().join("workspace"));
        std::fs::create_dir(&bin).expect("a directory can be made");
        std::fs::create_dir(workspace).expect("a directory can be made");
        let program = bin.join("opencode-a2a");
        std::fs::write(&program, format!("#!/bin/sh\nexec '{LONGSHORE}' serve\n"))
            .expect("a file can be written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
            .expect("a mode can be set");
        let mut path = bin.into_os_string();
        path.push(":");
        path.push(path_with_tools());
        let environment = demo_home(&root.path().join("home"), &model.base_url(), &path);
        let mut environment = environment.expect("a home can be made");
        // The public URL of the examples contains the port, so it has to be known before.
        let port = free_port().to_string();
        // One example uses the default port.
        environment.insert("A2A_PORT".into(), (&port).into());
        Self { root, environment, port, _model: model }
    }

    fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    /// Runs the script until it prints a line with these words and a URL.
    async fn start(&self, script: &str, words: &str) -> Running {
        let mut command = Command::new("bash");
        command.args(["--norc", "-c", script]).current_dir(self.workspace());
        command.env_clear().envs(&self.environment).process_group(0);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("bash can be run");
        let lines = BufReader::new(child.stdout.take().expect("standard output is piped")).lines();
        let mut running = Running { child, lines, url: String::new() };
        while running.url.is_empty() {
            let line = within(words, running.lines.next_line()).await.expect("what it says is text");
            let line = line.unwrap_or_else(|| panic!("it ended before it said {words:?}:\n{script}"));
            let url = line.split_once(words).map(|(_, rest)| rest.trim().trim_end_matches('/'));
            running.url = url.filter(|url| url.starts_with("http")).unwrap_or_default().to_owned();
        }
        running
    }
}

/// A free port below the range of ephemeral ports, so that no connection gets it before the gateway listens.
fn free_port() -> u16 {
    let mut tried = std::iter::repeat_with(|| rand::rng().random_range(10_000..32_000)).take(100);
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    tried.find(is_free).expect("one of many ports is free")
}

/// A running script. Dropping it kills it.
#[derive(Debug)]
struct Running {
    child: Child,
    /// Kept open, so that the script can write.
    lines: Lines<BufReader<ChildStdout>>,
    url: String,
}

impl Running {
    async fn end(mut self) {
        self.signal(Signal::TERM);
        let status = within("an end after SIGTERM", self.child.wait()).await;
        status.expect("a child can be waited for");
    }

    fn signal(&self, signal: Signal) {
        // There is no id after the exit.
        let pid = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(group) = pid {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
