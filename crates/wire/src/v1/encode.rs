//! Answers and stream events of 1.0: canonical ProtoJSON on one line.
//!
//! Required fields are always there, optional ones only when they say something. Values are written straight from
//! the model to bytes; nothing is copied on the way.

use bytes::Bytes;
use longshore_model::{
    Artifact, ArtifactUpdate, BlockKind, ContextId, Entry, Message, Metadata, OutputModes, Parent, Part,
    PartContent, Seq, StatusUpdate, Task, TaskEvent, TaskId, TaskState, TaskStatus, Timestamp,
};

use self::shared::{Place, Shared};
use super::names::{role_name, state_name};
use super::output::{Fate, data_as_text, fate, leaves_any};
use crate::extension::Activated;
use crate::json::ObjectWriter;
use crate::{base64, time};

mod gap;
mod merge;
mod negotiation;
mod shared;
#[cfg(test)]
mod tests;

pub use crate::extension::Exposure;

/// How much of a task the caller asked to see, and what it can make use of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// At most so many of the newest messages. `None`: all of them. 0: no `history` at all.
    pub history_length: Option<u32>,
    /// Without: no `artifacts` key, not even an empty one.
    pub artifacts: bool,
    /// What is told in `metadata.shared`. Nothing activated: nothing at all.
    pub activated: Activated,
    /// What it may see of the agent's inner life. Blocks that it may not see are not there for it.
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

/// Events that a reader asked for and the log no longer has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The last event that the reader says it saw.
    pub requested: Seq,
    /// The first event that is still there.
    pub first: Seq,
    /// The event that the snapshot stands at.
    pub head: Seq,
}

/// A bare task.
pub fn task(task: &Task, view: View) -> Bytes {
    let mut out = Vec::with_capacity(size_of_task(task, view));
    write_task(&mut out, task, view, None);
    out.into()
}

/// `{"task": …}`, the answer to `SendMessage`.
pub fn send_response(task: &Task, view: View) -> Bytes {
    wrapped_task(task, view, None)
}

/// The answer to `ListTasks`. All four fields are always there, `nextPageToken` as "" on the last page.
pub fn list_response(tasks: &[Task], view: View, next_page_token: &str, page_size: u32, total: u64) -> Bytes {
    let size = tasks.iter().map(|task| size_of_task(task, view)).sum::<usize>();
    let mut out = Vec::with_capacity(size + next_page_token.len() + 80);
    let mut page = ObjectWriter::begin(&mut out);
    page.array("tasks", tasks, |out, task| {
        let mut object = ObjectWriter::begin(out);
        write_task_head(&mut object, task);
        if view.artifacts {
            // Here an empty array is asked for: "included with its actual content, which may be an empty array".
            object.array("artifacts", seen_artifacts(task, view), |out, artifact| {
                write_block(out, artifact, task, view);
            });
        }
        write_task_tail(&mut object, task, view, None);
        object.end();
    });
    page.text("nextPageToken", next_page_token);
    page.number("pageSize", page_size);
    // An int32 on the wire.
    page.number("totalSize", i32::try_from(total).unwrap_or(i32::MAX));
    page.end();
    out.into()
}

/// One event of the log as one frame of a stream. `None`: this reader is not to see it. Of the view only the history of
/// the first event counts, which is of the one message that it is about, what is activated, and what is exposed.
pub fn stream_entry(
    task: &TaskId,
    context: &ContextId,
    entry: &Entry,
    view: View,
    output: &OutputModes,
) -> Option<Bytes> {
    if !is_shown(&entry.event, view, output) {
        return None;
    }
    let mut out = Vec::with_capacity(256);
    let mut frame = ObjectWriter::begin(&mut out);
    let place = Place { task, context, seq: entry.seq };
    match &entry.event {
        TaskEvent::Submitted { context_id, message, at, parent, terms: _ } => {
            frame.object("task", |object| {
                write_names(object, ["id", "contextId"], task, context_id);
                object.object("status", |status| {
                    write_state(status, TaskState::Submitted, *at, None, output);
                });
                let is_seen =
                    view.history_length != Some(0) && !hides_prompt(parent.as_deref(), view.exposure);
                if is_seen && leaves_any(&message.parts, output) {
                    object.array("history", [message], |out, message| write_message(out, message, output));
                }
                let shared = Shared::of_submitted(parent.as_deref(), view.activated);
                shared.write(object, negotiation::noted(None, output).as_deref());
            });
        }
        TaskEvent::Status(update) => {
            frame.object("statusUpdate", |object| {
                write_status_update(object, place, update, view.activated, output);
            });
        }
        TaskEvent::Artifact(update) => {
            frame.object("artifactUpdate", |object| {
                write_artifact_update(object, place, update, view.activated, output);
            });
        }
    }
    frame.end();
    Some(out.into())
}

/// Whether a reader is to see an event at all. One that is not can be told nothing of it, not even that it was there.
pub fn is_shown(event: &TaskEvent, view: View, output: &OutputModes) -> bool {
    match event {
        TaskEvent::Submitted { .. } | TaskEvent::Status(_) => true,
        TaskEvent::Artifact(update) => is_seen(&update.artifact, view.exposure, output),
    }
}

/// The spelling of what a view is not exposed to.
pub const HIDDEN: u8 = 8;

/// Which spelling of an event a view sees: under the same number the frames of an event are the same, byte for byte.
/// Less than 8 for all that is seen. The output modes do not matter here: they are those of the task, for all its readers.
pub fn spelling(event: &TaskEvent, view: View) -> u8 {
    let activated = view.activated;
    match event {
        TaskEvent::Submitted { parent, .. } => {
            let is_told_parent = parent.is_some() && activated.shows_stream();
            let is_hidden = view.history_length == Some(0) || hides_prompt(parent.as_deref(), view.exposure);
            u8::from(is_hidden) | u8::from(is_told_parent) << 1
        }
        TaskEvent::Artifact(update) if !is_exposed(update.artifact.kind, view.exposure) => HIDDEN,
        TaskEvent::Artifact(update) => {
            u8::from(activated.shows_stream() && update.artifact.kind != BlockKind::File)
        }
        TaskEvent::Status(update) => {
            let session = update.notes.session.is_some() && activated.shows_session();
            let interrupt = update.notes.interrupt.is_some() && activated.shows_interrupt();
            u8::from(activated.shows_stream()) | u8::from(session) << 1 | u8::from(interrupt) << 2
        }
    }
}

/// A snapshot as the frame of a stream. With a gap, the task's metadata says what the reader missed.
pub fn stream_task(task: &Task, view: View, gap: Option<Gap>) -> Bytes {
    wrapped_task(task, view, gap)
}

fn wrapped_task(task: &Task, view: View, gap: Option<Gap>) -> Bytes {
    let mut out = Vec::with_capacity(size_of_task(task, view) + 16);
    let mut response = ObjectWriter::begin(&mut out);
    write_task(response.key("task"), task, view, gap);
    response.end();
    out.into()
}

fn write_task(out: &mut Vec<u8>, task: &Task, view: View, gap: Option<Gap>) {
    let mut object = ObjectWriter::begin(out);
    write_task_head(&mut object, task);
    if view.artifacts {
        object.some_array("artifacts", seen_artifacts(task, view), |out, artifact| {
            write_block(out, artifact, task, view);
        });
    }
    write_task_tail(&mut object, task, view, gap);
    object.end();
}

fn write_task_head(object: &mut ObjectWriter<'_>, task: &Task) {
    write_names(object, ["id", "contextId"], &task.id, &task.context_id);
    object.object("status", |status| write_status(status, &task.status, &task.terms.output));
}

fn write_task_tail(object: &mut ObjectWriter<'_>, task: &Task, view: View, gap: Option<Gap>) {
    let output = &task.terms.output;
    let history = seen_history(task, view).iter().filter(|message| leaves_any(&message.parts, output));
    object.some_array("history", history, |out, message| write_message(out, message, output));
    let shared = Shared::of_task(task, view.activated);
    let metadata = negotiation::noted(task.metadata.as_ref(), output);
    match gap {
        Some(gap) => shared.write(object, Some(&gap::noted(metadata.as_deref(), gap))),
        None => shared.write(object, metadata.as_deref()),
    }
}

fn write_block(out: &mut Vec<u8>, artifact: &Artifact, task: &Task, view: View) {
    let shared = Shared::of_block(artifact, None, view.activated);
    write_artifact(out, artifact, &shared, &task.terms.output);
}

fn write_names(object: &mut ObjectWriter<'_>, keys: [&str; 2], task: &TaskId, context: &ContextId) {
    object.text(keys[0], task.as_str());
    object.text(keys[1], context.as_str());
}

fn seen_history(task: &Task, view: View) -> &[Message] {
    if hides_prompt(task.parent.as_deref(), view.exposure) {
        return &[];
    }
    let limit = view.history_length.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    &task.history[task.history.len().saturating_sub(limit)..]
}

/// What a sub-agent was told to do is the input of a tool call of the task above it.
fn hides_prompt(parent: Option<&Parent>, exposure: Exposure) -> bool {
    parent.is_some() && !exposure.tool_trace
}

fn seen_artifacts(task: &Task, view: View) -> impl Iterator<Item = &Artifact> {
    task.artifacts.iter().filter(move |artifact| is_seen(artifact, view.exposure, &task.terms.output))
}

fn is_seen(artifact: &Artifact, exposure: Exposure, output: &OutputModes) -> bool {
    is_exposed(artifact.kind, exposure) && leaves_any(&artifact.parts, output)
}

fn is_exposed(kind: BlockKind, exposure: Exposure) -> bool {
    match kind {
        BlockKind::Reasoning => exposure.raw_thinking,
        BlockKind::ToolCall => exposure.tool_trace,
        BlockKind::Text | BlockKind::File => true,
    }
}

fn write_status_update(
    object: &mut ObjectWriter<'_>,
    place: Place<'_>,
    update: &StatusUpdate,
    activated: Activated,
    output: &OutputModes,
) {
    write_names(object, ["taskId", "contextId"], place.task, place.context);
    object.object("status", |status| write_status(status, &update.status, output));
    let shared = Shared::of_status(&update.notes, place, activated);
    shared.write(object, negotiation::noted(update.metadata.as_ref(), output).as_deref());
}

fn write_artifact_update(
    object: &mut ObjectWriter<'_>,
    place: Place<'_>,
    update: &ArtifactUpdate,
    activated: Activated,
    output: &OutputModes,
) {
    write_names(object, ["taskId", "contextId"], place.task, place.context);
    let shared = Shared::of_block(&update.artifact, Some(place), activated);
    write_artifact(object.key("artifact"), &update.artifact, &shared, output);
    // Absent is false, and nearly every frame of a long text has nothing to say here but `append`.
    if update.append {
        object.boolean("append", true);
    }
    if update.last_chunk {
        object.boolean("lastChunk", true);
    }
    let metadata = negotiation::noted(update.metadata.as_ref(), output);
    Shared::default().write(object, metadata.as_deref());
}

fn write_status(object: &mut ObjectWriter<'_>, status: &TaskStatus, output: &OutputModes) {
    write_state(object, status.state, status.at, status.message.as_ref(), output);
}

fn write_state(
    object: &mut ObjectWriter<'_>,
    state: TaskState,
    at: Timestamp,
    message: Option<&Message>,
    output: &OutputModes,
) {
    object.text("state", state_name(state));
    if let Some(message) = message.filter(|message| leaves_any(&message.parts, output)) {
        write_message(object.key("message"), message, output);
    }
    let out = object.key("timestamp");
    out.push(b'"');
    time::write(out, at);
    out.push(b'"');
}

fn write_message(out: &mut Vec<u8>, message: &Message, output: &OutputModes) {
    let mut object = ObjectWriter::begin(out);
    object.text("messageId", message.id.as_str());
    object.some_text("contextId", message.context_id.as_ref().map(ContextId::as_str));
    object.some_text("taskId", message.task_id.as_ref().map(TaskId::as_str));
    object.text("role", role_name(message.role));
    write_parts(&mut object, &message.parts, output);
    write_metadata(&mut object, message.metadata.as_ref());
    write_extensions(&mut object, &message.extensions);
    if !message.reference_task_ids.is_empty() {
        object.texts("referenceTaskIds", message.reference_task_ids.iter().map(TaskId::as_str));
    }
    object.end();
}

fn write_artifact(out: &mut Vec<u8>, artifact: &Artifact, shared: &Shared<'_>, output: &OutputModes) {
    let mut object = ObjectWriter::begin(out);
    object.text("artifactId", artifact.id.as_str());
    object.some_text("name", artifact.name.as_deref());
    object.some_text("description", artifact.description.as_deref());
    write_parts(&mut object, &artifact.parts, output);
    shared.write(&mut object, artifact.metadata.as_ref().map(Metadata::get));
    write_extensions(&mut object, &artifact.extensions);
    object.end();
}

fn write_parts(object: &mut ObjectWriter<'_>, parts: &[Part], output: &OutputModes) {
    let fates = parts.iter().map(|part| (part, fate(part, output)));
    let seen = fates.filter(|(_, fate)| *fate != Fate::Dropped);
    object.array("parts", seen, |out, (part, fate)| write_part(out, part, fate == Fate::AsText));
}

fn write_part(out: &mut Vec<u8>, part: &Part, as_text: bool) {
    let mut object = ObjectWriter::begin(out);
    match &part.content {
        PartContent::Text(text) => object.text("text", text),
        PartContent::Raw(bytes) => {
            let out = object.key("raw");
            out.push(b'"');
            base64::write(out, bytes);
            out.push(b'"');
        }
        PartContent::Url(url) => object.text("url", url),
        PartContent::Data(data) if as_text => object.text("text", &data_as_text(data.get())),
        PartContent::Data(data) => object.json("data", data),
    }
    write_metadata(&mut object, part.metadata.as_ref());
    object.some_text("filename", part.filename.as_deref());
    // Told as text it is no longer of its type.
    object.some_text("mediaType", part.media_type.as_deref().filter(|_| !as_text));
    object.end();
}

fn write_metadata(object: &mut ObjectWriter<'_>, metadata: Option<&Metadata>) {
    if let Some(metadata) = metadata {
        object.json("metadata", metadata.json());
    }
}

fn write_extensions(object: &mut ObjectWriter<'_>, extensions: &[String]) {
    if !extensions.is_empty() {
        object.texts("extensions", extensions);
    }
}

/// About how many bytes a task takes, so that a long one is not copied while its buffer grows. Text dominates.
fn size_of_task(task: &Task, view: View) -> usize {
    let parts = |parts: &[Part]| parts.iter().map(size_of_part).sum::<usize>();
    let history = seen_history(task, view).iter().map(|message| 160 + parts(&message.parts)).sum::<usize>();
    let artifacts = seen_artifacts(task, view).map(|artifact| 120 + parts(&artifact.parts)).sum::<usize>();
    256 + history + if view.artifacts { artifacts } else { 0 }
}

fn size_of_part(part: &Part) -> usize {
    let content = match &part.content {
        PartContent::Text(text) | PartContent::Url(text) => text.len() + text.len() / 16,
        PartContent::Raw(bytes) => bytes.len().div_ceil(3) * 4,
        PartContent::Data(data) => data.get().len(),
    };
    32 + content
}
