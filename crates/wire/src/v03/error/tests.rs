use std::collections::HashSet;
use std::fmt::Write as _;

use super::*;
use crate::extension::Activated;
use crate::surface::ProtocolVersion;
use crate::v1;

fn facts(error: &Error) -> String {
    let written = jsonrpc(&Id::Null, error);
    let written = str::from_utf8(&written).unwrap();
    let (_, data) = written.split_once(r#""data":"#).unwrap();
    data.strip_suffix("}}").unwrap().to_owned()
}

#[test]
fn the_whole_table() {
    let mut table = String::new();
    for kind in ErrorKind::ALL {
        let Row { code, http, word } = row(kind);
        writeln!(table, "{:<26} {code} {http} {word}", format!("{kind:?}")).unwrap();
    }
    insta::assert_snapshot!(table);
}

#[test]
fn every_kind_has_a_word_of_its_own() {
    // These kinds are exempt, because they mean the same in 0.3.
    let twins = [
        (ErrorKind::SessionNotFound, ErrorKind::SessionGone),
        (ErrorKind::UpstreamUnreachable, ErrorKind::AgentUnavailable),
        (ErrorKind::AuthorizationForbidden, ErrorKind::PermissionDenied),
    ];
    for (one, other) in twins {
        assert_eq!(row(one), row(other), "{one:?}");
    }
    let words: HashSet<_> = ErrorKind::ALL.into_iter().map(|kind| row(kind).word).collect();
    assert_eq!(words.len(), ErrorKind::ALL.len() - twins.len());
    // The codes that A2A itself defines are the same in both versions, if 0.3 has them.
    let unnamed = [ErrorKind::VersionNotSupported, ErrorKind::ExtensionRequired];
    let gateway_codes = -31063..=-31051;
    for kind in ErrorKind::ALL.into_iter().filter(|kind| !unnamed.contains(kind)) {
        let newer = v1::error::row(kind).code;
        assert!(gateway_codes.contains(&newer) || newer == row(kind).code, "{kind:?}");
    }
}

#[test]
fn both_formats_byte_for_byte() {
    let version = Error::new(ErrorKind::VersionNotSupported, "A2A 2.0 is not spoken here.")
        .detail("requestedVersion", "2.0")
        .detail("supportedProtocolVersions", r#"["0.3","1.0"]"#)
        .detail("defaultProtocolVersion", "0.3");
    let many = Error::new(ErrorKind::TooManyRequests, "Too many requests.")
        .detail("limit", "requests")
        .detail("max", "120")
        .after(std::time::Duration::from_millis(4200));
    let large = Error::new(ErrorKind::BodyTooLarge, "Too large.").detail("maxBytes", "1024");
    let method = jsonrpc::unknown_method("tasks/nope", ["message/send"], ProtocolVersion::V03);
    let field = Error::invalid("pageSize", "must be from 1 to 100");
    let not_there = Error::task_not_found("17");
    for (name, error) in [
        ("version", version),
        ("large", large),
        ("many", many),
        ("method", method),
        ("field", field),
        ("task", not_there),
    ] {
        let rest = rest_body(&error);
        let rpc = jsonrpc(&Id::String("q".to_owned()), &error);
        let both = format!("{}\n{}", str::from_utf8(&rest).unwrap(), str::from_utf8(&rpc).unwrap());
        insta::assert_snapshot!(name, both);
    }
}

#[test]
fn details_are_in_snake_case_and_have_their_own_type() {
    let error = |details: &[(&str, &str)]| {
        let error = Error::new(ErrorKind::InterruptTypeMismatch, "x");
        details.iter().fold(error, |error, (name, value)| error.detail(*name, *value))
    };
    for (details, expected) in [
        (&[][..], ""),
        (&[("requestId", "12")], r#","request_id":"12""#),
        (&[("expectedInterruptType", "permission")], r#","expected_interrupt_type":"permission""#),
        (&[("a", "1"), ("a", "2")], r#","a":"2""#),
        (&[("maxBytes", "many"), ("actualSize", "7")], r#","max_bytes":"many","actual_size":7"#),
        (
            &[("limit", "streams"), ("max", "1024"), ("retryAfterSeconds", "5")],
            r#","limit":"streams","max":1024,"retry_after_seconds":5"#,
        ),
        (&[("limit", "120")], r#","limit":120"#),
        (
            &[("fields", r#"["a\"b"]"#), ("supportedMethods", "[no")],
            r#","fields":["a\"b"],"supported_methods":"[no""#,
        ),
        // A method name of the caller stays text.
        (&[("method", r#"["a","b"]"#)], r#","method":"[\"a\",\"b\"]""#),
        // No detail can replace the gateway's own fields.
        (&[("type", "X"), ("message", "X"), ("error", "X"), ("code", "X")], ""),
    ] {
        let expected = format!(r#"{{"type":"INTERRUPT_TYPE_MISMATCH"{expected}}}"#);
        assert_eq!(facts(&error(details)), expected, "{details:?}");
    }
}

#[test]
fn the_internal_cause_is_not_sent() {
    let error = Error::internal("disk /var/x is full");
    assert!(!str::from_utf8(&rest_body(&error)).unwrap().contains("disk"));
    assert!(!facts(&error).contains("disk"));
}

#[test]
fn the_parts_of_a_message_have_the_name_of_the_dialect() {
    let elsewhere =
        Error::new(ErrorKind::ContentTypeNotSupported, "message.parts[1]: is no text, see message.parts")
            .detail("field", "message.parts[1]");
    for (error, text, field) in [
        (
            Error::invalid("message.parts[1].data", "is odd"),
            "message.content[1].data: is odd",
            "message.content[1].data",
        ),
        (Error::invalid("message.parts", "is odd"), "message.content: is odd", "message.content"),
        (Error::invalid("message.partsy", "is odd"), "message.partsy: is odd", "message.partsy"),
        (elsewhere, "message.content[1]: is no text, see message.parts", "message.content[1]"),
    ] {
        let rest: serde_json::Value = serde_json::from_slice(&rest_body(&error)).unwrap();
        assert_eq!(
            (&rest["message"], &rest["error"], &rest["field"]),
            (&text.into(), &text.into(), &field.into())
        );
        let rpc: serde_json::Value = serde_json::from_slice(&jsonrpc(&Id::Null, &error)).unwrap();
        assert_eq!(rpc["error"]["message"], error.message());
        assert_eq!(rpc["error"]["data"]["field"], field.replace("message.content", "message.parts"));
    }
    let two = Error::invalid("message.parts[0]", "a").detail("x", "message.parts");
    assert!(
        str::from_utf8(&rest_body(&two)).unwrap().contains(r#""x":"message.parts""#),
        "only field names are replaced"
    );
}

#[test]
fn errors_of_extension_methods_have_the_format_of_0_3() {
    let method = crate::opencode::method("a2a.interrupt.permission.reply").unwrap();
    for (params, expected) in [
        (r#"{"reply":"once"}"#, r#"{"type":"MISSING_FIELD","field":"request_id"}"#),
        (r#"{"request_id":"p","reply":"may\nbe"}"#, r#"{"type":"INVALID_FIELD","field":"reply"}"#),
        (r#"{"request_id":"p","reply":"once","x":1}"#, r#"{"type":"INVALID_FIELD","fields":["x"]}"#),
        ("[]", r#"{"type":"INVALID_PARAMS"}"#),
    ] {
        assert_eq!(
            facts(&method.read(ProtocolVersion::V03, params, Activated::ALL).unwrap_err()),
            expected,
            "{params}"
        );
    }
}
