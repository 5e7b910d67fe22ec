//! The events of a task's log as the frames of a stream.
//!
//! All blocks are one artifact, to which nearly every update appends. Whether one does depends on what came before it, so a
//! stream keeps the names of the blocks that its reader has seen. Only where the text of a block is replaced, and other
//! blocks stand around it, the whole artifact has to be told again: then the task itself is needed. So it is once for a
//! reader that comes back in the middle: clients drop what is to be added to an artifact that they do not have.
//!
//! No chunk of the artifact is called its last one. The end of a block is not its end, which comes with that of the task;
//! and the event that ends a task is one frame, that of its status. A reader knows it by `final`.

use std::collections::HashSet;

use bytes::Bytes;
use longshore_model::{
    ArtifactId, ArtifactUpdate, BlockKind, ContextId, Entry, Metadata, OutputModes, StatusUpdate, Task,
    TaskEvent, TaskId,
};

use super::artifact::{Kinds, blocks, says_any, write_artifact, write_stream};
use super::{Dialect, View, ungated};
use crate::extension::Activated;
use crate::json::ObjectWriter;
use crate::spelling::PartView;
use crate::v1;
use crate::write::hides_first_message;
use crate::write::shared::{Place, Shared};
use crate::write::{
    is_seen, negotiation, seen_parts, write_kind, write_names, write_status, write_submitted,
};

/// The numbers under which frames are shared by readers. They follow those of 1.0.
pub const FORMS: std::ops::Range<u8> = v1::encode::HIDDEN + 1..v1::encode::HIDDEN + 5;

/// What one reader of a task has been told, as far as it decides how to go on.
#[derive(Clone, Debug)]
pub struct Stream {
    dialect: Dialect,
    view: View,
    /// The blocks of which the reader has something. `None`: it comes back in the middle, and what it has is not known yet.
    known: Option<HashSet<ArtifactId>>,
}

/// What to do about one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing: the reader is not to see it, or there is nothing to see on this line.
    Hidden,
    Frame(Frame),
    /// Ask again, by [`Stream::recall`], with the task as it was before this event.
    NeedsTask,
}

/// How to tell one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    dialect: Dialect,
    /// Without the message that it is about.
    is_cut: bool,
    append: bool,
}

/// What came of asking again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recalled {
    /// `None`: it is not to be seen.
    pub frame: Option<Bytes>,
    /// The whole artifact was told again. Where that happens once, it happens again: keep the task.
    pub is_retold: bool,
}

impl Stream {
    /// For a reader of the log from its first event on.
    pub fn from_start(view: View, dialect: Dialect) -> Self {
        Self { dialect, view: ungated(view), known: Some(HashSet::new()) }
    }

    /// For a reader of the events after this snapshot, which it was shown.
    pub fn from_snapshot(task: &Task, view: View, dialect: Dialect) -> Self {
        let mut stream = Self::resumed(view, dialect);
        stream.know(task);
        stream
    }

    /// For a reader that goes on somewhere in the middle of the log.
    pub fn resumed(view: View, dialect: Dialect) -> Self {
        Self { dialect, view: ungated(view), known: None }
    }

    /// The next event of the log. Every one has to come by here, in order. `output`: the modes of the task.
    pub fn step(&mut self, event: &TaskEvent, output: &OutputModes) -> Step {
        let append = match event {
            TaskEvent::Submitted { .. } | TaskEvent::Status(_) => false,
            TaskEvent::Artifact(update) if !is_seen(&update.artifact, self.view.exposure, output) => {
                return Step::Hidden;
            }
            TaskEvent::Artifact(update) if update.artifact.kind == BlockKind::File => update.append,
            TaskEvent::Artifact(update) => match self.placed(update, output) {
                Placed::Nothing => return Step::Hidden,
                Placed::Begins => false,
                Placed::Appends => true,
                Placed::Unclear => return Step::NeedsTask,
            },
        };
        let is_cut = matches!(event, TaskEvent::Submitted { parent, .. } if hides_first_message(parent.as_deref(), self.view));
        Step::Frame(Frame { dialect: self.dialect, is_cut, append })
    }

    /// The frame of an event for which [`Self::step`] needed the task, which is as it was before the event and then as it is
    /// after it. Only its artifacts and terms are looked at.
    pub fn recall(&mut self, task: &mut Task, entry: &Entry) -> Recalled {
        self.know(task);
        let step = self.step(&entry.event, &task.terms.output);
        task.apply(&entry.event);
        let (frame, is_retold) = match step {
            Step::Hidden => (None, false),
            Step::Frame(frame) => {
                (Some(frame.encode(&task.id, &task.context_id, entry, &task.terms.output)), false)
            }
            Step::NeedsTask => {
                self.know(task);
                (Some(self.retold(task, entry)), true)
            }
        };
        Recalled { frame, is_retold }
    }

    fn know(&mut self, task: &Task) {
        self.known = Some(blocks(task, self.view).map(|block| block.id.clone()).collect());
    }

    /// Where an update of a block stands in the one artifact.
    fn placed(&mut self, update: &ArtifactUpdate, output: &OutputModes) -> Placed {
        let says_any = says_any(&update.artifact.parts, output);
        let id = &update.artifact.id;
        let Some(known) = &mut self.known else {
            let is_nothing = update.append && !says_any;
            return if is_nothing { Placed::Nothing } else { Placed::Unclear };
        };
        // A state of a tool call is one more part, whether or not it makes the one before it obsolete.
        let replaces = !update.append && update.artifact.kind != BlockKind::ToolCall && known.contains(id);
        if replaces {
            if known.len() > 1 {
                return Placed::Unclear;
            }
            // There is nothing else, so the artifact is what this block is now.
            if !says_any {
                known.clear();
            }
            return Placed::Begins;
        }
        if !says_any {
            return Placed::Nothing;
        }
        let placed = if known.is_empty() { Placed::Begins } else { Placed::Appends };
        if !known.contains(id) {
            known.insert(id.clone());
        }
        placed
    }

    /// The whole artifact, in place of what the reader has of it.
    fn retold(&self, task: &Task, entry: &Entry) -> Bytes {
        let mut out = Vec::with_capacity(1024);
        let TaskEvent::Artifact(update) = &entry.event else { return Bytes::new() };
        let place = Place { task: &task.id, context: &task.context_id, seq: entry.seq };
        write_event(&mut out, "artifact-update", "artifactUpdate", self.dialect, |object| {
            write_names(object, ["taskId", "contextId"], place.task, place.context);
            let shared = Shared::of_block(&update.artifact, Some(place), Activated::ALL);
            let kinds = Kinds::of(task, self.view, self.dialect).or_of(&update.artifact);
            write_stream(object.key("artifact"), task, self.view, self.dialect, kinds, &shared);
            write_chunk(object, false, false, update, &task.terms.output);
        });
        out.into()
    }
}

/// See [`Stream::placed`].
enum Placed {
    /// It has nothing to say.
    Nothing,
    /// The artifact begins with it, anew where there was one.
    Begins,
    /// It goes on with the artifact.
    Appends,
    /// It takes the task to say.
    Unclear,
}

impl Frame {
    /// Under the same number the frames of an event are the same, byte for byte.
    pub fn form(self) -> u8 {
        // No event is both.
        let is_other = self.append || self.is_cut;
        FORMS.start + 2 * u8::from(self.dialect == Dialect::Rest) + u8::from(is_other)
    }

    pub fn encode(self, task: &TaskId, context: &ContextId, entry: &Entry, output: &OutputModes) -> Bytes {
        let mut out = Vec::with_capacity(320);
        let place = Place { task, context, seq: entry.seq };
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
                    write_status_update(object, place, update, output, dialect);
                });
            }
            TaskEvent::Artifact(update) => {
                write_event(&mut out, "artifact-update", "artifactUpdate", dialect, |object| {
                    write_artifact_update(object, place, update, self.append, output, dialect);
                });
            }
        }
        out.into()
    }
}

/// On JSON-RPC an event says what it is; on REST it is told by the name under which it stands.
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
    place: Place<'_>,
    update: &StatusUpdate,
    output: &OutputModes,
    dialect: Dialect,
) {
    write_names(object, ["taskId", "contextId"], place.task, place.context);
    object.object("status", |status| write_status(status, &update.status, output, dialect.spelling()));
    object.boolean("final", update.status.state.is_terminal());
    let shared = Shared::of_status(&update.notes, place, Activated::ALL).with_source();
    shared.write(object, negotiation::noted(update.metadata.as_ref(), output).as_deref());
}

fn write_artifact_update(
    object: &mut ObjectWriter<'_>,
    place: Place<'_>,
    update: &ArtifactUpdate,
    append: bool,
    output: &OutputModes,
    dialect: Dialect,
) {
    write_names(object, ["taskId", "contextId"], place.task, place.context);
    let block = &update.artifact;
    let out = object.key("artifact");
    if block.kind == BlockKind::File {
        crate::write::write_artifact(out, block, &Shared::default(), output, dialect.spelling());
        return write_chunk(object, append, update.last_chunk, update, output);
    }
    let parts = seen_parts(&block.parts, output);
    let kinds = Kinds::of_update(block, dialect);
    let parts = parts.map(|(part, as_text)| PartView { part, as_text, block: kinds.told(block.kind) });
    write_artifact(out, place.task, parts, dialect, |object| {
        let shared = Shared::of_block(block, Some(place), Activated::ALL);
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
    let metadata = negotiation::noted(update.metadata.as_ref(), output);
    Shared::default().write(object, metadata.as_deref());
}
