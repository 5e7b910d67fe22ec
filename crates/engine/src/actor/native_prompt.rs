//! Tells the sender of a native prompt, before the task ends, whether the agent accepted the prompt.

use longshore_model::Result;
use tokio::sync::oneshot;

use super::Actor;
use crate::port::IdempotencyKey;

/// A native prompt that the agent has not accepted yet.
#[derive(Debug)]
pub(crate) struct PendingPrompt {
    /// Identifies the same prompt when it is sent again.
    pub(crate) key: IdempotencyKey,
    /// Gets one result: the agent accepted the prompt, or why it did not. `None` after the result was sent.
    pub(crate) accepted: Option<oneshot::Sender<Result<()>>>,
    /// Whether the sender also gets its result when the prompt has to wait for its turn.
    pub(crate) answers_when_queued: bool,
}

impl Actor {
    /// Sends the result to the sender of the native prompt, if that sender still waits for one.
    pub(super) fn report_prompt(&mut self, accepted: Result<()>) {
        if let Some(sender) = self.pending_prompt.as_mut().and_then(|prompt| prompt.accepted.take()) {
            // The send fails only if the sender has disconnected; the task continues.
            let _ = sender.send(accepted);
        }
    }

    /// Replies to a sender that does not want to wait while its prompt is queued. The length of that wait is unknown.
    pub(super) fn report_queued(&mut self) {
        if self.pending_prompt.as_ref().is_some_and(|prompt| prompt.answers_when_queued) {
            self.report_prompt(Ok(()));
        }
    }

    /// Removes the idempotency key of a prompt that the agent did not accept, so that a repeated send is a new attempt. The
    /// removal is stored with the next event, which says that the task failed.
    pub(super) fn forget_prompt_key(&mut self) {
        if let Some(prompt) = &self.pending_prompt {
            self.writer.forget(prompt.key.clone());
        }
    }
}
