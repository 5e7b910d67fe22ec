//! The gateway's own files in the workspace: no door of a caller leads to them.
//!
//! The tests of each crate have all spellings. Here each door of the program is tried once per way to reach a secret.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use longshore_testkit::fake_opencode::{FakeOpenCode, Turn};
use longshore_testkit::gateway::TOKEN;
use longshore_testkit::raw::{Answer, RawClient, message};
use longshore_wire::extension::Extension;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

const PATIENCE: Duration = Duration::from_mins(1);

/// A gateway whose configuration and data directory are in the workspace, with other names for both.
struct Place {
    fake: FakeOpenCode,
    gateway: Child,
    client: RawClient,
    _output: tokio::process::ChildStdout,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.gateway.kill();
        let _ = self.gateway.wait();
    }
}

impl Place {
    async fn new() -> Self {
        let fake = FakeOpenCode::start();
        fake.make_repository().await;
        let root = fake.workspace();
        let config = root.join("longshore.toml");
        write(&config, &format!("[auth]\nbearer_token = \"{TOKEN}\"\n[output]\nwritten_files = true\n"));
        let mut gateway = Command::new(env!("CARGO_BIN_EXE_longshore"))
            .args(["serve", "--port", "0", "--data-dir-in-workspace", "--opencode-url", &fake.url()])
            .arg("--config")
            .arg(&config)
            .arg("--workspace")
            .arg(root)
            .arg("--data-dir")
            .arg(root.join("data"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", root.join("home"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("longshore can be started");
        let stdout = gateway.stdout.take().expect("standard output is piped");
        let stdout = tokio::process::ChildStdout::from_std(stdout).expect("a pipe can be read");
        let mut lines = BufReader::new(stdout).lines();
        let url = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(url) = line.trim_start().strip_prefix("url ") {
                    return url.trim().to_owned();
                }
            }
            panic!("the gateway did not start");
        };
        let url = tokio::time::timeout(PATIENCE, url).await.expect("the gateway listens");
        write(&root.join("data/token"), TOKEN);
        std::fs::create_dir_all(root.join("home/.local/share/opencode")).expect("it can be made");
        write(&root.join("home/.local/share/opencode/auth.json"), TOKEN);
        symlink("data", root.join("link")).expect("it can be made");
        symlink("longshore.toml", root.join("config-link")).expect("it can be made");
        for (secret, name) in
            [("data/token", "hard"), ("longshore.toml", "hard.toml"), ("data/longshore.db", "hard.db")]
        {
            std::fs::hard_link(root.join(secret), root.join(name)).expect("it can be made");
        }
        let extensions = [Extension::SessionBinding, Extension::SessionManagement].map(Extension::uri);
        let client = RawClient::new(url, TOKEN).activating(&extensions);
        Self { fake, gateway, client, _output: lines.into_inner().into_inner() }
    }

    fn root(&self) -> &str {
        self.fake.directory()
    }

    /// A session of the caller whose turn made these changes.
    async fn session(&self, diffs: Vec<Value>) -> String {
        let turn = diffs.into_iter().fold(Turn::new(), Turn::changing);
        self.fake.queue(turn.text("done", 1).finish("stop"));
        self.client.rpc("SendMessage", message("first", "Go.")).await.result();
        self.fake.sessions().pop().expect("the turn has a session")
    }

    async fn call(&self, method: &str, params: Value) -> Answer {
        let answer = self.client.rpc(method, params).await;
        assert!(!answer.body.to_string().contains(TOKEN), "{method} shows a secret: {}", answer.body);
        answer
    }

    async fn assert_refused(&self, method: &str, params: Value) {
        let answer = self.call(method, params.clone()).await;
        assert_eq!(answer.body["error"]["code"], -32602, "{method} {params}: {}", answer.body);
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("it can be written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("the file is ours");
}

/// Every way to a secret, as a path in the workspace.
const SECRETS: [&str; 12] = [
    "longshore.toml",
    "config-link",
    "hard.toml",
    "data/token",
    "data//token",
    "data/longshore.db",
    "data/longshore.db-wal",
    "link/token",
    "hard",
    "hard.db",
    "./data/./token",
    "home/.local/share/opencode/auth.json",
];

#[tokio::test]
async fn no_file_part_and_no_reference_leads_to_a_secret() {
    let place = Place::new().await;
    let session = place.session(Vec::new()).await;
    let before = place.fake.prompts().len();
    for secret in SECRETS {
        let url = format!("file://{}/{secret}", place.root());
        let mut with_file = message("a-file", "Read this.");
        with_file["message"]["parts"] = json!([{"url": url, "mediaType": "text/plain"}]);
        place.assert_refused("SendMessage", with_file).await;

        let file = json!({"type": "file", "mime": "text/plain", "url": url, "filename": "a.txt"});
        let subtask = json!({
            "type": "subtask", "prompt": format!("Read @{secret} now"), "description": "A look", "agent": "general",
        });
        for part in [file, subtask] {
            let params = json!({"session_id": session, "request": {"parts": [part]}});
            place.assert_refused("opencode.sessions.prompt_async", params).await;
        }
        let params = json!({"session_id": session, "request": {"command": "review", "arguments": format!("@{secret}")}});
        place.assert_refused("opencode.sessions.command", params).await;
    }
    assert_eq!(place.fake.prompts().len(), before, "OpenCode got a prompt");
}

#[tokio::test]
async fn no_caller_works_in_a_directory_of_the_gateway() {
    let place = Place::new().await;
    let absolute = format!("{}/data", place.root());
    for directory in ["data", "./data/", "link", "home/../data", absolute.as_str()] {
        let mut there = message("there", "Go.");
        there["message"]["metadata"] = json!({"opencode": {"directory": directory}});
        place.assert_refused("SendMessage", there).await;
        let listed = json!({"metadata": {"opencode": {"directory": directory}}});
        place.assert_refused("opencode.sessions.list", listed).await;
    }
}

#[tokio::test]
async fn no_change_shows_a_secret() {
    let place = Place::new().await;
    let diff = |file: &str| {
        let patch = format!("diff --git a/{file} b/{file}\n+{TOKEN}\n");
        json!({"file": file, "patch": patch, "additions": 1, "deletions": 0, "status": "added"})
    };
    let own = json!({"file": "own.txt", "patch": "+ours", "additions": 1, "deletions": 0, "status": "added"});
    let session = place.session(SECRETS.map(diff).into_iter().chain([own]).collect()).await;
    let shown = place.call("opencode.sessions.diff", json!({"session_id": session})).await;
    let items = shown.result()["items"].as_array().expect("a list").clone();
    assert_eq!(items.len(), SECRETS.len() + 1);
    for item in &items {
        let expected = if item["file"] == "own.txt" { "added" } else { "withheld" };
        assert_eq!(item["status"], expected, "{item}");
        assert_eq!(item["patch"].is_string(), expected == "added", "{item}");
    }
    let message = place.fake.messages(&session)[0]["info"]["id"].clone();
    let one = json!({"session_id": session, "message_id": message});
    place.call("opencode.sessions.diff", one).await.result();
    let revert = json!({"session_id": session, "request": {"messageID": message}});
    place.call("opencode.sessions.revert", revert).await.result();
    place.call("opencode.sessions.get", json!({"session_id": session})).await.result();
    place.call("opencode.sessions.list", json!({})).await.result();
}

/// Git, and so OpenCode's snapshots, see nothing of the data directory.
#[tokio::test]
async fn the_data_directory_is_ignored_by_git() {
    let place = Place::new().await;
    let listed = Command::new("git")
        .args(["ls-files", "--others", "--exclude-standard"])
        .current_dir(place.root())
        .output()
        .expect("git can be run");
    let listed = String::from_utf8(listed.stdout).expect("it lists UTF-8");
    assert!(
        listed.contains("longshore.toml") && !listed.lines().any(|line| line.starts_with("data")),
        "{listed}"
    );
}
