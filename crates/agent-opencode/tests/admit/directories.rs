//! Directories and workspaces.

use longshore_engine::port::Control as _;
use longshore_model::{RequestedDirectory, RequestedLocation};
use longshore_testkit::fake_opencode::Fault;

use super::*;

#[tokio::test]
async fn directories_of_the_workspace_are_resolved_and_cost_no_request() {
    let bench = Bench::new();
    let (root, deep) = (bench.fake.directory().to_owned(), bench.inside("a b/100% more"));
    make(&deep);
    std::os::unix::fs::symlink(&deep, bench.inside("link")).unwrap();
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
    for (wish, expected) in cases {
        assert_eq!(bench.in_directory(wish).await.unwrap(), *expected, "{wish:?}");
    }
    assert_eq!(bench.with_options(&PromptOptions::default()).await.unwrap(), root);
    assert_eq!(bench.fake.log(), []);
    bench.stop().await;
}

/// All that is out of bounds reads the same, whether it exists or not. OpenCode is asked for its workspaces once, and hears of none
/// of it.
#[tokio::test]
async fn what_is_out_of_bounds_is_refused_before_opencode_hears_of_it() {
    let bench = Bench::new();
    make(&bench.outside("there"));
    make(&bench.inside("in"));
    make(&bench.inside("%41"));
    make(&format!("{}-sibling", bench.fake.directory()));
    std::fs::write(bench.inside("file"), "").unwrap();
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, bench.inside(name)).unwrap();
    link(&bench.outside("there"), "way-out");
    link("/", "in/top");
    link(&bench.inside("%41"), "alias");
    link("loop", "loop");
    let (there, sibling) = (bench.outside("there"), format!("{}-sibling", bench.fake.directory()));
    let out = "The directory must exist, and be in the gateway's workspace or in a worktree or workspace of its project that \
               OpenCode lists.";
    let odd = "A directory's path cannot have control characters, nor a percent sign with two hexadecimal digits behind \
               it: OpenCode would read another path.";
    let renamed = "OpenCode cannot work in a directory with such a path; choose or rename another.";
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
        ("file", out),
        ("file/..", out),
        ("way-out", out),
        ("way-out/..", out),
        ("in/top/etc", out),
        ("loop", out),
        (&there, out),
        (&sibling, out),
        (&long, out),
        ("%41", odd),
        ("%2e%2e", odd),
        ("in%2f..%2f..", odd),
        ("in\0", odd),
        ("in\nx", odd),
        ("\u{1b}[2J", odd),
        ("alias", renamed),
    ];
    for (wish, expected) in cases {
        let (field, said) = refusal(&bench, bench.in_directory(wish).await);
        assert_eq!((field.as_str(), said.as_str()), ("metadata.opencode.directory", expected), "{wish:?}");
    }
    assert_eq!(bench.asked(&mut 0), ["/experimental/workspace"]);
    std::fs::remove_dir(sibling).unwrap();
    bench.stop().await;
}

#[tokio::test]
async fn with_the_override_off_only_the_root_passes() {
    let bench = Bench::with(false, PromptOptions::default());
    make(&bench.inside("in"));
    bench.make_worktree(&bench.outside("side"));
    bench.fake.project(|project| {
        project.worktrees.push(bench.outside("side"));
        project.workspaces.push(("wrk_1".to_owned(), bench.outside("side")));
    });
    assert_eq!(bench.in_directory(".").await.unwrap(), bench.fake.directory());
    for wish in ["in", &bench.outside("side"), "/etc"] {
        let (field, said) = refusal(&bench, bench.in_directory(wish).await);
        assert_eq!(field, "metadata.opencode.directory");
        assert_eq!(said, "This gateway works in the root of its workspace only; leave this out.");
    }
    let workspace = bench.admit(None, Some("wrk_1"), &PromptOptions::default()).await;
    assert_eq!(refusal(&bench, workspace).0, "metadata.opencode.workspace.id");
    assert_eq!(bench.fake.log(), []);
    bench.stop().await;
}

#[tokio::test]
async fn a_worktree_outside_is_one_when_the_disk_and_opencode_say_so() {
    let bench = Bench::new();
    let (listed, unlisted, sandbox) =
        (bench.outside("listed"), bench.outside("unlisted"), bench.outside("sandbox"));
    for worktree in [&listed, &unlisted, &sandbox] {
        bench.make_worktree(worktree);
        make(&format!("{worktree}/deep"));
    }
    // OpenCode lists it, and it has nothing to do with the repository.
    let stranger = bench.outside("stranger");
    make(&stranger);
    bench.fake.project(|project| {
        project.worktrees = vec![listed.clone(), stranger.clone(), "/nowhere".to_owned()];
        project.sandboxes.push(sandbox.clone());
    });
    let mut seen = 0;
    assert_eq!(refusal(&bench, bench.in_directory(&stranger).await).0, "metadata.opencode.directory");
    assert_eq!(bench.asked(&mut seen), ["/experimental/workspace"]);

    let deep = format!("{listed}/deep");
    for worktree in [&listed, &deep, &sandbox] {
        assert_eq!(bench.in_directory(worktree).await.unwrap(), **worktree);
    }
    let lists = ["/experimental/worktree", "/project/current", "/experimental/workspace"];
    assert_eq!(bench.asked(&mut seen), lists, "each list once for all");
    // A list that was just read is not read again for what it does not hold.
    for _ in 0..2 {
        assert_eq!(refusal(&bench, bench.in_directory(&unlisted).await).0, "metadata.opencode.directory");
    }
    assert_eq!(bench.asked(&mut seen), <[&str; 0]>::default());
    bench.stop().await;
}

/// However OpenCode made it: it is taken by its directory as it is by its name, and so is what is below it.
#[tokio::test]
async fn a_workspace_that_opencode_lists_is_in_bounds() {
    let bench = Bench::new();
    let (place, beside) = (bench.outside("place"), bench.outside("place-beside"));
    let deep = format!("{place}/deep");
    for directory in [&deep, &beside] {
        make(directory);
    }
    let link = bench.outside("link");
    std::os::unix::fs::symlink(&place, &link).unwrap();
    // It holds the root and everything else here.
    let above = std::path::Path::new(bench.fake.directory()).parent().unwrap().to_str().unwrap().to_owned();
    bench.fake.project(|project| {
        let listed = [("wrk_1", link), ("wrk_gone", bench.outside("gone")), ("wrk_above", above.clone())];
        project.workspaces = listed.map(|(id, directory)| (id.to_owned(), directory)).into();
    });
    for (directory, id) in [(&place, "ses_there"), (&deep, "ses_deep")] {
        assert_eq!(bench.in_directory(directory).await.unwrap(), *directory);
        bench.fake.add_session(id, directory);
        let session = bench.agent.find_session(&SessionId::parse(id).unwrap()).await.unwrap();
        assert_eq!(session.map(|session| session.directory).as_ref(), Some(directory));
    }
    assert_eq!(bench.in_directory(&above).await.unwrap(), above);
    for out in [beside.as_str(), "/etc"] {
        assert_eq!(refusal(&bench, bench.in_directory(out).await).0, "metadata.opencode.directory", "{out}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_worktree_that_nobody_can_confirm_is_no_fault_of_the_caller() {
    for is_up in [false, true] {
        let bench = Bench::new();
        bench.make_worktree(&bench.outside("side"));
        if is_up {
            bench.fake.fault_always("GET", "/experimental/worktree", Fault::Status(500));
        } else {
            bench.fake.kill().await;
        }
        let error = bench.in_directory(&bench.outside("side")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AgentUnavailable, "{error}");
        // In the words of those who control OpenCode.
        let directory = Some(RequestedDirectory { path: bench.outside("side"), field: "directory" });
        let error = bench.agent.place(&RequestedLocation { directory, workspace: None }).await.unwrap_err();
        let status = error.details().iter().find(|(name, _)| name == "upstreamStatus");
        let told = (error.kind(), status.map(|(_, status)| status.as_str()), error.retry_after().is_some());
        let expected = if is_up {
            (ErrorKind::UpstreamHttpError, Some("500"), true)
        } else {
            (ErrorKind::UpstreamUnreachable, None, true)
        };
        assert_eq!(told, expected, "{error}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_workspace_of_opencode_is_found_by_its_name() {
    let bench = Bench::new();
    let (place, gone) = (bench.outside("place"), bench.outside("gone"));
    make(&place);
    bench.fake.project(|project| {
        project.workspaces = vec![("wrk_1".to_owned(), place.clone()), ("wrk_2".to_owned(), gone)];
    });
    let none = PromptOptions::default();
    let mut seen = 0;
    for no_id in ["nonsense", "../wrk_1", "%77rk_1"] {
        let (field, _) = refusal(&bench, bench.admit(None, Some(no_id), &none).await);
        assert_eq!(field, "metadata.opencode.workspace.id", "{no_id}");
    }
    assert_eq!(bench.asked(&mut seen), <[&str; 0]>::default());
    assert_eq!(bench.admit(None, Some(" wrk_1 "), &none).await.unwrap(), place);
    assert_eq!(bench.admit(Some(&place), Some("wrk_1"), &none).await.unwrap(), place);
    // A directory beside it is not looked at.
    for other in [".", "/etc", "nowhere", "%41", bench.fake.directory()] {
        assert_eq!(bench.admit(Some(other), Some("wrk_1"), &none).await.unwrap(), place, "{other}");
    }
    for (unknown, beside) in [("wrk_2", None), ("wrk_3", None), ("wrk_3", Some("."))] {
        let (field, _) = refusal(&bench, bench.admit(beside, Some(unknown), &none).await);
        assert_eq!(field, "metadata.opencode.workspace.id", "{unknown}");
    }
    assert_eq!(bench.asked(&mut seen), ["/experimental/workspace"]);
    bench.stop().await;
}

/// An OpenCode that knows no workspaces answers with its web page, or an error.
#[tokio::test]
async fn no_workspaces_at_all_is_no_workspace_of_that_name() {
    for fault in [Fault::Html, Fault::Status(500)] {
        let bench = Bench::new();
        bench.fake.fault_always("GET", "/experimental/workspace", fault);
        let refused = bench.admit(None, Some("wrk_1"), &PromptOptions::default()).await;
        assert_eq!(refusal(&bench, refused).0, "metadata.opencode.workspace.id");
        bench.stop().await;
    }
}
