//! Encodes the stream artifact of a task. It contains all blocks except files, in the order in which they began.
//!
//! Each part names the kind of its block, because the parts may be of several kinds, and clients keep only the artifact metadata of
//! the first update. On REST, a part without a kind counts as text: before its version 0.3.5, the Python client refuses whole
//! responses and frames in which a part has metadata. So that client can read the output of agents that only write text. It fails
//! on tool calls and reasoning, unless they are hidden from its credential.

use longshore_model::{Artifact, BlockKind, OutputModes, Part, Task, TaskId};

use super::super::Dialect;
use crate::json::ObjectWriter;
use crate::spelling::PartView;
use crate::write::shared::Shared;
use crate::write::{View, seen_artifacts, seen_parts};

/// Whether the artifact has any content in this view.
pub(super) fn has_stream(task: &Task, view: View) -> bool {
    blocks(task, view).next().is_some()
}

/// The blocks that have any content in this view.
pub(super) fn blocks(task: &Task, view: View) -> impl Iterator<Item = &Artifact> {
    let blocks = seen_artifacts(task, view).filter(|block| block.kind != BlockKind::File);
    blocks.filter(|block| has_content(&block.parts, &task.options.output))
}

/// Whether the parts contain more than empty text.
pub(super) fn has_content(parts: &[Part], output: &OutputModes) -> bool {
    filled_parts(parts, output).next().is_some()
}

/// Whether each part names the kind of its block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PartKinds {
    Written,
    /// No part names its kind. Readers take such a part for text.
    Omitted,
}

impl PartKinds {
    /// The choice for a whole artifact.
    pub(super) fn for_artifact(task: &Task, view: View, dialect: Dialect) -> Self {
        let is_text = || blocks(task, view).all(|block| block.kind == BlockKind::Text);
        if dialect == Dialect::Rest && is_text() { Self::Omitted } else { Self::Written }
    }

    /// The choice if the artifact's metadata also names this block.
    pub(super) fn with_block(self, block: &Artifact) -> Self {
        if block.kind == BlockKind::Text { self } else { Self::Written }
    }

    /// The choice for an update of one block.
    pub(super) fn for_update(block: &Artifact, dialect: Dialect) -> Self {
        match dialect {
            Dialect::Rpc => Self::Written,
            Dialect::Rest => Self::Omitted.with_block(block),
        }
    }

    pub(super) fn written(self, kind: BlockKind) -> Option<BlockKind> {
        (self == Self::Written).then_some(kind)
    }
}

/// Writes the whole artifact.
pub(super) fn write_stream(
    out: &mut Vec<u8>,
    task: &Task,
    view: View,
    dialect: Dialect,
    kinds: PartKinds,
    shared: &Shared<'_>,
) {
    let output = &task.options.output;
    let parts = blocks(task, view).flat_map(|block| {
        // The last state of a tool call includes all earlier ones, so those are skipped.
        let skipped = match block.kind {
            BlockKind::ToolCall => filled_parts(&block.parts, output).count().saturating_sub(1),
            BlockKind::Text | BlockKind::Reasoning | BlockKind::File => 0,
        };
        let seen = filled_parts(&block.parts, output).skip(skipped);
        seen.map(|(part, as_text)| PartView { part, as_text, block: kinds.written(block.kind) })
    });
    write_artifact(out, &task.id, parts, dialect, |object| shared.write(object, None));
}

/// Writes the artifact with these parts. If all content was withdrawn, writes an empty text, because an artifact needs at least one
/// part.
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

fn filled_parts<'a>(parts: &'a [Part], output: &'a OutputModes) -> impl Iterator<Item = (&'a Part, bool)> {
    seen_parts(parts, output).filter(|(part, _)| part.as_text() != Some(""))
}
