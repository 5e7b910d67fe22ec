use std::sync::atomic::AtomicUsize;

use futures_util::stream::{self, StreamExt};
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;
use crate::listen::Requests;
use crate::reply;

/// What the pipe of these tests holds in place of the kernel's buffers.
const PIPE: usize = 64;

fn open() -> OpenRequest {
    OpenRequest::begin(&Arc::new(Requests::new()))
}

fn events(pieces: &[&'static [u8]]) -> Response {
    let pieces: Vec<_> = pieces.iter().map(|piece| Bytes::from_static(piece)).collect();
    reply::events(stream::iter(pieces).boxed())
}

fn handed(answer: Response, is_last: bool) -> Handed {
    let asked = Asked { may_be_handed: true, is_last, is_read: Arc::new(AtomicBool::new(true)) };
    let handover = Handover::default();
    assert!(handover.offer(&asked, answer, open()).is_none());
    handover.take().unwrap()
}

/// All that comes until the other side closes or has nothing more to say.
async fn all(mut client: DuplexStream) -> String {
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_stream_is_a_head_and_chunks_however_small_the_socket_is() {
    static LONG: [u8; 5000] = [b'x'; 5000];
    for (is_last, close) in [(false, ""), (true, "connection: close\r\n")] {
        let (client, mut server) = tokio::io::duplex(PIPE);
        let handed = handed(events(&[b"one", b"", &LONG, b"two two two two two"]), is_last);
        let writing = async move { handed.write(&mut server, b"").await };
        let (ended, text) = tokio::join!(writing, all(client));
        assert_eq!(ended.unwrap(), (!is_last).then(Bytes::new));
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

#[tokio::test]
async fn what_comes_of_the_next_request_is_kept_and_no_more_of_it_is_read() {
    let (mut client, mut server) = tokio::io::duplex(4 * NEXT);
    client.write_all(&[b'n'; 2 * NEXT]).await.unwrap();
    let said = stream::once(async {
        // The head is written and the client looked at before.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        Bytes::from_static(b"late")
    });
    let handed = handed(reply::events(said.boxed()), false);
    let next = handed.write(&mut server, b"").await.unwrap().unwrap();
    assert_eq!(next, [b'n'; NEXT][..]);
    // What hyper had read already is given back as it is.
    let handed = self::handed(events(&[b"x"]), false);
    assert_eq!(handed.write(&mut server, b"GET").await.unwrap().unwrap(), "GET");
}

#[tokio::test]
async fn a_client_that_goes_away_or_closes_its_half_ends_the_stream() {
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
    // With a paused clock this ends only when everybody else waits for something.
    assert!(tokio::time::timeout(std::time::Duration::from_millis(1), writing).await.is_err());
    let held = pulled.load(Ordering::Relaxed);
    assert!((CHUNK..=PULLED + CHUNK).contains(&held), "{held} bytes were pulled");
    drop(client);
}

/// Offers the answer to a request, of whose body so many frames are read first.
async fn is_handed(
    request: http::request::Builder,
    body: &'static str,
    is_read: bool,
    is_behind: bool,
) -> bool {
    let (asked, request) = Asked::of(request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap());
    if is_read {
        request.into_body().collect().await.unwrap();
    }
    let handover = Handover::default();
    handover.note_behind(is_behind);
    let offered = handover.offer(&asked, events(&[b"x"]), open());
    assert_eq!(offered.is_none(), handover.take().is_some());
    offered.is_none()
}

#[tokio::test]
async fn only_what_was_read_and_answered_to_its_end_is_handed_over() {
    let post = || Request::post("/");
    assert!(is_handed(post(), "body", true, false).await);
    assert!(is_handed(Request::get("/"), "", false, false).await);
    // What is left of the body would be taken for a request.
    assert!(!is_handed(post(), "body", false, false).await);
    // The answer before it is not written.
    assert!(!is_handed(post(), "body", true, true).await);
    assert!(!is_handed(post().version(Version::HTTP_10), "body", true, false).await);
    assert!(!is_handed(post().header(EXPECT, "100-continue"), "body", true, false).await);
    assert!(!is_handed(Request::head("/"), "", true, false).await);
    let (asked, _) = Asked::of(Request::get("/").body(Full::<Bytes>::default()).unwrap());
    assert!(Handover::default().offer(&asked, reply::empty(StatusCode::OK), open()).is_some());
}

#[test]
fn a_client_may_want_the_connection_closed() {
    let asked = |value: &str| {
        Asked::of(Request::get("/").header(CONNECTION, value).body(Full::<Bytes>::default()).unwrap()).0
    };
    assert!(asked("keep-alive, Close").is_last && !asked("keep-alive").is_last);
}
