//! What a person reads after a mistake: the whole text of each, as a snapshot.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use crate::cli::ATTACHED;
use crate::cli::sandbox::{self, FinishedRun, Sandbox};

/// The texts of a run, without what differs from run to run.
fn words(sandbox: &Sandbox, run: &FinishedRun) -> String {
    let root = sandbox.workspace().parent().unwrap().canonicalize().unwrap();
    // Lines of the log begin with the time.
    let said = run.stderr.lines().filter(|line| !line.starts_with("20")).collect::<Vec<_>>().join("\n");
    let text = format!("exit code {}\n{}{said}\n", run.code.unwrap(), run.stdout);
    let text = text.replace(root.to_str().unwrap(), "[home]").replace(env!("CARGO_PKG_VERSION"), "[version]");
    // The hash of the workspace in the name of its data directory.
    let name = std::fs::read_dir(sandbox.data()).into_iter().flatten().next();
    let name = name.map(|entry| entry.unwrap().file_name().into_string().unwrap()).unwrap_or_default();
    let hash = name.trim_end_matches("-demo").trim_start_matches("workspace-").to_owned();
    if hash.is_empty() { text } else { text.replace(&hash, "[hash]") }
}

/// An OpenCode that is not the real one: a shell script.
fn program(sandbox: &Sandbox, script: &str) -> String {
    let path = sandbox.workspace().join("../opencode");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_port_in_use() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let sandbox = Sandbox::new();
    let run = sandbox.run(&["serve", "--port", &port, "--opencode-url", "http://127.0.0.1:9"]);
    insta::assert_snapshot!(words(&sandbox, &run).replace(&port, "[port]"));
}

#[test]
fn a_bad_configuration_file() {
    let sandbox = Sandbox::new();
    sandbox.write("broken.toml", "[serve]\nport = = 1\n");
    let broken = sandbox.run(&["serve", "--config", "broken.toml"]);
    sandbox.write("wrong.toml", "[serve]\nprot = 1\n[log]\nlevel = \"loud\"\n");
    let wrong = sandbox.run(&["serve", "--config", "wrong.toml"]);
    let missing = sandbox.run(&["serve", "--config", "missing.toml"]);
    insta::assert_snapshot!([broken, wrong, missing].map(|run| words(&sandbox, &run)).join("\n"));
}

#[test]
fn a_missing_opencode() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(&["serve", "--port", "0", "--opencode", "no-such-opencode"]);
    insta::assert_snapshot!(words(&sandbox, &run));
}

#[test]
fn an_opencode_that_ends_at_once() {
    let sandbox = Sandbox::new();
    let opencode = program(&sandbox, "echo 'Error: no space left on device'; exit 3");
    let run = sandbox.run(&["serve", "--port", "0", "--opencode", &opencode]);
    insta::assert_snapshot!(words(&sandbox, &run));
}

#[test]
fn an_opencode_that_was_not_tested() {
    let sandbox = Sandbox::new();
    let fake = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/agent-opencode/src/managed/fake_opencode.py");
    let opencode = program(&sandbox, &format!("exec python3 '{fake}' \"$@\""));
    let gateway = sandbox.start(&["serve", "--port", "0", "--opencode", &opencode]).until_ready();
    let url = gateway.value("url");
    let ended = gateway.end(Signal::INT);
    let mut printed = ended.stdout.split("A first request:").next().unwrap().to_owned();
    let name = concat!("Longshore ", env!("CARGO_PKG_VERSION"));
    if let Some((begun, late)) = printed.split_once(&format!("{name} is waiting for ")) {
        // On a busy machine the fake may be late, and then the banner begins with two other lines.
        let (_, banner) = late.split_once("  url ").unwrap();
        printed = format!("{begun}{name} is ready.\n  url {banner}");
    }
    let line = printed.lines().find(|line| line.starts_with("  token")).unwrap().to_owned();
    let printed = printed.replace(&line, "  token      [command]").replace(&url, "[url]");
    // Other schemes have the same address.
    let printed = printed.replace(url.trim_start_matches("http://"), "[address]");
    insta::assert_snapshot!(words(&sandbox, &FinishedRun { stdout: printed, ..ended }));
}

#[test]
fn a_token_of_a_directory_that_nobody_serves() {
    let sandbox = Sandbox::new();
    let never = sandbox.run(&["token"]);
    let mut text = words(&sandbox, &never);
    // A demo was served here.
    let named = never.stderr.split("data directory ").nth(1).unwrap().split(';').next().unwrap();
    let demo = format!("{named}-demo");
    std::fs::create_dir_all(&demo).unwrap();
    std::fs::set_permissions(&demo, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(format!("{demo}/token"), "t").unwrap();
    let hash = named.rsplit('-').next().unwrap();
    text += &words(&sandbox, &sandbox.run(&["token"]));
    // It was served without --demo only.
    std::fs::rename(&demo, named).unwrap();
    text += &words(&sandbox, &sandbox.run(&["token", "--demo"]));
    sandbox.write("mine.toml", "[auth]\nbearer_token = \"configured\"\n");
    std::fs::set_permissions(sandbox.workspace().join("mine.toml"), PermissionsExt::from_mode(0o600))
        .unwrap();
    let configured = ["token", "--config", "mine.toml"];
    text += &words(&sandbox, &sandbox.run(&configured));
    std::fs::remove_dir_all(named).unwrap();
    text += &words(&sandbox, &sandbox.run(&configured));
    insta::assert_snapshot!(text.replace(hash, "[hash]"));
}

#[test]
fn a_backup_of_a_directory_without_tasks() {
    let sandbox = Sandbox::new();
    let never = sandbox.run(&["backup", "../copy"]);
    let mut text = words(&sandbox, &never);
    // A demo was served here.
    let named = never.stderr.split("the file ").nth(1).unwrap().split("/longshore.db").next().unwrap();
    let demo = format!("{named}-demo");
    std::fs::create_dir_all(&demo).unwrap();
    std::fs::write(format!("{demo}/token"), "t").unwrap();
    let hash = named.rsplit('-').next().unwrap();
    text += &words(&sandbox, &sandbox.run(&["backup", "../copy"]));
    // It was served without --demo only.
    std::fs::rename(&demo, named).unwrap();
    text += &words(&sandbox, &sandbox.run(&["backup", "--demo", "../copy"]));
    insta::assert_snapshot!(text.replace(hash, "[hash]"));
}

#[test]
fn a_backup_into_a_missing_directory() {
    let sandbox = Sandbox::new();
    sandbox.start(&ATTACHED).end(Signal::TERM);
    insta::assert_snapshot!(words(&sandbox, &sandbox.run(&["backup", "no such/directory/copy"])));
}

#[test]
fn a_data_directory_of_a_demo_or_of_another_workspace() {
    let sandbox = Sandbox::new();
    let data = sandbox.workspace().join("../restored");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(data.join("kind"), "demo\n").unwrap();
    let serve = [&ATTACHED[..], &["--data-dir", "../restored"]].concat();
    let mut text = words(&sandbox, &sandbox.run(&serve));
    std::fs::write(data.join("kind"), "own\n").unwrap();
    let demo = ["serve", "--port", "0", "--demo", "--data-dir", "../restored"];
    text += &words(&sandbox, &sandbox.run(&demo));
    std::fs::write(data.join("workspace"), "/home/ada/my project\n").unwrap();
    text += &words(&sandbox, &sandbox.run(&serve));
    insta::assert_snapshot!(text);
}

#[test]
fn a_data_directory_that_is_open_to_others() {
    let sandbox = Sandbox::new();
    let data = sandbox.workspace().join("../open");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o755)).unwrap();
    let gateway = sandbox.start(&[&ATTACHED[..], &["--data-dir", "../open"]].concat());
    let ended = gateway.end(Signal::TERM);
    let warnings: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("warning: ")).collect();
    let run = FinishedRun { code: ended.code, stdout: String::new(), stderr: warnings.join("\n") };
    insta::assert_snapshot!(words(&sandbox, &run));
}

#[test]
fn a_wrong_token_or_version_or_method() {
    let sandbox = Sandbox::new();
    let gateway = sandbox.start(&ATTACHED);
    let (url, token) = (gateway.value("url"), gateway.token());
    let host = url.strip_prefix("http://").unwrap().to_owned();
    let tasks = format!("{url}/tasks");
    let wrong = sandbox::get(&tasks, Some("wrong"));
    let challenge = wrong.header("www-authenticate").unwrap().to_owned();
    let none = sandbox::get(&tasks, None);
    let headers = [("Host", host.as_str()), ("A2A-Version", "2.0")];
    let version = sandbox::get_with_headers(&tasks, &headers, Some(&token));
    let path = sandbox::get(&format!("{url}/task"), Some(&token));
    let texts =
        [("wrong token", wrong), ("no token", none), ("wrong version", version), ("wrong path", path)];
    let texts = texts.map(|(what, answer)| format!("{what}: {} {}", answer.status, answer.body));
    gateway.end(Signal::TERM);
    insta::assert_snapshot!(format!("{challenge}\n{}", texts.join("\n")));
}

#[test]
fn the_start_says_where_tasks_are_kept() {
    let sandbox = Sandbox::new();
    let line = |more: &[&str]| {
        let ended = sandbox.start(&[&ATTACHED[..], more].concat()).end(Signal::TERM);
        let found: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("backend=")).collect();
        let [line] = found[..] else { panic!("one line is expected: {}", ended.stderr) };
        let run = FinishedRun {
            code: Some(0),
            stdout: String::new(),
            stderr: line[line.find("INFO").unwrap()..].to_owned(),
        };
        words(&sandbox, &run)
    };
    let lines = [line(&[]), line(&["--durability", "power"]), line(&["--store", "memory"])];
    insta::assert_snapshot!(lines.join("\n"));
}
