//! Encodes requests as text and numbers before they reach the write connection, which then only has to insert.

use longshore_engine::port::{Append, AskChange, Create, IdempotencyKey, RunningTurn, TurnRecord};
use longshore_model::{
    Artifact, Ask, Closed, ContextId, Epoch, Error, Interrupt, InterruptNote, Message, Metadata, Parent,
    Principal, PushEvents, PushWord, RequestId, Result, Seq, SessionNote, Task, TaskEvent, TaskId,
    TaskOptions, TaskState, TaskStatus, Timestamp, Usage,
};
use longshore_seal::Sealer;
use serde::Serialize;

use super::push::NewPush;
use crate::rules::{self, PlacementRequest};

/// An encoded `Create`.
pub(super) struct NewTask {
    pub(super) id: TaskId,
    pub(super) owner: Principal,
    pub(super) context: ContextId,
    pub(super) at: Timestamp,
    pub(super) epoch: Epoch,
    pub(super) status: (TaskState, Timestamp),
    pub(super) first: EventText,
    pub(super) snapshot: SnapshotText,
    pub(super) idempotency: Option<IdempotencyKey>,
    pub(super) requested: PlacementRequest,
    /// The root task. `None`: the task itself is a root, not that of a sub-agent.
    pub(super) root: Option<TaskId>,
    /// The media types that the caller accepts. `None`: all.
    pub(super) output: Option<String>,
    /// The second event and the turn. `None`: the turn does not run yet.
    pub(super) begun: Option<(EventText, TurnText)>,
    pub(super) push: Option<NewPush>,
}

impl NewTask {
    pub(super) fn prepare(create: Create, epoch: Epoch, sealer: &Sealer) -> Result<Self> {
        let task = rules::begin(&create)?;
        let requested = PlacementRequest::new(&create)?;
        let output = &task.options.output;
        let output = if output.is_unrestricted() { None } else { Some(to_text(output)?) };
        Ok(Self {
            status: (task.status.state, task.status.at),
            first: EventText::encode(&create.first)?,
            snapshot: SnapshotText::encode(&task)?,
            id: create.task,
            owner: create.owner,
            context: create.context,
            at: create.at,
            epoch,
            idempotency: create.idempotency,
            requested,
            output,
            begun: create.begun.map(encode_begun).transpose()?,
            push: create.push.map(|push| NewPush::prepare(*push, sealer)).transpose()?,
            root: task.parent.map(|parent| parent.root),
        })
    }

    /// How many bytes the task adds to the counted bytes. Its snapshot counts only from the end of the task on.
    pub(super) fn stored_bytes(&self) -> usize {
        self.first.body.len() + self.begun.as_ref().map_or(0, |(working, _)| working.body.len())
    }
}

fn encode_begun(begun: RunningTurn) -> Result<(EventText, TurnText)> {
    Ok((EventText::encode(&begun.working)?, TurnText::encode(begun.turn)?))
}

/// The most bytes of a batch that may be written on the calling thread.
pub(super) const SMALL_BATCH_BYTES: usize = 8 * 1024;

/// An encoded `Append`.
pub(super) struct Batch {
    pub(super) task: TaskId,
    pub(super) expected: Seq,
    pub(super) at: Timestamp,
    pub(super) epoch: Epoch,
    pub(super) events: Vec<EventText>,
    /// The kinds of the events, to find the push configurations that want them.
    pub(super) push_events: PushEvents,
    /// The newest status among the events, if there is one.
    pub(super) status: Option<(TaskState, Timestamp)>,
    /// The number of events up to the newest one that is not an artifact update. 0: all are artifact updates.
    pub(super) summarised: usize,
    pub(super) snapshot: Option<SnapshotText>,
    pub(super) turn: Option<TurnText>,
    pub(super) asks: Vec<AskText>,
    pub(super) joined: Option<IdempotencyKey>,
    pub(super) forgotten: Option<IdempotencyKey>,
}

impl Batch {
    pub(super) fn prepare(append: Append, epoch: Epoch) -> Result<Self> {
        rules::check_append(&append)?;
        let newest_status = append.events.iter().rev().find_map(TaskEvent::status);
        let events: Result<Vec<_>> = append.events.iter().map(EventText::encode).collect();
        let asks: Result<Vec<_>> = append.asks.into_iter().map(AskText::encode).collect();
        let is_summarised = |event: &TaskEvent| !matches!(event, TaskEvent::Artifact(_));
        Ok(Self {
            status: newest_status.map(|status| (status.state, status.at)),
            summarised: append.events.iter().rposition(is_summarised).map_or(0, |index| index + 1),
            events: events?,
            push_events: append.events.iter().map(PushWord::of).collect(),
            snapshot: append.snapshot.as_deref().map(SnapshotText::encode).transpose()?,
            task: append.task,
            expected: append.expected,
            at: append.at,
            epoch,
            turn: append.turn.map(TurnText::encode).transpose()?,
            asks: asks?,
            joined: append.joined,
            forgotten: append.forgotten,
        })
    }

    /// The head of the log after the batch. Saturates, because `expected` is not checked yet.
    pub(super) fn new_head(&self) -> Seq {
        Seq(self.expected.0.saturating_add(self.events.len() as u64))
    }

    /// Whether the batch has changes that depend on the task's owner.
    pub(super) fn needs_owner(&self) -> bool {
        !self.asks.is_empty() || self.joined.is_some() || self.forgotten.is_some()
    }

    /// Whether the batch is a single event of output, so that it changes the log only.
    pub(super) fn is_single_output(&self) -> bool {
        let changes_more =
            self.summarised > 0 || self.snapshot.is_some() || self.turn.is_some() || self.needs_owner();
        self.events.len() == 1 && !changes_more
    }

    /// Whether writing the batch takes only microseconds, because it has few rows and little text.
    pub(super) fn is_small(&self) -> bool {
        if self.needs_owner() || self.turn.is_some() {
            return false;
        }
        let events: usize = self.events.iter().map(|event| event.body.len()).sum();
        let snapshot = self.snapshot.as_ref().map_or(0, SnapshotText::len);
        events + snapshot <= SMALL_BATCH_BYTES
    }

    /// How many bytes the batch adds to the counted bytes. A snapshot counts only from the end of the task on.
    pub(super) fn stored_bytes(&self) -> usize {
        let events: usize = self.events.iter().map(|event| event.body.len()).sum();
        events + self.snapshot.as_ref().filter(|_| self.is_terminal()).map_or(0, SnapshotText::len)
    }

    /// Whether the batch ends the task.
    pub(super) fn is_terminal(&self) -> bool {
        self.status.is_some_and(|(state, _)| state.is_terminal())
    }
}

/// An encoded event.
pub(super) struct EventText {
    pub(super) kind: &'static str,
    pub(super) body: String,
}

impl EventText {
    pub(super) fn encode(event: &TaskEvent) -> Result<Self> {
        let kind = match event {
            TaskEvent::Submitted { .. } => "submitted",
            TaskEvent::Status(_) => "status",
            TaskEvent::Artifact(_) => ARTIFACT,
        };
        Ok(Self { kind, body: to_text(event)? })
    }
}

/// An encoded turn: the prompt that runs a task, and the prompts that joined it.
pub(super) struct TurnText {
    pub(super) record: TurnRecord,
    /// The prompts that joined, as JSON. `None`: none joined.
    pub(super) joined: Option<String>,
}

impl TurnText {
    fn encode(record: TurnRecord) -> Result<Self> {
        let joined = if record.joined.is_empty() { None } else { Some(to_text(&record.joined)?) };
        Ok(Self { record, joined })
    }
}

/// The kind of artifact updates, which a list without artifacts skips.
pub(super) const ARTIFACT: &str = "artifact";

/// An encoded change to an ask.
pub(super) enum AskText {
    Opened(OpenedText),
    Closed { request_id: RequestId, closed: Closed },
}

pub(super) struct OpenedText {
    pub(super) interrupt: Box<Interrupt>,
    pub(super) questions: String,
    pub(super) permission: Option<String>,
    pub(super) options: Option<String>,
}

impl AskText {
    fn encode(change: AskChange) -> Result<Self> {
        Ok(match change {
            AskChange::Opened(interrupt) => {
                let Ask { questions, permission, options, .. } = &interrupt.ask;
                Self::Opened(OpenedText {
                    questions: to_text(questions)?,
                    permission: permission.as_ref().map(to_text).transpose()?,
                    options: (!options.is_empty()).then(|| to_text(options)).transpose()?,
                    interrupt,
                })
            }
            AskChange::Closed { request_id, closed } => Self::Closed { request_id, closed },
        })
    }
}

/// An encoded task in two columns: everything except the artifacts, and the artifacts.
pub(super) struct SnapshotText {
    pub(super) summary: String,
    pub(super) artifacts: String,
}

impl SnapshotText {
    pub(super) fn len(&self) -> usize {
        self.summary.len() + self.artifacts.len()
    }

    pub(super) fn encode(task: &Task) -> Result<Self> {
        let Task {
            id,
            context_id,
            status,
            artifacts,
            history,
            session,
            usage,
            open_asks,
            expired_asks,
            options,
            parent,
            metadata,
        } = task;
        let summary = Summary {
            id,
            context_id,
            status,
            artifacts: &[],
            history,
            session: session.as_ref(),
            usage: usage.as_ref(),
            open_asks,
            expired_asks,
            options,
            parent: parent.as_deref(),
            metadata: metadata.as_ref(),
        };
        Ok(Self { summary: to_text(&summary)?, artifacts: to_text(artifacts)? })
    }
}

/// Serializes like a [`Task`] without artifacts, and can be read back as one. The type exists only to avoid cloning the task.
#[derive(Serialize)]
struct Summary<'a> {
    id: &'a TaskId,
    context_id: &'a ContextId,
    status: &'a TaskStatus,
    artifacts: &'a [Artifact],
    history: &'a [Message],
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a SessionNote>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Usage>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    open_asks: &'a [InterruptNote],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    expired_asks: &'a [InterruptNote],
    #[serde(rename = "terms", skip_serializing_if = "TaskOptions::is_empty")]
    options: &'a TaskOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a Parent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Metadata>,
}

/// The initial capacity for an encoded event. Nearly every event is shorter, so its text needs one allocation.
const TEXT_CAPACITY: usize = 448;

pub(super) fn to_text(value: &impl Serialize) -> Result<String> {
    let mut text = Vec::with_capacity(TEXT_CAPACITY);
    serde_json::to_writer(&mut text, value).map_err(Error::internal)?;
    String::from_utf8(text).map_err(Error::internal)
}
