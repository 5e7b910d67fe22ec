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
    /// Used once: the agent accepted the prompt, or the reason why it did not.
    pub(crate) accepted: Option<oneshot::Sender<Result<()>>>,
    /// `accepted` is also sent when the prompt has to wait for its turn.
    pub(crate) answers_when_queued: bool,
}

impl Actor {
    /// Reports to the sender of the native prompt, if there is one who was not answered yet.
    pub(super) fn report_prompt(&mut self, accepted: Result<()>) {
        if let Some(sender) = self.pending_prompt.as_mut().and_then(|prompt| prompt.accepted.take()) {
            // The sender may have disconnected; the task goes on.
            let _ = sender.send(accepted);
        }
    }

    /// Replies to a sender that does not want to wait while its prompt is queued, because nobody knows how long that takes.
    pub(super) fn report_queued(&mut self) {
        if self.pending_prompt.as_ref().is_some_and(|prompt| prompt.answers_when_queued) {
            self.report_prompt(Ok(()));
        }
    }

    /// The agent did not accept the prompt, so the same prompt sent again is a new attempt. This takes effect with the next
    /// event, which says that the task failed.
    pub(super) fn forget_prompt_key(&mut self) {
        if let Some(prompt) = &self.pending_prompt {
            self.writer.forget(prompt.key.clone());
        }
    }
}
