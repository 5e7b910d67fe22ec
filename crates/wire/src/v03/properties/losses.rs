//! The list of everything that 0.3 cannot express. Everything else can be read back.

use std::collections::BTreeMap;

use longshore_model::{Artifact, Json, Metadata, Part, PartContent};

use super::*;

/// A loss: the dialects in which it occurs, and its effect on a task.
struct Loss {
    dialects: &'static [Dialect],
    apply: fn(&mut Task),
}

/// The losses in the order in which they are applied.
const LOSSES: [(&str, Loss); 7] = [
    // This loss only concerns the stream, so it has no effect on a task.
    ("no chunk of the blocks is the last", Loss { dialects: &Dialect::ALL, apply: |_| {} }),
    ("data is an object", Loss { dialects: &Dialect::ALL, apply: |task| each_part(task, wrap_data) }),
    (
        "only a file has a media type and a name",
        Loss { dialects: &Dialect::ALL, apply: |task| each_part(task, forget_type) },
    ),
    ("a tool call is its last state", Loss { dialects: &Dialect::ALL, apply: last_states }),
    ("what is withdrawn is gone", Loss { dialects: &Dialect::ALL, apply: forget_withdrawn }),
    ("all blocks are one artifact", Loss { dialects: &Dialect::ALL, apply: one_artifact }),
    ("a message names no other tasks", Loss { dialects: &[Dialect::Rest], apply: forget_references }),
];

/// Adds the agent's answer to the status of a completed task, as the encoder does except in a page.
pub(super) fn answered(task: &Task) -> Task {
    let mut task = task.clone();
    let text_blocks: Vec<&Artifact> =
        task.artifacts.iter().filter(|artifact| artifact.kind == BlockKind::Text).collect();
    let text: String =
        text_blocks.iter().flat_map(|block| &block.parts).filter_map(|part| part.as_text()).collect();
    let source = text_blocks.iter().rev().find_map(|block| block.source_message.clone());
    let has_answer = task.status.message.is_none() && !text.trim().is_empty();
    if task.status.state == longshore_model::TaskState::Completed && has_answer {
        let name = format!("{}:{}:assistant", task.id, task.context_id);
        let id = source.unwrap_or_else(|| longshore_model::MessageId::parse(&name).unwrap());
        let mut message = Message::new(id, Role::Agent, vec![Part::text(text.trim())]);
        (message.task_id, message.context_id) = (Some(task.id.clone()), Some(task.context_id.clone()));
        task.status.message = Some(message);
    }
    task
}

/// The part of a task that 0.3 can express.
pub(super) fn lossy(task: &Task, dialect: Dialect) -> Task {
    let mut task = task.clone();
    for (_, loss) in LOSSES.iter().filter(|(_, loss)| loss.dialects.contains(&dialect)) {
        (loss.apply)(&mut task);
    }
    plain(task)
}

pub(super) fn lossy_message(message: &Message, dialect: Dialect) -> Message {
    let context = ContextId::parse("c").unwrap();
    let first = TaskEvent::submitted(context, message.clone(), Timestamp(0));
    let task = Task::begin(TaskId::parse("t").unwrap(), &first).unwrap();
    lossy(&task, dialect).history.remove(0)
}

/// A task in which the metadata of parts is replaced by plain values, because the text around the gateway's additions may change. A
/// part of the stream without a kind belongs to the answer, and gets that kind here.
pub(super) fn plain(mut task: Task) -> Task {
    let stream = stream_of(&task);
    for artifact in &mut task.artifacts {
        for part in &mut artifact.parts {
            let kind = kind_of(part);
            part.metadata = plain_metadata(part.metadata.take());
            if artifact.id == stream {
                set_kind(part, &kind);
            }
        }
    }
    task
}

fn stream_of(task: &Task) -> ArtifactId {
    ArtifactId::parse(&format!("{}:stream", task.id)).unwrap()
}

/// The kind of block that a part names.
pub(super) fn kind_of(part: &Part) -> String {
    let metadata = part.metadata.as_ref().map_or("null", Metadata::get);
    serde_json::from_str::<Value>(metadata).unwrap()["shared"]["stream"]["block_type"]
        .as_str()
        .unwrap_or("text")
        .to_owned()
}

fn set_kind(part: &mut Part, kind: &str) {
    let mut fields: BTreeMap<String, Value> = part
        .metadata
        .take()
        .map(|metadata| serde_json::from_str(metadata.get()).unwrap())
        .unwrap_or_default();
    let shared = fields.entry("shared".to_owned()).or_insert_with(|| serde_json::json!({}));
    if !shared.is_object() {
        *shared = serde_json::json!({});
    }
    shared["stream"] = serde_json::json!({ "block_type": kind });
    part.metadata = Some(Metadata::try_from(Json::from_value(&fields)).unwrap());
}

pub(super) fn plain_metadata(metadata: Option<Metadata>) -> Option<Metadata> {
    let mut fields: BTreeMap<String, Value> = serde_json::from_str(metadata?.get()).unwrap();
    if let Some(shared) = fields.get_mut("shared").and_then(Value::as_object_mut) {
        shared.remove("stream");
        if shared.is_empty() {
            fields.remove("shared");
        }
    }
    (!fields.is_empty()).then(|| Metadata::try_from(Json::from_value(&fields)).unwrap())
}

fn each_part(task: &mut Task, change: fn(&mut Part)) {
    let messages = task.status.message.iter_mut().chain(&mut task.history);
    messages.flat_map(|message| &mut message.parts).for_each(change);
    task.artifacts.iter_mut().flat_map(|artifact| &mut artifact.parts).for_each(change);
}

fn wrap_data(part: &mut Part) {
    if let PartContent::Data(data) = &mut part.content
        && !data.get().starts_with('{')
    {
        *data = Json::parse(&format!("{{\"value\":{}}}", data.get())).unwrap();
    }
}

fn forget_type(part: &mut Part) {
    if matches!(part.content, PartContent::Text(_) | PartContent::Data(_)) {
        (part.media_type, part.filename) = (None, None);
    }
}

fn last_states(task: &mut Task) {
    for call in task.artifacts.iter_mut().filter(|artifact| artifact.kind == BlockKind::ToolCall) {
        call.parts.retain(|part| part.as_text() != Some(""));
        call.parts.drain(..call.parts.len().saturating_sub(1));
    }
}

fn forget_withdrawn(task: &mut Task) {
    let blocks = task.artifacts.iter_mut().filter(|artifact| artifact.kind != BlockKind::File);
    blocks.for_each(|block| block.parts.retain(|part| part.as_text() != Some("")));
    task.artifacts.retain(|artifact| !artifact.parts.is_empty());
}

fn one_artifact(task: &mut Task) {
    let (files, blocks): (Vec<_>, Vec<_>) =
        task.artifacts.drain(..).partition(|artifact| artifact.kind == BlockKind::File);
    let parts: Vec<Part> = blocks.into_iter().flat_map(parts_with_kind).collect();
    if !parts.is_empty() {
        task.artifacts.push(Artifact {
            id: stream_of(task),
            kind: BlockKind::Text,
            source_message: None,
            name: Some("response".to_owned()),
            description: None,
            parts,
            extensions: Vec::new(),
            metadata: None,
        });
    }
    // The format has no field that marks an artifact as a file.
    task.artifacts.extend(files.into_iter().map(|file| Artifact { kind: BlockKind::Text, ..file }));
}

fn parts_with_kind(mut block: Artifact) -> Vec<Part> {
    block.parts.iter_mut().for_each(|part| set_kind(part, block.kind.as_str()));
    block.parts
}

fn forget_references(task: &mut Task) {
    let messages = task.status.message.iter_mut().chain(&mut task.history);
    messages.for_each(|message| message.reference_task_ids.clear());
}
