//! Encodes responses and stream events of 0.3, each on one line. All fields of `metadata.shared` are written, because 0.3 needs no
//! activation of extensions. `metadata.iac_code` is not written.

use bytes::Bytes;
use longshore_model::{
    Artifact, BlockKind, Message, MessageId, Part, PushConfig, Role, Task, TaskState, TaskStatus,
};

use self::artifact::{PartKinds, has_stream, write_stream};
use super::Dialect;
use crate::extension::Activated;
use crate::json::{ObjectWriter, write_array};
use crate::write::push;
use crate::write::shared::Shared;
use crate::write::{
    seen_artifacts, seen_parts, size_of_task, write_artifact, write_kind, write_names, write_page,
    write_state, write_task_head, write_task_tail,
};

mod artifact;
mod stream;
#[cfg(test)]
mod tests;

pub use self::stream::{FORMS, Frame, HasArtifact, Step, Stream, TaskFrame};
pub use crate::write::{Gap, View};

/// Encodes a bare task, which is the response to getting and canceling a task.
pub fn task(task: &Task, view: View, dialect: Dialect) -> Bytes {
    let view = ungated(view);
    let mut out = Vec::with_capacity(size_of_task(task, view));
    write_task(&mut out, task, view, dialect, StatusMessage::WithAnswer, None);
    out.into()
}

/// Encodes the response to a send: on JSON-RPC the task itself, on REST `{"task": …}`.
pub fn send_response(task: &Task, view: View, dialect: Dialect) -> Bytes {
    stream_task(task, view, dialect, None)
}

/// Encodes a page of a list, with the same four fields in both dialects.
pub fn list_response(
    tasks: &[Task],
    view: View,
    dialect: Dialect,
    next_page_token: &str,
    page_size: u32,
    total: u64,
) -> Bytes {
    let view = ungated(view);
    let size = tasks.iter().map(|task| size_of_task(task, view)).sum::<usize>();
    let mut out = Vec::with_capacity(size + 160);
    write_page(&mut out, tasks, next_page_token, page_size, total, |out, task| {
        write_task(out, task, view, dialect, StatusMessage::Stored, None);
    });
    out.into()
}

/// Encodes a push configuration without its secrets.
pub fn push_config(config: &PushConfig, dialect: Dialect) -> Bytes {
    let mut out = Vec::with_capacity(256);
    write_push_config(&mut out, config, dialect);
    out.into()
}

/// Encodes the push configurations of a task. JSON-RPC has no pages, so its result is the list itself.
pub fn push_page(configs: &[PushConfig], next_page_token: &str, dialect: Dialect) -> Bytes {
    let mut out = Vec::with_capacity(64 + 256 * configs.len());
    let write = |out: &mut Vec<u8>, config: &PushConfig| write_push_config(out, config, dialect);
    match dialect {
        Dialect::Rpc => write_array(&mut out, configs, write),
        Dialect::Rest => push::write_page(&mut out, configs, next_page_token, write),
    }
    out.into()
}

/// Encodes the response to a deletion. On JSON-RPC the result is `null`, because clients look for the key.
pub fn deleted(dialect: Dialect) -> Bytes {
    Bytes::from_static(match dialect {
        Dialect::Rpc => &b"null"[..],
        Dialect::Rest => &b"{}"[..],
    })
}

fn write_push_config(out: &mut Vec<u8>, config: &PushConfig, dialect: Dialect) {
    let mut object = ObjectWriter::begin(out);
    match dialect {
        Dialect::Rpc => object.text("taskId", config.task.as_str()),
        Dialect::Rest => {
            object.text("name", &format!("tasks/{}/pushNotificationConfigs/{}", config.task, config.id));
        }
    }
    push::write_inner(&mut object, config);
    object.end();
}

/// Encodes a snapshot as a frame of a stream. With a gap, the task's metadata says which events the reader missed.
pub fn stream_task(task: &Task, view: View, dialect: Dialect, gap: Option<Gap>) -> Bytes {
    let view = ungated(view);
    let mut out = Vec::with_capacity(size_of_task(task, view) + 16);
    match dialect {
        Dialect::Rpc => write_task(&mut out, task, view, dialect, StatusMessage::WithAnswer, gap),
        Dialect::Rest => {
            let mut response = ObjectWriter::begin(&mut out);
            write_task(response.key("task"), task, view, dialect, StatusMessage::WithAnswer, gap);
            response.end();
        }
    }
    out.into()
}

/// Adds the extensions that are always active in 0.3 to the view.
fn ungated(view: View) -> View {
    View { activated: Activated::SHOWN_IN_V03, ..view }
}

/// Which message the status of a task contains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StatusMessage {
    /// The stored message.
    Stored,
    /// The stored message. If there is none, the agent's answer, which 0.3 clients expect there.
    WithAnswer,
}

fn write_task(
    out: &mut Vec<u8>,
    task: &Task,
    view: View,
    dialect: Dialect,
    status_message: StatusMessage,
    gap: Option<Gap>,
) {
    let spelling = dialect.spelling();
    let mut object = ObjectWriter::begin(out);
    write_kind(&mut object, "task", spelling);
    match (status_message == StatusMessage::WithAnswer).then(|| answer(task, view)).flatten() {
        None => write_task_head(&mut object, task, spelling),
        Some(answer) => {
            let TaskStatus { state, at, .. } = task.status;
            write_names(&mut object, ["id", "contextId"], &task.id, &task.context_id);
            object.object("status", |object| {
                write_state(object, state, at, Some(&answer), &task.options.output, spelling);
            });
        }
    }
    if view.artifacts {
        object.some_array("artifacts", artifacts(task, view), |out, shown| match shown {
            Shown::Stream => {
                let kinds = PartKinds::for_artifact(task, view, dialect);
                write_stream(out, task, view, dialect, kinds, &Shared::default());
            }
            Shown::File(file) => {
                write_artifact(out, file, &Shared::default(), &task.options.output, spelling);
            }
        });
    }
    write_task_tail(&mut object, task, view, gap, spelling);
    object.end();
}

/// The agent's whole text in a completed task, as one message.
fn answer(task: &Task, view: View) -> Option<Message> {
    if task.status.state != TaskState::Completed || task.status.message.is_some() {
        return None;
    }
    let text_blocks = || seen_artifacts(task, view).filter(|block| block.kind == BlockKind::Text);
    let parts = text_blocks().flat_map(|block| seen_parts(&block.parts, &task.options.output));
    let text: String = parts.filter_map(|(part, _)| part.as_text()).collect();
    let text = Some(text.trim()).filter(|text| !text.is_empty())?;
    let source = text_blocks().filter_map(|block| block.source_message.clone()).last();
    let generated = || MessageId::parse(&format!("{}:{}:assistant", task.id, task.context_id)).ok();
    let id = source.or_else(generated).or_else(|| MessageId::parse(task.id.as_str()).ok())?;
    Some(Message {
        task_id: Some(task.id.clone()),
        context_id: Some(task.context_id.clone()),
        ..Message::new(id, Role::Agent, vec![Part::text(text)])
    })
}

/// An artifact of a task in 0.3.
enum Shown<'a> {
    /// The stream artifact, which contains all blocks except files.
    Stream,
    File(&'a Artifact),
}

fn artifacts(task: &Task, view: View) -> impl Iterator<Item = Shown<'_>> {
    let stream = has_stream(task, view).then_some(Shown::Stream);
    let files = seen_artifacts(task, view).filter(|artifact| artifact.kind == BlockKind::File);
    stream.into_iter().chain(files.map(Shown::File))
}
