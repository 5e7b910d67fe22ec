//! Starts a turn with one of OpenCode's own commands.
//!
//! The HTTP request of a command lasts as long as the turn, so it runs in a separate task. Only its result in the first moments
//! matters, because it shows whether OpenCode refused the command.

use std::time::Duration;

use longshore_model::Result;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::start::{PromptCall, SendResult, is_proxy_error, refused};
use crate::api::{Envelope, EventKind, MessageUpdated};
use crate::client::CallError;
use crate::id::is_prompt;
use crate::reader::{Lease, Routed};

/// How long OpenCode takes at most to refuse a command. Without a response in this time, the command has started a turn.
const REFUSAL_WINDOW: Duration = Duration::from_secs(2);

impl PromptCall<'_> {
    /// Sends a command, and waits until OpenCode has refused it or has begun the turn.
    pub(super) async fn send_command(self, body: String, lease: &mut Lease) -> Result<SendResult> {
        let answer = self.spawn_call(body, lease);
        let is_stored = |routed: &Routed| self.is_stored(routed);
        let answered = tokio::select! {
            biased;
            // The sender is dropped without a result only when the gateway stops.
            answered = answer => answered.unwrap_or(Ok(())),
            () = lease.peek_until(is_stored) => Ok(()),
            () = sleep(REFUSAL_WINDOW) => Ok(()),
        };
        match answered {
            Ok(()) => Ok(SendResult::Accepted),
            Err(CallError::Refused { status, message }) if status < 500 => Ok(refused(status, &message)),
            Err(cause @ CallError::Refused { status, .. }) if is_proxy_error(status) => {
                self.classify_failure(cause)
            }
            Err(cause @ (CallError::Refused { .. } | CallError::Garbled(_))) => {
                let known = self.has_message().await;
                match (cause, known) {
                    (CallError::Refused { status, message }, Some(false)) => Ok(refused(status, &message)),
                    (CallError::Refused { .. }, _) | (_, Some(true)) => Ok(SendResult::Unknown),
                    // The response cannot be OpenCode's, because OpenCode responds only at the end of the turn and would have
                    // stored the message by then.
                    (cause, Some(false)) => Err(cause.into_error("send the prompt")),
                    (cause, None) => self.classify_failure(cause),
                }
            }
            Err(cause) => self.classify_failure(cause),
        }
    }

    /// Sends the request in a separate task, which lasts as long as the turn.
    fn spawn_call(&self, body: String, lease: &Lease) -> oneshot::Receiver<Result<(), CallError>> {
        let (answer, answered) = oneshot::channel();
        let (client, session, trigger) = (self.client.clone(), self.session.clone(), lease.reread_trigger());
        let stop = self.tasks.stopping().clone();
        self.tasks.spawn("opencode-command", async move {
            let over = async {
                match &trigger {
                    Some(trigger) => trigger.turn_ended().await,
                    None => std::future::pending().await,
                }
            };
            let result = tokio::select! {
                result = client.command(&session.directory, session.id.as_str(), body) => result,
                () = over => return,
                () = stop.cancelled() => return,
            };
            // Nobody waits for the result any more: the turn runs, and its events come on the event stream. After a failure the
            // turn reads its state, because events may have been lost.
            if let Err(Err(cause)) = answer.send(result) {
                tracing::warn!(session = %session.id, %cause, "the call of an OpenCode command failed while its turn ran");
                if let Some(trigger) = &trigger {
                    trigger.request_reread();
                }
            }
        });
        answered
    }

    /// Whether the event is about the message that OpenCode stored for the command.
    fn is_stored(&self, routed: &Routed) -> bool {
        let Routed::Event { child: None, event } = routed else { return false };
        if event.kind != EventKind::MessageUpdated {
            return false;
        }
        let read: serde_json::Result<Envelope<MessageUpdated>> = serde_json::from_slice(event.body());
        read.is_ok_and(|read| is_prompt(&read.properties.info.id, self.prompt))
    }
}
