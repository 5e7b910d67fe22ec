//! Every method with good and bad parameters, the bytes of every answer, and who may use which field.

use longshore_model::{Ask, ContextId, Json, Principal, SessionId, TaskId};

use super::*;
use crate::jsonrpc::{self, Id};

fn all() -> Activated {
    METHODS.iter().map(|method| method.extension).collect()
}

fn method(name: &str) -> &'static Method {
    Method::find(name).unwrap_or_else(|| panic!("{name}"))
}

fn request(id: &str) -> RequestId {
    RequestId::parse(id).unwrap()
}

#[test]
fn good_calls() {
    let permission = |reply, message: Option<&str>| Call::Answer {
        request: request("per_1"),
        answer: Answer::Permission { reply, message: message.map(str::to_owned) },
    };
    let answers = |answers: &[&[&str]]| {
        let owned = |labels: &&[&str]| labels.iter().map(|label| (*label).to_owned()).collect();
        let answers = answers.iter().map(owned).collect();
        Call::Answer { request: request("que_1"), answer: Answer::Question { answers } }
    };
    let reply = "a2a.interrupt.permission.reply";
    let question = "a2a.interrupt.question.reply";
    let rejected = Call::Answer { request: request("que_1"), answer: Answer::RejectQuestion };
    for (name, params, expected) in [
        (reply, r#"{"request_id":"per_1","reply":"once"}"#, permission(PermissionReply::Once, None)),
        (reply, r#"{"request_id":" per_1","reply":" Always\n"}"#, permission(PermissionReply::Always, None)),
        (
            reply,
            r#"{"reply":"REJECT","message":"use ls","request_id":"per_1","metadata":{"opencode":{"directory":"x"},"shared":{}}}"#,
            permission(PermissionReply::Reject, Some("use ls")),
        ),
        (
            reply,
            r#"{"request_id":"per_1","reply":"once","message":" ","metadata":null}"#,
            permission(PermissionReply::Once, None),
        ),
        (
            question,
            r#"{"request_id":"que_1","answers":[["A","B"],[" ","",  "C d "],[]]}"#,
            answers(&[&["A", "B"], &["C d "], &[]]),
        ),
        (question, r#"{"request_id":"que_1","answers":[]}"#, answers(&[])),
        ("a2a.interrupt.question.reject", r#"{"request_id":"que_1","metadata":{}}"#, rejected),
        ("opencode.permissions.list", "{}", Call::List(AskKind::Permission)),
        ("opencode.questions.list", "{}", Call::List(AskKind::Question)),
    ] {
        assert_eq!(method(name).read(params, all()).unwrap(), expected, "{name} {params}");
    }
}

#[test]
fn bad_parameters_are_named() {
    let reply = "a2a.interrupt.permission.reply";
    let question = "a2a.interrupt.question.reply";
    let reject = "a2a.interrupt.question.reject";
    for (name, params, field) in [
        (reply, "{}", "request_id"),
        (reply, r#"{"request_id":"","reply":"once"}"#, "request_id"),
        (reply, r#"{"request_id":null,"reply":"once"}"#, "request_id"),
        (reply, r#"{"request_id":7,"reply":"once"}"#, "request_id"),
        (reply, r#"{"request_id":"a/b","reply":"once"}"#, "request_id"),
        (reply, r#"{"requestId":"per_1","reply":"once"}"#, "request_id"),
        (reply, r#"{"request_id":"per_1"}"#, "reply"),
        (reply, r#"{"request_id":"per_1","reply":"maybe"}"#, "reply"),
        (reply, r#"{"request_id":"per_1","reply":true}"#, "reply"),
        (reply, r#"{"request_id":"per_1","reply":"reject","message":[]}"#, "message"),
        (reply, r#"{"request_id":"per_1","reply":"once","metadata":7}"#, "metadata"),
        (reply, r#"{"request_id":"per_1","reply":"once","metadata":{"other":{}}}"#, "metadata.other"),
        (reply, r#"{"request_id":"per_1","reply":"once","metadata":{"opencode":[]}}"#, "metadata.opencode"),
        (reply, r#"{"request_id":"per_1","reply":"once","metadata":{"shared":"x"}}"#, "metadata.shared"),
        (reply, r#"{"request_id":"per_1","reply":"once","answers":[]}"#, "answers"),
        // The metadata is looked at before the names, and the names before the values.
        (reply, r#"{"request_id":"per_1","extra":1,"metadata":{"other":{}}}"#, "metadata.other"),
        (reply, r#"{"request_id":"per_1","reply":"maybe","extra":1}"#, "extra"),
        (question, r#"{"request_id":"que_1"}"#, "answers"),
        (question, r#"{"request_id":"que_1","answers":null}"#, "answers"),
        (question, r#"{"request_id":"que_1","answers":"A"}"#, "answers"),
        (question, r#"{"request_id":"que_1","answers":["A"]}"#, "answers[0]"),
        (question, r#"{"request_id":"que_1","answers":[["A"],[1]]}"#, "answers[1][0]"),
        (question, r#"{"request_id":"que_1","answers":[],"reply":"once"}"#, "reply"),
        (reject, r#"{"request_id":"que_1","answers":[]}"#, "answers"),
        (reject, r#"{"metadata":{}}"#, "request_id"),
        ("opencode.permissions.list", r#"{"metadata":{}}"#, "metadata"),
        ("opencode.questions.list", r#"{"limit":1}"#, "limit"),
    ] {
        let error = method(name).read(params, all()).expect_err(params);
        let fields: Vec<&str> = error.violations().iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!((error.kind(), &fields[..]), (ErrorKind::InvalidParams, &[field][..]), "{name} {params}");
    }
}

#[test]
fn a_method_is_served_to_those_who_activated_its_extension() {
    for method in &METHODS {
        let others: Activated = METHODS
            .iter()
            .map(|method| method.extension)
            .filter(|extension| *extension != method.extension)
            .collect();
        for activated in [Activated::NONE, others] {
            // Nothing else is looked at before.
            let error = method.read(r#"{"nonsense":1}"#, activated).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ExtensionNotActivated, "{}", method.name);
        }
        let error = method.read(r#"{"nonsense":1}"#, all()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{}", method.name);
    }
    for name in ["", "a2a.interrupt.permission.reject", "opencode.sessions.list", "SendMessage"] {
        assert!(Method::find(name).is_none(), "{name}");
    }
    let refused = METHODS[0].read("{}", Activated::NONE).unwrap_err();
    insta::assert_snapshot!("not_activated", str::from_utf8(&jsonrpc::error(&Id::Null, &refused)).unwrap());
}

#[test]
fn answers_byte_for_byte() {
    assert_eq!(answered(&request("per_1")), r#"{"ok":true,"request_id":"per_1"}"#);
    assert_eq!(asks(&[]), r#"{"items":[]}"#);
    let interrupt = |id: &str, expires_at: Option<i64>| Interrupt {
        ask: Ask {
            request_id: request(id),
            kind: AskKind::Permission,
            session: SessionId::parse("ses_1").unwrap(),
            summary: "May I?".to_owned(),
            details: Json::parse(r#"{"permission":"bash","patterns":["ls *"]}"#).unwrap(),
            questions: Vec::new(),
        },
        owner: Principal::new("ada"),
        task: TaskId::parse("t1").unwrap(),
        context: ContextId::parse("c1").unwrap(),
        asked_at: Timestamp(0),
        expires_at: expires_at.map(Timestamp),
        closed: None,
    };
    let some = [
        interrupt("per_1", Some(1_786_440_600_000)),
        interrupt("per_2", Some(1_786_440_600_025)),
        interrupt("per_3", None),
    ];
    insta::assert_snapshot!("asks", str::from_utf8(&asks(&some)).unwrap());
}

#[test]
fn a_field_is_for_those_who_activated_its_extension() {
    use Extension::{ModelSelection, SessionBinding, StreamHints};
    let session = r#"{"shared":{"session":{"id":"ses_1"}}}"#;
    let model = r#"{"shared":{"model":{"providerID":"p","modelID":"m"}}}"#;
    let directory = r#"{"opencode":{"directory":"/a"}}"#;
    let workspace = r#"{"opencode":{"workspace":{"id":"wrk_1"}}}"#;
    let alias = r#"{"iac_code":{"cwd":"/a"}}"#;
    let free = r#"{"shared":{"delivery":"steer","session":{"id":" "}},"opencode":{"agent":"a","variant":"v","system":"s"}}"#;
    let all = r#"{"shared":{"session":{"id":"ses_1"},"model":{"providerID":"p","modelID":"m"}},"opencode":{"directory":"/a"}}"#;
    let halves = ["metadata.shared.model.providerID", "metadata.shared.model.modelID"];
    for (request, message, activated, refused) in [
        ("null", "null", &[][..], &[][..]),
        (free, free, &[], &[]),
        (alias, "null", &[], &[]),
        (alias, alias, &[ModelSelection], &[]),
        (session, "null", &[], &["metadata.shared.session.id"]),
        (session, "null", &[StreamHints, ModelSelection], &["metadata.shared.session.id"]),
        (session, session, &[SessionBinding], &[]),
        ("null", session, &[], &["message.metadata.shared.session.id"]),
        (directory, "null", &[], &["metadata.opencode.directory"]),
        (directory, alias, &[SessionBinding], &[]),
        // The alias has the last word here, and the field is in use all the same.
        (alias, directory, &[], &["message.metadata.opencode.directory"]),
        (
            workspace,
            workspace,
            &[],
            &["metadata.opencode.workspace.id", "message.metadata.opencode.workspace.id"],
        ),
        (model, "null", &[SessionBinding], &halves),
        (model, "null", &[ModelSelection], &[]),
        (all, "null", &[ModelSelection], &["metadata.shared.session.id", "metadata.opencode.directory"]),
        (all, "null", &[SessionBinding], &halves),
        (all, all, &[SessionBinding, ModelSelection], &[]),
    ] {
        let command = crate::v1::decode::send_message(&format!(
            r#"{{"metadata":{request},"message":{{"messageId":"m","role":1,"parts":[{{"text":"x"}}],"metadata":{message}}}}}"#
        ))
        .unwrap();
        let checked = check_wishes(&command, activated.iter().copied().collect());
        assert_eq!(checked.is_ok(), refused.is_empty(), "{request} {message} {activated:?}");
        let Err(error) = checked else { continue };
        assert_eq!(error.kind(), ErrorKind::ExtensionNotActivated);
        let fields = ("fields".to_owned(), serde_json::to_string(refused).unwrap());
        assert_eq!(error.details()[0], fields, "{request} {message} {activated:?}");
    }
    let command = crate::v1::decode::send_message(&format!(
        r#"{{"metadata":{all},"message":{{"messageId":"m","role":1,"parts":[{{"text":"x"}}]}}}}"#
    ));
    let refused = check_wishes(&command.unwrap(), Activated::NONE).unwrap_err();
    insta::assert_snapshot!(
        "fields_not_activated",
        str::from_utf8(&jsonrpc::error(&Id::Null, &refused)).unwrap()
    );
}
