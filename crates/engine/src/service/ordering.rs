//! Orders in the agent's own words. Each becomes a task, as a message does: durable first, and prompted once.

use std::sync::OnceLock;

use longshore_model::{
    Begun, ContextId, ControlResult, Error, ErrorKind, Message, MessageId, MessageRef, OrderRequest, Page,
    Principal, RequestedLocation, Result, Role, SendConfig, SendMessage, SendOptions, SessionId,
    StoredMessage, Task, TaskId, TaskState,
};
use longshore_model::{ControlQuery, Order};
use tokio::sync::oneshot;

use super::Engine;
use super::sending::{Admitted, Ready};
use crate::control::content::Said;
use crate::control::{ControlCaller, Entry, UPSTREAM_STATUS, of_upstream, refusal};
use crate::lanes::LaneKey;
use crate::port::{Control, Created, IdempotencyKey, StoredTask};
use crate::{idempotency, names};

/// In so many messages of a session the answer to an order is looked for: those of one turn are rarely more.
const LATEST: u32 = 100;

impl Engine {
    /// Makes a task of an order. A prompt is answered when the agent has it, a command when its task is over.
    pub(crate) async fn order(
        &self,
        caller: &ControlCaller,
        request: OrderRequest,
        place: &RequestedLocation,
        known: &OnceLock<TaskId>,
    ) -> Result<ControlResult> {
        let control = self.controlled()?;
        let OrderRequest { session, order, content, options, message } = request;
        let is_command = matches!(order, Order::Command { .. });
        let said = Said::new(order, content);
        // Without a name of the caller's no two orders are the same.
        let message = message.unwrap_or_else(|| self.new_message_id());
        let digest = idempotency::digest_of_order(&message, &session, &said.order, &said.content, &options);
        let key = self.valid_key(digest);
        let earlier = self.around.store.earlier_send(&caller.principal, &key).await?;
        let begun = if let Some(task) = earlier {
            self.begun(&caller.principal, task).await?
        } else {
            let new = NewOrder { session: &session, said, options, message, key };
            self.begin_order(&*control, caller, new, place, known).await?
        };
        if !is_command {
            return Ok(ControlResult::Done { session, ok: true, begun: Some(begun) });
        }
        let task = known.get_or_init(|| begun.task.clone());
        let answered = self.answered(&*control, &caller.principal, begun).await;
        answered.map_err(|error| error.detail("taskId", task.as_str()))
    }

    async fn begin_order(
        &self,
        control: &dyn Control,
        caller: &ControlCaller,
        new: NewOrder<'_>,
        place: &RequestedLocation,
        known: &OnceLock<TaskId>,
    ) -> Result<Begun> {
        let NewOrder { session: id, said, options, message, key } = new;
        let owner = &caller.principal;
        let Entry { session, taking, .. } = self.admit_order(control, caller, id).await?;
        control.place(place).await?;
        control.check_order(&session, &said.order, &options, caller.may_run).await?;
        let input = said.prepare(&self.around.config.intake, &session.directory).await?;
        let context = self.context_of(owner, id).await?;
        let reserved = self.around.unfinished.reserve(owner, &context);
        let reserved = reserved.map_err(|full| full.refusal(&self.around.metrics))?;
        let mut message = Message::new(message, Role::User, said.message());
        message.context_id = Some(context.clone());
        let wishes = SendOptions { session: Some(id.clone()), prompt: options, ..SendOptions::default() };
        let (orderer, is_taken) = oneshot::channel();
        let made = self
            .make(Ready {
                caller: owner.clone(),
                command: SendMessage {
                    message,
                    config: SendConfig::default(),
                    metadata: None,
                    wishes,
                    may_claim: false,
                    trace: self.trace_of_caller(),
                },
                lane: LaneKey::Context(owner.clone(), context.clone()),
                context,
                admitted: Admitted { directory: session.directory.clone(), directory_named: false, input },
                session: Some(session),
                key,
                reserved,
                order: Some(said.order),
                claim: taking.as_ref().map(|taking| taking.session().clone()),
                orderer: Some(orderer),
            })
            .await?;
        let sent = made.map_err(|created| refused(id, &created))?;
        // The store made the session the caller's with the task.
        if let Some(taking) = taking {
            taking.settled_with_task(&self.around);
        }
        let begun = Begun { task: sent.task, context: sent.reader.context_id().clone() };
        known.get_or_init(|| begun.task.clone());
        match is_taken.await {
            Ok(Err(error)) => Err(for_orderer(id, error).detail("taskId", begun.task.as_str())),
            // It may wait for its turn, or its owner is gone: its task tells the rest.
            Ok(Ok(())) | Err(_) => Ok(begun),
        }
    }

    /// The context that an order belongs to: the one that was last bound to the session, else one of its own.
    async fn context_of(&self, owner: &Principal, session: &SessionId) -> Result<ContextId> {
        let newest = self.around.store.contexts_of(owner, session).await?.into_iter().next();
        Ok(newest.unwrap_or_else(|| names::of_session(session)))
    }

    /// The last answer of a command's turn, once that is over.
    async fn answered(
        &self,
        control: &dyn Control,
        caller: &Principal,
        begun: Begun,
    ) -> Result<ControlResult> {
        self.is_over(caller, &begun.task).await?;
        let stored = self.around.store.get(caller, &begun.task).await?;
        let stored = stored.ok_or_else(|| Error::task_not_found(&begun.task))?;
        let found = match &stored.turn {
            Some(turn) => {
                let session = turn.session.clone();
                let page = Page { limit: LATEST, before: None };
                let latest = ControlQuery::Messages { session: session.id.clone(), page };
                let told = control.look(&session.directory, Some(&session), &latest).await;
                told.map(|told| last_answer(told, turn.prompt.as_str()))
            }
            None => Ok(None),
        };
        let found = found.unwrap_or_else(|error| {
            tracing::warn!(task = %begun.task, error = ?error, "the answer of a command could not be read");
            None
        });
        let mut message = match found {
            Some(found) => found,
            None => told_by_task(&stored)?,
        };
        if stored.task.status.state != TaskState::Completed && message.error.is_none() {
            message.error = Some(why_not(&stored.task));
        }
        Ok(ControlResult::Answered { message, begun })
    }

    /// Waits for the end of a task.
    async fn is_over(&self, caller: &Principal, task: &TaskId) -> Result<()> {
        loop {
            let now = self.get(caller, task).await?;
            match now.task.status.state {
                state if state.is_terminal() => return Ok(()),
                TaskState::AuthRequired => return Err(without_credentials(&now.task)),
                // Also while it asks: whoever may answer finds the ask in the task and among those that are open.
                _ => {}
            }
            let mut reader = self.reader_of(caller, &now.task, now.seq);
            let stopping = self.around.tasks.stopping();
            tokio::select! {
                biased;
                () = stopping.cancelled() => return Err(self.around.registry.no_owner()),
                read = reader.next() => read?,
            };
        }
    }

    async fn begun(&self, caller: &Principal, task: TaskId) -> Result<Begun> {
        let context = self.head(caller, &task).await?.context;
        Ok(Begun { task, context })
    }

    fn new_message_id(&self) -> MessageId {
        MessageId::parse(&self.around.tasks.hooks().new_id()).expect("a UUID is an id")
    }
}

struct NewOrder<'a> {
    session: &'a SessionId,
    said: Said,
    options: longshore_model::PromptOptions,
    message: MessageId,
    key: IdempotencyKey,
}

/// The last thing that the agent said to this prompt, and before anybody said something else.
fn last_answer(told: ControlResult, prompt: &str) -> Option<StoredMessage> {
    let ControlResult::Messages { items, .. } = told else { return None };
    let from = items.iter().position(|message| message.id.as_str() == prompt).map_or(0, |found| found + 1);
    let is_agents = |message: &StoredMessage| message.role == Role::Agent;
    let mut answers = items.into_iter().skip(from);
    if from == 0 {
        // The turn is longer than what was looked at.
        return answers.filter(is_agents).last();
    }
    // What the agent tells itself on the way has the role of a user and no words.
    answers
        .by_ref()
        .take_while(|message| is_agents(message) || message.text.is_empty())
        .filter(is_agents)
        .last()
}

/// What the task knows of its answer, when the agent does not tell.
fn told_by_task(stored: &StoredTask) -> Result<StoredMessage> {
    let StoredTask { task, turn, .. } = stored;
    let name = turn.as_ref().map_or(task.id.as_str(), |turn| turn.prompt.as_str());
    let parts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    let session = turn.as_ref().map(|turn| turn.session.id.clone());
    let session = session.or_else(|| task.session.as_ref().map(|note| note.id.clone()));
    let why = || Error::new(ErrorKind::UpstreamPayloadError, why_not(task));
    Ok(StoredMessage {
        id: MessageRef::parse(name).map_err(Error::internal)?,
        session: session.ok_or_else(why)?,
        role: Role::Agent,
        text: parts.filter_map(|part| part.as_text()).collect(),
        created: Some(task.status.at),
        error: None,
    })
}

fn why_not(task: &Task) -> String {
    let status = &task.status;
    let parts = status.message.iter().flat_map(|message| &message.parts);
    let text: String = parts.filter_map(|part| part.as_text()).collect();
    if text.is_empty() { format!("The task is {}.", status.state) } else { text }
}

/// Why the store made no task.
fn refused(session: &SessionId, created: &Created) -> Error {
    match created {
        Created::ForeignSession => refusal::lost_before(session),
        Created::UnknownSession => refusal::not_found(session),
        other => super::sending::refusal(other),
    }
}

/// A turn's error, in the words of control calls.
fn for_orderer(session: &SessionId, error: Error) -> Error {
    match error.kind() {
        ErrorKind::SessionGone => refusal::not_found(session),
        ErrorKind::SessionBusy if !error.may_be_done() => refusal::left_to_others(session),
        ErrorKind::AgentUnavailable | ErrorKind::InvalidAgentResponse => {
            of_upstream(error).detail("sessionId", session.as_str())
        }
        _ => error,
    }
}

/// Nobody works at the task until somebody gives the agent its credentials, so that there is nothing to wait for.
fn without_credentials(task: &Task) -> Error {
    Error::new(ErrorKind::UpstreamHttpError, why_not(task))
        .detail(UPSTREAM_STATUS, "401")
        .detail("state", task.status.state.as_str())
        .lasting()
}
