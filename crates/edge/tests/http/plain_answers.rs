//! Answers outside the two bindings that a person reads: the page at the root, and refusals of HTTP itself.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Call, Gateway, PATIENCE};

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// Writes everything, whether or not the gateway has already answered, and reads the whole answer.
async fn exchange(gateway: &Gateway, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(request).await.expect("the gateway takes a request that it refuses");
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    read.expect("the gateway closes").expect("the connection is not reset");
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_browser_gets_a_page_and_a_program_gets_an_error() {
    let gateway = Gateway::echoing().await;
    let anonymous = |verb: &str, path: &str| Call::new(gateway.address, verb, path);
    let page = anonymous("GET", "/").header("accept", BROWSER).send().await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert_eq!((page.header("vary"), page.header("cache-control")), ("accept, accept-encoding", "no-store"));
    insta::assert_snapshot!(str::from_utf8(&page.body).unwrap());

    let cases = [
        (anonymous("GET", "/").header("accept", "*/*"), 401),
        (anonymous("GET", "/").header("accept", "application/json"), 401),
        (anonymous("GET", "/tasks").header("accept", BROWSER), 401),
        (anonymous("POST", "/").header("accept", BROWSER), 401),
        (anonymous("GET", "/").header("accept", BROWSER).header("origin", "https://evil.example"), 403),
        (anonymous("HEAD", "/").header("accept", BROWSER), 200),
        (gateway.call("GET", "/").header("accept", "*/*"), 405),
    ];
    for (index, (call, expected)) in cases.into_iter().enumerate() {
        let answer = call.send().await;
        assert_eq!(answer.status.as_u16(), expected, "case {index}");
        assert!(index == 5 || answer.header("content-type").starts_with("application/"), "case {index}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_head_that_cannot_be_read_is_refused_with_a_reason() {
    let gateway = Gateway::echoing().await;
    let long = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx-long: {}\r\n\r\n", "x".repeat(200_000));
    let tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 not HTTP\r\n\r\n";
    let answers = [exchange(&gateway, long.as_bytes()).await, exchange(&gateway, tls).await];
    gateway.stop().await;
    insta::assert_snapshot!(answers.join("\n\n").replace('\r', ""));
}

/// The client sends its whole body before it reads, as most HTTP libraries do.
#[tokio::test]
async fn a_client_that_sends_a_refused_body_to_its_end_can_read_the_refusal() {
    let gateway = Gateway::manual_with(|config| config.max_body_bytes = 1000).await;
    let body = vec![b'x'; 30_000_000];
    let head = format!(
        "POST /message:send HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer tok-ada\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let answer = exchange(&gateway, &[head.as_bytes(), &body].concat()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("The body of the request is larger than 1000 bytes; "), "{answer}");
    gateway.stop().await;
}
