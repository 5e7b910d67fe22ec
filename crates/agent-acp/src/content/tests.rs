use longshore_engine::port::ContentFacts;
use serde_json::{Value, json};

use super::*;

const ALL: PromptCapabilities = PromptCapabilities { image: true, audio: true, embedded_context: true };
const NONE: PromptCapabilities = PromptCapabilities { image: false, audio: false, embedded_context: false };

fn file(name: &str, media_type: &str, is_text: bool, source: FileSource) -> Input {
    let content = Some(ContentFacts { bytes: 3, sha256: [7; 32] });
    Input::File(InputFile {
        name: Some(name.to_owned()),
        media_type: media_type.to_owned(),
        is_text,
        source,
        content,
    })
}

fn inline(bytes: &[u8]) -> FileSource {
    FileSource::Inline(bytes.to_vec())
}

fn shown(input: Input, takes: PromptCapabilities, read: &BTreeMap<PathBuf, Vec<u8>>) -> Value {
    serde_json::to_value(&blocks(&[input], Path::new("/w"), takes, read)[0]).unwrap()
}

#[test]
fn each_input_becomes_the_block_that_the_agent_takes() {
    let in_workspace = |name: &str| FileSource::Workspace(PathBuf::from("/w").join(name));
    let read = BTreeMap::from([(PathBuf::from("/w/a.png"), b"png".to_vec())]);
    let cases = [
        (Input::Text("hi".to_owned()), json!({"type": "text", "text": "hi"})),
        (
            file("a.png", "image/png", false, inline(b"png")),
            json!({"type": "image", "mimeType": "image/png", "data": "cG5n"}),
        ),
        (
            file("a.wav", "audio/wav", false, inline(b"wav")),
            json!({"type": "audio", "mimeType": "audio/wav", "data": "d2F2"}),
        ),
        (
            file("a b.txt", "text/plain", true, inline(b"txt")),
            json!({"type": "resource", "resource": {"uri": "attachment:a%20b%2Etxt", "mimeType": "text/plain", "text": "txt"}}),
        ),
        (
            file("a.pdf", "application/pdf", false, inline(b"pdf")),
            json!({"type": "resource", "resource": {"uri": "attachment:a%2Epdf", "mimeType": "application/pdf", "blob": "cGRm"}}),
        ),
        // No model would read this type as an image.
        (
            file("a.svg", "image/svg+xml", true, inline(b"svg")),
            json!({"type": "resource", "resource": {"uri": "attachment:a%2Esvg", "mimeType": "image/svg+xml", "text": "svg"}}),
        ),
        (
            file("a.png", "image/png", false, in_workspace("a.png")),
            json!({"type": "image", "mimeType": "image/png", "data": "cG5n"}),
        ),
        (
            file("a.rs", "text/x-rust", true, in_workspace("a.rs")),
            json!({"type": "resource_link", "uri": "file:///w/a.rs", "name": "a.rs", "mimeType": "text/x-rust"}),
        ),
        (
            file("x", "text/html", true, FileSource::Remote("https://example.com/x".to_owned())),
            json!({"type": "resource_link", "uri": "https://example.com/x", "name": "x", "mimeType": "text/html"}),
        ),
    ];
    for (input, expected) in cases {
        assert_eq!(shown(input.clone(), ALL, &read), expected, "{input:?}");
    }
}

#[test]
fn a_file_that_the_agent_does_not_take_is_described() {
    for (media_type, takes) in [
        ("image/png", NONE),
        ("audio/wav", NONE),
        ("text/plain", NONE),
        ("audio/wav", PromptCapabilities { image: true, ..NONE }),
    ] {
        let text = shown(file("a\nb.bin", media_type, false, inline(b"abc")), takes, &BTreeMap::new());
        let expected = format!(
            "[A file was sent with this message. Its content is not shown to you.]\nfilename: a b.bin\nmediaType: {media_type}\n\
             byteSize: 3\nsha256: {}\nsource: inline",
            "07".repeat(32)
        );
        assert_eq!(text, json!({"type": "text", "text": expected}));
    }
}

#[test]
fn only_files_that_the_model_sees_are_read() {
    let at = |name: &str, media_type: &str| {
        file(name, media_type, false, FileSource::Workspace(PathBuf::from("/w").join(name)))
    };
    let inputs = [at("a.png", "image/png"), at("b.rs", "text/x-rust"), Input::Text("x".to_owned())];
    assert_eq!(needed_files(&inputs, ALL), [Path::new("/w/a.png")]);
    assert!(needed_files(&inputs, NONE).is_empty());
    // A file that no longer exists is described.
    let lost = shown(inputs[0].clone(), ALL, &BTreeMap::new());
    assert!(lost["text"].as_str().unwrap().contains("source: a.png"), "{lost}");
}
