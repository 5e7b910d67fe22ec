//! Tasks and events for the micro-benchmarks.

use longshore_model::{
    Artifact, ArtifactId, ArtifactUpdate, BlockKind, ContextId, Message, MessageId, Part, Role, TaskEvent,
    TaskId, Timestamp,
};

pub(super) const AT: Timestamp = Timestamp(1_794_713_880_705);
/// As long as one or two tokens.
pub(super) const DELTA: &str = "twenty-four bytes long. ";

pub(super) fn task_id(number: u64) -> TaskId {
    TaskId::parse(&format!("0197-a-task-{number:08}")).expect("letters, digits and hyphens are an id")
}

pub(super) fn context_id(number: u64) -> ContextId {
    ContextId::parse(&format!("0197-a-context-{number:08}")).expect("letters, digits and hyphens are an id")
}

pub(super) fn message(number: u64) -> Message {
    let id = MessageId::parse(&format!("message-{number}")).expect("letters, digits and hyphens are an id");
    Message::new(id, Role::User, vec![Part::text("What is this repository about?")])
}

/// The first event of a task.
pub(super) fn submitted(number: u64) -> TaskEvent {
    TaskEvent::submitted(context_id(number), message(number), AT)
}

/// More text of a block.
pub(super) fn delta() -> TaskEvent {
    let id = ArtifactId::parse("prt_1dd488911001LcPivcwdTIiwdE").expect("letters and digits are an id");
    let source = MessageId::parse("msg_1dd48889c0017P9Vq1VM4RTuCL").expect("letters and digits are an id");
    TaskEvent::Artifact(ArtifactUpdate {
        artifact: Artifact {
            id,
            kind: BlockKind::Text,
            source_message: Some(source),
            name: Some("response".to_owned()),
            description: None,
            parts: vec![Part::text(DELTA)],
            extensions: Vec::new(),
            metadata: None,
        },
        append: true,
        last_chunk: false,
        metadata: None,
    })
}
