//! Tests which content of a task a client sees: output modes, byte for byte, and the exposure of internals.

use longshore_model::TaskOptions;

use super::*;
use crate::extension::Extension;

const NOTHING: Exposure = Exposure { raw_thinking: false, tool_trace: false };

fn modes(modes: &[&str]) -> OutputModes {
    OutputModes::new(modes.iter().copied())
}

fn block(id: &str, kind: BlockKind, parts: Vec<Part>) -> Artifact {
    Artifact { kind, ..artifact(id, parts) }
}

fn data(json: &str) -> Part {
    Part { media_type: Some("application/json".to_owned()), ..Part::data(Json::parse(json).unwrap()) }
}

fn image() -> Part {
    let content = PartContent::Raw(vec![1, 2, 3]);
    Part { media_type: Some("image/png".to_owned()), ..Part::new(content) }
}

/// A task with content of every kind, for a caller with these output modes.
fn task_in_modes(output: &[&str]) -> Task {
    let asked = Message { parts: vec![Part::text("look"), image()], ..message("m1", Role::User, "") };
    let shown = Message { parts: vec![image()], ..message("m2", Role::User, "") };
    Task {
        status: TaskStatus {
            state: TaskState::Completed,
            at: Timestamp(0),
            message: Some(Message { parts: vec![image()], ..message("m3", Role::Agent, "") }),
        },
        history: vec![asked, shown],
        artifacts: vec![
            block("text", BlockKind::Text, vec![Part::text("done")]),
            block("tool", BlockKind::ToolCall, vec![data(r#"{"tool":"bash","é":1.50}"#)]),
            block("file", BlockKind::File, vec![image()]),
        ],
        options: Box::new(TaskOptions { output: modes(output), ..TaskOptions::default() }),
        metadata: Some(metadata(r#"{"opencode":{"error":{"type":"X"}},"a":1}"#)),
        ..bare_task()
    }
}

fn update_of(artifact: Artifact, metadata: Option<Metadata>) -> Entry {
    let update = ArtifactUpdate { artifact, append: false, last_chunk: false, metadata };
    Entry { seq: Seq(7), epoch: Epoch(1), event: TaskEvent::Artifact(update) }
}

fn frame(entry: &Entry, view: View, output: &OutputModes) -> Option<String> {
    let task = bare_task();
    let frame = stream_entry(&task.id, &task.context_id, entry, view, output);
    assert_eq!(frame.is_some(), is_shown(&entry.event, view, output));
    frame.map(written)
}

#[test]
fn a_task_is_written_in_the_accepted_output_modes() {
    insta::assert_snapshot!("modes_text", written(task(&task_in_modes(&["text/plain"]), View::default())));
    insta::assert_snapshot!(
        "modes_images",
        written(task(&task_in_modes(&["text/*", "image/*"]), View::default()))
    );
    // No part of this task remains. The fields are absent and not empty.
    insta::assert_snapshot!("modes_audio", written(task(&task_in_modes(&["audio/wav"]), View::default())));
    let listed = written(list_response(&[task_in_modes(&["audio/wav"])], View::default(), "", 1, 1));
    assert!(listed.contains(r#""artifacts":[],"metadata""#), "{listed}");

    // A caller that accepts everything gets everything, with the note about the accepted modes.
    let everything =
        written(task(&task_in_modes(&["text/plain", "application/json", "image/png"]), View::default()));
    let note =
        r#","output_negotiation":{"accepted_output_modes":["application/json","image/png","text/plain"]}"#;
    let plain = written(task(&task_in_modes(&[]), View::default()));
    assert!(everything.contains(note), "{everything}");
    // With the note, the agent's metadata object is written after the other fields.
    let plain = plain.replace(
        r#"{"opencode":{"error":{"type":"X"}},"a":1}"#,
        r#"{"a":1,"opencode":{"error":{"type":"X"}}}"#,
    );
    assert_eq!(everything.replace(note, ""), plain);
}

#[test]
fn every_frame_names_the_modes_beside_other_metadata() {
    let output = modes(&["text/plain"]);
    let with_hints = View { activated: [Extension::StreamHints].into_iter().collect(), ..View::default() };
    let submitted = TaskEvent::submitted(
        bare_task().context_id,
        Message { parts: vec![Part::text("look"), image()], ..message("m1", Role::User, "") },
        Timestamp(1),
    );
    let status = task_in_modes(&[]).status;
    let failed =
        StatusUpdate { metadata: Some(metadata(r#"{"opencode":{"error":1}}"#)), ..StatusUpdate::new(status) };
    let call = block("tool", BlockKind::ToolCall, vec![data(r#"{"b":"é","a":[1, 2]}"#), image()]);
    for (name, entry) in [
        ("modes_frame_submitted", Entry { seq: Seq(1), epoch: Epoch(1), event: submitted }),
        (
            "modes_frame_status",
            Entry { seq: Seq(2), epoch: Epoch(1), event: TaskEvent::Status(failed.into()) },
        ),
        ("modes_frame_tool", update_of(call, Some(metadata(r#"{"k":1}"#)))),
    ] {
        insta::assert_snapshot!(name, frame(&entry, with_hints, &output).unwrap());
    }
}

#[test]
fn a_message_without_accepted_parts_is_not_in_the_history() {
    let only_image = Message { parts: vec![image()], ..message("m1", Role::User, "") };
    let submitted = TaskEvent::submitted(bare_task().context_id, only_image, Timestamp(1));
    let frame = frame(
        &Entry { seq: Seq(1), epoch: Epoch(1), event: submitted },
        View::default(),
        &modes(&["text/plain"]),
    )
    .unwrap();
    assert!(!frame.contains("history"), "{frame}");
}

#[test]
fn an_update_without_accepted_parts_has_no_frame() {
    let image_only = update_of(block("f", BlockKind::File, vec![image()]), None);
    let call = update_of(block("t", BlockKind::ToolCall, vec![data("{}")]), None);
    for (entry, output, expected) in [
        (&image_only, &["text/plain"][..], false),
        (&image_only, &["image/*"], true),
        (&image_only, &[], true),
        (&call, &["image/*"], false),
        (&call, &["text/plain"], true),
    ] {
        assert_eq!(frame(entry, View::default(), &modes(output)).is_some(), expected, "{entry:?} {output:?}");
    }
}

#[test]
fn blocks_are_hidden_from_clients_that_may_not_see_them() {
    let kinds = [BlockKind::Text, BlockKind::Reasoning, BlockKind::ToolCall, BlockKind::File];
    let blocks = kinds.map(|kind| block(kind.as_str(), kind, vec![Part::text("secret")]));
    let whole = Task { artifacts: blocks.to_vec(), ..bare_task() };
    for raw_thinking in [false, true] {
        for tool_trace in [false, true] {
            let exposure = Exposure { raw_thinking, tool_trace };
            let activated = [Extension::StreamHints].into_iter().collect();
            let view = View { activated, exposure, ..View::default() };
            let answers = [
                task(&whole, view),
                stream_task(&whole, view, None),
                list_response(slice(&whole), view, "", 1, 1),
            ];
            for (block, is_seen) in blocks.iter().zip([true, raw_thinking, tool_trace, true]) {
                let name = format!(r#""artifactId":"{}""#, block.id);
                for answer in answers.clone().map(written) {
                    assert_eq!(answer.contains(&name), is_seen, "{exposure:?}: {answer}");
                }
                let entry = update_of(block.clone(), None);
                let frame = frame(&entry, view, &OutputModes::default());
                assert_eq!(frame.is_some(), is_seen, "{exposure:?}: {name}");
                // A visible frame has the same bytes for all clients.
                let open = View { exposure: Exposure::default(), ..view };
                let (mine, theirs) = (frame_form(&entry.event, view), frame_form(&entry.event, open));
                assert_eq!(mine, if is_seen { theirs } else { HIDDEN });
            }
        }
    }
    // An array without elements is left out, except in a list response.
    let inner = Task { artifacts: blocks[1..3].to_vec(), ..bare_task() };
    let view = View { exposure: NOTHING, ..View::default() };
    assert_eq!(task(&inner, view), task(&bare_task(), view));
    assert_eq!(
        list_response(slice(&inner), view, "", 1, 1),
        list_response(slice(&bare_task()), view, "", 1, 1)
    );
}

fn slice(task: &Task) -> &[Task] {
    std::slice::from_ref(task)
}
