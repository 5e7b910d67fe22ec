//! A running gateway exports traces to a collector, including those of its shutdown.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::cli::ATTACHED;
use crate::cli::sandbox::Sandbox;

/// Generous, because tests share the machine.
const PATIENCE: Duration = Duration::from_secs(30);

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A collector that accepts one request, and returns its head and body.
fn collector() -> (String, mpsc::Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (taken, requests) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
            if let Some(bytes) = line.strip_prefix("content-length: ") {
                length = bytes.trim().parse().unwrap();
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        taken.send((head, String::from_utf8(body).unwrap())).unwrap();
    });
    (endpoint, requests)
}

/// Sends a message within the trace of the caller. Returns the answer.
fn send(url: &str, token: &str) -> String {
    let address = url.strip_prefix("http://").unwrap();
    let body = r#"{"message":{"messageId":"m1","contextId":"c1","role":"ROLE_USER","parts":[{"text":"SECRET WORDS"}]},"configuration":{"returnImmediately":true}}"#;
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /message:send HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         a2a-version: 1.0\r\ntraceparent: {CALLER}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_turn_that_a_shutdown_interrupts_is_traced_before_the_exit() {
    let (endpoint, requests) = collector();
    let sandbox = Sandbox::new()
        .env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s3cret")
        .env("OTEL_SERVICE_NAME", "harbour");
    let gateway =
        sandbox.start(&[&ATTACHED[..], &["--otlp-endpoint", &endpoint, "--log-level", "trace"]].concat());
    let answer = send(&gateway.value("url"), &gateway.token());
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let log = gateway.end(Signal::TERM).stderr;
    assert!(!log.contains("s3cret"), "{log}");
    let (head, body) = requests.recv_timeout(PATIENCE).unwrap();
    assert!(
        head.starts_with("POST /v1/traces HTTP/1.1\r\n") && head.contains("api-key: s3cret\r\n"),
        "{head}"
    );
    assert!(!body.contains("SECRET"), "{body}");
    let reported: Value = serde_json::from_str(&body).unwrap();
    let reported = &reported["resourceSpans"][0];
    assert_eq!(reported["resource"]["attributes"][0]["value"]["stringValue"], "harbour");
    let spans = reported["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 1, "{body}");
    assert_eq!(spans[0]["name"], "invoke_agent opencode");
    assert_eq!(spans[0]["traceId"], CALLER[3..35]);
    assert_eq!(spans[0]["parentSpanId"], CALLER[36..52]);
}

#[test]
fn an_unreachable_collector_delays_nothing() {
    let sandbox = Sandbox::new();
    let gateway = sandbox.start(&[&ATTACHED[..], &["--otlp-endpoint", "http://127.0.0.1:9"]].concat());
    let answer = send(&gateway.value("url"), &gateway.token());
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let ended = gateway.end(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let warnings = ended.stderr.matches("the collector does not take traces").count();
    assert_eq!(warnings, 1, "{}", ended.stderr);
}
