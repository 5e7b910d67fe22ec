//! Encodes the events of a task's log as frames of a stream.
//!
//! All blocks of a task are in one artifact, and nearly every update is appended to that artifact. Whether an update is appended
//! depends on the updates before it, so a stream keeps the ids of the blocks that its reader has seen. The encoder needs the task
//! itself in only two cases:
//!
//! - The text of a block is replaced while there are other blocks. Then the whole artifact is sent again.
//! - A reader resumes in the middle. Then the encoder checks once in the task which blocks the reader already has, because a client
//!   drops an append to an artifact that it does not have.
//!
//! The artifact ends when the task ends, and not when a block ends. So the last chunk of the artifact is an empty chunk just before
//! the event that ends the task. The log has no event for that chunk, so the chunk has no id. A reader that resumes after the chunk
//! gets it again, together with the end of the task.

use std::collections::HashSet;

use bytes::Bytes;
use longshore_model::{
    Artifact, ArtifactId, ArtifactUpdate, BlockKind, ContextId, Entry, Metadata, OutputModes, Part,
    StatusUpdate, Task, TaskEvent, TaskId,
};

use super::artifact::{PartKinds, blocks, has_content, write_artifact, write_stream};
use super::{Dialect, View, ungated};
use crate::extension::Activated;
use crate::json::ObjectWriter;
use crate::spelling::PartView;
use crate::v1;
use crate::write::hides_first_message;
use crate::write::shared::{EventPosition, Shared};
use crate::write::{
    is_seen, negotiation, seen_parts, write_kind, write_names, write_status, write_submitted,
};

/// The form numbers of 0.3 frames, which come after those of 1.0. Two frames of one event with the same number are equal, so
/// readers share them.
pub const FORMS: std::ops::Range<u8> = v1::encode::HIDDEN + 1..v1::encode::HIDDEN + 5;

/// The state of one reader's stream. It affects how further events are encoded.
#[derive(Clone, Debug)]
pub struct Stream {
    dialect: Dialect,
    view: View,
    /// The blocks of which the reader has content. `None`: the reader resumes in the middle, so this is not known yet.
    known: Option<HashSet<ArtifactId>>,
}

/// The decision about one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The event results in no frame: the reader may not see it, or it is empty in 0.3.
    Hidden,
    Frame(Frame),
    /// The caller must call [`Stream::encode_with_task`] with the task as it was before this event.
    NeedsTask,
}

/// How one event is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    dialect: Dialect,
    /// Whether the message of the first event is left out.
    is_cut: bool,
    append: bool,
}

/// Whether the reader of a stream has the stream artifact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HasArtifact {
    Yes,
    No,
    /// It is not known. The caller must call [`Stream::locate`] with the task as it was before the next event.
    Unknown,
}

/// The result of [`Stream::encode_with_task`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskFrame {
    /// The frame. `None`: the reader may not see the event.
    pub frame: Option<Bytes>,
    /// Whether the frame is the whole artifact. That tends to happen again in the same stream, so the caller should keep the task.
    pub is_whole_artifact: bool,
}

impl Stream {
    /// The stream of a reader that starts at the first event of the log.
    pub fn from_start(view: View, dialect: Dialect) -> Self {
        Self { dialect, view: ungated(view), known: Some(HashSet::new()) }
    }

    /// The stream of a reader that has received this snapshot and continues after it.
    pub fn from_snapshot(task: &Task, view: View, dialect: Dialect) -> Self {
        let mut stream = Self::resumed(view, dialect);
        stream.know(task);
        stream
    }

    /// The stream of a reader that resumes in the middle of the log.
    pub fn resumed(view: View, dialect: Dialect) -> Self {
        Self { dialect, view: ungated(view), known: None }
    }

    /// Processes the next event of the log. Must be called for every event, in order. `output`: the output modes of the task.
    pub fn step(&mut self, event: &TaskEvent, output: &OutputModes) -> Step {
        let append = match event {
            TaskEvent::Status(update) if update.repeats && update.notes.is_empty() => return Step::Hidden,
            TaskEvent::Submitted { .. } | TaskEvent::Status(_) => false,
            TaskEvent::Artifact(update) if !is_seen(&update.artifact, self.view.exposure, output) => {
                return Step::Hidden;
            }
            TaskEvent::Artifact(update) if update.artifact.kind == BlockKind::File => update.append,
            TaskEvent::Artifact(update) => match self.placement(update, output) {
                Placement::Nothing => return Step::Hidden,
                Placement::Begins => false,
                Placement::Appends => true,
                Placement::Unclear => return Step::NeedsTask,
            },
        };
        let is_cut = matches!(event, TaskEvent::Submitted { parent, .. } if hides_first_message(parent.as_deref(), self.view));
        Step::Frame(Frame { dialect: self.dialect, is_cut, append })
    }

    /// Encodes an event for which [`Self::step`] returned [`Step::NeedsTask`]. `task` must be the task before the event, and is
    /// changed to the task after it. Only its artifacts and options are read.
    pub fn encode_with_task(&mut self, task: &mut Task, entry: &Entry) -> TaskFrame {
        self.know(task);
        let step = self.step(&entry.event, &task.options.output);
        task.apply(&entry.event);
        let (frame, is_whole_artifact) = match step {
            Step::Hidden => (None, false),
            Step::Frame(frame) => {
                (Some(frame.encode(&task.id, &task.context_id, entry, &task.options.output)), false)
            }
            Step::NeedsTask => {
                self.know(task);
                (Some(self.retold(task, entry)), true)
            }
        };
        TaskFrame { frame, is_whole_artifact }
    }

    pub fn has_artifact(&self) -> HasArtifact {
        match &self.known {
            None => HasArtifact::Unknown,
            Some(known) if known.is_empty() => HasArtifact::No,
            Some(_) => HasArtifact::Yes,
        }
    }

    /// Finds out which blocks the reader already has, unless that is known. `before`: the task as it was before the next event, of
    /// which only the artifacts and options are read.
    pub fn locate(&mut self, before: &Task) {
        if self.known.is_none() {
            self.know(before);
        }
    }

    /// The last chunk of the stream artifact, for a reader that has the artifact. `None`: the chunk would be text, which the task's
    /// output modes exclude.
    pub fn last_chunk(&self, task: &TaskId, context: &ContextId, output: &OutputModes) -> Option<Bytes> {
        let block = Artifact {
            id: ArtifactId::parse("end").expect("letters are an id"),
            kind: BlockKind::Text,
            source_message: None,
            name: None,
            description: None,
            parts: vec![Part::text("")],
            extensions: Vec::new(),
            metadata: None,
        };
        if !is_seen(&block, self.view.exposure, output) {
            return None;
        }
        let kind = PartKinds::for_update(&block, self.dialect).written(block.kind);
        let parts = block.parts.iter().map(|part| PartView { part, as_text: false, block: kind });
        let mut out = Vec::with_capacity(320);
        write_event(&mut out, "artifact-update", "artifactUpdate", self.dialect, |object| {
            write_names(object, ["taskId", "contextId"], task, context);
            write_artifact(object.key("artifact"), task, parts, self.dialect, |object| {
                Shared::of_block(&block, None, Activated::ALL).write(object, None);
            });
            object.boolean("append", true);
            object.boolean("lastChunk", true);
        });
        Some(out.into())
    }

    fn know(&mut self, task: &Task) {
        self.known = Some(blocks(task, self.view).map(|block| block.id.clone()).collect());
    }

    /// Decides how an update of a block changes the stream artifact.
    fn placement(&mut self, update: &ArtifactUpdate, output: &OutputModes) -> Placement {
        let has_content = has_content(&update.artifact.parts, output);
        let id = &update.artifact.id;
        let Some(known) = &mut self.known else {
            let is_nothing = update.append && !has_content;
            return if is_nothing { Placement::Nothing } else { Placement::Unclear };
        };
        // Each state of a tool call is appended as another part, even if it makes the previous state obsolete.
        let replaces = !update.append && update.artifact.kind != BlockKind::ToolCall && known.contains(id);
        if replaces {
            if known.len() > 1 {
                return Placement::Unclear;
            }
            // There are no other blocks, so this update is the whole artifact.
            if !has_content {
                known.clear();
            }
            return Placement::Begins;
        }
        if !has_content {
            return Placement::Nothing;
        }
        let placement = if known.is_empty() { Placement::Begins } else { Placement::Appends };
        if !known.contains(id) {
            known.insert(id.clone());
        }
        placement
    }

    /// Encodes a frame with the whole artifact, which replaces the artifact that the reader has.
    fn retold(&self, task: &Task, entry: &Entry) -> Bytes {
        let mut out = Vec::with_capacity(1024);
        let TaskEvent::Artifact(update) = &entry.event else { return Bytes::new() };
        let position = EventPosition { task: &task.id, context: &task.context_id, seq: entry.seq };
        write_event(&mut out, "artifact-update", "artifactUpdate", self.dialect, |object| {
            write_names(object, ["taskId", "contextId"], position.task, position.context);
            let shared = Shared::of_block(&update.artifact, Some(position), Activated::ALL);
            let kinds = PartKinds::for_artifact(task, self.view, self.dialect).with_block(&update.artifact);
            write_stream(object.key("artifact"), task, self.view, self.dialect, kinds, &shared);
            write_chunk(object, false, false, update, &task.options.output);
        });
        out.into()
    }
}

/// The result of [`Stream::placement`].
enum Placement {
    /// The update is empty.
    Nothing,
    /// The update begins the artifact, and replaces an earlier one.
    Begins,
    /// The update is appended to the artifact.
    Appends,
    /// Only the task shows how the update changes the artifact.
    Unclear,
}

impl Frame {
    /// The number of the frame's form. Two frames of one event with the same form are equal, byte for byte.
    pub fn form(self) -> u8 {
        // Both flags can share one number, because no event is both appended and cut.
        let is_second = self.append || self.is_cut;
        FORMS.start + 2 * u8::from(self.dialect == Dialect::Rest) + u8::from(is_second)
    }

    pub fn encode(self, task: &TaskId, context: &ContextId, entry: &Entry, output: &OutputModes) -> Bytes {
        let mut out = Vec::with_capacity(320);
        let position = EventPosition { task, context, seq: entry.seq };
        let (dialect, spelling) = (self.dialect, self.dialect.spelling());
        match &entry.event {
            submitted @ TaskEvent::Submitted { .. } => {
                let history_length = if self.is_cut { Some(0) } else { None };
                let view = ungated(View { history_length, ..View::default() });
                write_event(&mut out, "task", "task", dialect, |object| {
                    write_submitted(object, task, submitted, view, output, spelling);
                });
            }
            TaskEvent::Status(update) => {
                write_event(&mut out, "status-update", "statusUpdate", dialect, |object| {
                    write_status_update(object, position, update, output, dialect);
                });
            }
            TaskEvent::Artifact(update) => {
                write_event(&mut out, "artifact-update", "artifactUpdate", dialect, |object| {
                    write_artifact_update(object, position, update, self.append, output, dialect);
                });
            }
        }
        out.into()
    }
}

/// Writes an event. On JSON-RPC the event has a `kind`; on REST, the key before it names the kind.
fn write_event(
    out: &mut Vec<u8>,
    kind: &str,
    key: &str,
    dialect: Dialect,
    write: impl FnOnce(&mut ObjectWriter<'_>),
) {
    let mut object = ObjectWriter::begin(out);
    match dialect {
        Dialect::Rpc => {
            write_kind(&mut object, kind, dialect.spelling());
            write(&mut object);
        }
        Dialect::Rest => object.object(key, write),
    }
    object.end();
}

fn write_status_update(
    object: &mut ObjectWriter<'_>,
    position: EventPosition<'_>,
    update: &StatusUpdate,
    output: &OutputModes,
    dialect: Dialect,
) {
    write_names(object, ["taskId", "contextId"], position.task, position.context);
    object.object("status", |status| write_status(status, &update.status, output, dialect.spelling()));
    object.boolean("final", update.status.state.is_terminal());
    let shared = Shared::of_status(&update.notes, position, Activated::ALL).with_source();
    shared.write(object, negotiation::annotated(update.metadata.as_ref(), output).as_deref());
}

fn write_artifact_update(
    object: &mut ObjectWriter<'_>,
    position: EventPosition<'_>,
    update: &ArtifactUpdate,
    append: bool,
    output: &OutputModes,
    dialect: Dialect,
) {
    write_names(object, ["taskId", "contextId"], position.task, position.context);
    let block = &update.artifact;
    let out = object.key("artifact");
    if block.kind == BlockKind::File {
        crate::write::write_artifact(out, block, &Shared::default(), output, dialect.spelling());
        return write_chunk(object, append, update.last_chunk, update, output);
    }
    let parts = seen_parts(&block.parts, output);
    let kinds = PartKinds::for_update(block, dialect);
    let parts = parts.map(|(part, as_text)| PartView { part, as_text, block: kinds.written(block.kind) });
    write_artifact(out, position.task, parts, dialect, |object| {
        let shared = Shared::of_block(block, Some(position), Activated::ALL);
        shared.write(object, block.metadata.as_ref().map(Metadata::get));
    });
    write_chunk(object, append, false, update, output);
}

fn write_chunk(
    object: &mut ObjectWriter<'_>,
    append: bool,
    last_chunk: bool,
    update: &ArtifactUpdate,
    output: &OutputModes,
) {
    object.boolean("append", append);
    object.boolean("lastChunk", last_chunk);
    let metadata = negotiation::annotated(update.metadata.as_ref(), output);
    Shared::default().write(object, metadata.as_deref());
}
