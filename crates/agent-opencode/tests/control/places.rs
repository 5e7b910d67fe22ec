//! Worktrees and workspaces: OpenCode deletes whatever it is told.

use longshore_model::{NewWorkspace, NewWorktree, WorktreeRef};
use longshore_testkit::fake_opencode::{Fault, Gate, News};

use super::*;

async fn in_a_repository() -> Bench {
    let bench = Bench::new();
    bench.fake.make_repository().await;
    bench
}

fn new_worktree(name: &str) -> ControlCommand {
    ControlCommand::CreateWorktree(NewWorktree { name: Some(name.to_owned()), start_command: None })
}

fn new_workspace(kind: &str, id: Option<&str>) -> ControlCommand {
    let id = id.map(|id| WorkspaceId::parse(id).expect("an id"));
    ControlCommand::CreateWorkspace(NewWorkspace { kind: kind.to_owned(), id, branch: None, extra: None })
}

async fn made(bench: &Bench, name: &str) -> longshore_model::Worktree {
    match bench.act(None, &new_worktree(name)).await.expect("a worktree") {
        ControlResult::Worktree(worktree) => worktree,
        told => panic!("a worktree: {told:?}"),
    }
}

fn of_directory(directory: &str) -> WorktreeRef {
    WorktreeRef::Directory(directory.to_owned())
}

#[tokio::test]
async fn a_worktree_is_told_when_it_can_be_used_and_is_reset_and_removed_by_either_name() {
    let bench = in_a_repository().await;
    for (name, news) in [("feat one", News::Ready), ("feat two", News::Early)] {
        bench.fake.project(|project| project.news = news);
        let worktree = made(&bench, name).await;
        let file = |name: &str| std::path::Path::new(&worktree.directory).join(name);
        assert!(file("README.md").exists(), "its files are there");
        assert_eq!(worktree.branch, Some(format!("opencode/{}", worktree.name)));
        // Callers may work there at once.
        let wish = longshore_model::RequestedLocation {
            directory: Some(longshore_model::RequestedDirectory {
                path: worktree.directory.clone(),
                field: "directory",
            }),
            workspace: None,
        };
        assert_eq!(bench.agent.place(&wish).await.unwrap(), worktree.directory);
        std::fs::write(file("mess"), "").unwrap();
        let named = WorktreeRef::Name(worktree.name.clone());
        assert_eq!(bench.agent.worktree(&named).await.unwrap(), worktree.directory);
        assert_eq!(
            bench.act(None, &ControlCommand::ResetWorktree(named)).await.unwrap(),
            ControlResult::Ok(true)
        );
        assert!(!file("mess").exists() && file("README.md").exists());
        let crooked = format!("{}/../{}", worktree.directory, worktree.name);
        let removed = bench.act(None, &ControlCommand::RemoveWorktree(of_directory(&crooked))).await.unwrap();
        assert_eq!(removed, ControlResult::Ok(true));
        assert_eq!(bench.fake.removed().last(), Some(&worktree.directory), "in OpenCode's own spelling");
        assert_eq!(refused_field(bench.agent.place(&wish).await), "directory", "and not any more");
    }
    bench.stop().await;
}

#[tokio::test]
async fn nothing_but_a_worktree_of_the_own_repository_is_ever_removed_or_reset() {
    let bench = in_a_repository().await;
    let own = made(&bench, "own").await;
    let beside = tempfile::tempdir().unwrap();
    let beside = std::fs::canonicalize(beside.path()).unwrap();
    let at = |name: &str| beside.join(name).to_str().unwrap().to_owned();
    let (plain, clone, listed) = (at("plain"), at("clone"), at("listed"));
    for directory in [&plain, &listed] {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::fs::create_dir_all(format!("{clone}/.git/objects")).unwrap();
    std::os::unix::fs::symlink(&clone, at("link")).unwrap();
    let inside = format!("{}/sub", bench.root());
    std::fs::create_dir_all(&inside).unwrap();
    let deep = format!("{}/deep", own.directory);
    std::fs::create_dir_all(&deep).unwrap();
    // The real one lists every clone that it ever saw, and the root when that is a worktree.
    let root = bench.root().to_owned();
    let above = std::path::Path::new(&root).parent().unwrap().to_str().unwrap().to_owned();
    bench.fake.project(|project| {
        project.worktrees.extend([clone.clone(), listed.clone(), root.clone(), above.clone(), at("link")]);
    });
    let before = bench.fake.removed();
    let log = |bench: &Bench| {
        let changes = |call: &&String| !call.starts_with("GET ");
        bench.fake.arrived().iter().filter(changes).count()
    };
    let calls = log(&bench);
    let wanted = [
        root.as_str(),
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
        for act in [
            ControlCommand::RemoveWorktree(of_directory(directory)),
            ControlCommand::ResetWorktree(of_directory(directory)),
        ] {
            assert_eq!(refused_field(bench.act(None, &act).await), "request.directory", "{directory}");
        }
        assert_eq!(refused_field(bench.agent.worktree(&of_directory(directory)).await), "request.directory");
    }
    let name = |name: &str| WorktreeRef::Name(name.to_owned());
    let of_root = std::path::Path::new(&root).file_name().unwrap().to_str().unwrap();
    for wanted in ["clone", "listed", "plain", "sub", "..", "", "/", of_root, "nothing", "link"] {
        for act in [ControlCommand::RemoveWorktree(name(wanted)), ControlCommand::ResetWorktree(name(wanted))]
        {
            assert_eq!(refused_field(bench.act(None, &act).await), "request.name", "{wanted}");
        }
    }
    assert_eq!((bench.fake.removed(), log(&bench)), (before, calls), "OpenCode was told of none of them");
    for directory in [&plain, &clone, &listed, &inside, &own.directory] {
        assert!(std::path::Path::new(directory).exists(), "{directory}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_worktree_whose_news_are_late_or_lost_is_waited_for_and_one_that_failed_is_told() {
    let bench = in_a_repository().await;
    let gate = Gate::new();
    bench.fake.project(|project| project.news = News::Late(gate.clone()));
    let (late, ()) = tokio::join!(made(&bench, "late"), async {
        gate.reached().await;
        gate.open();
    });
    assert_eq!(late.name, "late");
    // The stream breaks after the answer: the disk tells.
    bench.fake.project(|project| project.news = News::Lost);
    let (lost, ()) = tokio::join!(made(&bench, "lost"), async {
        bench.fake.requested("POST", "/experimental/worktree", 2).await;
        bench.fake.end_global_streams();
    });
    assert!(std::path::Path::new(&lost.directory).join("README.md").exists());
    bench.fake.project(|project| project.news = News::Failed("cannot write /home/me/x"));
    let failed = bench.act(None, &new_worktree("bad")).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::UpstreamPayloadError);
    assert_eq!(fact(&failed, "detail"), Some("cannot write <redacted-path>"));
    bench.stop().await;
}

#[tokio::test]
async fn nothing_is_made_when_opencode_cannot_be_heard_and_nothing_twice() {
    let bench = in_a_repository().await;
    bench.fake.fault_once("GET", "/global/event", Fault::Html);
    let deaf = bench.act(None, &new_worktree("one")).await.unwrap_err();
    assert_eq!(deaf.kind(), ErrorKind::UpstreamPayloadError, "{deaf}");
    assert!(!deaf.message().contains("may have been done"), "{deaf}");
    let calls = |bench: &Bench| {
        bench.fake.arrived().iter().filter(|call| call.starts_with("POST /experimental/worktree")).count()
    };
    assert_eq!(calls(&bench), 0);
    bench.fake.fault_once("POST", "/experimental/worktree", Fault::CutAfter);
    let cut = bench.act(None, &new_worktree("two")).await.unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::UpstreamUnreachable);
    assert!(cut.message().contains("may have been done"), "{cut}");
    assert_eq!(calls(&bench), 1);
    let plain = Bench::new();
    let refused = plain.act(None, &new_worktree("three")).await.unwrap_err();
    assert_eq!(
        (refused.kind(), fact(&refused, "upstreamStatus")),
        (ErrorKind::UpstreamHttpError, Some("400"))
    );
    plain.stop().await;
    bench.stop().await;
}

/// O9, and what only shows in OpenCode's own database.
#[tokio::test]
async fn workspaces_are_made_and_removed_by_name() {
    let bench = in_a_repository().await;
    bench.fake.project(|project| project.has_workspaces = true);
    let told = bench.act(None, &new_workspace("worktree", Some("wrk_mine"))).await.unwrap();
    let ControlResult::Workspace(Some(made)) = told else { panic!("a workspace: {told:?}") };
    let directory = made.directory.unwrap();
    assert_eq!(made.id.as_str(), "wrk_mine");
    assert!(std::path::Path::new(&directory).join("README.md").exists());
    assert_eq!(
        refused_field(bench.act(None, &new_workspace("worktree", Some("wrk_mine"))).await),
        "request.id"
    );
    let git = bench.act(None, &new_workspace("git", None)).await.unwrap_err();
    assert_eq!(
        (git.kind(), fact(&git, "detail")),
        (ErrorKind::UpstreamHttpError, Some("Unknown workspace adapter: git"))
    );
    // That of another project is none.
    let remove = |id: &str| ControlCommand::RemoveWorkspace(WorkspaceId::parse(id).unwrap());
    assert_eq!(bench.act(None, &remove("wrk_none")).await.unwrap(), ControlResult::Workspace(None));
    let root = bench.root().to_owned();
    bench.fake.project(|project| project.workspaces.push(("wrk_root".to_owned(), root)));
    assert_eq!(refused_field(bench.act(None, &remove("wrk_root")).await), "workspace_id");
    assert!(!bench.fake.arrived().iter().any(|call| call.starts_with("DELETE")));
    bench.fake.fault_once("DELETE", "/wrk_mine", Fault::Body("null"));
    assert_eq!(bench.act(None, &remove("wrk_mine")).await.unwrap(), ControlResult::Workspace(None));
    let told = bench.act(None, &remove("wrk_mine")).await.unwrap();
    assert!(
        matches!(&told, ControlResult::Workspace(Some(gone)) if gone.id.as_str() == "wrk_mine"),
        "{told:?}"
    );
    assert!(!std::path::Path::new(&directory).exists());
    bench.fake.project(|project| project.has_workspaces = false);
    let off = bench.act(None, &new_workspace("worktree", None)).await.unwrap_err();
    assert_eq!(fact(&off, "upstreamStatus"), Some("400"), "{off}");
    bench.stop().await;
}

/// OpenCode deletes them with it.
#[tokio::test]
async fn all_sessions_that_go_with_a_workspace_are_known() {
    let bench = in_a_repository().await;
    let told = bench.act(None, &new_workspace("worktree", Some("wrk_mine"))).await.unwrap();
    let ControlResult::Workspace(Some(made)) = told else { panic!("a workspace: {told:?}") };
    let directory = made.directory.unwrap();
    let inside = json!({"directory": directory, "workspaceID": "wrk_mine"});
    bench.session_like("ses_inside", &inside);
    // Somebody had OpenCode move it there, and it works where it was.
    bench.session_like("ses_moved", &json!({"workspaceID": "wrk_mine"}));
    bench.session_like("ses_below", &json!({"parentID": "ses_moved"}));
    bench.session_like("ses_deeper", &json!({"parentID": "ses_below"}));
    for (beside, more) in [
        ("ses_root", json!({})),
        ("ses_there", json!({"directory": directory})),
        ("ses_other", json!({"workspaceID": "wrk_other"})),
    ] {
        bench.session_like(beside, &more);
    }
    let workspace = async |id: &str| bench.agent.workspace(&WorkspaceId::parse(id).unwrap()).await;
    let found = workspace("wrk_mine").await.unwrap().expect("it is there");
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
    let root = bench.root().to_owned();
    bench.fake.project(|project| project.workspaces.push(("wrk_root".to_owned(), root)));
    assert_eq!(refused_field(workspace("wrk_root").await), "workspace_id");
    // None is overlooked for being strange.
    bench.session_like("ses_strange", &json!({"parentID": "../up", "workspaceID": "wrk_mine"}));
    assert_eq!(workspace("wrk_mine").await.unwrap_err().kind(), ErrorKind::UpstreamPayloadError);
    assert!(!bench.fake.arrived().iter().any(|call| call.starts_with("DELETE")));
    bench.stop().await;
}
