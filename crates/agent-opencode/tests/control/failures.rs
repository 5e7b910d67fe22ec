//! Failures of calls to OpenCode.

use longshore_model::{Page, Retry, SessionQuery};
use longshore_testkit::fake_opencode::{Fault, Gate};

use super::*;

/// Every query, with the end of the path that it requests.
fn queries(session: &SessionId) -> Vec<(ControlQuery, &'static str)> {
    let session = || session.clone();
    let query = SessionQuery { limit: 1, roots: None, start: None, search: None };
    vec![
        (ControlQuery::Statuses, "/session/status"),
        (ControlQuery::Sessions(query), "/session"),
        (ControlQuery::Session(session()), "/session/ses_a"),
        (ControlQuery::Children(session()), "/children"),
        (ControlQuery::Todos(session()), "/todo"),
        (ControlQuery::Diffs { session: session(), message: Some(message_ref("msg_1")) }, "/diff"),
        (ControlQuery::Diffs { session: session(), message: None }, "/message"),
        (ControlQuery::Messages { session: session(), page: Page { limit: 1, before: None } }, "/message"),
        (ControlQuery::Message { session: session(), message: message_ref("msg_1") }, "/message/msg_1"),
        (ControlQuery::Providers, "/provider"),
        (ControlQuery::Models { provider: None }, "/provider"),
        (ControlQuery::Projects, "/project"),
        (ControlQuery::Project, "/project/current"),
        (ControlQuery::Workspaces, "/experimental/workspace"),
        (ControlQuery::Worktrees, "/experimental/worktree"),
    ]
}

/// O10.
#[tokio::test]
async fn each_failure_of_a_query_has_its_kind() {
    let fixture = Fixture::new();
    let session = fixture.session("ses_a");
    fixture.message(&session, "msg_1", json!({}), &[]).await;
    let not_found = r#"{"name":"NotFoundError","data":{"message":"Session not found: ses_a"}}"#;
    for (query, path) in queries(&session.id) {
        let missing = match query.session() {
            Some(_) => (ErrorKind::SessionNotFound, None),
            None => (ErrorKind::UpstreamHttpError, Some("404")),
        };
        let cases = [
            (Fault::Status(500), (ErrorKind::UpstreamHttpError, Some("500"))),
            (Fault::Status(503), (ErrorKind::UpstreamHttpError, Some("503"))),
            (Fault::Status(429), (ErrorKind::UpstreamHttpError, Some("429"))),
            (Fault::Status(400), (ErrorKind::UpstreamHttpError, Some("400"))),
            (Fault::Status(401), (ErrorKind::UpstreamHttpError, Some("401"))),
            // A page of a proxy says nothing about a session.
            (Fault::Answer(404, "{}"), (ErrorKind::UpstreamHttpError, Some("404"))),
            (Fault::Answer(404, not_found), missing),
            (Fault::Html, (ErrorKind::UpstreamPayloadError, None)),
            (Fault::Body("null"), (ErrorKind::UpstreamPayloadError, None)),
            (Fault::Body("7"), (ErrorKind::UpstreamPayloadError, None)),
            (Fault::Body("\"text\""), (ErrorKind::UpstreamPayloadError, None)),
            (Fault::Body(""), (ErrorKind::UpstreamPayloadError, None)),
            (Fault::CutBefore, (ErrorKind::UpstreamUnreachable, None)),
        ];
        for (fault, expected) in cases {
            let case = format!("{query:?} {fault:?}");
            fixture.fake.fault_once("GET", path, fault);
            let failed = fixture.query(Some(&session), &query).await.expect_err(&case);
            assert_eq!((failed.kind(), fact(&failed, "upstreamStatus")), expected, "{case}: {failed}");
            let status = expected.1.and_then(|status| status.parse::<u16>().ok()).unwrap_or_default();
            let passes = failed.kind() == ErrorKind::UpstreamUnreachable || matches!(status, 429 | 500..);
            assert_eq!(failed.retry() == Retry::Later, passes, "{case}");
            assert_eq!(failed.retry_after().is_some(), passes, "{case}");
        }
        fixture.query(Some(&session), &query).await.unwrap_or_else(|error| panic!("{query:?}: {error}"));
    }
    // Bodies of the wrong form for the query at this index.
    for (path, body, query) in [
        ("/session", "{}", 1),
        ("/todo", "{}", 4),
        ("/session/ses_a", "[]", 2),
        ("/provider", "[]", 9),
        ("/provider", r#"{"all":[7],"default":{},"connected":[]}"#, 9),
        ("/provider", r#"{"all":[],"default":[],"connected":[]}"#, 9),
        ("/project", "[{}]", 11),
        ("/experimental/workspace", r#"[{"id":"a b"}]"#, 13),
        ("/experimental/worktree", "[{}]", 14),
    ] {
        fixture.fake.fault_once("GET", path, Fault::Body(body));
        let failed = fixture.query(Some(&session), &queries(&session.id)[query].0).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::UpstreamPayloadError, "{path} {body}: {failed}");
    }
    fixture.fake.kill().await;
    for (query, _) in queries(&session.id) {
        let failed = fixture.query(Some(&session), &query).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::UpstreamUnreachable, "{query:?}: {failed}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn queries_beyond_the_call_limit_are_refused_without_a_request() {
    let fixture = Fixture::with(|config| config.upstream_calls = 1);
    let session = fixture.session("ses_a");
    let gate = Gate::new();
    fixture.fake.fault_once("GET", "/project", Fault::Hold(gate.clone()));
    let held = fixture.query(None, &ControlQuery::Projects);
    let others = async {
        gate.reached().await;
        let before = fixture.fake.received_targets().len();
        let all = queries(&session.id);
        let refused = all.iter().map(|(query, _)| fixture.query(Some(&session), query));
        for refused in futures_util::future::join_all(refused).await {
            let refused = refused.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::UpstreamBackpressure, "{refused}");
            assert_eq!((refused.retry(), fact(&refused, "max")), (Retry::Later, Some("1")), "{refused}");
        }
        assert_eq!(fixture.fake.received_targets().len(), before);
        gate.open();
    };
    let (held, ()) = tokio::join!(held, others);
    held.unwrap();
    fixture.stop().await;
}

#[tokio::test]
async fn a_call_without_a_response_ends_at_its_time_limit() {
    let limit = Duration::from_secs(1);
    let fixture = Fixture::with(|config| {
        (config.control_timeout, config.long_timeout) = (limit, Some(limit));
    });
    let session = fixture.session("ses_a");
    fixture.fake.fault_always("GET", "", Fault::Hang);
    let all = queries(&session.id);
    let hung = all.iter().map(|(query, _)| fixture.query(Some(&session), query));
    for failed in futures_util::future::join_all(hung).await {
        let failed = failed.unwrap_err();
        assert_eq!(
            (failed.kind(), failed.retry()),
            (ErrorKind::UpstreamUnreachable, Retry::Later),
            "{failed}"
        );
    }
    fixture.fake.clear_faults();
    fixture.fake.fault_always("POST", "", Fault::Hang);
    // A change may have been made, so the error suggests no retry.
    for command in [ControlCommand::Share(session.id.clone()), ControlCommand::Unrevert(session.id.clone())] {
        let failed = fixture.run(Some(&session), &command).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::UpstreamUnreachable, "{failed}");
        assert!(failed.is_maybe_applied() && failed.retry_after().is_none(), "{failed:?}");
    }
    fixture.stop().await;
}
