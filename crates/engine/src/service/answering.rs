//! Messages that answer an ask of a task. A message answers only one ask, even if it is sent several times.

use longshore_model::{
    Ask, Error, ErrorKind, InterruptPhase, Message, Principal, RequestId, Resolution, Result, Seq, TaskEvent,
    TaskId,
};

use super::Engine;
use crate::actor_request::AnswerMessage;
use crate::answer::{self, AnswerForm};
use crate::asks;
use crate::port::{IdempotencyKey, RecordedSends};
use crate::snapshot::Snapshot;

/// How many events one read of a log returns.
const BATCH: usize = 128;

/// A message that is to answer an ask.
pub(super) struct AnswerAttempt<'a> {
    pub(super) caller: &'a Principal,
    /// The task that the message was sent to.
    pub(super) task: &'a TaskId,
    /// The task that owns the ask: `task` itself, or the root task if `task` is a child task.
    pub(super) root: &'a TaskId,
    pub(super) message: &'a Message,
    pub(super) key: &'a IdempotencyKey,
}

impl Engine {
    /// Answers one of these asks, and returns its id. `None`: an earlier send of this message answered another ask, which is
    /// closed by now.
    pub(super) async fn answer_one(
        &self,
        attempt: &AnswerAttempt<'_>,
        open: &[&Ask],
    ) -> Result<Option<(RequestId, Snapshot)>> {
        let (mut open, was_answered_before) = (open.to_vec(), self.was_answer(attempt).await?);
        if was_answered_before {
            let Some(same) = self.answered_before(attempt, &open).await? else {
                return self.check_earlier_answer(attempt, &open).await.map(|()| None);
            };
            open = vec![same];
        }
        let (request, answer) = match answer::read(attempt.message, &open, self.ctx.config.asks.always) {
            Ok(read) => read,
            Err(error) => {
                // The message names an ask that is closed by now, although other asks are open.
                let late = match answer::form(attempt.message) {
                    Some(AnswerForm::Named(request)) => self.too_late_for(attempt.caller, &request).await?,
                    _ => None,
                };
                return self.refuse(attempt, late.unwrap_or(error)).await;
            }
        };
        // Recorded before the agent gets the answer. If the gateway is killed in between, a repeated send must not become a
        // prompt or the answer to another ask.
        self.record(attempt, vec![attempt.key.of_answer(&request), attempt.key.clone()]).await?;
        // A message to a child task cannot be written to the log of the root task.
        let message = (attempt.task == attempt.root).then(|| attempt.message.clone());
        let send = AnswerMessage { digest: attempt.key.digest, message };
        match self.deliver(attempt.caller, attempt.root, request.clone(), answer, Some(send)).await {
            Ok(snapshot) => Ok(Some((request, snapshot))),
            // The ask may be closed because the first send of this message answered it.
            Err(error) if is_final(&error) && was_answered_before => {
                self.check_earlier_answer(attempt, &open).await.map(|()| None)
            }
            Err(error) => {
                if is_final(&error) {
                    self.record(attempt, vec![attempt.key.of_refusal()]).await?;
                }
                Err(error)
            }
        }
    }

    /// Returns this error, and records the refusal unless the message names its ask. A client may repeat the message, perhaps
    /// because the response was lost; the repeated message must not answer another ask that is open by then.
    async fn refuse<T>(&self, attempt: &AnswerAttempt<'_>, error: Error) -> Result<T> {
        if !matches!(answer::form(attempt.message), Some(AnswerForm::Named(_))) {
            self.record(attempt, vec![attempt.key.clone(), attempt.key.of_refusal()]).await?;
        }
        Err(error)
    }

    /// Whether an earlier send of this message to the task counted as an answer.
    pub(super) async fn was_answer(&self, attempt: &AnswerAttempt<'_>) -> Result<bool> {
        self.is_recorded(attempt, attempt.key).await
    }

    /// Handles a repeated message whose first send answered an ask that is closed by now. Fails if that answer was certainly not
    /// accepted. `open` are the asks that are open now.
    pub(super) async fn check_earlier_answer(
        &self,
        attempt: &AnswerAttempt<'_>,
        open: &[&Ask],
    ) -> Result<()> {
        let is_refused = self.is_recorded(attempt, &attempt.key.of_refusal()).await?;
        let all = self.all_asks(attempt).await?;
        for request in &all {
            if !self.is_recorded(attempt, &attempt.key.of_answer(request)).await? {
                continue;
            }
            let Some(known) = self.ctx.ports.store.interrupt(attempt.caller, request).await? else {
                continue;
            };
            let Some(closed) = &known.closed else { continue };
            let answer = answer::read(attempt.message, &[&known.ask], self.ctx.config.asks.always)
                .ok()
                .map(|(_, answer)| answer.how());
            let is_the_same = closed.by.as_ref() == Some(attempt.caller) && closed.how == answer;
            let is_by_others = closed.by.is_some() || closed.resolution == Resolution::Expired;
            if !is_the_same && (is_refused || is_by_others) {
                return Err(self.too_late(request, closed));
            }
            return Ok(());
        }
        if !is_refused {
            return Ok(());
        }
        if open.is_empty() {
            return Err(match all.last() {
                Some(newest) => self.no_open_ask(attempt, newest).await?,
                None => no_open_ask(),
            });
        }
        answer::read(attempt.message, open, self.ctx.config.asks.always)?;
        let text = "This message was refused before, when it did not fit what the task asked; send another, with an id of its own.";
        Err(Error::new(ErrorKind::InterruptNotFound, text))
    }

    /// Fails if the message is an answer that came too late, because the task has no open ask. As a prompt for the agent, the
    /// message would make no sense.
    pub(super) async fn refuse_late_answer(&self, attempt: &AnswerAttempt<'_>) -> Result<()> {
        let late = match answer::form(attempt.message) {
            None => return Ok(()),
            Some(AnswerForm::Named(request)) => {
                let late = self.too_late_for(attempt.caller, &request).await?;
                late.unwrap_or_else(|| asks::not_open(&request))
            }
            Some(AnswerForm::Text) => match self.all_asks(attempt).await?.last() {
                // The task has never had an ask, so this is ordinary text.
                None => return Ok(()),
                Some(newest) => self.no_open_ask(attempt, newest).await?,
            },
        };
        self.refuse(attempt, late).await
    }

    /// Fails if the turn did not accept the message and the message names an option of the newest ask, which is closed by now.
    pub(super) async fn refuse_late_option(&self, attempt: &AnswerAttempt<'_>) -> Result<()> {
        let Some(text) = answer::short_text(attempt.message) else { return Ok(()) };
        let Some(newest) = self.all_asks(attempt).await?.pop() else { return Ok(()) };
        let known = self.ctx.ports.store.interrupt(attempt.caller, &newest).await?;
        if known.is_none_or(|known| known.ask.options.are_words() || known.ask.options.named(&text).is_err())
        {
            return Ok(());
        }
        let late = self.no_open_ask(attempt, &newest).await?;
        self.refuse(attempt, late).await
    }

    /// The error for plain text that looks like an answer although the task has no open ask. Says how the newest ask was closed.
    async fn no_open_ask(&self, attempt: &AnswerAttempt<'_>, newest: &RequestId) -> Result<Error> {
        let late = self.too_late_for(attempt.caller, newest).await?;
        Ok(late.map_or_else(no_open_ask, |late| late.with_advice(STEER)))
    }

    /// The ask that an earlier send of this message answered, if that ask is still open.
    async fn answered_before<'a>(
        &self,
        attempt: &AnswerAttempt<'_>,
        open: &[&'a Ask],
    ) -> Result<Option<&'a Ask>> {
        for ask in open {
            if self.is_recorded(attempt, &attempt.key.of_answer(&ask.request_id)).await? {
                return Ok(Some(ask));
            }
        }
        Ok(None)
    }

    async fn is_recorded(&self, attempt: &AnswerAttempt<'_>, key: &IdempotencyKey) -> Result<bool> {
        Ok(self.ctx.ports.store.earlier_send(attempt.caller, key).await?.as_ref() == Some(attempt.task))
    }

    async fn record(&self, attempt: &AnswerAttempt<'_>, keys: Vec<IdempotencyKey>) -> Result<()> {
        let (owner, task, at) = (attempt.caller.clone(), attempt.task.clone(), self.ctx.ports.clock.now());
        self.ctx.ports.store.record_sends(RecordedSends { owner, task, keys, at }).await
    }

    /// All asks in the log of the task, as far as the log is kept.
    async fn all_asks(&self, attempt: &AnswerAttempt<'_>) -> Result<Vec<RequestId>> {
        let (mut asked, mut cursor) = (Vec::new(), Seq::START);
        loop {
            let entries = self.ctx.ports.store.read(attempt.caller, attempt.task, cursor, BATCH).await?;
            let Some(last) = entries.last().map(|entry| entry.seq) else { return Ok(asked) };
            for entry in &entries {
                if let TaskEvent::Status(update) = &entry.event
                    && let Some(note) = &update.notes.interrupt
                    && note.phase == InterruptPhase::Asked
                {
                    asked.push(note.request_id.clone());
                }
            }
            cursor = last;
        }
    }
}

/// Whether the answer can never be accepted.
fn is_final(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InterruptNotFound | ErrorKind::InterruptExpired | ErrorKind::InterruptTypeMismatch
    )
}

/// Advice for a caller whose text for the agent looks like an answer to an ask.
const STEER: &str = "To tell the agent just these words, send them with metadata shared.delivery = steer.";

fn no_open_ask() -> Error {
    let text = "This task asks nothing at the moment, so this answer came too late; get the task to see how it went on.";
    Error::new(ErrorKind::InterruptNotFound, text).with_advice(STEER)
}
