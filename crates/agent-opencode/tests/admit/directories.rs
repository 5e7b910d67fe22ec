//! Directories and workspaces.

use longshore_engine::port::Control as _;
use longshore_model::{RequestedDirectory, RequestedLocation};
use longshore_testkit::fake_opencode::Fault;

use super::*;

#[tokio::test]
async fn directories_of_the_workspace_are_resolved_and_cost_no_request() {
    let fixture = Fixture::new();
    let (root, deep) = (fixture.fake.directory().to_owned(), fixture.inside("a b/100% more"));
    make(&deep);
    std::os::unix::fs::symlink(&deep, fixture.inside("link")).unwrap();
    let cases = [
        ("", &root),
        ("  \n", &root),
        (".", &root),
        (root.as_str(), &root),
        ("a b/..", &root),
        ("a b/100% more", &deep),
        (" a b/./100% more/ ", &deep),
        (deep.as_str(), &deep),
        ("link", &deep),
    ];
    for (requested, expected) in cases {
        assert_eq!(fixture.in_directory(requested).await.unwrap(), *expected, "{requested:?}");
    }
    assert_eq!(fixture.with_options(&PromptOptions::default()).await.unwrap(), root);
    assert_eq!(fixture.fake.log(), []);
    fixture.stop().await;
}

/// The data directory of the gateway is no place to work in, however it is spelled. The refusal is that of any other directory.
#[tokio::test]
async fn a_directory_of_the_gateway_is_refused() {
    let fixture = Fixture::new();
    make(&fixture.inside("secrets/below"));
    make(&fixture.inside("src"));
    make(&fixture.inside("secrets-not"));
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, fixture.inside(name)).unwrap();
    link("secrets", "link");
    link("../link/below", "src/link-to-link");
    link("..", "src/up");
    let refused = [
        "secrets",
        "secrets/",
        "./secrets",
        "secrets/.",
        "secrets//below",
        "secrets/below",
        "src/../secrets",
        "secrets/below/..",
        "link",
        "link/below",
        "link/../secrets",
        "src/link-to-link",
        "src/up/secrets",
        "src/up/link",
        " secrets ",
    ];
    let through_proc = format!("/proc/self/root{}", fixture.inside("secrets"));
    let (absolute, doubled) = (fixture.inside("secrets"), fixture.inside("/secrets//below"));
    for requested in refused.into_iter().chain([absolute.as_str(), &doubled, &through_proc]) {
        let error = fixture.in_directory(requested).await.expect_err(requested);
        let expected = fixture.in_directory("missing").await.expect_err("there is no such directory");
        assert_eq!(error.message(), expected.message(), "{requested}");
    }
    for allowed in ["src", "secrets-not", "src/up"] {
        fixture.in_directory(allowed).await.expect(allowed);
    }
    fixture.stop().await;
}

/// OpenCode can list a workspace there. Its id is refused like an unknown one.
#[tokio::test]
async fn a_workspace_in_a_directory_of_the_gateway_is_refused() {
    let fixture = Fixture::new();
    let (secrets, below, link) =
        (fixture.inside("secrets"), fixture.inside("secrets/below"), fixture.inside("link"));
    make(&below);
    std::os::unix::fs::symlink("secrets", &link).unwrap();
    let listed = [("wrk_1", secrets), ("wrk_2", below), ("wrk_3", link)];
    fixture.fake.project(|project| {
        project.workspaces = listed.map(|(id, directory)| (id.to_owned(), directory)).to_vec();
    });
    let none = PromptOptions::default();
    let unknown = refusal(&fixture, fixture.admit(None, Some("wrk_unknown"), &none).await);
    for id in ["wrk_1", "wrk_2", "wrk_3"] {
        assert_eq!(refusal(&fixture, fixture.admit(None, Some(id), &none).await), unknown, "{id}");
    }
    fixture.stop().await;
}

/// All refusals read the same, whether the directory exists or not. OpenCode is asked for its workspaces once, and never gets
/// one of these paths.
#[tokio::test]
async fn a_directory_out_of_bounds_is_refused_without_sending_it_to_opencode() {
    let fixture = Fixture::new();
    make(&fixture.outside("there"));
    make(&fixture.inside("in"));
    make(&fixture.inside("%41"));
    make(&format!("{}-sibling", fixture.fake.directory()));
    std::fs::write(fixture.inside("file"), "").unwrap();
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, fixture.inside(name)).unwrap();
    link(&fixture.outside("there"), "way-out");
    link("/", "in/top");
    link(&fixture.inside("%41"), "alias");
    link("loop", "loop");
    let (there, sibling) = (fixture.outside("there"), format!("{}-sibling", fixture.fake.directory()));
    let out = "The directory must exist, and be in the gateway's workspace, in a directory that its operator allowed, or in a \
               worktree or workspace of its project that OpenCode lists.";
    let unsafe_path = "A directory's path must not contain control characters, nor a percent sign followed by two hexadecimal \
               digits: OpenCode would read it as another path.";
    let renamed = "OpenCode cannot work in a directory with such a path; choose another, or rename it.";
    let long = "x/".repeat(5000);
    let cases = [
        ("..", out),
        ("../..", out),
        ("in/../..", out),
        ("/", out),
        ("/etc", out),
        ("/nowhere/at/all", out),
        ("nowhere", out),
        ("~", out),
        ("~root", out),
        ("file:///etc", out),
        ("\\..\\..", out),
        ("file", out),
        ("file/..", out),
        ("way-out", out),
        ("way-out/..", out),
        ("in/top/etc", out),
        ("loop", out),
        (&there, out),
        (&sibling, out),
        (&long, out),
        ("%41", unsafe_path),
        ("%2e%2e", unsafe_path),
        ("%252e%252e", unsafe_path),
        ("in%2f..%2f..", unsafe_path),
        ("in\0", unsafe_path),
        ("in\nx", unsafe_path),
        ("\u{1b}[2J", unsafe_path),
        ("alias", renamed),
    ];
    for (requested, expected) in cases {
        let (field, text) = refusal(&fixture, fixture.in_directory(requested).await);
        assert_eq!(
            (field.as_str(), text.as_str()),
            ("metadata.opencode.directory", expected),
            "{requested:?}"
        );
    }
    assert_eq!(fixture.asked(&mut 0), ["/experimental/workspace"]);
    std::fs::remove_dir(sibling).unwrap();
    fixture.stop().await;
}

#[tokio::test]
async fn with_the_override_off_only_the_root_is_allowed() {
    let fixture = Fixture::with(false, PromptOptions::default());
    make(&fixture.inside("in"));
    fixture.make_worktree(&fixture.outside("side"));
    fixture.fake.project(|project| {
        project.worktrees.push(fixture.outside("side"));
        project.workspaces.push(("wrk_1".to_owned(), fixture.outside("side")));
    });
    assert_eq!(fixture.in_directory(".").await.unwrap(), fixture.fake.directory());
    for requested in ["in", &fixture.outside("side"), "/etc"] {
        let (field, text) = refusal(&fixture, fixture.in_directory(requested).await);
        assert_eq!(field, "metadata.opencode.directory");
        assert_eq!(text, "This gateway works in the root of its workspace only; leave this field out.");
    }
    let workspace = fixture.admit(None, Some("wrk_1"), &PromptOptions::default()).await;
    assert_eq!(refusal(&fixture, workspace).0, "metadata.opencode.workspace.id");
    assert_eq!(fixture.fake.log(), []);
    fixture.stop().await;
}

#[tokio::test]
async fn a_worktree_outside_the_root_is_allowed_when_the_disk_and_opencode_confirm_it() {
    let fixture = Fixture::new();
    let (listed, unlisted, sandbox) =
        (fixture.outside("listed"), fixture.outside("unlisted"), fixture.outside("sandbox"));
    for worktree in [&listed, &unlisted, &sandbox] {
        fixture.make_worktree(worktree);
        make(&format!("{worktree}/deep"));
    }
    // OpenCode lists this directory, but it does not belong to the repository.
    let foreign = fixture.outside("foreign");
    make(&foreign);
    fixture.fake.project(|project| {
        project.worktrees = vec![listed.clone(), foreign.clone(), "/nowhere".to_owned()];
        project.sandboxes.push(sandbox.clone());
    });
    let mut seen = 0;
    assert_eq!(refusal(&fixture, fixture.in_directory(&foreign).await).0, "metadata.opencode.directory");
    assert_eq!(fixture.asked(&mut seen), ["/experimental/workspace"]);

    let deep = format!("{listed}/deep");
    for worktree in [&listed, &deep, &sandbox] {
        assert_eq!(fixture.in_directory(worktree).await.unwrap(), **worktree);
    }
    let lists = ["/experimental/worktree", "/project/current", "/experimental/workspace"];
    assert_eq!(fixture.asked(&mut seen), lists, "each list is read once");
    // A list that was just read is not read again for a missing entry.
    for _ in 0..2 {
        assert_eq!(refusal(&fixture, fixture.in_directory(&unlisted).await).0, "metadata.opencode.directory");
    }
    assert_eq!(fixture.asked(&mut seen), <[&str; 0]>::default());
    fixture.stop().await;
}

/// However OpenCode created the workspace: callers may name it by its directory or its id, and work below it.
#[tokio::test]
async fn a_workspace_that_opencode_lists_is_allowed() {
    let fixture = Fixture::new();
    let (inside, beside) = (fixture.outside("inside"), fixture.outside("inside-beside"));
    let deep = format!("{inside}/deep");
    for directory in [&deep, &beside] {
        make(directory);
    }
    let link = fixture.outside("link");
    std::os::unix::fs::symlink(&inside, &link).unwrap();
    // This workspace contains the root and everything else here.
    let above = std::path::Path::new(fixture.fake.directory()).parent().unwrap().to_str().unwrap().to_owned();
    fixture.fake.project(|project| {
        let listed = [("wrk_1", link), ("wrk_gone", fixture.outside("gone")), ("wrk_above", above.clone())];
        project.workspaces = listed.map(|(id, directory)| (id.to_owned(), directory)).into();
    });
    for (directory, id) in [(&inside, "ses_there"), (&deep, "ses_deep")] {
        assert_eq!(fixture.in_directory(directory).await.unwrap(), *directory);
        fixture.fake.add_session(id, directory);
        let session = fixture.agent.find_session(&SessionId::parse(id).unwrap()).await.unwrap();
        assert_eq!(session.map(|session| session.directory).as_ref(), Some(directory));
    }
    assert_eq!(fixture.in_directory(&above).await.unwrap(), above);
    for out in [beside.as_str(), "/etc"] {
        assert_eq!(
            refusal(&fixture, fixture.in_directory(out).await).0,
            "metadata.opencode.directory",
            "{out}"
        );
    }
    fixture.stop().await;
}

#[tokio::test]
async fn a_worktree_that_cannot_be_confirmed_is_a_failure_of_opencode_and_not_of_the_caller() {
    for is_up in [false, true] {
        let fixture = Fixture::new();
        fixture.make_worktree(&fixture.outside("side"));
        if is_up {
            fixture.fake.fault_always("GET", "/experimental/worktree", Fault::Status(500));
        } else {
            fixture.fake.kill().await;
        }
        let error = fixture.in_directory(&fixture.outside("side")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AgentUnavailable, "{error}");
        // The same as an error of the control methods.
        let directory = Some(RequestedDirectory { path: fixture.outside("side"), field: "directory" });
        let error = fixture
            .agent
            .resolve_location(&RequestedLocation { directory, workspace: None })
            .await
            .unwrap_err();
        let status = error.details().iter().find(|(name, _)| name == "upstreamStatus");
        let seen = (error.kind(), status.map(|(_, status)| status.as_str()), error.retry_after().is_some());
        let expected = if is_up {
            (ErrorKind::UpstreamHttpError, Some("500"), true)
        } else {
            (ErrorKind::UpstreamUnreachable, None, true)
        };
        assert_eq!(seen, expected, "{error}");
        fixture.stop().await;
    }
}

#[tokio::test]
async fn an_opencode_workspace_is_found_by_its_id() {
    let fixture = Fixture::new();
    let (existing, gone) = (fixture.outside("existing"), fixture.outside("gone"));
    make(&existing);
    fixture.fake.project(|project| {
        project.workspaces = vec![("wrk_1".to_owned(), existing.clone()), ("wrk_2".to_owned(), gone)];
    });
    let none = PromptOptions::default();
    let mut seen = 0;
    for no_id in ["nonsense", "../wrk_1", "%77rk_1"] {
        let (field, _) = refusal(&fixture, fixture.admit(None, Some(no_id), &none).await);
        assert_eq!(field, "metadata.opencode.workspace.id", "{no_id}");
    }
    assert_eq!(fixture.asked(&mut seen), <[&str; 0]>::default());
    assert_eq!(fixture.admit(None, Some(" wrk_1 "), &none).await.unwrap(), existing);
    assert_eq!(fixture.admit(Some(&existing), Some("wrk_1"), &none).await.unwrap(), existing);
    // A directory given together with a workspace is ignored.
    for other in [".", "/etc", "nowhere", "%41", fixture.fake.directory()] {
        assert_eq!(fixture.admit(Some(other), Some("wrk_1"), &none).await.unwrap(), existing, "{other}");
    }
    for (unknown, beside) in [("wrk_2", None), ("wrk_3", None), ("wrk_3", Some("."))] {
        let (field, _) = refusal(&fixture, fixture.admit(beside, Some(unknown), &none).await);
        assert_eq!(field, "metadata.opencode.workspace.id", "{unknown}");
    }
    assert_eq!(fixture.asked(&mut seen), ["/experimental/workspace"]);
    fixture.stop().await;
}

/// An OpenCode without workspaces answers with its web page, or an error.
#[tokio::test]
async fn without_any_workspaces_an_id_is_refused_as_unknown() {
    for fault in [Fault::Html, Fault::Status(500)] {
        let fixture = Fixture::new();
        fixture.fake.fault_always("GET", "/experimental/workspace", fault);
        let refused = fixture.admit(None, Some("wrk_1"), &PromptOptions::default()).await;
        assert_eq!(refusal(&fixture, refused).0, "metadata.opencode.workspace.id");
        fixture.stop().await;
    }
}

#[tokio::test]
async fn a_root_that_the_operator_opened_is_allowed_with_everything_below_it() {
    let mut fixture = Fixture::new();
    let (open, closed) = (fixture.outside("open"), fixture.outside("open-not"));
    for directory in [&format!("{open}/below"), &closed] {
        make(directory);
    }
    assert!(fixture.in_directory(&open).await.is_err(), "no root is opened yet");
    fixture.agent = fixture.agent.with_roots(vec![open.clone().into()]);
    for directory in [open.clone(), format!("{open}/below"), format!("{open}/below/..")] {
        let expected = std::fs::canonicalize(&directory).unwrap();
        assert_eq!(fixture.in_directory(&directory).await.unwrap(), expected.to_str().unwrap());
    }
    for directory in [closed, format!("{open}/.."), format!("{open}/missing")] {
        refusal(&fixture, fixture.in_directory(&directory).await);
    }
    fixture.stop().await;

    let mut fixture = Fixture::with(false, PromptOptions::default());
    let open = fixture.outside("open");
    make(&open);
    fixture.agent = fixture.agent.with_roots(vec![open.clone().into()]);
    assert!(fixture.in_directory(&open).await.is_err(), "with the override off only the root is allowed");
    fixture.stop().await;
}
