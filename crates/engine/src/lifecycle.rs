//! What an agent's report means for a task. Pure: no clock, no IO, nothing that can fail.

use longshore_model::{
    AgentEvent, Artifact, ArtifactId, ArtifactUpdate, Ask, AskKind, BlockKind, Failure, Json, Message,
    MessageId, Metadata, Outcome, Part, Role, StatusUpdate, Task, TaskEvent, TaskState, TaskStatus,
    Timestamp, ToolCall, ToolStatus,
};
use serde::Serialize;

/// The event that this report becomes in the log of `task`. `None` when it changes nothing.
pub(crate) fn apply(task: &Task, report: AgentEvent, now: Timestamp) -> Option<TaskEvent> {
    if task.status.state.is_terminal() {
        // The first terminal state stands; what the agent says after it is late.
        return None;
    }
    Some(match report {
        AgentEvent::Text { block, kind, text } => {
            let append = task.artifact(block.as_str()).is_some();
            text_update(block, kind, text, append, false)
        }
        AgentEvent::TextReplaced { block, kind, text } => text_update(block, kind, text, false, false),
        AgentEvent::TextEnded { block, kind } => {
            // A block that never had text has nothing to end.
            task.artifact(block.as_str())?;
            text_update(block, kind, String::new(), true, true)
        }
        AgentEvent::Tool { block, call } => tool_update(block, &call, false),
        AgentEvent::ToolOutput { block, call } => {
            let append = task.artifact(block.as_str()).is_some();
            tool_update(block, &call, append)
        }
        AgentEvent::Asked(ask) => failed(task, now, unanswerable(&ask)),
        AgentEvent::Ended(outcome) => ended(task, now, outcome),
    })
}

/// The turn begins.
pub(crate) fn working(now: Timestamp) -> TaskEvent {
    status(TaskState::Working, now, None, None)
}

/// The owner of the task asked to end it.
pub(crate) fn canceled(now: Timestamp) -> TaskEvent {
    status(TaskState::Canceled, now, None, None)
}

pub(crate) fn failed(task: &Task, now: Timestamp, failure: Failure) -> TaskEvent {
    status(
        TaskState::Failed,
        now,
        Some(explanation(task, TaskState::Failed, failure.message)),
        failure.metadata,
    )
}

fn ended(task: &Task, now: Timestamp, outcome: Outcome) -> TaskEvent {
    match outcome {
        Outcome::Completed { remark } => {
            let message = remark.map(|text| explanation(task, TaskState::Completed, text));
            status(TaskState::Completed, now, message, None)
        }
        Outcome::Failed(failure) => failed(task, now, failure),
        Outcome::Canceled { reason } => {
            let message = explanation(task, TaskState::Canceled, reason);
            status(TaskState::Canceled, now, Some(message), None)
        }
    }
}

fn status(
    state: TaskState,
    at: Timestamp,
    message: Option<Message>,
    metadata: Option<Metadata>,
) -> TaskEvent {
    TaskEvent::Status(StatusUpdate { status: TaskStatus { state, at, message }, metadata })
}

/// The agent's words about a state. A task enters a terminal state once, so the state makes the id unique.
fn explanation(task: &Task, state: TaskState, text: String) -> Message {
    let id = MessageId::parse(&format!("{}.{state}", task.id))
        .or_else(|_| MessageId::parse(state.as_str()))
        .expect("a state's word is an id");
    let mut message = Message::new(id, Role::Agent, vec![Part::text(text)]);
    message.task_id = Some(task.id.clone());
    message.context_id = Some(task.context_id.clone());
    message
}

/// Nobody can answer through this gateway yet, and a turn that waits for ever is worse than one that failed.
fn unanswerable(ask: &Ask) -> Failure {
    let asked = match ask.kind {
        AskKind::Permission => "for a permission",
        AskKind::Question => "a question",
    };
    Failure::new(format!(
        "The agent asked {asked} that this gateway cannot pass on ({}), so the turn was stopped. Answer it in the agent's \
         own configuration, or ask for something that needs no approval.",
        ask.summary
    ))
}

fn text_update(
    block: ArtifactId,
    kind: BlockKind,
    text: String,
    append: bool,
    last_chunk: bool,
) -> TaskEvent {
    artifact_update(block, kind.as_str().to_owned(), Part::text(text), append, last_chunk)
}

fn tool_update(block: ArtifactId, call: &ToolCall, append: bool) -> TaskEvent {
    let last_chunk = matches!(call.status, ToolStatus::Completed | ToolStatus::Error);
    let part = Part::data(tool_data(call));
    artifact_update(block, format!("tool:{}", call.tool), part, append, last_chunk)
}

/// The tool call as clients of this field know it: only the keys that have a value. The input goes out as it came.
#[derive(Serialize)]
struct ToolData<'a> {
    call_id: &'a str,
    tool: &'a str,
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

fn tool_data(call: &ToolCall) -> Json {
    Json::of(&ToolData {
        call_id: &call.call_id,
        tool: &call.tool,
        status: call.status.as_str(),
        title: call.title.as_deref(),
        input: call.input.as_ref(),
        output: call.output.as_deref(),
        error: call.error.as_deref(),
    })
}

fn artifact_update(id: ArtifactId, name: String, part: Part, append: bool, last_chunk: bool) -> TaskEvent {
    let artifact = Artifact {
        id,
        name: Some(name),
        description: None,
        parts: vec![part],
        extensions: Vec::new(),
        metadata: None,
    };
    TaskEvent::Artifact(ArtifactUpdate { artifact, append, last_chunk, metadata: None })
}
