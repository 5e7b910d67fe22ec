use std::path::PathBuf;

use longshore_engine::port::ContentFacts;
use longshore_model::{ModelName, NativePromptPart, Subtask};
use serde_json::{Value, json};

use super::*;

const NOTHING: FileKinds = FileKinds { image: false, audio: false, pdf: false };
const ALL: FileKinds = FileKinds { image: true, audio: true, pdf: true };
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

async fn prompt_body(
    input: &[Input],
    options: &PromptOptions,
    native: Option<&NativePrompt>,
    accepted: FileKinds,
) -> Value {
    let draft = PromptDraft { prompt: "msg_1", input, options, order: native, is_note: false };
    let body = body(Path::new("/w/here"), draft, accepted).await;
    let body: Value = serde_json::from_str(&body.json).unwrap();
    assert_eq!(body["messageID"], "msg_1");
    body
}

async fn parts(input: &[Input], accepted: FileKinds) -> Vec<Value> {
    let body = prompt_body(input, &PromptOptions::default(), None, accepted).await;
    body["parts"].as_array().unwrap().clone()
}

async fn file_part(file: &InputFile, accepted: FileKinds) -> Value {
    parts(&[Input::File(file.clone())], accepted).await.remove(0)
}

#[tokio::test]
async fn text_is_sent_unchanged_and_in_order() {
    let input = [Input::Text(" as it is \n".to_owned()), Input::Text("{\"n\":1700000000000}".to_owned())];
    let expected = [
        json!({"type": "text", "text": " as it is \n"}),
        json!({"type": "text", "text": "{\"n\":1700000000000}"}),
    ];
    assert_eq!(parts(&input, NOTHING).await, expected);
}

/// OpenCode shows only `text/plain` to a model, and does not check the type in the part.
#[tokio::test]
async fn every_text_file_is_sent_as_plain_text() {
    let mut csv = inline("text/csv");
    csv.source = FileSource::Inline(b"a,b".to_vec());
    csv.name = Some("up/../a \"b\"\n.csv".to_owned());
    let expected = json!({"type": "file", "mime": "text/plain", "url": "data:text/plain;base64,YSxi",
        "filename": "a \"b\" .csv"});
    assert_eq!(file_part(&csv, NOTHING).await, expected);
    for nameless in [None, Some(" \n".to_owned()), Some("a/".to_owned())] {
        csv.name = nameless;
        assert_eq!(file_part(&csv, NOTHING).await["filename"], "attachment.txt");
    }
    let mut kept = file("text/x-rust", FileSource::Workspace(PathBuf::from("/w/here/a 100%25 ?#.rs")));
    kept.name = None;
    let expected = json!({"type": "file", "mime": "text/plain", "url": "file:///w/here/a%20100%2525%20%3F%23.rs",
        "filename": "a 100%25 ?#.rs"});
    assert_eq!(file_part(&kept, NOTHING).await, expected);
}

/// The first bytes of files of each type.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
const JPEG: &[u8] = b"\xff\xd8\xff\xe0\0\x10JFIF";
const WEBP: &[u8] = b"RIFF\x24\0\0\0WEBPVP8 ";
const WAV: &[u8] = b"RIFF\x24\0\0\0WAVEfmt ";
const PDF: &[u8] = b"%PDF-1.7\n";

#[tokio::test]
async fn media_is_attached_only_when_the_model_accepts_its_kind() {
    let image = FileKinds { image: true, ..NOTHING };
    let audio = FileKinds { audio: true, ..NOTHING };
    let pdf = FileKinds { pdf: true, ..NOTHING };
    // The columns: declared type, content, kinds that the model accepts, and the type in the prompt.
    let cases: &[(&str, &[u8], FileKinds, Option<&str>)] = &[
        ("image/png", PNG, image, Some("image/png")),
        ("IMAGE/PNG; q=1", PNG, image, Some("image/png")),
        ("image/png", PNG, FileKinds { image: false, ..ALL }, None),
        ("image/jpeg", JPEG, image, Some("image/jpeg")),
        ("image/jpg", JPEG, image, Some("image/jpeg")),
        ("image/gif", b"GIF87a\x01", image, Some("image/gif")),
        ("image/gif", b"GIF89a\x01", image, Some("image/gif")),
        ("image/webp", WEBP, image, Some("image/webp")),
        ("audio/wav", WAV, audio, Some("audio/wav")),
        ("audio/wav", WAV, FileKinds { audio: false, ..ALL }, None),
        ("audio/x-wav", WAV, audio, Some("audio/wav")),
        ("audio/wave", WAV, audio, Some("audio/wav")),
        ("audio/mpeg", b"ID3\x04", audio, Some("audio/mpeg")),
        ("audio/mp3", b"\xff\xfb\x90", audio, Some("audio/mpeg")),
        ("application/pdf", PDF, pdf, Some("application/pdf")),
        ("application/pdf", PDF, FileKinds { pdf: false, ..ALL }, None),
        // OpenCode would store these, and then every later prompt of the session would fail.
        ("audio/ogg", b"OggS", ALL, None),
        ("audio/flac", b"fLaC", ALL, None),
        ("video/mp4", b"\0\0\0\x18ftypisom", ALL, None),
        ("application/octet-stream", PNG, ALL, None),
        ("application/json", b"{}", ALL, None),
        // OpenCode would drop a prompt with one of these.
        ("image/svg+xml", b"<svg/>", ALL, None),
        ("image/tiff", b"II*\0", ALL, None),
        ("image/bmp", b"BM", ALL, None),
        ("image/gif", PNG, ALL, None),
        ("image/png", JPEG, ALL, None),
        ("image/png", b"", ALL, None),
        ("image/png", b"\x89PN", ALL, None),
        ("image/webp", WAV, ALL, None),
        ("audio/wav", WEBP, ALL, None),
        ("audio/wav", b"RIFF", ALL, None),
        ("audio/mpeg", JPEG, ALL, None),
        ("audio/mpeg", b"\xff", ALL, None),
        ("application/pdf", b"<html>", ALL, None),
    ];
    let temp = tempfile::tempdir().unwrap();
    for (media_type, content, accepted, expected) in cases {
        let sent = file(media_type, FileSource::Inline(content.to_vec()));
        let path = temp.path().join("kept");
        std::fs::write(&path, content).unwrap();
        let kept = file(media_type, FileSource::Workspace(path.clone()));
        let urls = expected.map(|mime| {
            let sent = format!("data:{mime};base64,{}", STANDARD.encode(content));
            [sent, Url::from_file_path(&path).unwrap().into()]
        });
        for (nth, file) in [sent, kept].iter().enumerate() {
            let part = file_part(file, *accepted).await;
            match (expected, &urls) {
                (Some(mime), Some(urls)) => {
                    let url = &urls[nth];
                    let expected = json!({"type": "file", "mime": mime, "url": url, "filename": "dot.png"});
                    assert_eq!(part, expected);
                }
                _ => assert_eq!(part["type"], "text", "{media_type} {content:?} {accepted:?}"),
            }
        }
    }
    let gone = file("image/png", FileSource::Workspace(temp.path().join("gone.png")));
    let remote = file("image/png", FileSource::Remote("https://example.org/a.png".to_owned()));
    for refused in [gone, remote] {
        assert_eq!(file_part(&refused, ALL).await["type"], "text", "{refused:?}");
    }
}

/// OpenCode takes these files for binary by their name or bytes, and would send an image or nothing at all.
#[tokio::test]
async fn the_content_of_a_text_file_that_opencode_would_not_read_is_sent_inline() {
    let temp = tempfile::tempdir().unwrap();
    let mostly_control = "\u{1}\u{2}\u{3}ab";
    let cases = [
        ("notes.txt", "plain", true),
        ("no_extension", "plain", true),
        ("notes.txt", "tab\tand \u{1b}[0m and ä", true),
        ("notes.DAT", "plain", false),
        ("drawing.png", "plain", false),
        ("notes.txt", "a\0b", false),
        ("notes.txt", mostly_control, false),
    ];
    for (name, content, is_read) in cases {
        let path = temp.path().join(name);
        std::fs::write(&path, content).unwrap();
        let mut kept = file("text/plain", FileSource::Workspace(path.clone()));
        kept.name = None;
        let sha256 = <sha2::Sha256 as sha2::Digest>::digest(content).into();
        kept.content = Some(ContentFacts { bytes: content.len() as u64, sha256 });
        let part = file_part(&kept, NOTHING).await;
        let url: String = if is_read {
            Url::from_file_path(&path).unwrap().into()
        } else {
            format!("data:text/plain;base64,{}", STANDARD.encode(content))
        };
        let expected = json!({"type": "file", "mime": "text/plain", "url": url, "filename": name});
        assert_eq!(part, expected, "{name} {content:?}");
        if !is_read {
            std::fs::write(&path, "changed\0since").unwrap();
            assert_eq!(file_part(&kept, NOTHING).await["type"], "text", "{name}");
        }
    }
}

#[tokio::test]
async fn a_file_that_the_model_does_not_accept_is_described() {
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
        assert_eq!(file_part(&file, NOTHING).await, expected);
    }
}

#[tokio::test]
async fn a_file_cannot_add_lines_to_its_description() {
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
            let part = file_part(&file, NOTHING).await;
            let text = part["text"].as_str().unwrap();
            assert_eq!(text.split('\n').count(), 6, "{text:?}");
            let forbidden = |c: char| c != '\n' && (c.is_control() || "\u{2028}\u{2029}".contains(c));
            assert!(!text.contains(forbidden), "{text:?}");
        }
    }
    let long = InputFile { name: Some("x".repeat(5000)), ..inline("image/png") };
    assert!(file_part(&long, NOTHING).await["text"].as_str().unwrap().len() < 2000);
}

#[tokio::test]
async fn a_prompt_contains_its_options() {
    let options = PromptOptions {
        agent: Some("plan".to_owned()),
        model: ModelName::parse("scripted/small/v2"),
        variant: Some("high".to_owned()),
        system: Some("Be brief.".to_owned()),
        ..PromptOptions::default()
    };
    let body = prompt_body(&[], &options, None, NOTHING).await;
    let expected = json!({"messageID": "msg_1", "parts": [], "agent": "plan", "variant": "high",
        "system": "Be brief.", "model": {"providerID": "scripted", "modelID": "small/v2"}});
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_native_prompt_keeps_the_positions_of_its_content_and_can_only_withhold_tools() {
    let subtask = Subtask {
        prompt: "look".to_owned(),
        description: "A look".to_owned(),
        agent: "explore".to_owned(),
        model: ModelName::parse("p/m"),
        command: Some("review".to_owned()),
    };
    let bare = Subtask { model: None, command: None, ..subtask.clone() };
    let parts = vec![
        NativePromptPart::Agent("plan".to_owned()),
        NativePromptPart::Content,
        NativePromptPart::Subtask(subtask),
        NativePromptPart::Subtask(bare),
        NativePromptPart::Content,
    ];
    let native = NativePrompt::Prompt { parts, withheld: ["bash".to_owned(), "edit".to_owned()].into() };
    let input = ["one", "two", "three"].map(|text| Input::Text(text.to_owned()));
    let options = PromptOptions::default();
    let expected = json!({"messageID": "msg_1", "tools": {"bash": false, "edit": false}, "parts": [
        {"type": "agent", "name": "plan"},
        {"type": "text", "text": "one"},
        {"type": "subtask", "prompt": "look", "description": "A look", "agent": "explore",
            "model": {"providerID": "p", "modelID": "m"}, "command": "review"},
        {"type": "subtask", "prompt": "look", "description": "A look", "agent": "explore"},
        {"type": "text", "text": "two"},
        {"type": "text", "text": "three"},
    ]});
    assert_eq!(prompt_body(&input, &options, Some(&native), NOTHING).await, expected);
    let draft =
        PromptDraft { prompt: "msg_1", input: &[], options: &options, order: Some(&native), is_note: true };
    let note: Value = serde_json::from_str(&body(Path::new("/w"), draft, NOTHING).await.json).unwrap();
    assert_eq!(note["noReply"], true);
}

#[tokio::test]
async fn a_command_names_its_model_as_one_text_and_has_only_files_as_parts() {
    let native =
        NativePrompt::Command { name: "review".to_owned(), arguments: "this one".to_owned(), may_run: false };
    let mut csv = inline("text/csv");
    csv.source = FileSource::Inline(b"a,b".to_vec());
    let options = PromptOptions {
        agent: Some("plan".to_owned()),
        model: ModelName::parse("scripted/small/v2"),
        variant: Some("high".to_owned()),
        system: Some("Be brief.".to_owned()),
        ..PromptOptions::default()
    };
    let expected = json!({"messageID": "msg_1", "command": "review", "arguments": "this one", "agent": "plan",
        "variant": "high", "model": "scripted/small/v2", "parts": [{"type": "file", "mime": "text/plain",
            "url": "data:text/plain;base64,YSxi", "filename": "dot.png"}]});
    let input = [Input::Text("/review this one".to_owned()), Input::File(csv)];
    assert_eq!(prompt_body(&input, &options, Some(&native), NOTHING).await, expected);
    let picture = [Input::File(inline("image/png"))];
    let body = prompt_body(&picture, &PromptOptions::default(), Some(&native), NOTHING).await;
    let arguments = body["arguments"].as_str().unwrap();
    assert!(arguments.starts_with("this one\n") && arguments.contains("dot.png"), "{arguments:?}");
    assert_eq!(body.get("parts"), None);
}
