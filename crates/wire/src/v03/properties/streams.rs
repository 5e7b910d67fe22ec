//! Tests that every reader of a stream ends with the same task, wherever it started, and that readers can share frames.

use std::collections::BTreeMap;

use longshore_model::{Artifact, ArtifactUpdate, Part, PartContent};

use super::*;
use crate::extension::Exposure;

proptest! {
    #[test]
    fn a_stream_folds_to_the_task(
        events in proptest::collection::vec(update(), 1..12), dialect in dialect(), view in view(), start in 0..12_usize,
        is_resumed in any::<bool>(),
    ) {
        let mut task = begun();
        let start = start.min(events.len());
        events[..start].iter().for_each(|event| task.apply(event));
        // The artifacts that the reader has received, by id.
        let mut held = artifacts(&task, view, dialect);
        let mut stream = if is_resumed {
            Stream::resumed(view, dialect)
        } else {
            Stream::from_snapshot(&task, view, dialect)
        };
        for (index, event) in events[start..].iter().enumerate() {
            let entry = Entry { seq: Seq(u64::try_from(index).unwrap()), epoch: Epoch(1), event: event.clone() };
            if let Some(frame) = frame_of(&mut stream, &task, &entry) {
                let StreamEvent::Artifact { update, .. } = decode::stream_event(dialect, &frame).unwrap() else {
                    panic!("{frame}")
                };
                hold(&mut held, update);
            }
            task.apply(event);
            prop_assert_eq!(contents(&held), contents(&artifacts(&task, view, dialect)), "after {:?}", event);
        }
    }

    #[test]
    fn frames_of_the_same_form_are_equal(
        events in proptest::collection::vec(arbitrary::noted_entry(), 1..8), one in view(), other in view(),
        dialects in (dialect(), dialect()), output in arbitrary::output_modes(),
    ) {
        let (mut task, mut streams) =
            (begun(), [Stream::from_start(one, dialects.0), Stream::from_start(other, dialects.1)]);
        for (_, entry) in events {
            let frames = streams.each_mut().map(|stream| match stream.step(&entry.event, &output) {
                Step::Frame(frame) => Some((frame.form(), frame.encode(&task.id, &task.context_id, &entry, &output))),
                Step::Hidden => None,
                Step::NeedsTask => {
                    stream.encode_with_task(&mut task.clone(), &entry);
                    None
                }
            });
            for (form, _) in frames.iter().flatten() {
                prop_assert!(encode::FORMS.contains(form), "{}", form);
            }
            if let [Some((one, ours)), Some((other, theirs))] = &frames {
                prop_assert!(one != other || ours == theirs);
            }
            task.apply(&entry.event);
        }
    }
}

fn frame_of(stream: &mut Stream, before: &Task, entry: &Entry) -> Option<String> {
    let anything = OutputModes::default();
    let bytes = match stream.step(&entry.event, &anything) {
        Step::Hidden => None,
        Step::Frame(frame) => Some(frame.encode(&before.id, &before.context_id, entry, &anything)),
        Step::NeedsTask => {
            let (mut updated, mut after) = (before.clone(), before.clone());
            let bytes = stream.encode_with_task(&mut updated, entry).frame;
            after.apply(&entry.event);
            assert_eq!(updated, after, "the event is applied once");
            bytes
        }
    };
    bytes.map(|bytes| text(&bytes))
}

fn artifacts(task: &Task, view: View, dialect: Dialect) -> Vec<Artifact> {
    decode::task(dialect, &text(&encode::task(task, view, dialect))).unwrap().artifacts
}

/// Applies an update as 0.3 clients do: appends the parts, or replaces the artifact. A client drops an append to an artifact that
/// it does not have.
fn hold(held: &mut Vec<Artifact>, update: ArtifactUpdate) {
    match held.iter_mut().find(|artifact| artifact.id == update.artifact.id) {
        Some(artifact) if update.append => artifact.parts.extend(update.artifact.parts),
        Some(artifact) => *artifact = update.artifact,
        None => {
            assert!(!update.append, "the reader has no {} to add to", update.artifact.id);
            held.push(update.artifact);
        }
    }
}

/// The content of the artifacts, block by block: the text in its order, and the last state of each tool, each under the kind that
/// its parts name. Only the order of the blocks may differ: a stream has them in the order of the updates, a task in the order in
/// which they began.
fn contents(artifacts: &[Artifact]) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for part in artifacts.iter().flat_map(|artifact| &artifact.parts) {
        let kind = losses::kind_of(part);
        match &part.content {
            // The texts of different blocks consist of different letters.
            PartContent::Text(text) => {
                for letter in text.chars() {
                    found.entry(format!("{kind} {}", block_of(letter))).or_default().push(letter);
                }
            }
            PartContent::Data(data) => {
                let state = data.to_value();
                found.insert(format!("{kind} {}", state["call"]), state["state"].to_string());
            }
            PartContent::Url(url) => {
                found.insert(format!("file {url}"), String::new());
            }
            PartContent::Raw(_) => {}
        }
    }
    found
}

fn block_of(letter: char) -> &'static str {
    match letter {
        'a'..='z' => "a",
        'A'..='Z' => "b",
        _ => "r",
    }
}

/// A typical update of the gateway: there are few blocks, each of one kind, so that the same blocks are updated repeatedly.
fn update() -> impl Strategy<Value = TaskEvent> {
    let kinds = vec![
        ("a", BlockKind::Text),
        ("b", BlockKind::Text),
        ("r", BlockKind::Reasoning),
        ("t", BlockKind::ToolCall),
        ("u", BlockKind::ToolCall),
        ("f", BlockKind::File),
    ];
    let texts = ("[a-z]{0,2}", "[A-Z]{0,2}", "[0-9]{0,2}");
    (prop::sample::select(kinds), texts, any::<bool>(), any::<bool>(), 0..99_u8).prop_map(
        |((id, kind), (small, large, digits), append, last_chunk, state)| {
            let part = match kind {
                BlockKind::Text if id == "a" => Part::text(small),
                BlockKind::Text => Part::text(large),
                BlockKind::Reasoning => Part::text(digits),
                BlockKind::ToolCall => Part::data(longshore_model::Json::from_value(
                    &serde_json::json!({ "call": id, "state": state }),
                )),
                BlockKind::File => Part::new(PartContent::Url("/artifacts/1".to_owned())),
            };
            let artifact = Artifact {
                id: ArtifactId::parse(id).unwrap(),
                kind,
                source_message: None,
                name: None,
                description: None,
                parts: vec![part],
                extensions: Vec::new(),
                metadata: None,
            };
            // A file comes once and complete.
            let append = append && kind != BlockKind::File;
            TaskEvent::Artifact(ArtifactUpdate { artifact, append, last_chunk, metadata: None })
        },
    )
}

fn begun() -> Task {
    let message =
        Message::new(longshore_model::MessageId::parse("m").unwrap(), Role::User, vec![Part::text("hi")]);
    let context = ContextId::parse("c").unwrap();
    Task::begin(TaskId::parse("t").unwrap(), &TaskEvent::submitted(context, message, Timestamp(1))).unwrap()
}

fn view() -> impl Strategy<Value = View> {
    let history_length = prop_oneof![Just(None), Just(Some(0))];
    (history_length, any::<bool>(), any::<bool>()).prop_map(|(history_length, raw_thinking, tool_trace)| {
        View { history_length, exposure: Exposure { raw_thinking, tool_trace }, ..View::default() }
    })
}
