//! Sends messages that join a running turn.
//!
//! A [`Joiner`] sends these messages concurrently with the driver, because the driver may be waiting for the engine or for
//! OpenCode. Both share [`Joins`]. The driver closes it before the turn ends, and cannot close it while a message is being sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_engine::port::{Session, Steering};
use longshore_engine::queue;
use longshore_model::{Error, ErrorKind, PromptId, Result};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::client::{CallError, CallSlot, Client};
use crate::prompt::{PromptDraft, Prompts};
use crate::reader::lock;
use crate::translate::{Delivery, Translator};

/// How long a message waits until OpenCode shows the prompt that began the turn. OpenCode accepts a prompt at once, but stores it
/// only after it has loaded what it needs. Of two prompts that arrive in that time, either may be stored first.
const FIRST_PROMPT_WAIT: Duration = Duration::from_secs(30);

/// The prompts that joined a turn, shared by its driver and its [`Joiner`].
#[derive(Debug)]
pub(super) struct Joins {
    prompts: Mutex<Vec<(PromptId, Delivery)>>,
    /// Counts the changes. The driver compares this number on every event, and takes the lock only after a change.
    version: AtomicU64,
    /// Notifies the tasks that wait for a change. One channel serves all conditions, because a channel is larger than all other
    /// fields.
    state: watch::Sender<JoinState>,
}

/// The part of a turn's state that matters for joining messages.
#[derive(Clone, Copy, Default, Debug)]
struct JoinState {
    version: u64,
    is_closed: bool,
    /// Whether OpenCode shows the prompt that began the turn.
    is_begun: bool,
}

impl Joins {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            prompts: Mutex::default(),
            version: AtomicU64::new(0),
            state: watch::Sender::default(),
        })
    }

    /// Passes the prompts to the translator if they have changed since version `seen`.
    pub(super) fn update_translator(&self, seen: &mut u64, translator: &mut Translator) {
        if self.version.load(Ordering::Acquire) == *seen {
            return;
        }
        let prompts = lock(&self.prompts);
        *seen = self.version.load(Ordering::Acquire);
        translator.join(prompts.iter().map(|(prompt, delivery)| (prompt.as_str(), *delivery)));
    }

    /// Lets messages join once OpenCode shows the prompt that began the turn.
    pub(super) fn note_begun(&self, translator: &Translator) {
        let is_begun = translator.prompt_created().is_some();
        self.state.send_if_modified(|known| is_begun && !std::mem::replace(&mut known.is_begun, true));
    }

    /// Notifies about all changes from now on.
    pub(super) fn changes(&self) -> JoinChanges {
        let state = self.state.subscribe();
        let seen = state.borrow().version;
        JoinChanges { state, seen }
    }

    /// Closes the turn to new messages. Returns false, and does not close it, if a message has joined since version `seen`.
    pub(super) fn close_if_unchanged(&self, seen: u64) -> bool {
        let prompts = lock(&self.prompts);
        let is_news = self.version.load(Ordering::Acquire) != seen;
        if !is_news {
            self.state.send_modify(|state| state.is_closed = true);
        }
        drop(prompts);
        !is_news
    }

    /// Closes the turn to new messages. First waits for a prompt that is being sent, so that none is sent afterwards.
    pub(super) async fn close_and_wait(&self) {
        self.state.send_modify(|state| state.is_closed = true);
        let mut changes = self.changes();
        while lock(&self.prompts).iter().any(|(_, delivery)| *delivery == Delivery::Undecided) {
            changes.next().await;
        }
    }

    /// Reserves a place for a prompt: the turn does not end before the prompt is resolved. Returns false if the turn is already
    /// closed.
    fn reserve(&self, prompt: &PromptId) -> bool {
        let mut prompts = lock(&self.prompts);
        if self.state.borrow().is_closed {
            return false;
        }
        prompts.push((prompt.clone(), Delivery::Undecided));
        self.bump_version();
        true
    }

    /// Sets the delivery of a reserved prompt. `None`: the prompt was not sent.
    fn resolve(&self, prompt: &PromptId, decided: Option<Delivery>) {
        let mut prompts = lock(&self.prompts);
        match decided {
            Some(decided) => {
                for (_, delivery) in prompts.iter_mut().filter(|(known, _)| known == prompt) {
                    *delivery = decided;
                }
            }
            None => prompts.retain(|(known, _)| known != prompt),
        }
        self.bump_version();
    }

    fn bump_version(&self) {
        let version = self.version.fetch_add(1, Ordering::AcqRel) + 1;
        self.state.send_modify(|state| state.version = version);
    }
}

/// Waits until the list of joining prompts changes.
#[derive(Debug)]
pub(super) struct JoinChanges {
    state: watch::Receiver<JoinState>,
    seen: u64,
}

impl JoinChanges {
    /// Waits for the next change. Cancel safe.
    pub(super) async fn next(&mut self) {
        let changed = self.state.wait_for(|state| state.version != self.seen).await;
        match changed.map(|state| state.version) {
            Ok(version) => self.seen = version,
            // The sender was dropped, so no change can come.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Takes messages from the engine and sends them to OpenCode, one after the other.
#[derive(Debug)]
pub(super) struct Joiner {
    pub(super) client: Client,
    pub(super) prompts: Arc<Prompts>,
    pub(super) session: Session,
    pub(super) steering: queue::Receiver<Box<Steering>>,
    pub(super) joins: Arc<Joins>,
}

impl Joiner {
    /// Runs as long as the turn.
    pub(super) async fn run(mut self: Box<Self>) {
        while let Some(steering) = self.steering.recv().await {
            // Boxed, because few messages join turns, and otherwise every turn would hold the memory of this future.
            Box::pin(self.join(steering)).await;
        }
        // The engine will send no more messages, but the turn continues.
        std::future::pending::<()>().await;
    }

    async fn join(&self, steering: Box<Steering>) {
        let Steering { prompt, input, options, expected, go, sent, trace } = *steering;
        if !self.joins.reserve(&prompt) {
            return;
        }
        let (mut closed, mut begun) = (self.joins.state.subscribe(), self.joins.state.subscribe());
        let ready_to_go = async {
            let confirmed = go.await;
            // If the first prompt never appears, the message is sent anyway. The driver reports the missing prompt.
            let _ = timeout(FIRST_PROMPT_WAIT, begun.wait_for(|state| state.is_begun)).await;
            confirmed
        };
        let may_go = expected.send(()).is_ok()
            && tokio::select! {
                biased;
                _ = closed.wait_for(|state| state.is_closed) => false,
                confirmed = ready_to_go => confirmed.is_ok(),
            };
        if !may_go {
            self.joins.resolve(&prompt, None);
            let _ = sent.send(Err(too_late()));
            return;
        }
        let client = self.client.with_trace(trace);
        let ready = async {
            let (prompt, order) = (prompt.as_str(), None);
            let saying = PromptDraft { prompt, input: &input, options: &options, order, is_note: false };
            let body = self.prompts.body(&client, &self.session, saying).await?.json;
            let slot = client.slot().await.map_err(|cause| cause.into_error("send the message"))?;
            Ok((body, slot))
        };
        // Until the message is sent, the turn can still be closed. The wait for a call slot can be long.
        let ready = tokio::select! {
            biased;
            _ = closed.wait_for(|state| state.is_closed) => Err(too_late()),
            ready = ready => ready,
        };
        let outcome = match ready {
            Ok((body, slot)) => self.send(&client, slot, body).await,
            Err(refused) => Err(refused),
        };
        self.joins.resolve(&prompt, outcome.as_ref().ok().copied());
        // This fails if the engine has stopped. After its restart, it finds the prompt in OpenCode's message list.
        let _ = sent.send(outcome.map(|_| ()));
    }

    /// Sends the message. An error means that OpenCode certainly does not have it.
    async fn send(&self, client: &Client, slot: CallSlot<'_>, body: String) -> Result<Delivery> {
        let (directory, session) = (self.session.directory.as_str(), self.session.id.as_str());
        match client.prompt(slot, directory, session, body).await {
            Ok(()) => Ok(Delivery::Accepted),
            Err(cause @ CallError::Refused { status, .. }) if status < 500 => {
                Err(cause.into_error("send the message"))
            }
            Err(cause @ (CallError::Cut(_) | CallError::Ended | CallError::Refused { .. })) => {
                tracing::warn!(session = %self.session.id, %cause, "it is unknown whether OpenCode accepted a message");
                Ok(Delivery::Unknown)
            }
            Err(cause) => Err(cause.into_error("send the message")),
        }
    }
}

fn too_late() -> Error {
    Error::new(ErrorKind::AgentUnavailable, "The turn ended before the message could join it. Send it again.")
}
