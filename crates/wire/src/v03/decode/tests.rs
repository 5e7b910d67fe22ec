//! Tests of requests in every format of old clients, and of the exact error of each invalid request.

use longshore_model::{
    ErrorKind, Json, Message, MessageId, OutputModes, Part, PartContent, PushFormat, Role, TaskState,
    Timestamp,
};

use super::Dialect::{Rest, Rpc};
use super::*;
use crate::v1::decode::tests::{fault, query};

fn with_parts(dialect: Dialect, parts: &str) -> Result<SendMessage> {
    let (role, key) = match dialect {
        Rpc => ("user", "parts"),
        Rest => ("ROLE_USER", "content"),
    };
    send_message(dialect, &format!(r#"{{"message":{{"messageId":"m","role":"{role}","{key}":{parts}}}}}"#))
}

fn configured(dialect: Dialect, configuration: &str) -> Result<SendConfig> {
    let parts = r#""messageId":"m","role":"user","parts":[{"text":"x"}]"#;
    let json = format!(r#"{{"configuration":{configuration},"message":{{{parts}}}}}"#);
    send_message(dialect, &json).map(|command| command.config)
}

fn data(json: &str) -> Part {
    Part::data(Json::parse(json).unwrap())
}

#[test]
fn every_format_of_a_message_gives_the_same_message() {
    let rpc = r#"{
        "message": {
            "kind": "message", "messageId": "m1", "contextId": "c1", "taskId": "t1", "role": "user",
            "parts": [
                {"kind": "text", "text": "a", "metadata": {"n": 1700000000000000001}},
                {"kind": "file", "file": {"bytes": "+/8=", "mimeType": "image/png", "name": "a.png"}},
                {"kind": "file", "file": {"uri": "https://example.com/x", "mimeType": "text/html"}},
                {"kind": "data", "data": {"a": 1.50}}
            ],
            "metadata": {"k": 1e2}, "extensions": ["urn:x"], "referenceTaskIds": ["t0"]
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"], "historyLength": 3, "blocking": false,
            "pushNotificationConfig": {"url": "https://example.com/hook"}
        },
        "metadata": {"top": true}
    }"#;
    let rest = r#"{"metadata":{"top":true},"configuration":{"accepted_output_modes":["text/plain"],"history_length":3,
        "blocking":false,"push_notification":{"url":"https://example.com/hook"}},"request":{"message_id":"m1","context_id":"c1","task_id":"t1","role":1,
        "content":[{"text":"a","metadata":{"n":1700000000000000001}},
        {"file":{"fileWithBytes":"-_8","mime_type":"image/png","name":"a.png"}},
        {"file":{"file_with_uri":"https://example.com/x","mimeType":"text/html","name":""}},{"data":{"data":{"a":1.50}}}],
        "metadata":{"k":1e2},"extensions":["urn:x"],"referenceTaskIds":["t0"],"unknown":[{}]}}"#;
    let newer = r#"{"message":{"messageId":"m1","contextId":"c1","taskId":"t1","role":"ROLE_USER","parts":[
        {"text":"a","metadata":{"n":1700000000000000001}},
        {"raw":"+/8=","mediaType":"image/png","filename":"a.png"},
        {"url":"https://example.com/x","mediaType":"text/html"},{"data":{"a":1.50}}],
        "metadata":{"k":1e2},"extensions":["urn:x"],"referenceTaskIds":["t0"]},"metadata":{"top":true},
        "configuration":{"acceptedOutputModes":["text/plain"],"historyLength":3,"returnImmediately":true,
        "taskPushNotificationConfig":{"url":"https://example.com/hook"}}}"#;
    // Removes what differs: the place and the version of a push configuration.
    let plain = |read: Result<SendMessage>| {
        let mut command = read.unwrap();
        let push = command.config.push.as_mut().unwrap();
        (push.place, push.format) = ("", PushFormat::V03);
        command
    };
    let expected = plain(send_message(Rpc, rpc));
    assert_eq!(plain(send_message(Rest, rest)), expected);
    for dialect in Dialect::ALL {
        assert_eq!(plain(send_message(dialect, newer)), expected, "{dialect:?}");
    }
    assert_eq!(plain(send_message(Rest, rpc)), expected, "REST understands the format of JSON-RPC");
    assert_eq!(plain(crate::v1::decode::send_message(newer)), expected, "1.0 reads the same message");

    let message = &expected.message;
    let file =
        Part { media_type: Some("image/png".to_owned()), ..Part::new(PartContent::Raw(vec![0xfb, 0xff])) };
    assert_eq!(message.parts[1], Part { filename: Some("a.png".to_owned()), ..file });
    assert_eq!(message.parts[3], data(r#"{"a":1.50}"#));
    assert_eq!(expected.config.accepted_output_modes, OutputModes::new(["text/plain"]));
    assert_eq!(expected.config.push.as_ref().unwrap().url, "https://example.com/hook");
    assert!(expected.config.return_immediately);
}

#[test]
fn the_options_of_1_0_are_read() {
    let json = r#"{"metadata":{"shared":{"session":{"id":"ses_1"},"model":{"providerID":"p","modelID":"m"}}},
        "message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}],
        "metadata":{"opencode":{"directory":"/a"},"shared":{"session":{"id":"ses_2"}}}}}"#;
    let options = send_message(Rpc, json).unwrap().options;
    assert_eq!(options.session.unwrap().as_str(), "ses_1");
    assert_eq!(options.prompt.model.unwrap().model, "m");
    assert_eq!(options.directory.as_deref(), Some("/a"));
}

#[test]
fn a_part_is_recognised_by_its_kind_or_by_its_content() {
    for (dialect, json, expected) in [
        (Rpc, r#"{"text":"a"}"#, Part::text("a")),
        (Rpc, r#"{"kind":null,"text":"a","data":null}"#, Part::text("a")),
        (Rpc, r#"{"data":{"data":{"x":1}}}"#, data(r#"{"data":{"x":1}}"#)),
        (Rpc, r#"{"kind":"data","data":[1]}"#, data("[1]")),
        (Rpc, r#"{"type":"data","data":[1]}"#, data("[1]")),
        (Rpc, r#"{"kind":"text","type":"whatever","text":"a"}"#, Part::text("a")),
        (Rpc, r#"{"file":{"uri":"u"}}"#, Part::new(PartContent::Url("u".to_owned()))),
        (Rpc, r#"{"kind":"file","url":"u"}"#, Part::new(PartContent::Url("u".to_owned()))),
        (Rest, r#"{"data":{"data":{"x":1}}}"#, data(r#"{"x":1}"#)),
        (Rest, r#"{"data":{"data":{"data":{}}}}"#, data(r#"{"data":{}}"#)),
        (Rest, r#"{"data":{"data":{"x":1},"future":2}}"#, data(r#"{"x":1}"#)),
        // Without the wrapper of a data part the value is the data.
        (Rest, r#"{"data":{"x":1}}"#, data(r#"{"x":1}"#)),
        (Rest, r#"{"data":{"data":7}}"#, data(r#"{"data":7}"#)),
        (Rest, r#"{"data":"x"}"#, data("\"x\"")),
        (Rest, r#"{"kind":"text","text":""}"#, Part::text("")),
        (
            Rest,
            r#"{"file":{"fileWithUri":"data:x/y;base64,aGk="}}"#,
            Part::new(PartContent::Raw(b"hi".to_vec())),
        ),
        (Rest, r#"{"file":{"fileWithUri":"data:,hi"}}"#, Part::new(PartContent::Url("data:,hi".to_owned()))),
        (Rest, r#"{"file":{"bytes":"aGk="}}"#, Part::new(PartContent::Raw(b"hi".to_vec()))),
    ] {
        let command = with_parts(dialect, &format!("[{json}]")).unwrap();
        assert_eq!(command.message.parts, [expected], "{dialect:?} {json}");
    }
}

#[test]
fn bytes_that_were_encoded_twice_are_decoded_twice() {
    let png = b"\x89PNG\r\n\x1a\n";
    let octets = Some("application/octet-stream");
    let random = b"\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91";
    for (twice, media_type, expected) in [
        // Bytes as the Python client sends a text, an image and bytes of unknown type, and then as the JavaScript client sends
        // them.
        ("YUdWc2JHOGdkMjl5YkdRPQ==", Some("text/plain"), &b"hello world"[..]),
        ("YUdWc2JHOGdkMjl5YkdRPQ==", None, b"hello world"),
        // Base64 without padding, which decodes to a text that is long enough.
        ("YUdWc2JHOGdkMjl5", Some("text/plain"), b"hello wor"),
        ("YUdWc2JHOGdkMjl5", None, b"hello wor"),
        // A text with colour codes.
        ("RzFzek1XMWxjbkp2Y2h0Yk1HMD0=", Some("text/plain"), b"\x1b[31merror\x1b[0m"),
        ("aVZCT1J3MEtHZ289", Some("image/png"), png),
        ("aVZCT1J3MEtHZ289", Some("Image/PNG; q=1"), png),
        ("aVZCT1J3MEtHZ289", octets, png),
        ("L3dDQkJ3PT0=", None, b"\xff\x00\x81\x07"),
        ("L3dDQkJ3PT0=", octets, b"\xff\x00\x81\x07"),
        ("Z29HQ2c0U0ZoZ1VWTlE9PQ==", None, b"\x82\x81\x82\x83\x84\x85\x86\x05\x15\x35"),
        // Base64 without padding, but long and with all classes of characters.
        ("Z0lHQ2c0U0Zob2VJaVlxTGpJMk9qNUNS", octets, random),
        ("iVBORw0KGgo=", Some("image/png"), png),
        ("aGVsbG8gd29ybGQ=", Some("text/plain"), b"hello world"),
        // Words, paths, sums, names, numbers and hashes can be valid base64 too.
        ("dGVzdA==", Some("text/plain"), b"test"),
        ("dGVzdA==", octets, b"test"),
        ("YmlsbA==", Some("text/plain"), b"bill"),
        ("SGVsbG8xMjM=", None, b"Hello123"),
        ("c3JjL21haW4=", None, b"src/main"),
        ("L3Vzci9iaW4=", None, b"/usr/bin"),
        ("MSsxLzIrMy8=", None, b"1+1/2+3/"),
        ("U25ha2VDYXNlSWRlbnQxMg==", None, b"SnakeCaseIdent12"),
        ("QWJjZGVmZ2gxMjM0NTY3OA==", None, b"Abcdefgh12345678"),
        ("TXlQYXNzdzByZDEyMzQ1Ng==", Some("application/x-sh"), b"MyPassw0rd123456"),
        ("ZDQxZDhjZDk4ZjAwYjIwNGU5ODAwOTk4ZWNmODQyN2U=", None, b"d41d8cd98f00b204e9800998ecf8427e"),
        ("YS9iYytkZWY=", Some("text/x-list"), b"a/bc+def"),
        ("Z29HQ2c0U0ZoZ1VWTlE9PQ==", Some("text/plain"), b"goGCg4SFhgUVNQ=="),
        // Not as an encoder would write it, because the last character has surplus bits.
        ("L3dDQi93Rj0=", octets, b"/wCB/wF="),
        ("", Some("image/png"), b""),
        // Known wrong results for clients that encode once: a file that is the base64 of a text becomes that text, and a long key
        // becomes bytes if no media type says that it is text.
        ("ZEdocGN5QnBjeUJoSUhObFkzSmxkQT09", Some("text/plain"), b"this is a secret"),
        ("Z0lHQ2c0U0Zob2VJaVlxTGpJMk9qNUNS", None, random),
        ("Z0lHQ2c0U0Zob2VJaVlxTGpJMk9qNUNS", Some("text/plain"), b"gIGCg4SFhoeIiYqLjI2Oj5CR"),
        // Known wrong results for the client that encodes twice: a few bytes without padding may be a word, and so may zeros. A
        // text that is not UTF-8 stays unchanged (a row above).
        ("L3dDQg==", octets, b"/wCB"),
        ("Z0lHQ2c0U0Zob2VJaVlxTA==", octets, b"gIGCg4SFhoeIiYqL"),
        ("ZEdWemREUXk=", Some("text/plain"), b"dGVzdDQy"),
        ("QUFBQUFBQUE=", octets, b"AAAAAAAA"),
    ] {
        let media_type =
            media_type.map(|media_type| format!(r#","mimeType":"{media_type}""#)).unwrap_or_default();
        let parts = format!(r#"[{{"file":{{"fileWithBytes":"{twice}"{media_type}}}}}]"#);
        let command = with_parts(Rest, &parts).unwrap();
        assert_eq!(
            command.message.parts[0].content,
            PartContent::Raw(expected.to_vec()),
            "{twice} {media_type}"
        );
        let rpc = with_parts(Rpc, &parts.replace("fileWithBytes", "bytes")).unwrap();
        let once = crate::base64::decode(twice).unwrap();
        assert_eq!(
            rpc.message.parts[0].content,
            PartContent::Raw(once),
            "on JSON-RPC no client encodes twice"
        );
    }
}

#[test]
fn a_bad_part_is_named_by_its_path() {
    for (dialect, parts, path) in [
        (Rpc, "[]", "message.parts"),
        (Rest, "[]", "message.content"),
        (Rpc, "{}", "message.parts"),
        (Rpc, "[null]", "message.parts[0]"),
        (Rpc, "[{}]", "message.parts[0]"),
        (Rpc, r#"[{"kind":"text"}]"#, "message.parts[0]"),
        (Rest, r#"[{"text":"a"},{"text":"a","file":{"fileWithUri":"u"}}]"#, "message.content[1]"),
        (Rpc, r#"[{"kind":"image","text":"a"}]"#, "message.parts[0].kind"),
        (Rpc, r#"[{"kind":"file","text":"a"}]"#, "message.parts[0].kind"),
        (Rpc, r#"[{"type":"unheard-of","text":"a"}]"#, "message.parts[0].type"),
        (Rpc, r#"[{"type":"file","text":"a"}]"#, "message.parts[0].type"),
        (Rpc, r#"[{"kind":7,"text":"a"}]"#, "message.parts[0].kind"),
        (Rpc, r#"[{"kind":"text","text":1}]"#, "message.parts[0].text"),
        (Rpc, r#"[{"kind":"file","file":"x"}]"#, "message.parts[0].file"),
        (Rpc, r#"[{"kind":"file","file":{}}]"#, "message.parts[0].file"),
        (Rpc, r#"[{"kind":"file","file":{"name":"n"}}]"#, "message.parts[0].file"),
        (Rpc, r#"[{"file":{"bytes":"","uri":"u"}}]"#, "message.parts[0].file"),
        (Rpc, r#"[{"file":{"bytes":"!"}}]"#, "message.parts[0].file.bytes"),
        (Rest, r#"[{"file":{"file_with_bytes":"!"}}]"#, "message.content[0].file.file_with_bytes"),
        (Rpc, r#"[{"file":{"uri":"u","mimeType":1}}]"#, "message.parts[0].file.mimeType"),
        (Rest, r#"[{"data":{"data":{"a":"\ud800"}}}]"#, "message.content[0].data.data"),
        (Rpc, r#"[{"text":"a","metadata":[]}]"#, "message.parts[0].metadata"),
    ] {
        let expected = (ErrorKind::InvalidParams, path.to_owned());
        assert_eq!(fault(with_parts(dialect, parts)), expected, "{dialect:?} {parts}");
    }
}

#[test]
fn a_bad_message_is_named_by_its_field() {
    for (dialect, json, path, text) in [
        (Rpc, "{}", "message", "message: is required"),
        (Rest, "{}", "message", "message: is required"),
        (Rest, r#"{"request":[]}"#, "request", "request: must be an object"),
        (Rpc, r#"{"message":{"role":"user"}}"#, "message.messageId", "message.messageId: is required"),
        (
            Rpc,
            r#"{"message":{"messageId":"m","role":"boss","parts":[{"text":"x"}]}}"#,
            "message.role",
            "message.role: must be user or agent",
        ),
        (
            Rpc,
            r#"{"message":{"messageId":"m","role":"agent","parts":[{"text":"x"}]}}"#,
            "message.role",
            "message.role: must be user in a message to an agent",
        ),
        (
            Rest,
            r#"{"message":{"messageId":"m","role":"ROLE_UNSPECIFIED","content":[{"text":"x"}]}}"#,
            "message.role",
            "message.role: must be ROLE_USER or ROLE_AGENT",
        ),
        (
            Rest,
            r#"{"message":{"messageId":"m","role":2,"content":[{"text":"x"}]}}"#,
            "message.role",
            "message.role: must be ROLE_USER in a message to an agent",
        ),
        (
            Rest,
            r#"{"message":{"messageId":"m","role":1}}"#,
            "message.content",
            "message.content: is required",
        ),
    ] {
        let error = send_message(dialect, json).unwrap_err();
        assert_eq!((error.violations()[0].field.as_str(), error.message()), (path, text), "{json}");
    }
}

#[test]
fn the_default_of_blocking_depends_on_the_dialect() {
    let plain = |dialect| with_parts(dialect, r#"[{"text":"x"}]"#).unwrap().config;
    assert_eq!(plain(Rpc), SendConfig::default());
    assert_eq!(plain(Rest), SendConfig { return_immediately: true, ..SendConfig::default() });
    for (configuration, rpc, rest) in [
        ("null", false, true),
        ("{}", false, true),
        (r#"{"blocking":null}"#, false, true),
        (r#"{"blocking":true}"#, false, false),
        (r#"{"blocking":false}"#, true, true),
        (r#"{"returnImmediately":true}"#, true, true),
        (r#"{"returnImmediately":false}"#, false, false),
        // The field of 0.3 takes precedence.
        (r#"{"returnImmediately":false,"blocking":false}"#, true, true),
    ] {
        for (dialect, expected) in [(Rpc, rpc), (Rest, rest)] {
            let config = configured(dialect, configuration).unwrap();
            assert_eq!(config.return_immediately, expected, "{dialect:?} {configuration}");
        }
    }
    for (configuration, path) in [
        ("[]", "configuration"),
        (r#"{"blocking":"true"}"#, "configuration.blocking"),
        (r#"{"historyLength":-1}"#, "configuration.historyLength"),
        (r#"{"acceptedOutputModes":["text"]}"#, "configuration.acceptedOutputModes[0]"),
        (r#"{"pushNotificationConfig":"x"}"#, "configuration.pushNotificationConfig"),
    ] {
        let expected = (ErrorKind::InvalidParams, path.to_owned());
        assert_eq!(fault(configured(Rpc, configuration)), expected, "{configuration}");
    }
}

#[test]
fn a_history_length_of_zero_means_none_or_all() {
    for (length, rpc, rest) in [(0, Some(0), None), (2, Some(2), Some(2))] {
        let configuration = format!(r#"{{"historyLength":{length}}}"#);
        assert_eq!(configured(Rpc, &configuration).unwrap().history_length, rpc);
        assert_eq!(configured(Rest, &configuration).unwrap().history_length, rest);
        let params = format!(r#"{{"id":"t","historyLength":{length}}}"#);
        assert_eq!(get_task(&params).unwrap().history_length, rpc);
        let pairs = query(&format!("historyLength={length}"));
        assert_eq!(get_task_query("t", &pairs).unwrap().history_length, rest);
    }
    assert_eq!(fault(get_task_query("t", &query("historyLength=-1"))).1, "historyLength");
    assert_eq!(fault(get_task("{}")).1, "id");
}

#[test]
fn lists_accept_the_states_of_both_versions() {
    for status in ["canceled", "TASK_STATE_CANCELLED", "TASK_STATE_CANCELED", "5"] {
        let text =
            format!("status={status}&contextId=c&statusTimestampAfter=1970-01-01T00:00:01Z&pageSize=7");
        let listed = list_tasks_query(&query(&text)).unwrap();
        assert_eq!(listed.state, Some(TaskState::Canceled), "{status}");
        assert_eq!((listed.status_after, listed.page_size), (Some(Timestamp(1000)), 7));
        let params = format!(
            r#"{{"status":"{status}","contextId":"c","statusTimestampAfter":"1970-01-01T00:00:01Z","pageSize":7}}"#
        );
        assert_eq!(list_tasks(&params).unwrap(), listed, "{status}");
    }
    for (flag, expected) in [("1", true), ("true", true), ("0", false), ("false", false)] {
        let pairs = query(&format!("includeArtifacts={flag}&historyLength=0"));
        let listed = list_tasks_query(&pairs).unwrap();
        assert_eq!((listed.include_artifacts, listed.history_length), (expected, Some(0)), "{flag}");
    }
    assert_eq!(list_tasks("{}").unwrap(), list_tasks_query(&query("status=&pageToken=")).unwrap());
    // Listed tasks have no history unless it is requested.
    assert_eq!(list_tasks("{}").unwrap().history_length, Some(0));
    for (text, path) in
        [("status=done", "status"), ("pageSize=0", "pageSize"), ("contextId=a/b", "contextId")]
    {
        assert_eq!(fault(list_tasks_query(&query(text))), (ErrorKind::InvalidParams, path.to_owned()));
    }
}

#[test]
fn a_request_for_one_task_may_repeat_its_id() {
    for body in ["", "{}", r#"{"name":"tasks/t"}"#, r#"{"id":"t"}"#] {
        assert_eq!(cancel_task_query("t", &[], body).unwrap().id.as_str(), "t", "{body:?}");
        assert_eq!(subscribe_query("t", &[], body).unwrap().id.as_str(), "t", "{body:?}");
    }
    assert_eq!(cancel_task(r#"{"id":"t","metadata":{}}"#).unwrap().id.as_str(), "t");
    assert_eq!(subscribe(r#"{"id":"t"}"#).unwrap().id.as_str(), "t");
    assert_eq!(fault(cancel_task_query("t", &[], r#"{"id":"u"}"#)).1, "id");
}

#[test]
fn responses_are_recognised_by_kind_or_by_key() {
    let message = |json: &str, dialect| match stream_event(dialect, json).unwrap() {
        StreamEvent::Message(message) => message,
        other => panic!("{other:?}"),
    };
    let expected = Message::new(MessageId::parse("m").unwrap(), Role::Agent, vec![Part::text("hi")]);
    let rpc = r#"{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"hi"}]}"#;
    let rest = r#"{"message":{"messageId":"m","role":"ROLE_AGENT","content":[{"text":"hi"}]}}"#;
    assert_eq!(message(rpc, Rpc), expected);
    assert_eq!(message(rest, Rest), expected);
    for (dialect, json, expected) in [
        (Rpc, "{}", "kind: is required"),
        (Rpc, r#"{"kind":"text"}"#, "kind: must be task"),
        (Rpc, r#"{"kind":"task","id":"t","contextId":"c"}"#, "status: is required"),
        (Rpc, r#"{"kind":"status-update","taskId":"t"}"#, "contextId: is required"),
        (Rest, rpc, "the answer: must have exactly one of"),
    ] {
        let error = stream_event(dialect, json).expect_err(json);
        assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse, "{json}");
        assert!(error.message().starts_with(expected), "{json}: {error}");
    }
}
