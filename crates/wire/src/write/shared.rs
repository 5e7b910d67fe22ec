//! Writes `metadata.shared`: the fields that the extensions add to a response, for clients that have activated the extensions.
//!
//! The names and structures are those of the Python gateway that this gateway replaces, so that its clients work unchanged.

use longshore_model::{
    Artifact, AskOption, AskOptions, BlockKind, ContextId, Cost, Expired, InterruptNote, InterruptPhase,
    Notes, Parent, PermissionReply, Progress, ProgressKind, Resolution, Seq, SessionNote, Task, TaskId,
    Usage,
};

use super::merge;
use crate::extension::Activated;
use crate::json::{ObjectWriter, on_one_line, write_number};
use crate::time::write_seconds;

/// The position of an event in the log of its task.
#[derive(Clone, Copy)]
pub(crate) struct EventPosition<'a> {
    pub(crate) task: &'a TaskId,
    pub(crate) context: &'a ContextId,
    pub(crate) seq: Seq,
}

/// The content of one `metadata.shared`, which is usually empty.
#[derive(Default)]
pub(crate) struct Shared<'a> {
    session: Option<&'a SessionNote>,
    usage: Option<&'a Usage>,
    progress: Option<&'a Progress>,
    interrupt: Option<&'a InterruptNote>,
    parent: Option<&'a Parent>,
    /// The model of a sub-agent, if the parent is not written.
    sub_agent_model: Option<&'a str>,
    block: Option<&'a Artifact>,
    position: Option<EventPosition<'a>>,
    /// The kind of the block to which a part belongs, in dialects that write it on each part.
    part_of: Option<BlockKind>,
    /// The reason for a status update. Only 0.3 has this field.
    source: Option<&'static str>,
}

impl<'a> Shared<'a> {
    pub(crate) fn of_status(notes: &'a Notes, position: EventPosition<'a>, activated: Activated) -> Self {
        Self {
            session: notes.session.as_ref().filter(|_| activated.shows_session()),
            usage: notes.usage.as_ref().filter(|_| activated.shows_stream()),
            progress: notes.progress.as_ref().filter(|_| activated.shows_stream()),
            interrupt: notes.interrupt.as_ref().filter(|_| activated.shows_interrupt()),
            sub_agent_model: notes.sub_agent_model.as_deref().filter(|_| activated.shows_stream()),
            position: activated.shows_stream().then_some(position),
            ..Self::default()
        }
    }

    /// Adds the reason for the status update.
    pub(crate) fn with_source(self) -> Self {
        let source = match (self.interrupt, self.progress) {
            (Some(_), _) => "interrupt",
            (None, Some(_)) => "progress",
            (None, None) => "status",
        };
        Self { source: Some(source), ..self }
    }

    /// The fields for a whole task. If several asks are open, shows the oldest one, because it should be answered first.
    pub(crate) fn of_task(task: &'a Task, activated: Activated) -> Self {
        Self {
            session: task.session.as_ref().filter(|_| activated.shows_session()),
            usage: task.usage.as_ref().filter(|_| activated.shows_stream()),
            interrupt: task.open_asks.first().filter(|_| activated.shows_interrupt()),
            ..Self::of_submitted(task.parent.as_deref(), activated)
        }
    }

    pub(crate) fn of_submitted(parent: Option<&'a Parent>, activated: Activated) -> Self {
        Self { parent: parent.filter(|_| activated.shows_stream()), ..Self::default() }
    }

    /// The fields for a block. `position`: the position of the update; `None` for a block in a whole task. A file gets no fields,
    /// because it is not part of the agent's stream.
    pub(crate) fn of_block(
        block: &'a Artifact,
        position: Option<EventPosition<'a>>,
        activated: Activated,
    ) -> Self {
        if !activated.shows_stream() || block.kind == BlockKind::File {
            return Self::default();
        }
        Self { block: Some(block), position, ..Self::default() }
    }

    pub(crate) fn of_part(block: Option<BlockKind>) -> Self {
        Self { part_of: block, ..Self::default() }
    }

    /// Writes the key `metadata` with the given metadata and `shared` in it, unless there is nothing to write.
    pub(crate) fn write(&self, object: &mut ObjectWriter<'_>, metadata: Option<&str>) {
        if !self.is_empty() {
            merge::write(object.key("metadata"), metadata, "shared", |shared| self.write_notes(shared));
        } else if let Some(metadata) = metadata {
            object.key("metadata").extend_from_slice(on_one_line(metadata).as_bytes());
        }
    }

    fn is_empty(&self) -> bool {
        let Self { session, usage, progress, interrupt, parent, block, position, part_of, .. } = self;
        session.is_none()
            && usage.is_none()
            && progress.is_none()
            && interrupt.is_none()
            && parent.is_none()
            && self.sub_agent_model.is_none()
            && block.is_none()
            && position.is_none()
            && part_of.is_none()
    }

    fn write_notes(&self, shared: &mut ObjectWriter<'_>) {
        if let Some(session) = self.session {
            shared.object("session", |object| {
                object.text("id", session.id.as_str());
                object.some_text("title", session.title.as_deref());
            });
        }
        if let Some(usage) = self.usage {
            shared.object("usage", |object| write_usage(object, usage));
        }
        if let Some(progress) = self.progress {
            shared.object("progress", |object| write_progress(object, progress));
        }
        if let Some(interrupt) = self.interrupt {
            shared.object("interrupt", |object| write_interrupt(object, interrupt));
        }
        if let Some(parent) = self.parent {
            shared.object("parent", |object| {
                object.text("task_id", parent.task.as_str());
                object.some_text("call_id", parent.call.as_deref());
                object.number("depth", parent.depth);
            });
            if parent.kind.is_some() || parent.model.is_some() {
                shared.object("subagent", |object| {
                    object.some_text("type", parent.kind.as_deref());
                    object.some_text("model", parent.model.as_deref());
                });
            }
        }
        if let Some(model) = self.sub_agent_model {
            shared.object("subagent", |object| object.text("model", model));
        }
        if self.block.is_some() || self.position.is_some() {
            shared.object("stream", |object| {
                object.some_text("source", self.source);
                write_stream(object, self.block, self.position);
            });
        }
        if let Some(kind) = self.part_of {
            shared.object("stream", |object| object.text("block_type", kind.as_str()));
        }
    }
}

fn write_stream(
    object: &mut ObjectWriter<'_>,
    block: Option<&Artifact>,
    position: Option<EventPosition<'_>>,
) {
    if let Some(block) = block {
        object.text("block_type", block.kind.as_str());
        object.text(
            "source",
            match block.kind {
                BlockKind::Text | BlockKind::Reasoning | BlockKind::File => "stream",
                BlockKind::ToolCall => "tool_part_update",
            },
        );
        if let Some(message) = &block.source_message {
            object.text("message_id", message.as_str());
        }
    }
    if let Some(EventPosition { task, context, seq }) = position {
        // Ids contain no character that needs escaping.
        write_number(object.key("event_id"), format_args!("\"{task}:{context}:{task}:stream:{seq}\""));
        object.number("sequence", seq.0);
    }
    if block.is_some() {
        object.text("role", "agent");
    }
}

fn write_usage(object: &mut ObjectWriter<'_>, usage: &Usage) {
    let Usage { input, output, total, reasoning, cache_read, cache_write, cost } = *usage;
    object.number("input_tokens", input);
    object.number("output_tokens", output);
    object.number("total_tokens", total);
    object.number("reasoning_tokens", reasoning);
    object.object("cache_tokens", |cache| {
        cache.number("read_tokens", cache_read);
        cache.number("write_tokens", cache_write);
    });
    write_cost(object.key("cost"), cost);
}

/// Writes the exact decimal number, because a float cannot represent every cost.
fn write_cost(out: &mut Vec<u8>, Cost(billionths): Cost) {
    const UNIT: u64 = 1_000_000_000;
    write_number(out, billionths / UNIT);
    let rest = billionths % UNIT;
    if rest > 0 {
        write_number(out, format_args!(".{rest:09}"));
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}

fn write_progress(object: &mut ObjectWriter<'_>, progress: &Progress) {
    object.text(
        "type",
        match progress.kind {
            ProgressKind::StepStarted => "step-start",
            ProgressKind::StepFinished => "step-finish",
            ProgressKind::Retry => "retry",
            ProgressKind::Compaction => "compaction",
            ProgressKind::Todos => "todos",
            ProgressKind::Settings => "settings",
        },
    );
    if let Some(details) = &progress.details {
        merge::write_all_but(object, details.get(), "type");
    }
}

fn write_interrupt(object: &mut ObjectWriter<'_>, note: &InterruptNote) {
    object.text("request_id", note.request_id.as_str());
    object.text("type", note.kind.as_str());
    match note.phase {
        InterruptPhase::Asked => object.text("phase", "asked"),
        InterruptPhase::Resolved(resolution) => {
            object.text("phase", "resolved");
            object.text("resolution", answer_word(note, resolution));
            object.text("outcome", resolution.as_str());
        }
    }
    if let Some(Expired { deadline, answer, call: _ }) = &note.expired {
        write_seconds(object.key("expires_at"), *deadline);
        object.text("answer", answer.as_str());
    }
    if let Some(details) = &note.details {
        object.json("details", details);
    }
    write_options(object, &note.options);
}

/// Writes the answers that an agent offers, if there are any to show.
pub(crate) fn write_options(object: &mut ObjectWriter<'_>, options: &AskOptions) {
    if options.is_empty() {
        return;
    }
    object.array("options", options.iter(), |out, AskOption { id, name, kind }| {
        let mut option = ObjectWriter::begin(out);
        option.text("id", id);
        option.text("name", name);
        option.text("kind", kind.as_str());
        option.end();
    });
}

/// Reduces a resolution to the two outcomes that every client knows: the ask was answered, or the agent did not get what it asked
/// for.
fn answer_word(note: &InterruptNote, resolution: Resolution) -> &'static str {
    let is_granted = note.expired.as_ref().is_some_and(|expired| expired.answer != PermissionReply::Reject);
    match resolution {
        Resolution::Expired if is_granted => "replied",
        Resolution::Replied | Resolution::Elsewhere | Resolution::Approved => "replied",
        Resolution::Rejected | Resolution::RejectedElsewhere | Resolution::Expired | Resolution::Dropped => {
            "rejected"
        }
    }
}
