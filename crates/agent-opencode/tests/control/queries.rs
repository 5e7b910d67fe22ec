//! Queries about sessions and their messages.

use longshore_model::{FileDiff, Page, Role, SessionQuery, StoredMessage, Timestamp};

use super::*;

fn query(limit: u32) -> SessionQuery {
    SessionQuery { limit, roots: None, start: None, search: None }
}

fn names(result: ControlResult) -> Vec<String> {
    let ControlResult::Sessions(sessions) = result else { panic!("sessions: {result:?}") };
    sessions.into_iter().map(|session| session.id.as_str().to_owned()).collect()
}

/// O2: OpenCode accepts only `true` and `false`.
#[tokio::test]
async fn the_session_list_passes_its_filters_to_opencode() {
    let fixture = Fixture::new();
    fixture.session_like("ses_a", &json!({"title": "Harbour 100%", "time": {"created": 1, "updated": 10}}));
    fixture.session_like("ses_b", &json!({"parentID": "ses_a", "time": {"created": 1, "updated": 20}}));
    fixture.session_like("ses_c", &json!({"time": {"created": 1, "updated": 30}}));
    fixture.session_like("ses_else", &json!({"directory": format!("{}/sub", fixture.root())}));
    let mut seen = 0;
    let cases = [
        (query(100), "GET /session limit=100", &["ses_c", "ses_b", "ses_a"][..]),
        (query(1), "GET /session limit=1", &["ses_c"]),
        (
            SessionQuery { roots: Some(true), ..query(9) },
            "GET /session limit=9&roots=true",
            &["ses_c", "ses_a"],
        ),
        (
            SessionQuery { roots: Some(false), ..query(9) },
            "GET /session limit=9&roots=false",
            &["ses_c", "ses_b", "ses_a"],
        ),
        (
            SessionQuery { start: Some(Timestamp(20)), ..query(9) },
            "GET /session limit=9&start=20",
            &["ses_c", "ses_b"],
        ),
        (
            SessionQuery { search: Some("our 100%&limit=0#?".to_owned()), ..query(9) },
            "GET /session limit=9&search=our%20100%25%26limit%3D0%23%3F",
            &[],
        ),
        (
            SessionQuery { search: Some("harbour".to_owned()), ..query(9) },
            "GET /session limit=9&search=harbour",
            &["ses_a"],
        ),
    ];
    for (query, asked, expected) in cases {
        let result = fixture.query(None, &ControlQuery::Sessions(query)).await.unwrap();
        assert_eq!(names(result), expected, "{asked}");
        assert_eq!(fixture.asked(&mut seen), [asked]);
    }
    fixture.stop().await;
}

#[tokio::test]
async fn a_session_is_returned_with_the_fields_that_callers_may_see() {
    let fixture = Fixture::new();
    let session = fixture.session_like(
        "ses_a",
        &json!({
            "parentID": "ses_up", "workspaceID": "wrk_1", "share": {"url": "https://opncd.ai/s/1"}, "model": 7,
            "revert": {"messageID": "msg_1", "partID": "prt_1", "snapshot": "abc", "diff": "-a"},
            "permission": [{"permission": "bash", "pattern": "*", "action": "ask"}],
        }),
    );
    let result = fixture.query(Some(&session), &ControlQuery::Session(session.id.clone())).await.unwrap();
    insta::assert_snapshot!(format!("{result:#?}").replace(fixture.root(), "ROOT"));
    fixture.session_like("ses_b", &json!({"parentID": "ses_a"}));
    let children = fixture.query(Some(&session), &ControlQuery::Children(session.id.clone())).await.unwrap();
    assert_eq!(names(children), ["ses_b"]);
    fixture.stop().await;
}

#[tokio::test]
async fn statuses_are_sorted_by_session_and_redacted() {
    let fixture = Fixture::new();
    for id in ["ses_c", "ses_a", "ses_b"] {
        fixture.session(id);
    }
    let retry = json!({"type": "retry", "attempt": 2, "message": "cannot read /home/me/key", "next": 1_700_000_000_000_i64});
    for (id, status) in [("ses_c", json!({"type": "busy"})), ("ses_a", retry)] {
        fixture.fake.emit("session.status", json!({"sessionID": id, "status": status})).await;
    }
    let result = fixture.query(None, &ControlQuery::Statuses).await.unwrap();
    insta::assert_debug_snapshot!(result);
    fixture.stop().await;
}

/// O4: OpenCode's todos have no id.
#[tokio::test]
async fn todos_are_returned_without_an_id() {
    let fixture = Fixture::new();
    let session = fixture.session("ses_a");
    let todos = json!([{"content": "paint", "status": "pending", "priority": "low"}, 7, {"content": "sail"}]);
    fixture.fake.emit("todo.updated", json!({"sessionID": "ses_a", "todos": todos})).await;
    let result = fixture.query(Some(&session), &ControlQuery::Todos(session.id.clone())).await.unwrap();
    let ControlResult::Todos(todos) = result else { panic!("todos: {result:?}") };
    let result: Vec<_> = todos.iter().map(|todo| (todo.content.as_str(), todo.priority.as_str())).collect();
    assert_eq!(result, [("paint", "low"), ("sail", "")]);
    fixture.stop().await;
}

/// O5: without a message, OpenCode reports no changes at all.
#[tokio::test]
async fn changes_are_returned_for_one_turn_and_for_all() {
    let fixture = Fixture::new();
    let session = fixture.session("ses_a");
    let diff = |file: &str| json!({"file": file, "patch": "+a", "additions": 1.0, "deletions": 0, "status": "added"});
    let nameless = json!({"additions": 1, "deletions": 1});
    fixture.message(&session, "msg_1", json!({"summary": {"diffs": [diff("a"), diff("b")]}}), &[]).await;
    fixture.message(&session, "msg_2", json!({"role": "assistant", "summary": true}), &[]).await;
    fixture.message(&session, "msg_3", json!({"summary": {"diffs": [diff("c")]}}), &[]).await;
    fixture.message(&session, "msg_4", json!({"summary": {"diffs": [nameless]}}), &[]).await;
    fixture.message(&session, "msg_5", json!({"role": "assistant"}), &[]).await;
    let query = |message: Option<&str>| ControlQuery::Diffs {
        session: session.id.clone(),
        message: message.map(message_ref),
    };
    let result =
        async |message: Option<&str>| match fixture.query(Some(&session), &query(message)).await.unwrap() {
            ControlResult::Diffs(diffs) => diffs,
            result => panic!("diffs: {result:?}"),
        };
    let short = |diffs: &[FileDiff]| -> Vec<String> {
        let message =
            |diff: &FileDiff| diff.message.as_ref().map_or("-", |message| message.as_str()).to_owned();
        diffs.iter().map(|diff| format!("{} {}", diff.file, message(diff))).collect()
    };
    assert_eq!(short(&result(None).await), ["a msg_1", "b msg_1", "c msg_3"]);
    let one = result(Some("msg_1")).await;
    assert_eq!(short(&one), ["a -", "b -"]);
    let FileDiff { patch, status, additions, deletions, .. } = &one[0];
    assert_eq!(
        (patch.as_deref(), status.as_deref(), *additions, *deletions),
        (Some("+a"), Some("added"), 1, 0)
    );
    assert_eq!(short(&result(Some("msg_5")).await), [""; 0]);
    assert_eq!(short(&result(Some("msg_none")).await), [""; 0]);
    fixture.fake.forget_session("ses_a");
    for message in [None, Some("msg_1")] {
        let gone = fixture.query(Some(&session), &query(message)).await.unwrap_err();
        assert_eq!((gone.kind(), fact(&gone, "sessionId")), (ErrorKind::SessionNotFound, Some("ses_a")));
    }
    fixture.stop().await;
}

#[tokio::test]
async fn the_changes_of_all_turns_are_returned_whole_or_refused_with_advice() {
    let fixture = Fixture::new();
    let session = fixture.session("ses_a");
    let patch = "+a line of a file that is long\n".repeat(128 * 1024);
    for number in 1..=5 {
        let diffs =
            json!([{"file": "a", "patch": patch, "additions": 1, "deletions": 0, "status": "modified"}]);
        let info = json!({"summary": {"diffs": diffs}, "time": {"created": number}});
        fixture.message(&session, &format!("msg_{number}"), info, &[]).await;
        let all = ControlQuery::Diffs { session: session.id.clone(), message: None };
        let result = fixture.query(Some(&session), &all).await;
        // 4 MB each, and at most 16 MB together.
        match result {
            Ok(ControlResult::Diffs(diffs)) => assert_eq!((diffs.len(), number < 5), (number, true)),
            Ok(result) => panic!("diffs: {result:?}"),
            Err(error) => {
                assert_eq!((error.kind(), number), (ErrorKind::UpstreamPayloadError, 5), "{error:?}");
                assert_eq!(fact(&error, "detail"), Some("too long"));
                assert!(error.message().contains("message_id"), "{error}");
            }
        }
    }
    let one = ControlQuery::Diffs { session: session.id.clone(), message: Some(message_ref("msg_5")) };
    assert!(
        matches!(fixture.query(Some(&session), &one).await, Ok(ControlResult::Diffs(diffs)) if diffs.len() == 1)
    );
    fixture.stop().await;
}

#[tokio::test]
async fn messages_are_returned_page_by_page_from_the_newest() {
    let fixture = Fixture::new();
    let session = fixture.session("ses_a");
    for number in 1..=5 {
        let parts = [json!({"type": "text", "text": format!(" {number} ")})];
        fixture
            .message(&session, &format!("msg_{number}"), json!({"time": {"created": number}}), &parts)
            .await;
    }
    let page = async |limit, before: Option<String>| {
        let query = ControlQuery::Messages { session: session.id.clone(), page: Page { limit, before } };
        match fixture.query(Some(&session), &query).await.unwrap() {
            ControlResult::Messages { items, next } => {
                (items.into_iter().map(|message| message.text).collect::<Vec<_>>(), next)
            }
            result => panic!("messages: {result:?}"),
        }
    };
    let (newest, next) = page(2, None).await;
    assert_eq!(newest, [" 4 ", " 5 "], "oldest first, and unchanged");
    let (older, next) = page(2, next).await;
    assert_eq!(older, [" 2 ", " 3 "]);
    assert_eq!(page(2, next).await, (vec![" 1 ".to_owned()], None));
    assert_eq!(page(100, None).await.1, None);
    for before in ["zzz", "eyJ9", "a/../b?c#d&limit=1"] {
        let page = Page { limit: 2, before: Some(before.to_owned()) };
        let query = ControlQuery::Messages { session: session.id.clone(), page };
        assert_eq!(refused_field(fixture.query(Some(&session), &query).await), "before", "{before}");
    }
    let last = fixture.fake.log().last().unwrap().target.clone();
    assert!(last.ends_with("&limit=2&before=a%2F..%2Fb%3Fc%23d%26limit%3D1"), "{last}");
    fixture.stop().await;
}

/// O8: the message is looked up in the directory of the session, whatever directory a caller names.
#[tokio::test]
async fn a_message_contains_only_its_visible_text() {
    let fixture = Fixture::new();
    let sub = format!("{}/sub", fixture.root());
    std::fs::create_dir_all(&sub).unwrap();
    let session = fixture.session_like("ses_a", &json!({"directory": sub}));
    let parts = [
        json!({"type": "text", "text": "One, "}),
        json!({"type": "text", "text": "read this file", "synthetic": true}),
        json!({"type": "text", "text": "a note", "ignored": true}),
        json!({"type": "file", "mime": "text/plain", "url": "file:///a"}),
        json!({"type": "text", "text": "two. "}),
    ];
    fixture.message(&session, "msg_1", json!({}), &parts).await;
    let error = json!({"name": "APIError", "data": {"message": "No key sk-0123456789abcdef in /etc/keys"}});
    let answer = json!({"role": "assistant", "error": error, "time": {"created": 7}});
    fixture
        .message(
            &session,
            "msg_2",
            answer,
            &[json!({"type": "tool", "tool": "bash", "state": {"output": "x"}})],
        )
        .await;
    let query = |id: &str| ControlQuery::Message { session: session.id.clone(), message: message_ref(id) };
    let expected = StoredMessage {
        id: message_ref("msg_1"),
        session: session.id.clone(),
        role: Role::User,
        text: "One, two. ".to_owned(),
        created: Some(Timestamp(5)),
        error: None,
    };
    assert_eq!(
        fixture.query(Some(&session), &query("msg_1")).await.unwrap(),
        ControlResult::Message(expected.clone())
    );
    let failed = StoredMessage {
        id: message_ref("msg_2"),
        role: Role::Agent,
        text: String::new(),
        created: Some(Timestamp(7)),
        error: Some("No key <redacted-key> in <redacted-path>".to_owned()),
        ..expected
    };
    assert_eq!(fixture.query(Some(&session), &query("msg_2")).await.unwrap(), ControlResult::Message(failed));
    assert!(fixture.fake.log().iter().all(|request| request.directory == session.directory));

    let other = fixture.session("ses_b");
    fixture.message(&other, "msg_b", json!({}), &[]).await;
    for id in ["msg_none", "msg_b"] {
        assert_eq!(refused_field(fixture.query(Some(&session), &query(id)).await), "message_id", "{id}");
    }
    fixture.fake.forget_session("ses_a");
    let gone = fixture.query(Some(&session), &query("msg_1")).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::SessionNotFound, "{gone:?}");
    fixture.stop().await;
}
