//! Looks up sessions and directories by the names that callers give.

use longshore_engine::port::KnownSession;
use longshore_model::{RequestedDirectory, RequestedLocation};
use longshore_testkit::fake_opencode::Fault;

use super::*;

fn id(id: &str) -> SessionId {
    SessionId::parse(id).expect("an id")
}

#[tokio::test]
async fn a_session_is_found_with_its_parent_and_whether_callers_may_use_its_directory() {
    let fixture = Fixture::new();
    let outside = tempfile::tempdir().unwrap();
    let outside = std::fs::canonicalize(outside.path()).unwrap();
    let own = fixture.session("ses_own");
    let below = fixture.session_like("ses_below", &json!({"parentID": "ses_own", "workspaceID": "wrk_1"}));
    let away = fixture.session_like("ses_away", &json!({"directory": outside}));
    let known = |session: &Session| KnownSession {
        session: session.clone(),
        parent: None,
        is_followed: true,
        is_open: true,
    };
    assert_eq!(fixture.agent.find(&own.id).await.unwrap(), Some(known(&own)));
    let expected = KnownSession { parent: Some(id("ses_own")), is_followed: false, ..known(&below) };
    assert_eq!(fixture.agent.find(&below.id).await.unwrap(), Some(expected));
    let expected = KnownSession { is_open: false, ..known(&away) };
    assert_eq!(fixture.agent.find(&away.id).await.unwrap(), Some(expected));
    assert_eq!(fixture.agent.find(&id("ses_none")).await.unwrap(), None);
    let before = fixture.fake.log().len();
    assert_eq!(fixture.agent.find(&id("msg_1")).await.unwrap(), None);
    assert_eq!(fixture.fake.log().len(), before, "OpenCode fails for ids of another kind");
    fixture.stop().await;
}

/// Otherwise the session would pass for an unowned one.
#[tokio::test]
async fn a_session_with_an_unreadable_parent_is_an_error() {
    let fixture = Fixture::new();
    for more in [json!({"parentID": "../x"}), json!({"workspaceID": "a b"}), json!({"parentID": 7})] {
        fixture.session_like("ses_odd", &more);
        let refused = fixture.agent.find(&id("ses_odd")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::UpstreamPayloadError, "{more}: {refused:?}");
    }
    fixture.fake.fault_once("GET", "/session/ses_odd", Fault::Html);
    let refused = fixture.agent.find(&id("ses_odd")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::UpstreamPayloadError);
    fixture.stop().await;
}

#[tokio::test]
async fn a_refused_directory_is_reported_with_its_field() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(format!("{}/sub", fixture.root())).unwrap();
    let requested = |path: &str, field| RequestedLocation {
        directory: Some(RequestedDirectory { path: path.to_owned(), field }),
        workspace: None,
    };
    let root = fixture.root().to_owned();
    fixture.fake.project(|project| project.workspaces.push(("wrk_1".to_owned(), format!("{root}/sub"))));
    assert_eq!(fixture.agent.resolve_location(&RequestedLocation::default()).await.unwrap(), root);
    assert_eq!(fixture.agent.resolve_location(&requested("  ", "directory")).await.unwrap(), root);
    assert_eq!(
        fixture.agent.resolve_location(&requested("sub", "directory")).await.unwrap(),
        format!("{root}/sub")
    );
    for field in ["directory", "metadata.opencode.directory"] {
        for path in ["..", "/etc", "sub/%2e%2e", "none"] {
            assert_eq!(
                refused_field(fixture.agent.resolve_location(&requested(path, field)).await),
                field,
                "{path}"
            );
        }
    }
    let asked: Vec<String> = fixture.fake.log().into_iter().map(|request| request.path).collect();
    assert_eq!(asked, ["/experimental/workspace"]);
    // A workspace has priority.
    let both = RequestedLocation {
        workspace: Some(WorkspaceId::parse("wrk_1").unwrap()),
        ..requested("..", "directory")
    };
    assert_eq!(fixture.agent.resolve_location(&both).await.unwrap(), format!("{root}/sub"));
    let none = RequestedLocation { workspace: Some(WorkspaceId::parse("wrk_2").unwrap()), directory: None };
    assert_eq!(refused_field(fixture.agent.resolve_location(&none).await), "metadata.opencode.workspace.id");
    fixture.stop().await;
}
