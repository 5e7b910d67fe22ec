//! Tests whole responses byte for byte.

use longshore_model::{
    ArtifactId, Epoch, EventId, Json, Message, MessageId, Metadata, Part, Role, Seq, TaskState, TaskStatus,
    Timestamp,
};

use super::*;

mod iac_code;
mod output;
mod shared;

pub(crate) fn written(bytes: Bytes) -> String {
    String::from_utf8(bytes.into()).unwrap()
}

/// The frame of an event that every client sees.
fn frame_of(entry: &Entry, view: View) -> String {
    let (task, anything) = (bare_task(), OutputModes::default());
    written(
        stream_entry(&task.id, &task.context_id, entry, view, &anything)
            .expect("every client sees the event"),
    )
}

pub(crate) fn metadata(json: &str) -> Metadata {
    Metadata::try_from(Json::parse(json).unwrap()).unwrap()
}

pub(crate) fn message(id: &str, role: Role, text: &str) -> Message {
    Message::new(MessageId::parse(id).unwrap(), role, vec![Part::text(text)])
}

pub(crate) fn artifact(id: &str, parts: Vec<Part>) -> Artifact {
    Artifact {
        id: ArtifactId::parse(id).unwrap(),
        kind: BlockKind::Text,
        source_message: None,
        name: Some("text".to_owned()),
        description: None,
        parts,
        extensions: Vec::new(),
        metadata: None,
    }
}

pub(crate) fn bare_task() -> Task {
    Task {
        id: TaskId::parse("t1").unwrap(),
        context_id: ContextId::parse("c1").unwrap(),
        status: TaskStatus { state: TaskState::Working, at: Timestamp(1_786_440_600_125), message: None },
        artifacts: Vec::new(),
        history: Vec::new(),
        session: None,
        usage: None,
        open_asks: Vec::new(),
        expired_asks: Vec::new(),
        options: Box::default(),
        parent: None,
        metadata: None,
    }
}

pub(crate) fn full_task() -> Task {
    let parts = vec![
        Part::text("line\nbreak \"quoted\" é\u{1}"),
        Part {
            media_type: Some("image/png".to_owned()),
            filename: Some("a.png".to_owned()),
            metadata: Some(metadata(r#"{"n":1700000000000000001}"#)),
            ..Part::new(PartContent::Raw(vec![0xfb, 0xff, 0]))
        },
        Part::new(PartContent::Url("https://example.com/a".to_owned())),
        Part::data(Json::parse("{\n  \"x y\": [1.50,\r\n null]\n}").unwrap()),
    ];
    let mut asked = message("m1", Role::User, "do it");
    asked.context_id = Some(ContextId::parse("c1").unwrap());
    asked.task_id = Some(TaskId::parse("t1").unwrap());
    asked.reference_task_ids = vec![TaskId::parse("t0").unwrap()];
    asked.extensions = vec!["urn:x".to_owned()];
    asked.metadata = Some(metadata("{}"));
    let mut made = artifact("a1", parts);
    made.description = Some("what it made".to_owned());
    made.extensions = vec!["urn:y".to_owned()];
    made.metadata = Some(metadata(r#"{"k":1e2}"#));
    Task {
        status: TaskStatus {
            state: TaskState::InputRequired,
            at: Timestamp(0),
            message: Some(message("m3", Role::Agent, "May I?")),
        },
        artifacts: vec![made],
        history: vec![asked, message("m2", Role::Agent, "")],
        metadata: Some(metadata(r#"{"a":1}"#)),
        ..bare_task()
    }
}

#[test]
fn the_largest_and_the_smallest_task() {
    insta::assert_snapshot!("full_task", written(task(&full_task(), View::default())));
    insta::assert_snapshot!("bare_task", written(task(&bare_task(), View::default())));
    insta::assert_snapshot!("send_response", written(send_response(&bare_task(), View::default())));
}

#[test]
fn a_view_leaves_out_what_was_not_requested() {
    for (history_length, expected) in
        [(None, &["m1", "m2"][..]), (Some(5), &["m1", "m2"]), (Some(1), &["m2"]), (Some(0), &[])]
    {
        let json = written(task(&full_task(), View { history_length, artifacts: false, ..View::default() }));
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value.get("artifacts"), None);
        assert_eq!(value.get("history").is_some(), !expected.is_empty(), "{history_length:?}");
        let ids: Vec<_> =
            value["history"].as_array().into_iter().flatten().map(|m| &m["messageId"]).collect();
        assert_eq!(ids, expected, "{history_length:?}");
    }
}

#[test]
fn a_list_always_has_its_four_fields() {
    let brief = View { history_length: Some(0), artifacts: false, ..View::default() };
    insta::assert_snapshot!("list_empty", written(list_response(&[], brief, "", 50, 0)));
    let tasks = [bare_task(), full_task()];
    insta::assert_snapshot!("list_brief", written(list_response(&tasks, brief, "n\"", 2, 7)));
    // If artifacts are requested, a task without artifacts has an empty array.
    let with_artifacts = View { history_length: Some(0), ..View::default() };
    insta::assert_snapshot!(
        "list_with_artifacts",
        written(list_response(&tasks[..1], with_artifacts, "", 1, 1))
    );
    let huge = written(list_response(&[], brief, "", 1, u64::MAX));
    assert!(huge.ends_with(r#""totalSize":2147483647}"#), "{huge}");
}

#[test]
fn each_event_is_one_frame() {
    let task = bare_task();
    let submitted =
        TaskEvent::submitted(task.context_id.clone(), message("m1", Role::User, "hi"), Timestamp(1));
    let status = TaskStatus { state: TaskState::Working, at: Timestamp(2), message: None };
    let working = TaskEvent::Status(
        StatusUpdate { metadata: Some(metadata(r#"{"a":1}"#)), ..StatusUpdate::new(status) }.into(),
    );
    let update = |append, last_chunk| {
        let artifact = artifact("a1", vec![Part::text("He")]);
        TaskEvent::Artifact(ArtifactUpdate { artifact, append, last_chunk, metadata: None })
    };
    for (name, event) in [
        ("frame_submitted", submitted),
        ("frame_status", working),
        ("frame_artifact_first", update(false, false)),
        ("frame_artifact_last", update(true, true)),
    ] {
        let entry = Entry { seq: Seq(1), epoch: Epoch(1), event };
        let frame = frame_of(&entry, View::default());
        insta::assert_snapshot!(name, frame);
        for history_length in [None, Some(0), Some(1)] {
            let view = View { history_length, ..View::default() };
            let seen = frame_of(&entry, view);
            let is_cut = name == "frame_submitted" && history_length == Some(0);
            assert_eq!(seen == frame, !is_cut, "{seen}");
            assert_eq!(seen.contains("history"), name == "frame_submitted" && !is_cut, "{seen}");
        }
    }
}

#[test]
fn a_gap_is_noted_beside_other_metadata() {
    let gap = Gap {
        requested: EventId::new(Seq(3), Epoch(2)),
        first: Seq(10),
        head: EventId::new(Seq(12), Epoch(4)),
    };
    let note = r#""gap":{"requested":3,"first":10,"head":12,"requested_epoch":2,"head_epoch":4}"#;
    for (before, expected) in [
        (None, format!("{{\"longshore\":{{{note}}}}}")),
        (Some("{}"), format!("{{\"longshore\":{{{note}}}}}")),
        (
            Some(r#"{"n": 17000000000000000001}"#),
            format!("{{\"n\":17000000000000000001,\"longshore\":{{{note}}}}}"),
        ),
        (Some(r#"{"longshore":{"gap":1,"x":2.50}}"#), format!("{{\"longshore\":{{\"x\":2.50,{note}}}}}")),
        (
            Some(
                r#"{"longshore":7,"a\"":[1,
            2]}"#,
            ),
            format!("{{\"a\\\"\":[1,2],\"longshore\":{{{note}}}}}"),
        ),
    ] {
        let task = Task { metadata: before.map(metadata), ..bare_task() };
        let frame = written(stream_task(&task, View::default(), Some(gap)));
        assert!(frame.ends_with(&format!("\"metadata\":{expected}}}}}")), "{before:?}: {frame}");
    }
    for history_length in [None, Some(0), Some(1)] {
        let view = View { history_length, ..View::default() };
        assert_eq!(stream_task(&full_task(), view, None), send_response(&full_task(), view));
    }
}
