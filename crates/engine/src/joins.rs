//! Messages that join a turn while it runs.
//!
//! Three steps, so that no message is lost and none is prompted twice: the driver promises not to end the turn without
//! the prompt, the log takes the message, and only then is the prompt sent. All waiting is done here, so that the owner
//! of the task goes on meanwhile: the driver may itself wait for the owner to take its reports.

use std::fmt;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use longshore_model::{Message, PromptId, PromptOptions, Result};
use tokio::sync::{mpsc, oneshot};

use crate::port::{BoxFuture, Input, Steering};
use crate::service::Snapshot;

/// A message that is to join a task.
#[derive(Debug)]
pub(crate) struct Joining {
    pub(crate) message: Message,
    pub(crate) input: Vec<Input>,
    pub(crate) options: PromptOptions,
    /// Dropped when the task takes no message at this moment.
    pub(crate) reply: oneshot::Sender<Result<Snapshot>>,
}

/// How far a message has come.
pub(crate) enum Step {
    /// The driver waits for the word, and the log is to take the message.
    Expected(Expected),
    /// The turn is over, or about to be.
    TooLate(Message),
    Sent(Sent),
}

pub(crate) struct Expected {
    pub(crate) message: Message,
    pub(crate) prompt: PromptId,
    reply: oneshot::Sender<Result<Snapshot>>,
    go: oneshot::Sender<()>,
    sent: oneshot::Receiver<Result<()>>,
}

pub(crate) struct Sent {
    pub(crate) message: Message,
    pub(crate) prompt: PromptId,
    pub(crate) reply: oneshot::Sender<Result<Snapshot>>,
    pub(crate) outcome: Result<()>,
}

#[derive(Default)]
pub(crate) struct Joins {
    steps: FuturesUnordered<BoxFuture<'static, Step>>,
    /// The messages that are on their way, each with those who sent it once more meanwhile.
    under_way: Vec<(Message, Vec<oneshot::Sender<Result<Snapshot>>>)>,
}

impl Joins {
    /// Offers a message to the driver of the turn. One that is on its way already is not offered again.
    pub(crate) fn begin(&mut self, turn: &mpsc::Sender<Steering>, prompt: PromptId, joining: Joining) {
        if let Some((_, others)) = self.under_way.iter_mut().find(|(known, _)| *known == joining.message) {
            others.push(joining.reply);
            return;
        }
        self.under_way.push((joining.message.clone(), Vec::new()));
        let turn = turn.clone();
        self.steps.push(Box::pin(async move {
            let Joining { message, input, options, reply } = joining;
            let (expected, is_expected) = oneshot::channel();
            let (go, word) = oneshot::channel();
            let (sent, outcome) = oneshot::channel();
            let steering = Steering { prompt: prompt.clone(), input, options, expected, go: word, sent };
            if turn.send(steering).await.is_err() || is_expected.await.is_err() {
                return Step::TooLate(message);
            }
            Step::Expected(Expected { message, prompt, reply, go, sent: outcome })
        }));
    }

    /// The log has the message: lets it go to the agent.
    pub(crate) fn go(&mut self, expected: Expected) {
        let Expected { message, prompt, reply, go, sent } = expected;
        // A driver that is gone by now has ended the turn; the message is in the log, and its giver is told that it is.
        let _ = go.send(());
        self.steps.push(Box::pin(async move {
            let outcome = sent.await.unwrap_or(Ok(()));
            Step::Sent(Sent { message, prompt, reply, outcome })
        }));
    }

    pub(crate) fn is_under_way(&self, message: &Message) -> bool {
        self.under_way.iter().any(|(known, _)| known == message)
    }

    /// The message is not on its way any more: those who sent it once more. Who of them is told nothing finds out from the
    /// log.
    pub(crate) fn arrived(&mut self, message: &Message) -> Vec<oneshot::Sender<Result<Snapshot>>> {
        let at = self.under_way.iter().position(|(known, _)| known == message);
        at.map(|at| self.under_way.swap_remove(at).1).unwrap_or_default()
    }

    /// The next step of any message. Cancel safe; waits for ever while there is none.
    pub(crate) async fn next(&mut self) -> Step {
        match self.steps.next().await {
            Some(step) => step,
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Joins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joins").field("steps", &self.steps.len()).finish_non_exhaustive()
    }
}
