//! Messages that join a running turn.
//!
//! They are taken in beside the driver, not by it: the driver may wait for the engine or for OpenCode at that moment. The
//! two meet in [`Joins`]. A turn closes it before it ends, and cannot while a message is on its way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_engine::port::{Session, Steering};
use longshore_engine::queue;
use longshore_model::{Error, ErrorKind, PromptId, Result};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::client::{CallError, Client, Place};
use crate::prompt::{Prompts, Saying};
use crate::translate::{Delivery, Translator};

/// How long a message waits for OpenCode to show the one that began the turn: OpenCode says at once that it takes a prompt, and
/// stores it when it has loaded what it needs. Of two that it is given meanwhile, either may be stored first.
const FIRST_PROMPT_WAIT: Duration = Duration::from_secs(30);

/// The prompts that joined a turn, shared by its driver and its [`Joiner`].
#[derive(Debug)]
pub(super) struct Joins {
    prompts: Mutex<Vec<(PromptId, Delivery)>>,
    /// Counts the changes, so that the driver need not look at every event.
    version: AtomicU64,
    /// The same, for those who wait for one. One for all that is waited for: each costs more than all else here.
    state: watch::Sender<JoinState>,
}

/// How it stands with a turn, for those who join it.
#[derive(Clone, Copy, Default, Debug)]
struct JoinState {
    version: u64,
    is_closed: bool,
    /// OpenCode shows the prompt that began the turn.
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

    /// Tells the translator of the prompts, if there is news since the version that was seen last.
    pub(super) fn tell(&self, seen: &mut u64, translator: &mut Translator) {
        if self.version.load(Ordering::Acquire) == *seen {
            return;
        }
        let prompts = self.lock();
        *seen = self.version.load(Ordering::Acquire);
        translator.join(prompts.iter().map(|(prompt, fate)| (prompt.as_str(), *fate)));
    }

    /// Lets messages join once OpenCode shows what began the turn.
    pub(super) fn look_at(&self, translator: &Translator) {
        let is_begun = translator.prompt_created().is_some();
        self.state.send_if_modified(|known| is_begun && !std::mem::replace(&mut known.is_begun, true));
    }

    /// The changes from now on.
    pub(super) fn news(&self) -> JoinChanges {
        let state = self.state.subscribe();
        let seen = state.borrow().version;
        JoinChanges { state, seen }
    }

    /// Nobody can join any more, unless somebody did since the version that was seen last.
    pub(super) fn close(&self, seen: u64) -> bool {
        let prompts = self.lock();
        let is_news = self.version.load(Ordering::Acquire) != seen;
        if !is_news {
            self.state.send_modify(|state| state.is_closed = true);
        }
        drop(prompts);
        !is_news
    }

    /// Nobody can join any more. Waits for a prompt that is being sent, so that nothing is sent after this.
    pub(super) async fn shut(&self) {
        self.state.send_modify(|state| state.is_closed = true);
        let mut news = self.news();
        while self.lock().iter().any(|(_, fate)| *fate == Delivery::Undecided) {
            news.next().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(PromptId, Delivery)>> {
        // Nothing that holds this lock can panic half-way through a change.
        self.prompts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Promises that the turn does not end without this prompt. Not once it is about to end.
    fn expect(&self, prompt: &PromptId) -> bool {
        let mut prompts = self.lock();
        if self.state.borrow().is_closed {
            return false;
        }
        prompts.push((prompt.clone(), Delivery::Undecided));
        self.note();
        true
    }

    /// `None`: it was not sent.
    fn decide(&self, prompt: &PromptId, decided: Option<Delivery>) {
        let mut prompts = self.lock();
        match decided {
            Some(decided) => {
                for (_, fate) in prompts.iter_mut().filter(|(known, _)| known == prompt) {
                    *fate = decided;
                }
            }
            None => prompts.retain(|(known, _)| known != prompt),
        }
        self.note();
    }

    fn note(&self) {
        let version = self.version.fetch_add(1, Ordering::AcqRel) + 1;
        self.state.send_modify(|state| state.version = version);
    }
}

/// Changes of the prompts that join.
#[derive(Debug)]
pub(super) struct JoinChanges {
    state: watch::Receiver<JoinState>,
    seen: u64,
}

impl JoinChanges {
    /// Waits for the next one. Cancel safe.
    pub(super) async fn next(&mut self) {
        let news = self.state.wait_for(|state| state.version != self.seen).await;
        match news.map(|state| state.version) {
            Ok(version) => self.seen = version,
            // Nobody is there who could join.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Takes the messages from the engine and sends them to OpenCode, one after the other.
#[derive(Debug)]
pub(super) struct Joiner {
    pub(super) client: Client,
    pub(super) prompts: Arc<Prompts>,
    pub(super) session: Session,
    pub(super) steering: queue::Receiver<Box<Steering>>,
    pub(super) joins: Arc<Joins>,
}

impl Joiner {
    /// Runs for as long as the turn does.
    pub(super) async fn run(mut self: Box<Self>) {
        while let Some(steering) = self.steering.recv().await {
            // In a box, because few turns are joined, and every one has room for what is not.
            Box::pin(self.join(steering)).await;
        }
        // The engine will send no more. The turn goes on.
        std::future::pending::<()>().await;
    }

    async fn join(&self, steering: Box<Steering>) {
        let Steering { prompt, input, options, expected, go, sent, trace } = *steering;
        if !self.joins.expect(&prompt) {
            return;
        }
        let (mut closed, mut begun) = (self.joins.state.subscribe(), self.joins.state.subscribe());
        let word = async {
            let word = go.await;
            // One that never shows is found missing by the driver.
            let _ = timeout(FIRST_PROMPT_WAIT, begun.wait_for(|state| state.is_begun)).await;
            word
        };
        let may_go = expected.send(()).is_ok()
            && tokio::select! {
                biased;
                _ = closed.wait_for(|state| state.is_closed) => false,
                word = word => word.is_ok(),
            };
        if !may_go {
            self.joins.decide(&prompt, None);
            let _ = sent.send(Err(too_late()));
            return;
        }
        let client = self.client.within(trace);
        let ready = async {
            let (prompt, order) = (prompt.as_str(), None);
            let saying = Saying { prompt, input: &input, options: &options, order, is_note: false };
            let body = self.prompts.body(&client, &self.session, saying).await?;
            let place = client.place().await.map_err(|cause| cause.into_error("send the message"))?;
            Ok((body, place))
        };
        // It was not sent yet, and whoever has the places may have them for long.
        let ready = tokio::select! {
            biased;
            _ = closed.wait_for(|state| state.is_closed) => Err(too_late()),
            ready = ready => ready,
        };
        let outcome = match ready {
            Ok((body, place)) => self.send(&client, place, body).await,
            Err(refused) => Err(refused),
        };
        self.joins.decide(&prompt, outcome.as_ref().ok().copied());
        // The engine may be gone by now, and finds the prompt in OpenCode's list when it comes back.
        let _ = sent.send(outcome.map(|_| ()));
    }

    /// An error means that OpenCode surely does not have it.
    async fn send(&self, client: &Client, place: Place<'_>, body: String) -> Result<Delivery> {
        let (directory, session) = (self.session.directory.as_str(), self.session.id.as_str());
        match client.prompt(place, directory, session, body).await {
            Ok(()) => Ok(Delivery::Accepted),
            Err(cause @ CallError::Refused { status, .. }) if status < 500 => {
                Err(cause.into_error("send the message"))
            }
            Err(cause @ (CallError::Cut(_) | CallError::Refused { .. })) => {
                tracing::warn!(session = %self.session.id, %cause, "it is not known whether OpenCode took a message");
                Ok(Delivery::Unknown)
            }
            Err(cause) => Err(cause.into_error("send the message")),
        }
    }
}

fn too_late() -> Error {
    Error::new(ErrorKind::AgentUnavailable, "The turn ended before the message could join it. Send it again.")
}
