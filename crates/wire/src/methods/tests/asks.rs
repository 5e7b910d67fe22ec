//! Tests of answers to asks, and of lists of asks.

use longshore_model::{Answer, AskKind, ErrorKind, PermissionReply, RequestId};

use super::{all, method};
use crate::extension::Activated;
use crate::jsonrpc::{self, Id};
use crate::methods::Call;
use crate::surface::ProtocolVersion;

fn request(id: &str) -> RequestId {
    RequestId::parse(id).unwrap()
}

#[test]
fn good_calls() {
    let permission = |reply, message: Option<&str>| Call::Answer {
        request: request("per_1"),
        answer: Answer::Permission { reply, message: message.map(str::to_owned) },
    };
    let option = |option: &str, message: Option<&str>| Call::Answer {
        request: request("per_1"),
        answer: Answer::PermissionOption { option: option.to_owned(), message: message.map(str::to_owned) },
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
            reply,
            r#"{"request_id":"per_1","reply":" proceed_once ","message":"quick"}"#,
            option("proceed_once", Some("quick")),
        ),
        (
            reply,
            r#"{"request_id":"per_1","reply":"Always Allow for user: touch *"}"#,
            option("Always Allow for user: touch *", None),
        ),
        (
            question,
            r#"{"request_id":"que_1","answers":[["A","B"],[" ","",  "C d "],[]]}"#,
            answers(&[&["A", "B"], &["C d "], &[]]),
        ),
        (question, r#"{"request_id":"que_1","answers":[]}"#, answers(&[])),
        ("a2a.interrupt.question.reject", r#"{"request_id":"que_1","metadata":{}}"#, rejected),
        ("opencode.permissions.list", "{}", Call::OpenAsks(AskKind::Permission)),
        ("opencode.questions.list", "{}", Call::OpenAsks(AskKind::Question)),
        ("opencode.permissions.approvals.list", "{}", Call::Approvals),
        (
            "opencode.permissions.approvals.revoke",
            r#"{"request_id": "per_1"}"#,
            Call::RevokeApproval(RequestId::parse("per_1").unwrap()),
        ),
    ] {
        for version in ProtocolVersion::ALL {
            let read = method(name).read(version, params, Activated::ALL).unwrap();
            assert_eq!(read, expected, "{name} {params}");
        }
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
        (reply, r#"{"request_id":"per_1","reply":" "}"#, "reply"),
        (reply, r#"{"request_id":"per_1","reply":"may\nbe"}"#, "reply"),
        (reply, r#"{"request_id":"per_1","reply":true}"#, "reply"),
        (reply, r#"{"request_id":"per_1","reply":"reject","message":[]}"#, "message"),
        (reply, r#"{"request_id":"per_1","reply":"once","metadata":7}"#, "metadata"),
        (reply, r#"{"request_id":"per_1","reply":"once","metadata":{"other":{}}}"#, "metadata.other"),
        (reply, r#"{"request_id":"per_1","reply":"once","metadata":{"opencode":[]}}"#, "metadata.opencode"),
        (reply, r#"{"request_id":"per_1","reply":"once","metadata":{"shared":"x"}}"#, "metadata.shared"),
        (reply, r#"{"request_id":"per_1","reply":"once","answers":[]}"#, "answers"),
        // The metadata is checked before the names, and the names before the values.
        (reply, r#"{"request_id":"per_1","extra":1,"metadata":{"other":{}}}"#, "metadata.other"),
        (reply, r#"{"request_id":"per_1","reply":"","extra":1}"#, "extra"),
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
        let error = method(name).read(ProtocolVersion::V1, params, Activated::ALL).expect_err(params);
        let fields: Vec<&str> = error.violations().iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!((error.kind(), &fields[..]), (ErrorKind::InvalidParams, &[field][..]), "{name} {params}");
    }
}

#[test]
fn a_method_needs_its_extension() {
    for method in all() {
        let others: Activated =
            all().map(|method| method.extension).filter(|extension| *extension != method.extension).collect();
        for activated in [Activated::NONE, others] {
            // The extension is checked before the parameters.
            let error = method.read(ProtocolVersion::V1, r#"{"nonsense":1}"#, activated).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ExtensionNotActivated, "{}", method.name);
        }
        let error = method.read(ProtocolVersion::V1, r#"{"nonsense":1}"#, Activated::ALL).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{}", method.name);
    }
    let refused = method("a2a.interrupt.permission.reply")
        .read(ProtocolVersion::V1, "{}", Activated::NONE)
        .unwrap_err();
    insta::assert_snapshot!("not_activated", str::from_utf8(&jsonrpc::error(&Id::Null, &refused)).unwrap());
}
