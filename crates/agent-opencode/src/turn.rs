//! The driver of one turn: follows the session's events until OpenCode says how the turn ended.
//!
//! The end comes from OpenCode's words, never from a timeout of ours. The only clock here paces re-reading when the
//! session is idle and its messages are not final yet.

mod start;

use std::time::Duration;

use longshore_engine::port::Session;
use longshore_model::{AgentEvent, Outcome};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

pub(crate) use self::start::{PATIENCE, Starter, start};
use crate::client::Client;
use crate::outcome;
use crate::reader::{Lease, Routed};
use crate::reconcile::{self, Depth, Reading};
use crate::translate::{Evidence, Translator, Verdict};

/// Pauses between two readings of a session that is idle while its messages are not final: doubled from the first to
/// the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// How often such a session is read. OpenCode finishes a message 40 to 350 ms after it reports idle, later
/// when the repository is large; after these readings (7 s) nobody works on it any more.
const READINGS_OF_A_STOPPED_TURN: u32 = 8;

/// The same after an error that came before any answer (2 s): OpenCode refused the prompt.
const READINGS_OF_A_REFUSED_PROMPT: u32 = 5;

/// The same when there is no sign at all of a prompt that OpenCode has taken (30 s): in a new directory it first loads
/// providers and plugins.
const READINGS_OF_AN_ACCEPTED_PROMPT: u32 = 20;

/// Pause before OpenCode is asked again after it did not answer: doubled up to the last.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Driver {
    client: Client,
    session: Session,
    prompt: String,
    lease: Lease,
    translator: Translator,
    events: mpsc::Sender<AgentEvent>,
    /// OpenCode has said that it took the prompt, in this life of the gateway.
    accepted: bool,
    settling: Option<Settling>,
}

/// The session is idle or failed, and the messages do not show the end.
#[derive(Debug)]
struct Settling {
    readings: u32,
    pause: Duration,
    next: Instant,
}

/// Nobody listens to the turn any more.
struct Unheard;

impl Driver {
    /// Runs until the turn ends, nobody listens, or the gateway stops. OpenCode goes on in the latter cases.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let events = self.events.clone();
        tokio::select! {
            () = events.closed() => {}
            () = stop.cancelled() => {}
            _ = self.drive() => {}
        }
    }

    async fn drive(&mut self) -> Result<(), Unheard> {
        let mut outcome = if self.accepted { None } else { self.reread(Depth::Everything).await };
        loop {
            self.flush().await?;
            if outcome.is_none() {
                outcome = self.judge().await;
            }
            if let Some(outcome) = outcome {
                return self.end(outcome).await;
            }
            outcome = self.step().await;
        }
    }

    /// Waits for the next thing and takes it in. Gives an outcome when OpenCode no longer has the session.
    async fn step(&mut self) -> Option<Outcome> {
        let due = self.settling.as_ref().map(|settling| settling.next);
        tokio::select! {
            biased;
            routed = self.lease.next() => match routed {
                Routed::Event { kind, body } => {
                    if let Err(cause) = self.translator.event(kind, &body) {
                        tracing::warn!(
                            session = %self.session.id, ?kind, line = cause.line(), column = cause.column(),
                            "an event was not understood and was skipped"
                        );
                    }
                    if self.translator.must_ask() {
                        self.reread(Depth::Everything).await
                    } else if self.translator.must_reread() {
                        self.reread(Depth::Messages).await
                    } else {
                        None
                    }
                }
                Routed::Reconnected => {
                    self.translator.gap();
                    self.reread(Depth::Everything).await
                }
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let outcome = self.reread(Depth::Messages).await;
                if let Some(settling) = &mut self.settling {
                    settling.readings += 1;
                    settling.next = Instant::now() + settling.pause;
                    settling.pause = (settling.pause * 2).min(LAST_PAUSE);
                }
                outcome
            }
        }
    }

    /// Asks whether the turn is over.
    async fn judge(&mut self) -> Option<Outcome> {
        if self.translator.is_runaway() {
            tracing::warn!(session = %self.session.id, "a model that answers without end was stopped");
            // When this fails too, the next turn waits for the session to be idle, and says that it is busy.
            let _ = self.client.abort(&self.session.directory, self.session.id.as_str()).await;
            return Some(outcome::runaway());
        }
        match self.translator.verdict(self.lease.aborted_by_us()) {
            Verdict::Over(outcome) => return Some(outcome),
            Verdict::Running => self.settling = None,
            Verdict::Unsettled => {
                let limit = match self.translator.evidence() {
                    Evidence::Refused => READINGS_OF_A_REFUSED_PROMPT,
                    Evidence::None if self.accepted => READINGS_OF_AN_ACCEPTED_PROMPT,
                    Evidence::None | Evidence::Began => READINGS_OF_A_STOPPED_TURN,
                };
                let settling = self.settling.get_or_insert_with(|| Settling {
                    readings: 0,
                    pause: FIRST_PAUSE * 2,
                    next: Instant::now() + FIRST_PAUSE,
                });
                if settling.readings >= limit {
                    return Some(self.translator.last_word(self.lease.aborted_by_us(), self.accepted));
                }
            }
        }
        None
    }

    /// Reads from OpenCode what the stream did not bring. While OpenCode does not answer, it waits.
    async fn reread(&mut self, depth: Depth) -> Option<Outcome> {
        let mut pause = FIRST_RETRY;
        loop {
            let reading = reconcile::read(
                &self.client,
                &self.session,
                &self.prompt,
                &self.lease,
                &mut self.translator,
                depth,
            )
            .await;
            match reading {
                Reading::Done => return None,
                Reading::Gone => {
                    return Some(match self.translator.evidence() {
                        Evidence::None => outcome::session_gone(),
                        _ => self.translator.last_word(self.lease.aborted_by_us(), self.accepted),
                    });
                }
                Reading::NoAnswer(cause) => {
                    tracing::debug!(session = %self.session.id, %cause, "OpenCode did not say where the turn stands");
                    sleep(pause).await;
                    pause = (pause * 2).min(LAST_RETRY);
                }
            }
        }
    }

    async fn flush(&mut self) -> Result<(), Unheard> {
        for event in self.translator.take() {
            self.events.send(event).await.map_err(|_| Unheard)?;
        }
        Ok(())
    }

    async fn end(&mut self, outcome: Outcome) -> Result<(), Unheard> {
        self.translator.close();
        self.flush().await?;
        self.events.send(AgentEvent::Ended(outcome)).await.map_err(|_| Unheard)
    }
}
