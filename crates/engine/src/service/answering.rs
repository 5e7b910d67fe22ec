//! Messages that answer what a task asks. One message answers one ask, however often it is sent.

use longshore_model::{
    Ask, Error, ErrorKind, InterruptPhase, Message, Principal, RequestId, Resolution, Result, Seq, TaskEvent,
    TaskId,
};

use super::{Engine, Snapshot};
use crate::answer::{self, Form};
use crate::asks::{self, Send};
use crate::port::{IdempotencyKey, NotedSends};

/// As many events as one read of a log gives.
const BATCH: usize = 128;

/// A message that is to answer something.
pub(super) struct Reply<'a> {
    pub(super) caller: &'a Principal,
    /// The task that it was sent to.
    pub(super) task: &'a TaskId,
    /// The task that owns what is asked: the same one, or the root of a sub-agent's.
    pub(super) root: &'a TaskId,
    pub(super) message: &'a Message,
    pub(super) key: &'a IdempotencyKey,
}

impl Engine {
    /// Answers one of these asks, and says which. `None`: the message answered something before that is not asked any more.
    pub(super) async fn give(
        &self,
        reply: &Reply<'_>,
        open: &[&Ask],
    ) -> Result<Option<(RequestId, Snapshot)>> {
        let (mut open, given_before) = (open.to_vec(), self.was_given(reply).await?);
        if given_before {
            let Some(same) = self.asked_before(reply, &open).await? else {
                return self.check_given(reply, &open).await.map(|()| None);
            };
            open = vec![same];
        }
        let (request, answer) = match answer::read(reply.message, &open) {
            Ok(read) => read,
            Err(error) => return self.refuse(reply, error).await,
        };
        // Before the agent has it: the gateway may die in between, and the same message again must not become a prompt, or
        // the answer to something else.
        self.note(reply, vec![reply.key.of_answer(&request), reply.key.clone()]).await?;
        // The log of the root task has no place for a message to another task.
        let message = (reply.task == reply.root).then(|| reply.message.clone());
        let send = Send { digest: reply.key.digest, message };
        match self.deliver(reply.caller, reply.root, request.clone(), answer, Some(send)).await {
            Ok(snapshot) => Ok(Some((request, snapshot))),
            // Perhaps because the agent had it from the first time.
            Err(error) if is_final(&error) && given_before => {
                self.check_given(reply, &open).await.map(|()| None)
            }
            Err(error) => {
                if is_final(&error) {
                    self.note(reply, vec![reply.key.of_refusal()]).await?;
                }
                Err(error)
            }
        }
    }

    /// Fails with this error. Sent again, perhaps only because nobody heard this, the same words do not answer something else
    /// that is asked by then. A message that names its ask cannot.
    async fn refuse<T>(&self, reply: &Reply<'_>, error: Error) -> Result<T> {
        if !matches!(answer::form(reply.message), Some(Form::Named(_))) {
            self.note(reply, vec![reply.key.clone(), reply.key.of_refusal()]).await?;
        }
        Err(error)
    }

    /// The message was sent to the task before, as an answer.
    pub(super) async fn was_given(&self, reply: &Reply<'_>) -> Result<bool> {
        self.is_noted(reply, reply.key).await
    }

    /// What a message answered before is not asked any more, but perhaps something else is. Fails if its answer was surely
    /// not taken.
    pub(super) async fn check_given(&self, reply: &Reply<'_>, open: &[&Ask]) -> Result<()> {
        let is_refused = self.is_noted(reply, &reply.key.of_refusal()).await?;
        for request in self.asks_of(reply).await? {
            if !self.is_noted(reply, &reply.key.of_answer(&request)).await? {
                continue;
            }
            let Some(known) = self.around.store.interrupt(reply.caller, &request).await? else { continue };
            let Some(closed) = &known.closed else { continue };
            let answer = answer::read(reply.message, &[&known.ask]).ok().map(|(_, answer)| answer.how());
            let is_as_given = closed.by.as_ref() == Some(reply.caller) && closed.how == answer;
            let is_by_others = closed.by.is_some() || closed.resolution == Resolution::Expired;
            if !is_as_given && (is_refused || is_by_others) {
                return Err(self.too_late(&request, closed));
            }
            return Ok(());
        }
        if !is_refused {
            return Ok(());
        }
        if open.is_empty() {
            return Err(asks_nothing());
        }
        answer::read(reply.message, open)?;
        let text = "This message was refused before, when it did not fit what the task asked; send another, with an id of its own.";
        Err(Error::new(ErrorKind::InterruptNotFound, text))
    }

    /// Fails if a message is an answer, and so came too late: the task asks nothing. As a message to the agent it would make
    /// no sense.
    pub(super) async fn check_no_answer(&self, reply: &Reply<'_>) -> Result<()> {
        let late = match answer::form(reply.message) {
            None => return Ok(()),
            Some(Form::Named(request)) => {
                let known = self.around.store.interrupt(reply.caller, &request).await?;
                let closed =
                    known.filter(|known| known.owner == *reply.caller).and_then(|known| known.closed);
                closed.map_or_else(|| asks::not_open(&request), |closed| self.too_late(&request, &closed))
            }
            // To a task that never asked anything they are words like any others.
            Some(Form::Words) if self.asks_of(reply).await?.is_empty() => return Ok(()),
            Some(Form::Words) => asks_nothing(),
        };
        self.refuse(reply, late).await
    }

    /// The ask that this message was an answer to, if it is still open.
    async fn asked_before<'a>(&self, reply: &Reply<'_>, open: &[&'a Ask]) -> Result<Option<&'a Ask>> {
        for ask in open {
            if self.is_noted(reply, &reply.key.of_answer(&ask.request_id)).await? {
                return Ok(Some(ask));
            }
        }
        Ok(None)
    }

    async fn is_noted(&self, reply: &Reply<'_>, key: &IdempotencyKey) -> Result<bool> {
        Ok(self.around.store.earlier_send(reply.caller, key).await?.as_ref() == Some(reply.task))
    }

    async fn note(&self, reply: &Reply<'_>, keys: Vec<IdempotencyKey>) -> Result<()> {
        let (owner, task, at) = (reply.caller.clone(), reply.task.clone(), self.around.clock.now());
        self.around.store.note_sends(NotedSends { owner, task, keys, at }).await
    }

    /// Everything that the task ever asked, as far as its log is kept.
    async fn asks_of(&self, reply: &Reply<'_>) -> Result<Vec<RequestId>> {
        let (mut asked, mut cursor) = (Vec::new(), Seq::START);
        loop {
            let entries = self.around.store.read(reply.caller, reply.task, cursor, BATCH).await?;
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

/// Nothing that comes later can make this answer be taken.
fn is_final(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InterruptNotFound | ErrorKind::InterruptExpired | ErrorKind::InterruptTypeMismatch
    )
}

fn asks_nothing() -> Error {
    Error::new(
        ErrorKind::InterruptNotFound,
        "This task asks nothing at the moment, so this answer came too late; get the task to see how it went on. To tell \
         the agent just these words, send them with metadata shared.delivery = steer.",
    )
}
