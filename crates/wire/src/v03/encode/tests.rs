//! Tests whole responses byte for byte in both dialects, and how the blocks of a task become one artifact.

use longshore_model::{
    AskKind, AskOption, AskOptions, BlockKind, Cost, Entry, Epoch, EventId, InterruptNote, InterruptPhase,
    Json, MessageId, Notes, OptionKind, OutputModes, Part, PartContent, Progress, ProgressKind, RequestId,
    Role, Seq, SessionId, SessionNote, StatusUpdate, Task, TaskEvent, TaskState, TaskStatus, Timestamp,
    Usage,
};
use serde_json::Value;

use super::*;
use crate::extension::Exposure;
use crate::v1::encode::tests::{bare_task, full_task, message, metadata, written};

mod stream;

fn block(id: &str, kind: BlockKind, parts: Vec<Part>) -> Artifact {
    Artifact {
        kind,
        source_message: Some(MessageId::parse("msg_1").unwrap()),
        ..crate::v1::encode::tests::artifact(id, parts)
    }
}

fn data(json: &str) -> Part {
    Part::data(Json::parse(json).unwrap())
}

fn file() -> Artifact {
    let part = Part {
        media_type: Some("text/plain".to_owned()),
        filename: Some("a.txt".to_owned()),
        ..Part::new(PartContent::Url("/artifacts/1".to_owned()))
    };
    Artifact { metadata: Some(metadata(r#"{"byteSize":3}"#)), ..block("file_1", BlockKind::File, vec![part]) }
}

/// A task with blocks of every kind.
fn worked() -> Task {
    Task {
        artifacts: vec![
            block("prt_1", BlockKind::Reasoning, vec![Part::text("Hm.")]),
            block(
                "prt_2",
                BlockKind::ToolCall,
                vec![data(r#"{"status":"running"}"#), data(r#"{"status":"completed"}"#)],
            ),
            file(),
            block("prt_3", BlockKind::Text, vec![Part::text("")]),
            block("prt_4", BlockKind::Text, vec![Part::text("Done.")]),
        ],
        ..bare_task()
    }
}

fn in_both(name: &str, write: impl Fn(Dialect) -> Bytes) {
    for dialect in Dialect::ALL {
        insta::assert_snapshot!(format!("{name}_{dialect:?}").to_lowercase(), written(write(dialect)));
    }
}

fn stream_parts(json: &str) -> Vec<(Value, Value)> {
    let task: Value = serde_json::from_str(json).unwrap();
    let parts = task["artifacts"][0]["parts"].as_array().cloned().unwrap_or_default();
    let content = |part: &Value| part.get("text").or(part.get("data")).cloned().unwrap_or_default();
    let kind = |part: &Value| part["metadata"]["shared"]["stream"]["block_type"].clone();
    parts.iter().map(|part| (kind(part), content(part))).collect()
}

#[test]
fn the_largest_and_the_smallest_task() {
    in_both("full_task", |dialect| task(&full_task(), View::default(), dialect));
    in_both("bare_task", |dialect| task(&bare_task(), View::default(), dialect));
    in_both("worked", |dialect| task(&worked(), View::default(), dialect));
    in_both("send_response", |dialect| send_response(&bare_task(), View::default(), dialect));
    let gap = Gap {
        requested: EventId::new(Seq(3), Epoch(2)),
        first: Seq(10),
        head: EventId::new(Seq(12), Epoch(4)),
    };
    in_both("gap", |dialect| stream_task(&bare_task(), View::default(), dialect, Some(gap)));
}

#[test]
fn all_blocks_are_one_artifact() {
    let shown = |task: &Task, view| {
        let json = written(super::task(task, view, Dialect::Rpc));
        stream_parts(&json).into_iter().map(|(kind, content)| format!("{kind} {content}")).collect::<Vec<_>>()
    };
    let (thinking, tool, text) =
        (r#""reasoning" "Hm.""#, r#""tool_call" {"status":"completed"}"#, r#""text" "Done.""#);
    for (raw_thinking, tool_trace, expected) in [
        (true, true, &[thinking, tool, text][..]),
        (false, true, &[tool, text]),
        (true, false, &[thinking, text]),
        (false, false, &[text]),
    ] {
        let view = View { exposure: Exposure { raw_thinking, tool_trace }, ..View::default() };
        assert_eq!(shown(&worked(), view), expected);
    }

    // Data is written as text for a caller that does not accept JSON.
    let mut plain = worked();
    plain.options.output = OutputModes::new(["text/plain"]);
    let as_text = r#""tool_call" "{\"status\":\"completed\"}""#;
    assert_eq!(shown(&plain, View::default()), [thinking, as_text, text]);

    // Without content there is no stream artifact, of which files are no part.
    let mut withdrawn = worked();
    withdrawn.artifacts.retain(|block| matches!(block.id.as_str(), "prt_3" | "file_1"));
    let json = written(task(&withdrawn, View::default(), Dialect::Rpc));
    assert!(json.contains(r#""artifacts":[{"artifactId":"file_1","#) && !json.contains(":stream"), "{json}");
    withdrawn.artifacts.retain(|block| block.kind != BlockKind::File);
    assert!(!written(task(&withdrawn, View::default(), Dialect::Rest)).contains("artifacts"));
}

#[test]
fn a_view_leaves_out_what_was_not_requested() {
    for (history_length, expected) in
        [(None, &["m1", "m2"][..]), (Some(5), &["m1", "m2"]), (Some(1), &["m2"]), (Some(0), &[])]
    {
        for dialect in Dialect::ALL {
            let view = View { history_length, artifacts: false, ..View::default() };
            let seen: Value = serde_json::from_slice(&task(&full_task(), view, dialect)).unwrap();
            assert_eq!(seen.get("artifacts"), None);
            let history = seen["history"].as_array().into_iter().flatten();
            let ids: Vec<_> = history.map(|message| &message["messageId"]).collect();
            assert_eq!(ids, expected, "{history_length:?}");
        }
    }
}

#[test]
fn a_list_always_has_its_four_fields() {
    let brief = View { history_length: Some(0), artifacts: false, ..View::default() };
    in_both("list", |dialect| list_response(&[bare_task()], brief, dialect, "n", 2, 7));
    in_both("list_empty", |dialect| list_response(&[], brief, dialect, "", 50, 0));
}

#[test]
fn all_notes_of_a_task_are_written_without_activation() {
    let noted = Task {
        session: Some(SessionNote { id: SessionId::parse("ses_1").unwrap(), title: Some("A".to_owned()) }),
        usage: Some(Usage { input: 1, output: 2, total: 3, cost: Cost(1_000_000), ..Usage::default() }),
        open_asks: vec![InterruptNote {
            request_id: RequestId::parse("per_1").unwrap(),
            kind: AskKind::Permission,
            phase: InterruptPhase::Asked,
            details: None,
            options: AskOptions::new([AskOption {
                id: "a".to_owned(),
                name: "Allow".to_owned(),
                kind: OptionKind::AllowOnce,
            }]),
            expired: None,
        }],
        ..bare_task()
    };
    let json: Value = serde_json::from_slice(&task(&noted, View::default(), Dialect::Rpc)).unwrap();
    let shared = &json["metadata"]["shared"];
    assert_eq!(shared["session"], serde_json::json!({"id": "ses_1", "title": "A"}));
    assert_eq!(shared["usage"]["total_tokens"], 3);
    assert_eq!(shared["interrupt"]["request_id"], "per_1");
    let options = serde_json::json!([{"id": "a", "name": "Allow", "kind": "allow_once"}]);
    assert_eq!(shared["interrupt"]["options"], options);
}

fn frames() -> Vec<(&'static str, TaskEvent)> {
    let status = |state, notes| {
        let status =
            TaskStatus { state, at: Timestamp(2), message: Some(message("m2", Role::Agent, "Well.")) };
        TaskEvent::Status(StatusUpdate { notes, ..StatusUpdate::new(status) }.into())
    };
    let progress = Progress { kind: ProgressKind::StepStarted, details: None };
    let submitted =
        TaskEvent::submitted(bare_task().context_id, message("m1", Role::User, "hi"), Timestamp(1));
    let chunk = |artifact| {
        TaskEvent::Artifact(longshore_model::ArtifactUpdate {
            artifact,
            append: false,
            last_chunk: true,
            metadata: None,
        })
    };
    vec![
        ("submitted", submitted),
        ("working", status(TaskState::Working, Notes { progress: Some(progress), ..Notes::default() })),
        ("canceled", status(TaskState::Canceled, Notes::default())),
        ("text", chunk(block("prt_1", BlockKind::Text, vec![Part::text("He")]))),
        ("tool", chunk(block("prt_2", BlockKind::ToolCall, vec![data("[1]")]))),
        ("file", chunk(file())),
    ]
}

#[test]
fn each_event_is_one_frame() {
    for (name, event) in frames() {
        let entry = Entry { seq: Seq(7), epoch: Epoch(1), event };
        in_both(&format!("frame_{name}"), |dialect| {
            let anything = OutputModes::default();
            let Step::Frame(frame) =
                Stream::from_start(View::default(), dialect).step(&entry.event, &anything)
            else {
                panic!("every client sees {name}")
            };
            frame.encode(&bare_task().id, &bare_task().context_id, &entry, &anything)
        });
    }
}

#[test]
fn only_the_last_status_is_final() {
    for state in TaskState::ALL {
        let status = TaskStatus { state, at: Timestamp(0), message: None };
        let entry = Entry {
            seq: Seq(1),
            epoch: Epoch(1),
            event: TaskEvent::Status(StatusUpdate::new(status).into()),
        };
        let mut stream = Stream::from_start(View::default(), Dialect::Rpc);
        let Step::Frame(frame) = stream.step(&entry.event, &OutputModes::default()) else {
            panic!("{state}")
        };
        let task = bare_task();
        let json = written(frame.encode(&task.id, &task.context_id, &entry, &OutputModes::default()));
        assert!(json.contains(&format!(r#""final":{}"#, state.is_terminal())), "{json}");
    }
}

/// The id and the text of the message in a task's status.
fn status_message(json: &Value) -> Option<(String, String)> {
    let message = json["status"].get("message")?;
    let parts = message.get("parts").or(message.get("content"))?.as_array()?;
    let texts = parts.iter().map(|part| part["text"].as_str().unwrap());
    Some((message["messageId"].as_str()?.to_owned(), texts.collect()))
}

#[test]
fn the_status_of_a_completed_task_contains_the_answer() {
    let completed = |blocks: Vec<Artifact>| {
        let status = TaskStatus { state: TaskState::Completed, ..bare_task().status };
        Task { status, artifacts: blocks, ..bare_task() }
    };
    let answer = |text: &str| block("prt_1", BlockKind::Text, vec![Part::text(text)]);
    let thought = block("prt_2", BlockKind::Reasoning, vec![Part::text("Hm")]);
    let call = block("prt_3", BlockKind::ToolCall, vec![data("[1]")]);
    let mut latest = block("prt_4", BlockKind::Text, vec![Part::text("world.\n"), data("[2]")]);
    latest.source_message = Some(MessageId::parse("msg_2").unwrap());
    let without_source = Artifact { source_message: None, ..answer("Hi") };
    let everything = completed(vec![answer("Hello "), thought.clone(), call, latest, file()]);
    let with_message = Task {
        status: TaskStatus {
            message: Some(message("m9", Role::Agent, "All done.")),
            ..everything.status.clone()
        },
        ..everything.clone()
    };
    let working = Task { status: bare_task().status, ..everything.clone() };
    for (task, expected) in [
        (&everything, Some(("msg_2", "Hello world."))),
        (&completed(vec![without_source]), Some(("t1:c1:assistant", "Hi"))),
        (&completed(vec![thought, answer(" \n")]), None),
        (&with_message, Some(("m9", "All done."))),
        (&working, None),
    ] {
        let expected = expected.map(|(id, text)| (id.to_owned(), text.to_owned()));
        let view = View { history_length: Some(0), ..View::default() };
        for dialect in Dialect::ALL {
            let json = |bytes: Bytes| serde_json::from_slice::<Value>(&bytes).unwrap();
            assert_eq!(status_message(&json(super::task(task, view, dialect))), expected, "{dialect:?}");
            let sent = json(send_response(task, view, dialect));
            assert_eq!(status_message(sent.get("task").unwrap_or(&sent)), expected, "{dialect:?}");
            let snapshot = json(stream_task(task, view, dialect, None));
            assert_eq!(status_message(snapshot.get("task").unwrap_or(&snapshot)), expected, "{dialect:?}");
            // A list contains only the task's own message, so that it stays short.
            let own = expected.clone().filter(|(id, _)| id == "m9");
            let page = json(list_response(std::slice::from_ref(task), view, dialect, "", 1, 1));
            assert_eq!(status_message(&page["tasks"][0]), own);
        }
    }
}
