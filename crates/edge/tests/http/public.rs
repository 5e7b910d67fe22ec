//! What anybody may see: the card and the liveness path.

use serde_json::Value;

use crate::support::{Gateway, shown};

const CARD: &str = "/.well-known/agent-card.json";

#[tokio::test]
async fn the_card_is_public_and_can_be_cached() {
    let gateway = Gateway::echoing().await;
    let card = gateway.call("GET", CARD).header("authorization", "").send().await;
    insta::assert_snapshot!(shown(&card));
    let etag = card.header("etag").to_owned();
    assert!(etag.starts_with("W/\""), "{etag}");

    let head = gateway.call("HEAD", CARD).send().await;
    assert_eq!((head.status.as_u16(), head.header("etag")), (200, etag.as_str()));
    assert_eq!((head.header("content-length"), head.body.len()), (card.body.len().to_string().as_str(), 0));

    let strong = etag.strip_prefix("W/").unwrap().to_owned();
    for (if_none_match, expected) in [
        (etag.clone(), 304),
        (strong, 304),
        (format!("\"x\", {etag}"), 304),
        ("*".to_owned(), 304),
        ("\"x\"".to_owned(), 200),
    ] {
        let again = gateway.call("GET", CARD).header("if-none-match", &if_none_match).send().await;
        assert_eq!(again.status.as_u16(), expected, "{if_none_match}");
        assert_eq!(again.header("etag"), etag);
        assert_eq!(again.body.is_empty(), expected == 304);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_card_is_served_to_every_line() {
    let gateway = Gateway::echoing().await;
    let old = gateway.call("GET", CARD).header("a2a-version", "0.3").send().await;
    assert_eq!(old.status.as_u16(), 200);
    assert_eq!(old.json()["supportedInterfaces"][0]["protocolVersion"], Value::from("1.0"));
    gateway.stop().await;
}

#[tokio::test]
async fn liveness_needs_no_credential_and_says_nothing() {
    let gateway = Gateway::echoing().await;
    for verb in ["GET", "HEAD"] {
        let alive = gateway.call(verb, "/livez").header("authorization", "").send().await;
        assert_eq!((alive.status.as_u16(), alive.body.len()), (200, 0));
    }
    gateway.stop().await;
}
