//! Tests the frame of each update, which depends on what the reader already has.

use longshore_model::{ArtifactUpdate, ContextId, TaskId};

use super::*;

fn update(id: &str, kind: BlockKind, parts: Vec<Part>, append: bool) -> TaskEvent {
    let update =
        ArtifactUpdate { artifact: block(id, kind, parts), append, last_chunk: false, metadata: None };
    TaskEvent::Artifact(update)
}

fn text(id: &str, text: &str, append: bool) -> TaskEvent {
    update(id, BlockKind::Text, vec![Part::text(text)], append)
}

fn thought(id: &str, text: &str) -> TaskEvent {
    update(id, BlockKind::Reasoning, vec![Part::text(text)], false)
}

fn tool(id: &str, status: &str, append: bool) -> TaskEvent {
    update(id, BlockKind::ToolCall, vec![data(&format!("\"{status}\""))], append)
}

/// A short form of the result of a step: nothing, that the task was needed, or `append` and the parts.
fn result_of(stream: &mut Stream, before: &Task, event: &TaskEvent) -> String {
    let entry = Entry { seq: Seq(7), epoch: Epoch(1), event: event.clone() };
    let anything = OutputModes::default();
    let (prefix, bytes) = match stream.step(event, &anything) {
        Step::Hidden => return "nothing".to_owned(),
        Step::Frame(frame) => ("", Some(frame.encode(&before.id, &before.context_id, &entry, &anything))),
        Step::NeedsTask => {
            let TaskFrame { frame, is_whole_artifact } = stream.encode_with_task(&mut before.clone(), &entry);
            (if is_whole_artifact { "whole " } else { "with task " }, frame)
        }
    };
    let Some(bytes) = bytes else { return format!("{prefix}nothing") };
    let json: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(json["lastChunk"], false);
    let parts = json["artifact"]["parts"].as_array().unwrap().iter();
    let parts: Vec<_> =
        parts.map(|part| part.get("text").or(part["data"].get("value")).unwrap().to_string()).collect();
    let sign = if json["append"] == true { "+" } else { "=" };
    format!("{prefix}{sign} {}", parts.join(" "))
}

/// Checks the result of each event for a reader that starts at the first event.
fn check_steps(view: View, steps: &[(TaskEvent, &str)]) {
    let (mut task, mut stream) = (bare_task(), Stream::from_start(view, Dialect::Rpc));
    for (index, (event, expected)) in steps.iter().enumerate() {
        assert_eq!(result_of(&mut stream, &task, event), *expected, "step {index}");
        // A reader that starts with a snapshot at this point gets the same result.
        let mut late = Stream::from_snapshot(&task, view, Dialect::Rpc);
        assert_eq!(result_of(&mut late, &task, event), *expected, "step {index} after a snapshot");
        task.apply(event);
    }
}

#[test]
fn the_first_update_begins_the_artifact_and_the_others_append() {
    check_steps(
        View::default(),
        &[
            (thought("r", "Hm"), "= \"Hm\""),
            (text("a", "He", false), "+ \"He\""),
            (text("a", "llo", true), "+ \"llo\""),
            // The end of a block gives no frame.
            (text("a", "", true), "nothing"),
            (tool("t", "running", false), "+ \"running\""),
            (tool("t", "done", false), "+ \"done\""),
            (text("b", "Bye", false), "+ \"Bye\""),
        ],
    );
    check_steps(
        View::default(),
        &[(tool("t", "running", false), "= \"running\""), (tool("t", "x", true), "+ \"x\"")],
    );
}

#[test]
fn hidden_updates_do_not_begin_the_artifact() {
    let exposure = Exposure { raw_thinking: false, tool_trace: false };
    let steps = [
        (thought("r", "Hm"), "nothing"),
        (tool("t", "running", false), "nothing"),
        (text("a", "", false), "nothing"),
        (text("a", "He", true), "= \"He\""),
        (thought("r", "Oh"), "nothing"),
        // This reader sees no other block, so the whole artifact need not be sent again.
        (text("a", "She", false), "= \"She\""),
    ];
    check_steps(View { exposure, ..View::default() }, &steps);
}

#[test]
fn replaced_text_is_sent_with_the_whole_artifact() {
    check_steps(
        View::default(),
        &[
            (text("a", "He", false), "= \"He\""),
            (text("a", "She", false), "= \"She\""),
            (tool("t", "running", false), "+ \"running\""),
            (tool("t", "done", true), "+ \"done\""),
            (text("a", "They", false), "whole = \"They\" \"done\""),
            (text("a", "", false), "whole = \"done\""),
            (text("a", "", false), "nothing"),
            (text("a", "we", true), "+ \"we\""),
        ],
    );
    // After all content was withdrawn, the next update begins the artifact again.
    check_steps(
        View::default(),
        &[
            (text("a", "He", false), "= \"He\""),
            (text("a", "", false), "= \"\""),
            (text("b", "x", false), "= \"x\""),
        ],
    );
}

#[test]
fn a_resumed_reader_needs_the_task_once() {
    let mut task = bare_task();
    let mut stream = Stream::resumed(View::default(), Dialect::Rpc);
    for event in [thought("r", "Hm"), text("a", "He", false)] {
        task.apply(&event);
    }
    for (event, expected) in [
        (text("a", "", true), "nothing"),
        (text("a", "llo", true), "with task + \"llo\""),
        (text("b", "x", false), "+ \"x\""),
        (tool("t", "running", false), "+ \"running\""),
        (text("c", "y", false), "+ \"y\""),
    ] {
        assert_eq!(result_of(&mut stream, &task, &event), expected);
        task.apply(&event);
    }
    // The reader may also resume before there is anything that it can see.
    for (kind, hidden) in [(BlockKind::Text, ""), (BlockKind::Reasoning, "Hm")] {
        let exposure = Exposure { raw_thinking: false, ..Exposure::default() };
        let mut early = Stream::resumed(View { exposure, ..View::default() }, Dialect::Rpc);
        let mut task = bare_task();
        task.apply(&update("a", kind, vec![Part::text(hidden)], false));
        assert_eq!(result_of(&mut early, &task, &text("b", "x", true)), "with task = \"x\"", "{kind:?}");
    }
    let mut early = Stream::resumed(View::default(), Dialect::Rpc);
    assert_eq!(result_of(&mut early, &bare_task(), &text("a", "x", false)), "with task = \"x\"");
    assert_eq!(result_of(&mut early, &bare_task(), &text("a", "y", true)), "+ \"y\"");
}

#[test]
fn a_reader_that_has_the_artifact_gets_its_last_chunk() {
    let exposure = Exposure { raw_thinking: false, ..Exposure::default() };
    let view = View { exposure, ..View::default() };
    let mut stream = Stream::from_start(view, Dialect::Rpc);
    assert_eq!(stream.has_artifact(), HasArtifact::No);
    for (event, expected) in [
        (thought("r", "Hm"), HasArtifact::No),
        (text("a", "He", false), HasArtifact::Yes),
        (text("a", "", false), HasArtifact::No),
        (text("b", "x", false), HasArtifact::Yes),
    ] {
        result_of(&mut stream, &bare_task(), &event);
        assert_eq!(stream.has_artifact(), expected, "{event:?}");
    }
    // A reader that resumes just before the end.
    for (event, expected) in
        [(thought("r", "Hm"), HasArtifact::No), (text("a", "x", false), HasArtifact::Yes)]
    {
        let (mut task, mut late) = (bare_task(), Stream::resumed(view, Dialect::Rpc));
        task.apply(&event);
        assert_eq!(late.has_artifact(), HasArtifact::Unknown);
        late.locate(&task);
        assert_eq!(late.has_artifact(), expected, "{event:?}");
    }
    in_both("last_chunk", |dialect| {
        let (task, stream) = (bare_task(), Stream::from_start(View::default(), dialect));
        let only_data = OutputModes::new(["application/json"]);
        assert_eq!(stream.last_chunk(&task.id, &task.context_id, &only_data), None);
        stream.last_chunk(&task.id, &task.context_id, &OutputModes::default()).unwrap()
    });
}

#[test]
fn a_repeated_status_without_notes_is_not_sent() {
    for (repeats, has_note, is_sent) in
        [(true, false, false), (true, true, true), (false, false, true), (false, true, true)]
    {
        let mut update = longshore_model::StatusUpdate::new(bare_task().status);
        update.repeats = repeats;
        if has_note {
            update.notes.usage = Some(longshore_model::Usage::default());
        }
        let mut stream = Stream::from_start(View::default(), Dialect::Rpc);
        let step = stream.step(&TaskEvent::Status(Box::new(update)), &OutputModes::default());
        assert_eq!(step != Step::Hidden, is_sent, "{repeats} {has_note}");
    }
}

#[test]
fn files_are_artifacts_of_their_own() {
    let mut stream = Stream::from_start(View::default(), Dialect::Rpc);
    let update = ArtifactUpdate { artifact: file(), append: false, last_chunk: true, metadata: None };
    let entry = Entry { seq: Seq(1), epoch: Epoch(1), event: TaskEvent::Artifact(update) };
    let anything = OutputModes::default();
    let Step::Frame(frame) = stream.step(&entry.event, &anything) else { panic!("every client sees a file") };
    let (task, context) = (TaskId::parse("t1").unwrap(), ContextId::parse("c1").unwrap());
    let json = written(frame.encode(&task, &context, &entry, &anything));
    assert!(
        json.contains(r#""artifactId":"file_1""#) && json.ends_with(r#""append":false,"lastChunk":true}"#),
        "{json}"
    );
    // The file did not begin the stream artifact.
    assert_eq!(result_of(&mut stream, &bare_task(), &text("a", "x", false)), "= \"x\"");
}

#[test]
fn the_whole_artifact_byte_for_byte() {
    let mut task = worked();
    task.options.output = OutputModes::new(["text/plain", "application/json"]);
    let mut stream = Stream::from_snapshot(&task, View::default(), Dialect::Rpc);
    let entry = Entry { seq: Seq(9), epoch: Epoch(1), event: text("prt_4", "Over.", false) };
    assert_eq!(stream.step(&entry.event, &task.options.output), Step::NeedsTask);
    insta::assert_snapshot!(
        "whole_artifact",
        written(stream.encode_with_task(&mut task, &entry).frame.unwrap())
    );
}

#[test]
fn on_rest_parts_name_their_kind_unless_all_are_text() {
    let steps = [
        (text("a", "He", false), false),
        (text("b", "Bye", false), false),
        // The whole artifact: first with blocks of one kind, then with blocks of two kinds.
        (text("a", "She", false), false),
        // Clients keep the parts, but only the artifact metadata of the first update.
        (thought("r", "Hm"), true),
        (tool("t", "running", false), true),
        (text("c", "So", false), false),
        (text("a", "It", false), true),
        (thought("r", ""), true),
    ];
    for dialect in Dialect::ALL {
        let (mut task, mut stream) = (bare_task(), Stream::from_start(View::default(), dialect));
        for (index, (event, is_written)) in steps.iter().enumerate() {
            let entry = Entry { seq: Seq(7), epoch: Epoch(1), event: event.clone() };
            let anything = OutputModes::default();
            let bytes = match stream.step(event, &anything) {
                Step::Frame(frame) => frame.encode(&task.id, &task.context_id, &entry, &anything),
                Step::NeedsTask => stream.encode_with_task(&mut task.clone(), &entry).frame.unwrap(),
                Step::Hidden => panic!("step {index}"),
            };
            let frame: Value = serde_json::from_slice(&bytes).unwrap();
            let update = frame.get("artifactUpdate").unwrap_or(&frame);
            let has_kind = update["artifact"]["parts"][0].get("metadata").is_some();
            assert_eq!(has_kind, *is_written || dialect == Dialect::Rpc, "step {index} {dialect:?}");
            assert!(update["artifact"]["metadata"]["shared"]["stream"]["block_type"].is_string());
            task.apply(event);
        }
    }
}
