//! Converts the reports of the agent and the decisions of the gateway into task events. Uses no clock, does no IO and cannot
//! fail.

use longshore_model::{
    AgentEvent, Artifact, ArtifactUpdate, Ask, AskKind, AskOptions, BlockRef, Failure, InterruptNote,
    InterruptPhase, Json, Message, MessageId, Metadata, Notes, Outcome, Part, PartContent, PermissionReply,
    PromptOptions, RemoteFile, Resolution, Role, StatusUpdate, Task, TaskEvent, TaskId, TaskState,
    TaskStatus, Timestamp, ToolCall, ToolLocation, ToolStatus,
};
use serde::Serialize;
use serde_json::json;

use crate::config::AlwaysScope;
use crate::intake::size;
use crate::port::FileFacts;
use crate::{answer, derived_ids, held};

/// The event that this report adds to the log of `task`. `None`: the report changes nothing.
pub(crate) fn apply(task: &Task, report: AgentEvent, now: impl FnOnce() -> Timestamp) -> Option<TaskEvent> {
    Some(match report {
        AgentEvent::Text { block, text } => {
            let append = task.artifact(block.id.as_str()).is_some();
            text_update(block, text, append, false)
        }
        AgentEvent::TextReplaced { block, text } => text_update(block, text, false, false),
        AgentEvent::TextEnded { block } => {
            // A block that never had text has no artifact, so there is nothing to end.
            task.artifact(block.id.as_str())?;
            text_update(block, String::new(), true, true)
        }
        AgentEvent::Tool { block, mut call } => {
            correct_error(task, &mut call);
            tool_update(task, block, &call, false)
        }
        AgentEvent::ToolOutput { block, mut call } => {
            correct_error(task, &mut call);
            let append = task.artifact(block.id.as_str()).is_some();
            tool_update(task, block, &call, append)
        }
        AgentEvent::RemoteFile { block, file } => remote_file(block, file),
        AgentEvent::WithheldFile { block, name, reason } => file_dropped(block, name, reason),
        // The driver reports the session again after a restart of the gateway.
        AgentEvent::Session(session) if task.session.as_ref() == Some(&session) => return None,
        AgentEvent::Session(session) => noted(task, Notes { session: Some(session), ..Notes::default() }),
        AgentEvent::Progress(progress) => noted(task, Notes { progress: Some(progress), ..Notes::default() }),
        AgentEvent::Ended(outcome) => ended(task, now(), outcome),
        // The task's actor handles these reports and writes a status for them.
        AgentEvent::Usage(_)
        | AgentEvent::Asked(_)
        | AgentEvent::AskClosed { .. }
        | AgentEvent::File { .. }
        | AgentEvent::Child { .. }
        | AgentEvent::CaughtUp => return None,
    })
}

/// The event for the model of the sub-agent that works on the task, once the model is known.
pub(crate) fn sub_agent_model(task: &Task, model: String) -> TaskEvent {
    noted(task, Notes { sub_agent_model: Some(model), ..Notes::default() })
}

/// The event for an ask of the agent: the task waits for its user.
pub(crate) fn asked(task: &Task, now: Timestamp, ask: &Ask, scope: AlwaysScope) -> TaskEvent {
    let mut update = StatusUpdate::new(TaskStatus {
        state: TaskState::InputRequired,
        at: now,
        message: Some(question(task, ask, scope)),
    });
    update.notes.interrupt = Some(InterruptNote::asked(ask));
    TaskEvent::Status(Box::new(update))
}

/// The event for a closed ask. `next` is another ask that is still open; the task then waits for that ask.
pub(crate) fn ask_closed(
    task: &Task,
    now: Timestamp,
    note: InterruptNote,
    next: Option<(&Ask, AlwaysScope)>,
    joined: Option<Message>,
) -> TaskEvent {
    let state = if next.is_some() { TaskState::InputRequired } else { TaskState::Working };
    let next = next.map(|(next, scope)| question(task, next, scope));
    let message = match unanswered(&note) {
        Some(words) => Some(expiry(task, &note, words, next.as_ref())),
        None => next,
    };
    let mut update = StatusUpdate::new(TaskStatus { state, at: now, message });
    update.notes.interrupt = Some(note);
    update.joined = joined;
    TaskEvent::Status(Box::new(update))
}

/// The event for an ask that the gateway answered at once with a kept approval. The state of the task does not change.
pub(crate) fn approved(task: &Task, note: InterruptNote) -> TaskEvent {
    noted(task, Notes { interrupt: Some(note), ..Notes::default() })
}

/// One event for each ask that is open when the task ends: such an ask can no longer be answered.
pub(crate) fn dropped_asks(task: &Task) -> Vec<TaskEvent> {
    let dropped = |open: &InterruptNote| {
        let phase = InterruptPhase::Resolved(Resolution::Dropped);
        let (details, options) = (None, AskOptions::default());
        let note = InterruptNote { phase, details, options, ..open.clone() };
        noted(task, Notes { interrupt: Some(note), ..Notes::default() })
    };
    task.open_asks.iter().map(dropped).collect()
}

/// The event in the child task for a closed ask of its sub-agent. `others`: the child task has further open asks and waits.
pub(crate) fn child_ask_closed(task: &Task, now: Timestamp, note: InterruptNote, others: bool) -> TaskEvent {
    let status = if others {
        TaskStatus { at: now, ..task.status.clone() }
    } else {
        let message = unanswered(&note).map(|words| expiry(task, &note, words, None));
        TaskStatus { state: TaskState::Working, at: now, message }
    };
    let mut update = StatusUpdate::new(status);
    update.notes.interrupt = Some(note);
    TaskEvent::Status(Box::new(update))
}

/// The event for a message that joins the task. The state of the task does not change.
pub(crate) fn joined(task: &Task, message: Message) -> TaskEvent {
    let mut update = StatusUpdate::new(task.status.clone());
    update.joined = Some(message);
    TaskEvent::Status(Box::new(update))
}

/// The event for a message that had joined but did not reach the agent.
pub(crate) fn withdrawn(task: &Task, message: MessageId) -> TaskEvent {
    let mut update = StatusUpdate::new(task.status.clone());
    update.withdrawn = Some(message);
    TaskEvent::Status(Box::new(update))
}

/// The event for a task that will be prompted again, with this message and these options, when its turn comes.
pub(crate) fn submitted_again(now: Timestamp, message: Message, prompt: PromptOptions) -> TaskEvent {
    let mut update = StatusUpdate::new(TaskStatus { state: TaskState::Submitted, at: now, message: None });
    update.joined = Some(message);
    update.prompt = Some(Box::new(prompt));
    TaskEvent::Status(Box::new(update))
}

/// The event for a file that the gateway keeps: in its store with a URL, or in the artifact itself.
pub(crate) fn file_kept(block: BlockRef, facts: &FileFacts, content: PartContent) -> TaskEvent {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct FileReference<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        uri: Option<&'a str>,
        media_type: &'a str,
        byte_size: u64,
        sha256: String,
    }
    let sha256 = derived_ids::hex(&facts.sha256);
    let uri = match &content {
        PartContent::Url(url) => Some(url.as_str()),
        _ => None,
    };
    let reference = Json::from_value(&FileReference {
        uri,
        media_type: &facts.media_type,
        byte_size: facts.size,
        sha256,
    });
    let metadata = Metadata::try_from(reference).ok();
    let part = Part {
        media_type: Some(facts.media_type.clone()),
        filename: facts.name.clone(),
        metadata: metadata.clone(),
        ..Part::new(content)
    };
    let name = facts.name.clone().unwrap_or_else(|| "file".to_owned());
    let TaskEvent::Artifact(mut update) = artifact_update(block, name, part, false, true) else {
        unreachable!("an artifact update is one")
    };
    update.artifact.metadata = metadata;
    TaskEvent::Artifact(update)
}

/// The event for a file that is not stored, with the reason.
pub(crate) fn file_dropped(block: BlockRef, name: Option<String>, reason: String) -> TaskEvent {
    artifact_update(block, name.unwrap_or_else(|| "file".to_owned()), Part::text(reason), false, true)
}

/// The event for a file at a URL that the agent named.
fn remote_file(block: BlockRef, file: RemoteFile) -> TaskEvent {
    let RemoteFile { name, media_type, url } = file;
    let part =
        Part { media_type: Some(media_type), filename: name.clone(), ..Part::new(PartContent::Url(url)) };
    artifact_update(block, name.unwrap_or_else(|| "file".to_owned()), part, false, true)
}

/// The event for the beginning of the turn.
pub(crate) fn working(now: Timestamp) -> TaskEvent {
    status(TaskState::Working, now, None, None)
}

/// The event that sets the task back to SUBMITTED, where it waits for the reason `why`.
pub(crate) fn waiting(task: &Task, now: Timestamp, why: String) -> TaskEvent {
    let state = TaskState::Submitted;
    let at = if task.status.state == state { task.status.at } else { now };
    status(state, at, Some(explanation(task, state, why)), None)
}

/// Like [`waiting`], for an agent of which nobody knows when it can be reached again. A blocking send then returns.
pub(crate) fn waiting_for_agent(task: &Task, now: Timestamp, why: String) -> TaskEvent {
    let metadata = Json::from_value(&json!({"longshore": {"waitsFor": "agent"}}));
    with_message_metadata(waiting(task, now, why), Metadata::try_from(metadata).ok())
}

/// Whether a blocking send returns at this status.
pub(crate) fn is_settled(status: &TaskStatus) -> bool {
    let metadata = status.message.as_ref().and_then(|message| message.metadata.as_ref());
    let waits_for_agent =
        |metadata: &Metadata| metadata.json().to_value().pointer("/longshore/waitsFor").is_some();
    status.state.is_settled()
        || (status.state == TaskState::Submitted && metadata.is_some_and(waits_for_agent))
}

/// Whether the status already says that the task waits for the same kind of reason. The texts may differ.
pub(crate) fn says_the_same(status: &TaskStatus, waiting: &TaskEvent) -> bool {
    waiting.status().is_some_and(|next| {
        let is_same = status.state == next.state && is_settled(status) == is_settled(next);
        status.message.is_some() && is_same
    })
}

/// The event for a held task, which waits until its owner or the operator releases it.
pub(crate) fn held(task: &Task) -> TaskEvent {
    with_message_metadata(waiting(task, task.status.at, held::WHY.to_owned()), held::metadata())
}

fn with_message_metadata(mut event: TaskEvent, metadata: Option<Metadata>) -> TaskEvent {
    if let TaskEvent::Status(update) = &mut event
        && let Some(message) = &mut update.status.message
    {
        message.metadata = metadata;
    }
    event
}

/// The event for a released task, which waits for its turn like any other. `decision`: the message that released the task.
pub(crate) fn released(task: &Task, decision: Option<Message>) -> TaskEvent {
    let status = TaskStatus { state: TaskState::Submitted, at: task.status.at, message: None };
    TaskEvent::Status(Box::new(StatusUpdate { joined: decision, ..StatusUpdate::new(status) }))
}

/// The event for a cancel by the owner of the task.
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

/// The reason of the failure of a task that exceeds its byte limit.
pub(crate) fn too_large(max: u64) -> Failure {
    Failure::new(format!(
        "The messages and the output of the task have more than {}, which is the limit (limits.task_bytes), so the gateway ended \
         the turn. Everything up to here is in the task. Send the next message with its contextId, and ask for less output at once.",
        size(max)
    ))
}

fn ended(task: &Task, now: Timestamp, outcome: Outcome) -> TaskEvent {
    match outcome {
        Outcome::Completed { remark } => {
            let message = remark.map(|text| explanation(task, TaskState::Completed, text));
            status(TaskState::Completed, now, message, None)
        }
        Outcome::Failed(failure) => failed(task, now, with_true_reason(task, failure)),
        Outcome::AuthRequired(failure) => {
            let message = explanation(task, TaskState::AuthRequired, failure.message);
            status(TaskState::AuthRequired, now, Some(message), failure.metadata)
        }
        Outcome::Canceled { reason } => {
            let message = explanation(task, TaskState::Canceled, reason);
            status(TaskState::Canceled, now, Some(message), None)
        }
        Outcome::Incomplete(outcome) => {
            let mut event = ended(task, now, *outcome);
            if let TaskEvent::Status(update) = &mut event {
                update.metadata = with_gateway_note(update.metadata.as_ref(), "lost", &json!("text"));
            }
            event
        }
    }
}

/// The metadata with one more entry of the gateway, for programs.
fn with_gateway_note(metadata: Option<&Metadata>, key: &str, fact: &serde_json::Value) -> Option<Metadata> {
    let mut all = metadata.map_or_else(|| json!({}), |metadata| metadata.json().to_value());
    all["longshore"][key] = fact.clone();
    Metadata::try_from(Json::from_value(&all)).ok()
}

/// The ask of this tool call, if the gateway rejected the ask because nobody answered in time.
fn expired_ask<'a>(task: &'a Task, call: &str) -> Option<&'a InterruptNote> {
    let waited = |note: &&InterruptNote| {
        note.expired.as_ref().is_some_and(|expired| expired.call.as_deref() == Some(call))
    };
    task.expired_asks.iter().find(waited)
}

/// Corrects the error of a tool call whose ask expired. The agent reports that its user rejected the call, but the gateway
/// rejected it, because nobody answered.
fn correct_error(task: &Task, call: &mut ToolCall) {
    if call.status == ToolStatus::Error
        && let Some(words) = expired_ask(task, &call.call_id).and_then(unanswered)
    {
        call.error = Some(words);
    }
}

/// Like [`correct_error`], for a turn that failed because of such a tool call.
fn with_true_reason(task: &Task, mut failure: Failure) -> Failure {
    if let Some(failed) = &failure.failed_call
        && let Some(note) = expired_ask(task, &failed.call_id)
        && let (Some(expired), Some(words)) = (&note.expired, unanswered(note))
    {
        failure.message = if failed.error.is_empty() {
            format!("{} {words}", failure.message)
        } else {
            failure.message.replace(&failed.error, &words)
        };
        let fact = json!({
            "request_id": note.request_id.as_str(),
            "expires_at": seconds(expired.deadline),
            "answer": expired.answer.as_str(),
        });
        failure.metadata = with_gateway_note(failure.metadata.as_ref(), "expired", &fact);
    }
    failure
}

/// The time in seconds since 1970, as in the list of open asks.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of this millennium fit")]
fn seconds(at: Timestamp) -> f64 {
    at.0 as f64 / 1000.0
}

/// Why the gateway itself answered an ask, as text. `None`: the ask did not expire.
fn unanswered(note: &InterruptNote) -> Option<String> {
    let expired = note.expired.as_ref()?;
    let done = match expired.answer {
        PermissionReply::Reject => "rejected it",
        PermissionReply::Once | PermissionReply::Always => "granted it once",
    };
    let (request, deadline) = (&note.request_id, expired.deadline);
    Some(format!(
        "Nobody answered the ask {request} in time. Its deadline was {deadline}; then the gateway {done}."
    ))
}

/// The message of a status that reports an expired ask. `next`: the question for which the task still waits.
fn expiry(task: &Task, note: &InterruptNote, mut words: String, next: Option<&Message>) -> Message {
    if let Some(text) = next.and_then(|next| next.parts.first()).and_then(Part::as_text) {
        words = format!("{words}\n{text}");
    }
    let id = MessageId::parse(&format!("{}.{}.expired", task.id, note.request_id))
        .unwrap_or_else(|_| MessageId::parse("expired").expect("letters are an id"));
    agent_message(task, id, words)
}

fn status(
    state: TaskState,
    at: Timestamp,
    message: Option<Message>,
    metadata: Option<Metadata>,
) -> TaskEvent {
    TaskEvent::Status(Box::new(StatusUpdate {
        metadata,
        ..StatusUpdate::new(TaskStatus { state, at, message })
    }))
}

/// The current status, with notes.
fn noted(task: &Task, notes: Notes) -> TaskEvent {
    TaskEvent::Status(Box::new(StatusUpdate { notes, ..StatusUpdate::new(task.status.clone()) }))
}

/// The question, and how to answer it, as text for people.
fn question(task: &Task, ask: &Ask, scope: AlwaysScope) -> Message {
    let how = match ask.kind {
        AskKind::Permission if !ask.options.are_words() => &answer::how_to_choose(ask, scope),
        AskKind::Permission if scope == AlwaysScope::Session => {
            "Answer with a message on this task: once, always, or reject (with a reason behind it, if you like). \
             always: for this session and its sub-agents, until revoked."
        }
        AskKind::Permission => {
            "Answer with a message on this task: once, always, or reject (with a reason behind it, if you like). \
             always: for every session in this directory, also those of others, until the agent ends."
        }
        AskKind::Question if ask.questions.len() > 1 => {
            "Answer with a message on this task, one line for each question, or with the word reject."
        }
        AskKind::Question => {
            "Answer with a message on this task: an option or your own words, or the word reject."
        }
    };
    let id = MessageId::parse(&format!("{}.{}", task.id, ask.request_id))
        .unwrap_or_else(|_| MessageId::parse("ask").expect("letters are an id"));
    agent_message(task, id, format!("{}\n{how}", ask.summary))
}

/// The agent's message about a state. A task enters a terminal state once, so the state alone makes the message id unique. A
/// task may wait for credentials once for each of its messages, so the id for a state that is not terminal also contains the
/// number of messages.
fn explanation(task: &Task, state: TaskState, text: String) -> Message {
    let which = if state.is_terminal() { String::new() } else { format!(".{}", task.history.len()) };
    let id = MessageId::parse(&format!("{}.{state}{which}", task.id))
        .or_else(|_| MessageId::parse(state.as_str()))
        .expect("a state's word is an id");
    agent_message(task, id, text)
}

fn agent_message(task: &Task, id: MessageId, text: String) -> Message {
    let mut message = Message::new(id, Role::Agent, vec![Part::text(text)]);
    message.task_id = Some(task.id.clone());
    message.context_id = Some(task.context_id.clone());
    message
}

fn text_update(block: BlockRef, text: String, append: bool, last_chunk: bool) -> TaskEvent {
    let name = block.kind.as_str().to_owned();
    artifact_update(block, name, Part::text(text), append, last_chunk)
}

fn tool_update(task: &Task, block: BlockRef, call: &ToolCall, append: bool) -> TaskEvent {
    let last_chunk = matches!(call.status, ToolStatus::Completed | ToolStatus::Error);
    let data = Part::data(tool_data(task, call));
    artifact_update(block, format!("tool:{}", call.tool), data, append, last_chunk)
}

/// The data of a tool call as clients see it: only the keys that have a value. The input is passed on unchanged. `open_tools`
/// parses this data again.
#[derive(Serialize)]
struct ToolData<'a> {
    call_id: &'a str,
    tool: &'a str,
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subtitle: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    locations: &'a [ToolLocation],
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    /// The task of the sub-agent that the call started.
    #[serde(skip_serializing_if = "Option::is_none")]
    child_task_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Json>,
}

fn tool_data(task: &Task, call: &ToolCall) -> Json {
    let root = task.parent.as_ref().map_or(&task.id, |parent| &parent.root);
    let child =
        call.child.as_ref().map(|session| derived_ids::child_task(root, session, Some(&call.call_id)));
    Json::from_value(&ToolData {
        call_id: &call.call_id,
        tool: &call.tool,
        status: call.status.as_str(),
        title: call.title.as_deref(),
        subtitle: call.subtitle.as_deref(),
        kind: call.kind.as_deref(),
        locations: &call.locations,
        input: call.input.as_ref(),
        output: call.output.as_deref(),
        error: call.error.as_deref(),
        child_task_id: child.as_ref().map(TaskId::as_str),
        meta: call.meta.as_ref(),
    })
}

fn artifact_update(block: BlockRef, name: String, part: Part, append: bool, last_chunk: bool) -> TaskEvent {
    let artifact = Artifact {
        id: block.id,
        kind: block.kind,
        source_message: block.message,
        name: Some(name),
        description: None,
        parts: vec![part],
        extensions: Vec::new(),
        metadata: None,
    };
    TaskEvent::Artifact(ArtifactUpdate { artifact, append, last_chunk, metadata: None })
}
