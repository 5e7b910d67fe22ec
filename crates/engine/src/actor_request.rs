//! Requests that the operations of the engine send to the actor of a task.

use longshore_model::{Answer, Message, Principal, PromptOptions, RequestId, Result, TraceContext};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::port::{IdempotencyKey, Input};
use crate::snapshot::Snapshot;

#[derive(Debug)]
pub(crate) enum ActorRequest {
    /// `trace`: the position of the cancel in its caller's trace.
    Cancel {
        reply: Reply,
        since: Instant,
        trace: Option<Box<TraceContext>>,
    },
    Answer(Box<GivenAnswer>),
    Join(Box<Joining>),
}

pub(crate) type Reply = oneshot::Sender<Result<Snapshot>>;

/// How many requests may wait for one actor. A caller who finds the inbox full waits, as for any slow task.
pub(crate) const INBOX_CAPACITY: usize = 8;

/// A caller's answer to an ask.
#[derive(Debug)]
pub(crate) struct GivenAnswer {
    pub(crate) request: RequestId,
    pub(crate) answer: Answer,
    pub(crate) by: Principal,
    /// The position of the answer in its caller's trace.
    pub(crate) trace: Option<TraceContext>,
    /// The message that held the answer, if one did.
    pub(crate) send: Option<AnswerMessage>,
    pub(crate) reply: Reply,
}

/// A message that holds an answer.
#[derive(Debug)]
pub(crate) struct AnswerMessage {
    /// Identifies the message: the same message sent again has the same digest.
    pub(crate) digest: [u8; 32],
    /// The message in the form in which it joins the task that asks. `None`: the message was sent to another task.
    pub(crate) message: Option<Message>,
}

/// A message that is to join a task.
#[derive(Debug)]
pub(crate) struct Joining {
    pub(crate) message: Message,
    /// Identifies the same message when it is sent again.
    pub(crate) key: IdempotencyKey,
    pub(crate) input: Vec<Input>,
    pub(crate) options: PromptOptions,
    pub(crate) trace: Option<TraceContext>,
    /// Dropped when the task takes no message at this moment.
    pub(crate) reply: Reply,
}
