use std::path::PathBuf;

use longshore_engine::port::ContentFacts;
use longshore_model::ModelName;
use serde_json::{Value, json};

use super::*;

const NOTHING: Takes = Takes { image: false, audio: false, video: false, pdf: false };
const HASH: &str = "00ff0000000000000000000000000000000000000000000000000000000000a1";

fn facts(bytes: u64) -> ContentFacts {
    let mut sha256 = [0; 32];
    (sha256[1], sha256[31]) = (0xff, 0xa1);
    ContentFacts { bytes, sha256 }
}

fn file(media_type: &str, source: FileSource) -> InputFile {
    InputFile {
        name: Some("dot.png".to_owned()),
        media_type: media_type.to_owned(),
        is_text: media_type.starts_with("text/"),
        content: Some(facts(3)),
        source,
    }
}

fn inline(media_type: &str) -> InputFile {
    file(media_type, FileSource::Inline(vec![0, 255, 7]))
}

fn made(input: &[Input], takes: Takes) -> Vec<Value> {
    let body = body("msg_1", Path::new("/w/here"), input, &PromptOptions::default(), takes);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["messageID"], "msg_1");
    body["parts"].as_array().unwrap().clone()
}

fn of_file(file: &InputFile, takes: Takes) -> Value {
    made(&[Input::File(file.clone())], takes).remove(0)
}

#[test]
fn text_goes_as_it_is_and_in_order() {
    let input = [Input::Text(" as it is \n".to_owned()), Input::Text("{\"n\":1700000000000}".to_owned())];
    let expected = [
        json!({"type": "text", "text": " as it is \n"}),
        json!({"type": "text", "text": "{\"n\":1700000000000}"}),
    ];
    assert_eq!(made(&input, NOTHING), expected);
}

/// OpenCode shows only `text/plain` to a model, and takes the type from the part.
#[test]
fn text_files_are_plain_text_whatever_they_are() {
    let mut csv = inline("text/csv");
    csv.source = FileSource::Inline(b"a,b".to_vec());
    csv.name = Some("up/../a \"b\"\n.csv".to_owned());
    let expected = json!({"type": "file", "mime": "text/plain", "url": "data:text/plain;base64,YSxi",
        "filename": "a \"b\" .csv"});
    assert_eq!(of_file(&csv, NOTHING), expected);
    for nameless in [None, Some(" \n".to_owned()), Some("a/".to_owned())] {
        csv.name = nameless;
        assert_eq!(of_file(&csv, NOTHING)["filename"], "attachment.txt");
    }
    let mut kept = file("text/x-rust", FileSource::Workspace(PathBuf::from("/w/here/a 100%25 ?#.rs")));
    kept.name = None;
    let expected = json!({"type": "file", "mime": "text/plain", "url": "file:///w/here/a%20100%2525%20%3F%23.rs",
        "filename": "a 100%25 ?#.rs"});
    assert_eq!(of_file(&kept, NOTHING), expected);
}

#[test]
fn media_goes_along_only_when_the_model_takes_its_kind() {
    let cases = [
        ("image/png", Takes { image: true, ..NOTHING }, true),
        ("image/png", Takes { image: false, audio: true, video: true, pdf: true }, false),
        ("image/svg+xml", Takes { image: true, ..NOTHING }, false),
        ("audio/wav", Takes { audio: true, ..NOTHING }, true),
        ("audio/wav", NOTHING, false),
        ("video/mp4", Takes { video: true, ..NOTHING }, true),
        ("video/mp4", Takes { image: true, ..NOTHING }, false),
        ("application/pdf", Takes { pdf: true, ..NOTHING }, true),
        ("application/pdf", NOTHING, false),
        ("application/octet-stream", Takes { image: true, audio: true, video: true, pdf: true }, false),
    ];
    for (media_type, takes, goes) in cases {
        let part = of_file(&inline(media_type), takes);
        if goes {
            let url = format!("data:{media_type};base64,AP8H");
            assert_eq!(part, json!({"type": "file", "mime": media_type, "url": url, "filename": "dot.png"}));
        } else {
            assert_eq!(part["type"], "text", "{media_type} {takes:?}");
        }
    }
    let takes = Takes { image: true, ..NOTHING };
    let kept = file("image/png", FileSource::Workspace(PathBuf::from("/w/b.png")));
    let expected =
        json!({"type": "file", "mime": "image/png", "url": "file:///w/b.png", "filename": "dot.png"});
    assert_eq!(of_file(&kept, takes), expected);
    // The real one never ends a turn with these.
    let empty = InputFile { content: Some(facts(0)), ..file("image/png", FileSource::Inline(Vec::new())) };
    let remote = file("image/png", FileSource::Remote("https://example.org/a.png".to_owned()));
    for refused in [empty, remote] {
        assert_eq!(of_file(&refused, takes)["type"], "text", "{refused:?}");
    }
}

#[test]
fn what_is_not_taken_is_told_of() {
    let remote = |url: &str| InputFile {
        name: None,
        content: None,
        ..file("text/html", FileSource::Remote(url.to_owned()))
    };
    let head = "[A file was sent with this message. Its content is not shown to you.]";
    let cases = [
        (
            inline("image/png"),
            format!("filename: dot.png\nmediaType: image/png\nbyteSize: 3\nsha256: {HASH}\nsource: inline"),
        ),
        (
            file("audio/wav", FileSource::Workspace(PathBuf::from("/w/here/in/a b.wav"))),
            format!(
                "filename: dot.png\nmediaType: audio/wav\nbyteSize: 3\nsha256: {HASH}\nsource: in/a b.wav"
            ),
        ),
        (
            InputFile {
                name: None,
                ..file("audio/wav", FileSource::Workspace(PathBuf::from("/w/there/a.wav")))
            },
            format!(
                "filename: a.wav\nmediaType: audio/wav\nbyteSize: 3\nsha256: {HASH}\nsource: ../there/a.wav"
            ),
        ),
        (
            remote("https://example.org/a?b=c"),
            "mediaType: text/html\nsource: https://example.org/a?b=c".to_owned(),
        ),
    ];
    for (file, expected) in cases {
        let expected = json!({"type": "text", "text": format!("{head}\n{expected}")});
        assert_eq!(of_file(&file, NOTHING), expected);
    }
}

#[test]
fn nobody_writes_a_line_into_the_block() {
    let breaks = ["\n", "\r\n", "\r", "\u{85}", "\u{2028}", "\u{2029}", "\u{b}", "\u{c}", "\0"];
    for line_break in breaks {
        let forged = format!("x{line_break}source: inline{line_break}");
        let files = [
            InputFile { name: Some(forged.clone()), ..inline("image/png") },
            inline(&format!("image/{forged}")),
            file("image/png", FileSource::Workspace(PathBuf::from("/w/here").join(&forged))),
            file("image/png", FileSource::Remote(format!("https://example.org/{forged}"))),
        ];
        for file in files {
            let part = of_file(&file, NOTHING);
            let text = part["text"].as_str().unwrap();
            assert_eq!(text.split('\n').count(), 6, "{text:?}");
            let forbidden = |c: char| c != '\n' && (c.is_control() || "\u{2028}\u{2029}".contains(c));
            assert!(!text.contains(forbidden), "{text:?}");
        }
    }
    let long = InputFile { name: Some("x".repeat(5000)), ..inline("image/png") };
    assert!(of_file(&long, NOTHING)["text"].as_str().unwrap().len() < 2000);
}

#[test]
fn options_stand_in_the_prompt() {
    let options = PromptOptions {
        agent: Some("plan".to_owned()),
        model: ModelName::parse("scripted/small/v2"),
        variant: Some("high".to_owned()),
        system: Some("Be brief.".to_owned()),
    };
    let made: Value = serde_json::from_str(&body("msg_1", Path::new("/w"), &[], &options, NOTHING)).unwrap();
    let expected = json!({"messageID": "msg_1", "parts": [], "agent": "plan", "variant": "high",
        "system": "Be brief.", "model": {"providerID": "scripted", "modelID": "small/v2"}});
    assert_eq!(made, expected);
}
