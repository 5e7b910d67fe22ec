//! Caching: who may store a response, conditional requests, and compression.

use std::collections::HashSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use longshore_edge::contract::{Environment, SandboxMode};
use serde_json::{Value, json};

use crate::documents::{CARD, EXTENDED, get};
use crate::support::{ADA, BOB, Gateway, ProtocolClient, message};

/// Every document, with the credential that requests it.
const DOCUMENTS: [(&str, &str); 13] = [
    (CARD, ""),
    ("/.well-known/agent.json", ""),
    ("/a2a/1.0/.well-known/agent-card.json", ""),
    ("/a2a/0.3/.well-known/agent-card.json", ""),
    ("/a2a/0.3/.well-known/agent.json", ""),
    (EXTENDED, ADA),
    ("/a2a/1.0/extendedAgentCard", ADA),
    ("/v1/card", ADA),
    ("/a2a/0.3/v1/card", ADA),
    ("/agent/authenticatedExtendedCard", ADA),
    ("/a2a/0.3/agent/authenticatedExtendedCard", ADA),
    ("/openapi.json", ""),
    ("/openapi.json", ADA),
];

/// Shared caches do not know the API key header.
#[tokio::test]
async fn no_response_to_an_operation_may_be_cached() {
    let gateway = Gateway::echoing().await;
    let mut calls = vec![
        gateway.call("GET", "/tasks/nope"),
        gateway.call("GET", "/nope"),
        gateway.call("DELETE", "/tasks"),
        gateway.call("GET", "/health"),
        gateway.call("GET", "/livez"),
        gateway.call("POST", "/").json(&json!({"jsonrpc": "2.0", "method": "Nonsense"})),
        gateway.rpc("GetTask", &json!({"id": "nope"})),
        gateway.rpc("GetExtendedAgentCard", &json!({})),
    ];
    for client in ProtocolClient::ALL {
        let message = client.message(&client.name().replace(' ', "-"), "hi");
        calls.extend([
            client.list(&gateway),
            client.send(&gateway, &message, true),
            client.stream(&gateway, &message),
        ]);
    }
    for (index, call) in calls.into_iter().enumerate() {
        let keyed = call.clone().header("authorization", "").header("x-api-key", "key-dora");
        for call in [call.clone(), keyed, call.header("authorization", "Bearer nobody")] {
            let answer = call.send().await;
            assert_eq!(answer.header("cache-control"), "no-store", "{index}: {}", answer.status);
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn responses_for_callers_are_not_stored_by_shared_caches() {
    let gateway = Gateway::echoing().await;
    for (path, authorization) in DOCUMENTS {
        let answer = get(&gateway, path, authorization, &[]).await;
        let is_public = authorization.is_empty();
        let expected = if is_public { "public, max-age=300" } else { "private, max-age=300" };
        assert_eq!(answer.header("cache-control"), expected, "{path}");
        let varies: HashSet<&str> = answer.header("vary").split(", ").collect();
        let depends_on_caller = !is_public || path == "/openapi.json";
        for (name, expected) in [
            ("Accept-Encoding", true),
            ("A2A-Version", true),
            ("Authorization", depends_on_caller),
            ("X-API-Key", depends_on_caller),
        ] {
            assert_eq!(varies.contains(name), expected, "{path}: {varies:?}");
        }
        // Also in the 304 response.
        let same = get(&gateway, path, authorization, &[("if-none-match", "*")]).await;
        assert_eq!(same.status.as_u16(), 304);
        assert_eq!(same.header("cache-control"), answer.header("cache-control"), "{path}");
        assert_eq!(same.header("vary"), answer.header("vary"), "{path}");
    }
    // A matching tag does not replace a credential: without one the client does not learn that the card is unchanged.
    let tag = get(&gateway, EXTENDED, ADA, &[]).await.header("etag").to_owned();
    let stranger = get(&gateway, EXTENDED, "", &[("if-none-match", &tag)]).await;
    assert_eq!(stranger.status.as_u16(), 401);
    assert_eq!((stranger.header("etag"), stranger.header("cache-control")), ("", "no-store"));
    assert_eq!(get(&gateway, EXTENDED, BOB, &[("if-none-match", &tag)]).await.status.as_u16(), 304);
    gateway.stop().await;
}

#[tokio::test]
async fn a_document_with_a_matching_tag_is_not_sent_again() {
    let gateway = Gateway::echoing().await;
    for (path, authorization) in DOCUMENTS {
        let first = get(&gateway, path, authorization, &[]).await;
        let (tag, date) = (first.header("etag").to_owned(), first.header("last-modified").to_owned());
        let hexadecimal = tag.strip_prefix("W/\"").and_then(|tag| tag.strip_suffix('"')).unwrap();
        assert!(hexadecimal.len() == 64 && hexadecimal.bytes().all(|b| b.is_ascii_hexdigit()), "{tag}");
        assert!(date.ends_with(" GMT"), "{date}");
        let strong = tag.strip_prefix("W/").unwrap().to_owned();
        let cases = [
            ("if-none-match", tag.clone(), 304),
            ("if-none-match", strong, 304),
            ("if-none-match", format!("\"x\", {tag}, W/\"y\""), 304),
            ("if-none-match", "*".to_owned(), 304),
            ("if-none-match", "\"x\"".to_owned(), 200),
            ("if-none-match", "W/\"x\", \"y\"".to_owned(), 200),
            // Another form of the document has the same date.
            ("if-modified-since", date.clone(), 200),
            ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT".to_owned(), 200),
        ];
        for (name, value, status) in cases {
            let again = get(&gateway, path, authorization, &[(name, &value)]).await;
            assert_eq!(again.status.as_u16(), status, "{path} {name}: {value}");
            assert_eq!(again.header("etag"), tag);
            assert_eq!(again.header("last-modified"), date);
            let (body, kind) =
                if status == 200 { (first.body.clone(), "application/json") } else { Default::default() };
            assert_eq!((again.body.clone(), again.header("content-type")), (body, kind));
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn head_has_the_headers_of_get() {
    let gateway = Gateway::echoing().await;
    for (path, authorization) in DOCUMENTS {
        for encoding in ["", "gzip"] {
            let ask = |verb| {
                let call = gateway.call(verb, path).header("authorization", authorization);
                call.header("accept-encoding", encoding).send()
            };
            let (get, head) = (ask("GET").await, ask("HEAD").await);
            assert_eq!((head.status, head.body.len()), (get.status, 0), "{path}");
            assert_eq!(head.header("content-length"), get.body.len().to_string(), "{path} {encoding}");
            for name in ["etag", "last-modified", "cache-control", "vary", "content-type", "content-encoding"]
            {
                assert_eq!(head.header(name), get.header(name), "{path} {encoding} {name}");
            }
        }
        let unchanged = gateway.call("HEAD", path).header("authorization", authorization);
        assert_eq!(unchanged.header("if-none-match", "*").send().await.status.as_u16(), 304, "{path}");
    }
    for (is_down, status) in [(false, 200), (true, 503)] {
        let gateway = Gateway::echoing().await;
        gateway.agent.set_down(is_down);
        let (get, head) =
            (gateway.call("GET", "/health").send().await, gateway.call("HEAD", "/health").send().await);
        assert_eq!((head.status.as_u16(), head.body.len()), (status, 0));
        assert_eq!(head.header("content-length"), get.body.len().to_string());
        for name in ["content-type", "cache-control", "a2a-version"] {
            assert_eq!(head.header(name), get.header(name), "{name}");
        }
        gateway.stop().await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_changed_configuration_changes_the_tag() {
    let tags = async |configure: fn(&mut longshore_edge::EdgeConfig)| {
        let gateway = Gateway::manual_with(configure).await;
        let mut tags = Vec::new();
        for (path, authorization) in
            [(CARD, ""), (EXTENDED, ADA), ("/openapi.json", ""), ("/openapi.json", ADA)]
        {
            tags.push(get(&gateway, path, authorization, &[]).await.header("etag").to_owned());
        }
        gateway.stop().await;
        tags
    };
    let first = tags(|_| {}).await;
    // The same configuration gives the same documents after a restart.
    assert_eq!(tags(|_| {}).await, first);
    let changed = tags(|config| config.deployment.title = "Another".to_owned()).await;
    assert!(changed.iter().zip(&first).all(|(new, old)| new != old));
    // A change that only callers may see changes only their documents.
    let private = tags(|config| {
        config.deployment.environment =
            Environment { sandbox_mode: SandboxMode::ReadOnly, ..Environment::default() };
    })
    .await;
    assert_eq!((&private[0], &private[2]), (&first[0], &first[2]));
    assert_ne!(private[1], first[1]);
}

/// Decompresses with the gzip program.
fn unzip(compressed: &[u8]) -> Vec<u8> {
    let program = Command::new("gzip").arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut program = program.unwrap();
    let mut input = program.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(compressed).unwrap());
        program.wait_with_output().unwrap()
    });
    assert!(output.status.success());
    output.stdout
}

#[tokio::test]
async fn large_responses_are_compressed_for_clients_that_accept_gzip() {
    let gateway = Gateway::echoing().await;
    for (path, authorization) in DOCUMENTS {
        let plain = get(&gateway, path, authorization, &[]).await;
        assert_eq!(plain.header("content-encoding"), "");
        let compressed = get(&gateway, path, authorization, &[("accept-encoding", "br, gzip;q=0.8")]).await;
        let is_long = plain.body.len() >= 8192;
        assert_eq!(compressed.header("content-encoding"), if is_long { "gzip" } else { "" }, "{path}");
        assert_eq!(compressed.header("etag"), plain.header("etag"));
        assert_eq!(compressed.header("vary"), plain.header("vary"));
        if is_long {
            assert!(compressed.body.len() * 2 < plain.body.len(), "{path}: {}", compressed.body.len());
            assert_eq!(unzip(&compressed.body), plain.body, "{path}");
        }
        let not_wanted = get(&gateway, path, authorization, &[("accept-encoding", "gzip;q=0")]).await;
        assert_eq!((not_wanted.header("content-encoding"), &not_wanted.body), ("", &plain.body));
        let tag = plain.header("etag");
        let known = [("accept-encoding", "gzip"), ("if-none-match", tag)];
        let unchanged = get(&gateway, path, authorization, &known).await;
        assert_eq!((unchanged.status.as_u16(), unchanged.header("content-encoding")), (304, ""), "{path}");
    }

    // Operations in both bindings, and errors.
    let long = "word ".repeat(20) + &"x".repeat(20_000);
    let params = json!({"message": message("m1", &long)});
    for call in [gateway.rpc("SendMessage", &params), gateway.call("POST", "/message:send").json(&params)] {
        let answer = call.clone().header("accept-encoding", "gzip").send().await;
        assert_eq!((answer.status.as_u16(), answer.header("content-encoding")), (200, "gzip"));
        assert_eq!(answer.header("vary"), "Accept-Encoding");
        assert!(answer.body.len() < 5000);
        let unzipped: Value = serde_json::from_slice(&unzip(&answer.body)).unwrap();
        assert!(unzipped.to_string().contains(&"x".repeat(20_000)));
        let plain = call.header("accept-encoding", "").send().await;
        assert_eq!((plain.header("content-encoding"), plain.header("vary")), ("", "Accept-Encoding"));
    }
    // A stream is not compressed.
    let (head, mut pieces) = gateway
        .rpc("SendStreamingMessage", &json!({"message": message("m2", &long)}))
        .header("accept-encoding", "gzip")
        .pieces()
        .await;
    assert!(!head.headers.contains_key("content-encoding") && !head.headers.contains_key("vary"));
    assert!(pieces.next().await.unwrap().unwrap().starts_with(b"id: "));
    drop(pieces);
    gateway.stop().await;
}

#[tokio::test]
async fn the_minimum_length_for_compression_is_configurable() {
    for (minimum, expected) in [(0, "gzip"), (1000, "gzip"), (1_000_000, "")] {
        let gateway = Gateway::manual_with(|config| config.gzip_minimum = minimum).await;
        let card = get(&gateway, CARD, "", &[("accept-encoding", "gzip")]).await;
        assert_eq!(card.header("content-encoding"), expected, "{minimum}");
        // A response that would not get shorter is not compressed.
        let health = get(&gateway, "/livez", "", &[("accept-encoding", "gzip")]).await;
        assert_eq!((health.status.as_u16(), health.header("content-encoding")), (200, ""));
        gateway.stop().await;
    }
}
