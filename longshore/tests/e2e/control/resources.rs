//! Models, projects, workspaces and worktrees of the real OpenCode, on both lines.
//!
//! What the gateway tells is held against what OpenCode itself says, and what it does against the disk.

mod models;
mod extended_card;
mod switches;
mod workspaces;
mod worktrees;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures_util::future::join_all;
use longshore_testkit::gateway::{Setup, TOKEN, is_alive, kill, until};
use longshore_testkit::raw::{Answer, RawClient};
use serde_json::{Value, json};

use super::caller::{CANARY, Caller, Kind, ProtocolVersion};
use super::fixture::Fixture;
use crate::client::{PATIENCE, within};

/// So often OpenCode is killed until everybody has found it dead.
const KILLS: usize = 5;

/// What each method is called with that works, or would if there were something of this name.
pub(super) fn rows() -> [(&'static str, Value); 11] {
    let unknown = json!({"request": {"name": "no-such-worktree"}});
    [
        ("opencode.providers.list", json!({})),
        ("opencode.models.list", json!({"provider_id": "demo"})),
        ("opencode.projects.list", json!({})),
        ("opencode.projects.current", json!({})),
        ("opencode.workspaces.list", json!({})),
        ("opencode.workspaces.create", json!({"request": {"type": "git"}})),
        ("opencode.workspaces.remove", json!({"workspace_id": "wrk_nobody"})),
        ("opencode.worktrees.list", json!({})),
        ("opencode.worktrees.create", json!({"request": {"name": "passing"}})),
        ("opencode.worktrees.remove", unknown.clone()),
        ("opencode.worktrees.reset", unknown),
    ]
}

/// Those that change something.
fn is_change(method: &str) -> bool {
    ["create", "remove", "reset"].iter().any(|end| method.ends_with(end))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_works_and_has_its_errors_on_both_lines() {
    let mut fixture = Fixture::prepared(switched_on, hide_canaries).await;
    // Nothing is missing here, and nothing is here that is not there.
    for ada in fixture.ada() {
        let elsewhere = ["opencode.sessions.", "opencode.permissions.", "opencode.questions."];
        let mut served: BTreeSet<String> = ada.served("opencode.").await.into_iter().collect();
        served.retain(|method| !elsewhere.iter().any(|prefix| method.starts_with(prefix)));
        assert_eq!(served, rows().map(|(method, _)| method.to_owned()).into(), "{:?}", ada.line);
    }
    for eve in fixture.eve() {
        for (method, params) in rows() {
            if is_change(method) {
                eve.refused(method, params, Kind::UNAUTHORIZED).await;
            } else {
                eve.result(method, params).await;
            }
        }
    }
    make_checkouts_slow(&root(&fixture));
    models::are_listed(&fixture).await;
    projects_are_told(&fixture).await;
    worktrees::are_made_reset_and_removed(&fixture).await;
    workspaces::are_made_and_removed(&fixture).await;
    for ada in fixture.ada() {
        for (method, _) in rows() {
            let worked = (method.to_owned(), ada.line, "ok".to_owned());
            let seen = fixture.seen.lock().expect("nobody panics while it is locked");
            assert!(seen.contains(&worked), "{method} on {:?} never worked", ada.line);
        }
    }
    extended_card::are_in_the_extended_card(&mut fixture).await;
    without_opencode(&mut fixture).await;
}

pub(super) fn switched_on(setup: Setup) -> Setup {
    let setup = setup.flag("--session-shell").flag("--workspace-mutations");
    setup.env("OPENCODE_EXPERIMENTAL_WORKSPACES", "1").env("HARBOUR_SECRET", CANARY)
}

/// Wherever OpenCode's configuration has something that is not for callers.
fn hide_canaries(configuration: &mut Value) {
    let provider = &mut configuration["provider"]["demo"];
    provider["options"]["headers"] = json!({"x-secret": CANARY});
    provider["models"]["demo"]["headers"] = json!({"x-secret": CANARY});
    provider["models"]["demo"]["options"] = json!({"secret": CANARY});
    configuration["command"]["whisper"] = json!({"template": CANARY, "description": "Says it low"});
    configuration["agent"] = json!({
        "boatswain": {"prompt": CANARY, "description": "Keeps the deck", "mode": "all"},
    });
}

/// The workspace of the gateway, as OpenCode spells it.
pub(super) fn root(fixture: &Fixture) -> PathBuf {
    fixture.harness.gateway.workspace().canonicalize().expect("the workspace exists")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("the path of a test is UTF-8")
}

fn git(directory: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(directory).env("GIT_CONFIG_GLOBAL", "/dev/null");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Ada").env(format!("GIT_{role}_EMAIL"), "ada@example.com");
    }
    let output = command.output().expect("git is installed");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A file that takes git a second to write, so that it shows when somebody does not wait for it.
const SLOW: &str = "tide.txt";

fn make_checkouts_slow(root: &Path) {
    std::fs::write(root.join(SLOW), "high\n").expect("a file can be written");
    std::fs::write(root.join(".gitattributes"), format!("{SLOW} filter=tide\n"))
        .expect("a file can be written");
    git(root, &["config", "filter.tide.smudge", "sleep 1; cat"]);
    git(root, &["add", "."]);
    git(root, &["commit", "--quiet", "--message=Wait for the tide"]);
}

/// The extended card of a line.
async fn card(fixture: &Fixture, line: ProtocolVersion) -> Answer {
    let path = match line {
        ProtocolVersion::V1 => "/extendedAgentCard",
        ProtocolVersion::V03 => "/agent/authenticatedExtendedCard",
    };
    let client = RawClient::new(fixture.harness.gateway.url(), TOKEN).speaking(line.version());
    let card = within("the card", client.rest("GET", path, None)).await;
    assert_eq!(card.status, 200, "{card:#?}");
    card
}

/// One that has seen another project tells where its own is, and of the other only that it is there.
async fn projects_are_told(fixture: &Fixture) {
    let elsewhere = root(fixture).with_file_name("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a directory can be made");
    git(&elsewhere, &["init", "--quiet"]);
    git(&elsewhere, &["commit", "--quiet", "--allow-empty", "--message=Begin elsewhere"]);
    let other = fixture.harness.opencode.get(&format!("/project/current?directory={}", path(&elsewhere))).await;
    let own = fixture.harness.opencode.get("/project/current").await;
    assert_ne!(own["id"], other["id"], "{other:#}");
    for ada in fixture.ada() {
        let is_old = ada.line == ProtocolVersion::V03;
        let reported = ada.result("opencode.projects.current", json!({})).await;
        assert_eq!((&reported["item"]["id"], &reported["item"]["vcs"]), (&own["id"], &json!("git")), "{reported:#}");
        let all = ada.result("opencode.projects.list", json!({})).await;
        let find = |id: &Value| {
            let found = all["items"].as_array().into_iter().flatten().find(|project| project["id"] == *id);
            found.unwrap_or_else(|| panic!("{id} is not in {all:#}"))
        };
        for reported in [&reported["item"], find(&own["id"])] {
            let worktree = is_old.then(|| json!(root(fixture)));
            assert_eq!(reported.get("worktree"), worktree.as_ref(), "{reported:#}");
        }
        assert_eq!(find(&other["id"]).get("worktree"), None, "{all:#}");
        assert!(!all.to_string().contains("elsewhere"), "{all:#}");
        ada.invalid(
            "opencode.projects.current",
            json!({"metadata": {"opencode": {"directory": 7}}}),
            "metadata.opencode.directory",
        )
        .await;
    }
}

/// The gateway starts another OpenCode at once. Whoever finds it there again is called once more without it.
async fn without_opencode(fixture: &mut Fixture) {
    let mut left: Vec<(Caller, &'static str, Value)> = Vec::new();
    for ada in fixture.ada() {
        left.extend(rows().map(|(method, params)| (ada.clone(), method, params)));
    }
    for _ in 0..KILLS {
        let pid = fixture.harness.opencode.pid();
        kill(pid);
        until(PATIENCE, "OpenCode is gone", || !is_alive(pid)).await;
        let calls = left.iter().map(|(ada, method, params)| ada.call(method, params.clone()));
        let answers = join_all(calls).await;
        let mut found = Vec::new();
        for (call, answer) in left.into_iter().zip(answers) {
            match answer {
                Err(refusal) if refusal.word == "UPSTREAM_UNREACHABLE" => {
                    refusal.assert_kind(Kind::UNREACHABLE);
                    // What may have been done is not to be done again without a look.
                    let is_open = refusal.message.contains("may have been done");
                    let again = refusal.detail("retry_after_seconds");
                    assert!(
                        is_open || !again.is_null(),
                        "when to come again is not said: {:#}",
                        refusal.body
                    );
                }
                _ => found.push(call),
            }
        }
        fixture.harness.until_opencode_is_back(pid).await;
        left = found;
        if left.is_empty() {
            return;
        }
    }
    let left: Vec<&str> = left.iter().map(|(_, method, _)| *method).collect();
    panic!("these were never without OpenCode: {left:?}");
}
