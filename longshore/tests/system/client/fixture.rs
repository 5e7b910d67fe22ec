//! A gateway in front of a fake OpenCode, and commands that call it.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::path::Path;
use std::process::{Child, Command, Stdio};

use longshore_testkit::fake_opencode::{FakeOpenCode, Tool, Turn};
use longshore_testkit::gateway::{Gateway, Setup};
use serde_json::json;
use tempfile::TempDir;

pub(super) const LONGSHORE: &str = env!("CARGO_BIN_EXE_longshore");

/// A gateway whose data directory has its address and its token.
pub(super) struct Fixture {
    pub(super) fake: FakeOpenCode,
    pub(super) gateway: Gateway,
    home: TempDir,
}

/// A command that has ended.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Fixture {
    pub(super) async fn new() -> Self {
        let fake = FakeOpenCode::start();
        // An empty token counts as none, so the gateway generates one.
        let setup = Setup::attached(LONGSHORE, &fake.url()).env("A2A_BEARER_TOKEN", "");
        let gateway = Gateway::start(setup).await;
        Self { fake, gateway, home: tempfile::tempdir().unwrap() }
    }

    /// A command for the gateway of this fixture.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = command(self.home.path(), words);
        command
            .arg("--data-dir")
            .arg(self.gateway.data_dir())
            .arg("--workspace")
            .arg(self.gateway.workspace());
        command
    }

    /// Runs a command for the gateway to its end.
    pub(super) async fn run(&self, words: &[&str]) -> Run {
        finish(self.command(words)).await
    }

    /// Starts a command for the gateway.
    pub(super) fn begin(&self, words: &[&str]) -> Child {
        self.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The only task of the gateway.
    pub(super) async fn task(&self) -> String {
        let listed = self.run(&["tasks", "list", "--output", "jsonl"]).await;
        let task: serde_json::Value = serde_json::from_str(listed.stdout.trim()).expect("exactly one task");
        task["id"].as_str().unwrap().to_owned()
    }
}

/// A command without a terminal and with nothing of the user's environment.
pub(super) fn command(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(LONGSHORE);
    command.args(words).current_dir(home).env_clear().env("HOME", home).stdin(Stdio::null());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

pub(super) async fn finish(mut command: Command) -> Run {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    finished(child).await
}

/// Waits for the end of a command.
pub(super) async fn finished(child: Child) -> Run {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A turn with everything that a client shows: reasoning, tool calls of all ends, a changed file and a text in pieces.
pub(super) fn eventful() -> Turn {
    let edit = json!({"filePath": "a.txt", "oldString": "one\ntwo\n", "newString": "one\nthree\n"});
    Turn::new()
        .reasoning("I think about it.", 2)
        .tool(Tool::bash("make test", "all passed"))
        .tool(Tool::new("edit", edit, "Edited."))
        .tool(Tool::bash("rm -rf /", "").failing("not today\nor ever"))
        .text("The first line.\nThe second line.", 8)
        .finish("stop")
}

/// Durations and ids differ from run to run.
pub(super) fn stable(text: &str) -> String {
    let mut stable = String::new();
    for line in text.lines() {
        let words = line.split(' ').map(|word| {
            let inner = word.trim_start_matches('(');
            let is_number = inner.contains('.') && inner.parse::<f64>().is_ok();
            if is_number { word.replace(inner, "N") } else { word.to_owned() }
        });
        stable.push_str(&words.collect::<Vec<_>>().join(" "));
        stable.push('\n');
    }
    stable
}
