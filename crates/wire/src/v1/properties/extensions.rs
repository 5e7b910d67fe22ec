//! Tests that an extension changes nothing except its own additions.

use bytes::Bytes;
use longshore_model::{Entry, Epoch, EventId, OutputModes, Seq, Task, TaskEvent};
use proptest::prelude::*;
use serde_json::Value;

use super::text;
use crate::extension::{Activated, Extension};
use crate::testing::arbitrary;
use crate::v1::encode::{self, Exposure, Gap, View};

proptest! {
    #[test]
    fn clients_without_extensions_see_no_notes(
        (task, noted_task) in arbitrary::noted_task(), (entry, noted_entry) in arbitrary::noted_entry(), gap in gap(),
    ) {
        let view = View::default();
        prop_assert_eq!(responses(&noted_task, &noted_entry, view, gap), responses(&task, &entry, view, gap));
    }

    #[test]
    fn apart_from_the_notes_all_clients_see_the_same(
        (_, task) in arbitrary::noted_task(), (_, entry) in arbitrary::noted_entry(), activated in activated(), gap in gap(),
    ) {
        let with_notes = responses(&task, &entry, View { activated, ..View::default() }, gap);
        let without = responses(&task, &entry, View::default(), gap);
        for (with_notes, without) in with_notes.iter().zip(without) {
            let (with_notes, without) = (text(with_notes), text(&without));
            prop_assert!(!with_notes.contains(['\n', '\r']), "{}", with_notes);
            let with_notes: Value = serde_json::from_str(&with_notes).expect("JSON");
            let without: Value = serde_json::from_str(&without).expect("JSON");
            prop_assert_eq!(without_notes(with_notes), without_notes(without));
        }
    }

    #[test]
    fn frames_of_the_same_form_are_equal(
        (_, mut entry) in arbitrary::noted_entry(), one in view(), other in view(), task in arbitrary::task_id(),
        context in arbitrary::context_id(), output in arbitrary::output_modes(), repeats in any::<bool>(),
    ) {
        if let TaskEvent::Status(update) = &mut entry.event {
            update.repeats = repeats;
        }
        let forms = [one, other].map(|view| encode::frame_form(&entry.event, view));
        let frames = |output: &OutputModes| [one, other].map(|view| encode::stream_entry(&task, &context, &entry, view, output));
        let whole = frames(&OutputModes::default());
        for (form, frame) in forms.iter().zip(&whole) {
            prop_assert_eq!(*form < encode::HIDDEN, frame.is_some(), "{}", form);
        }
        prop_assert_eq!(forms[0] == forms[1], whole[0] == whole[1]);
        // With restricted output modes, even frames of different forms may be equal.
        let part = frames(&output);
        prop_assert!(forms[0] != forms[1] || part[0] == part[1]);
    }
}

fn gap() -> impl Strategy<Value = Option<Gap>> {
    let gap = Gap {
        requested: EventId::new(Seq(1), Epoch(2)),
        first: Seq(3),
        head: EventId::new(Seq(5), Epoch(4)),
    };
    any::<bool>().prop_map(move |has_gap| has_gap.then_some(gap))
}

/// A task and an event in all responses of 1.0.
fn responses(task: &Task, entry: &Entry, view: View, gap: Option<Gap>) -> [Bytes; 4] {
    [
        encode::task(task, view),
        encode::stream_task(task, view, gap),
        encode::list_response(std::slice::from_ref(task), view, "", 1, 1),
        encode::stream_entry(&task.id, &task.context_id, entry, view, &OutputModes::default()).unwrap(),
    ]
}

fn activated() -> impl Strategy<Value = Activated> {
    let extensions = vec![
        Extension::SessionBinding,
        Extension::StreamHints,
        Extension::InteractiveInterrupt,
        Extension::InterruptRecovery,
        Extension::ThinkingExposure,
        Extension::ArtifactMetadata,
    ];
    let count = 0..=extensions.len();
    proptest::sample::subsequence(extensions, count).prop_map(|some| some.into_iter().collect())
}

fn view() -> impl Strategy<Value = View> {
    let history_length = prop_oneof![Just(None), Just(Some(0)), Just(Some(1))];
    let exposure =
        any::<(bool, bool)>().prop_map(|(raw_thinking, tool_trace)| Exposure { raw_thinking, tool_trace });
    (history_length, activated(), any::<bool>(), exposure).prop_map(
        |(history_length, activated, artifacts, exposure)| View {
            history_length,
            artifacts,
            activated,
            exposure,
        },
    )
}

/// Removes `metadata.shared` and `metadata.iac_code`, and then empty metadata.
fn without_notes(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(without_notes).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().filter_map(|(key, value)| {
                let mut value = without_notes(value);
                if key == "metadata"
                    && let Some(metadata) = value.as_object_mut()
                {
                    metadata.remove("shared");
                    metadata.remove("iac_code");
                    if metadata.is_empty() {
                        return None;
                    }
                }
                Some((key, value))
            });
            fields.collect()
        }
        other => other,
    }
}
