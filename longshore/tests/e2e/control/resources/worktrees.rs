//! Worktrees: created, usable at once, reset and removed; no other directory is touched.

use std::path::{Path, PathBuf};

use longshore_testkit::gateway::until;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use super::{SLOW, git, path, root};
use crate::client::{PATIENCE, message, message_in};
use crate::control::caller::{Caller, Kind};
use crate::control::fixture::{Fixture, OwnedSession, SESSION_BINDING};
use crate::frames::{artifact, state_of};

const LIST: &str = "opencode.worktrees.list";
const CREATE: &str = "opencode.worktrees.create";
const REMOVE: &str = "opencode.worktrees.remove";
const RESET: &str = "opencode.worktrees.reset";

pub(super) async fn are_made_reset_and_removed(fixture: &Fixture) {
    let clone = clone_that_opencode_lists(fixture).await;
    for ada in fixture.ada() {
        let name = format!("feature-{}", if ada.version == ProtocolVersion::V1 { "new" } else { "old" });
        let directory = made(fixture, &ada, &name).await;
        let own = assert_usable_at_once(fixture, &directory).await;
        o01_worktrees_are_listed_as_strings_and_as_names(&ada, &name, &directory).await;
        assert_reset(fixture, &ada, &name, &directory).await;
        assert_nothing_else_touched(fixture, &ada, &directory, &clone).await;
        a_busy_worktree_is_refused(fixture, &ada, &directory).await;
        assert_removed(fixture, &ada, &name, &directory).await;
        assert_sessions_cannot_be_prompted(fixture, &ada, &own, &directory).await;
    }
    a_start_command_is_run(fixture).await;
    a_failed_checkout_is_reported(fixture).await;
    std::fs::remove_dir_all(clone).expect("the clone is there");
}

/// A clone is no worktree of this repository, but OpenCode lists every directory that it has seen.
async fn clone_that_opencode_lists(fixture: &Fixture) -> PathBuf {
    let root = root(fixture);
    git(root.parent().expect("it lies in a directory"), &["clone", "--quiet", path(&root), "clone"]);
    let clone = root.with_file_name("clone");
    fixture.harness.opencode.get(&format!("/project/current?directory={}", path(&clone))).await;
    assert!(listed(fixture).await.contains(&path(&clone).to_owned()), "OpenCode does not list the clone");
    clone
}

/// The worktrees that OpenCode lists.
async fn listed(fixture: &Fixture) -> Vec<String> {
    let listed = fixture.harness.opencode.get("/experimental/worktree").await;
    serde_json::from_value(listed).expect("a list of paths")
}

/// Creates a worktree and returns its directory.
async fn made(fixture: &Fixture, ada: &Caller, name: &str) -> String {
    let reported = ada.result(CREATE, json!({"request": {"name": name}})).await;
    let listed = listed(fixture).await;
    let directory = listed.into_iter().find(|directory| directory.ends_with(&format!("/{name}")));
    let directory = directory.unwrap_or_else(|| panic!("OpenCode does not list {reported:#}"));
    let is_there = Path::new(&directory).join(SLOW).exists();
    assert!(is_there, "the answer came before the files of {reported:#}");
    let mut expected = json!({"name": name, "branch": format!("opencode/{name}")});
    if ada.version == ProtocolVersion::V03 {
        expected["directory"] = json!(directory);
    }
    assert_eq!(reported, json!({"item": expected}));
    ada.invalid(CREATE, json!({"request": {"name": "-f"}}), "request.name").await;
    directory
}

/// A message for this directory.
fn message_there(directory: &str, text: &str) -> Value {
    let mut message = message(text);
    message["metadata"] = json!({"opencode": {"directory": directory}});
    message
}

async fn assert_usable_at_once(fixture: &Fixture, directory: &str) -> OwnedSession {
    let prompt = format!("scn:write path=tried.txt content=ahoy scn:text n=1 ({directory})");
    let own = fixture.session_in(directory, &prompt).await;
    assert_eq!(fixture.upstream(&own.session).await["directory"], directory);
    let tried = Path::new(directory).join("tried.txt");
    assert_eq!(std::fs::read_to_string(tried).expect("the agent wrote there"), "ahoy");
    assert!(!root(fixture).join("tried.txt").exists(), "the agent wrote elsewhere");
    own
}

async fn o01_worktrees_are_listed_as_strings_and_as_names(ada: &Caller, name: &str, directory: &str) {
    let reported = ada.result(LIST, json!({})).await;
    let expected = match ada.version {
        ProtocolVersion::V1 => json!({"name": name, "branch": format!("opencode/{name}")}),
        ProtocolVersion::V03 => json!(directory),
    };
    // The clone, which OpenCode lists as well, is left out.
    assert_eq!(reported["items"], json!([expected]), "{reported:#}");
}

async fn assert_reset(fixture: &Fixture, ada: &Caller, name: &str, directory: &str) {
    let readme = Path::new(directory).join("README.md");
    let original = std::fs::read(root(fixture).join("README.md")).expect("a file can be read");
    let which = match ada.version {
        ProtocolVersion::V1 => json!({"directory": directory}),
        ProtocolVersion::V03 => json!({"name": name}),
    };
    let tried = Path::new(directory).join("tried.txt");
    assert!(tried.exists(), "the agent wrote there");
    std::fs::write(&readme, "# Ruins\n").expect("a file can be written");
    let reported = ada.result(RESET, json!({"request": which})).await;
    assert_eq!(reported, json!({"ok": true}), "{which}");
    assert!(!tried.exists(), "{which}: what was not committed is still there");
    assert_eq!(std::fs::read(&readme).expect("a file can be read"), original, "{which}");
}

/// Every other directory is refused, the error names the field, and the directory still exists afterwards.
async fn assert_nothing_else_touched(fixture: &Fixture, ada: &Caller, directory: &str, clone: &Path) {
    let root = root(fixture);
    let outside = root.with_file_name("outside");
    std::fs::create_dir_all(&outside).expect("a directory can be made");
    let below = Path::new(directory).join("ships");
    let marked = [root.clone(), clone.to_owned(), outside, below, root.join("ships")];
    for method in [REMOVE, RESET] {
        for position in &marked {
            let mark = position.join("mark.txt");
            std::fs::write(&mark, "not committed").expect("a file can be written");
            let request = json!({"request": {"directory": position}});
            ada.invalid(method, request, "request.directory").await.assert_says("worktree");
            assert!(mark.exists(), "{method} touched {}", position.display());
        }
        for unknown in ["/", "/no/such/place", "..", "ships/.."] {
            let request = json!({"request": {"directory": unknown}});
            ada.invalid(method, request, "request.directory").await;
        }
        for name in ["clone", "workspace", "outside", "no-such-worktree"] {
            ada.invalid(method, json!({"request": {"name": name}}), "request.name").await;
        }
        assert!(root.join("README.md").exists() && clone.join("README.md").exists(), "{method}");
    }
    for position in &marked {
        std::fs::remove_file(position.join("mark.txt")).expect("the mark is there");
    }
}

async fn a_busy_worktree_is_refused(fixture: &Fixture, ada: &Caller, directory: &str) {
    let client = fixture.harness.client.activating(&[SESSION_BINDING]);
    let task = client.submit(&message_there(directory, "scn:forever")).await;
    let id = task["id"].as_str().expect("a task has an id");
    client.subscribe(id).await.until("the first words", |frame| artifact(frame).is_some()).await;
    for method in [REMOVE, RESET] {
        let refusal = ada.refused(method, json!({"request": {"directory": directory}}), Kind::BUSY).await;
        assert!(!refusal.detail("retry_after_seconds").is_null(), "{:#}", refusal.body);
    }
    assert!(Path::new(directory).join("README.md").exists(), "the worktree was touched");
    client.cancel(id).await.expect("the task can be canceled");
}

/// A worktree can be removed as soon as no session works there.
async fn assert_removed(fixture: &Fixture, ada: &Caller, name: &str, directory: &str) {
    let which = match ada.version {
        ProtocolVersion::V1 => json!({"request": {"name": name}}),
        ProtocolVersion::V03 => json!({"request": {"directory": directory}}),
    };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let reported = loop {
        match ada.call(REMOVE, which.clone()).await {
            Ok(reported) => break reported,
            Err(refusal) => refusal.assert_kind(Kind::BUSY),
        }
        assert!(tokio::time::Instant::now() < deadline, "the worktree was never free");
    };
    assert_eq!(reported, json!({"ok": true}));
    assert!(!Path::new(directory).exists(), "{directory} is still there");
    assert!(!listed(fixture).await.contains(&directory.to_owned()), "OpenCode still lists {directory}");
    let reported = ada.result(LIST, json!({})).await;
    assert!(!reported.to_string().contains(name), "{reported:#}");
    for (which, field) in
        [(json!({"directory": directory}), "request.directory"), (json!({"name": name}), "request.name")]
    {
        ada.invalid(REMOVE, json!({"request": which}), field).await;
    }
}

/// The messages of sessions in a removed worktree can still be read, and prompts there fail.
async fn assert_sessions_cannot_be_prompted(
    fixture: &Fixture,
    ada: &Caller,
    own: &OwnedSession,
    directory: &str,
) {
    let which = json!({"session_id": own.session});
    let reported = ada.result("opencode.sessions.get", which.clone()).await;
    assert_eq!(reported["item"]["id"], own.session.as_str(), "{reported:#}");
    let said = ada.result("opencode.sessions.messages.list", which).await;
    assert!(said["items"].as_array().is_some_and(|items| items.len() > 1), "{said:#}");
    let task = fixture.harness.client.send(&message_in(&own.context, "scn:text n=1")).await;
    assert_eq!(state_of(&task), "FAILED", "{task:#}");
    assert!(
        !task.to_string().contains(directory),
        "the task reveals the directory of the worktree: {task:#}"
    );
    assert!(!Path::new(directory).exists(), "{directory} is there again");
}

/// The start command runs in a shell. The gateway does not wait for its end.
async fn a_start_command_is_run(fixture: &Fixture) {
    let ada = fixture.ada().remove(0);
    let request = json!({"request": {"startCommand": "touch started.txt"}});
    let reported = ada.result(CREATE, request).await;
    let name = reported["item"]["name"].as_str().expect("OpenCode gave it a name");
    let listed = listed(fixture).await;
    let directory = listed.iter().find(|directory| directory.ends_with(&format!("/{name}")));
    let started = Path::new(directory.expect("it is listed")).join("started.txt");
    until(PATIENCE, "the command has run", || started.exists()).await;
    assert_eq!(ada.result(REMOVE, json!({"request": {"name": name}})).await, json!({"ok": true}));
}

/// OpenCode has already answered when the checkout fails, and reports the failure on its global event stream.
async fn a_failed_checkout_is_reported(fixture: &Fixture) {
    let root = root(fixture);
    git(&root, &["config", "filter.tide.required", "true"]);
    let make_smudge = |command| git(&root, &["config", "filter.tide.smudge", command]);
    make_smudge("false");
    for ada in fixture.ada() {
        let name = format!("dry-{}", if ada.version == ProtocolVersion::V1 { "new" } else { "old" });
        let refusal = ada.refused(CREATE, json!({"request": {"name": name}}), Kind::PAYLOAD).await;
        refusal.assert_says("could not make it ready");
        // The worktree exists, as the error says. The error does not say where.
        let made = listed(fixture).await.into_iter().find(|made| made.ends_with(&format!("/{name}")));
        let made = made.unwrap_or_else(|| panic!("OpenCode does not list {name}"));
        assert!(!refusal.body.to_string().contains(&made), "{:#}", refusal.body);
        assert_eq!(ada.result(REMOVE, json!({"request": {"name": name}})).await, json!({"ok": true}));
    }
    make_smudge("sleep 1; cat");
    git(&root, &["config", "--unset", "filter.tide.required"]);
}
