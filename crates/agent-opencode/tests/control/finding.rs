//! Sessions and places, by the names that callers give them.

use longshore_engine::port::Known;
use longshore_model::{RequestedDirectory, RequestedLocation};
use longshore_testkit::fake_opencode::Fault;

use super::*;

fn id(id: &str) -> SessionId {
    SessionId::parse(id).expect("an id")
}

#[tokio::test]
async fn a_session_is_found_with_whom_it_works_for_and_whether_callers_may_be_there() {
    let bench = Bench::new();
    let outside = tempfile::tempdir().unwrap();
    let outside = std::fs::canonicalize(outside.path()).unwrap();
    let own = bench.session("ses_own");
    let below = bench.session_like("ses_below", &json!({"parentID": "ses_own", "workspaceID": "wrk_1"}));
    let away = bench.session_like("ses_away", &json!({"directory": outside}));
    let known =
        |session: &Session| Known { session: session.clone(), parent: None, workspace: None, is_open: true };
    assert_eq!(bench.agent.find(&own.id).await.unwrap(), Some(known(&own)));
    let expected = Known {
        parent: Some(id("ses_own")),
        workspace: Some(WorkspaceId::parse("wrk_1").unwrap()),
        ..known(&below)
    };
    assert_eq!(bench.agent.find(&below.id).await.unwrap(), Some(expected));
    let expected = Known { is_open: false, ..known(&away) };
    assert_eq!(bench.agent.find(&away.id).await.unwrap(), Some(expected));
    assert_eq!(bench.agent.find(&id("ses_none")).await.unwrap(), None);
    let before = bench.fake.log().len();
    assert_eq!(bench.agent.find(&id("msg_1")).await.unwrap(), None);
    assert_eq!(bench.fake.log().len(), before, "OpenCode fails at names of another kind");
    bench.stop().await;
}

/// Else it would be a session that nobody has.
#[tokio::test]
async fn a_session_whose_parent_is_not_understood_is_not_told() {
    let bench = Bench::new();
    for more in [json!({"parentID": "../x"}), json!({"workspaceID": "a b"}), json!({"parentID": 7})] {
        bench.session_like("ses_odd", &more);
        let refused = bench.agent.find(&id("ses_odd")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::UpstreamPayloadError, "{more}: {refused:?}");
    }
    bench.fake.fault_once("GET", "/session/ses_odd", Fault::Html);
    let refused = bench.agent.find(&id("ses_odd")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::UpstreamPayloadError);
    bench.stop().await;
}

#[tokio::test]
async fn a_place_that_is_refused_is_named_by_its_field() {
    let bench = Bench::new();
    std::fs::create_dir_all(format!("{}/sub", bench.root())).unwrap();
    let wish = |path: &str, field| RequestedLocation {
        directory: Some(RequestedDirectory { path: path.to_owned(), field }),
        workspace: None,
    };
    let root = bench.root().to_owned();
    bench.fake.project(|project| project.workspaces.push(("wrk_1".to_owned(), format!("{root}/sub"))));
    assert_eq!(bench.agent.place(&RequestedLocation::default()).await.unwrap(), root);
    assert_eq!(bench.agent.place(&wish("  ", "directory")).await.unwrap(), root);
    assert_eq!(bench.agent.place(&wish("sub", "directory")).await.unwrap(), format!("{root}/sub"));
    for field in ["directory", "metadata.opencode.directory"] {
        for path in ["..", "/etc", "sub/%2e%2e", "none"] {
            assert_eq!(refused_field(bench.agent.place(&wish(path, field)).await), field, "{path}");
        }
    }
    let asked: Vec<String> = bench.fake.log().into_iter().map(|request| request.path).collect();
    assert_eq!(asked, ["/experimental/workspace"]);
    // A workspace goes first.
    let both = RequestedLocation {
        workspace: Some(WorkspaceId::parse("wrk_1").unwrap()),
        ..wish("..", "directory")
    };
    assert_eq!(bench.agent.place(&both).await.unwrap(), format!("{root}/sub"));
    let none = RequestedLocation { workspace: Some(WorkspaceId::parse("wrk_2").unwrap()), directory: None };
    assert_eq!(refused_field(bench.agent.place(&none).await), "metadata.opencode.workspace.id");
    bench.stop().await;
}
