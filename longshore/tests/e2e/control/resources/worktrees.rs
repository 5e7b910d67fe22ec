//! Worktrees: made, usable at once, reset and removed, and nothing else ever touched.

use std::path::{Path, PathBuf};

use longshore_testkit::gateway::until;
use serde_json::{Value, json};

use super::{SLOW, git, path, root};
use crate::client::{PATIENCE, message, message_in};
use crate::control::caller::{Caller, Kind, ProtocolVersion};
use crate::control::fixture::{Own, SESSION_BINDING, Stage};
use crate::frames::{artifact, state_of};

const LIST: &str = "opencode.worktrees.list";
const CREATE: &str = "opencode.worktrees.create";
const REMOVE: &str = "opencode.worktrees.remove";
const RESET: &str = "opencode.worktrees.reset";

pub(super) async fn are_made_reset_and_removed(stage: &Stage) {
    let clone = clone_that_opencode_lists(stage).await;
    for ada in stage.ada() {
        let name = format!("feature-{}", if ada.line == ProtocolVersion::V1 { "new" } else { "old" });
        let directory = made(stage, &ada, &name).await;
        let own = is_usable_at_once(stage, &directory).await;
        o01_worktrees_are_listed_as_strings_and_as_names(&ada, &name, &directory).await;
        is_reset(stage, &ada, &name, &directory).await;
        nothing_else_is_touched(stage, &ada, &directory, &clone).await;
        nobody_is_interrupted(stage, &ada, &directory).await;
        is_removed(stage, &ada, &name, &directory).await;
        its_sessions_have_nowhere_to_work(stage, &ada, &own, &directory).await;
    }
    a_start_command_is_run(stage).await;
    files_that_cannot_be_written_are_told(stage).await;
    std::fs::remove_dir_all(clone).expect("the clone is there");
}

/// A clone is no worktree of this repository, but OpenCode lists it once it has seen it.
async fn clone_that_opencode_lists(stage: &Stage) -> PathBuf {
    let root = root(stage);
    git(root.parent().expect("it lies in a directory"), &["clone", "--quiet", path(&root), "clone"]);
    let clone = root.with_file_name("clone");
    stage.harness.opencode.get(&format!("/project/current?directory={}", path(&clone))).await;
    assert!(listed(stage).await.contains(&path(&clone).to_owned()), "OpenCode does not list the clone");
    clone
}

/// What OpenCode lists.
async fn listed(stage: &Stage) -> Vec<String> {
    let listed = stage.harness.opencode.get("/experimental/worktree").await;
    serde_json::from_value(listed).expect("a list of paths")
}

/// Makes one, and gives its directory.
async fn made(stage: &Stage, ada: &Caller, name: &str) -> String {
    let told = ada.result(CREATE, json!({"request": {"name": name}})).await;
    let listed = listed(stage).await;
    let directory = listed.into_iter().find(|directory| directory.ends_with(&format!("/{name}")));
    let directory = directory.unwrap_or_else(|| panic!("OpenCode does not list {told:#}"));
    let is_there = Path::new(&directory).join(SLOW).exists();
    assert!(is_there, "the answer came before the files of {told:#}");
    let mut expected = json!({"name": name, "branch": format!("opencode/{name}")});
    if ada.line == ProtocolVersion::V03 {
        expected["directory"] = json!(directory);
    }
    assert_eq!(told, json!({"item": expected}));
    ada.invalid(CREATE, json!({"request": {"name": "-f"}}), "request.name").await;
    directory
}

/// A message with a directory of its own.
fn message_there(directory: &str, text: &str) -> Value {
    let mut message = message(text);
    message["metadata"] = json!({"opencode": {"directory": directory}});
    message
}

async fn is_usable_at_once(stage: &Stage, directory: &str) -> Own {
    let prompt = format!("scn:write path=tried.txt content=ahoy scn:text n=1 ({directory})");
    let own = stage.session_in(directory, &prompt).await;
    assert_eq!(stage.upstream(&own.session).await["directory"], directory);
    let tried = Path::new(directory).join("tried.txt");
    assert_eq!(std::fs::read_to_string(tried).expect("the agent wrote there"), "ahoy");
    assert!(!root(stage).join("tried.txt").exists(), "the agent wrote elsewhere");
    own
}

async fn o01_worktrees_are_listed_as_strings_and_as_names(ada: &Caller, name: &str, directory: &str) {
    let told = ada.result(LIST, json!({})).await;
    let expected = match ada.line {
        ProtocolVersion::V1 => json!({"name": name, "branch": format!("opencode/{name}")}),
        ProtocolVersion::V03 => json!(directory),
    };
    // Without the clone that OpenCode lists as well.
    assert_eq!(told["items"], json!([expected]), "{told:#}");
}

async fn is_reset(stage: &Stage, ada: &Caller, name: &str, directory: &str) {
    let readme = Path::new(directory).join("README.md");
    let original = std::fs::read(root(stage).join("README.md")).expect("a file can be read");
    let which = match ada.line {
        ProtocolVersion::V1 => json!({"directory": directory}),
        ProtocolVersion::V03 => json!({"name": name}),
    };
    let tried = Path::new(directory).join("tried.txt");
    assert!(tried.exists(), "the agent wrote there");
    std::fs::write(&readme, "# Ruins\n").expect("a file can be written");
    let told = ada.result(RESET, json!({"request": which})).await;
    assert_eq!(told, json!({"ok": true}), "{which}");
    assert!(!tried.exists(), "{which}: what was not committed is still there");
    assert_eq!(std::fs::read(&readme).expect("a file can be read"), original, "{which}");
}

/// Whatever else exists is refused by the field that names it, and is there afterwards.
async fn nothing_else_is_touched(stage: &Stage, ada: &Caller, directory: &str, clone: &Path) {
    let root = root(stage);
    let outside = root.with_file_name("outside");
    std::fs::create_dir_all(&outside).expect("a directory can be made");
    let below = Path::new(directory).join("ships");
    let marked = [root.clone(), clone.to_owned(), outside, below, root.join("ships")];
    for method in [REMOVE, RESET] {
        for place in &marked {
            let mark = place.join("mark.txt");
            std::fs::write(&mark, "not committed").expect("a file can be written");
            let request = json!({"request": {"directory": place}});
            ada.invalid(method, request, "request.directory").await.says("worktree");
            assert!(mark.exists(), "{method} touched {}", place.display());
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
    for place in &marked {
        std::fs::remove_file(place.join("mark.txt")).expect("the mark is there");
    }
}

async fn nobody_is_interrupted(stage: &Stage, ada: &Caller, directory: &str) {
    let client = stage.harness.client.activating(&[SESSION_BINDING]);
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

/// As soon as nobody works there any more.
async fn is_removed(stage: &Stage, ada: &Caller, name: &str, directory: &str) {
    let which = match ada.line {
        ProtocolVersion::V1 => json!({"request": {"name": name}}),
        ProtocolVersion::V03 => json!({"request": {"directory": directory}}),
    };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let told = loop {
        match ada.call(REMOVE, which.clone()).await {
            Ok(told) => break told,
            Err(refusal) => refusal.is(Kind::BUSY),
        }
        assert!(tokio::time::Instant::now() < deadline, "the worktree was never free");
    };
    assert_eq!(told, json!({"ok": true}));
    assert!(!Path::new(directory).exists(), "{directory} is still there");
    assert!(!listed(stage).await.contains(&directory.to_owned()), "OpenCode still lists {directory}");
    let told = ada.result(LIST, json!({})).await;
    assert!(!told.to_string().contains(name), "{told:#}");
    for (which, field) in
        [(json!({"directory": directory}), "request.directory"), (json!({"name": name}), "request.name")]
    {
        ada.invalid(REMOVE, json!({"request": which}), field).await;
    }
}

/// What was said in them can be read, and nothing is done there any more.
async fn its_sessions_have_nowhere_to_work(stage: &Stage, ada: &Caller, own: &Own, directory: &str) {
    let which = json!({"session_id": own.session});
    let told = ada.result("opencode.sessions.get", which.clone()).await;
    assert_eq!(told["item"]["id"], own.session.as_str(), "{told:#}");
    let said = ada.result("opencode.sessions.messages.list", which).await;
    assert!(said["items"].as_array().is_some_and(|items| items.len() > 1), "{said:#}");
    let task = stage.harness.client.send(&message_in(&own.context, "scn:text n=1")).await;
    assert_eq!(state_of(&task), "FAILED", "{task:#}");
    assert!(!task.to_string().contains(directory), "it is told where the worktree was: {task:#}");
    assert!(!Path::new(directory).exists(), "{directory} is there again");
}

/// It is a shell, and its end is not waited for.
async fn a_start_command_is_run(stage: &Stage) {
    let [ada, _] = stage.ada();
    let request = json!({"request": {"startCommand": "touch started.txt"}});
    let told = ada.result(CREATE, request).await;
    let name = told["item"]["name"].as_str().expect("OpenCode gave it a name");
    let listed = listed(stage).await;
    let directory = listed.iter().find(|directory| directory.ends_with(&format!("/{name}")));
    let started = Path::new(directory.expect("it is listed")).join("started.txt");
    until(PATIENCE, "the command has run", || started.exists()).await;
    assert_eq!(ada.result(REMOVE, json!({"request": {"name": name}})).await, json!({"ok": true}));
}

/// OpenCode has answered by then, and tells it on its stream of all directories.
async fn files_that_cannot_be_written_are_told(stage: &Stage) {
    let root = root(stage);
    git(&root, &["config", "filter.tide.required", "true"]);
    let make_smudge = |command| git(&root, &["config", "filter.tide.smudge", command]);
    make_smudge("false");
    for ada in stage.ada() {
        let name = format!("dry-{}", if ada.line == ProtocolVersion::V1 { "new" } else { "old" });
        let refusal = ada.refused(CREATE, json!({"request": {"name": name}}), Kind::PAYLOAD).await;
        refusal.says("could not make it ready");
        // It is there, as the error says; where it is, it does not say.
        let made = listed(stage).await.into_iter().find(|made| made.ends_with(&format!("/{name}")));
        let made = made.unwrap_or_else(|| panic!("OpenCode does not list {name}"));
        assert!(!refusal.body.to_string().contains(&made), "{:#}", refusal.body);
        assert_eq!(ada.result(REMOVE, json!({"request": {"name": name}})).await, json!({"ok": true}));
    }
    make_smudge("sleep 1; cat");
    git(&root, &["config", "--unset", "filter.tide.required"]);
}
