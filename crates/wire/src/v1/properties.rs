//! Property tests: everything that is written can be read back, the official types agree, and no input makes a decoder panic.

use a2a_pb::protojson;
use longshore_model::{
    ContextId, Entry, Epoch, Message, OutputModes, Part, PartContent, Role, Seq, Task, TaskEvent, TaskId,
    Timestamp,
};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Number, Value};

use super::decode::{self, StreamEvent};
use super::encode::{self, View};
use super::extension::check_send_options;
use crate::extension::Activated;
use crate::jsonrpc;
use crate::testing::arbitrary;
use crate::testing::damage::damage;

mod extensions;
mod output;

proptest! {
    #[test]
    fn tasks_read_back(task in arbitrary::task()) {
        let json = text(&encode::task(&task, View::default()));
        prop_assert_eq!(decode::task(&json).unwrap(), task.clone());
        let json = text(&encode::send_response(&task, View::default()));
        prop_assert_eq!(decode::stream_event(&json).unwrap(), StreamEvent::Task(task));
    }

    #[test]
    fn stream_events_read_back(
        task in arbitrary::task_id(), context in arbitrary::context_id(), entry in arbitrary::entry(),
    ) {
        let json = frame(&task, &context, &entry, &OutputModes::default()).unwrap();
        prop_assert!(!json.contains(['\n', '\r']));
        prop_assert_eq!(decode::stream_event(&json).unwrap().into_event(), Some(entry.event));
    }

    #[test]
    fn pages_read_back(tasks in proptest::collection::vec(arbitrary::task(), 0..3), limit in 0..3_u32) {
        let view = View { history_length: Some(limit), artifacts: false, ..View::default() };
        let page = decode::task_page(&text(&encode::list_response(&tasks, view, "next", 3, 9))).unwrap();
        let seen: Vec<Task> = tasks.into_iter().map(|mut task| {
            task.artifacts.clear();
            let limit = usize::try_from(limit).unwrap();
            task.history = task.history.split_off(task.history.len().saturating_sub(limit));
            task
        }).collect();
        prop_assert_eq!(page, decode::TaskPage { tasks: seen, next_page_token: "next".to_owned(), page_size: 3, total: 9 });
    }

    #[test]
    fn sent_messages_read_back(message in user_message(), metadata in arbitrary::metadata()) {
        let json = format!(r#"{{"message":{},"metadata":{}}}"#, message_json(&message), metadata.get());
        let command = decode::send_message(&json).unwrap();
        prop_assert_eq!(command.message, message);
        prop_assert_eq!(command.metadata, Some(metadata));
    }

    #[test]
    fn the_official_types_agree_on_tasks(task in arbitrary::task()) {
        let task = without_null_data(task);
        let ours = text(&encode::task(&task, View::default()));
        let theirs = through::<protojson::Task>(&ours);
        let back = decode::task(&theirs).unwrap();
        prop_assert_eq!(loosely(&text(&encode::task(&back, View::default()))), loosely(&ours));
    }

    #[test]
    fn the_official_types_agree_on_pages(task in arbitrary::task(), total in 1..9_u32) {
        let ours = text(&encode::list_response(&[without_null_data(task)], View::default(), "n", 1, total.into()));
        let back = decode::task_page(&through::<protojson::ListTasksResponse>(&ours)).unwrap();
        prop_assert_eq!(
            loosely(&text(&encode::list_response(&back.tasks, View::default(), "n", 1, total.into()))), loosely(&ours)
        );
        prop_assert_eq!((back.next_page_token.as_str(), back.page_size, back.total), ("n", 1, total));
    }

    #[test]
    fn the_official_types_agree_on_stream_events(
        task in arbitrary::task_id(), context in arbitrary::context_id(), mut entry in arbitrary::entry(),
    ) {
        without_null_data_in_event(&mut entry.event);
        let anything = OutputModes::default();
        let ours = frame(&task, &context, &entry, &anything).unwrap();
        entry.event = decode::stream_event(&through::<protojson::StreamResponse>(&ours)).unwrap().into_event().unwrap();
        prop_assert_eq!(loosely(&frame(&task, &context, &entry, &anything).unwrap()), loosely(&ours));
    }

    #[test]
    fn the_official_client_is_understood(mut message in user_message()) {
        without_null_data_in_message(&mut message);
        let sent = format!(
            r#"{{"message":{},"configuration":{{"historyLength":0,"returnImmediately":true}}}}"#, message_json(&message)
        );
        let command = decode::send_message(&through::<protojson::SendMessageRequest>(&sent)).unwrap();
        prop_assert_eq!(loosely(&message_json(&command.message)), loosely(&message_json(&message)));
        prop_assert_eq!((command.config.history_length, command.config.return_immediately), (Some(0), true));
    }

    #[test]
    fn no_text_breaks_a_decoder(input in ".{0,80}") {
        read_all(&input);
    }

    #[test]
    fn no_damaged_json_breaks_a_decoder(
        task in arbitrary::task(), message in user_message(), damage in proptest::collection::vec(damage(), 1..6),
    ) {
        let sources = [
            format!(r#"{{"message":{},"configuration":{{"historyLength":1}}}}"#, message_json(&message)),
            format!(r#"{{"message":{},"metadata":{OPTIONS}}}"#, message_json(&message)),
            text(&encode::send_response(&task, View::default())),
            r#"{"contextId":"c","status":3,"pageSize":9,"statusTimestampAfter":"2026-01-01T00:00:00Z"}"#.to_owned(),
        ];
        for source in sources {
            let mut bytes = source.into_bytes();
            for damage in &damage {
                damage.apply(&mut bytes);
            }
            let _ = jsonrpc::parse(&bytes);
            read_all(&String::from_utf8_lossy(&bytes));
        }
    }
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
    let _ = decode::stream_event(json);
    let _ = decode::task_page(json);
    if let Ok(task) = decode::task(json) {
        let written = text(&encode::task(&task, View::default()));
        assert_eq!(decode::task(&written).unwrap(), task);
    }
    if let Ok(command) = decode::send_message(json) {
        let _ = check_send_options(&command, Activated::NONE);
        let written = message_json(&command.message);
        assert!(
            !written.contains(['\n', '\r']) && serde_json::from_str::<Value>(&written).is_ok(),
            "{written}"
        );
    }
}

const OPTIONS: &str = r#"{"shared":{"session":{"id":"ses_1"},"model":{"providerID":"p","modelID":"m"},"delivery":"steer"},"opencode":{"agent":"a","directory":"/a","workspace":{"id":"wrk_1"},"format":{"type":"text"}},"iac_code":{"cwd":"/a"}}"#;

fn user_message() -> impl Strategy<Value = Message> {
    arbitrary::message().prop_map(|message| Message { role: Role::User, ..message })
}

fn message_json(message: &Message) -> String {
    #[derive(serde::Deserialize)]
    struct History<'a> {
        #[serde(borrow)]
        history: [&'a RawValue; 1],
    }
    let entry = Entry {
        seq: Seq(1),
        epoch: Epoch(1),
        event: TaskEvent::submitted(ContextId::parse("c").unwrap(), message.clone(), Timestamp(0)),
    };
    let context = ContextId::parse("c").unwrap();
    let frame = frame(&TaskId::parse("t").unwrap(), &context, &entry, &OutputModes::default()).unwrap();
    let task = frame.strip_prefix(r#"{"task":"#).and_then(|rest| rest.strip_suffix('}')).unwrap();
    serde_json::from_str::<History<'_>>(task).unwrap().history[0].get().to_owned()
}

fn frame(task: &TaskId, context: &ContextId, entry: &Entry, output: &OutputModes) -> Option<String> {
    encode::stream_entry(task, context, entry, View::default(), output).map(|frame| text(&frame))
}

/// The JSON that the official types write after they have read ours.
fn through<T: DeserializeOwned + Serialize>(json: &str) -> String {
    // The official types refuse an integer that a double cannot hold exactly, but accept the same number written as a double.
    let readable = numbers(serde_json::from_str(json).unwrap(), |number| {
        let is_exact = number.as_i64().is_some_and(|number| number.unsigned_abs() < 1 << 53);
        if is_exact { Value::from(number) } else { Value::from(number.as_f64()) }
    });
    let value: T = serde_json::from_value(readable).unwrap_or_else(|error| panic!("{error}: {json}"));
    serde_json::to_string(&value).unwrap()
}

/// The value of a JSON text with all numbers as doubles, because protobuf's `Struct` has no other numbers.
fn loosely(json: &str) -> Value {
    numbers(serde_json::from_str(json).unwrap(), |number| Value::from(number.as_f64()))
}

fn numbers(value: Value, change: fn(Number) -> Value) -> Value {
    match value {
        Value::Number(number) => change(number),
        Value::Array(items) => items.into_iter().map(|item| numbers(item, change)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(key, value)| (key, numbers(value, change))).collect()
        }
        other => other,
    }
}

/// Removes `"data": null`, which the official types read as no content, although it is a value in ProtoJSON.
fn without_null_data(mut task: Task) -> Task {
    task.status.message.iter_mut().chain(&mut task.history).for_each(without_null_data_in_message);
    task.artifacts.iter_mut().for_each(|artifact| without_null_data_in_parts(&mut artifact.parts));
    task
}

fn without_null_data_in_event(event: &mut TaskEvent) {
    match event {
        TaskEvent::Submitted { message, .. } => without_null_data_in_message(message),
        TaskEvent::Status(update) => update.status.message.iter_mut().for_each(without_null_data_in_message),
        TaskEvent::Artifact(update) => without_null_data_in_parts(&mut update.artifact.parts),
    }
}

fn without_null_data_in_message(message: &mut Message) {
    without_null_data_in_parts(&mut message.parts);
}

fn without_null_data_in_parts(parts: &mut [Part]) {
    for part in parts {
        if matches!(&part.content, PartContent::Data(data) if data.get() == "null") {
            part.content = PartContent::Text(String::new());
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
