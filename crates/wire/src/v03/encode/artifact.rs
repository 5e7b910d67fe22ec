//! The one stream artifact of a task: all its blocks but files, in the order in which they began.
//!
//! Its parts say of what kind of block they are, since they may be of several, and clients keep of the artifact what its
//! first update said. On REST a part that says nothing is text: before its version 0.3.5 the Python client refuses whole
//! answers and frames in which a part has metadata. It reads what agents do that only speak; not tool calls and thoughts,
//! which are hidden from a credential that does not expose them.

use longshore_model::{Artifact, BlockKind, OutputModes, Part, Task, TaskId};

use super::super::Dialect;
use crate::json::ObjectWriter;
use crate::spelling::PartView;
use crate::write::shared::Shared;
use crate::write::{View, seen_artifacts, seen_parts};

/// Whether there is anything to show in it.
pub(super) fn has_stream(task: &Task, view: View) -> bool {
    blocks(task, view).next().is_some()
}

/// The blocks of which something is left.
pub(super) fn blocks(task: &Task, view: View) -> impl Iterator<Item = &Artifact> {
    let blocks = seen_artifacts(task, view).filter(|block| block.kind != BlockKind::File);
    blocks.filter(|block| says_any(&block.parts, &task.terms.output))
}

/// Whether the parts hold more than empty text.
pub(super) fn says_any(parts: &[Part], output: &OutputModes) -> bool {
    says(parts, output).next().is_some()
}

/// Whether the parts have to say what they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kinds {
    ControlResult,
    Known,
}

impl Kinds {
    /// In a whole artifact. What says nothing is text.
    pub(super) fn of(task: &Task, view: View, dialect: Dialect) -> Self {
        let is_text = || blocks(task, view).all(|block| block.kind == BlockKind::Text);
        if dialect == Dialect::Rest && is_text() { Self::Known } else { Self::ControlResult }
    }

    /// The same, in an artifact that says that it is about this block.
    pub(super) fn or_of(self, block: &Artifact) -> Self {
        if block.kind == BlockKind::Text { self } else { Self::ControlResult }
    }

    /// In an update, which is of one block.
    pub(super) fn of_update(block: &Artifact, dialect: Dialect) -> Self {
        match dialect {
            Dialect::Rpc => Self::ControlResult,
            Dialect::Rest => Self::Known.or_of(block),
        }
    }

    pub(super) fn told(self, kind: BlockKind) -> Option<BlockKind> {
        (self == Self::ControlResult).then_some(kind)
    }
}

/// The whole artifact.
pub(super) fn write_stream(
    out: &mut Vec<u8>,
    task: &Task,
    view: View,
    dialect: Dialect,
    kinds: Kinds,
    shared: &Shared<'_>,
) {
    let output = &task.terms.output;
    let parts = blocks(task, view).flat_map(|block| {
        // A later state of a tool call says all that the earlier ones did.
        let skipped = match block.kind {
            BlockKind::ToolCall => says(&block.parts, output).count().saturating_sub(1),
            BlockKind::Text | BlockKind::Reasoning | BlockKind::File => 0,
        };
        let seen = says(&block.parts, output).skip(skipped);
        seen.map(|(part, as_text)| PartView { part, as_text, block: kinds.told(block.kind) })
    });
    write_artifact(out, &task.id, parts, dialect, |object| shared.write(object, None));
}

/// The artifact with some parts. There is always one: a reader who is told that everything is withdrawn is told so by an
/// empty text.
pub(super) fn write_artifact<'a>(
    out: &mut Vec<u8>,
    task: &TaskId,
    parts: impl Iterator<Item = PartView<'a>>,
    dialect: Dialect,
    write_metadata: impl FnOnce(&mut ObjectWriter<'_>),
) {
    let write_part = dialect.spelling().write_part;
    let mut object = ObjectWriter::begin(out);
    object.text("artifactId", &format!("{task}:stream"));
    object.text("name", "response");
    let mut parts = parts.peekable();
    if parts.peek().is_some() {
        object.array("parts", parts, write_part);
    } else {
        let empty = Part::text("");
        object.array("parts", [PartView { part: &empty, as_text: false, block: None }], write_part);
    }
    write_metadata(&mut object);
    object.end();
}

fn says<'a>(parts: &'a [Part], output: &'a OutputModes) -> impl Iterator<Item = (&'a Part, bool)> {
    seen_parts(parts, output).filter(|(part, _)| part.as_text() != Some(""))
}
