//! Models, projects, workspaces and worktrees of the real OpenCode.
//!
//! What the gateway reports is compared with what OpenCode itself reports, and its changes with the disk. The errors of
//! these methods in both versions are tested on the fake OpenCode (`control` in the `system` binary).

mod extended_card;
mod models;
mod workspaces;
mod worktrees;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_testkit::gateway::{Setup, TOKEN};
use longshore_testkit::raw::{Answer, RawClient};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use super::caller::{CANARY, Kind};
use super::fixture::Fixture;
use crate::client::within;

/// Parameters with which each method works, or would work if something of this name existed.
fn rows() -> [(&'static str, Value); 11] {
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

/// Whether the method changes something.
fn is_change(method: &str) -> bool {
    ["create", "remove", "reset"].iter().any(|end| method.ends_with(end))
}

#[tokio::test(flavor = "multi_thread")]
async fn models_projects_workspaces_and_worktrees_are_those_of_opencode() {
    use_every_method(ProtocolVersion::V1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_models_projects_workspaces_and_worktrees_over_0_3() {
    use_every_method(ProtocolVersion::V03).await;
}

async fn use_every_method(version: ProtocolVersion) {
    let mut fixture = Fixture::prepared(&[version], switched_on, hide_canaries).await;
    // The rows are exactly the methods that the gateway serves.
    for ada in fixture.ada() {
        let elsewhere = ["opencode.sessions.", "opencode.permissions.", "opencode.questions."];
        let mut served: BTreeSet<String> = ada.served("opencode.").await.into_iter().collect();
        served.retain(|method| !elsewhere.iter().any(|prefix| method.starts_with(prefix)));
        assert_eq!(served, rows().map(|(method, _)| method.to_owned()).into(), "{:?}", ada.version);
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
            let worked = (method.to_owned(), ada.version, "ok".to_owned());
            let seen = fixture.seen.lock().expect("nobody panics while it is locked");
            assert!(seen.contains(&worked), "{method} on {:?} never worked", ada.version);
        }
    }
    extended_card::are_in_the_extended_card(&mut fixture).await;
}

pub(super) fn switched_on(setup: Setup) -> Setup {
    let setup = setup.flag("--session-shell").flag("--workspace-mutations").flag("--session-share");
    setup.env("OPENCODE_EXPERIMENTAL_WORKSPACES", "1").env("HARBOUR_SECRET", CANARY)
}

/// Puts the canary into every setting of OpenCode that callers must not see.
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

/// A file that git needs a second to write. A gateway that does not wait for the checkout answers without it.
const SLOW: &str = "tide.txt";

fn make_checkouts_slow(root: &Path) {
    std::fs::write(root.join(SLOW), "high\n").expect("a file can be written");
    std::fs::write(root.join(".gitattributes"), format!("{SLOW} filter=tide\n"))
        .expect("a file can be written");
    git(root, &["config", "filter.tide.smudge", "sleep 1; cat"]);
    git(root, &["add", "."]);
    git(root, &["commit", "--quiet", "--message=Wait for the tide"]);
}

/// The extended card in this version.
async fn card(fixture: &Fixture, version: ProtocolVersion) -> Answer {
    let path = match version {
        ProtocolVersion::V1 => "/extendedAgentCard",
        ProtocolVersion::V03 => "/agent/authenticatedExtendedCard",
    };
    let client = RawClient::new(fixture.harness.gateway.url(), TOKEN).speaking(version.as_str());
    let card = within("the card", client.rest("GET", path, None)).await;
    assert_eq!(card.status, 200, "{card:#?}");
    card
}

/// The list shows the directory of the own project, and of another project only that it exists.
async fn projects_are_told(fixture: &Fixture) {
    let elsewhere = root(fixture).with_file_name("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a directory can be made");
    git(&elsewhere, &["init", "--quiet"]);
    git(&elsewhere, &["commit", "--quiet", "--allow-empty", "--message=Begin elsewhere"]);
    let other =
        fixture.harness.opencode.get(&format!("/project/current?directory={}", path(&elsewhere))).await;
    let own = fixture.harness.opencode.get("/project/current").await;
    assert_ne!(own["id"], other["id"], "{other:#}");
    for ada in fixture.ada() {
        let is_old = ada.version == ProtocolVersion::V03;
        let reported = ada.result("opencode.projects.current", json!({})).await;
        assert_eq!(
            (&reported["item"]["id"], &reported["item"]["vcs"]),
            (&own["id"], &json!("git")),
            "{reported:#}"
        );
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
