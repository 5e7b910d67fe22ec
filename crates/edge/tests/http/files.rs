//! The files of tasks: whole, in ranges, and for their owner only.

use longshore_testkit::faulty_store::FaultyStore;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::{ADA_BLIND, Answer, BOB, Call, Gateway, Pieces, shown};

/// The size of one read from the store.
const CHUNK: usize = 64 * 1024;

/// Bytes of which no two ranges are equal.
fn content(length: usize) -> Vec<u8> {
    (0u32..).flat_map(u32::to_be_bytes).take(length).collect()
}

/// Creates a task of ada's with this file. Returns the file's artifact as a stream shows it.
async fn store_file(gateway: &mut Gateway, name: &str, media_type: &str, bytes: &[u8]) -> Value {
    let (id, turn) = gateway.working_task(&hex(name.as_bytes())).await;
    let mut events = gateway.call("GET", &format!("/tasks/{id}:subscribe")).stream().await;
    turn.file("prt_f", name, media_type, bytes).await;
    turn.complete().await;
    let frames = events.rest().await;
    let update =
        frames.iter().find_map(|frame| frame.data.get("artifactUpdate")).expect("a stream shows the file");
    update["artifact"].clone()
}

/// The path of an artifact's file.
fn path(artifact: &Value) -> String {
    artifact["parts"][0]["url"].as_str().unwrap().to_owned()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[tokio::test]
async fn a_file_downloads_as_it_was_handed_over() {
    let mut gateway = Gateway::manual().await;
    let bytes = content(3 * CHUNK + 17);
    let artifact = store_file(&mut gateway, "out put/chart €.png", "image/png", &bytes).await;
    assert_eq!(artifact["parts"][0]["mediaType"], "image/png");
    assert_eq!(artifact["metadata"]["byteSize"], bytes.len());
    assert_eq!(artifact["metadata"]["sha256"], hex(&bytes));
    let etag = format!("\"{}\"", hex(&bytes));

    for call in [gateway.call("GET", &path(&artifact)), gateway.call("GET", &path(&artifact)).http2()] {
        let whole = call.send().await;
        assert_eq!(whole.status.as_u16(), 200);
        assert!(whole.body == bytes, "{} bytes received", whole.body.len());
        check_headers(&whole, &etag, bytes.len());
        assert_eq!(whole.header("content-type"), "image/png");
        let expected = "attachment; filename*=UTF-8''chart%20%E2%82%AC.png";
        assert_eq!(whole.header("content-disposition"), expected);
    }
    let head = gateway.call("HEAD", &path(&artifact)).header("range", "bytes=0-9").send().await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    check_headers(&head, &etag, bytes.len());

    // The exposure of the agent's reasoning does not concern its files.
    let blind = gateway.call("GET", &path(&artifact)).header("authorization", ADA_BLIND).send().await;
    assert_eq!((blind.status.as_u16(), blind.body.len()), (200, bytes.len()));
    gateway.stop().await;
}

fn check_headers(answer: &Answer, etag: &str, length: usize) {
    for (name, expected) in [
        ("etag", etag),
        ("content-length", &length.to_string()),
        ("accept-ranges", "bytes"),
        ("cache-control", "private, max-age=31536000, immutable"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox"),
    ] {
        assert_eq!(answer.header(name), expected, "{name}");
    }
    let date = answer.header("last-modified");
    assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
}

#[tokio::test]
async fn executable_content_is_saved_and_not_rendered() {
    let mut gateway = Gateway::manual().await;
    for (name, media_type) in
        [("a.html", "text/html"), ("a.svg", "image/svg+xml"), ("a.xhtml", "application/xhtml+xml")]
    {
        let artifact = store_file(&mut gateway, name, media_type, b"<script>alert(1)</script>").await;
        let answer = gateway.call("GET", &path(&artifact)).send().await;
        assert_eq!(answer.header("content-type"), media_type);
        let expected = format!("attachment; filename*=UTF-8''{name}");
        assert_eq!(answer.header("content-disposition"), expected);
        check_headers(&answer, &format!("\"{}\"", hex(b"<script>alert(1)</script>")), 25);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn ranges_fit_together() {
    let mut gateway = Gateway::manual().await;
    let bytes = content(2 * CHUNK + 100);
    let artifact = store_file(&mut gateway, "f.bin", "application/octet-stream", &bytes).await;
    let get = || gateway.call("GET", &path(&artifact));
    let (etag, size) = (format!("\"{}\"", hex(&bytes)), bytes.len());
    let date = get().send().await.header("last-modified").to_owned();

    let parts = [
        ("bytes=0-9".to_owned(), 0..10),
        (format!("bytes=5-{}", CHUNK + 5), 5..CHUNK + 6),
        (format!("bytes={}-", CHUNK - 1), CHUNK - 1..size),
        ("bytes=-100".to_owned(), size - 100..size),
        (format!("bytes={}-99999999999999999999", size - 1), size - 1..size),
        (format!("bytes=-{}", size + 1), 0..size),
    ];
    for (range, expected) in parts {
        let part = get().header("range", &range).send().await;
        assert_eq!(part.status.as_u16(), 206, "{range}");
        assert!(part.body == bytes[expected.clone()], "{range}: {} bytes received", part.body.len());
        let content_range = format!("bytes {}-{}/{size}", expected.start, expected.end - 1);
        assert_eq!(part.header("content-range"), content_range);
        check_headers(&part, &etag, expected.len());
    }
    for range in ["bytes=0-1,5-6", "lines=0-1", "bytes=9-3", "bytes=x"] {
        let whole = get().header("range", range).send().await;
        assert_eq!((whole.status.as_u16(), whole.body.len()), (200, size), "{range}");
        assert_eq!(whole.header("content-range"), "");
    }
    for range in [format!("bytes={size}-"), "bytes=-0".to_owned()] {
        let none = get().header("range", &range).send().await;
        assert_eq!((none.status.as_u16(), none.body.len()), (416, 0), "{range}");
        assert_eq!(none.header("content-range"), format!("bytes */{size}"));
        // The response must not be cached for another range.
        assert_eq!(none.header("cache-control"), "no-store");
    }
    let other = format!("W/{etag}");
    for (if_range, status) in [(&etag, 206), (&date, 206), (&other, 200), (&"\"x\"".to_owned(), 200)] {
        let answer = get().header("range", "bytes=1-2").header("if-range", if_range).send().await;
        assert_eq!(answer.status.as_u16(), status, "{if_range}");
    }
    for (if_none_match, status) in [(&etag, 304), (&other, 304), (&"\"x\", *".to_owned(), 304), (&date, 200)]
    {
        for verb in ["GET", "HEAD"] {
            let call = gateway.call(verb, &path(&artifact)).header("if-none-match", if_none_match);
            let answer = call.header("range", "bytes=1-2").send().await;
            let expected = if verb == "GET" && status == 200 { 206 } else { status };
            assert_eq!(answer.status.as_u16(), expected, "{verb} {if_none_match}");
            assert_eq!((answer.header("etag"), answer.header("last-modified")), (&*etag, &*date));
            assert_eq!(answer.header("cache-control"), "private, max-age=31536000, immutable");
            assert!(status == 200 || answer.body.is_empty());
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_empty_file_is_a_file() {
    let mut gateway = Gateway::manual().await;
    let artifact = store_file(&mut gateway, "empty.txt", "text/plain", b"").await;
    for (range, status) in [("", 200), ("bytes=0-", 416), ("bytes=-5", 200)] {
        let answer = gateway.call("GET", &path(&artifact)).header("range", range).send().await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (status, 0), "{range}");
        assert_eq!(answer.header("content-length"), "0");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn only_the_owner_gets_a_file_and_others_learn_nothing() {
    let mut gateway = Gateway::manual().await;
    let artifact = store_file(&mut gateway, "f.txt", "text/plain", b"secret plans").await;
    let path = path(&artifact);
    let refused = |call: Call| async move { shown(&call.send().await) };
    let missing = refused(gateway.call("GET", "/artifacts/nope")).await;
    insta::assert_snapshot!(missing);
    // A file of another owner, an invalid id, and an empty id: the responses are equal.
    let long = format!("/artifacts/{}", "x".repeat(5000));
    for call in [
        gateway.call("GET", &path).header("authorization", BOB),
        gateway.call("GET", &path).header("authorization", BOB).header("range", "bytes=0-1"),
        gateway.call("GET", &path).header("authorization", BOB).header("if-none-match", "*"),
        gateway.call("GET", "/artifacts/%2E%2E%2Fetc%2Fpasswd"),
        gateway.call("GET", "/artifacts/a%00b"),
        gateway.call("GET", "/artifacts/"),
        gateway.call("GET", &long),
        // A file is independent of the protocol version.
        gateway.call("GET", "/artifacts/nope").header("a2a-version", "9.9"),
    ] {
        assert_eq!(refused(call).await, missing);
    }
    // Each client gets the error in its own format.
    let old = |call: Call| refused(call.header("a2a-version", "0.3"));
    let missing = old(gateway.call("GET", "/artifacts/nope")).await;
    assert!(missing.starts_with("404 ") && missing.contains(r#""type":"ROUTE_NOT_FOUND""#), "{missing}");
    assert_eq!(old(gateway.call("GET", &path).header("authorization", BOB)).await, missing);
    let head = gateway.call("HEAD", &path).header("authorization", BOB).send().await;
    assert_eq!((head.status.as_u16(), head.body.len()), (404, 0));

    let anonymous = gateway.call("GET", &path).header("authorization", "").send().await;
    assert_eq!(anonymous.status.as_u16(), 401);
    assert!(anonymous.headers.contains_key("www-authenticate"));
    for verb in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let answer = gateway.call(verb, &path).send().await;
        assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, "GET, HEAD"), "{verb}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_file_that_fails_midway_is_cut_and_never_complete() {
    for http2 in [false, true] {
        let store = FaultyStore::over(longshore_store::memory());
        let mut gateway = Gateway::manual_on(store.clone()).await;
        let artifact =
            store_file(&mut gateway, "f.bin", "application/octet-stream", &content(4 * CHUNK)).await;
        let call = gateway.call("GET", &path(&artifact));
        store.file_reads.hold();
        store.file_reads.release(1);
        let (head, mut body) = if http2 { call.http2() } else { call }.pieces().await;
        assert_eq!(head.status.as_u16(), 200);
        assert_eq!(head.headers["content-length"], (4 * CHUNK).to_string());
        // The first chunk arrives before the second is read.
        let mut received = 0;
        while received < CHUNK {
            received += body.next().await.expect("more").expect("not cut yet").len();
        }
        assert_eq!(received, CHUNK);
        store.break_files();
        store.file_reads.release(100);
        assert!(is_cut(&mut body).await, "http2: {http2}");
        gateway.stop().await;
    }
}

async fn is_cut(body: &mut Pieces) -> bool {
    loop {
        match body.next().await {
            Some(Ok(_)) => {}
            Some(Err(_)) => return true,
            None => return false,
        }
    }
}

#[tokio::test]
async fn an_unavailable_store_is_an_error_before_the_first_byte() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut gateway = Gateway::manual_on(store.clone()).await;
    let artifact = store_file(&mut gateway, "f.txt", "text/plain", b"text").await;
    store.break_files();
    let answer = gateway.call("GET", &path(&artifact)).send().await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (503, "application/json"));
    assert_eq!(answer.json()["error"]["message"], "The store is away.");
    assert_eq!((answer.header("cache-control"), answer.header("etag")), ("no-store", ""));
    gateway.stop().await;
}
