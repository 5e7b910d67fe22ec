//! What goes wrong on the way to OpenCode and back.

use longshore_model::{Page, Retry, SessionQuery};
use longshore_testkit::fake_opencode::{Fault, Gate};

use super::*;

/// Every look, and the end of the path that it asks for.
fn looks(session: &SessionId) -> Vec<(ControlQuery, &'static str)> {
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

/// O10: whatever comes back is told for what it is.
#[tokio::test]
async fn each_way_to_fail_has_its_kind_for_every_look() {
    let bench = Bench::new();
    let session = bench.session("ses_a");
    bench.message(&session, "msg_1", json!({}), &[]).await;
    let not_found = r#"{"name":"NotFoundError","data":{"message":"Session not found: ses_a"}}"#;
    for (look, path) in looks(&session.id) {
        let missing = match look.session() {
            Some(_) => (ErrorKind::SessionNotFound, None),
            None => (ErrorKind::UpstreamHttpError, Some("404")),
        };
        let cases = [
            (Fault::Status(500), (ErrorKind::UpstreamHttpError, Some("500"))),
            (Fault::Status(503), (ErrorKind::UpstreamHttpError, Some("503"))),
            (Fault::Status(429), (ErrorKind::UpstreamHttpError, Some("429"))),
            (Fault::Status(400), (ErrorKind::UpstreamHttpError, Some("400"))),
            (Fault::Status(401), (ErrorKind::UpstreamHttpError, Some("401"))),
            // A page of something on the way says nothing about a session.
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
            let said = format!("{look:?} {fault:?}");
            bench.fake.fault_once("GET", path, fault);
            let failed = bench.look(Some(&session), &look).await.expect_err(&said);
            assert_eq!((failed.kind(), fact(&failed, "upstreamStatus")), expected, "{said}: {failed}");
            let status = expected.1.and_then(|status| status.parse::<u16>().ok()).unwrap_or_default();
            let passes = failed.kind() == ErrorKind::UpstreamUnreachable || matches!(status, 429 | 500..);
            assert_eq!(failed.retry() == Retry::Later, passes, "{said}");
            assert_eq!(failed.retry_after().is_some(), passes, "{said}");
        }
        bench.look(Some(&session), &look).await.unwrap_or_else(|error| panic!("{look:?}: {error}"));
    }
    // What is a list for one is none for another.
    for (path, body, look) in [
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
        bench.fake.fault_once("GET", path, Fault::Body(body));
        let failed = bench.look(Some(&session), &looks(&session.id)[look].0).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::UpstreamPayloadError, "{path} {body}: {failed}");
    }
    bench.fake.kill().await;
    for (look, _) in looks(&session.id) {
        let failed = bench.look(Some(&session), &look).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::UpstreamUnreachable, "{look:?}: {failed}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_crowd_is_refused_before_opencode_hears_of_it() {
    let bench = Bench::with(|config| config.upstream_calls = 1);
    let session = bench.session("ses_a");
    let gate = Gate::new();
    bench.fake.fault_once("GET", "/project", Fault::Hold(gate.clone()));
    let held = bench.look(None, &ControlQuery::Projects);
    let others = async {
        gate.reached().await;
        let before = bench.fake.arrived().len();
        let all = looks(&session.id);
        let refused = all.iter().map(|(look, _)| bench.look(Some(&session), look));
        for refused in futures_util::future::join_all(refused).await {
            let refused = refused.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::UpstreamBackpressure, "{refused}");
            assert_eq!((refused.retry(), fact(&refused, "max")), (Retry::Later, Some("1")), "{refused}");
        }
        assert_eq!(bench.fake.arrived().len(), before);
        gate.open();
    };
    let (held, ()) = tokio::join!(held, others);
    held.unwrap();
    bench.stop().await;
}
