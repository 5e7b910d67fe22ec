//! Model values for property tests. The gateway could hold each of them: ids are valid, there is at least one part, and optional
//! text is not empty.
//!
//! Plain values contain only what every client sees, so they can be read back unchanged. Noted values contain all fields.

use longshore_model::{
    Artifact, ArtifactId, ArtifactUpdate, AskKind, AskOption, AskOptions, BlockKind, ContextId, Cost, Entry,
    Epoch, InterruptNote, InterruptPhase, Json, Message, MessageId, Metadata, Notes, OptionKind, OutputModes,
    Parent, Part, PartContent, Progress, ProgressKind, PromptOptions, RequestId, Resolution, Role, Seq,
    SessionId, SessionNote, StatusUpdate, Task, TaskEvent, TaskId, TaskOptions, TaskState, TaskStatus,
    Timestamp, Usage,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

/// Any text, including control characters and line breaks.
pub(crate) fn text() -> impl Strategy<Value = String> {
    "(?s).{0,12}"
}

pub(crate) fn some_text() -> impl Strategy<Value = String> {
    "(?s).{1,12}"
}

pub(crate) fn id() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_.:-]{1,12}"
}

pub(crate) fn task_id() -> impl Strategy<Value = TaskId> {
    id().prop_map(|id| TaskId::parse(&id).unwrap())
}

pub(crate) fn context_id() -> impl Strategy<Value = ContextId> {
    id().prop_map(|id| ContextId::parse(&id).unwrap())
}

pub(crate) fn timestamp() -> impl Strategy<Value = Timestamp> {
    // The years 1 to 9999.
    (-62_135_596_800_000..=253_402_300_799_999_i64).prop_map(Timestamp)
}

pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e300..1e300_f64).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![vec(inner.clone(), 0..3).prop_map(Value::from), object_of(inner)]
    })
}

pub(crate) fn json() -> impl Strategy<Value = Json> {
    value().prop_map(|value| Json::from_value(&value))
}

pub(crate) fn metadata() -> impl Strategy<Value = Metadata> {
    object_of(value()).prop_map(|object| Metadata::try_from(Json::from_value(&object)).unwrap())
}

pub(crate) fn part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        4 => text().prop_map(PartContent::Text),
        1 => vec(any::<u8>(), 0..12).prop_map(PartContent::Raw),
        1 => text().prop_map(PartContent::Url),
        2 => json().prop_map(PartContent::Data),
    ];
    let optional = (option::of(some_text()), option::of(some_text()), option::weighted(0.2, metadata()));
    (content, optional).prop_map(|(content, (media_type, filename, metadata))| Part {
        content,
        media_type,
        filename,
        metadata,
    })
}

pub(crate) fn message_id() -> impl Strategy<Value = MessageId> {
    id().prop_map(|id| MessageId::parse(&id).unwrap())
}

pub(crate) fn message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![Just(Role::User), Just(Role::Agent)];
    let origin = (option::of(context_id()), option::of(task_id()), vec(task_id(), 0..3));
    let extras = (vec(text(), 0..3), option::weighted(0.3, metadata()));
    (message_id(), role, vec(part(), 1..3), origin, extras).prop_map(
        |(id, role, parts, (context_id, task_id, reference_task_ids), (extensions, metadata))| Message {
            id,
            role,
            parts,
            context_id,
            task_id,
            reference_task_ids,
            extensions,
            metadata,
        },
    )
}

pub(crate) fn status() -> impl Strategy<Value = TaskStatus> {
    let state = select(TaskState::ALL.to_vec());
    (state, timestamp(), option::of(message())).prop_map(|(state, at, message)| TaskStatus {
        state,
        at,
        message,
    })
}

pub(crate) fn artifact() -> impl Strategy<Value = Artifact> {
    let id = id().prop_map(|id| ArtifactId::parse(&id).unwrap());
    let names = (option::of(some_text()), option::of(some_text()));
    let extras = (vec(text(), 0..2), option::weighted(0.3, metadata()));
    (id, names, vec(part(), 1..3), extras).prop_map(
        |(id, (name, description), parts, (extensions, metadata))| Artifact {
            id,
            kind: BlockKind::Text,
            source_message: None,
            name,
            description,
            parts,
            extensions,
            metadata,
        },
    )
}

pub(crate) fn task() -> impl Strategy<Value = Task> {
    let body = (vec(artifact(), 0..3), vec(message(), 0..3), option::of(metadata()));
    (task_id(), context_id(), status(), body).prop_map(
        |(id, context_id, status, (artifacts, history, metadata))| Task {
            id,
            context_id,
            status,
            artifacts,
            history,
            session: None,
            usage: None,
            open_asks: Vec::new(),
            expired_asks: Vec::new(),
            options: Box::default(),
            parent: None,
            metadata,
        },
    )
}

pub(crate) fn event() -> impl Strategy<Value = TaskEvent> {
    let submitted = (context_id(), message(), timestamp())
        .prop_map(|(context_id, message, at)| TaskEvent::submitted(context_id, message, at));
    let status = (status(), option::of(metadata())).prop_map(|(status, metadata)| {
        TaskEvent::Status(Box::new(StatusUpdate { metadata, ..StatusUpdate::new(status) }))
    });
    let update = (artifact(), any::<bool>(), any::<bool>(), option::of(metadata())).prop_map(
        |(artifact, append, last_chunk, metadata)| {
            TaskEvent::Artifact(ArtifactUpdate { artifact, append, last_chunk, metadata })
        },
    );
    prop_oneof![submitted, status, update]
}

pub(crate) fn entry() -> impl Strategy<Value = Entry> {
    (any::<u64>(), event()).prop_map(|(seq, event)| Entry { seq: Seq(seq), epoch: Epoch(1), event })
}

/// A task whose artifacts are blocks of every kind.
pub(crate) fn blocks() -> impl Strategy<Value = Task> {
    (task(), vec(block(), 3)).prop_map(|(mut task, kinds)| {
        for (artifact, (kind, _)) in task.artifacts.iter_mut().zip(kinds) {
            artifact.kind = kind;
        }
        task
    })
}

/// A task, and the same task with notes.
pub(crate) fn noted_task() -> impl Strategy<Value = (Task, Task)> {
    let beside = (option::of(session_note()), option::of(usage()), vec(interrupt_note(), 0..3));
    let child = (option::of(parent()), prompt_options());
    (task(), beside, child, block()).prop_map(
        |(plain, (session, usage, open_asks), (parent, prompt), block)| {
            let options = Box::new(TaskOptions { prompt, ..TaskOptions::default() });
            let mut noted = Task { session, usage, open_asks, options, parent, ..plain.clone() };
            for artifact in &mut noted.artifacts {
                (artifact.kind, artifact.source_message) = block.clone();
            }
            (plain, noted)
        },
    )
}

/// An event, and the same event with notes.
pub(crate) fn noted_entry() -> impl Strategy<Value = (Entry, Entry)> {
    let child = (option::of(parent()), prompt_options());
    (entry(), notes(), option::of(message()), child, block()).prop_map(
        |(plain, notes, joined, child, block)| {
            let mut noted = plain.clone();
            match &mut noted.event {
                TaskEvent::Submitted { parent, options, .. } => (*parent, options.prompt) = child,
                TaskEvent::Status(update) => (update.notes, update.joined) = (notes, joined),
                TaskEvent::Artifact(update) => {
                    (update.artifact.kind, update.artifact.source_message) = block;
                }
            }
            (plain, noted)
        },
    )
}

/// The output modes that a caller accepts. An empty list accepts all modes. `x/y` matches no generated part.
pub(crate) fn output_modes() -> impl Strategy<Value = OutputModes> {
    let modes =
        ["text/plain", "application/json", "application/octet-stream", "image/*", "text/*", "x/y", "*/*"];
    proptest::sample::subsequence(modes.to_vec(), 0..4).prop_map(OutputModes::new)
}

fn parent() -> impl Strategy<Value = Box<Parent>> {
    let ids = (task_id(), task_id(), id());
    let texts = (option::of(some_text()), option::of(some_text()), option::of(some_text()));
    (ids, texts, 1..9_u32).prop_map(|((root, task, session), (call, kind, model), depth)| {
        let session = SessionId::parse(&session).unwrap();
        Box::new(Parent { root, task, call, depth, session, kind, model })
    })
}

fn prompt_options() -> impl Strategy<Value = PromptOptions> {
    option::of(some_text()).prop_map(|agent| PromptOptions { agent, ..PromptOptions::default() })
}

fn notes() -> impl Strategy<Value = Notes> {
    use ProgressKind::{Compaction, Retry, Settings, StepFinished, StepStarted, Todos};
    let kind = select(vec![StepStarted, StepFinished, Retry, Compaction, Todos, Settings]);
    let progress = (kind, option::of(object())).prop_map(|(kind, details)| Progress { kind, details });
    let status = (option::of(session_note()), option::of(usage()), option::of(progress));
    (status, option::of(interrupt_note()), option::of(some_text())).prop_map(
        |((session, usage, progress), interrupt, sub_agent_model)| Notes {
            session,
            usage,
            progress,
            interrupt,
            sub_agent_model,
        },
    )
}

fn session_note() -> impl Strategy<Value = SessionNote> {
    (id(), option::of(text()))
        .prop_map(|(id, title)| SessionNote { id: SessionId::parse(&id).unwrap(), title })
}

fn usage() -> impl Strategy<Value = Usage> {
    any::<[u64; 7]>().prop_map(|[input, output, total, reasoning, cache_read, cache_write, cost]| Usage {
        input,
        output,
        total,
        reasoning,
        cache_read,
        cache_write,
        cost: Cost(cost),
    })
}

fn interrupt_note() -> impl Strategy<Value = InterruptNote> {
    let kind = select(vec![AskKind::Permission, AskKind::Question]);
    let phase = prop_oneof![
        Just(InterruptPhase::Asked),
        select(Resolution::ALL.to_vec()).prop_map(InterruptPhase::Resolved),
    ];
    let note = (id(), kind, phase, option::of(object()), ask_options());
    note.prop_map(|(id, kind, phase, details, options)| InterruptNote {
        request_id: RequestId::parse(&id).unwrap(),
        kind,
        phase,
        details,
        options,
        expired: None,
    })
}

fn ask_options() -> impl Strategy<Value = AskOptions> {
    let option = (text(), text(), select(OptionKind::ALL.to_vec())).prop_map(|(id, name, kind)| AskOption {
        id,
        name,
        kind,
    });
    vec(option, 0..3).prop_map(AskOptions::new)
}

/// The kind of a block, and the message to which it belongs.
fn block() -> impl Strategy<Value = (BlockKind, Option<MessageId>)> {
    let kind = select(vec![BlockKind::Text, BlockKind::Reasoning, BlockKind::ToolCall, BlockKind::File]);
    (kind, option::of(message_id()))
}

fn object() -> impl Strategy<Value = Json> {
    metadata().prop_map(Json::from)
}

fn object_of(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    vec((text(), inner), 0..3).prop_map(|fields| Value::Object(fields.into_iter().collect()))
}
