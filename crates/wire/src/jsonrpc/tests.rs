//! Tests of valid and invalid envelopes.

use longshore_model::{Error, ErrorKind};
use proptest::prelude::*;

use super::*;

#[test]
fn a_request_is_parsed() {
    for (body, id, method, params) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t"}}"#,
            Some(number("1")),
            "GetTask",
            Some(r#"{"id":"t"}"#),
        ),
        (
            r#"{"params": {} ,"method":"a","id":"x","jsonrpc":"2.0","more":1}"#,
            Some(string("x")),
            "a",
            Some("{}"),
        ),
        (r#"{"jsonrpc":"2.0","id":null,"method":"a","params":null}"#, Some(Id::Null), "a", None),
        (r#"{"jsonrpc":"2.0","method":"a\n"}"#, None, "a\n", None),
        (r#" {"jsonrpc":"2.0","id":-0,"method":""} "#, Some(number("-0")), "", None),
        (
            r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"a"}"#,
            Some(number("123456789012345678901234567890")),
            "a",
            None,
        ),
    ] {
        let request = parse(body.as_bytes()).unwrap_or_else(|rejected| panic!("{body}: {rejected:?}"));
        assert_eq!(request.id, id, "{body}");
        assert_eq!(request.method, method, "{body}");
        assert_eq!(request.params.map(RawValue::get), params, "{body}");
    }
}

#[test]
fn an_invalid_request_is_refused_with_its_own_id() {
    use ErrorKind::{InvalidParams, InvalidRequest, Parse};
    let long_id = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"a"}}"#, "x".repeat(MAX_ID_LENGTH));
    for (body, kind, id) in [
        ("", Parse, Id::Null),
        ("{", Parse, Id::Null),
        ("{}{}", Parse, Id::Null),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":}}"#, Parse, Id::Null),
        ("[]", InvalidRequest, Id::Null),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"a"}]"#, InvalidRequest, Id::Null),
        ("null", InvalidRequest, Id::Null),
        ("\"a\"", InvalidRequest, Id::Null),
        ("{}", InvalidRequest, Id::Null),
        (r#"{"id":7,"method":"a"}"#, InvalidRequest, number("7")),
        (r#"{"jsonrpc":"1.0","id":7,"method":"a"}"#, InvalidRequest, number("7")),
        (r#"{"jsonrpc":2.0,"id":7,"method":"a"}"#, InvalidRequest, number("7")),
        (r#"{"jsonrpc":"2.0","id":"q"}"#, InvalidRequest, string("q")),
        (r#"{"jsonrpc":"2.0","id":"q","method":1}"#, InvalidRequest, string("q")),
        (r#"{"jsonrpc":"2.0","id":true,"method":"a"}"#, InvalidRequest, Id::Null),
        (r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#, InvalidRequest, Id::Null),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"a"}"#, InvalidRequest, Id::Null),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#, InvalidRequest, Id::Null),
        (r#"{"jsonrpc":"2.0","id":1e3,"method":"a"}"#, InvalidRequest, Id::Null),
        (r#"{"jsonrpc":"2.0","id":"\ud800","method":"a"}"#, InvalidRequest, Id::Null),
        (&long_id, InvalidRequest, Id::Null),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[]}"#, InvalidParams, number("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":"x"}"#, InvalidParams, number("1")),
    ] {
        let rejected = parse(body.as_bytes()).expect_err(body);
        assert_eq!((rejected.error.kind(), rejected.id), (kind, id), "{body}");
    }
    assert_eq!(parse(b"{\"jsonrpc\":\"\xff\"}").unwrap_err().error.kind(), Parse);
}

#[test]
fn a_request_is_recognised_by_its_envelope() {
    for (body, expected) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{}}"#, true),
        (r#"{"jsonrpc":"1.0","method":""}"#, true),
        (r#"{"message":{"messageId":"m"},"metadata":{"jsonrpc":"2.0","method":"a"}}"#, false),
        (r#"{"jsonrpc":"2.0"}"#, false),
        (r#"{"method":"a"}"#, false),
        (r#"{"jsonrpc":2.0,"method":"a"}"#, false),
        (r#"[{"jsonrpc":"2.0","method":"a"}]"#, false),
        ("{", false),
        ("", false),
    ] {
        assert_eq!(is_request(body), expected, "{body}");
    }
}

#[test]
fn the_error_for_a_batch_says_what_to_do_instead() {
    let rejected = parse(b" [] ").unwrap_err();
    assert!(rejected.error.message().contains("each request by itself"), "{}", rejected.error);
}

#[test]
fn depth_does_not_matter_to_the_envelope() {
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"a","x":{open}{close},"params":{{"y":{open}{close}}}}}"#
    );
    assert!(parse(body.as_bytes()).is_ok());
    assert_eq!(parse(open.as_bytes()).unwrap_err().error.kind(), ErrorKind::InvalidRequest);
}

#[test]
fn responses_repeat_the_id_unchanged() {
    for (id, expected) in [
        (Id::Null, r#"{"jsonrpc":"2.0","id":null,"result":{"a":1}}"#),
        (number("123456789012345678901"), r#"{"jsonrpc":"2.0","id":123456789012345678901,"result":{"a":1}}"#),
        (Id::String("a\"\n".into()), r#"{"jsonrpc":"2.0","id":"a\"\n","result":{"a":1}}"#),
    ] {
        assert_eq!(result(&id, br#"{"a":1}"#), expected);
    }
}

#[test]
fn an_error_contains_its_code_reason_and_fields() {
    let not_found = Error::task_not_found("t1");
    insta::assert_snapshot!("task_not_found", written(error(&number("1"), &not_found)));
    let invalid = Error::invalid("message.parts[1].raw", "must be base64");
    insta::assert_snapshot!("invalid_params", written(error(&Id::Null, &invalid)));
}

proptest! {
    #[test]
    fn no_bytes_break_the_parser(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&body);
    }

    #[test]
    fn ids_come_back(text in crate::testing::arbitrary::text(), number in any::<i128>()) {
        for id in [Id::String(text), Id::Number(number.to_string())] {
            let answer = result(&id, b"1");
            let body = String::from_utf8(answer.to_vec()).unwrap().replace("\"result\":1", "\"method\":\"a\"");
            prop_assert_eq!(parse(body.as_bytes()).unwrap().id, Some(id));
        }
    }
}

fn number(digits: &str) -> Id {
    Id::Number(digits.to_owned())
}

fn string(text: &str) -> Id {
    Id::String(text.to_owned())
}

fn written(bytes: Bytes) -> String {
    String::from_utf8(bytes.into()).unwrap()
}

#[test]
fn the_error_for_a_method_of_the_other_version_says_so() {
    let old = unknown_method("GetTask", ["tasks/get"], ProtocolVersion::V03);
    // 0.3 clients know exactly this text.
    assert_eq!(old.message(), "Unsupported method: GetTask");
    let hint =
        "It is a method of A2A 1.0: send A2A-Version: 1.0, and not under /a2a/0.3, where only 0.3 is served.";
    assert_eq!(old.details().last(), Some(&("hint".to_owned(), hint.to_owned())));

    let new = unknown_method("message/send", ["SendMessage"], ProtocolVersion::V1);
    assert_eq!(
        new.message(),
        "Unsupported method: message/send. It is a method of A2A 0.3: send A2A-Version: 0.3, and not under /a2a/1.0, \
         where only 1.0 is served."
    );
    assert!(new.details().iter().all(|(name, _)| name != "hint"));
}

#[test]
fn the_error_for_an_unknown_method_lists_the_supported_ones() {
    let long = "Unsupported method: no/such. The field supportedMethods of this error lists the methods.";
    for (version, text) in
        [(ProtocolVersion::V1, long), (ProtocolVersion::V03, "Unsupported method: no/such")]
    {
        let error = unknown_method("no\n/such", ["message/send", "tasks/get"], version);
        assert_eq!(error.kind(), ErrorKind::MethodNotFound);
        assert_eq!(error.message(), text);
        let expected = [
            ("method", "no/such"),
            ("supportedMethods", r#"["message/send","tasks/get"]"#),
            ("protocolVersion", version.as_str()),
        ];
        assert_eq!(error.details(), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(unknown_method(&"x".repeat(9999), [], version).message().len() < 200);
    }
}

#[test]
fn the_error_for_a_misspelled_method_suggests_the_right_one() {
    let new = unknown_method("GetTasks", ["SendMessage", "GetTask"], ProtocolVersion::V1);
    assert_eq!(new.message(), "Unsupported method: GetTasks. Did you mean GetTask?");
    let old = unknown_method("tasks/gett", ["message/send", "tasks/get"], ProtocolVersion::V03);
    assert_eq!(old.message(), "Unsupported method: tasks/gett");
    assert_eq!(old.details().last(), Some(&("hint".to_owned(), "Did you mean tasks/get?".to_owned())));
}
