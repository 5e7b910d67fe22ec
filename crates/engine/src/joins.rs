//! Messages that join a turn while it runs.
//!
//! Three steps, so that no message is lost and none is prompted twice: the driver promises not to end the turn without
//! the prompt, the log takes the message, and only then is the prompt sent. All waiting is done here, so that the owner
//! of the task goes on meanwhile: the driver may itself wait for the owner to take its reports.
//!
//! The same message again, while it is on its way, waits for the fate of the first.

use std::fmt;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use longshore_meter::label::Limit;
use longshore_meter::{Label as _, Metrics};
use longshore_model::{Error, ErrorKind, Message, PromptId, PromptOptions, Result, TraceContext};
use tokio::sync::oneshot;

use crate::port::{BoxFuture, IdempotencyKey, Input, Steering};
use crate::queue;
use crate::service::Snapshot;
use crate::unfinished::COME_AGAIN;

/// How many messages of one task may be on their way to its turn. One more is refused.
const MAX_JOINING: usize = 16;

/// How many messages one task takes in all. One more is refused: a conversation is made of tasks, not of one that never
/// ends, and each message is written anew with every snapshot of the task.
const MAX_MESSAGES: usize = 256;

/// When whoever has a message too many for a task should come again: nothing but its end helps, and that may take a while.
const WHEN_IT_IS_OVER: Duration = Duration::from_mins(1);

type Reply = oneshot::Sender<Result<Snapshot>>;

/// A message that is to join a task.
#[derive(Debug)]
pub(crate) struct Joining {
    pub(crate) message: Message,
    /// Under which the same send is known again.
    pub(crate) key: IdempotencyKey,
    pub(crate) input: Vec<Input>,
    pub(crate) options: PromptOptions,
    pub(crate) trace: Option<TraceContext>,
    /// Dropped when the task takes no message at this moment.
    pub(crate) reply: Reply,
}

/// How far a message has come.
pub(crate) enum Step {
    /// The driver waits for the word, and the log is to take the message.
    Expected(Expected),
    /// The turn is over, or about to be.
    TooLate(PromptId),
    Sent(PromptId, Result<()>),
}

pub(crate) struct Expected {
    pub(crate) prompt: PromptId,
    go: oneshot::Sender<()>,
    sent: oneshot::Receiver<Result<()>>,
}

/// A message on its way, and who waits to hear of it.
struct OnItsWay {
    prompt: PromptId,
    message: Message,
    key: IdempotencyKey,
    replies: Vec<Reply>,
}

/// A message whose fate is known, and who is to be told.
pub(crate) struct Arrived {
    pub(crate) message: Message,
    pub(crate) key: IdempotencyKey,
    replies: Vec<Reply>,
}

#[derive(Default)]
pub(crate) struct Joins {
    steps: FuturesUnordered<BoxFuture<'static, Step>>,
    on_their_way: Vec<OnItsWay>,
}

impl Joins {
    pub(crate) fn is_empty(&self) -> bool {
        self.on_their_way.is_empty()
    }

    /// Whether the task has the message already, or cannot take it. Gives it back when it can.
    pub(crate) fn look_at(
        &mut self,
        joining: Joining,
        metrics: &Metrics,
        task: impl FnOnce() -> Snapshot,
    ) -> Option<Joining> {
        let known = self.on_their_way.iter_mut().find(|known| known.message == joining.message);
        if let Some(known) = known {
            known.replies.push(joining.reply);
            return None;
        }
        let now = task();
        let answer = if now.task.history.contains(&joining.message) {
            Ok(now)
        } else if now.task.history.len() >= MAX_MESSAGES {
            let error = too_many(metrics, Limit::MessagesPerTask, MAX_MESSAGES, WHEN_IT_IS_OVER);
            Err(error.detail("taskId", now.task.id.as_str()))
        } else if self.on_their_way.len() >= MAX_JOINING {
            let error = too_many(metrics, Limit::JoiningPerTask, MAX_JOINING, COME_AGAIN);
            Err(error.detail("taskId", now.task.id.as_str()))
        } else {
            return Some(joining);
        };
        // The giver may have gone.
        let _ = joining.reply.send(answer);
        None
    }

    /// Offers a message to the driver of the turn.
    pub(crate) fn begin(&mut self, turn: &queue::Sender<Box<Steering>>, prompt: PromptId, joining: Joining) {
        let Joining { message, key, input, options, trace, reply } = joining;
        self.on_their_way.push(OnItsWay { prompt: prompt.clone(), message, key, replies: vec![reply] });
        let turn = turn.clone();
        self.steps.push(Box::pin(async move {
            let (expected, is_expected) = oneshot::channel();
            let (go, word) = oneshot::channel();
            let (sent, outcome) = oneshot::channel();
            let prompt_id = prompt.clone();
            let steering = Steering { prompt: prompt_id, input, options, trace, expected, go: word, sent };
            if turn.send(Box::new(steering)).await.is_err() || is_expected.await.is_err() {
                return Step::TooLate(prompt);
            }
            Step::Expected(Expected { prompt, go, sent: outcome })
        }));
    }

    /// The message of a prompt that is on its way, and the key of its send.
    pub(crate) fn message_of(&self, prompt: &PromptId) -> Option<(Message, IdempotencyKey)> {
        let known = self.on_their_way.iter().find(|known| known.prompt == *prompt)?;
        Some((known.message.clone(), known.key.clone()))
    }

    /// The log has the message: lets it go to the agent.
    pub(crate) fn go(&mut self, expected: Expected) {
        let Expected { prompt, go, sent } = expected;
        // A driver that is gone by now has ended the turn; the message is in the log, and its giver is told that it is.
        let _ = go.send(());
        self.steps.push(Box::pin(async move { Step::Sent(prompt, sent.await.unwrap_or(Ok(()))) }));
    }

    /// The fate of a message is known. Dropping what this gives tells its givers that the task takes no message now.
    pub(crate) fn arrived(&mut self, prompt: &PromptId) -> Option<Arrived> {
        let place = self.on_their_way.iter().position(|known| known.prompt == *prompt)?;
        let OnItsWay { message, key, replies, .. } = self.on_their_way.remove(place);
        Some(Arrived { message, key, replies })
    }

    /// The next step of any message. Cancel safe; waits for ever while there is none.
    pub(crate) async fn next(&mut self) -> Step {
        match self.steps.next().await {
            Some(step) => step,
            None => std::future::pending().await,
        }
    }
}

impl Arrived {
    pub(crate) fn tell(self, outcome: &Result<Snapshot>) {
        for reply in self.replies {
            // The giver may have gone; what happened stands.
            let _ = reply.send(outcome.clone());
        }
    }
}

/// Counts that a message is refused by this limit, and says so.
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

impl fmt::Debug for Joins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joins").field("on_their_way", &self.on_their_way.len()).finish_non_exhaustive()
    }
}
