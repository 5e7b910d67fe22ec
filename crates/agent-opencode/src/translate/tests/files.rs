//! Tests of the files that tools return, and of the paths of files that a turn wrote.

use longshore_engine::port::Resume;
use longshore_model::{Artifact, ArtifactId, BlockKind, Part as ModelPart};
use serde_json::{Value, json};

use super::merging::{feed, message, step};
use super::*;
use crate::translate::files::MAX_WRITTEN;

fn tool(translator: &mut Translator, tool: &str, status: &str, more: &Value) {
    let mut state = json!({"status": status, "input": {"filePath": "x"}, "output": "done"});
    state.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let part = json!({"id": "prt_t", "messageID": "msg_a", "type": "tool", "tool": tool, "callID": "c",
        "state": state});
    feed(translator, "message.part.updated", &json!({"part": part}));
}

fn attached(url: &str) -> Value {
    json!({"attachments": [{"type": "file", "mime": "image/png", "url": url}]})
}

/// The reported files: their id, type and bytes.
fn files(events: &[AgentEvent]) -> Vec<String> {
    let file = |event: &AgentEvent| match event {
        AgentEvent::File { block, file } => {
            assert_eq!((block.kind, block.message.as_ref().unwrap().as_str()), (BlockKind::File, "msg_a"));
            Some(format!("{} {} {:?}", block.id, file.media_type, &*file.bytes))
        }
        _ => None,
    };
    events.iter().filter_map(file).collect()
}

#[test]
fn files_of_a_tool_are_reported_once_and_after_its_call() {
    let mut translator = step();
    tool(&mut translator, "read", "running", &json!({}));
    let attachments = json!({"attachments": [
        {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AP8H"},
        {"type": "file", "url": "data:text/plain,a%20b"},
    ]});
    translator.take();
    for expected in
        [vec!["prt_t.file.0 image/png [0, 255, 7]", "prt_t.file.1 text/plain [97, 32, 98]"], vec![]]
    {
        tool(&mut translator, "read", "completed", &attachments);
        let events = translator.take();
        assert_eq!(files(&events), expected);
        assert!(events.is_empty() || matches!(events[0], AgentEvent::Tool { .. }), "{events:?}");
    }
}

#[test]
fn a_file_that_is_not_handed_over_is_reported_with_the_reason() {
    let large = format!("data:image/png;base64,{}", "A".repeat((MAX_FILE_BYTES + 3) / 3 * 4));
    let long = format!("https://example.org/{}", "x".repeat(5_000));
    for (url, reason) in [
        ("data:image/png;base64,%%%", "not valid base64"),
        ("data:image/png", "no comma"),
        ("", "not valid"),
        (large.as_str(), "too large"),
        ("file:///home/ada/longshore.toml", "named it by its path"),
        ("http://example.org/x.png", "neither a data: URL nor an https: URL"),
        ("javascript:alert(1)", "neither a data: URL nor an https: URL"),
        ("https://ada:secret@example.org/x.png", "contains a password"),
        (long.as_str(), "too long"),
    ] {
        let mut translator = step();
        tool(&mut translator, "read", "completed", &attached(url));
        let events = translator.take();
        let withheld = events.iter().find_map(|event| match event {
            AgentEvent::WithheldFile { block, reason, .. } => Some((block.id.as_str(), reason.as_str())),
            AgentEvent::File { .. } | AgentEvent::RemoteFile { .. } => panic!("{event:?}"),
            _ => None,
        });
        let (id, told) = withheld.unwrap_or_else(|| panic!("nothing was reported: {events:?}"));
        assert!(id == "prt_t.file.0" && told.contains(reason), "{told}");
        assert!(!told.contains("ada") && !told.contains("secret"), "{told}");
    }
    let mut translator = step();
    tool(&mut translator, "read", "error", &attached("data:image/png;base64,AP8H"));
    tool(&mut translator, "read", "completed", &json!({"attachments": 7}));
    assert_eq!(files(&translator.take()), [""; 0]);
}

#[test]
fn every_path_that_a_tool_call_names_is_a_source_of_its_files() {
    let mut many: serde_json::Map<String, Value> =
        (0..40).map(|nth| (format!("a{nth:02}"), json!("x"))).collect();
    many.insert("z".to_owned(), json!("/data/token"));
    for input in [
        json!({"filePath": "/data/token"}),
        Value::Object(many),
        json!({"files": ["a.png", {"path": "/data/token"}]}),
        json!({"files": {"/data/token": true}}),
        json!(["/data/token"]),
        json!({"url": "file:///data/token"}),
        json!({"url": " FILE://localhost/data/to%6ben"}),
        json!({"url": "file://elsewhere/data/token"}),
    ] {
        let mut translator = step();
        let mut more = attached("data:image/png;base64,AP8H");
        more["input"] = input.clone();
        tool(&mut translator, "view", "completed", &more);
        assert_eq!(files(&translator.take()).len(), 1, "{input}");
        let sources = translator.take_file_sources("prt_t.file.0").unwrap();
        assert!(sources.iter().any(|path| path == "/data/token"), "{input}: {sources:?}");
        assert_eq!(translator.take_file_sources("prt_t.file.0"), None, "nothing is known of another file");
    }
}

#[test]
fn a_file_of_a_tool_call_that_names_too_much_is_withheld() {
    let many: Vec<String> = (0..2_000).map(|nth| format!("{nth}.png")).collect();
    let mut translator = step();
    let mut more = attached("data:image/png;base64,AP8H");
    more["input"] = json!({"files": many});
    tool(&mut translator, "view", "completed", &more);
    let events = translator.take();
    assert_eq!(files(&events), [""; 0]);
    let is_withheld = |event: &AgentEvent| matches!(event, AgentEvent::WithheldFile { .. });
    assert!(events.iter().any(is_withheld), "{events:?}");
}

#[test]
fn a_file_at_an_https_url_is_reported_with_its_url() {
    let mut translator = step();
    for _ in 0..2 {
        tool(&mut translator, "fetch", "completed", &attached("https://example.org/x.png?size=2"));
    }
    let remote = |event: &AgentEvent| match event {
        AgentEvent::RemoteFile { block, file } => {
            Some(format!("{} {} {}", block.id, file.media_type, file.url))
        }
        _ => None,
    };
    let reported: Vec<_> = translator.take().iter().filter_map(remote).collect();
    assert_eq!(reported, ["prt_t.file.0 image/png https://example.org/x.png?size=2"]);
}

#[test]
fn a_file_that_the_log_has_is_not_reported_again() {
    let artifact = |id: &str| Artifact {
        id: ArtifactId::parse(id).unwrap(),
        kind: BlockKind::File,
        source_message: None,
        name: None,
        description: None,
        parts: vec![ModelPart::text("")],
        extensions: Vec::new(),
        metadata: None,
    };
    for (logged, expected) in [("prt_t.file.0", 0), ("prt_other.file.0", 1)] {
        let past = Resume { artifacts: vec![artifact(logged)], ..Resume::default() };
        let mut translator = Translator::resume("ses_1", "msg_p", &past);
        let prompt = json!({"info": {"id": "msg_p", "role": "user", "time": {"created": 1}}});
        feed(&mut translator, "message.updated", &prompt);
        message(&mut translator, "msg_a", "msg_p", &json!({}));
        tool(&mut translator, "read", "completed", &attached("data:image/png;base64,AP8H"));
        assert_eq!(files(&translator.take()).len(), expected, "{logged}");
        assert!(!translator.mark_file_reported(logged));
    }
}

#[test]
fn written_paths_come_from_the_tools_that_write() {
    let mut translator = step();
    tool(&mut translator, "write", "running", &json!({"metadata": {"filepath": "/w/not_yet"}}));
    let cases = [
        ("write", json!({"filepath": "/w/a"})),
        ("edit", json!({"filediff": {"file": "/w/b", "additions": 1}})),
        (
            "apply_patch",
            json!({"files": [{"filePath": "/w/c"}, {"filePath": "/w/d", "movePath": "/w/e"}, 7]}),
        ),
        ("bash", json!({"filepath": "/w/f"})),
        ("write", json!({"filepath": "/w/a"})),
        ("write", json!({"filepath": 7, "files": "none"})),
    ];
    for (name, metadata) in cases {
        tool(&mut translator, name, "completed", &json!({"metadata": metadata}));
    }
    // The patch of a step also contains changes that others made in the same worktree.
    let patch = json!({"part": {"id": "prt_p", "messageID": "msg_a", "type": "patch", "hash": "x",
        "files": ["/w/b", "/w/of_somebody_else"]}});
    feed(&mut translator, "message.part.updated", &patch);
    assert_eq!(translator.take_written(), ["/w/a", "/w/b", "/w/c", "/w/e"]);

    let many: Vec<Value> = (0..MAX_WRITTEN + 7).map(|nth| json!({"filePath": format!("/w/{nth}")})).collect();
    tool(&mut translator, "apply_patch", "completed", &json!({"metadata": {"files": many}}));
    assert_eq!(translator.take_written().len(), MAX_WRITTEN);
}
