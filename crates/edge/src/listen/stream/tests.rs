use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;
use crate::limits::open_request;
use crate::reply;

/// The capacity of the pipe that replaces the kernel's buffers in these tests.
const PIPE: usize = 64;

fn events(pieces: &[&'static [u8]]) -> Response {
    let pieces: Vec<_> = pieces.iter().map(|piece| Bytes::from_static(piece)).collect();
    reply::events(stream::iter(pieces).boxed())
}

fn handed(answer: Response, closes_connection: bool) -> HandedStream {
    let facts = RequestFacts {
        can_be_handed_over: true,
        closes_connection,
        is_read: Arc::new(AtomicBool::new(true)),
    };
    let handover = Handover::default();
    assert!(handover.offer(&facts, answer, open_request()).is_none());
    match handover.take() {
        Some(Handed::Stream(handed)) => handed,
        _ => panic!("no stream was handed over"),
    }
}

/// All bytes until the other side closes.
async fn read_all(mut client: DuplexStream) -> String {
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_stream_is_written_as_a_head_and_chunks_however_small_the_socket_buffer_is() {
    static LONG: [u8; 5000] = [b'x'; 5000];
    for (closes_connection, close) in [(false, ""), (true, "connection: close\r\n")] {
        let (client, mut server) = tokio::io::duplex(PIPE);
        let handed = handed(events(&[b"one", b"", &LONG, b"two two two two two"]), closes_connection);
        let writing = async move { handed.write(&mut server, b"").await };
        let (ended, text) = tokio::join!(writing, read_all(client));
        assert_eq!(ended.unwrap(), (!closes_connection).then(Bytes::new));
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let (status, headers) = head.split_once("\r\n").unwrap();
        assert_eq!(status, "HTTP/1.1 200 OK");
        let headers = format!("{headers}\r\n");
        for header in
            ["content-type: text/event-stream\r\n", "transfer-encoding: chunked\r\n", "date: ", close]
        {
            assert!(headers.contains(header), "{headers}");
        }
        let long = str::from_utf8(&LONG).unwrap();
        assert_eq!(body, format!("3\r\none\r\n1388\r\n{long}\r\n13\r\ntwo two two two two\r\n0\r\n\r\n"));
    }
}

/// TLS keeps bytes that the socket did not accept and counts them as written, as this buffer does. Without a flush these bytes
/// would wait for the next event.
#[tokio::test(start_paused = true)]
async fn a_stream_that_pauses_has_delivered_everything() {
    let (mut client, server) = tokio::io::duplex(4096);
    let mut server = tokio::io::BufWriter::new(server);
    let paused = stream::iter([Bytes::from_static(b"event")]).chain(stream::pending());
    let handed = handed(reply::events(paused.boxed()), false);
    let reading = async {
        let mut text = Vec::new();
        while !text.ends_with(b"5\r\nevent\r\n") {
            client.read_buf(&mut text).await.unwrap();
        }
    };
    tokio::select! {
        ended = handed.write(&mut server, b"") => panic!("{ended:?}"),
        read = tokio::time::timeout(Duration::from_secs(1), reading) => read.expect("the event arrives"),
    }
}

#[tokio::test]
async fn the_first_bytes_of_the_next_request_are_kept_and_the_rest_is_not_read() {
    let (mut client, mut server) = tokio::io::duplex(4 * NEXT);
    client.write_all(&[b'n'; 2 * NEXT]).await.unwrap();
    let events_after_yields = stream::once(async {
        // Before the first event, the head is written and the client is polled.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        Bytes::from_static(b"late")
    });
    let handed = handed(reply::events(events_after_yields.boxed()), false);
    let next = handed.write(&mut server, b"").await.unwrap().unwrap();
    assert_eq!(next, [b'n'; NEXT][..]);
    // Bytes that hyper had already read are returned unchanged.
    let handed = self::handed(events(&[b"x"]), false);
    assert_eq!(handed.write(&mut server, b"GET").await.unwrap().unwrap(), "GET");
}

#[tokio::test]
async fn a_client_that_closes_its_half_ends_the_stream() {
    let (mut client, mut server) = tokio::io::duplex(PIPE * 16);
    client.shutdown().await.unwrap();
    let handed = handed(reply::events(stream::pending().boxed()), false);
    let error = handed.write(&mut server, b"").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_reader_costs_one_batch() {
    const CHUNK: usize = 1024;
    let (client, mut server) = tokio::io::duplex(PIPE);
    let pulled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&pulled);
    let chunks = stream::repeat_with(move || {
        count.fetch_add(CHUNK, Ordering::Relaxed);
        Bytes::from_static(&[b'x'; CHUNK])
    });
    let handed = handed(reply::events(chunks.boxed()), false);
    let writing = handed.write(&mut server, b"");
    // With a paused clock the timeout ends only when all other tasks wait.
    assert!(tokio::time::timeout(std::time::Duration::from_millis(1), writing).await.is_err());
    let held = pulled.load(Ordering::Relaxed);
    assert!((CHUNK..=PULLED + CHUNK).contains(&held), "{held} bytes were pulled");
    drop(client);
}

/// Whether the stream of a request takes over the connection.
async fn is_handed(
    request: http::request::Builder,
    body: &'static str,
    is_read: bool,
    is_unflushed: bool,
) -> bool {
    let (facts, request) =
        RequestFacts::inspect(request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap());
    if is_read {
        request.into_body().collect().await.unwrap();
    }
    let handover = Handover::default();
    handover.set_unflushed(is_unflushed);
    let offered = handover.offer(&facts, events(&[b"x"]), open_request());
    assert_eq!(offered.is_none(), handover.take().is_some());
    offered.is_none()
}

#[tokio::test]
async fn a_connection_is_handed_over_only_after_the_request_is_read_and_earlier_bytes_are_flushed() {
    let post = || Request::post("/");
    assert!(is_handed(post(), "body", true, false).await);
    assert!(is_handed(Request::get("/"), "", false, false).await);
    // The rest of the unread body would be parsed as the next request.
    assert!(!is_handed(post(), "body", false, false).await);
    // The previous response is not flushed.
    assert!(!is_handed(post(), "body", true, true).await);
    assert!(!is_handed(post().version(Version::HTTP_10), "body", true, false).await);
    assert!(!is_handed(post().header(EXPECT, "100-continue"), "body", true, false).await);
    assert!(!is_handed(Request::head("/"), "", true, false).await);
    let (facts, _) = RequestFacts::inspect(Request::get("/").body(Full::<Bytes>::default()).unwrap());
    assert!(Handover::default().offer(&facts, reply::empty(StatusCode::OK), open_request()).is_some());
}

#[test]
fn a_connection_header_with_close_closes_the_connection() {
    let facts = |value: &str| {
        RequestFacts::inspect(
            Request::get("/").header(CONNECTION, value).body(Full::<Bytes>::default()).unwrap(),
        )
        .0
    };
    assert!(facts("keep-alive, Close").closes_connection && !facts("keep-alive").closes_connection);
}
