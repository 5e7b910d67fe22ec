//! Tests of requests in every permitted spelling, and of the exact error of each invalid request.

use longshore_model::{
    Error, ErrorKind, Json, ListTasks, Message, Metadata, OutputModes, Part, PartContent, Result, Role,
    TaskState, Timestamp,
};

use super::*;

/// The error of a refused request: its kind, and the path of its first field ("" if it names none).
pub(crate) fn fault<T: std::fmt::Debug>(read: Result<T>) -> (ErrorKind, String) {
    let error = read.expect_err("must be refused");
    let field = error.violations().first().map(|violation| violation.field.clone());
    (error.kind(), field.unwrap_or_default())
}

#[track_caller]
fn refused<T: std::fmt::Debug>(read: impl Fn(&str) -> Result<T>, cases: &[(&str, &str)]) {
    for (json, path) in cases {
        assert_eq!(fault(read(json)), (ErrorKind::InvalidParams, (*path).to_owned()), "{json}");
    }
}

/// A send of one message with further fields.
fn send(fields: &str) -> String {
    format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"hi"}}]{fields}}}}}"#)
}

fn send_parts(parts: &str) -> String {
    format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":{parts}}}}}"#)
}

fn metadata(json: &str) -> Metadata {
    Metadata::try_from(Json::parse(json).unwrap()).unwrap()
}

#[test]
fn every_spelling_of_a_message_is_the_same_message() {
    let camel = r#"{
        "message": {
            "messageId": "m1", "contextId": "c1", "taskId": "t1", "role": "ROLE_USER",
            "parts": [
                {"text": "", "filename": "a.md", "mediaType": "text/markdown", "metadata": {"n": 1700000000000000001}},
                {"raw": "+/8="}, {"url": "https://example.com/x"}, {"data": [1.50, null]}
            ],
            "metadata": {"k": 1e2}, "extensions": ["urn:x"], "referenceTaskIds": ["t0"]
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"], "historyLength": 3, "returnImmediately": true,
            "taskPushNotificationConfig": {"url": "https://example.com/hook"}
        },
        "metadata": {"top": true}, "tenant": ""
    }"#;
    let snake = r#"{"tenant":null,"unknown":{"a":[]},"metadata":{"top":true},"configuration":{"accepted_output_modes":["text/plain"],
        "history_length":"3","return_immediately":true,"task_push_notification_config":{"url":"https://example.com/hook"}},
        "message":{"reference_task_ids":["t0"],"extensions":["urn:x"],"metadata":{"k":1e2},"parts":[
        {"metadata":{"n":1700000000000000001},"media_type":"text/markdown","filename":"a.md","text":"","url":null,"data":null},
        {"raw":"-_8","text":null,"future":1},{"url":"https:\/\/example.com/x","filename":"","media_type":null},{"data":[1.50,null]}],
        "role":1,"task_id":"t1","context_id":"c1","message_id":"m1"}}"#;
    let expected = send_message(camel).unwrap();
    assert_eq!(send_message(snake).unwrap(), expected);

    let message = &expected.message;
    assert_eq!(message.role, Role::User);
    assert_eq!(message.metadata, Some(metadata(r#"{"k":1e2}"#)));
    assert_eq!(message.parts[0].metadata, Some(metadata(r#"{"n":1700000000000000001}"#)));
    assert_eq!(message.parts[0].content, PartContent::Text(String::new()));
    assert_eq!(message.parts[1].content, PartContent::Raw(vec![0xfb, 0xff]));
    assert_eq!(message.parts[2], Part::new(PartContent::Url("https://example.com/x".to_owned())));
    assert_eq!(message.parts[3], Part::data(Json::parse("[1.50,null]").unwrap()));
    assert_eq!(expected.metadata, Some(metadata(r#"{"top":true}"#)));
    assert_eq!(expected.config.push.as_ref().unwrap().url, "https://example.com/hook");
    assert!(expected.config.return_immediately);
    assert_eq!(expected.config.history_length, Some(3));
    assert_eq!(expected.config.accepted_output_modes, OutputModes::new(["text/plain"]));
    assert!(!expected.may_claim);
}

#[test]
fn null_and_empty_fields_count_as_absent() {
    let json =
        send(r#","contextId":"","taskId":null,"metadata":null,"extensions":null,"referenceTaskIds":[]"#)
            .replace(r#""message":{"#, r#""configuration":null,"metadata":null,"message":{"#);
    let command = send_message(&json).unwrap();
    let bare = Message::new(command.message.id.clone(), Role::User, vec![Part::text("hi")]);
    assert_eq!(command.message, bare);
    assert_eq!(command.config, longshore_model::SendConfig::default());
    assert_eq!(command.metadata, None);
}

#[test]
fn data_may_be_null_if_it_stands_alone() {
    let command = send_message(&send_parts(r#"[{"data":null},{"text":"a","data":null}]"#)).unwrap();
    assert_eq!(command.message.parts, [Part::data(Json::parse("null").unwrap()), Part::text("a")]);
}

#[test]
fn a_bad_part_is_named_by_its_path() {
    let cases = [
        ("[]", "message.parts"),
        ("null", "message.parts"),
        ("{}", "message.parts"),
        ("[null]", "message.parts[0]"),
        (r#"["hi"]"#, "message.parts[0]"),
        ("[{}]", "message.parts[0]"),
        (r#"[{"text":null}]"#, "message.parts[0]"),
        (r#"[{"kind":"text"}]"#, "message.parts[0]"),
        (r#"[{"text":"a"},{"text":"a","raw":""}]"#, "message.parts[1]"),
        (r#"[{"text":"a","data":1}]"#, "message.parts[0]"),
        (r#"[{"text":"a"},{"raw":"!"}]"#, "message.parts[1].raw"),
        (r#"[{"text":"a"},{"raw":[1]}]"#, "message.parts[1].raw"),
        (r#"[{"text":1}]"#, "message.parts[0].text"),
        (r#"[{"text":"\ud800"}]"#, "message.parts[0].text"),
        (r#"[{"url":{}}]"#, "message.parts[0].url"),
        (r#"[{"data":{"a":"\udc00"}}]"#, "message.parts[0].data"),
        (r#"[{"text":"a","media_type":1}]"#, "message.parts[0].media_type"),
        (r#"[{"text":"a","filename":false}]"#, "message.parts[0].filename"),
        (r#"[{"text":"a","metadata":[]}]"#, "message.parts[0].metadata"),
        (r#"[{"text":"a","\ud800":1}]"#, "message.parts[0]"),
    ];
    for (parts, path) in cases {
        refused(send_message, &[(&send_parts(parts), path)]);
    }
}

#[test]
fn a_bad_message_is_named_by_its_field() {
    let long = format!(r#","messageId":"{}""#, "x".repeat(129));
    let deep = format!(r#","metadata":{{"a":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
    for (fields, path) in [
        (r#","messageId":null"#, "message.messageId"),
        (r#","messageId":"""#, "message.messageId"),
        (r#","messageId":7"#, "message.messageId"),
        (r#","message_id":"a b""#, "message.message_id"),
        (&long, "message.messageId"),
        (r#","role":null"#, "message.role"),
        (r#","role":"ROLE_UNSPECIFIED""#, "message.role"),
        (r#","role":0"#, "message.role"),
        (r#","role":3"#, "message.role"),
        (r#","role":"user""#, "message.role"),
        (r#","role":true"#, "message.role"),
        (r#","role":"ROLE_AGENT""#, "message.role"),
        (r#","role":2"#, "message.role"),
        (r#","contextId":"a/b""#, "message.contextId"),
        (r#","context_id":{}"#, "message.context_id"),
        (r#","taskId":"../x""#, "message.taskId"),
        (r#","referenceTaskIds":["ok",""]"#, "message.referenceTaskIds[1]"),
        (r#","reference_task_ids":"t""#, "message.reference_task_ids"),
        (r#","extensions":[1]"#, "message.extensions[0]"),
        (r#","extensions":[null]"#, "message.extensions[0]"),
        (r#","metadata":"x""#, "message.metadata"),
        (&deep, "message.metadata"),
    ] {
        refused(send_message, &[(&send(fields), path)]);
    }
    refused(
        send_message,
        &[
            ("{}", "message"),
            (r#"{"message":null}"#, "message"),
            (r#"{"message":[]}"#, "message"),
            (r#"{"message":{"role":1,"parts":[{"text":""}]}}"#, "message.messageId"),
            (r#"{"message":{"messageId":"m","parts":[{"text":""}]}}"#, "message.role"),
            (r#"{"message":{"messageId":"m","role":1}}"#, "message.parts"),
        ],
    );
}

#[test]
fn a_bad_configuration_is_named_by_its_field() {
    for (configuration, path) in [
        ("[]", "configuration"),
        (r#"{"historyLength":-1}"#, "configuration.historyLength"),
        (r#"{"history_length":"-1"}"#, "configuration.history_length"),
        (r#"{"historyLength":2147483648}"#, "configuration.historyLength"),
        (r#"{"historyLength":1.5}"#, "configuration.historyLength"),
        (r#"{"historyLength":"x"}"#, "configuration.historyLength"),
        (r#"{"historyLength":true}"#, "configuration.historyLength"),
        (r#"{"returnImmediately":"true"}"#, "configuration.returnImmediately"),
        (r#"{"returnImmediately":1}"#, "configuration.returnImmediately"),
        (r#"{"acceptedOutputModes":"text/plain"}"#, "configuration.acceptedOutputModes"),
        (r#"{"acceptedOutputModes":["a/b",1]}"#, "configuration.acceptedOutputModes[1]"),
        (r#"{"acceptedOutputModes":["a/b",null]}"#, "configuration.acceptedOutputModes[1]"),
        (r#"{"accepted_output_modes":[""]}"#, "configuration.accepted_output_modes[0]"),
        (r#"{"acceptedOutputModes":["text"]}"#, "configuration.acceptedOutputModes[0]"),
        (r#"{"acceptedOutputModes":["text/"]}"#, "configuration.acceptedOutputModes[0]"),
        (r#"{"acceptedOutputModes":["/plain"]}"#, "configuration.acceptedOutputModes[0]"),
        (r#"{"acceptedOutputModes":["*/plain"]}"#, "configuration.acceptedOutputModes[0]"),
        (r#"{"acceptedOutputModes":["text/plain, text/html"]}"#, "configuration.acceptedOutputModes[0]"),
        (r#"{"acceptedOutputModes":["text/a\u0000"]}"#, "configuration.acceptedOutputModes[0]"),
        (r#"{"taskPushNotificationConfig":"x"}"#, "configuration.taskPushNotificationConfig"),
    ] {
        let json =
            send("").replacen(r#"{"message""#, &format!(r#"{{"configuration":{configuration},"message""#), 1);
        refused(send_message, &[(&json, path)]);
    }
    let tenant = send("").replacen(r#"{"message""#, r#"{"tenant":"acme","message""#, 1);
    refused(send_message, &[(&tenant, "tenant")]);
}

#[test]
fn output_modes_are_media_types_and_ranges() {
    let configured = |modes: &str| {
        let configuration = format!(r#"{{"configuration":{{"acceptedOutputModes":{modes}}},"message""#);
        send_message(&send("").replacen(r#"{"message""#, &configuration, 1))
    };
    for (modes, expected) in [
        ("[]", &[][..]),
        ("null", &[]),
        (r#"["*"]"#, &[]),
        (r#"["text/plain"," */* "]"#, &[]),
        (
            r#"["text/plain","Application/JSON ; charset=\"utf-8\"","text/PLAIN"]"#,
            &["application/json", "text/plain"],
        ),
        (r#"["image/*","application/vnd.a+json"]"#, &["application/vnd.a+json", "image/*"]),
    ] {
        let read = configured(modes).unwrap().config.accepted_output_modes;
        assert_eq!(read.iter().collect::<Vec<_>>(), expected, "{modes}");
    }
    let many = |count: usize| format!("[{}]", vec![r#""text/plain""#; count].join(","));
    assert!(configured(&many(64)).is_ok());
    assert_eq!(fault(configured(&many(65))).1, "configuration.acceptedOutputModes");
    let long = |length: usize| format!(r#"["text/{}"]"#, "a".repeat(length - 5));
    assert!(configured(&long(255)).is_ok());
    assert_eq!(fault(configured(&long(256))).1, "configuration.acceptedOutputModes[0]");
}

#[test]
fn invalid_json_and_json_that_is_no_object_are_different_errors() {
    for (json, kind) in [
        ("", ErrorKind::Parse),
        ("{", ErrorKind::Parse),
        (r#"{"id":"t"} x"#, ErrorKind::Parse),
        ("{'id':'t'}", ErrorKind::Parse),
        ("[]", ErrorKind::InvalidParams),
        ("null", ErrorKind::InvalidParams),
        ("7", ErrorKind::InvalidParams),
    ] {
        assert_eq!(fault(get_task(json)), (kind, String::new()), "{json}");
    }
}

#[test]
fn task_requests() {
    let command = get_task(r#"{"id":"t-1","history_length":0}"#).unwrap();
    assert_eq!((command.id.as_str(), command.history_length), ("t-1", Some(0)));
    assert_eq!(get_task(r#"{"id":"t"}"#).unwrap().history_length, None);
    assert_eq!(cancel_task(r#"{"id":"t","metadata":{"why":1}}"#).unwrap().id.as_str(), "t");
    assert_eq!(subscribe(r#"{"id":"t"}"#).unwrap().id.as_str(), "t");

    let bad_ids = [
        ("{}", "id"),
        (r#"{"id":null}"#, "id"),
        (r#"{"id":""}"#, "id"),
        (r#"{"id":1}"#, "id"),
        (r#"{"id":"tasks/1"}"#, "id"),
        (r#"{"id":"t","tenant":"a"}"#, "tenant"),
        (r#"{"id":"t","tenant":1}"#, "tenant"),
    ];
    refused(get_task, &bad_ids);
    refused(cancel_task, &bad_ids);
    refused(subscribe, &bad_ids);
    refused(get_task, &[(r#"{"id":"t","historyLength":-1}"#, "historyLength")]);
}

const NO_FILTER: ListTasks = ListTasks {
    context_id: None,
    state: None,
    status_after: None,
    page_size: 50,
    page_token: None,
    history_length: Some(0),
    include_artifacts: false,
};

#[test]
fn lists_are_filtered() {
    let full = ListTasks {
        context_id: Some(longshore_model::ContextId::parse("c").unwrap()),
        state: Some(TaskState::Canceled),
        status_after: Some(Timestamp(1001)),
        page_size: 100,
        page_token: Some("next".to_owned()),
        history_length: Some(2),
        include_artifacts: true,
    };
    for (json, expected) in [
        ("{}", NO_FILTER),
        (
            r#"{"contextId":"","status":"TASK_STATE_UNSPECIFIED","pageToken":"","includeArtifacts":false}"#,
            NO_FILTER,
        ),
        (r#"{"contextId":null,"status":0,"pageSize":null,"statusTimestampAfter":null}"#, NO_FILTER),
        (r#"{"pageSize":1}"#, ListTasks { page_size: 1, ..NO_FILTER }),
        (r#"{"status":8}"#, ListTasks { state: Some(TaskState::AuthRequired), ..NO_FILTER }),
        (
            r#"{"contextId":"c","status":"TASK_STATE_CANCELED","statusTimestampAfter":"1970-01-01T00:00:01.0002Z",
                "pageSize":"100","pageToken":"next","historyLength":2,"includeArtifacts":true}"#,
            full.clone(),
        ),
        (
            r#"{"context_id":"c","status":5,"status_timestamp_after":"1970-01-01T01:00:01.001+01:00",
                "page_size":100,"page_token":"next","history_length":"2","include_artifacts":true}"#,
            full.clone(),
        ),
    ] {
        assert_eq!(list_tasks(json).unwrap(), expected, "{json}");
    }
    refused(
        list_tasks,
        &[
            (r#"{"pageSize":0}"#, "pageSize"),
            (r#"{"pageSize":101}"#, "pageSize"),
            (r#"{"page_size":-1}"#, "page_size"),
            (r#"{"pageSize":"many"}"#, "pageSize"),
            (r#"{"pageSize":4294967297}"#, "pageSize"),
            (r#"{"status":"TASK_STATE_CANCELLED"}"#, "status"),
            (r#"{"status":"working"}"#, "status"),
            (r#"{"status":9}"#, "status"),
            (r#"{"status":-1}"#, "status"),
            (r#"{"status":[]}"#, "status"),
            (r#"{"statusTimestampAfter":"yesterday"}"#, "statusTimestampAfter"),
            (r#"{"statusTimestampAfter":1700000000}"#, "statusTimestampAfter"),
            (r#"{"statusTimestampAfter":"2026-01-31"}"#, "statusTimestampAfter"),
            (r#"{"historyLength":-1}"#, "historyLength"),
            (r#"{"includeArtifacts":"yes"}"#, "includeArtifacts"),
            (r#"{"pageToken":5}"#, "pageToken"),
            (r#"{"contextId":"a b"}"#, "contextId"),
            (r#"{"tenant":"a"}"#, "tenant"),
        ],
    );
}

pub(crate) fn query(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn queries_and_bodies_are_read_alike() {
    for (text, json) in [
        ("", "{}"),
        ("status=&contextId=&pageToken=&tenant=&A2A-Version=1.0", "{}"),
        ("status=TASK_STATE_UNSPECIFIED", "{}"),
        ("status=6&pageSize=3&pageSize=4", r#"{"status":"TASK_STATE_INPUT_REQUIRED","pageSize":4}"#),
        (
            "context_id=c&page_size=7&page_token=n&history_length=0&include_artifacts=true&status_timestamp_after=2026-01-01T00:00:00Z",
            r#"{"contextId":"c","pageSize":7,"pageToken":"n","historyLength":0,"includeArtifacts":true,"statusTimestampAfter":"2026-01-01T00:00:00Z"}"#,
        ),
    ] {
        assert_eq!(list_tasks_query(&query(text)).unwrap(), list_tasks(json).unwrap(), "{text}");
    }
    let task = get_task_query("t", &query("historyLength=5&x=y")).unwrap();
    assert_eq!(task, get_task(r#"{"id":"t","historyLength":5}"#).unwrap());
    assert_eq!(subscribe_query("t", &[], "").unwrap(), subscribe(r#"{"id":"t"}"#).unwrap());

    refused(
        |text| list_tasks_query(&query(text)),
        &[
            ("pageSize=0", "pageSize"),
            ("page_size=x", "page_size"),
            ("pageSize=", "pageSize"),
            ("status=9", "status"),
            ("status=done", "status"),
            ("historyLength=-1", "historyLength"),
            ("includeArtifacts=1", "includeArtifacts"),
            ("statusTimestampAfter=now", "statusTimestampAfter"),
            ("contextId=a/b", "contextId"),
            ("tenant=x", "tenant"),
        ],
    );
    refused(
        |text| get_task_query("t", &query(text)),
        &[("historyLength=1.5", "historyLength"), ("tenant=x", "tenant")],
    );
    refused(|id| get_task_query(id, &[]), &[("", "id"), ("a/b", "id"), ("a b", "id")]);
}

#[test]
fn a_request_for_one_task_needs_no_body() {
    for body in ["", " \r\n", "{}", r#"{"id":"t"}"#, r#"{"id":null,"metadata":{}}"#, r#"{"id":""}"#] {
        assert_eq!(cancel_task_query("t", &[], body).unwrap().id.as_str(), "t", "{body:?}");
        assert_eq!(subscribe_query("t", &query("tenant=&x=y"), body).unwrap().id.as_str(), "t", "{body:?}");
    }
    let bodies = &[(r#"{"id":"u"}"#, "id"), (r#"{"tenant":"x"}"#, "tenant"), ("[]", "")];
    refused(|body| cancel_task_query("t", &[], body), bodies);
    refused(|body| subscribe_query("t", &[], body), bodies);
    refused(|id| cancel_task_query(id, &[], ""), &[("a/b", "id")]);
    refused(|id| subscribe_query(id, &[], ""), &[("a/b", "id")]);
    refused(|text| cancel_task_query("t", &query(text), ""), &[("tenant=x", "tenant")]);
    refused(|text| subscribe_query("t", &query(text), ""), &[("tenant=x", "tenant")]);
    assert_eq!(fault(cancel_task_query("t", &[], "{")).0, ErrorKind::Parse);
}

#[test]
fn a_send_may_have_a_query() {
    let body = send_parts(r#"[{"text":"a"}]"#);
    assert_eq!(send_message_query(&query("tenant=&x=y"), &body).unwrap(), send_message(&body).unwrap());
    refused(|text| send_message_query(&query(text), &body), &[("tenant=x", "tenant")]);
}

#[test]
fn a_bad_response_is_an_error_of_the_agent() {
    for (json, expected) in [
        ("{", "The answer is no JSON object."),
        ("{}", "the answer: must have exactly one of"),
        (r#"{"task":{"id":"t","contextId":"c"}}"#, "task.status: is required"),
        (r#"{"task":{"id":"t","contextId":"c","status":{"state":1}}}"#, "task.status.timestamp: is required"),
        (r#"{"statusUpdate":{"taskId":"t"}}"#, "statusUpdate.contextId: is required"),
        (
            r#"{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{}]}}}"#,
            "artifactUpdate.artifact.parts[0]: must have one of",
        ),
        (
            r#"{"task":null,"message":{"messageId":"m","role":2,"parts":[]}}"#,
            "message.parts: must have at least",
        ),
    ] {
        let error: Error = stream_event(json).expect_err(json);
        assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse, "{json}");
        assert!(error.message().starts_with(expected), "{json}: {error}");
    }
}
