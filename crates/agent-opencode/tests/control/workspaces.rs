//! Worktrees and workspaces. OpenCode deletes any directory that a request names.

use longshore_engine::port::{RemovedPlace, Removes};
use longshore_model::{NewWorkspace, NewWorktree, WorktreeRef};
use longshore_testkit::fake_opencode::{Fault, Gate, WorktreeReport};

use super::*;

async fn in_repository() -> Fixture {
    let fixture = Fixture::new();
    fixture.fake.make_repository().await;
    fixture
}

fn new_worktree(name: &str) -> ControlCommand {
    ControlCommand::CreateWorktree(NewWorktree { name: Some(name.to_owned()), start_command: None })
}

fn new_workspace(kind: &str, id: Option<&str>) -> ControlCommand {
    let id = id.map(|id| WorkspaceId::parse(id).expect("an id"));
    ControlCommand::CreateWorkspace(NewWorkspace { kind: kind.to_owned(), id, branch: None, extra: None })
}

async fn made(fixture: &Fixture, name: &str) -> longshore_model::Worktree {
    match fixture.run(None, &new_worktree(name)).await.expect("a worktree") {
        ControlResult::Worktree(worktree) => worktree,
        result => panic!("a worktree: {result:?}"),
    }
}

fn of_directory(directory: &str) -> WorktreeRef {
    WorktreeRef::Directory(directory.to_owned())
}

#[tokio::test]
async fn a_worktree_is_ready_when_it_is_returned_and_is_reset_and_removed_by_name_or_directory() {
    let fixture = in_repository().await;
    for (name, news) in [("feat one", WorktreeReport::Ready), ("feat two", WorktreeReport::Early)] {
        fixture.fake.project(|project| project.news = news);
        let worktree = made(&fixture, name).await;
        let file = |name: &str| std::path::Path::new(&worktree.directory).join(name);
        assert!(file("README.md").exists(), "its files exist");
        assert_eq!(worktree.branch, Some(format!("opencode/{}", worktree.name)));
        // Callers may work there at once.
        let requested = longshore_model::RequestedLocation {
            directory: Some(longshore_model::RequestedDirectory {
                path: worktree.directory.clone(),
                field: "directory",
            }),
            workspace: None,
        };
        assert_eq!(fixture.agent.resolve_location(&requested).await.unwrap(), worktree.directory);
        std::fs::write(file("mess"), "").unwrap();
        let named = WorktreeRef::Name(worktree.name.clone());
        let place = RemovedPlace { directory: Some(worktree.directory.clone()), sessions: Vec::new() };
        let reset = ControlCommand::ResetWorktree(named.clone());
        assert_eq!(fixture.agent.removes(&reset).await.unwrap(), Removes::Place(place));
        assert_eq!(
            fixture.run(None, &ControlCommand::ResetWorktree(named)).await.unwrap(),
            ControlResult::Ok(true)
        );
        assert!(!file("mess").exists() && file("README.md").exists());
        let crooked = format!("{}/../{}", worktree.directory, worktree.name);
        let removed =
            fixture.run(None, &ControlCommand::RemoveWorktree(of_directory(&crooked))).await.unwrap();
        assert_eq!(removed, ControlResult::Ok(true));
        assert_eq!(
            fixture.fake.removed_directories().last(),
            Some(&worktree.directory),
            "in OpenCode's own spelling"
        );
        assert_eq!(
            refused_field(fixture.agent.resolve_location(&requested).await),
            "directory",
            "the worktree is gone"
        );
    }
    fixture.stop().await;
}

#[tokio::test]
async fn only_worktrees_of_the_gateways_own_repository_are_removed_or_reset() {
    let fixture = in_repository().await;
    let own = made(&fixture, "own").await;
    let beside = tempfile::tempdir().unwrap();
    let beside = std::fs::canonicalize(beside.path()).unwrap();
    let at = |name: &str| beside.join(name).to_str().unwrap().to_owned();
    let (plain, clone, listed) = (at("plain"), at("clone"), at("listed"));
    for directory in [&plain, &listed] {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::fs::create_dir_all(format!("{clone}/.git/objects")).unwrap();
    std::os::unix::fs::symlink(&clone, at("link")).unwrap();
    let inside = format!("{}/sub", fixture.root());
    std::fs::create_dir_all(&inside).unwrap();
    let deep = format!("{}/deep", own.directory);
    std::fs::create_dir_all(&deep).unwrap();
    // The real OpenCode lists every clone that it ever saw, and the root when the root is a worktree.
    let root = fixture.root().to_owned();
    let above = std::path::Path::new(&root).parent().unwrap().to_str().unwrap().to_owned();
    fixture.fake.project(|project| {
        project.worktrees.extend([clone.clone(), listed.clone(), root.clone(), above.clone(), at("link")]);
    });
    let before = fixture.fake.removed_directories();
    let log = |fixture: &Fixture| {
        let changes = |call: &&String| !call.starts_with("GET ");
        fixture.fake.received_targets().iter().filter(changes).count()
    };
    let calls = log(&fixture);
    let (trailing, dotted, doubled) = (format!("{root}/."), format!("/.{root}"), format!("//{root}//"));
    let (spaced, cut) = (format!(" {root} "), format!("{root}\0"));
    let (as_url, encoded) = (format!("file://{root}"), root.replace('/', "%2F"));
    let wanted = [
        root.as_str(),
        &trailing,
        &dotted,
        &doubled,
        &spaced,
        &cut,
        &as_url,
        &encoded,
        "~",
        "*",
        "",
        ".",
        "..",
        "/",
        &above,
        &inside,
        "sub",
        &plain,
        &clone,
        &listed,
        &at("link"),
        &deep,
        "%2e%2e",
        "/nowhere",
        "own",
        "a\nb",
    ];
    for directory in wanted {
        for command in [
            ControlCommand::RemoveWorktree(of_directory(directory)),
            ControlCommand::ResetWorktree(of_directory(directory)),
        ] {
            assert_eq!(refused_field(fixture.run(None, &command).await), "request.directory", "{directory}");
            assert_eq!(refused_field(fixture.agent.removes(&command).await), "request.directory");
        }
    }
    let name = |name: &str| WorktreeRef::Name(name.to_owned());
    let of_root = std::path::Path::new(&root).file_name().unwrap().to_str().unwrap();
    for wanted in [
        "clone", "listed", "plain", "sub", "..", "", "/", of_root, "nothing", "link", "OWN", "own/", "./own",
        "own ", "-rf", "*",
    ] {
        for command in
            [ControlCommand::RemoveWorktree(name(wanted)), ControlCommand::ResetWorktree(name(wanted))]
        {
            assert_eq!(refused_field(fixture.run(None, &command).await), "request.name", "{wanted}");
        }
    }
    assert_eq!(
        (fixture.fake.removed_directories(), log(&fixture)),
        (before, calls),
        "OpenCode got no request for any of them"
    );
    for directory in [&plain, &clone, &listed, &inside, &own.directory] {
        assert!(std::path::Path::new(directory).exists(), "{directory}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn a_worktree_with_files_of_the_gateway_is_neither_listed_nor_removed_nor_reset() {
    let fixture = in_repository().await;
    let own = made(&fixture, "own").await;
    let data = format!("{}/data", own.directory);
    std::fs::create_dir(&data).unwrap();
    std::os::unix::fs::symlink(&data, format!("{}/secrets", fixture.root())).unwrap();
    for wanted in [of_directory(&own.directory), of_directory(&data), WorktreeRef::Name("own".to_owned())] {
        for command in
            [ControlCommand::RemoveWorktree(wanted.clone()), ControlCommand::ResetWorktree(wanted.clone())]
        {
            refused_field(fixture.run(None, &command).await);
        }
    }
    let ControlResult::Worktrees(listed) = fixture.query(None, &ControlQuery::Worktrees).await.unwrap()
    else {
        panic!("other result");
    };
    assert_eq!(listed, []);
    assert!(std::path::Path::new(&data).exists());
    fixture.stop().await;
}

#[tokio::test]
async fn a_late_or_lost_ready_event_is_waited_for_and_a_failure_is_reported() {
    let fixture = in_repository().await;
    let gate = Gate::new();
    fixture.fake.project(|project| project.news = WorktreeReport::Late(gate.clone()));
    let (late, ()) = tokio::join!(made(&fixture, "late"), async {
        gate.reached().await;
        gate.open();
    });
    assert_eq!(late.name, "late");
    // The stream breaks after the response: the disk shows that the worktree is ready.
    fixture.fake.project(|project| project.news = WorktreeReport::Lost);
    let (lost, ()) = tokio::join!(made(&fixture, "lost"), async {
        fixture.fake.wait_for_request("POST", "/experimental/worktree", 2).await;
        fixture.fake.end_global_streams();
    });
    assert!(std::path::Path::new(&lost.directory).join("README.md").exists());
    fixture.fake.project(|project| project.news = WorktreeReport::Failed("cannot write /home/me/x"));
    let failed = fixture.run(None, &new_worktree("bad")).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::UpstreamPayloadError);
    assert_eq!(fact(&failed, "detail"), Some("cannot write <redacted-path>"));
    fixture.stop().await;
}

#[tokio::test]
async fn nothing_is_created_without_an_event_stream_and_nothing_is_created_twice() {
    let fixture = in_repository().await;
    fixture.fake.fault_once("GET", "/global/event", Fault::Html);
    let deaf = fixture.run(None, &new_worktree("one")).await.unwrap_err();
    assert_eq!(deaf.kind(), ErrorKind::UpstreamPayloadError, "{deaf}");
    assert!(!deaf.message().contains("may have been done"), "{deaf}");
    let calls = |fixture: &Fixture| {
        fixture
            .fake
            .received_targets()
            .iter()
            .filter(|call| call.starts_with("POST /experimental/worktree"))
            .count()
    };
    assert_eq!(calls(&fixture), 0);
    fixture.fake.fault_once("POST", "/experimental/worktree", Fault::CutAfter);
    let cut = fixture.run(None, &new_worktree("two")).await.unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::UpstreamUnreachable);
    assert!(cut.message().contains("may have been done"), "{cut}");
    assert_eq!(calls(&fixture), 1);
    let plain = Fixture::new();
    let refused = plain.run(None, &new_worktree("three")).await.unwrap_err();
    assert_eq!(
        (refused.kind(), fact(&refused, "upstreamStatus")),
        (ErrorKind::UpstreamHttpError, Some("400"))
    );
    plain.stop().await;
    fixture.stop().await;
}

/// O9, and behaviour that only shows in OpenCode's own database.
#[tokio::test]
async fn workspaces_are_created_and_removed_by_id() {
    let fixture = in_repository().await;
    fixture.fake.project(|project| project.has_workspaces = true);
    let result = fixture.run(None, &new_workspace("worktree", Some("wrk_mine"))).await.unwrap();
    let ControlResult::Workspace(Some(made)) = result else { panic!("a workspace: {result:?}") };
    let directory = made.directory.unwrap();
    assert_eq!(made.id.as_str(), "wrk_mine");
    assert!(std::path::Path::new(&directory).join("README.md").exists());
    assert_eq!(
        refused_field(fixture.run(None, &new_workspace("worktree", Some("wrk_mine"))).await),
        "request.id"
    );
    let git = fixture.run(None, &new_workspace("git", None)).await.unwrap_err();
    assert_eq!(
        (git.kind(), fact(&git, "detail")),
        (ErrorKind::UpstreamHttpError, Some("Unknown workspace adapter: git"))
    );
    // A workspace of another project is not found.
    let remove = |id: &str| ControlCommand::RemoveWorkspace(WorkspaceId::parse(id).unwrap());
    assert_eq!(fixture.run(None, &remove("wrk_none")).await.unwrap(), ControlResult::Workspace(None));
    let root = fixture.root().to_owned();
    let above = std::path::Path::new(&root).parent().unwrap().to_str().unwrap().to_owned();
    std::fs::create_dir(format!("{root}/sub")).unwrap();
    for (id, directory) in
        [("wrk_spelled", format!("{root}/sub/..")), ("wrk_root", root), ("wrk_above", above)]
    {
        fixture.fake.project(|project| project.workspaces.push((id.to_owned(), directory)));
        assert_eq!(refused_field(fixture.run(None, &remove(id)).await), "workspace_id", "{id}");
    }
    assert!(!fixture.fake.received_targets().iter().any(|call| call.starts_with("DELETE")));
    fixture.fake.fault_once("DELETE", "/wrk_mine", Fault::Body("null"));
    assert_eq!(fixture.run(None, &remove("wrk_mine")).await.unwrap(), ControlResult::Workspace(None));
    let result = fixture.run(None, &remove("wrk_mine")).await.unwrap();
    assert!(
        matches!(&result, ControlResult::Workspace(Some(gone)) if gone.id.as_str() == "wrk_mine"),
        "{result:?}"
    );
    assert!(!std::path::Path::new(&directory).exists());
    fixture.fake.project(|project| project.has_workspaces = false);
    let off = fixture.run(None, &new_workspace("worktree", None)).await.unwrap_err();
    assert_eq!(fact(&off, "upstreamStatus"), Some("400"), "{off}");
    fixture.stop().await;
}

/// OpenCode deletes the sessions together with the workspace.
#[tokio::test]
async fn all_sessions_that_are_deleted_with_a_workspace_are_found() {
    let fixture = in_repository().await;
    let result = fixture.run(None, &new_workspace("worktree", Some("wrk_mine"))).await.unwrap();
    let ControlResult::Workspace(Some(made)) = result else { panic!("a workspace: {result:?}") };
    let directory = made.directory.unwrap();
    let inside = json!({"directory": directory, "workspaceID": "wrk_mine"});
    fixture.session_like("ses_inside", &inside);
    // OpenCode moved this session into the workspace on request, but the session still works in its old directory.
    fixture.session_like("ses_moved", &json!({"workspaceID": "wrk_mine"}));
    fixture.session_like("ses_below", &json!({"parentID": "ses_moved"}));
    fixture.session_like("ses_deeper", &json!({"parentID": "ses_below"}));
    for (beside, more) in [
        ("ses_root", json!({})),
        ("ses_there", json!({"directory": directory})),
        ("ses_other", json!({"workspaceID": "wrk_other"})),
    ] {
        fixture.session_like(beside, &more);
    }
    let workspace = async |id: &str| {
        let command = ControlCommand::RemoveWorkspace(WorkspaceId::parse(id).unwrap());
        fixture.agent.removes(&command).await.map(|removes| match removes {
            Removes::Place(place) => Some(place),
            Removes::Absent(result) if *result == ControlResult::Workspace(None) => None,
            other => panic!("{other:?}"),
        })
    };
    let found = workspace("wrk_mine").await.unwrap().expect("the workspace exists");
    assert_eq!(found.directory.as_deref(), Some(directory.as_str()));
    let mut sessions: Vec<_> = found
        .sessions
        .iter()
        .map(|one| (one.session.id.as_str(), one.parent.as_ref().map(SessionId::as_str)))
        .collect();
    sessions.sort_unstable();
    let expected = [
        ("ses_below", Some("ses_moved")),
        ("ses_deeper", Some("ses_below")),
        ("ses_inside", None),
        ("ses_moved", None),
    ];
    assert_eq!(sessions, expected);
    assert_eq!(workspace("wrk_none").await.unwrap(), None);
    let root = fixture.root().to_owned();
    fixture.fake.project(|project| project.workspaces.push(("wrk_root".to_owned(), root)));
    assert_eq!(refused_field(workspace("wrk_root").await), "workspace_id");
    // An unreadable session is an error, not overlooked.
    fixture.session_like("ses_malformed", &json!({"parentID": "../up", "workspaceID": "wrk_mine"}));
    assert_eq!(workspace("wrk_mine").await.unwrap_err().kind(), ErrorKind::UpstreamPayloadError);
    assert!(!fixture.fake.received_targets().iter().any(|call| call.starts_with("DELETE")));
    fixture.stop().await;
}
