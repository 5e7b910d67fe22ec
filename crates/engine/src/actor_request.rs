//! Requests that the operations of the engine send to the actor of a task.

use longshore_model::{Answer, Message, Principal, PromptOptions, RequestId, Result, TraceContext};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::port::{IdempotencyKey, Input};
use crate::snapshot::Snapshot;

#[derive(Debug)]
pub(crate) enum ActorRequest {
    /// Cancels the task. `trace`: the trace context of the cancel request.
    Cancel {
        reply: Reply,
        since: Instant,
        trace: Option<Box<TraceContext>>,
    },
    Answer(Box<GivenAnswer>),
    Join(Box<Joining>),
}

pub(crate) type Reply = oneshot::Sender<Result<Snapshot>>;

/// How many requests may wait for one actor. If the inbox is full, the sender waits, as for any slow task.
pub(crate) const INBOX_CAPACITY: usize = 8;

/// A caller's answer to an ask.
#[derive(Debug)]
pub(crate) struct GivenAnswer {
    pub(crate) request: RequestId,
    pub(crate) answer: Answer,
    pub(crate) by: Principal,
    /// The trace context of the request that gave the answer.
    pub(crate) trace: Option<TraceContext>,
    /// The message that held the answer. `None`: the answer came by an extension method.
    pub(crate) send: Option<AnswerMessage>,
    pub(crate) reply: Reply,
}

/// A message that holds an answer.
#[derive(Debug)]
pub(crate) struct AnswerMessage {
    /// Identifies the message: the same message sent again has the same digest.
    pub(crate) digest: [u8; 32],
    /// The message in the form in which it joins the history of the task that asks. `None`: it was sent to another task.
    pub(crate) message: Option<Message>,
}

/// A message that is to join a task.
#[derive(Debug)]
pub(crate) struct Joining {
    pub(crate) message: Message,
    /// Identifies a repeated send of the same message.
    pub(crate) key: IdempotencyKey,
    pub(crate) input: Vec<Input>,
    pub(crate) options: PromptOptions,
    pub(crate) trace: Option<TraceContext>,
    /// Where the result goes. Dropped without a result when the task accepts no message at this moment.
    pub(crate) reply: Reply,
}
