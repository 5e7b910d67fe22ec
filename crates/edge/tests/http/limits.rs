//! Limits over real sockets: the headers of a refusal, and refusals before the body arrives.

use std::time::Duration;

use longshore_edge::Rate;
use longshore_model::{Error, ErrorKind};
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v03::Dialect;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Call, Gateway, PATIENCE, ProtocolClient};

#[tokio::test]
async fn temporary_refusals_have_retry_after() {
    let gateway = Gateway::manual().await;
    let wait = Duration::from_millis(4200);
    let kinds = [
        ErrorKind::TooManyRequests,
        ErrorKind::Unavailable,
        ErrorKind::UpstreamBackpressure,
        ErrorKind::AgentUnavailable,
    ];
    for client in ProtocolClient::ALL {
        for kind in kinds {
            let unique = format!("{kind:?}-{}", client.name().replace(' ', "-"));
            let message = client.message(&unique, "hi");
            let refuse = || gateway.agent.refuse_next_admission(Error::new(kind, "Later.").after(wait));
            let is_rest = client.dialect == Dialect::Rest;

            refuse();
            let answer = client.send(&gateway, &message, true).send().await;
            assert_eq!(answer.header("retry-after"), "5", "{kind:?} {}", client.name());
            // A response with an id has status 200.
            assert_eq!(answer.status.as_u16() == 200, !is_rest, "{kind:?} {}", client.name());

            refuse();
            let (parts, mut pieces) = client.stream(&gateway, &message).pieces().await;
            assert_eq!(parts.headers["retry-after"], "5", "{kind:?} {}", client.name());
            let is_stream = parts.headers["content-type"] == "text/event-stream";
            assert_eq!(
                is_stream,
                client.version == ProtocolVersion::V03 && !is_rest,
                "{kind:?} {}",
                client.name()
            );
            let body = pieces.next().await.unwrap().unwrap();
            let text = String::from_utf8(body.to_vec()).unwrap();
            let seconds = match client.version {
                ProtocolVersion::V1 => "\"retryAfterSeconds\":\"5\"",
                ProtocolVersion::V03 => "\"retry_after_seconds\":5",
            };
            assert!(text.contains(seconds), "{text}");
        }
    }
    // Without a known time there is no header.
    gateway.agent.refuse_next_admission(Error::new(ErrorKind::Unavailable, "Later."));
    let client = ProtocolClient::ALL[1];
    let answer = client.send(&gateway, &client.message("m", "hi"), true).send().await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (503, ""));
    gateway.stop().await;
}

#[tokio::test]
async fn a_rate_limited_request_is_answered_before_its_body_arrives() {
    let rate = Rate { requests: 1, window: Duration::from_hours(1) };
    let gateway = Gateway::manual_with(|config| config.limits.rate = Some(rate)).await;
    assert_eq!(gateway.call("GET", "/tasks").send().await.status.as_u16(), 200);
    for path in ["/", "/message:send", "/v1/message:send"] {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer tok-ada\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: 1000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        read.expect("the server closes").unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{answer}");
        let seconds = answer.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
        assert!((3500..=3600).contains(&seconds.parse::<u32>().unwrap()), "{seconds}");
    }
    // The other two credentials of ada have no ids, so they count for the principal.
    let other = gateway.call("GET", "/tasks").header("authorization", crate::support::ADA_BLIND).send().await;
    assert_eq!(other.status.as_u16(), 429);
    let bob = gateway.call("GET", "/tasks").header("authorization", crate::support::BOB).send().await;
    assert_eq!(bob.status.as_u16(), 200);
    gateway.stop().await;
}

#[tokio::test]
async fn the_host_name_is_checked_in_both_versions_of_http() {
    let allowed = vec!["agent.example".to_owned(), "127.0.0.1".to_owned()];
    let gateway = Gateway::manual_with(|config| config.limits.allowed_hosts = allowed).await;
    let livez = |authority: &str| Call::new(gateway.address, "GET", "/livez").under(authority);
    for (authority, status) in [
        ("agent.example", 200),
        ("Agent.example.:8000", 200),
        ("127.0.0.1", 200),
        // The gateway of these tests listens on a loopback address.
        ("localhost:1", 200),
        ("[::1]", 200),
        ("evil.example", 403),
        ("agent.example.evil.example", 403),
    ] {
        assert_eq!(livez(authority).send().await.status.as_u16(), status, "{authority} by HTTP/1");
        assert_eq!(livez(authority).http2().send().await.status.as_u16(), status, "{authority} by HTTP/2");
    }
    // An HTTP/1.0 client without a host name.
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.0 403 "), "{:?}", String::from_utf8_lossy(&answer));
    gateway.stop().await;
}

#[tokio::test]
async fn the_turn_continues_the_trace_of_the_caller() {
    let gateway = Gateway::echoing().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    for (count, client) in ProtocolClient::ALL.into_iter().enumerate() {
        for (call, is_stream) in [
            (client.send(&gateway, &client.message(&format!("s{count}"), "hi"), true), false),
            (client.stream(&gateway, &client.message(&format!("t{count}"), "hi")), true),
        ] {
            let call = call
                .header("traceparent", &format!("00-{trace}-00f067aa0ba902b7-01"))
                .header("tracestate", "a=1");
            if is_stream {
                call.stream().await.rest().await;
            } else {
                call.send().await;
            }
            let prompted = gateway.agent.log().prompted.last().unwrap().trace.clone().unwrap();
            assert_eq!(prompted.trace_id().to_string(), trace, "{}", client.name());
            assert_eq!(prompted.tracestate(), Some("a=1"), "{}", client.name());
        }
    }
    // Without a trace of the caller, the turn has the trace that the response names.
    let client = ProtocolClient::ALL[0];
    let answer = client.send(&gateway, &client.message("u", "hi"), true).send().await;
    let prompted = gateway.agent.log().prompted.last().unwrap().trace.clone().unwrap();
    assert!(answer.header("traceparent").contains(&prompted.trace_id().to_string()));
    gateway.stop().await;
}

#[tokio::test]
async fn open_connections_are_counted() {
    let mut metrics = None;
    let gateway = Gateway::manual_with(|config| metrics = Some(config.metrics.clone())).await;
    let metrics = metrics.unwrap();
    assert_eq!(metrics.connections.get(), 0);
    let mut open = Vec::new();
    for count in 1..=3 {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        open.push(stream);
        assert_eq!(metrics.connections.get(), count);
    }
    drop(open);
    gateway.stop().await;
    assert_eq!(metrics.connections.get(), 0);
}
