//! A command of OpenCode's own that begins a turn. The call lasts as long as the turn does, so that it is made beside it, and what it
//! says at once decides whether there is a turn at all.

use std::time::Duration;

use longshore_engine::Tasks;
use longshore_engine::port::{Prompting, Session};
use longshore_model::Result;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::start::{SendResult, has_message, is_proxy_error, refused, classify_failure};
use crate::api::{Envelope, EventKind, MessageUpdated};
use crate::client::{CallError, Client};
use crate::reader::{Lease, Routed};

/// What OpenCode refuses it refuses within this time. A turn that says nothing for so long has begun.
const AT_ONCE: Duration = Duration::from_secs(2);

pub(super) struct Command<'a> {
    pub(super) client: &'a Client,
    pub(super) tasks: &'a Tasks,
    pub(super) session: &'a Session,
    pub(super) prompt: &'a str,
}

impl Command<'_> {
    /// Sends it, and waits until OpenCode refused it or has begun.
    pub(super) async fn send(self, body: String, lease: &mut Lease, prompting: &Prompting) -> Result<SendResult> {
        let answer = self.call(body, lease);
        let is_stored = |routed: &Routed| self.is_stored(routed);
        let answered = tokio::select! {
            biased;
            // Gone without a word: the gateway ends.
            answered = answer => answered.unwrap_or(Ok(())),
            () = lease.peek_until(is_stored) => Ok(()),
            () = sleep(AT_ONCE) => Ok(()),
        };
        match answered {
            Ok(()) => Ok(SendResult::Accepted),
            Err(CallError::Refused { status, message }) if status < 500 => Ok(refused(status, &message)),
            Err(cause @ CallError::Refused { status, .. }) if is_proxy_error(status) => {
                classify_failure(cause, self.session, prompting)
            }
            Err(cause @ (CallError::Refused { .. } | CallError::Garbled(_))) => {
                let known = has_message(self.client, self.session, self.prompt).await;
                match (cause, known) {
                    (CallError::Refused { status, message }, Some(false)) => Ok(refused(status, &message)),
                    (CallError::Refused { .. }, _) | (_, Some(true)) => Ok(SendResult::Unknown),
                    // Whatever answered: OpenCode would answer at the end only, and have the message by then.
                    (cause, Some(false)) => Err(cause.into_error("send the prompt")),
                    (cause, None) => classify_failure(cause, self.session, prompting),
                }
            }
            Err(cause) => classify_failure(cause, self.session, prompting),
        }
    }

    /// Makes the call beside the turn, for as long as that lasts.
    fn call(&self, body: String, lease: &Lease) -> oneshot::Receiver<Result<(), CallError>> {
        let (answer, answered) = oneshot::channel();
        let (client, session, doubt) = (self.client.clone(), self.session.clone(), lease.doubt());
        let stop = self.tasks.stopping().clone();
        self.tasks.spawn("opencode-command", async move {
            let over = async {
                match &doubt {
                    Some(doubt) => doubt.settled().await,
                    None => std::future::pending().await,
                }
            };
            let said = tokio::select! {
                said = client.command(&session.directory, session.id.as_str(), body) => said,
                () = over => return,
                () = stop.cancelled() => return,
            };
            // The turn runs by now. What it did came by the event stream, if anything did.
            if let Err(Err(cause)) = answer.send(said) {
                tracing::warn!(session = %session.id, %cause, "a command of OpenCode ended without an answer");
                if let Some(doubt) = &doubt {
                    doubt.raise();
                }
            }
        });
        answered
    }

    /// OpenCode tells of the message that the command became.
    fn is_stored(&self, routed: &Routed) -> bool {
        let Routed::Event { child: None, event } = routed else { return false };
        if event.kind != EventKind::MessageUpdated {
            return false;
        }
        let read: serde_json::Result<Envelope<MessageUpdated>> = serde_json::from_slice(event.body());
        read.is_ok_and(|read| read.properties.info.id == self.prompt)
    }
}
