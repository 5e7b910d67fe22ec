//! Files that tools return, files that turns write, and files that come with a message.

use std::fmt::Write as _;

use longshore_demo_model::request::digest;
use longshore_testkit::gateway::TOKEN;
use longshore_testkit::raw::Frame;
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::client::{message, within};
use crate::frames::{self, state_of};
use crate::harness::{Harness, Played};
use crate::model_log;

const MODEL_SELECTION: &str = "urn:opencode-a2a:extension:model-selection:v1";

/// A PNG image of eight by eight pixels.
const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAWElEQVR42m3KkQIAIAwFwIfDcBiGYRgOwzAMwzAchmHYZ/YDOz4A\
cM5572OMOedSSmttjAEiYuYQQkpJRGqtvfc5p93XWjC7qsLse2+Y/ZwDs997Yfb33gfNdD8BaC9hKQAAAABJRU5ErkJggg==";
const PICTURE_SHA256: &str = "35bbecb47d27de3be833738ff7839fdc8ed132359f6f6caffb143386b657c5dd";

/// A text, plain and in base64.
const ROPE: &str = "ninety fathoms of rope\n";
const ROPE_BASE64: &str = "bmluZXR5IGZhdGhvbXMgb2Ygcm9wZQo=";

/// The bytes of the image.
fn picture() -> Vec<u8> {
    let mut bits = 0_u32;
    let mut filled = 0;
    let mut bytes = Vec::new();
    for letter in PICTURE.bytes().filter(|letter| *letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        bits = bits << 6 | u32::from(value);
        filled += 6;
        if filled >= 8 {
            filled -= 8;
            bytes.push((bits >> filled & 0xff) as u8);
        }
    }
    bytes
}

fn hex_of(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").expect("a string takes all that is written to it");
    }
    text
}

/// The files of a task.
fn files(task: &Value) -> Vec<Value> {
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    artifacts.filter(|artifact| artifact.pointer("/parts/0/url").is_some()).cloned().collect()
}

/// The only file of a turn. The stream must contain it as well.
fn only_file(played: &Played) -> Value {
    let mut files = files(&played.task);
    assert_eq!(files.len(), 1, "{}: {:#}", played.name, played.task);
    let brought = |frame: &&Frame| frames::artifact(frame).is_some_and(|artifact| *artifact == files[0]);
    assert_eq!(played.frames.iter().filter(brought).count(), 1, "{}: {:#?}", played.name, played.frames);
    files.remove(0)
}

async fn get(url: &str, token: Option<&str>, header: Option<(&str, &str)>) -> Response {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client without options");
    let mut request = client.get(url);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    within(url, request.send()).await.expect("the gateway answers")
}

async fn bytes(response: Response) -> Vec<u8> {
    response.bytes().await.expect("a file arrives whole").to_vec()
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// `other` is the token of another principal.
pub(crate) async fn a_file_of_a_tool_is_served_to_its_owner_alone(harness: &mut Harness, other: &str) {
    let picture = picture();
    assert_eq!(hex_of(&picture), PICTURE_SHA256, "the test has its picture wrong");
    std::fs::write(harness.gateway.workspace().join("picture.png"), &picture).expect("a file can be written");

    let played = harness.play("scn:read path=picture.png scn:text n=2").await;
    played.ended("COMPLETED", "").has(&[("tool:read", "completed"), ("text", "anchor  ballast ")]);
    let file = only_file(&played);
    let part = &file["parts"][0];
    let url = part["url"].as_str().expect("a file has a URL");
    assert!(url.starts_with(&format!("{}/artifacts/", harness.gateway.url())), "{url}");
    assert_eq!(part["mediaType"], "image/png", "{file:#}");
    let facts =
        json!({"uri": url, "mediaType": "image/png", "byteSize": picture.len(), "sha256": PICTURE_SHA256});
    assert_eq!((&file["metadata"], &part["metadata"]), (&facts, &facts), "{file:#}");

    let whole = get(url, Some(TOKEN), None).await;
    assert_eq!((whole.status(), header(&whole, "content-type")), (StatusCode::OK, "image/png"));
    let tag = header(&whole, "etag").to_owned();
    assert!(tag.starts_with('"'), "no strong tag: {tag:?}");
    assert_eq!(bytes(whole).await, picture, "another picture");

    for (token, status) in [(Some(other), StatusCode::NOT_FOUND), (None, StatusCode::UNAUTHORIZED)] {
        let refused = get(url, token, None).await;
        assert_eq!(refused.status(), status);
        assert_ne!(header(&refused, "etag"), tag, "{status} reveals the tag");
    }

    // The restarted gateway has another port; the path stays.
    let path = url.strip_prefix(harness.gateway.url()).expect("the URL is one of the gateway").to_owned();
    harness.gateway.terminate().await;
    harness.restart().await;
    let url = format!("{}{path}", harness.gateway.url());
    let again = get(&url, Some(TOKEN), None).await;
    assert_eq!((again.status(), header(&again, "etag")), (StatusCode::OK, tag.as_str()));
    assert_eq!(bytes(again).await, picture, "another picture after the restart");
    assert_eq!(get(&url, Some(other), None).await.status(), StatusCode::NOT_FOUND);
}

/// The gateway must run with `--written-files`.
pub(crate) async fn files_that_a_turn_wrote_are_offered(harness: &Harness) {
    let written = [
        (
            "scn:write path=notes/new.md content=\"kept\\n\" scn:text n=1",
            "notes/new.md",
            "kept\n",
            "text/markdown",
        ),
        (
            "scn:edit path=ships/crew.txt old=cook new=baker scn:text n=1",
            "ships/crew.txt",
            "captain\nmate\nbaker\n",
            "text/plain",
        ),
        // Written twice: the last content counts.
        (
            "scn:write path=twice.txt content=one scn:write path=twice.txt content=two scn:text n=1",
            "twice.txt",
            "two",
            "text/plain",
        ),
    ];
    for (prompt, name, content, media_type) in written {
        let played = harness.play(prompt).await;
        played.ended("COMPLETED", "");
        let file = only_file(&played);
        let part = &file["parts"][0];
        assert_eq!((&part["filename"], &part["mediaType"]), (&json!(name), &json!(media_type)), "{file:#}");
        assert_eq!(file["metadata"]["sha256"], hex_of(content.as_bytes()), "{file:#}");
        let served = get(part["url"].as_str().expect("a file has a URL"), Some(TOKEN), None).await;
        assert_eq!(bytes(served).await, content.as_bytes(), "{prompt}");
    }

    // A file that a shell command writes is not offered: other processes may write to the same directory.
    let played = harness.play("scn:bash cmd=\"printf tar > barrel.bin\" scn:text n=1").await;
    assert_eq!(files(&played.ended("COMPLETED", "").task), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_message_reach_the_model() {
    let (harness, model) = Harness::configured(&[], |configuration| {
        let seeing = &mut configuration["provider"]["demo"]["models"]["demo-small"];
        seeing["modalities"] = json!({"input": ["text", "image"], "output": ["text"]});
    })
    .await;
    let workspace = harness.gateway.workspace().canonicalize().unwrap();
    std::fs::write(workspace.join("kept.txt"), ROPE).unwrap();
    std::fs::write(workspace.join("kept.png"), picture()).unwrap();
    let file_url = |name: &str| format!("file://{}", workspace.join(name).display());

    let texts = [
        ("raw", "sent.txt", json!({"raw": ROPE_BASE64, "filename": "sent.txt", "mediaType": "text/plain"})),
        ("typed", "sent.csv", json!({"raw": ROPE_BASE64, "filename": "sent.csv", "mediaType": "text/csv"})),
        (
            "data",
            "linked.txt",
            json!({"url": format!("data:text/plain;base64,{ROPE_BASE64}"), "filename": "linked.txt"}),
        ),
        ("file", "kept.txt", json!({"url": file_url("kept.txt")})),
    ];
    for (way, name, part) in texts {
        let words = format!("scn:text n=1 ({way})");
        let mut message = message(&words);
        message["parts"] = json!([{"text": words}, part]);
        let task = harness.client.send(&message).await;
        assert_eq!(state_of(&task), "COMPLETED", "{words}: {task:#}");
        let asked = seen(&harness, &words).await;
        let prompt = asked["prompt"].as_str().unwrap_or_default();
        assert_eq!(prompt.matches(ROPE.trim_end()).count(), 1, "{words}: the model saw {prompt}");
        assert!(prompt.contains(name), "{words}: the model does not know its name: {prompt}");
    }

    let images = [
        (
            "raw",
            "sent.png",
            "inline",
            json!({"raw": PICTURE, "filename": "sent.png", "mediaType": "image/png"}),
        ),
        (
            "data",
            "linked.png",
            "inline",
            json!({"url": format!("data:image/png;base64,{PICTURE}"), "filename": "linked.png"}),
        ),
        ("file", "kept.png", "kept.png", json!({"url": file_url("kept.png")})),
    ];
    for (way, name, source, part) in images {
        let words = format!("scn:text n=1 (a picture as {way})");
        let mut blind = message(&words);
        blind["parts"] = json!([{"text": words}, part]);
        let task = harness.client.send(&blind).await;
        assert_eq!(state_of(&task), "COMPLETED", "{words}: {task:#}");
        let asked = seen(&harness, &words).await;
        assert_eq!(asked["media"], json!([]), "{words}");
        let prompt = asked["prompt"].as_str().unwrap_or_default();
        for line in [
            format!("filename: {name}"),
            "mediaType: image/png".to_owned(),
            "byteSize: 145".to_owned(),
            format!("sha256: {PICTURE_SHA256}"),
            format!("source: {source}"),
        ] {
            assert!(prompt.lines().any(|reported| reported == line), "{words}: no {line:?} in {prompt}");
        }

        let words = format!("scn:text n=1 (a picture as {way}, for one that sees)");
        let mut seeing = message(&words);
        seeing["parts"] = json!([{"text": words}, part]);
        seeing["metadata"] = json!({"shared": {"model": {"providerID": "demo", "modelID": "demo-small"}}});
        let task = harness.client.activating(&[MODEL_SELECTION]).send(&seeing).await;
        assert_eq!(state_of(&task), "COMPLETED", "{words}: {task:#}");
        let asked = seen(&harness, &words).await;
        assert_eq!(asked["model"], "demo-small", "{words}: {asked:#}");
        let expected = json!([{"media_type": "image/png", "digest": digest(PICTURE)}]);
        assert_eq!(asked["media"], expected, "{words}: {asked:#}");
        assert!(!asked["prompt"].as_str().unwrap_or_default().contains("sha256"), "{words}: {asked:#}");
    }
    assert_eq!(model.journal().turns().len(), 10, "each of the messages was prompted once");
}

/// The request to the model in the turn whose prompt begins with these words.
async fn seen(harness: &Harness, words: &str) -> Value {
    let mut asked = model_log::turns(&harness.opencode).await;
    asked.retain(|asked| asked["prompt"].as_str().is_some_and(|prompt| prompt.lines().next() == Some(words)));
    assert_eq!(asked.len(), 1, "{words}: the model was asked {asked:#?}");
    asked.remove(0)
}
