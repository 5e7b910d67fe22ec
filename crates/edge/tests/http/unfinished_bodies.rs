//! Request bodies that never end, on many connections.

use std::time::Duration;

use longshore_meter::label::Limit;
use longshore_wire::v03::Dialect;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Gateway, PATIENCE, ProtocolClient, http2_data, http2_headers, http2_start, message};

const KIB: usize = 1024;

/// Begins a body over HTTP/1.
async fn begin(gateway: &Gateway, token: &str, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head = format!(
        "POST /message:send HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: 500000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; bytes]).await.unwrap();
    stream
}

/// Begins several bodies on one HTTP/2 connection.
async fn begin_http2(gateway: &Gateway, streams: &[u32], bytes: usize) -> TcpStream {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/message:send"),
        (":authority", "localhost"),
        ("authorization", "Bearer tok-bob"),
        ("content-type", "application/json"),
    ];
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(&http2_start(65_535)).await.unwrap();
    for number in streams {
        stream.write_all(&http2_headers(*number, &fields, false)).await.unwrap();
        stream.write_all(&http2_data(*number, &vec![b' '; bytes])).await.unwrap();
    }
    stream
}

#[tokio::test]
async fn unfinished_bodies_share_a_limit_in_both_versions_of_http() {
    let mut metrics = None;
    let gateway = Gateway::echoing_with(|config| {
        config.limits.body_bytes = 320 * KIB;
        metrics = Some(config.metrics.clone());
    })
    .await;
    let metrics = metrics.unwrap();
    // Each body counts with 16 KiB more: 128 KiB of ada's and 124 KiB of bob's are held.
    let mut of_ada = begin(&gateway, "tok-ada", 112 * KIB).await;
    let of_bob = begin_http2(&gateway, &[1, 3, 5, 7], 15 * KIB).await;

    // Bodies of others are refused as soon as they do not fit, in the format of the request. Until then the bodies above are
    // still arriving.
    let long = "x".repeat(100 * KIB);
    for client in ProtocolClient::ALL {
        let refused = async {
            for number in 0.. {
                // The body, which would tell the version, is not read.
                let send = client
                    .send(&gateway, &client.message(&number.to_string(), &long), true)
                    .header("a2a-version", client.version.as_str());
                let answer = send.header("authorization", "").header("x-api-key", "key-dora").send().await;
                if answer.status.as_u16() == 429 {
                    return answer;
                }
            }
            unreachable!()
        };
        let answer = tokio::time::timeout(PATIENCE, refused).await.expect("the limit is reached");
        assert_eq!(answer.header("retry-after"), "5", "{}", client.name());
        assert_eq!(client.reason(&answer), "TOO_MANY_REQUESTS");
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(text.contains("body_bytes"), "{} {text}", client.name());
        assert_eq!(answer.json().get("id").is_some(), client.dialect == Dialect::Rpc, "{text}");
    }
    // A body in one piece holds nothing.
    let short =
        gateway.call("POST", "/message:send").json(&serde_json::json!({"message": message("s", "hi")}));
    assert_eq!(short.send().await.status.as_u16(), 200);

    // No principal gets more than half, also while others hold nothing.
    drop(of_bob);
    of_ada.write_all(&vec![b' '; 60 * KIB]).await.unwrap();
    let mut answer = [0; 12];
    tokio::time::timeout(PATIENCE, of_ada.read_exact(&mut answer)).await.expect("an answer").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 429");

    // All is free again.
    drop(of_ada);
    let client = ProtocolClient::ALL[1];
    let freed = async {
        while client.send(&gateway, &client.message("again", &long), true).send().await.status.as_u16() != 200
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("nothing is held any more");
    assert!(metrics.refused.of(Limit::BodyBytes).get() >= 5);
    gateway.stop().await;
}
