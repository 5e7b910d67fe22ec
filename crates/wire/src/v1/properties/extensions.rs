//! What an extension adds is all that it changes.

use longshore_model::{Epoch, EventId, OutputModes, Seq};
use proptest::prelude::*;
use serde_json::Value;

use super::text;
use crate::arbitrary;
use crate::extension::{Activated, Extension};
use crate::v1::encode::{self, Exposure, Gap, View};

proptest! {
    #[test]
    fn without_the_notes_all_readers_see_the_same(
        (_, task) in arbitrary::noted_task(), (_, entry) in arbitrary::noted_entry(), activated in activated(),
        has_gap in any::<bool>(),
    ) {
        let (deaf, told) = (View::default(), View { activated, ..View::default() });
        let gap = has_gap.then_some(Gap { requested: EventId::new(Seq(1), Epoch(2)), first: Seq(3), head: EventId::new(Seq(5), Epoch(4)) });
        let answers = |view| [
            encode::task(&task, view),
            encode::stream_task(&task, view, gap),
            encode::list_response(std::slice::from_ref(&task), view, "", 1, 1),
            encode::stream_entry(&task.id, &task.context_id, &entry, view, &OutputModes::default()).unwrap(),
        ];
        for (told, deaf) in answers(told).iter().zip(answers(deaf)) {
            let (told, deaf) = (text(told), text(&deaf));
            prop_assert!(!told.contains(['\n', '\r']), "{}", told);
            let told: Value = serde_json::from_str(&told).expect("JSON");
            let deaf: Value = serde_json::from_str(&deaf).expect("JSON");
            prop_assert_eq!(without_notes(told), without_notes(deaf));
        }
    }

    #[test]
    fn readers_with_the_same_spelling_share_their_bytes(
        (_, entry) in arbitrary::noted_entry(), one in view(), other in view(), task in arbitrary::task_id(),
        context in arbitrary::context_id(), output in arbitrary::output_modes(),
    ) {
        let spellings = [one, other].map(|view| encode::spelling(&entry.event, view));
        let frames = |output: &OutputModes| [one, other].map(|view| encode::stream_entry(&task, &context, &entry, view, output));
        let whole = frames(&OutputModes::default());
        for (spelling, frame) in spellings.iter().zip(&whole) {
            prop_assert_eq!(*spelling < 8, frame.is_some(), "{}", spelling);
        }
        prop_assert_eq!(spellings[0] == spellings[1], whole[0] == whole[1]);
        // Of a task that is told in part, less is left to differ in.
        let part = frames(&output);
        prop_assert!(spellings[0] != spellings[1] || part[0] == part[1]);
    }
}

fn activated() -> impl Strategy<Value = Activated> {
    let extensions = vec![
        Extension::SessionBinding,
        Extension::StreamHints,
        Extension::InteractiveInterrupt,
        Extension::InterruptRecovery,
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

/// Metadata that held nothing else is gone with them.
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
