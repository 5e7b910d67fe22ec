//! The writers that both versions share. They write from the model into bytes without intermediate copies.
//!
//! Required fields are always written, and optional fields only if they have a value.

pub(crate) mod gap;
pub(crate) mod iac_code;
pub(crate) mod merge;
pub(crate) mod negotiation;
pub(crate) mod push;
pub(crate) mod shared;

use longshore_model::{
    Artifact, BlockKind, ContextId, EventId, Message, Metadata, OutputModes, Parent, Part, PartContent, Seq,
    Task, TaskEvent, TaskId, TaskState, TaskStatus, Timestamp,
};

use self::iac_code::Details;
use self::shared::Shared;
use crate::base64;
use crate::extension::{Activated, Exposure};
use crate::json::ObjectWriter;
use crate::output::{Fate, fate, leaves_any};
use crate::spelling::{PartView, Spelling};
use crate::time;

/// The view of a task in a response: the parts that the caller requested and may see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// The number of newest messages in the response. `None`: all messages. 0: no `history` key.
    pub history_length: Option<u32>,
    /// Whether the response contains the artifacts. If not, there is no `artifacts` key.
    pub artifacts: bool,
    /// The extensions whose fields are in `metadata.shared` and `metadata.iac_code`. Without extensions there are no such fields.
    pub activated: Activated,
    /// The internals of the agent that the caller may see. Blocks with other internals are left out.
    pub exposure: Exposure,
}

impl Default for View {
    fn default() -> Self {
        Self {
            history_length: None,
            artifacts: true,
            activated: Activated::NONE,
            exposure: Exposure::default(),
        }
    }
}

/// The events that a reader requested but that the log no longer has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The last event that the reader has received, according to its request.
    pub requested: EventId,
    /// The first event that the log still has.
    pub first: Seq,
    /// The last event that the snapshot includes.
    pub head: EventId,
}

/// Writes the ids and the status of a task into an open object.
pub(crate) fn write_task_head(object: &mut ObjectWriter<'_>, task: &Task, spelling: &Spelling) {
    write_names(object, ["id", "contextId"], &task.id, &task.context_id);
    object.object("status", |status| write_status(status, &task.status, &task.options.output, spelling));
}

pub(crate) fn write_task_tail(
    object: &mut ObjectWriter<'_>,
    task: &Task,
    view: View,
    gap: Option<Gap>,
    spelling: &Spelling,
) {
    let output = &task.options.output;
    let history = seen_history(task, view).iter().filter(|message| leaves_any(&message.parts, output));
    object.some_array("history", history, |out, message| write_message(out, message, output, spelling));
    let shared = Shared::of_task(task, view.activated);
    let metadata = negotiation::annotated(task.metadata.as_ref(), output);
    let metadata = Details::of_task(task, view.activated).added_to(metadata);
    match gap {
        Some(gap) => shared.write(object, Some(&gap::annotated(metadata.as_deref(), gap))),
        None => shared.write(object, metadata.as_deref()),
    }
}

/// Writes the task that the first event creates.
pub(crate) fn write_submitted(
    object: &mut ObjectWriter<'_>,
    task: &TaskId,
    event: &TaskEvent,
    view: View,
    output: &OutputModes,
    spelling: &Spelling,
) {
    let TaskEvent::Submitted { context_id, message, at, parent, options: _ } = event else { return };
    write_names(object, ["id", "contextId"], task, context_id);
    object.object("status", |status| {
        write_state(status, TaskState::Submitted, *at, None, output, spelling);
    });
    if !hides_first_message(parent.as_deref(), view) && leaves_any(&message.parts, output) {
        object.array("history", [message], |out, message| write_message(out, message, output, spelling));
    }
    let shared = Shared::of_submitted(parent.as_deref(), view.activated);
    shared.write(object, negotiation::annotated(None, output).as_deref());
}

/// Writes a page of a list. All four fields are always present; `nextPageToken` is "" on the last page.
pub(crate) fn write_page(
    out: &mut Vec<u8>,
    tasks: &[Task],
    next_page_token: &str,
    page_size: u32,
    total: u64,
    write: impl FnMut(&mut Vec<u8>, &Task),
) {
    let mut page = ObjectWriter::begin(out);
    page.array("tasks", tasks, write);
    page.text("nextPageToken", next_page_token);
    page.number("pageSize", page_size);
    // The field is an int32 in the protocol.
    page.number("totalSize", i32::try_from(total).unwrap_or(i32::MAX));
    page.end();
}

pub(crate) fn write_names(
    object: &mut ObjectWriter<'_>,
    keys: [&str; 2],
    task: &TaskId,
    context: &ContextId,
) {
    object.text(keys[0], task.as_str());
    object.text(keys[1], context.as_str());
}

pub(crate) fn seen_history(task: &Task, view: View) -> &[Message] {
    if hides_prompt(task.parent.as_deref(), view.exposure) {
        return &[];
    }
    let limit = view.history_length.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    &task.history[task.history.len().saturating_sub(limit)..]
}

/// Whether a view hides the message that created a task.
pub(crate) fn hides_first_message(parent: Option<&Parent>, view: View) -> bool {
    view.history_length == Some(0) || hides_prompt(parent, view.exposure)
}

/// Whether the first message is hidden because it is the prompt of a sub-agent. Such a prompt is the input of a tool call in the
/// parent task, so it is hidden together with tool calls.
fn hides_prompt(parent: Option<&Parent>, exposure: Exposure) -> bool {
    parent.is_some() && !exposure.tool_trace
}

pub(crate) fn seen_artifacts(task: &Task, view: View) -> impl Iterator<Item = &Artifact> {
    task.artifacts.iter().filter(move |artifact| is_seen(artifact, view.exposure, &task.options.output))
}

pub(crate) fn is_seen(artifact: &Artifact, exposure: Exposure, output: &OutputModes) -> bool {
    is_exposed(artifact.kind, exposure) && leaves_any(&artifact.parts, output)
}

pub(crate) fn is_exposed(kind: BlockKind, exposure: Exposure) -> bool {
    match kind {
        BlockKind::Reasoning => exposure.raw_thinking,
        BlockKind::ToolCall => exposure.tool_trace,
        BlockKind::Text | BlockKind::File => true,
    }
}

pub(crate) fn write_status(
    object: &mut ObjectWriter<'_>,
    status: &TaskStatus,
    output: &OutputModes,
    spelling: &Spelling,
) {
    write_state(object, status.state, status.at, status.message.as_ref(), output, spelling);
}

pub(crate) fn write_state(
    object: &mut ObjectWriter<'_>,
    state: TaskState,
    at: Timestamp,
    message: Option<&Message>,
    output: &OutputModes,
    spelling: &Spelling,
) {
    object.text("state", (spelling.state_name)(state));
    if let Some(message) = message.filter(|message| leaves_any(&message.parts, output)) {
        write_message(object.key("message"), message, output, spelling);
    }
    let out = object.key("timestamp");
    out.push(b'"');
    time::write(out, at);
    out.push(b'"');
}

pub(crate) fn write_message(out: &mut Vec<u8>, message: &Message, output: &OutputModes, spelling: &Spelling) {
    let mut object = ObjectWriter::begin(out);
    write_kind(&mut object, "message", spelling);
    object.text("messageId", message.id.as_str());
    object.some_text("contextId", message.context_id.as_ref().map(ContextId::as_str));
    object.some_text("taskId", message.task_id.as_ref().map(TaskId::as_str));
    object.text("role", (spelling.role_name)(message.role));
    write_parts(&mut object, spelling.parts[0], &message.parts, output, spelling);
    write_metadata(&mut object, message.metadata.as_ref());
    write_extensions(&mut object, &message.extensions);
    if spelling.has_references && !message.reference_task_ids.is_empty() {
        object.texts("referenceTaskIds", message.reference_task_ids.iter().map(TaskId::as_str));
    }
    object.end();
}

pub(crate) fn write_artifact(
    out: &mut Vec<u8>,
    artifact: &Artifact,
    shared: &Shared<'_>,
    output: &OutputModes,
    spelling: &Spelling,
) {
    let mut object = ObjectWriter::begin(out);
    object.text("artifactId", artifact.id.as_str());
    object.some_text("name", artifact.name.as_deref());
    object.some_text("description", artifact.description.as_deref());
    write_parts(&mut object, "parts", &artifact.parts, output, spelling);
    shared.write(&mut object, artifact.metadata.as_ref().map(Metadata::get));
    write_extensions(&mut object, &artifact.extensions);
    object.end();
}

pub(crate) fn write_parts(
    object: &mut ObjectWriter<'_>,
    key: &str,
    parts: &[Part],
    output: &OutputModes,
    spelling: &Spelling,
) {
    let seen = seen_parts(parts, output);
    object.array(key, seen, |out, (part, as_text)| {
        (spelling.write_part)(out, PartView { part, as_text, block: None });
    });
}

/// The parts that the caller accepts, and whether each is written as text.
pub(crate) fn seen_parts<'a>(
    parts: &'a [Part],
    output: &'a OutputModes,
) -> impl Iterator<Item = (&'a Part, bool)> {
    let fates = parts.iter().map(move |part| (part, fate(part, output)));
    fates.filter(|(_, fate)| *fate != Fate::Dropped).map(|(part, fate)| (part, fate == Fate::AsText))
}

/// Writes bytes as a string in base64.
pub(crate) fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    base64::write(out, bytes);
    out.push(b'"');
}

/// Writes the kind of an object, in dialects that have this field.
pub(crate) fn write_kind(object: &mut ObjectWriter<'_>, kind: &str, spelling: &Spelling) {
    if spelling.has_kinds {
        object.text("kind", kind);
    }
}

pub(crate) fn write_metadata(object: &mut ObjectWriter<'_>, metadata: Option<&Metadata>) {
    if let Some(metadata) = metadata {
        object.json("metadata", metadata.json());
    }
}

pub(crate) fn write_extensions(object: &mut ObjectWriter<'_>, extensions: &[String]) {
    if !extensions.is_empty() {
        object.texts("extensions", extensions);
    }
}

/// The approximate size of an encoded task in bytes. Most of it is text. A buffer that is created with this capacity seldom has to
/// grow while the task is written, which would copy the buffer.
pub(crate) fn size_of_task(task: &Task, view: View) -> usize {
    let parts = |parts: &[Part]| parts.iter().map(size_of_part).sum::<usize>();
    let history = seen_history(task, view).iter().map(|message| 160 + parts(&message.parts)).sum::<usize>();
    let artifacts = seen_artifacts(task, view).map(|artifact| 120 + parts(&artifact.parts)).sum::<usize>();
    256 + history + if view.artifacts { artifacts } else { 0 }
}

pub(crate) fn size_of_part(part: &Part) -> usize {
    let content = match &part.content {
        PartContent::Text(text) | PartContent::Url(text) => text.len() + text.len() / 16,
        PartContent::Raw(bytes) => bytes.len().div_ceil(3) * 4,
        PartContent::Data(data) => data.get().len(),
    };
    32 + content
}
