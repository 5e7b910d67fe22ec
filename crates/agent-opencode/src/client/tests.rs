use longshore_testkit::fake_opencode::FakeOpenCode;
use serde_json::json;

use super::*;

fn client(url: &str) -> Client {
    Client::new(Endpoint::without_password(url), Duration::from_secs(20), 32, Arc::default()).unwrap()
}

#[test]
fn the_message_is_read_from_each_form_of_an_error_body() {
    let cases = [
        (
            r#"{"name":"NotFoundError","data":{"message":"Session not found: ses_1"}}"#,
            "Session not found: ses_1",
        ),
        (
            r#"{"_tag":"SessionBusyError","sessionID":"ses_1","message":"Session is busy: ses_1"}"#,
            "Session is busy: ses_1",
        ),
        (r#"{"_tag":"BadRequest"}"#, "BadRequest"),
        (r#"{"name":"UnknownError","data":{"message":{"a":1}}}"#, "UnknownError"),
        ("{}", ""),
    ];
    for (body, expected) in cases {
        assert_eq!(error_message(serde_json::from_str(body).unwrap()), expected, "{body}");
    }
}

#[tokio::test]
async fn only_texts_of_opencode_itself_are_taken_from_a_refusal() {
    const JSON: &str = "application/json";
    const HTML: &str = "text/html";
    let not_found = r#"{"name":"NotFoundError","data":{"message":"Session not found: ses_1"}}"#;
    let ask_not_found = r#"{"_tag":"PermissionNotFoundError","message":"Permission request not found"}"#;
    let page = "<html><title>502 Bad Gateway</title><address>proxy.internal</address></html>";
    let cases = [
        (404, JSON, not_found, "NotFound"),
        (404, JSON, ask_not_found, "NotFound"),
        (404, HTML, not_found, "NoSuchPath"),
        (404, HTML, page, "NoSuchPath"),
        (404, JSON, r#"{"message":"no Route matched with those values"}"#, "NoSuchPath"),
        (404, JSON, r#"{"name":7}"#, "NoSuchPath"),
        (404, JSON, "", "NoSuchPath"),
        (401, HTML, page, "Unauthorized"),
        (502, HTML, page, "Refused { status: 502, message: \"OpenCode gave no reason\" }"),
        (
            502,
            "text/plain",
            "upstream proxy.internal",
            "Refused { status: 502, message: \"OpenCode gave no reason\" }",
        ),
        (400, JSON, r#"{"_tag":"BadRequest"}"#, "Refused { status: 400, message: \"BadRequest\" }"),
        (400, JSON, "nonsense", "Refused { status: 400, message: \"OpenCode gave no reason\" }"),
    ];
    for (status, kind, body, expected) in cases {
        let response = http::Response::builder().status(status).header(CONTENT_TYPE, kind).body(body);
        let cause = read_refusal(response.unwrap().into()).await;
        assert_eq!(format!("{cause:?}"), expected, "{status} {kind} {body}");
    }
}

/// A complete 404 from OpenCode means that the session or the ask does not exist. Any other 404 means that the address is wrong.
#[tokio::test]
async fn a_not_found_that_breaks_off_counts_as_a_broken_connection() {
    for (status, expected) in [(404, true), (400, false)] {
        let pieces =
            [Ok(r#"{"_tag":"Permission"#), Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe))];
        let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
        let response = http::Response::builder().status(status).header(CONTENT_TYPE, "application/json");
        let cause = read_refusal(response.body(body).unwrap().into()).await;
        assert_eq!(matches!(cause, CallError::Cut(_)), expected, "{cause:?}");
    }
}

/// At first only two of seven messages fit into a response, and later not even one.
#[tokio::test]
async fn a_page_that_is_too_long_is_requested_in_smaller_ones() {
    let fake = FakeOpenCode::start();
    let mut client = client(&fake.url());
    let limit = |client: &mut Client, most| Arc::get_mut(&mut client.shared).unwrap().max_body = most;
    fake.add_session("ses_1", fake.directory());
    for number in 1..8 {
        let info = json!({
            "id": format!("msg_{number}"), "sessionID": "ses_1", "role": "user", "time": {"created": number},
            "system": "x".repeat(1000),
        });
        fake.emit("message.updated", json!({"sessionID": "ses_1", "info": info})).await;
    }
    limit(&mut client, 3000);
    let messages = client.messages_since(fake.directory(), "ses_1", &["msg_2".to_owned()]).await.unwrap();
    let ids: Vec<&str> = messages.iter().map(|message| message.info.id.as_str()).collect();
    assert_eq!(ids, ["msg_2", "msg_3", "msg_4", "msg_5", "msg_6", "msg_7"]);

    limit(&mut client, 500);
    let refused = client.messages_since(fake.directory(), "ses_1", &["msg_2".to_owned()]).await.unwrap_err();
    assert!(matches!(refused, CallError::TooLong) && !refused.is_transient(), "{refused}");
}

#[test]
fn one_malformed_ask_does_not_hide_the_others() {
    let list = r#"[{"id":7},{"id":"per_1","sessionID":"ses_1","permission":"bash"},null,"per_2"]"#;
    let asks: Vec<PermissionAsk> = readable(serde_json::from_str(list).unwrap());
    let ids: Vec<&str> = asks.iter().map(|ask| ask.id.as_str()).collect();
    assert_eq!(ids, ["per_1"]);
}

#[test]
fn a_request_keeps_the_path_of_the_base_address() {
    let cases = [
        ("http://127.0.0.1:4096", "http://127.0.0.1:4096/session/status?directory=%2Fw%20x"),
        ("http://127.0.0.1:4096/", "http://127.0.0.1:4096/session/status?directory=%2Fw%20x"),
        ("https://host/open/code/", "https://host/open/code/session/status?directory=%2Fw%20x"),
    ];
    for (base, expected) in cases {
        let client = client(base);
        let request = client.request(Method::GET, "session/status", "/w x", "").unwrap().build().unwrap();
        assert_eq!(request.url().as_str(), expected);
    }
}

#[test]
fn a_call_carries_the_trace_that_it_belongs_to() {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let plain = client("http://host");
    let headers = |client: &Client| {
        let request = client.request(Method::GET, "session", "/w", "").unwrap().build().unwrap();
        let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        (header("traceparent"), header("tracestate"))
    };
    assert_eq!(headers(&plain), (None, None));
    let traced = plain.with_trace(Some(TraceContext::from_headers(Some(parent), Some("a=1"))));
    for sent in [headers(&traced), headers(&traced.for_starts())] {
        assert_eq!(sent, (Some(parent.to_owned()), Some("a=1".to_owned())));
    }
    assert_eq!(headers(&plain.with_trace(TraceContext::parse(parent))).1, None);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_slot_is_refused_and_counted() {
    let endpoint = Endpoint::without_password("http://host");
    let metrics = Arc::new(Metrics::default());
    let client = Client::new(endpoint, Duration::from_secs(7), 1, Arc::clone(&metrics)).unwrap();
    let held = client.slot().await.unwrap();
    for (refusable, waits) in [(client.for_callers(), 1), (client.for_starts(), 7)] {
        let began = tokio::time::Instant::now();
        let refused = refusable.slot().await.unwrap_err().into_error("do it");
        assert_eq!(began.elapsed(), Duration::from_secs(waits));
        assert_eq!(refused.kind(), longshore_model::ErrorKind::UpstreamBackpressure);
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
        assert_eq!(refused.details()[1], ("max".to_owned(), "1".to_owned()));
    }
    assert_eq!(metrics.refused.of(Limit::UpstreamCalls).get(), 2);
    drop(held);
    client.for_callers().slot().await.unwrap();
}
