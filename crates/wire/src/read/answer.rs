//! Decodes responses of an agent, for an A2A client: tasks, pages and the events of a stream.
//!
//! The data of the extensions stays unchanged in the metadata. Two values are also parsed from it: the kind of a block and the
//! output modes of a task.

use longshore_model::{
    Artifact, ArtifactId, ArtifactUpdate, BlockKind, ContextId, Error, ErrorKind, Message, Metadata,
    OutputModes, Result, StatusUpdate, Task, TaskEvent, TaskId, TaskOptions, TaskState, TaskStatus,
};
use serde_json::value::RawValue;

use super::id;
use super::message::message;
use crate::json::{Fault, Object, Read, boolean, carried_metadata, count, int32, list, some_text, text};
use crate::names::AGENT_OBJECT;
use crate::spelling::Spelling;
use crate::time;

/// One event of a stream, or the result of a send.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "a client has one at a time")]
pub enum StreamEvent {
    Task(Task),
    Message(Message),
    Status { task_id: TaskId, context_id: ContextId, update: StatusUpdate },
    Artifact { task_id: TaskId, context_id: ContextId, update: ArtifactUpdate },
}

impl StreamEvent {
    /// Converts a frame back into the log event from which it was made. `None`: a snapshot of a task or a bare message, which no
    /// log contains.
    pub fn into_event(self) -> Option<TaskEvent> {
        match self {
            Self::Task(Task { context_id, status, mut history, options, parent, .. })
                if status.state == TaskState::Submitted && history.len() == 1 =>
            {
                let (message, at) = (history.pop()?, status.at);
                Some(TaskEvent::Submitted { context_id, message, at, options, parent })
            }
            Self::Task(_) | Self::Message(_) => None,
            Self::Status { update, .. } => Some(TaskEvent::Status(update.into())),
            Self::Artifact { update, .. } => Some(TaskEvent::Artifact(update)),
        }
    }
}

/// The response to `ListTasks`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskPage {
    pub tasks: Vec<Task>,
    /// The token of the next page. Empty on the last page.
    pub next_page_token: String,
    pub page_size: u32,
    pub total: u32,
}

/// Reads a stream event, or the response to a send, whose kind is given by a key: `{"task": …}` and so on.
pub(crate) fn wrapped_event(json: &str, spelling: &Spelling) -> Result<StreamEvent> {
    answer(json, &["task", "message", "statusUpdate", "artifactUpdate"], |event| {
        let arms = [
            event.optional("task", |raw| task_value(raw, spelling).map(StreamEvent::Task))?,
            event.optional("message", |raw| message(raw, spelling).map(StreamEvent::Message))?,
            event.optional("statusUpdate", |raw| status_update(raw, spelling))?,
            event.optional("artifactUpdate", |raw| artifact_update(raw, spelling))?,
        ];
        let mut arms = arms.into_iter().flatten();
        match (arms.next(), arms.next()) {
            (Some(event), None) => Ok(event),
            _ => Err(Fault::new("must have exactly one of task, message, statusUpdate and artifactUpdate")),
        }
    })
}

/// Reads a stream event, or the response to a send, whose kind is given by the field `kind`.
pub(crate) fn tagged_event(json: &str, spelling: &Spelling) -> Result<StreamEvent> {
    answer(json, &["kind"], |event| {
        let kind = event.required("kind", text)?;
        let raw: &RawValue = serde_json::from_str(json).map_err(|_| Fault::new("must be JSON"))?;
        match kind.as_str() {
            "task" => task_value(raw, spelling).map(StreamEvent::Task),
            "message" => message(raw, spelling).map(StreamEvent::Message),
            "status-update" => status_update(raw, spelling),
            "artifact-update" => artifact_update(raw, spelling),
            _ => Err(Fault::new("must be task, message, status-update or artifact-update").under("kind")),
        }
    })
}

pub(crate) fn task(json: &str, spelling: &Spelling) -> Result<Task> {
    answer(json, TASK_FIELDS, |task| task_fields(task, spelling))
}

pub(crate) fn task_page(json: &str, spelling: &Spelling) -> Result<TaskPage> {
    answer(json, &["tasks", "nextPageToken", "pageSize", "totalSize"], |page| {
        let number = |raw: &RawValue| count(int32(raw)?);
        Ok(TaskPage {
            tasks: page.list("tasks", |raw| task_value(raw, spelling))?,
            next_page_token: page.optional("nextPageToken", text)?.unwrap_or_default(),
            page_size: page.optional("pageSize", number)?.unwrap_or_default(),
            total: page.optional("totalSize", number)?.unwrap_or_default(),
        })
    })
}

const TASK_FIELDS: &[&str] = &["id", "contextId", "status", "artifacts", "history", "metadata"];

fn answer<T>(
    json: &str,
    known: &'static [&'static str],
    read: impl FnOnce(&Object<'_>) -> Read<T>,
) -> Result<T> {
    let object = Object::parse(json, known).map_err(|error| {
        Error::new(ErrorKind::InvalidAgentResponse, "The answer is no JSON object.").caused_by(error)
    })?;
    read(&object).map_err(Fault::into_answer_error)
}

fn task_value(raw: &RawValue, spelling: &Spelling) -> Read<Task> {
    task_fields(&Object::read(raw, TASK_FIELDS)?, spelling)
}

fn task_fields(task: &Object<'_>, spelling: &Spelling) -> Read<Task> {
    let metadata = task.optional("metadata", carried_metadata)?;
    let output = metadata.as_ref().and_then(output_modes).unwrap_or_default();
    Ok(Task {
        id: task.required("id", task_id)?,
        context_id: task.required("contextId", context_id)?,
        status: task.required("status", |raw| status(raw, spelling))?,
        artifacts: task.list("artifacts", |raw| artifact(raw, spelling))?,
        history: task.list("history", |raw| message(raw, spelling))?,
        session: None,
        usage: None,
        open_asks: Vec::new(),
        expired_asks: Vec::new(),
        options: Box::new(TaskOptions { output, ..TaskOptions::default() }),
        // The metadata contains only some fields of the parent, so it cannot be restored.
        parent: None,
        metadata,
    })
}

fn status(raw: &RawValue, spelling: &Spelling) -> Read<TaskStatus> {
    let status = Object::read(raw, &["state", "message", "timestamp"])?;
    Ok(TaskStatus {
        state: status.required("state", |raw| {
            (spelling.state)(raw)?.value().ok_or_else(|| Fault::new("must not be unspecified"))
        })?,
        at: status.required("timestamp", |raw| {
            let moment = time::parse(&text(raw)?);
            moment.map(|moment| moment.floor).ok_or_else(|| Fault::new("must be an RFC 3339 time"))
        })?,
        message: status.optional("message", |raw| message(raw, spelling))?,
    })
}

fn artifact(raw: &RawValue, spelling: &Spelling) -> Read<Artifact> {
    let known = &["artifactId", "name", "description", "parts", "metadata", "extensions"];
    let artifact = Object::read(raw, known)?;
    let metadata = artifact.optional("metadata", carried_metadata)?;
    Ok(Artifact {
        id: artifact.required("artifactId", |raw| id(&text(raw)?, ArtifactId::parse))?,
        kind: metadata.as_ref().and_then(block_kind).unwrap_or(BlockKind::Text),
        source_message: None,
        name: artifact.optional("name", some_text)?.flatten(),
        description: artifact.optional("description", some_text)?.flatten(),
        parts: artifact.filled_list("parts", spelling.read_part)?,
        extensions: artifact.list("extensions", text)?,
        metadata,
    })
}

/// Reads the output modes from [`crate::names::OUTPUT_MODES_FIELD`].
fn output_modes(metadata: &Metadata) -> Option<OutputModes> {
    let of_agent = member(metadata.json().raw(), &[AGENT_OBJECT])?;
    let negotiation = member(of_agent, &["output_negotiation"])?;
    let modes = list(member(negotiation, &["accepted_output_modes"])?, text).ok()?;
    Some(OutputModes::new(modes.iter().map(String::as_str)))
}

/// Reads `shared.stream.block_type`, which only a client with the stream hints extension receives.
fn block_kind(metadata: &Metadata) -> Option<BlockKind> {
    let stream = member(member(metadata.json().raw(), &["shared"])?, &["stream"])?;
    let word = text(member(stream, &["block_type"])?).ok()?;
    let kinds = [BlockKind::Text, BlockKind::Reasoning, BlockKind::ToolCall];
    kinds.into_iter().find(|kind| kind.as_str() == word)
}

/// The only known field of an object. `None`: the object lacks it, or the value is not an object.
fn member<'a>(raw: &'a RawValue, name: &'static [&'static str; 1]) -> Option<&'a RawValue> {
    Object::read(raw, name).ok()?.raw(name[0])
}

fn status_update(raw: &RawValue, spelling: &Spelling) -> Read<StreamEvent> {
    let event = Object::read(raw, &["taskId", "contextId", "status", "metadata"])?;
    Ok(StreamEvent::Status {
        task_id: event.required("taskId", task_id)?,
        context_id: event.required("contextId", context_id)?,
        update: StatusUpdate {
            metadata: event.optional("metadata", carried_metadata)?,
            ..StatusUpdate::new(event.required("status", |raw| status(raw, spelling))?)
        },
    })
}

fn artifact_update(raw: &RawValue, spelling: &Spelling) -> Read<StreamEvent> {
    let known = &["taskId", "contextId", "artifact", "append", "lastChunk", "metadata"];
    let event = Object::read(raw, known)?;
    Ok(StreamEvent::Artifact {
        task_id: event.required("taskId", task_id)?,
        context_id: event.required("contextId", context_id)?,
        update: ArtifactUpdate {
            artifact: event.required("artifact", |raw| artifact(raw, spelling))?,
            append: event.optional("append", boolean)?.unwrap_or(false),
            last_chunk: event.optional("lastChunk", boolean)?.unwrap_or(false),
            metadata: event.optional("metadata", carried_metadata)?,
        },
    })
}

fn task_id(raw: &RawValue) -> Read<TaskId> {
    id(&text(raw)?, TaskId::parse)
}

fn context_id(raw: &RawValue) -> Read<ContextId> {
    id(&text(raw)?, ContextId::parse)
}
