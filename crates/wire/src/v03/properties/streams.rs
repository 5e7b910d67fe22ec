//! Whoever reads a stream ends with the task that others get, wherever it began, and readers can share their frames.

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
        // What the reader has: the artifacts that it was told of, by name.
        let mut held = artifacts(&task, view, dialect);
        let mut stream = if is_resumed {
            Stream::resumed(view, dialect)
        } else {
            Stream::from_snapshot(&task, view, dialect)
        };
        for (index, event) in events[start..].iter().enumerate() {
            let entry = Entry { seq: Seq(u64::try_from(index).unwrap()), epoch: Epoch(1), event: event.clone() };
            if let Some(frame) = told(&mut stream, &task, &entry) {
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
    fn readers_with_the_same_form_share_their_bytes(
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
                    stream.recall(&mut task.clone(), &entry);
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

fn told(stream: &mut Stream, before: &Task, entry: &Entry) -> Option<String> {
    let anything = OutputModes::default();
    let bytes = match stream.step(&entry.event, &anything) {
        Step::Hidden => None,
        Step::Frame(frame) => Some(frame.encode(&before.id, &before.context_id, entry, &anything)),
        Step::NeedsTask => {
            let (mut recalled, mut after) = (before.clone(), before.clone());
            let bytes = stream.recall(&mut recalled, entry).frame;
            after.apply(&entry.event);
            assert_eq!(recalled, after, "the event is applied once");
            bytes
        }
    };
    bytes.map(|bytes| text(&bytes))
}

fn artifacts(task: &Task, view: View, dialect: Dialect) -> Vec<Artifact> {
    decode::task(dialect, &text(&encode::task(task, view, dialect))).unwrap().artifacts
}

/// As clients of 0.3 fold an update: add the parts, or replace the artifact. What is to be added to an artifact that a
/// client does not have, it drops.
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

/// What is in the artifacts, block by block: the text in its order, and of each tool the last state, each under the kind
/// that its parts tell. Only the order of blocks among each other may differ: it is that of the stream for the one, and of
/// their beginning for the other.
fn contents(artifacts: &[Artifact]) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for part in artifacts.iter().flat_map(|artifact| &artifact.parts) {
        let kind = losses::told_kind(part);
        match &part.content {
            // Each block has letters of its own.
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

/// An update as the gateway makes them: few blocks, each of one kind, so that they meet again.
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
                BlockKind::ToolCall => {
                    Part::data(longshore_model::Json::of(&serde_json::json!({ "call": id, "state": state })))
                }
                BlockKind::File => Part::of(PartContent::Url("/artifacts/1".to_owned())),
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
            // A file comes once and whole.
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
