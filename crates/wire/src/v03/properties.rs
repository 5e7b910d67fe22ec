//! Property tests: everything that is written can be read back except for the named losses, and no input makes a decoder panic.

use longshore_model::{
    ArtifactId, BlockKind, ContextId, Entry, Epoch, Message, OutputModes, Role, Seq, Task, TaskEvent, TaskId,
    Timestamp,
};
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use self::losses::lossy_message;
use super::Dialect;
use super::decode::{self, StreamEvent};
use super::encode::{self, Step, Stream, View};
use crate::testing::arbitrary;
use crate::testing::damage::damage;

mod losses;
mod streams;

proptest! {
    #[test]
    fn tasks_read_back(task in arbitrary::blocks(), dialect in dialect()) {
        let json = text(&encode::task(&task, View::default(), dialect));
        prop_assert!(!json.contains(['\n', '\r']), "{}", json);
        let expected = losses::lossy(&losses::answered(&task), dialect);
        prop_assert_eq!(losses::plain(decode::task(dialect, &json).unwrap()), expected.clone());
        let json = text(&encode::send_response(&task, View::default(), dialect));
        let StreamEvent::Task(read) = decode::stream_event(dialect, &json).unwrap() else { panic!("{json}") };
        prop_assert_eq!(losses::plain(read), expected);
    }

    #[test]
    fn stream_events_read_back(
        whole in arbitrary::blocks(), mut entry in arbitrary::entry(), is_reasoning in any::<bool>(), dialect in dialect(),
    ) {
        if let (TaskEvent::Artifact(update), true) = (&mut entry.event, is_reasoning) {
            update.artifact.kind = BlockKind::Reasoning;
        }
        let anything = OutputModes::default();
        let step = Stream::from_start(View::default(), dialect).step(&entry.event, &anything);
        let Step::Frame(frame) = step else {
            prop_assert_eq!(step, Step::Hidden, "a first event never needs the task");
            prop_assert!(is_empty_block(&entry.event), "{:?}", entry.event);
            return Ok(());
        };
        let json = text(&frame.encode(&whole.id, &whole.context_id, &entry, &anything));
        prop_assert!(!json.contains(['\n', '\r']), "{}", json);
        let read = decode::stream_event(dialect, &json).unwrap();
        let mut before = Task { artifacts: Vec::new(), ..whole };
        match (read, entry.event) {
            (StreamEvent::Task(read), submitted @ TaskEvent::Submitted { .. }) => {
                let begun = Task::begin(before.id, &submitted).unwrap();
                prop_assert_eq!(read, losses::lossy(&begun, dialect));
            }
            (StreamEvent::Status { task_id, update, .. }, TaskEvent::Status(expected)) => {
                prop_assert_eq!(&task_id, &before.id);
                before.status = expected.status;
                prop_assert_eq!(update.status, losses::lossy(&before, dialect).status);
                prop_assert_eq!(losses::plain_metadata(update.metadata), losses::plain_metadata(expected.metadata));
            }
            (StreamEvent::Artifact { context_id, update, .. }, TaskEvent::Artifact(expected)) => {
                prop_assert_eq!(&context_id, &before.context_id);
                prop_assert!(!update.append && !update.last_chunk);
                prop_assert_eq!(&update.metadata, &expected.metadata);
                prop_assert_eq!(update.artifact.kind, expected.artifact.kind);
                let with = |artifact| Task { artifacts: vec![artifact], ..before.clone() };
                let (read, expected) = (with(update.artifact), losses::lossy(&with(expected.artifact), dialect));
                let mut read = losses::plain(read).artifacts.remove(0);
                // The updates of a block carry its kind and metadata, and a text may be empty if there are other parts.
                (read.metadata, read.kind) = (None, BlockKind::Text);
                read.parts.retain(|part| part.as_text() != Some(""));
                prop_assert_eq!(&read, &expected.artifacts[0]);
            }
            (read, event) => panic!("{event:?} was encoded as {read:?}"),
        }
    }

    #[test]
    fn pages_read_back(tasks in proptest::collection::vec(arbitrary::blocks(), 0..3), limit in 0..3_u32, dialect in dialect()) {
        let view = View { history_length: Some(limit), artifacts: false, ..View::default() };
        let json = text(&encode::list_response(&tasks, view, dialect, "next", 3, 9));
        let page = decode::task_page(dialect, &json).unwrap();
        let seen: Vec<Task> = tasks.into_iter().map(|mut task| {
            task.artifacts.clear();
            let limit = usize::try_from(limit).unwrap();
            task.history = task.history.split_off(task.history.len().saturating_sub(limit));
            losses::lossy(&task, dialect)
        }).collect();
        prop_assert_eq!(page.tasks.into_iter().map(losses::plain).collect::<Vec<_>>(), seen);
        prop_assert_eq!((page.next_page_token.as_str(), page.page_size, page.total), ("next", 3, 9));
    }

    #[test]
    fn sent_messages_read_back(message in user_message(), metadata in arbitrary::metadata(), dialect in dialect()) {
        let json = format!(r#"{{"message":{},"metadata":{}}}"#, message_json(&message, dialect), metadata.get());
        let command = decode::send_message(dialect, &json).unwrap();
        prop_assert_eq!(command.message, lossy_message(&message, dialect));
        prop_assert_eq!(command.metadata, Some(metadata));
    }

    #[test]
    fn messages_of_1_0_are_understood(message in user_message(), dialect in dialect()) {
        // Data with a field `data` is an exception, because in 0.3 this looks like the ProtoJSON wrapper.
        let is_wrapped = |part: &longshore_model::Part| matches!(&part.content,
            longshore_model::PartContent::Data(data) if dialect == Dialect::Rest && data.get().contains("\"data\""));
        prop_assume!(!message.parts.iter().any(is_wrapped));
        let event = TaskEvent::submitted(ContextId::parse("c").unwrap(), message.clone(), Timestamp(0));
        let entry = Entry { seq: Seq(1), epoch: Epoch(1), event };
        let (task, context) = (TaskId::parse("t").unwrap(), ContextId::parse("c").unwrap());
        let anything = OutputModes::default();
        let frame = crate::v1::encode::stream_entry(&task, &context, &entry, crate::v1::encode::View::default(), &anything);
        let frame: Value = serde_json::from_slice(&frame.unwrap()).unwrap();
        let json = serde_json::json!({ "message": frame["task"]["history"][0] }).to_string();
        let ours = decode::send_message(dialect, &json).unwrap();
        prop_assert_eq!(ours.message, crate::v1::decode::send_message(&json).unwrap().message);
    }

    #[test]
    fn no_text_breaks_a_decoder(input in ".{0,80}") {
        read_all(&input);
    }

    #[test]
    fn no_damaged_json_breaks_a_decoder(
        task in arbitrary::blocks(), message in user_message(), damage in proptest::collection::vec(damage(), 1..6),
        dialect in dialect(),
    ) {
        let sources = [
            format!(r#"{{"message":{},"configuration":{{"blocking":true}}}}"#, message_json(&message, dialect)),
            text(&encode::send_response(&task, View::default(), dialect)),
            r#"{"contextId":"c","status":"input-required","pageSize":9}"#.to_owned(),
        ];
        for source in sources {
            let mut bytes = source.into_bytes();
            for damage in &damage {
                damage.apply(&mut bytes);
            }
            read_all(&String::from_utf8_lossy(&bytes));
        }
    }
}

/// Whether the event concerns an empty block. Only such events are not encoded.
fn is_empty_block(event: &TaskEvent) -> bool {
    match event {
        TaskEvent::Artifact(update) if update.artifact.kind != BlockKind::File => {
            update.artifact.parts.iter().all(|part| part.as_text() == Some(""))
        }
        TaskEvent::Submitted { .. } | TaskEvent::Status(_) | TaskEvent::Artifact(_) => false,
    }
}

fn dialect() -> impl Strategy<Value = Dialect> {
    prop::sample::select(Dialect::ALL.to_vec())
}

/// Passes a text to every decoder. Everything that a decoder accepts must be encodable.
fn read_all(json: &str) {
    let _ = decode::get_task(json);
    let _ = decode::list_tasks(json);
    let _ = decode::cancel_task(json);
    let _ = decode::subscribe(json);
    let _ = decode::cancel_task_query("t", &[], json);
    let _ = decode::get_task_query(json, &[("historyLength".to_owned(), json.to_owned())]);
    for name in ["status", "pageSize", "statusTimestampAfter", "contextId"] {
        let _ = decode::list_tasks_query(&[(name.to_owned(), json.to_owned())]);
    }
    for dialect in Dialect::ALL {
        let _ = decode::stream_event(dialect, json);
        let _ = decode::task_page(dialect, json);
        if let Ok(task) = decode::task(dialect, json) {
            let written = text(&encode::task(&task, View::default(), dialect));
            assert!(decode::task(dialect, &written).is_ok(), "{written}");
        }
        if let Ok(command) = decode::send_message(dialect, json) {
            let written = message_json(&command.message, dialect);
            let is_json = serde_json::from_str::<Value>(&written).is_ok();
            assert!(!written.contains(['\n', '\r']) && is_json, "{written}");
        }
    }
}

fn user_message() -> impl Strategy<Value = Message> {
    arbitrary::message().prop_map(|message| Message { role: Role::User, ..message })
}

/// A message in the form in which a client of the dialect writes it.
fn message_json(message: &Message, dialect: Dialect) -> String {
    #[derive(serde::Deserialize)]
    struct History<'a> {
        #[serde(borrow)]
        history: [&'a RawValue; 1],
    }
    let (task, context) = (TaskId::parse("t").unwrap(), ContextId::parse("c").unwrap());
    let event = TaskEvent::submitted(context.clone(), message.clone(), Timestamp(0));
    let whole = Task::begin(task, &event).unwrap();
    let json = text(&encode::task(&whole, View::default(), dialect));
    serde_json::from_str::<History<'_>>(&json).unwrap().history[0].get().to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
