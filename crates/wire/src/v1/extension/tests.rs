//! Tests the exact bytes of the responses about asks, and which extension each metadata field needs.

use longshore_model::{
    Ask, AskKind, AskOption, AskOptions, ContextId, Json, OptionKind, Principal, SessionId, TaskId, Timestamp,
};

use super::*;
use crate::jsonrpc::{self, Id};

fn request(id: &str) -> RequestId {
    RequestId::parse(id).unwrap()
}

#[test]
fn responses_about_asks_byte_for_byte() {
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
            call: None,
            permission: None,
            options: AskOptions::words(),
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

    let mut own = interrupt("per_4", None);
    own.ask.options = AskOptions::new([AskOption {
        id: "proceed_once".to_owned(),
        name: "Allow".to_owned(),
        kind: OptionKind::AllowOnce,
    }]);
    let list = asks(&[own]);
    let options =
        r#""expires_at":null,"options":[{"id":"proceed_once","name":"Allow","kind":"allow_once"}]}]}"#;
    assert!(str::from_utf8(&list).unwrap().ends_with(options), "{list:?}");
}

#[test]
fn a_field_needs_its_extension() {
    use Extension::{ModelSelection, SessionBinding, StreamHints};
    let session = r#"{"shared":{"session":{"id":"ses_1"}}}"#;
    let model = r#"{"shared":{"model":{"providerID":"p","modelID":"m"}}}"#;
    let directory = r#"{"opencode":{"directory":"/a"}}"#;
    let workspace = r#"{"opencode":{"workspace":{"id":"wrk_1"}}}"#;
    let alias = r#"{"iac_code":{"cwd":"/a"}}"#;
    let plain = r#"{"shared":{"model":"m"}}"#;
    let free = r#"{"shared":{"delivery":"steer","mode":"plan","session":{"id":" "}},"opencode":{"agent":"a","variant":"v","system":"s"}}"#;
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
        // The alias takes precedence here, but the field is in use nevertheless.
        (alias, directory, &[], &["message.metadata.opencode.directory"]),
        (
            workspace,
            workspace,
            &[],
            &["metadata.opencode.workspace.id", "message.metadata.opencode.workspace.id"],
        ),
        (model, "null", &[SessionBinding], &halves),
        (model, "null", &[ModelSelection], &[]),
        (plain, "null", &[SessionBinding], &["metadata.shared.model"]),
        (all, "null", &[ModelSelection], &["metadata.shared.session.id", "metadata.opencode.directory"]),
        (all, "null", &[SessionBinding], &halves),
        (all, all, &[SessionBinding, ModelSelection], &[]),
    ] {
        let command = crate::v1::decode::send_message(&format!(
            r#"{{"metadata":{request},"message":{{"messageId":"m","role":1,"parts":[{{"text":"x"}}],"metadata":{message}}}}}"#
        ))
        .unwrap();
        let checked = check_send_options(&command, activated.iter().copied().collect());
        assert_eq!(checked.is_ok(), refused.is_empty(), "{request} {message} {activated:?}");
        let Err(error) = checked else { continue };
        assert_eq!(error.kind(), ErrorKind::ExtensionNotActivated);
        let fields = ("fields".to_owned(), serde_json::to_string(refused).unwrap());
        assert_eq!(error.details()[0], fields, "{request} {message} {activated:?}");
    }
    let command = crate::v1::decode::send_message(&format!(
        r#"{{"metadata":{all},"message":{{"messageId":"m","role":1,"parts":[{{"text":"x"}}]}}}}"#
    ));
    let refused = check_send_options(&command.unwrap(), Activated::NONE).unwrap_err();
    insta::assert_snapshot!(
        "fields_not_activated",
        str::from_utf8(&jsonrpc::error(&Id::Null, &refused)).unwrap()
    );
}
