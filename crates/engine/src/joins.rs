//! Messages that join a turn while it runs.
//!
//! Three steps keep a message from being lost or prompted twice. The driver promises not to end the turn without the prompt,
//! then the message is written to the log, and then the prompt is sent. This module does all the waiting, so that the actor
//! of the task continues meanwhile: the driver may itself wait for the actor to read its reports.
//!
//! If the same message is sent again while the first send is in progress, both senders get the same result.

use std::fmt;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use longshore_meter::label::Limit;
use longshore_meter::{Label as _, Metrics};
use longshore_model::{Error, ErrorKind, Message, PromptId, Result};
use tokio::sync::oneshot;

use crate::actor_request::{Joining, Reply};
use crate::intake::size;
use crate::port::{BoxFuture, IdempotencyKey, Steering};
use crate::queue;
use crate::snapshot::Snapshot;
use crate::unfinished::RETRY_AFTER;

/// How many messages of one task may be on their way to its turn. Further messages are refused.
const MAX_JOINING: usize = 16;

/// How many messages one task accepts in all. Further messages are refused: a conversation should consist of several tasks,
/// because every snapshot of a task writes all its messages again.
const MAX_MESSAGES: usize = 256;

/// The retry hint when a task has too many messages. The caller can only wait for the end of the task, which may take a while.
const RETRY_AFTER_TASK: Duration = Duration::from_mins(1);

/// The progress of a message on its way to the turn.
pub(crate) enum Step {
    /// The driver has promised to wait for the prompt. The message is written to the log next.
    Expected(Expected),
    /// The turn is over, or about to end.
    TooLate(PromptId),
    Sent(PromptId, Result<()>),
}

pub(crate) struct Expected {
    pub(crate) prompt: PromptId,
    go: oneshot::Sender<()>,
    sent: oneshot::Receiver<Result<()>>,
}

/// A message on its way, and the callers who wait for its result.
struct PendingJoin {
    prompt: PromptId,
    message: Message,
    key: IdempotencyKey,
    replies: Vec<Reply>,
}

/// A message whose result is known, and the callers who wait for that result.
pub(crate) struct CompletedJoin {
    pub(crate) message: Message,
    pub(crate) key: IdempotencyKey,
    replies: Vec<Reply>,
}

#[derive(Default)]
pub(crate) struct Joins {
    steps: FuturesUnordered<BoxFuture<'static, Step>>,
    pending: Vec<PendingJoin>,
}

impl Joins {
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Answers the caller if the task already has the message or cannot accept it. Returns the message if the task can accept it.
    /// `room`: how many more bytes the task may have, and its limit.
    pub(crate) fn check(
        &mut self,
        joining: Joining,
        metrics: &Metrics,
        (room, max_bytes): (u64, u64),
        task: impl FnOnce() -> Snapshot,
    ) -> Option<Joining> {
        let known = self.pending.iter_mut().find(|known| known.message == joining.message);
        if let Some(known) = known {
            known.replies.push(joining.reply);
            return None;
        }
        let now = task();
        let answer = if now.task.history.contains(&joining.message) {
            Ok(now)
        } else if now.task.history.len() >= MAX_MESSAGES {
            let error = too_many(metrics, Limit::MessagesPerTask, MAX_MESSAGES, RETRY_AFTER_TASK);
            Err(error.detail("taskId", now.task.id.as_str()))
        } else if joining.message.weight() as u64 > room {
            Err(too_large(metrics, max_bytes).detail("taskId", now.task.id.as_str()))
        } else if self.pending.len() >= MAX_JOINING {
            let error = too_many(metrics, Limit::JoiningPerTask, MAX_JOINING, RETRY_AFTER);
            Err(error.detail("taskId", now.task.id.as_str()))
        } else {
            return Some(joining);
        };
        // The send fails only if the caller has disconnected.
        let _ = joining.reply.send(answer);
        None
    }

    /// Offers a message to the driver of the turn.
    pub(crate) fn begin(&mut self, turn: &queue::Sender<Box<Steering>>, prompt: PromptId, joining: Joining) {
        let Joining { message, key, input, options, trace, reply } = joining;
        self.pending.push(PendingJoin { prompt: prompt.clone(), message, key, replies: vec![reply] });
        let turn = turn.clone();
        self.steps.push(Box::pin(async move {
            let (expected, is_expected) = oneshot::channel();
            let (go, go_ahead) = oneshot::channel();
            let (sent, outcome) = oneshot::channel();
            let prompt_id = prompt.clone();
            let steering =
                Steering { prompt: prompt_id, input, options, trace, expected, go: go_ahead, sent };
            if turn.send(Box::new(steering)).await.is_err() || is_expected.await.is_err() {
                return Step::TooLate(prompt);
            }
            Step::Expected(Expected { prompt, go, sent: outcome })
        }));
    }

    /// The message of a prompt that is on its way, and the idempotency key of its send.
    pub(crate) fn message_of(&self, prompt: &PromptId) -> Option<(Message, IdempotencyKey)> {
        let known = self.pending.iter().find(|known| known.prompt == *prompt)?;
        Some((known.message.clone(), known.key.clone()))
    }

    /// Lets the driver send the prompt, because the log now has the message.
    pub(crate) fn send_prompt(&mut self, expected: Expected) {
        let Expected { prompt, go, sent } = expected;
        // If the driver has ended, the turn is over. The message is in the log, so its callers learn that it was accepted.
        let _ = go.send(());
        self.steps.push(Box::pin(async move { Step::Sent(prompt, sent.await.unwrap_or(Ok(()))) }));
    }

    /// Removes a message whose result is known. If the return value is dropped, its callers learn that the task accepts no message
    /// now.
    pub(crate) fn complete(&mut self, prompt: &PromptId) -> Option<CompletedJoin> {
        let index = self.pending.iter().position(|known| known.prompt == *prompt)?;
        let PendingJoin { message, key, replies, .. } = self.pending.remove(index);
        Some(CompletedJoin { message, key, replies })
    }

    /// Waits for the next step of any message. Never returns while no message is on its way. Cancel safe.
    pub(crate) async fn next(&mut self) -> Step {
        match self.steps.next().await {
            Some(step) => step,
            None => std::future::pending().await,
        }
    }
}

impl CompletedJoin {
    pub(crate) fn send(self, outcome: &Result<Snapshot>) {
        for reply in self.replies {
            // The caller may have disconnected; the message has its result anyway.
            let _ = reply.send(outcome.clone());
        }
    }
}

/// Counts the refusal of a message because of this limit, and makes the error for its caller.
fn too_many(metrics: &Metrics, limit: Limit, max: usize, after: Duration) -> Error {
    metrics.refused.of(limit).increment();
    let text = format!(
        "The task takes {MAX_MESSAGES} messages, and {MAX_JOINING} at a time; wait until it is over and send this one \
         without taskId, with its contextId."
    );
    Error::new(ErrorKind::TooManyRequests, text)
        .detail("limit", Limit::VALUES[limit.index()])
        .detail("max", max.to_string())
        .after(after)
}

/// Counts the refusal of a message that would make its task too large, and makes the error for its caller.
fn too_large(metrics: &Metrics, max: u64) -> Error {
    let limit = Limit::TaskBytes;
    metrics.refused.of(limit).increment();
    let text = format!(
        "With this message the task would have more than {}, which is the limit; wait until the task is over and send the \
         message without taskId, with its contextId.",
        size(max)
    );
    Error::new(ErrorKind::TooManyRequests, text)
        .detail("limit", Limit::VALUES[limit.index()])
        .detail("max", max.to_string())
        .after(RETRY_AFTER_TASK)
}

impl fmt::Debug for Joins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joins").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}
