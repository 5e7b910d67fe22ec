//! Short ways to write requests. Everything that a test does not name has a simple default.

use std::sync::Arc;

use longshore_engine::Events;
use longshore_engine::port::{
    Append, Appended, AskChange, Binding, Create, Created, FileFacts, IdempotencyKey, ListQuery, NewFile,
    Session, Store, TurnRecord,
};
use longshore_model::{
    Action, Artifact, ArtifactId, ArtifactUpdate, Ask, AskKind, AskOption, AskOptions, BlockKind, Closed,
    ContextId, Epoch, FileId, Interrupt, Json, Message, MessageId, OptionKind, Parent, Part,
    PermissionRequest, Principal, PromptId, RequestId, Resolution, Role, Seq, SessionId, StatusUpdate, Task,
    TaskEvent, TaskId, TaskState, TaskStatus, Timestamp,
};

pub fn owner(name: &str) -> Principal {
    Principal::new(name)
}

pub fn ada() -> Principal {
    owner("ada")
}

pub fn task_id(id: &str) -> TaskId {
    TaskId::parse(id).expect("tests write valid ids")
}

pub fn context_id(id: &str) -> ContextId {
    ContextId::parse(id).expect("tests write valid ids")
}

pub fn session_id(id: &str) -> SessionId {
    SessionId::parse(id).expect("tests write valid ids")
}

pub fn session(id: &str) -> Session {
    Session { id: session_id(id), directory: format!("/projects/{id}") }
}

pub fn prompt_id(id: &str) -> PromptId {
    PromptId::parse(id).expect("tests write valid ids")
}

pub fn turn(session_name: &str, prompt: &str) -> TurnRecord {
    TurnRecord { session: session(session_name), prompt: prompt_id(prompt), joined: Vec::new() }
}

/// The directory of contexts whose session names no other.
pub const DIRECTORY: &str = "/projects";

/// A task of ada in the context `c`, with a key of its own, submitted at 1.
pub fn create(task: &str) -> Create {
    create_in(task, "c", 1)
}

pub fn create_in(task: &str, context: &str, at: i64) -> Create {
    let mut digest = [0; 32];
    digest[..task.len()].copy_from_slice(task.as_bytes());
    Create {
        owner: ada(),
        task: task_id(task),
        context: context_id(context),
        first: submitted(context, at),
        at: Timestamp(at),
        idempotency: Some(IdempotencyKey { digest, valid_since: Timestamp(i64::MIN) }),
        directory: DIRECTORY.to_owned(),
        directory_named: false,
        session: None,
        claim: None,
        begun: None,
        push: None,
    }
}

/// A sub-agent's task of ada in the context `c`, called by the task `caller` below `root`, submitted at 1.
pub fn child(task: &str, root: &str, caller: &str) -> Create {
    let parent = Parent {
        root: task_id(root),
        task: task_id(caller),
        call: Some("call".to_owned()),
        depth: if root == caller { 1 } else { 2 },
        session: session_id(&format!("ses_{task}")),
        kind: Some("general".to_owned()),
        model: Some("provider/model".to_owned()),
    };
    Create { first: submitted_below("c", 1, parent), idempotency: None, ..create(task) }
}

/// The answer to a send that created `task` in the context `c` before.
pub fn existing(task: &str) -> Created {
    Created::Existing { task: task_id(task), context: context_id("c") }
}

/// The first binding of a context.
pub fn binding(who: &str, context: &str, name: &str) -> Binding {
    Binding {
        owner: owner(who),
        context: context_id(context),
        session: session(name),
        replaces: None,
        at: Timestamp(1),
    }
}

pub fn submitted(context: &str, at: i64) -> TaskEvent {
    let id = MessageId::parse("m").expect("tests write valid ids");
    let message = Message::new(id, Role::User, vec![Part::text("hi")]);
    TaskEvent::submitted(context_id(context), message, Timestamp(at))
}

fn submitted_below(context: &str, at: i64, below: Parent) -> TaskEvent {
    let mut event = submitted(context, at);
    if let TaskEvent::Submitted { parent, .. } = &mut event {
        *parent = Some(Box::new(below));
    }
    event
}

pub fn status(state: TaskState, at: i64) -> TaskEvent {
    let status = TaskStatus { state, at: Timestamp(at), message: None };
    TaskEvent::Status(Box::new(StatusUpdate::new(status)))
}

/// More text of the artifact `a`.
pub fn chunk(text: &str) -> TaskEvent {
    TaskEvent::Artifact(ArtifactUpdate {
        artifact: Artifact {
            id: ArtifactId::parse("a").expect("tests write valid ids"),
            kind: BlockKind::Text,
            source_message: None,
            name: Some("text".to_owned()),
            description: None,
            parts: vec![Part::text(text)],
            extensions: Vec::new(),
            metadata: None,
        },
        append: true,
        last_chunk: false,
        metadata: None,
    })
}

/// Events after that number. The store knows the real epoch.
pub fn numbered(expected: u64, events: Vec<TaskEvent>) -> Events {
    Events::number(Seq(expected.saturating_add(1)), Epoch(1), events)
}

pub fn append(task: &str, expected: u64, events: Vec<TaskEvent>) -> Append {
    Append {
        owner: ada(),
        task: task_id(task),
        expected: Seq(expected),
        at: Timestamp(1),
        events: numbered(expected, events),
        snapshot: None,
        turn: None,
        asks: Vec::new(),
        joined: None,
        forgotten: None,
    }
}

pub fn request_id(id: &str) -> RequestId {
    RequestId::parse(id).expect("tests write valid ids")
}

/// An open permission request in a task of ada, made at 1, that never expires.
pub fn interrupt(task: &str, request: &str) -> Interrupt {
    Interrupt {
        ask: Ask {
            request_id: request_id(request),
            kind: AskKind::Permission,
            session: session_id("ses"),
            summary: format!("May I do {request}?"),
            details: Json::parse(r#"{"patterns": ["ls *"], "big": 12345678901234567890123}"#)
                .expect("the text is JSON"),
            questions: Vec::new(),
            call: Some("call_1".to_owned()),
            permission: Some(Box::new(PermissionRequest {
                permission: "bash".to_owned(),
                patterns: vec!["ls -l".to_owned()],
                always: vec!["ls *".to_owned()],
                action: Action::default(),
            })),
            options: AskOptions::new([AskOption {
                id: "proceed_once".to_owned(),
                name: "Allow".to_owned(),
                kind: OptionKind::AllowOnce,
            }]),
        },
        owner: ada(),
        task: task_id(task),
        context: context_id("c"),
        asked_at: Timestamp(1),
        expires_at: None,
        closed: None,
    }
}

/// The end of an ask that no caller answered.
pub fn closed(resolution: Resolution, at: i64) -> Closed {
    Closed { resolution, at: Timestamp(at), by: None, how: None }
}

pub fn opens(interrupt: &Interrupt) -> AskChange {
    AskChange::Opened(Box::new(interrupt.clone()))
}

pub fn closes(request: &str, closed: Closed) -> AskChange {
    AskChange::Closed { request_id: request_id(request), closed }
}

/// An append that changes asks.
pub fn asking(task: &str, expected: u64, asks: Vec<AskChange>) -> Append {
    Append { asks, ..append(task, expected, vec![chunk("x")]) }
}

pub fn file_id(id: &str) -> FileId {
    FileId::parse(id).expect("tests write valid ids")
}

/// A file of a task of ada, stored at 1. Its digest is not real: stores do not check it.
pub fn file(task: &str, id: &str, bytes: &[u8]) -> NewFile {
    let mut sha256 = [0; 32];
    sha256[..id.len()].copy_from_slice(id.as_bytes());
    NewFile {
        id: file_id(id),
        owner: ada(),
        task: task_id(task),
        facts: FileFacts {
            name: Some(format!("{id}.txt")),
            media_type: "text/plain".to_owned(),
            size: bytes.len() as u64,
            sha256,
            at: Timestamp(1),
        },
        bytes: bytes.into(),
    }
}

/// All tasks of ada on one page.
pub fn everything() -> ListQuery {
    ListQuery {
        owner: ada(),
        context: None,
        state: None,
        status_after: None,
        limit: 1000,
        after: None,
        roots_only: false,
        with_artifacts: true,
    }
}

/// Folds these events to a task.
pub fn folded(task: &TaskId, events: &[TaskEvent]) -> Task {
    let (first, rest) = events.split_first().expect("a log is never empty");
    let mut task = Task::begin(task.clone(), first).expect("the first event submits");
    for event in rest {
        task.apply(event);
    }
    task
}

/// Creates a task that does not exist.
pub async fn made(store: &Arc<dyn Store>, create: Create) {
    assert_eq!(store.create(create).await.expect("the store takes a task"), Created::New);
}

/// An append that must succeed.
pub async fn appended(store: &Arc<dyn Store>, append: Append) {
    let head = append.expected.plus(append.events.len());
    assert_eq!(store.append(append).await.expect("the store takes events"), Appended::Head(head));
}

/// The events of the whole log. Checks that they are numbered 1, 2, 3 and so on.
pub async fn log(store: &Arc<dyn Store>, task: &str) -> Vec<TaskEvent> {
    let entries =
        store.read(&ada(), &task_id(task), Seq::START, usize::MAX).await.expect("the log can be read");
    for (index, entry) in entries.iter().enumerate() {
        assert_eq!(entry.seq, Seq::START.plus(index).next(), "{task}");
    }
    entries.into_iter().map(|entry| entry.event).collect()
}
