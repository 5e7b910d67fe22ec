//! Plays examples with `bash` and `curl`, as a reader of the seed would.

use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use longshore_demo_model::DemoModel;
use longshore_testkit::gateway::{OpenCodeApi, TOKEN};
use serde_json::Value;

/// A gateway, and the results of earlier examples.
#[derive(Debug)]
pub(super) struct SeedGateway {
    pub(super) url: String,
    pub(super) workspace: PathBuf,
    pub(super) model: DemoModel,
    /// The session of the first example, for those that continue it.
    pub(super) session: String,
    /// A session in a subdirectory, for the examples that read it.
    pub(super) planner: String,
    /// The task of the same message over REST.
    pub(super) rest_task: String,
    /// An ended task of 1.0.
    pub(super) ended: Value,
    /// The frames of the example of a stream.
    pub(super) streamed: Vec<Value>,
    /// A task that runs until it is canceled, with its context.
    pub(super) running: (String, String),
    opencode: OpenCodeApi,
    shell: Shell,
}

/// An HTTP answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    headers: String,
    pub(super) body: String,
}

impl SeedGateway {
    pub(super) fn new(url: &str, workspace: PathBuf, model: DemoModel, opencode: OpenCodeApi) -> Self {
        Self {
            url: url.to_owned(),
            workspace,
            model,
            session: String::new(),
            planner: String::new(),
            rest_task: String::new(),
            ended: Value::Null,
            streamed: Vec::new(),
            running: (String::new(), String::new()),
            opencode,
            shell: Shell::new(),
        }
    }

    /// The answer of OpenCode itself.
    pub(super) fn upstream(&self, path: &str) -> Value {
        let asked = async { self.opencode.get(path).await };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(asked))
    }

    /// Runs the text as written, with the placeholders of the reader filled in: the address, the token, the paths, and
    /// `ids`.
    pub(super) fn run(&self, text: &str, ids: &[(&str, &str)]) -> Reply {
        self.shell.run(&self.fill(text, ids))
    }

    /// The same with the body of a call of A2A 1.0; the seed describes its headers in prose.
    pub(super) fn call(&self, body: &str, ids: &[(&str, &str)]) -> Reply {
        self.shell.run(&self.command(body, ids))
    }

    /// The same for a stream that is read while it runs.
    pub(super) fn open(&self, body: &str, ids: &[(&str, &str)]) -> Stream {
        self.shell.open(&self.command(body, ids))
    }

    /// Runs curl with these arguments.
    pub(super) fn ask(&self, path: &str, arguments: &str) -> Reply {
        self.shell.run(&self.curl(path, arguments))
    }

    /// The same with another token, or without one if it is empty.
    pub(super) fn ask_with(&self, token: &str, path: &str, arguments: &str) -> Reply {
        let credential = if token.is_empty() { String::new() } else { credential(token) };
        self.shell.run(&format!("curl -sS '{}{path}' {credential} {arguments}", self.url))
    }

    pub(super) fn follow(&self, path: &str, arguments: &str) -> Stream {
        self.shell.open(&self.curl(path, arguments))
    }

    /// Waits for the end of a task by the subscription of 0.3, and returns the task.
    pub(super) fn finished(&self, task: &str) -> Value {
        self.ask(&format!("/v1/tasks/{task}:subscribe"), "");
        self.ask(&format!("/v1/tasks/{task}"), "").json()
    }

    /// Starts a task that runs until it is canceled.
    pub(super) fn start_endless(&mut self) {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{
            "message":{"messageId":"endless-@","role":"ROLE_USER","parts":[{"text":"scn:forever"}]},
            "configuration":{"returnImmediately":true}}}"#;
        let number = self.model.journal().entries().len().to_string();
        let task = self.call(call, &[("@", &number)]).result()["task"].take();
        let text = |value: &Value| value.as_str().expect("an id").to_owned();
        self.running = (text(&task["id"]), text(&task["contextId"]));
        // The task is WORKING once it has a text.
        let path = format!("/tasks/{}:subscribe", self.running.0);
        self.follow(&path, "").until("the first words", |frame| frame.get("artifactUpdate").is_some());
    }

    fn command(&self, body: &str, ids: &[(&str, &str)]) -> String {
        let body = self.fill(body, ids);
        assert!(!body.contains('\''), "a body that no quotes can hold: {body}");
        self.curl("/", &format!("-H 'A2A-Version: 1.0' -H 'Content-Type: application/json' -d '{body}'"))
    }

    fn curl(&self, path: &str, arguments: &str) -> String {
        format!("curl -sS '{}{path}' {} {arguments}", self.url, credential(TOKEN))
    }

    fn fill(&self, text: &str, ids: &[(&str, &str)]) -> String {
        let workspace = self.workspace.to_str().expect("the path of a test is UTF-8");
        let below = format!("{workspace}/ships");
        let file = format!("file://{workspace}/");
        let own = [
            ("http://127.0.0.1:8000", self.url.as_str()),
            ("<your-token>", TOKEN),
            ("/path/inside/workspace", &below),
            ("/absolute/path/to/project", workspace),
            ("file:///workspace/", &file),
        ];
        ids.iter().chain(&own).fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> &str {
        let found = self.headers.lines().filter_map(|line| line.split_once(':'));
        let mut found = found.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim()).unwrap_or_default()
    }

    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:#?}"))
    }

    /// The result of a successful call.
    #[track_caller]
    pub(super) fn result(&self) -> Value {
        let mut answer = self.json();
        assert!(self.status == 200 && answer.get("error").is_none(), "the call failed: {answer:#}");
        answer["result"].take()
    }

    /// The error of a refused call.
    #[track_caller]
    pub(super) fn error(&self) -> Value {
        let mut answer = self.json();
        assert!(self.status == 200 && answer.get("result").is_none(), "the call worked: {answer:#}");
        answer["error"].take()
    }

    /// The frames of an ended stream.
    pub(super) fn frames(&self) -> Vec<Value> {
        assert_eq!(self.header("content-type"), "text/event-stream", "{self:#?}");
        self.body.lines().filter_map(frame).collect()
    }
}

/// `bash` with its own home, whose `.curlrc` makes curl store the headers.
#[derive(Debug)]
pub(super) struct Shell {
    home: tempfile::TempDir,
}

impl Shell {
    pub(super) fn new() -> Self {
        let home = tempfile::tempdir().expect("a test can make a temporary directory");
        let settings = "dump-header = \"headers\"\nno-buffer\nnoproxy = \"*\"\nmax-time = 45\n";
        std::fs::write(home.path().join(".curlrc"), settings).expect("a file can be written");
        Self { home }
    }

    pub(super) fn run(&self, script: &str) -> Reply {
        let output = command(self.home.path(), script).output().expect("bash can be run");
        assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
        let headers =
            std::fs::read_to_string(self.home.path().join("headers")).expect("curl keeps the headers");
        let status = headers.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = String::from_utf8(output.stdout).expect("an answer is UTF-8");
        Reply { status: status.expect("an answer has a status"), headers, body }
    }

    fn open(&self, script: &str) -> Stream {
        let mut command = command(self.home.path(), &format!("exec {script}"));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("bash can be run");
        let lines = BufReader::new(child.stdout.take().expect("standard output is piped")).lines();
        Stream { child, lines }
    }
}

fn credential(token: &str) -> String {
    format!("-H 'Authorization: Bearer {token}'")
}

fn command(home: &Path, script: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", script]).current_dir(home).env("HOME", home);
    command
}

/// A stream. Dropping it cuts the connection.
#[derive(Debug)]
pub(super) struct Stream {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Stream {
    /// The frames up to and including the wanted one.
    pub(super) fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut frames = Vec::new();
        for line in self.lines.by_ref() {
            let Some(frame) = frame(&line.expect("a stream is text")) else { continue };
            let is_wanted = wanted(&frame);
            frames.push(frame);
            if is_wanted {
                return frames;
            }
        }
        panic!("the stream ended before {what}: {frames:#?}");
    }

    /// All frames up to the end.
    pub(super) fn rest(mut self) -> Vec<Value> {
        let frames = self.lines.by_ref().filter_map(|line| frame(&line.expect("a stream is text"))).collect();
        let status = self.child.wait().expect("curl ends");
        assert!(status.success(), "the stream did not end by itself: {status}");
        frames
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn frame(line: &str) -> Option<Value> {
    Some(serde_json::from_str(line.strip_prefix("data: ")?).expect("a frame is JSON"))
}
