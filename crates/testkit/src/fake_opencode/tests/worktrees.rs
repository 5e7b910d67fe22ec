//! Worktrees and workspaces on disk, and their events on `/global/event`.

use std::path::Path;

use serde_json::{Value, json};

use super::shapes::check;
use super::*;
use crate::fake_opencode::worktrees::git;

/// A fake whose workspace is a repository, and the events of `/global/event`.
async fn repository() -> (FakeOpenCode, Events) {
    let fake = FakeOpenCode::start();
    fake.make_repository().await;
    let events = subscribe_to(&fake, "/global/event").await;
    (fake, events)
}

async fn remove(fake: &FakeOpenCode, directory: &str) -> (u16, Value) {
    let request = client().delete(format!("{}/experimental/worktree", fake.url()));
    read(request.body(json!({"directory": directory}).to_string())).await
}

/// The first event of that kind, with its directory.
async fn next_event(events: &mut Events, kind: &str) -> Value {
    while let Some(event) = events.next().await {
        if event["payload"]["type"] == kind {
            return event;
        }
    }
    panic!("the stream ended before {kind}");
}

async fn worktree(fake: &FakeOpenCode, body: Value) -> (String, Value) {
    let (status, made) = post(fake, "/experimental/worktree", body).await;
    assert_eq!(status, 200, "{made}");
    check("POST /experimental/worktree", &made);
    (made["directory"].as_str().expect("a directory").to_owned(), made)
}

#[tokio::test]
async fn a_worktree_is_created_reset_and_removed_on_disk() {
    let (fake, mut events) = repository().await;
    let (directory, made) =
        worktree(&fake, json!({"name": "../Feat one", "startCommand": "touch started"})).await;
    assert_eq!((&made["name"], &made["branch"]), (&json!("feat-one"), &json!("opencode/feat-one")));
    let ready = next_event(&mut events, "worktree.ready").await;
    assert_eq!(ready["directory"], directory.as_str());
    let expected = json!({"name": "feat-one", "branch": "opencode/feat-one"});
    assert_eq!(ready["payload"]["properties"], expected);
    let file = |name: &str| Path::new(&directory).join(name).exists();
    assert!(file("README.md") && file("started"));
    assert_eq!(get(&fake, "/experimental/worktree").await.1, json!([directory]));
    let again = worktree(&fake, json!({"name": "feat one"})).await.1;
    assert!(again["name"].as_str().is_some_and(|name| name.starts_with("feat-one-")), "{again}");
    let crooked = format!("{directory}/../feat-one");
    let reset = post(&fake, "/experimental/worktree/reset", json!({"directory": crooked})).await;
    assert_eq!(reset, (200, json!(true)));
    assert!(file("README.md") && !file("started"));
    assert_eq!(remove(&fake, &directory).await, (200, json!(true)));
    assert!(!Path::new(&directory).exists());
    assert_eq!(next_event(&mut events, "server.instance.disposed").await["directory"], directory.as_str());
    let branches = git(fake.workspace(), &["branch", "--list", "opencode/feat-one"]).await;
    assert_eq!(branches, Ok(String::new()), "its branch is removed too");
    assert_eq!(remove(&fake, &directory).await, (200, json!(true)), "a second removal succeeds");
}

#[tokio::test]
async fn a_directory_that_is_no_worktree_is_removed_too() {
    let (fake, _) = repository().await;
    let canary = tempfile::tempdir().expect("a test needs a directory");
    std::fs::write(canary.path().join("precious"), "").expect("a file can be written");
    let directory = canary.path().to_str().expect("temporary paths are text");
    let reset = post(&fake, "/experimental/worktree/reset", json!({"directory": directory})).await;
    assert_eq!((reset.0, &reset.1["data"]["message"]), (400, &json!("Worktree not found")));
    assert_eq!(remove(&fake, directory).await, (200, json!(true)));
    assert!(!canary.path().exists());
    assert_eq!(remove(&fake, "/no/such/directory").await, (200, json!(true)));
    assert_eq!(fake.removed_directories().len(), 2);
}

#[tokio::test]
async fn the_root_is_not_removed_but_its_turns_end() {
    let (fake, _) = repository().await;
    let gate = Gate::new();
    fake.queue(Turn::new().hold(&gate));
    fake.add_session("ses_1", fake.directory());
    let body = json!({"parts": [{"type": "text", "text": "go"}]});
    for directory in ["", fake.directory()] {
        post(&fake, "/session/ses_1/prompt_async", body.clone()).await;
        let mut events = subscribe(&fake).await;
        let (status, answer) = remove(&fake, directory).await;
        assert_eq!((status, answer["name"].as_str()), (400, Some("WorktreeRemoveFailedError")));
        until(&mut events, "server.instance.disposed").await;
    }
    assert!(fake.workspace().join("README.md").exists());
    let reset = post(&fake, "/experimental/worktree/reset", json!({"directory": fake.directory()})).await;
    assert_eq!(reset.1["data"]["message"], "Cannot reset the primary workspace");
    assert_eq!(get(&fake, "/session/status").await.1, json!({}));
}

#[tokio::test]
async fn the_report_of_a_worktree_can_be_early_late_a_failure_or_missing() {
    let (fake, mut events) = repository().await;
    let (gate, news) = (Gate::new(), |news| fake.project(|project| project.news = news));
    news(WorktreeReport::Early);
    let early = worktree(&fake, json!({})).await.0;
    assert_eq!(next_event(&mut events, "worktree.ready").await["directory"], early.as_str());
    news(WorktreeReport::Late(gate.clone()));
    let late = worktree(&fake, json!({})).await.0;
    gate.reached().await;
    news(WorktreeReport::Lost);
    let lost = worktree(&fake, json!({})).await.0;
    news(WorktreeReport::Failed("no room"));
    let failed = worktree(&fake, json!({})).await.0;
    let bad = next_event(&mut events, "worktree.failed").await;
    assert_eq!(
        (&bad["directory"], &bad["payload"]["properties"]["message"]),
        (&json!(failed), &json!("no room"))
    );
    gate.open();
    assert_eq!(next_event(&mut events, "worktree.ready").await["directory"], late.as_str());
    assert_ne!(lost, late);
    fake.end_global_streams();
    drain(&mut events).await;
    let _again = subscribe_to(&fake, "/global/event").await;
    fake.wait_for_global_streams(2).await;
}

#[tokio::test]
async fn a_new_global_listener_misses_events_for_a_while() {
    let setup = Setup { deaf: Duration::from_hours(1), ..Setup::default() };
    let fake = FakeOpenCode::start_with(setup);
    let mut events = subscribe_to(&fake, "/global/event").await;
    fake.emit("test.soon", json!({})).await;
    fake.end_global_streams();
    let received = drain(&mut events).await;
    assert_eq!((received.len(), &received[0]["payload"]["type"]), (1, &json!("server.connected")));
}

#[tokio::test]
async fn without_a_repository_there_are_no_worktrees() {
    let fake = FakeOpenCode::start();
    let name = |answer: &Value| answer["name"].as_str().map(str::to_owned);
    let (status, answer) = post(&fake, "/experimental/worktree", json!({})).await;
    assert_eq!((status, name(&answer).as_deref()), (400, Some("WorktreeNotGitError")));
    git(fake.workspace(), &["init", "--quiet"]).await.expect("git is installed");
    let (status, answer) = post(&fake, "/experimental/worktree", json!({})).await;
    assert_eq!((status, name(&answer).as_deref()), (400, Some("WorktreeCreateFailedError")), "no commit");
    let (status, answer) = post(&fake, "/experimental/worktree", json!({"name": 5})).await;
    assert_eq!((status, name(&answer).as_deref()), (400, Some("BadRequest")));
}

#[tokio::test]
async fn a_workspace_is_a_worktree_with_an_id() {
    let (fake, mut events) = repository().await;
    let path = "/experimental/workspace";
    let (status, made) = post(&fake, path, json!({"type": "worktree", "extra": {"a": 1}})).await;
    assert_eq!(status, 200);
    check("POST /experimental/workspace", &made);
    let id = made["id"].as_str().expect("an id").to_owned();
    assert_eq!(next_event(&mut events, "workspace.status").await["workspace"], id.as_str());
    assert_eq!(next_event(&mut events, "worktree.ready").await["directory"], made["directory"]);
    let listed = get(&fake, path).await.1;
    check("GET /experimental/workspace", &listed);
    assert_eq!(listed, json!([made]));
    let session = post(&fake, &format!("/session?workspace={id}"), json!({})).await.1;
    assert_eq!((&session["workspaceID"], &session["directory"]), (&json!(id), &made["directory"]));
    for (body, text) in [
        (json!({"type": "git"}), "Unknown workspace adapter: git"),
        (json!({"type": "worktree", "id": id}), "Failed query: insert into"),
        (json!({"type": "worktree", "id": "mine"}), "Expected a string starting with \"wrk\""),
        (json!({}), "Missing key"),
    ] {
        let (status, answer) = post(&fake, path, body).await;
        let message = answer["data"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.starts_with(text), "{answer}");
    }
    let delete = async |id: &str| read(client().delete(format!("{}{path}/{id}", fake.url()))).await;
    assert_eq!(delete("wrk_nope").await, (200, Value::Null));
    assert_eq!(delete("xx").await.0, 400);
    let removed = delete(&id).await;
    check("DELETE /experimental/workspace/{id}", &removed.1);
    assert_eq!(removed, (200, made.clone()));
    assert!(!Path::new(made["directory"].as_str().expect("a directory")).exists());
    assert_eq!(fake.sessions(), <[&str; 0]>::default(), "its sessions are gone");
    assert_eq!(get(&fake, path).await.1, json!([]));
    fake.project(|project| project.has_workspaces = false);
    let (status, answer) = post(&fake, path, json!({"type": "worktree"})).await;
    assert_eq!((status, &answer["data"]["message"]), (400, &json!("Timed out waiting for global event")));
}

#[tokio::test]
async fn only_readers_of_a_workspace_receive_its_sessions() {
    let (fake, mut global) = repository().await;
    let made = post(&fake, "/experimental/workspace", json!({"type": "worktree"})).await.1;
    let (id, directory) = (made["id"].as_str().expect("an id"), made["directory"].as_str().expect("a path"));
    let mut inside = subscribe_to(&fake, &format!("/event?workspace={id}")).await;
    let mut beside = subscribe_to(&fake, &format!("/event?directory={directory}")).await;
    let session = post(&fake, &format!("/session?workspace={id}"), json!({})).await.1;
    assert_eq!(until(&mut inside, "session.created").await.len(), 2);
    assert_eq!(next_event(&mut global, "session.created").await["workspace"], id);
    fake.emit("test.mark", json!({"directory": directory})).await;
    let received = until(&mut beside, "test.mark").await;
    assert!(received.iter().all(|event| event["type"] != "session.created"), "{received:?}");
    assert_eq!(get(&fake, &format!("/session?directory={directory}")).await.1[0]["id"], session["id"]);
}

#[tokio::test]
async fn global_events_about_worktrees_have_the_recorded_keys() {
    let (fake, mut events) = repository().await;
    worktree(&fake, json!({"name": "one"})).await;
    let mut all = Vec::new();
    for kind in ["project.updated", "worktree.ready"] {
        all.push(next_event(&mut events, kind).await);
    }
    post(&fake, "/experimental/workspace", json!({"type": "worktree"})).await;
    for kind in ["workspace.status", "worktree.ready"] {
        all.push(next_event(&mut events, kind).await);
    }
    let recordings = ["../control/worktree", "../control/workspace_experimental"].map(Recording::load);
    for event in all {
        let mut found = keys(&event);
        // The owner of the recorded project had not set these fields.
        found.retain(|key| !key.contains("properties.icon") && !key.contains("properties.commands"));
        let recorded = recordings.iter().flat_map(Recording::events);
        let mut alike = recorded.filter(|other| other["payload"]["type"] == event["payload"]["type"]);
        assert!(alike.any(|other| keys(other) == found), "{event}");
    }
}
