//! Tests that in all output modes, responses are valid A2A and contain only what the caller accepts.

use a2a_pb::protojson;
use longshore_model::{OutputModes, Task, TaskOptions};
use proptest::prelude::*;
use serde_json::Value;

use super::{frame, loosely, text, through, without_null_data, without_null_data_in_event};
use crate::testing::arbitrary;
use crate::v1::decode::{self, StreamEvent};
use crate::v1::encode::{self, View};
use crate::v1::output::{Fate, fate};

proptest! {
    #[test]
    fn the_official_types_agree_on_tasks_in_any_output_modes(
        task in arbitrary::task(), output in arbitrary::output_modes(),
    ) {
        let task = in_modes(without_null_data(task), &output);
        let ours = text(&encode::task(&task, View::default()));
        let back = decode::task(&through::<protojson::Task>(&ours)).unwrap();
        prop_assert_eq!(&back.options.output, &output);
        prop_assert_eq!(loosely(&text(&encode::task(&back, View::default()))), loosely(&ours));

        let page = text(&encode::list_response(std::slice::from_ref(&task), View::default(), "n", 1, 1));
        let back = decode::task_page(&through::<protojson::ListTasksResponse>(&page)).unwrap();
        prop_assert_eq!(loosely(&text(&encode::list_response(&back.tasks, View::default(), "n", 1, 1))), loosely(&page));
    }

    #[test]
    fn the_official_types_agree_on_stream_events_in_any_output_modes(
        task in arbitrary::task_id(), context in arbitrary::context_id(), mut entry in arbitrary::entry(),
        output in arbitrary::output_modes(),
    ) {
        without_null_data_in_event(&mut entry.event);
        if let Some(ours) = frame(&task, &context, &entry, &output) {
            let again = match decode::stream_event(&through::<protojson::StreamResponse>(&ours)).unwrap() {
                // The message may have no part left, so this may not be a valid first event of a log.
                StreamEvent::Task(task) => text(&encode::stream_task(&task, View::default(), None)),
                other => {
                    entry.event = other.into_event().unwrap();
                    frame(&task, &context, &entry, &output).unwrap()
                }
            };
            prop_assert_eq!(loosely(&again), loosely(&ours));
        }
    }

    #[test]
    fn parts_that_are_not_accepted_are_not_sent(task in arbitrary::task(), output in arbitrary::output_modes()) {
        let sent = decode::task(&text(&encode::task(&in_modes(task.clone(), &output), View::default()))).unwrap();
        let wanted = |parts: &[longshore_model::Part]| parts.iter().filter(|part| fate(part, &output) != Fate::Dropped).count();
        let seen: Vec<usize> = sent.artifacts.iter().map(|artifact| artifact.parts.len()).collect();
        let expected: Vec<usize> =
            task.artifacts.iter().map(|artifact| wanted(&artifact.parts)).filter(|count| *count > 0).collect();
        prop_assert_eq!(seen, expected);
        for part in sent.artifacts.iter().flat_map(|artifact| &artifact.parts) {
            prop_assert_eq!(fate(part, &output), Fate::Kept, "{:?}", part);
        }
        let seen: Vec<usize> = sent.history.iter().map(|message| message.parts.len()).collect();
        let expected: Vec<usize> =
            task.history.iter().map(|message| wanted(&message.parts)).filter(|count| *count > 0).collect();
        prop_assert_eq!(seen, expected);
        let is_left = task.status.message.is_some_and(|message| wanted(&message.parts) > 0);
        prop_assert_eq!(sent.status.message.is_some(), is_left);
    }

    #[test]
    fn data_keeps_its_value_as_text(value in arbitrary::value()) {
        let written = crate::v1::output::data_as_text(&value.to_string());
        prop_assert!(written.is_ascii(), "{}", written);
        prop_assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value);
    }
}

fn in_modes(task: Task, output: &OutputModes) -> Task {
    Task { options: Box::new(TaskOptions { output: output.clone(), ..TaskOptions::default() }), ..task }
}
