use super::*;

async fn lines(bytes: &[u8], max: usize) -> Vec<String> {
    let mut reader = LineReader::new(bytes, max);
    let mut lines = Vec::new();
    while let Some(line) = reader.next().await.unwrap() {
        lines.push(match line {
            Line::Whole(line) => String::from_utf8_lossy(&line).into_owned(),
            Line::TooLong { head, bytes } => format!("too long: {bytes}, {}", String::from_utf8_lossy(&head)),
        });
    }
    lines
}

#[tokio::test]
async fn lines_over_the_bound_are_dropped_and_the_next_ones_are_read() {
    let long = "x".repeat(9000);
    for (text, max, expected) in [
        ("a\nb\n", 8, vec!["a".to_owned(), "b".to_owned()]),
        ("a\n\nb", 8, vec!["a".to_owned(), String::new(), "b".to_owned()]),
        (
            "12345678\n123456789\nc\n",
            8,
            vec!["12345678".to_owned(), "too long: 9, 123456789".to_owned(), "c".to_owned()],
        ),
        (
            &format!("{long}\nc\n"),
            100,
            vec![format!("too long: 9000, {}", &long[..HEAD_BYTES]), "c".to_owned()],
        ),
        (&long, 100, vec![format!("too long: 9000, {}", &long[..HEAD_BYTES])]),
    ] {
        assert_eq!(lines(text.as_bytes(), max).await, expected);
    }
}

#[tokio::test]
async fn a_line_without_end_needs_no_more_memory_than_the_bound() {
    let mut reader = LineReader::new(tokio::io::repeat(b'x').take(64 * 1024 * 1024), 1000);
    let line = reader.next().await.unwrap();
    assert!(matches!(line, Some(Line::TooLong { bytes: 67_108_864, .. })));
    assert!(reader.buffer.capacity() <= 4 * READ_BYTES, "{}", reader.buffer.capacity());
}

/// The parts of a message that the tests compare.
fn shown(line: &str) -> String {
    match parse(line.as_bytes()) {
        Incoming::Request { id, method, params } => {
            format!("request {} {method} {}", id.0, params.map_or("-", RawValue::get))
        }
        Incoming::Notification { method, params } => {
            format!("notification {method} {}", params.map_or("-", RawValue::get))
        }
        Incoming::Answer { id, outcome: Ok(result) } => format!("answer {id:?} {}", result.get()),
        Incoming::Answer { id, outcome: Err(error) } => {
            format!("error {id:?} {} {}", error.code, error.text())
        }
        Incoming::Invalid => "invalid".to_owned(),
        Incoming::Noise => "noise".to_owned(),
        Incoming::Blank => "blank".to_owned(),
    }
}

#[test]
fn the_envelope_decides_what_a_line_is() {
    for (line, expected) in [
        (r#"{"jsonrpc":"2.0","id":0,"method":"m","params":{"a":1}}"#, r#"request 0 m {"a":1}"#),
        (r#"{"id":"x-1","method":"m"}"#, r#"request "x-1" m -"#),
        (r#"{"id":-3,"method":"m"}"#, "request -3 m -"),
        (r#"{"id":[1],"method":"m"}"#, "invalid"),
        (r#"{"method":"m","params":[1]}"#, "notification m [1]"),
        // `null` counts as a missing id, so this is a notification and gets no response.
        (r#"{"id":null,"method":"m"}"#, "notification m -"),
        (r#"{"id":7,"result":{}}"#, "answer Some(7) {}"),
        (r#"{"id":7,"result":null}"#, "answer Some(7) null"),
        (r#"{"id":"7","result":{}}"#, "answer None {}"),
        (
            r#"{"id":7,"error":{"code":-32603,"message":"Internal error","data":{"details":"why"}}}"#,
            "error Some(7) -32603 Internal error: why",
        ),
        (r#"{"id":7,"error":{"code":-32602,"message":"m","data":null}}"#, "error Some(7) -32602 m"),
        (r#"{"id":7,"error":"odd"}"#, r#"error Some(7) 0 "odd""#),
        (r#"{"id":7}"#, "invalid"),
        (r#"{"id":7,"result":{}"#, "invalid"),
        ("[]", "invalid"),
        ("kimi-cli is no longer maintained", "noise"),
        ("\u{1b}[32mready", "noise"),
        ("  \r", "blank"),
        ("{\"method\":\"m\"}\r", "notification m -"),
    ] {
        assert_eq!(shown(line), expected, "{line}");
    }
}

#[test]
fn agent_ids_are_returned_as_the_agent_wrote_them() {
    for id in ["0", "\"a\\u0062\"", "12345678901234567890", "1.0"] {
        let line = result(&AgentRequestId::parse(id).unwrap(), &serde_json::json!({}));
        let expected = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n");
        assert_eq!(String::from_utf8(line).unwrap(), expected);
    }
    for id in ["null", "true", "{}", "[]", ""] {
        assert_eq!(AgentRequestId::parse(id), None, "{id}");
    }
}

#[test]
fn the_head_of_a_long_message_tells_which_message_it_was() {
    let update =
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"text":"xxx"#;
    let head = Head::read(update.as_bytes());
    assert_eq!((head.method.as_deref(), head.session.as_deref()), (Some("session/update"), Some("s1")));
    assert_eq!((head.answers(), head.request()), (None, None));

    let answer = Head::read(br#"{"jsonrpc":"2.0","id":4,"result":{"text":"xxx"#);
    assert_eq!((answer.answers(), answer.request()), (Some(4), None));

    let request = Head::read(br#"{"id":0,"method":"m","params":{"options":[{"a":1}],"sessionId":"s","x":"#);
    assert_eq!(request.request(), AgentRequestId::parse("0"));
    assert_eq!((request.answers(), request.session.as_deref()), (None, Some("s")));

    for unknown in ["", "xxx", "{\"params\":", "[1,2"] {
        assert_eq!(Head::read(unknown.as_bytes()), Head::default(), "{unknown}");
    }
}

#[test]
fn each_agents_way_to_say_that_a_session_is_gone_is_understood() {
    let error = |code, message: &str, data: Option<&str>| RpcError {
        code,
        message: message.to_owned(),
        data: data.and_then(Json::parse),
    };
    for (error, expected) in [
        (error(-32603, "Internal error", Some(r#"{"details":"Session not found: nosuch"}"#)), true),
        (error(-32602, "Session not found: x", Some(r#"{"session_id":"x"}"#)), true),
        (error(-32602, "Invalid params: session not found: ses_x", None), true),
        (error(-32002, "Resource not found: x", None), true),
        (error(-32603, "Internal error", None), false),
        (error(-32603, "A turn is already running", None), false),
    ] {
        assert_eq!(error.is_session_gone(), expected, "{error:?}");
    }
}
