use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use longshore_engine::ProtectedPaths;
use longshore_model::{AgentEvent, PromptId, SessionId, ToolCall};
use tempfile::TempDir;
use tokio::io::split;
use tokio::time::timeout;

use super::*;
use crate::client::FileAccess;
use crate::connection::Limits;
use crate::content::PromptBlock;
use crate::peer::Peer;
use crate::turn::Turn;

const PATIENCE: Duration = Duration::from_secs(30);

/// A session `s` in a workspace, with a secret beside the workspace.
struct World {
    holder: TempDir,
    connection: Connection,
    peer: Peer,
    tasks: Tasks,
    last: u64,
}

impl World {
    async fn new(files: FileAccess, terminals: bool) -> Self {
        let holder = tempfile::tempdir().unwrap();
        let root = holder.path().canonicalize().unwrap();
        let workspace = root.join("place");
        fs::create_dir_all(workspace.join("sub")).unwrap();
        fs::create_dir_all(workspace.join("data")).unwrap();
        fs::write(workspace.join("file"), "one\ntwo\nthree\n").unwrap();
        fs::write(workspace.join("data/token"), "token").unwrap();
        fs::write(root.join("secret"), "secret").unwrap();
        let (peer, ours) = Peer::new();
        let (output, input) = split(ours);
        let (connection, driver) = Connection::new(output, input, Limits::default(), Arc::default());
        let tasks = Tasks::new();
        let config = ClientConfig {
            files,
            terminals,
            root: workspace.clone(),
            protected: Arc::new(ProtectedPaths::new([workspace.join("data")])),
            environment: BTreeMap::from([
                ("PATH".into(), std::env::var_os("PATH").unwrap()),
                ("MARK".into(), "marked".into()),
            ]),
        };
        connection.offer(config, &tasks);
        tasks.spawn("connection", driver.run());
        let mut world = Self { holder, connection, peer, tasks, last: 100 };
        let directory = world.workspace();
        let (connection, peer) = (&world.connection, &mut world.peer);
        let answer = peer.answer("session/new", json!({"sessionId": "s"}));
        let (opened, _) = tokio::join!(connection.new_session(&directory, &[]), answer);
        opened.unwrap();
        world
    }

    fn workspace(&self) -> String {
        self.holder.path().canonicalize().unwrap().join("place").to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        Path::new(&self.workspace()).join(name)
    }

    /// Starts a turn. Also returns the prompt.
    async fn turn(&mut self) -> (Turn, Value) {
        let blocks = [PromptBlock::Text { text: "hi".to_owned() }];
        let session = SessionId::parse("s").unwrap();
        let turn = Turn::start(&self.connection, session, &PromptId::parse("p").unwrap(), &blocks).unwrap();
        (turn, self.peer.get().await)
    }

    async fn ask(&mut self, method: &str, mut params: Value) -> u64 {
        self.last += 1;
        params["sessionId"] = "s".into();
        self.peer.say(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})).await;
        self.last
    }

    /// The response to a request: its result or its error.
    async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.ask(method, params).await;
        let answer = self.peer.get().await;
        assert_eq!(answer["id"], id, "{answer}");
        match answer.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(answer["result"].clone()),
        }
    }

    async fn read(&mut self, path: &str) -> Result<String, i64> {
        let path = self.path(path);
        let read = self.call("fs/read_text_file", json!({"path": path})).await;
        read.map(|result| result["content"].as_str().unwrap().to_owned()).map_err(|error| code(&error))
    }

    async fn write(&mut self, path: &str) -> Result<(), i64> {
        let path = self.path(path);
        let written = self.call("fs/write_text_file", json!({"path": path, "content": "new"})).await;
        written.map(drop).map_err(|error| code(&error))
    }

    /// Runs a shell command to its end. Returns the terminal and how the command ended.
    async fn run(&mut self, command: &str) -> (String, Value) {
        let created = self.call("terminal/create", json!({"command": command})).await.unwrap();
        let terminal = created["terminalId"].as_str().unwrap().to_owned();
        let ended = self.call("terminal/wait_for_exit", json!({"terminalId": terminal})).await.unwrap();
        (terminal, ended)
    }

    async fn output(&mut self, terminal: &str) -> Value {
        self.call("terminal/output", json!({"terminalId": terminal})).await.unwrap()
    }
}

/// The code of an error. Checks that the error contains no path of the machine.
fn code(error: &Value) -> i64 {
    let text = error["message"].as_str().unwrap();
    assert!(!text.contains('/') && text.ends_with('.'), "{text}");
    error["code"].as_i64().unwrap()
}

/// The last state of a tool call in these events.
fn last_call(events: Vec<AgentEvent>) -> Option<ToolCall> {
    events.into_iter().rev().find_map(|event| match event {
        AgentEvent::Tool { call, .. } => Some(*call),
        _ => None,
    })
}

/// Waits until a process has ended. A zombie that its new parent has not reaped yet counts as ended.
async fn gone(pid: &str) {
    let stat = format!("/proc/{}/stat", pid.trim());
    let is_gone = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z"));
    let polling = async {
        while !is_gone() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, polling).await.expect("the process is killed");
}

#[tokio::test]
async fn the_agent_is_told_what_it_may_ask_for_and_gets_nothing_else() {
    for (files, terminals, reads, writes) in [
        (FileAccess::Off, false, false, false),
        (FileAccess::Read, false, true, false),
        (FileAccess::ReadWrite, true, true, true),
    ] {
        let mut world = World::new(files, terminals).await;
        let expected = json!({"fs": {"readTextFile": reads, "writeTextFile": writes}, "terminal": terminals});
        assert_eq!(world.connection.client_capabilities(), expected);
        let _turn = world.turn().await;
        for (method, is_served) in [
            ("fs/read_text_file", reads),
            ("fs/write_text_file", writes),
            ("terminal/create", terminals),
            ("terminal/output", terminals),
            ("terminal/resize", false),
            ("fs/delete", false),
        ] {
            // The parameters are missing, so a served method refuses them with another error than a method that is not served.
            let code = world.call(method, json!({})).await.unwrap_err()["code"].as_i64();
            assert_eq!(code, Some(if is_served { -32_602 } else { -32_601 }), "{method}");
        }
    }
}

#[tokio::test]
async fn files_in_the_directory_of_the_session_are_read_and_written_and_no_others() {
    let mut world = World::new(FileAccess::ReadWrite, false).await;
    let outside = world.path("../secret");
    symlink(&outside, world.path("link")).unwrap();
    symlink(world.path(".."), world.path("up")).unwrap();
    symlink(world.path("file"), world.path("good")).unwrap();
    fs::hard_link(world.path("data/token"), world.path("hard")).unwrap();
    let _turn = world.turn().await;
    for path in ["file", "good", "sub/../file"] {
        assert_eq!(world.read(path).await.as_deref(), Ok("one\ntwo\nthree\n"), "{path}");
    }
    let part =
        world.call("fs/read_text_file", json!({"path": world.path("file"), "line": 2, "limit": 1})).await;
    assert_eq!(part.unwrap()["content"], "two\n");
    for (path, code) in [
        ("absent", -32_002),
        ("absent/file", -32_002),
        ("../secret", -32_602),
        ("../absent", -32_602),
        ("/etc/hostname", -32_602),
        ("/proc/self/environ", -32_602),
        ("link", -32_602),
        ("up/secret", -32_602),
        ("up/place/../secret", -32_602),
        ("data/token", -32_602),
        ("data/absent", -32_602),
        ("hard", -32_602),
        ("sub", -32_602),
        ("", -32_602),
        ("nul\0", -32_602),
    ] {
        assert_eq!(world.read(path).await, Err(code), "reads {path:?}");
        if path != "absent" {
            assert_eq!(world.write(path).await, Err(code), "writes {path:?}");
        }
    }
    for path in ["sub/made", "good"] {
        assert_eq!(world.write(path).await, Ok(()), "{path}");
        assert_eq!(world.read(path).await.as_deref(), Ok("new"), "{path}");
    }
    assert_eq!(fs::read_to_string(outside).unwrap(), "secret");
    assert_eq!(fs::read_to_string(world.path("data/token")).unwrap(), "token");
}

#[tokio::test]
async fn qwen_code_gets_the_answers_that_it_got_when_it_was_recorded() {
    let mut world = World::new(FileAccess::ReadWrite, false).await;
    fs::write(world.path("file.txt"), "line one\n").unwrap();
    let _turn = world.turn().await;
    let rows: Vec<Value> = include_str!("../../../tests/recordings/qwen-files.jsonl")
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    let mut asked = 0;
    for (at, row) in rows.iter().enumerate() {
        let message = &row["message"];
        let method = message["method"].as_str().unwrap_or_default();
        if row["kind"] != "from-agent" || !method.starts_with("fs/") {
            continue;
        }
        let is_answer = |row: &&Value| {
            let (kind, other) = (&row["kind"], &row["message"]);
            kind == "to-agent" && other["id"] == message["id"] && other["method"].is_null()
        };
        let answer = rows[at..].iter().find(is_answer);
        let mut params = message["params"].clone();
        params["path"] = params["path"].as_str().unwrap().replace("/workspace", &world.workspace()).into();
        assert_eq!(
            world.call(method, params).await.as_ref(),
            Ok(&answer.unwrap()["message"]["result"]),
            "{message}"
        );
        asked += 1;
    }
    assert_eq!(asked, 5);
    assert_eq!(fs::read_to_string(world.path("file.txt")).unwrap(), "line 1\n");
}

#[tokio::test]
async fn a_directory_that_is_swapped_for_a_link_leads_nowhere_else() {
    let mut world = World::new(FileAccess::ReadWrite, false).await;
    let _turn = world.turn().await;
    let outside = world.path("../outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "secret").unwrap();
    fs::write(world.path("sub/file"), "inside").unwrap();
    let (real, moved, link) = (world.path("sub"), world.path("moved"), world.path("swap"));
    symlink(&outside, &link).unwrap();
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let swapping = {
        let is_over = Arc::clone(&is_over);
        // `sub` is alternately the directory and the link.
        std::thread::spawn(move || {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                fs::rename(&real, &moved).unwrap();
                fs::rename(&link, &real).unwrap();
                fs::rename(&real, &link).unwrap();
                fs::rename(&moved, &real).unwrap();
            }
        })
    };
    for _ in 0..300 {
        if let Ok(content) = world.read("sub/file").await {
            assert_ne!(content, "secret");
        }
        let _ = world.write("sub/file").await;
    }
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    swapping.join().unwrap();
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "a draft was left outside");
}

#[tokio::test]
async fn files_are_written_and_commands_run_only_during_a_turn() {
    let mut world = World::new(FileAccess::ReadWrite, true).await;
    let create = || json!({"command": "true"});
    assert!(world.read("file").await.is_ok());
    assert_eq!(world.write("file").await, Err(-32_602));
    assert_eq!(world.call("terminal/create", create()).await.unwrap_err()["code"], -32_602);
    let (mut turn, prompt) = world.turn().await;
    assert_eq!(world.write("file").await, Ok(()));
    turn.cancel().unwrap();
    assert_eq!(world.peer.get().await["method"], "session/cancel");
    assert_eq!(world.write("file").await, Err(-32_602));
    assert_eq!(world.call("terminal/create", create()).await.unwrap_err()["code"], -32_602);
    world.peer.end(&prompt, "cancelled").await;
    assert_eq!(world.write("file").await, Err(-32_602));
    // A session can only make requests for itself.
    let other = json!({"id": 1, "method": "fs/read_text_file", "params": {"sessionId": "t", "path": world.path("file")}});
    world.peer.say(&other).await;
    assert_eq!(world.peer.get().await["error"]["message"], Refusal::NO_SESSION.text);
}

#[tokio::test]
async fn a_command_runs_in_the_session_with_a_clean_environment() {
    let mut world = World::new(FileAccess::Off, true).await;
    let _turn = world.turn().await;
    let (terminal, ended) = world.run("pwd; echo $MARK; env | grep -c CARGO; echo oops >&2; exit 3").await;
    assert_eq!(ended, json!({"exitCode": 3, "signal": null}));
    let output = world.output(&terminal).await;
    assert_eq!(output["output"], format!("{}\nmarked\n0\noops\n", world.workspace()), "{output}");
    assert_eq!((&output["truncated"], &output["exitStatus"]), (&json!(false), &ended));
    let made = world
        .call(
            "terminal/create",
            json!({"command": "sh", "args": ["-c", "echo $A in ${PWD##*/}; kill $$"],
            "env": [{"name": "A", "value": "a b"}], "cwd": world.path("sub"), "outputByteLimit": 9}),
        )
        .await
        .unwrap();
    let ended = world.call("terminal/wait_for_exit", made.clone()).await.unwrap();
    assert_eq!(ended, json!({"exitCode": null, "signal": "SIGTERM"}));
    let output = world.output(made["terminalId"].as_str().unwrap()).await;
    assert_eq!((&output["output"], &output["truncated"]), (&json!("b in sub\n"), &json!(true)));
    for params in [
        json!({"command": ""}),
        json!({"command": "ls", "cwd": "/"}),
        json!({"command": "ls", "cwd": world.path("..")}),
        json!({"command": "ls", "cwd": world.path("data")}),
        json!({"command": "ls", "cwd": world.path("file")}),
        json!({"command": "ls", "env": [{"name": "A=B", "value": ""}]}),
        json!({"command": "ls", "args": ["x".repeat(200_000)]}),
    ] {
        let error = world.call("terminal/create", params.clone()).await.unwrap_err();
        assert_eq!(code(&error), -32_602, "{params}");
    }
    let error = world.call("terminal/create", json!({"command": "no-such-program", "args": ["x"]})).await;
    assert_eq!(code(&error.unwrap_err()), -32_603);
}

#[tokio::test]
async fn a_command_that_is_being_started_does_not_hold_up_other_requests() {
    let mut world = World::new(FileAccess::Off, true).await;
    let _turn = world.turn().await;
    let created = world.ask("terminal/create", json!({"command": "true"})).await;
    let refused = world.ask("fs/read_text_file", json!({"path": world.path("file")})).await;
    let answers = [world.peer.get().await, world.peer.get().await];
    assert_eq!(answers.map(|answer| answer["id"].as_u64().unwrap()), [refused, created]);
}

#[tokio::test]
async fn a_released_terminal_is_gone_and_a_killed_one_keeps_its_output() {
    let mut world = World::new(FileAccess::Off, true).await;
    let _turn = world.turn().await;
    let made = world.call("terminal/create", json!({"command": "echo here; sleep 1000"})).await.unwrap();
    let terminal = made["terminalId"].as_str().unwrap().to_owned();
    while world.output(&terminal).await["output"] != "here\n" {}
    assert_eq!(world.call("terminal/kill", made.clone()).await, Ok(json!({})));
    let output = world.output(&terminal).await;
    let status = json!({"exitCode": null, "signal": "SIGKILL"});
    assert_eq!((&output["output"], &output["exitStatus"]), (&json!("here\n"), &status));
    assert_eq!(world.call("terminal/release", made.clone()).await, Ok(json!({})));
    for method in ["terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release"] {
        let error = world.call(method, made.clone()).await.unwrap_err();
        assert_eq!(code(&error), -32_602, "{method}");
    }
}

#[tokio::test]
async fn the_output_of_a_terminal_is_shown_in_its_tool_call() {
    let mut world = World::new(FileAccess::Off, true).await;
    let (mut turn, prompt) = world.turn().await;
    let made = world
        .call(
            "terminal/create",
            json!({"command": "echo one; until test -e go; do sleep 0.02; done; echo two"}),
        )
        .await;
    let terminal = made.unwrap()["terminalId"].clone();
    let content = json!([{"type": "terminal", "terminalId": terminal}]);
    world
        .peer
        .update(
            "s",
            json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "shell", "content": content}),
        )
        .await;
    // Reports that come while the command runs.
    let mut calls = Vec::new();
    let mut live = async |calls: &mut Vec<ToolCall>, expected: &str| loop {
        for event in turn.next().await.expect("the turn goes on") {
            if let AgentEvent::Tool { call, .. } | AgentEvent::ToolOutput { call, .. } = event {
                calls.push(*call);
            }
        }
        if calls.iter().filter_map(|call| call.output.as_deref()).collect::<String>() == expected {
            return;
        }
    };
    timeout(PATIENCE, live(&mut calls, "one\n")).await.expect("the output is shown while the command runs");
    fs::write(world.path("go"), "").unwrap();
    timeout(PATIENCE, live(&mut calls, "one\ntwo\n")).await.expect("the output is shown at the end");
    world.call("terminal/release", json!({"terminalId": terminal})).await.unwrap();
    world
        .peer
        .update("s", json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}))
        .await;
    world.peer.end(&prompt, "end_turn").await;
    let mut events = Vec::new();
    while let Some(more) = turn.next().await {
        events.extend(more);
    }
    let call = last_call(events).expect("the call ends");
    assert_eq!((call.status.as_str(), call.output.as_deref()), ("completed", Some("one\ntwo\n")));
}

#[tokio::test]
async fn commands_end_with_their_turn_and_with_their_agent() {
    for end in ["cancel", "end", "abandon", "death"] {
        let mut world = World::new(FileAccess::Off, true).await;
        let (mut turn, prompt) = world.turn().await;
        let made = world
            .call(
                "terminal/create",
                json!({"command": "trap '' TERM HUP; sleep 1000 & echo $!; while :; do wait; done"}),
            )
            .await;
        let terminal = made.unwrap()["terminalId"].as_str().unwrap().to_owned();
        let child = loop {
            let output = world.output(&terminal).await["output"].as_str().unwrap().to_owned();
            if output.ends_with('\n') {
                break output;
            }
        };
        let waiting = world.ask("terminal/wait_for_exit", json!({"terminalId": terminal})).await;
        // The response to this later request shows that the previous request was read.
        world.output(&terminal).await;
        match end {
            "cancel" => {
                turn.cancel().unwrap();
                let (mut answers, mut is_cancelled) = (Vec::new(), false);
                while answers.is_empty() || !is_cancelled {
                    let message = world.peer.get().await;
                    is_cancelled |= message["method"] == "session/cancel";
                    answers
                        .extend(message.get("result").map(|result| (message["id"].clone(), result.clone())));
                }
                let killed = json!({"exitCode": null, "signal": "SIGKILL"});
                assert_eq!(answers, [(json!(waiting), killed)]);
            }
            "end" => world.peer.end(&prompt, "end_turn").await,
            "abandon" => world.connection.abandon("s"),
            _ => {
                let World { peer, tasks, .. } = world;
                drop(peer);
                gone(&child).await;
                timeout(PATIENCE, tasks.stop()).await.expect("nothing is left");
                continue;
            }
        }
        gone(&child).await;
    }
}

#[tokio::test]
async fn commands_that_fork_flood_and_hold_the_pipe_are_bounded() {
    let mut world = World::new(FileAccess::Off, true).await;
    let _turn = world.turn().await;
    // Without the kill, the child would live on in the group of the command.
    let (terminal, ended) = world.run("sleep 1000 & echo $!; exit 0").await;
    assert_eq!(ended["exitCode"], 0);
    let child = world.output(&terminal).await["output"].as_str().unwrap().to_owned();
    gone(&child).await;
    // This child leaves the group and keeps the pipe open.
    let leaving =
        "setsid sh -c 'touch left; exec sleep 60' & echo $!; until test -e left; do sleep 0.01; done; exit 4";
    let (terminal, ended) = timeout(PATIENCE, world.run(leaving)).await.expect("the end is noticed");
    assert_eq!(ended["exitCode"], 4);
    let child = world.output(&terminal).await["output"].as_str().unwrap().to_owned();
    let killed = std::process::Command::new("kill").arg(child.trim()).status();
    assert!(killed.unwrap().success(), "a process that leaves its group is not ended");
    // The command writes 40 megabytes, of which the end is kept.
    let (terminal, ended) =
        timeout(PATIENCE, world.run("yes flood | head -c 40000000; echo; echo end")).await.unwrap();
    assert_eq!(ended["exitCode"], 0);
    let output = world.output(&terminal).await;
    let text = output["output"].as_str().unwrap();
    assert!(text.len() <= 1024 * 1024 && text.ends_with("\nend\n"), "{}", text.len());
    assert_eq!(output["truncated"], true);
}

#[tokio::test]
async fn terminals_and_open_requests_are_counted() {
    let mut world = World::new(FileAccess::Off, true).await;
    let _turn = world.turn().await;
    let mut made = Vec::new();
    let refused = loop {
        match world.call("terminal/create", json!({"command": "sleep 1000"})).await {
            Ok(created) => made.push(created),
            Err(error) => break error,
        }
    };
    assert_eq!((made.len(), code(&refused)), (16, -32_603));
    world.call("terminal/release", made[0].clone()).await.unwrap();
    world.call("terminal/create", json!({"command": "sleep 1000"})).await.unwrap();
    for _ in 0..200 {
        world.ask("terminal/wait_for_exit", made[1].clone()).await;
    }
    for _ in 0..72 {
        assert_eq!(world.peer.get().await["error"]["message"], Refusal::TOO_MANY.text);
    }
    world.call("terminal/output", made[1].clone()).await.expect("other requests are served");
    let World { peer, tasks, .. } = world;
    drop(peer);
    timeout(PATIENCE, tasks.stop()).await.expect("nothing is left");
}
