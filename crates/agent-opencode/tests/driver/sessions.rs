//! Sessions and prompt ids.

use longshore_testkit::fake_opencode::{Fault, Turn as Script};

use super::*;

#[tokio::test]
async fn a_session_is_opened_in_the_requested_directory() {
    let bench = Bench::new();
    let default = bench.session().await;
    assert_eq!(default.directory, bench.fake.directory());
    let inner = format!("{}/inner & 100% more", bench.fake.directory());
    std::fs::create_dir(&inner).unwrap();
    let request = NewSession { directory: inner.clone(), title: Some("A \"title\"".to_owned()) };
    let other = bench.agent.open_session(request).await.unwrap();
    assert_eq!(other.directory, inner);
    let bodies: Vec<_> =
        bench.fake.log().into_iter().filter(|call| call.target.starts_with("/session?")).collect();
    assert_eq!(bodies[0].body, serde_json::json!({}), "OpenCode chooses the title");
    assert_eq!(bodies[1].body, serde_json::json!({"title": "A \"title\""}));
    bench.fake.queue(Script::new().text("there", 1));
    let (_, turn) = bench.start(&other, "go").await.unwrap();
    assert_eq!(text_of(&all(turn).await), "there");
    bench.stop().await;
}

#[tokio::test]
async fn a_directory_that_opencode_would_misread_is_refused() {
    let bench = Bench::new();
    let request = NewSession { directory: format!("{}/%41", bench.fake.directory()), title: None };
    let error = bench.agent.open_session(request).await.unwrap_err();
    assert_eq!(error.kind(), longshore_model::ErrorKind::InvalidParams);
    assert_eq!(bench.fake.log(), []);
    bench.stop().await;
}

/// A link was put where the directory was when it was admitted.
#[tokio::test]
async fn a_session_that_opencode_opens_in_another_directory_is_refused() {
    let bench = Bench::new();
    let outside = tempfile::tempdir().unwrap();
    let inner = bench.fake.workspace().join("inner");
    std::os::unix::fs::symlink(outside.path(), &inner).unwrap();
    let request = NewSession { directory: format!("{}/inner", bench.fake.directory()), title: None };
    let error = bench.agent.open_session(request).await.unwrap_err();
    assert_eq!(error.kind(), longshore_model::ErrorKind::InvalidParams);
    assert!(!error.message().contains('/'), "{}", error.message());
    bench.stop().await;
}

#[tokio::test]
async fn aborting_an_idle_session_is_no_error() {
    let bench = Bench::new();
    let session = bench.session().await;
    bench.agent.cancel(&session).await.unwrap();
    assert!(bench.fake.log().iter().any(|request| request.path.ends_with("/abort")));
    bench.stop().await;
}

/// OpenCode responds with 500 to an id of another form, as if it had failed.
#[tokio::test]
async fn an_id_that_is_not_opencodes_is_refused_without_a_request() {
    let bench = Bench::new();
    for id in ["abc", "msg_1"] {
        let id = longshore_model::SessionId::parse(id).unwrap();
        let session = Session { id, directory: bench.fake.directory().to_owned() };
        let refused = [
            bench.start(&session, "go").await.map(|_| ()).unwrap_err(),
            bench.agent.cancel(&session).await.unwrap_err(),
        ];
        assert!(refused.iter().all(|error| error.kind() == longshore_model::ErrorKind::InvalidParams));
    }
    let paths: Vec<String> = bench.fake.log().into_iter().map(|request| request.path).collect();
    assert!(paths.iter().all(|path| ["/event", "/session/status"].contains(&path.as_str())), "{paths:?}");
    bench.stop().await;
}

#[tokio::test]
async fn the_health_check_reports_opencodes_own_health() {
    let bench = Bench::new();
    bench.agent.check().await.unwrap();
    for (fault, text) in [
        (Fault::Status(401), "user name or password"),
        (Fault::Status(503), "status 503"),
        (Fault::Status(404), "does not answer like OpenCode"),
        (Fault::Html, "does not answer like OpenCode"),
        (Fault::Body("{\"healthy\":false,\"version\":\"1\"}"), "not healthy"),
    ] {
        bench.fake.fault_once("GET", "/global/health", fault);
        let error = bench.agent.check().await.unwrap_err();
        assert!(error.message().contains(text), "{text}: {error}");
    }
    bench.fake.kill().await;
    let error = bench.agent.check().await.unwrap_err();
    assert_eq!(error.kind(), longshore_model::ErrorKind::AgentUnavailable);
    bench.fake.restart();
    outages::at_once("the return", outages::until_well(&bench)).await;
    bench.stop().await;
}
