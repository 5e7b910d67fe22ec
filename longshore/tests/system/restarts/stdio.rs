//! `longshore stdio`: a parent talks to it, closes its input, and starts it again.

use std::process::Stdio;
use std::time::Duration;

use longshore_testkit::fake_opencode::{FakeOpenCode, Gate, Tool, Turn};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use crate::restarts::installation::{Installation, PATIENCE};

/// The gateway, as its parent sees it.
struct Stdin {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Stdin {
    fn start(installation: &Installation) -> Self {
        let mut command = tokio::process::Command::from(installation.stdio());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("it can be started");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, input, output }
    }

    async fn call(&mut self, id: u64, method: &str, params: &Value) {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.write(&format!("{message}\n")).await;
    }

    async fn write(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).await.expect("the gateway reads");
    }

    async fn next(&mut self) -> Value {
        let line = timeout(PATIENCE, self.output.next_line()).await.expect("a line").expect("text");
        serde_json::from_str(&line.expect("the gateway goes on")).expect("only messages")
    }

    /// Reads until a message contains a text.
    async fn until(&mut self, text: &str) -> Value {
        loop {
            let message = self.next().await;
            if message.to_string().contains(text) {
                return message;
            }
        }
    }

    /// Closes the input. Returns the log, after a clean end whose output has nothing but messages.
    async fn close(self) -> String {
        let Self { mut child, input, mut output } = self;
        drop(input);
        while let Some(line) = timeout(PATIENCE, output.next_line()).await.expect("an end").expect("text") {
            serde_json::from_str::<Value>(&line).expect("only messages");
        }
        let mut log = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut log).await.expect("text");
        let status = timeout(PATIENCE, child.wait()).await.expect("an end").expect("a status");
        assert!(status.success(), "{status}: {log}");
        log
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_streams_a_task_and_resumes_it_with_its_next_gateway() {
    let (fake, gate) = (FakeOpenCode::start(), Gate::new());
    fake.queue(Turn::new().text("First half. ", 2).hold(&gate).text("Second half.", 1));
    let installation = Installation::attached(&fake.url(), fake.directory());

    let mut parent = Stdin::start(&installation);
    let message = json!({"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    parent.call(1, "SendStreamingMessage", &json!({"message": message})).await;
    let task = parent.until("\"task\"").await["result"]["task"]["id"].as_str().expect("an id").to_owned();
    let seen = parent.until("half. ").await["eventId"].as_str().expect("a cursor").to_owned();
    // Several requests at once, in both versions, and lines that are no requests.
    parent.write("{\n[]\n\n").await;
    parent.call(2, "tasks/get", &json!({"id": task})).await;
    let mut answers = Vec::new();
    while answers.len() < 3 {
        // The stream may go on meanwhile.
        answers.push(parent.next().await);
        answers.retain(|answer| answer["id"] != 1);
    }
    let codes: Vec<i64> = answers.iter().filter_map(|answer| answer["error"]["code"].as_i64()).collect();
    assert_eq!(codes, [-32700, -32600], "{answers:?}");
    assert!(answers.iter().any(|answer| answer["result"]["kind"] == "task"), "{answers:?}");
    let log = parent.close().await;
    assert!(log.contains("request"), "the log is on standard error: {log}");

    let mut parent = Stdin::start(&installation);
    let resumed = json!({"jsonrpc": "2.0", "id": 7, "method": "SubscribeToTask", "params": {"id": task},
        "serviceParameters": {"Last-Event-ID": seen}});
    parent.write(&format!("{resumed}\n")).await;
    gate.open();
    let rest = parent.until("Second half.").await;
    assert_eq!(rest["id"], 7, "{rest}");
    let ended = parent.until("$/requestEnded").await;
    assert_eq!(ended["params"]["id"], 7);
    parent.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_gets_the_bytes_of_a_file_in_both_versions() {
    let fake = FakeOpenCode::start();
    fake.queue(
        Turn::new().tool(Tool::bash("plot", "ok").handing("dot.png", "image/png", b"png")).finish("stop"),
    );
    let installation = Installation::attached(&fake.url(), fake.directory());
    let mut parent = Stdin::start(&installation);
    let message = json!({"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    parent.call(1, "SendMessage", &json!({"message": message})).await;
    let task = parent.next().await;
    let file = |task: &Value, named: &dyn Fn(&Value) -> bool| {
        let artifacts = task["artifacts"].as_array().expect("artifacts").clone();
        let parts = artifacts.iter().filter_map(|artifact| artifact["parts"].as_array()).flatten().cloned();
        let found: Vec<Value> = parts.filter(|part| named(part)).collect();
        assert_eq!(found.len(), 1, "{task:#}");
        found[0].clone()
    };
    let part = file(&task["result"]["task"], &|part| part["filename"] == "dot.png");
    assert_eq!((&part["raw"], &part["mediaType"]), (&json!("cG5n"), &json!("image/png")), "{part}");
    let id = &task["result"]["task"]["id"];
    parent.call(2, "tasks/get", &json!({"id": id})).await;
    let part = file(&parent.next().await["result"], &|part| part["kind"] == "file");
    assert_eq!(
        (&part["file"]["bytes"], &part["file"]["name"]),
        (&json!("cG5n"), &json!("dot.png")),
        "{part}"
    );
    parent.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_gateway_is_named_to_the_parent() {
    let fake = FakeOpenCode::start();
    let installation = Installation::attached(&fake.url(), fake.directory());
    let _gateway = installation.start(&[]).await;
    let mut command = tokio::process::Command::from(installation.stdio());
    let refused = timeout(Duration::from_mins(1), command.output()).await.expect("an end").expect("output");
    let error = String::from_utf8(refused.stderr).expect("text");
    assert_eq!((refused.status.code(), &*refused.stdout), (Some(1), &b""[..]), "{error}");
    assert!(error.contains("already uses the data directory") && error.contains("unix socket"), "{error}");
}
