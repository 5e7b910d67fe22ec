//! Model values for property tests. Every value here is one that the gateway could hold: ids keep the rule for ids, parts
//! are never missing, and optional text is not empty.

use longshore_model::{
    Artifact, ArtifactId, ArtifactUpdate, ContextId, Entry, Json, Message, MessageId, Metadata, Part,
    PartContent, Role, Seq, StatusUpdate, Task, TaskEvent, TaskId, TaskState, TaskStatus, Timestamp,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

/// Any text, control characters and line breaks included.
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
    value().prop_map(|value| Json::of(&value))
}

pub(crate) fn metadata() -> impl Strategy<Value = Metadata> {
    object_of(value()).prop_map(|object| Metadata::try_from(Json::of(&object)).unwrap())
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

pub(crate) fn message() -> impl Strategy<Value = Message> {
    let id = id().prop_map(|id| MessageId::parse(&id).unwrap());
    let role = prop_oneof![Just(Role::User), Just(Role::Agent)];
    let origin = (option::of(context_id()), option::of(task_id()), vec(task_id(), 0..3));
    let extras = (vec(text(), 0..3), option::weighted(0.3, metadata()));
    (id, role, vec(part(), 1..3), origin, extras).prop_map(
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
    let state = proptest::sample::select(TaskState::ALL.to_vec());
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
            metadata,
        },
    )
}

pub(crate) fn event() -> impl Strategy<Value = TaskEvent> {
    let submitted = (context_id(), message(), timestamp())
        .prop_map(|(context_id, message, at)| TaskEvent::Submitted { context_id, message, at });
    let status = (status(), option::of(metadata()))
        .prop_map(|(status, metadata)| TaskEvent::Status(StatusUpdate { status, metadata }));
    let update = (artifact(), any::<bool>(), any::<bool>(), option::of(metadata())).prop_map(
        |(artifact, append, last_chunk, metadata)| {
            TaskEvent::Artifact(ArtifactUpdate { artifact, append, last_chunk, metadata })
        },
    );
    prop_oneof![submitted, status, update]
}

pub(crate) fn entry() -> impl Strategy<Value = Entry> {
    (any::<u64>(), event()).prop_map(|(seq, event)| Entry { seq: Seq(seq), event })
}

fn object_of(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    vec((text(), inner), 0..3).prop_map(|fields| Value::Object(fields.into_iter().collect()))
}
