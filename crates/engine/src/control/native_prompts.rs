//! Prompts in the agent's own form. Each becomes a task, as a message does: it is durable before the agent is prompted once.

use std::sync::OnceLock;

use longshore_model::{
    AgentMessageId, ContextId, ControlResult, Error, ErrorKind, Message, MessageId, NativePromptRequest,
    Page, Principal, PromptId, RequestedLocation, Result, Role, SendConfig, SendMessage, SendOptions,
    SessionId, StartedTask, StoredMessage, Task, TaskId, TaskState,
};
use longshore_model::{ControlQuery, NativePrompt};
use tokio::sync::oneshot;

use super::{AdmittedSession, ControlCaller};
use crate::config::WireNames;
use crate::control_errors;
use crate::native_prompt::PromptContent;
use crate::port::{Control, Created, IdempotencyKey, StoredTask};
use crate::service::Engine;
use crate::service::sending::{self, Admitted, CheckedSend, NativeSend};
use crate::upstream_error::{UPSTREAM_STATUS, to_control_error};
use crate::{derived_ids, idempotency};

/// How many messages of a session are searched for the answer to a native prompt. One turn rarely has more.
const SEARCHED_MESSAGES: u32 = 100;

impl Engine {
    /// Makes a task of a native prompt. Returns for a prompt as soon as the agent has accepted it, and for a command when the
    /// task is over.
    pub(crate) async fn native_prompt(
        &self,
        caller: &ControlCaller,
        request: NativePromptRequest,
        location: &RequestedLocation,
        known: &OnceLock<TaskId>,
    ) -> Result<ControlResult> {
        let control = self.controlled()?;
        let NativePromptRequest { session, order, content, options, message } = request;
        let is_command = matches!(order, NativePrompt::Command { .. });
        let prompt = PromptContent::new(order, content);
        // If the caller gave no message id, each prompt gets a new one, so that no two prompts count as the same send.
        let message = message.unwrap_or_else(|| self.new_message_id());
        let digest =
            idempotency::native_prompt_digest(&message, &session, &prompt.order, &prompt.content, &options);
        let key = self.valid_key(digest);
        let earlier = self.ctx().ports.store.earlier_send(&caller.principal, &key).await?;
        let begun = if let Some(task) = earlier {
            self.started_task(&caller.principal, task).await?
        } else {
            let new = NewPrompt { session: &session, prompt, options, message, key };
            self.begin_prompt(&*control, caller, new, location, known).await?
        };
        if !is_command {
            return Ok(ControlResult::Done { session, ok: true, begun: Some(begun) });
        }
        let task = known.get_or_init(|| begun.task.clone());
        let answered = self.answered(&*control, &caller.principal, begun).await;
        answered.map_err(|error| error.detail("taskId", task.as_str()))
    }

    async fn begin_prompt(
        &self,
        control: &dyn Control,
        caller: &ControlCaller,
        new: NewPrompt<'_>,
        location: &RequestedLocation,
        known: &OnceLock<TaskId>,
    ) -> Result<StartedTask> {
        let NewPrompt { session: id, mut prompt, options, message, key } = new;
        let owner = &caller.principal;
        let AdmittedSession { session, pending_claim, .. } =
            self.admit_native_prompt(control, caller, id).await?;
        control.resolve_location(location).await?;
        if let NativePrompt::Command { may_run, .. } = &mut prompt.order {
            *may_run = caller.may_run;
        }
        let input = prompt.prepare(&self.ctx().config.intake, &session.directory).await?;
        super::native_prompts_of(control)?
            .check_native_prompt(&session, &prompt.order, &input, &options)
            .await?;
        let context = self.context_of(owner, id).await?;
        let mut message = Message::new(message, Role::User, prompt.message());
        let reserved = self.reserve(owner, &context, message.weight());
        let reserved = reserved.map_err(|full| full.refusal(&self.ctx().metrics))?;
        message.context_id = Some(context.clone());
        let send_options =
            SendOptions { session: Some(id.clone()), prompt: options, ..SendOptions::default() };
        let (accepted, is_accepted) = oneshot::channel();
        let made = self
            .create_task(CheckedSend {
                caller: owner.clone(),
                command: SendMessage {
                    message,
                    config: SendConfig::default(),
                    metadata: None,
                    options: send_options,
                    may_claim: false,
                    trace: self.caller_trace(),
                },
                context,
                admitted: Admitted { directory: session.directory.clone(), directory_named: false, input },
                session: Some(session),
                key,
                reserved,
                claim: pending_claim.as_ref().map(|pending_claim| pending_claim.session().clone()),
                native: Some(NativeSend { prompt: prompt.order, accepted }),
            })
            .await?;
        let sent = made.map_err(|created| refused(self.ctx().config.names, id, &created))?;
        // The store made the caller the owner of the session when it created the task.
        if let Some(pending_claim) = pending_claim {
            pending_claim.settled_with_task(self.ctx());
        }
        let begun = StartedTask { task: sent.task, context: sent.reader.context_id().clone() };
        known.get_or_init(|| begun.task.clone());
        match is_accepted.await {
            Ok(Err(error)) => Err(as_control_error(id, error).detail("taskId", begun.task.as_str())),
            // The agent accepted the prompt, the prompt is queued, or its actor has ended. The task shows what happens next.
            Ok(Ok(())) | Err(_) => Ok(begun),
        }
    }

    /// The context of a native prompt: the one that was bound to the session last. If there is none, a context whose id is derived
    /// from the session.
    async fn context_of(&self, owner: &Principal, session: &SessionId) -> Result<ContextId> {
        let newest = self.ctx().ports.store.contexts_of(owner, session).await?.into_iter().next();
        Ok(newest.unwrap_or_else(|| derived_ids::session_context(self.ctx().config.names, session)))
    }

    /// Waits until a command's turn is over, and returns the agent's last message in that turn.
    async fn answered(
        &self,
        control: &dyn Control,
        caller: &Principal,
        begun: StartedTask,
    ) -> Result<ControlResult> {
        self.wait_until_over(caller, &begun.task).await?;
        let stored = self.stored(caller, &begun.task).await?;
        let found = match &stored.turn {
            Some(turn) => {
                let session = turn.session.clone();
                let page = Page { limit: SEARCHED_MESSAGES, before: None };
                let latest = ControlQuery::Messages { session: session.id.clone(), page };
                let result = control.query(&session.directory, Some(&session), &latest).await;
                result.map(|result| last_answer(control, result, &turn.prompt))
            }
            None => Ok(None),
        };
        let found = found.unwrap_or_else(|error| {
            tracing::warn!(task = %begun.task, error = ?error, "the answer of a command could not be read");
            None
        });
        let mut message = match found {
            Some(found) => found,
            None => answer_from_task(&stored)?,
        };
        if stored.task.status.state != TaskState::Completed && message.error.is_none() {
            message.error = Some(reason(&stored.task));
        }
        Ok(ControlResult::Answered { message, begun })
    }

    /// Waits for the end of a task.
    async fn wait_until_over(&self, caller: &Principal, task: &TaskId) -> Result<()> {
        loop {
            let now = self.get(caller, task).await?;
            match now.task.status.state {
                state if state.is_terminal() => return Ok(()),
                TaskState::AuthRequired => return Err(without_credentials(&now.task)),
                // The wait continues while an ask is open. Callers find the ask in the task and in the list of open asks.
                _ => {}
            }
            let mut reader = self.reader_of(caller, &now.task, now.seq);
            let stopping = self.ctx().tasks.stopping();
            tokio::select! {
                biased;
                () = stopping.cancelled() => return Err(self.ctx().live.registry.no_actor()),
                read = reader.next() => read?,
            };
        }
    }

    async fn started_task(&self, caller: &Principal, task: TaskId) -> Result<StartedTask> {
        let context = self.head(caller, &task).await?.context;
        Ok(StartedTask { task, context })
    }

    fn new_message_id(&self) -> MessageId {
        MessageId::parse(&self.ctx().tasks.hooks().new_id()).expect("a UUID is an id")
    }
}

struct NewPrompt<'a> {
    session: &'a SessionId,
    prompt: PromptContent,
    options: longshore_model::PromptOptions,
    message: MessageId,
    key: IdempotencyKey,
}

/// The last message of the agent after this prompt and before the next message of a user.
fn last_answer(control: &dyn Control, result: ControlResult, prompt: &PromptId) -> Option<StoredMessage> {
    let ControlResult::Messages { items, .. } = result else { return None };
    let native = control.native_prompts()?;
    let is_prompt = |message: &StoredMessage| native.is_prompt(&message.id, prompt);
    let from = items.iter().position(is_prompt).map_or(0, |found| found + 1);
    let is_from_agent = |message: &StoredMessage| message.role == Role::Agent;
    let mut answers = items.into_iter().skip(from);
    if from == 0 {
        // The turn has more messages than were read, so the prompt is not among the messages that were read.
        return answers.filter(is_from_agent).last();
    }
    // The agent also writes messages to itself during a turn. They have the role `user` and no text.
    answers
        .by_ref()
        .take_while(|message| is_from_agent(message) || message.text.is_empty())
        .filter(is_from_agent)
        .last()
}

/// Builds the answer from the task, if the agent does not return the message.
fn answer_from_task(stored: &StoredTask) -> Result<StoredMessage> {
    let StoredTask { task, turn, .. } = stored;
    let name = turn.as_ref().map_or(task.id.as_str(), |turn| turn.prompt.as_str());
    let parts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    let session = turn.as_ref().map(|turn| turn.session.id.clone());
    let session = session.or_else(|| task.session.as_ref().map(|note| note.id.clone()));
    let why = || Error::new(ErrorKind::UpstreamPayloadError, reason(task));
    Ok(StoredMessage {
        id: AgentMessageId::parse(name).map_err(Error::internal)?,
        session: session.ok_or_else(why)?,
        role: Role::Agent,
        text: parts.filter_map(|part| part.as_text()).collect(),
        created: Some(task.status.at),
        error: None,
    })
}

fn reason(task: &Task) -> String {
    let status = &task.status;
    let parts = status.message.iter().flat_map(|message| &message.parts);
    let text: String = parts.filter_map(|part| part.as_text()).collect();
    if text.is_empty() { format!("The task is {}.", status.state) } else { text }
}

/// The error that says why the store created no task.
fn refused(names: WireNames, session: &SessionId, created: &Created) -> Error {
    match created {
        Created::ForeignSession => control_errors::lost_before(session),
        Created::UnknownSession => control_errors::not_found(session),
        other => sending::refusal(names, other),
    }
}

/// Converts the error of a turn into the error of a control call.
fn as_control_error(session: &SessionId, error: Error) -> Error {
    match error.kind() {
        ErrorKind::SessionGone => control_errors::not_found(session),
        ErrorKind::SessionBusy if !error.is_maybe_applied() => control_errors::busy_too_long(session),
        ErrorKind::AgentUnavailable | ErrorKind::InvalidAgentResponse => {
            to_control_error(error).detail("sessionId", session.as_str())
        }
        _ => error,
    }
}

/// The error for a task that waits for the agent's credentials. A wait for the end of such a task could last for ever.
fn without_credentials(task: &Task) -> Error {
    Error::new(ErrorKind::UpstreamHttpError, reason(task))
        .detail(UPSTREAM_STATUS, "401")
        .detail("state", task.status.state.as_str())
        .permanent()
}
