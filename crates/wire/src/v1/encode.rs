//! Encodes responses and stream events of 1.0: canonical ProtoJSON on one line.
//!
//! Required fields are always written, and optional fields only if they have a value. Values are written from the model into bytes
//! without intermediate copies.

use bytes::Bytes;
use longshore_model::{
    Artifact, ArtifactUpdate, BlockKind, ContextId, Entry, Notes, OutputModes, PartContent, PushConfig,
    StatusUpdate, Task, TaskEvent, TaskId,
};

use super::SPELLING;
use crate::extension::Activated;
use crate::json::ObjectWriter;
use crate::output::data_as_text;
use crate::spelling::PartView;
use crate::write::iac_code::Details;
use crate::write::negotiation;
use crate::write::push;
use crate::write::shared::{EventPosition, Shared};
use crate::write::{
    hides_first_message, is_exposed, is_seen, seen_artifacts, size_of_task, write_artifact, write_bytes,
    write_metadata, write_names, write_page, write_status, write_submitted, write_task_head, write_task_tail,
};

#[cfg(test)]
pub(crate) mod tests;

pub use crate::extension::Exposure;
pub use crate::write::{Gap, View};

/// Encodes a bare task.
pub fn task(task: &Task, view: View) -> Bytes {
    let mut out = Vec::with_capacity(size_of_task(task, view));
    write_task(&mut out, task, view, None);
    out.into()
}

/// Encodes the response to `SendMessage`: `{"task": …}`.
pub fn send_response(task: &Task, view: View) -> Bytes {
    wrapped_task(task, view, None)
}

/// Encodes the response to `ListTasks`. All four fields are always present; `nextPageToken` is "" on the last page.
pub fn list_response(tasks: &[Task], view: View, next_page_token: &str, page_size: u32, total: u64) -> Bytes {
    let mut out = Vec::with_capacity(tasks.iter().map(|task| size_of_task(task, view)).sum::<usize>() + 160);
    write_page(&mut out, tasks, next_page_token, page_size, total, |out, task| {
        let mut object = ObjectWriter::begin(out);
        write_task_head(&mut object, task, &SPELLING);
        if view.artifacts {
            // The specification demands an empty array here: "included with its actual content, which may be an empty array".
            object.array("artifacts", seen_artifacts(task, view), |out, artifact| {
                write_block(out, artifact, task, view);
            });
        }
        write_task_tail(&mut object, task, view, None, &SPELLING);
        object.end();
    });
    out.into()
}

/// Encodes a push configuration without its secrets.
pub fn push_config(config: &PushConfig) -> Bytes {
    let mut out = Vec::with_capacity(256);
    push::write_flat(&mut out, config);
    out.into()
}

/// Encodes the response to `ListTaskPushNotificationConfigs`.
pub fn push_page(configs: &[PushConfig], next_page_token: &str) -> Bytes {
    let mut out = Vec::with_capacity(64 + 256 * configs.len());
    push::write_page(&mut out, configs, next_page_token, push::write_flat);
    out.into()
}

/// Encodes the response to `DeleteTaskPushNotificationConfig`.
pub fn deleted() -> Bytes {
    Bytes::from_static(b"{}")
}

/// Encodes one event of the log as one frame of a stream. `None`: this client may not see the event. Three fields of the view
/// matter: the activated extensions, the exposure, and the length of the history. The length only matters for the first event,
/// which has one message.
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
    let position = EventPosition { task, context, seq: entry.seq };
    match &entry.event {
        submitted @ TaskEvent::Submitted { .. } => {
            frame.object("task", |object| {
                write_submitted(object, task, submitted, view, output, &SPELLING);
            });
        }
        TaskEvent::Status(update) => {
            frame.object("statusUpdate", |object| {
                write_status_update(object, position, update, view, output);
            });
        }
        TaskEvent::Artifact(update) => {
            frame.object("artifactUpdate", |object| {
                write_artifact_update(object, position, update, view.activated, output);
            });
        }
    }
    frame.end();
    Some(out.into())
}

/// Whether a client may see an event. If not, the client must not even learn that there was an event.
pub fn is_shown(event: &TaskEvent, view: View, output: &OutputModes) -> bool {
    match event {
        TaskEvent::Submitted { .. } => true,
        TaskEvent::Status(update) => !update.repeats || shows_notes(update, view),
        TaskEvent::Artifact(update) => is_seen(&update.artifact, view.exposure, output),
    }
}

/// Whether a client can see any note of a status update.
fn shows_notes(update: &StatusUpdate, view: View) -> bool {
    let activated = view.activated;
    let Notes { session, usage, progress, interrupt, sub_agent_model } = &update.notes;
    session.is_some() && activated.shows_session()
        || (usage.is_some() || progress.is_some() || sub_agent_model.is_some()) && activated.shows_stream()
        || interrupt.is_some() && activated.shows_interrupt()
        || !Details::of_status(update, view).is_empty()
}

/// The form number of an event that is hidden from the view. See [`frame_form`].
pub const HIDDEN: u8 = 24;

/// The number of the form in which a view shows an event. Two frames of one event with the same form are equal, byte for byte, so
/// readers share them. All visible forms are below [`HIDDEN`]. The output modes need no separate forms, because they belong to the
/// task and are the same for all its readers.
pub fn frame_form(event: &TaskEvent, view: View) -> u8 {
    let activated = view.activated;
    match event {
        TaskEvent::Submitted { parent, .. } => {
            let shows_parent = parent.is_some() && activated.shows_stream();
            let is_hidden = hides_first_message(parent.as_deref(), view);
            u8::from(is_hidden) | u8::from(shows_parent) << 1
        }
        TaskEvent::Artifact(update) if !is_exposed(update.artifact.kind, view.exposure) => HIDDEN,
        TaskEvent::Artifact(update) => {
            let stream = activated.shows_stream() && update.artifact.kind != BlockKind::File;
            let details = !Details::of_block(update, activated).is_empty();
            u8::from(stream) | u8::from(details) << 1
        }
        TaskEvent::Status(update) if update.repeats && !shows_notes(update, view) => HIDDEN,
        TaskEvent::Status(update) => {
            let session = update.notes.session.is_some() && activated.shows_session();
            let interrupt = update.notes.interrupt.is_some() && activated.shows_interrupt();
            let details = Details::of_status(update, view);
            // 0 to 2, because of the details the exposure can only hide the permission.
            let details = u8::from(!details.is_empty()) + u8::from(details.has_permission());
            u8::from(activated.shows_stream())
                | u8::from(session) << 1
                | u8::from(interrupt) << 2
                | details << 3
        }
    }
}

/// Encodes a snapshot as a frame of a stream. With a gap, the task's metadata says which events the reader missed.
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
    write_task_head(&mut object, task, &SPELLING);
    if view.artifacts {
        object.some_array("artifacts", seen_artifacts(task, view), |out, artifact| {
            write_block(out, artifact, task, view);
        });
    }
    write_task_tail(&mut object, task, view, gap, &SPELLING);
    object.end();
}

fn write_block(out: &mut Vec<u8>, artifact: &Artifact, task: &Task, view: View) {
    let shared = Shared::of_block(artifact, None, view.activated);
    write_artifact(out, artifact, &shared, &task.options.output, &SPELLING);
}

fn write_status_update(
    object: &mut ObjectWriter<'_>,
    position: EventPosition<'_>,
    update: &StatusUpdate,
    view: View,
    output: &OutputModes,
) {
    write_names(object, ["taskId", "contextId"], position.task, position.context);
    object.object("status", |status| write_status(status, &update.status, output, &SPELLING));
    let shared = Shared::of_status(&update.notes, position, view.activated);
    let metadata = negotiation::annotated(update.metadata.as_ref(), output);
    let metadata = Details::of_status(update, view).added_to(metadata);
    shared.write(object, metadata.as_deref());
}

fn write_artifact_update(
    object: &mut ObjectWriter<'_>,
    position: EventPosition<'_>,
    update: &ArtifactUpdate,
    activated: Activated,
    output: &OutputModes,
) {
    write_names(object, ["taskId", "contextId"], position.task, position.context);
    let shared = Shared::of_block(&update.artifact, Some(position), activated);
    write_artifact(object.key("artifact"), &update.artifact, &shared, output, &SPELLING);
    // An absent flag means false, and most frames of a long text need only `append`.
    if update.append {
        object.boolean("append", true);
    }
    if update.last_chunk {
        object.boolean("lastChunk", true);
    }
    let metadata = negotiation::annotated(update.metadata.as_ref(), output);
    let metadata = Details::of_block(update, activated).added_to(metadata);
    Shared::default().write(object, metadata.as_deref());
}

pub(super) fn write_part(out: &mut Vec<u8>, PartView { part, as_text, block: _ }: PartView<'_>) {
    let mut object = ObjectWriter::begin(out);
    match &part.content {
        PartContent::Text(text) => object.text("text", text),
        PartContent::Raw(bytes) => write_bytes(object.key("raw"), bytes),
        PartContent::Url(url) => object.text("url", url),
        PartContent::Data(data) if as_text => object.text("text", &data_as_text(data.get())),
        PartContent::Data(data) => object.json("data", data),
    }
    write_metadata(&mut object, part.metadata.as_ref());
    object.some_text("filename", part.filename.as_deref());
    // Data that is written as text no longer has its media type.
    object.some_text("mediaType", part.media_type.as_deref().filter(|_| !as_text));
    object.end();
}
