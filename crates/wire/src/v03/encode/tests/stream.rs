//! What a reader is told of each update, by what it knows already.

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

/// What came of a step, in short: nothing, the task is needed, or `append` and the parts.
fn told(stream: &mut Stream, before: &Task, event: &TaskEvent) -> String {
    let entry = Entry { seq: Seq(7), epoch: Epoch(1), event: event.clone() };
    let anything = OutputModes::default();
    let (recalled, bytes) = match stream.step(event, &anything) {
        Step::Hidden => return "nothing".to_owned(),
        Step::Frame(frame) => ("", Some(frame.encode(&before.id, &before.context_id, &entry, &anything))),
        Step::NeedsTask => {
            let Recalled { frame, is_retold } = stream.recall(&mut before.clone(), &entry);
            (if is_retold { "retold " } else { "recalled " }, frame)
        }
    };
    let Some(bytes) = bytes else { return format!("{recalled}nothing") };
    let json: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(json["lastChunk"], false);
    let parts = json["artifact"]["parts"].as_array().unwrap().iter();
    let parts: Vec<_> =
        parts.map(|part| part.get("text").or(part["data"].get("value")).unwrap().to_string()).collect();
    let sign = if json["append"] == true { "+" } else { "=" };
    format!("{recalled}{sign} {}", parts.join(" "))
}

/// Each event with what a reader from the start is told of it.
fn tell(view: View, steps: &[(TaskEvent, &str)]) {
    let (mut task, mut stream) = (bare_task(), Stream::from_start(view, Dialect::Rpc));
    for (index, (event, expected)) in steps.iter().enumerate() {
        assert_eq!(told(&mut stream, &task, event), *expected, "step {index}");
        // Whoever begins with a snapshot here knows the same.
        let mut late = Stream::from_snapshot(&task, view, Dialect::Rpc);
        assert_eq!(told(&mut late, &task, event), *expected, "step {index} after a snapshot");
        task.apply(event);
    }
}

#[test]
fn the_first_update_begins_the_artifact_and_the_others_append() {
    tell(
        View::default(),
        &[
            (thought("r", "Hm"), "= \"Hm\""),
            (text("a", "He", false), "+ \"He\""),
            (text("a", "llo", true), "+ \"llo\""),
            // The end of a block says nothing here.
            (text("a", "", true), "nothing"),
            (tool("t", "running", false), "+ \"running\""),
            (tool("t", "done", false), "+ \"done\""),
            (text("b", "Bye", false), "+ \"Bye\""),
        ],
    );
    tell(
        View::default(),
        &[(tool("t", "running", false), "= \"running\""), (tool("t", "x", true), "+ \"x\"")],
    );
}

#[test]
fn what_is_hidden_begins_nothing() {
    let exposure = Exposure { raw_thinking: false, tool_trace: false };
    let steps = [
        (thought("r", "Hm"), "nothing"),
        (tool("t", "running", false), "nothing"),
        (text("a", "", false), "nothing"),
        (text("a", "He", true), "= \"He\""),
        (thought("r", "Oh"), "nothing"),
        // For this reader there is nothing else, so nothing else has to be told again.
        (text("a", "She", false), "= \"She\""),
    ];
    tell(View { exposure, ..View::default() }, &steps);
}

#[test]
fn text_that_is_replaced_is_told_with_all_that_stands_around_it() {
    tell(
        View::default(),
        &[
            (text("a", "He", false), "= \"He\""),
            (text("a", "She", false), "= \"She\""),
            (tool("t", "running", false), "+ \"running\""),
            (tool("t", "done", true), "+ \"done\""),
            (text("a", "They", false), "retold = \"They\" \"done\""),
            (text("a", "", false), "retold = \"done\""),
            (text("a", "", false), "nothing"),
            (text("a", "we", true), "+ \"we\""),
        ],
    );
    // When everything is withdrawn, the reader is told that, and the next update begins anew.
    tell(
        View::default(),
        &[
            (text("a", "He", false), "= \"He\""),
            (text("a", "", false), "= \"\""),
            (text("b", "x", false), "= \"x\""),
        ],
    );
}

#[test]
fn a_reader_that_comes_back_needs_the_task_once() {
    let mut task = bare_task();
    let mut stream = Stream::resumed(View::default(), Dialect::Rpc);
    for event in [thought("r", "Hm"), text("a", "He", false)] {
        task.apply(&event);
    }
    for (event, expected) in [
        (text("a", "", true), "nothing"),
        (text("a", "llo", true), "recalled + \"llo\""),
        (text("b", "x", false), "+ \"x\""),
        (tool("t", "running", false), "+ \"running\""),
        (text("c", "y", false), "+ \"y\""),
    ] {
        assert_eq!(told(&mut stream, &task, &event), expected);
        task.apply(&event);
    }
    // It may also have been cut before there was anything, if only anything that it sees.
    for (kind, hidden) in [(BlockKind::Text, ""), (BlockKind::Reasoning, "Hm")] {
        let exposure = Exposure { raw_thinking: false, ..Exposure::default() };
        let mut early = Stream::resumed(View { exposure, ..View::default() }, Dialect::Rpc);
        let mut task = bare_task();
        task.apply(&update("a", kind, vec![Part::text(hidden)], false));
        assert_eq!(told(&mut early, &task, &text("b", "x", true)), "recalled = \"x\"", "{kind:?}");
    }
    let mut early = Stream::resumed(View::default(), Dialect::Rpc);
    assert_eq!(told(&mut early, &bare_task(), &text("a", "x", false)), "recalled = \"x\"");
    assert_eq!(told(&mut early, &bare_task(), &text("a", "y", true)), "+ \"y\"");
}

#[test]
fn files_are_artifacts_of_their_own() {
    let mut stream = Stream::from_start(View::default(), Dialect::Rpc);
    let update = ArtifactUpdate { artifact: file(), append: false, last_chunk: true, metadata: None };
    let entry = Entry { seq: Seq(1), epoch: Epoch(1), event: TaskEvent::Artifact(update) };
    let anything = OutputModes::default();
    let Step::Frame(frame) = stream.step(&entry.event, &anything) else { panic!("a file is seen by all") };
    let (task, context) = (TaskId::parse("t1").unwrap(), ContextId::parse("c1").unwrap());
    let json = written(frame.encode(&task, &context, &entry, &anything));
    assert!(
        json.contains(r#""artifactId":"file_1""#) && json.ends_with(r#""append":false,"lastChunk":true}"#),
        "{json}"
    );
    // It has not begun the stream.
    assert_eq!(told(&mut stream, &bare_task(), &text("a", "x", false)), "= \"x\"");
}

#[test]
fn a_whole_artifact_that_is_told_again_byte_for_byte() {
    let mut task = worked();
    task.terms.output = OutputModes::new(["text/plain", "application/json"]);
    let mut stream = Stream::from_snapshot(&task, View::default(), Dialect::Rpc);
    let entry = Entry { seq: Seq(9), epoch: Epoch(1), event: text("prt_4", "Over.", false) };
    assert_eq!(stream.step(&entry.event, &task.terms.output), Step::NeedsTask);
    insta::assert_snapshot!("told_again", written(stream.recall(&mut task, &entry).frame.unwrap()));
}

#[test]
fn parts_of_rest_say_what_they_are_unless_they_are_of_the_answer_alone() {
    let steps = [
        (text("a", "He", false), false),
        (text("b", "Bye", false), false),
        // The whole artifact, of one kind and then of two.
        (text("a", "She", false), false),
        // Clients keep the parts, and what the first update said of the artifact.
        (thought("r", "Hm"), true),
        (tool("t", "running", false), true),
        (text("c", "So", false), false),
        (text("a", "It", false), true),
        (thought("r", ""), true),
    ];
    for dialect in Dialect::ALL {
        let (mut task, mut stream) = (bare_task(), Stream::from_start(View::default(), dialect));
        for (index, (event, is_told)) in steps.iter().enumerate() {
            let entry = Entry { seq: Seq(7), epoch: Epoch(1), event: event.clone() };
            let anything = OutputModes::default();
            let bytes = match stream.step(event, &anything) {
                Step::Frame(frame) => frame.encode(&task.id, &task.context_id, &entry, &anything),
                Step::NeedsTask => stream.recall(&mut task.clone(), &entry).frame.unwrap(),
                Step::Hidden => panic!("step {index}"),
            };
            let frame: Value = serde_json::from_slice(&bytes).unwrap();
            let update = frame.get("artifactUpdate").unwrap_or(&frame);
            let says = update["artifact"]["parts"][0].get("metadata").is_some();
            assert_eq!(says, *is_told || dialect == Dialect::Rpc, "step {index} {dialect:?}");
            assert!(update["artifact"]["metadata"]["shared"]["stream"]["block_type"].is_string());
            task.apply(event);
        }
    }
}
