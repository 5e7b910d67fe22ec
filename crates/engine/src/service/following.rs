//! Messages to an existing task: a message answers an ask, joins the running turn, retries a turn that lacked credentials,
//! or releases a held task.

use std::time::Duration;

use longshore_model::{
    Ask, Delivery, Error, ErrorKind, Message, Principal, RequestId, Result, SendMessage, SessionId, Task,
    TaskId, TaskState,
};
use tokio::time::Instant;

use super::answering::AnswerAttempt;
use super::sending::{Admitted, busy, refusal};
use super::{Engine, Sent};
use crate::actor_request::{ActorRequest, Joining, Reply};
use crate::config::WireNames;
use crate::held;
use crate::port::{Created, IdempotencyKey, StoredTask};
use crate::snapshot::Snapshot;
use crate::turn_queue::QueueKey;

/// How long a message waits for its task to begin. After that, the message is refused because the task has not begun.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(5);

impl Engine {
    /// Handles a message to an existing task: an answer, a message that joins the turn, or a new attempt after missing credentials.
    pub(super) async fn follow_up(
        &self,
        caller: Principal,
        task: TaskId,
        command: SendMessage,
    ) -> Result<Sent> {
        let key = self.key(&command);
        let SendMessage { mut message, options, trace, .. } = command;
        let stored = self.stored(&caller, &task).await?;
        let context = stored.task.context_id.clone();
        if message.context_id.as_ref().is_some_and(|named| *named != context) {
            return Err(Error::invalid(
                "message.contextId",
                "is not the context of the task in message.taskId; leave it out, or send the task's own",
            ));
        }
        message.context_id = Some(context);
        // A repeated send, because its response was lost. The first send was accepted, so the caller follows the task.
        if stored.task.history.contains(&message) {
            return self.follow_from(&caller, task, stored.into()).await;
        }
        if stored.task.parent.is_some() {
            return self.answer_sub_agent(caller, stored, message, key).await;
        }
        let stored = self.wait_until_begun(&caller, stored).await?;
        let attempt =
            AnswerAttempt { caller: &caller, task: &task, root: &task, message: &message, key: &key };
        let was_answered_before = self.was_answer(&attempt).await?;
        let snapshot = match stored.task.status.state {
            TaskState::InputRequired
                if !stored.open_asks.is_empty() && options.delivery != Delivery::Steer =>
            {
                let open: Vec<&Ask> = stored.open_asks.iter().map(|open| &open.ask).collect();
                let answered = self.answer_one(&attempt, &open).await?;
                answered.map_or_else(|| stored.into(), |(_, snapshot)| snapshot)
            }
            // An earlier send of the message answered an ask that is closed by now.
            _ if was_answered_before => {
                self.check_earlier_answer(&attempt, &[]).await?;
                stored.into()
            }
            TaskState::Working | TaskState::InputRequired if options.delivery == Delivery::Reject => {
                return Err(busy());
            }
            TaskState::Working | TaskState::InputRequired | TaskState::AuthRequired => {
                if options.delivery != Delivery::Steer {
                    self.refuse_late_answer(&attempt).await?;
                }
                check_session(self.ctx.config.names, &stored, options.session.as_ref())?;
                self.check_room(&caller, message.weight())?;
                let location =
                    self.ctx.ports.store.context_location(&caller, &stored.task.context_id).await?;
                let Admitted { input, .. } = self.admit(&caller, &message, &options, &location).await?;
                let (prompt, key) = (options.prompt, key.clone());
                let joining = |message, reply| Joining { message, key, input, options: prompt, trace, reply };
                let joined = self.join(&caller, &task, message.clone(), joining).await;
                if let Err(error) = &joined
                    && error.kind() == ErrorKind::UnsupportedOperation
                    && options.delivery != Delivery::Steer
                {
                    self.refuse_late_option(&attempt).await?;
                }
                match joined? {
                    Some(snapshot) => snapshot,
                    None => return Err(takes_no_message(&self.get(&caller, &task).await?.task)),
                }
            }
            TaskState::Submitted if held::is_held(&stored.task) => {
                if !held::is_release(&message) {
                    return Err(held::refusal(&stored.task));
                }
                let (input, options) = (Vec::new(), options.prompt);
                let joining = |message, reply| Joining { message, key, input, options, trace, reply };
                match self.join(&caller, &task, message, joining).await? {
                    Some(snapshot) => snapshot,
                    None => return Err(takes_no_message(&self.get(&caller, &task).await?.task)),
                }
            }
            state => {
                if !state.is_terminal() {
                    self.refuse_late_answer(&attempt).await?;
                }
                return Err(takes_no_message(&stored.task));
            }
        };
        self.follow_from(&caller, task, snapshot).await
    }

    /// Waits a moment for a task that is about to begin, that is, one that is first in the queue of its context, so that a
    /// message to it need not be refused. A message to a task further back in that queue is refused at once. (A task that is
    /// first in this queue may still wait for a session that another context uses, for a permit, or for an agent that cannot be
    /// reached. Then the message is refused after [`BEGIN_TIMEOUT`].)
    async fn wait_until_begun(&self, caller: &Principal, mut stored: StoredTask) -> Result<StoredTask> {
        let task = stored.task.id.clone();
        let queue = QueueKey::Context(caller.clone(), stored.task.context_id.clone());
        let until = Instant::now() + BEGIN_TIMEOUT;
        while stored.task.status.state == TaskState::Submitted
            && self.ctx.live.queues.holder(&queue).as_ref() == Some(&task)
        {
            let head = self.head(caller, &task).await?;
            let mut reader = self.reader(caller, task.clone(), &head, stored.seq);
            let Ok(read) = tokio::time::timeout_at(until, reader.next()).await else { break };
            read?;
            stored = self.stored(caller, &task).await?;
        }
        Ok(stored)
    }

    /// Handles a message to a child task, which can only answer an ask of that sub-agent.
    async fn answer_sub_agent(
        &self,
        caller: Principal,
        stored: StoredTask,
        message: Message,
        key: IdempotencyKey,
    ) -> Result<Sent> {
        let Some(parent) = &stored.task.parent else { return Err(takes_no_message(&stored.task)) };
        let task = stored.task.id.clone();
        let attempt =
            AnswerAttempt { caller: &caller, task: &task, root: &parent.root, message: &message, key: &key };
        // The asks of sub-agents belong to the root task.
        let root = self.stored(&caller, &parent.root).await?;
        let asks = root.open_asks.iter().map(|open| &open.ask);
        let open: Vec<&Ask> = asks.filter(|ask| ask.session == parent.session).collect();
        let snapshot = if stored.task.status.state == TaskState::InputRequired && !open.is_empty() {
            match self.answer_one(&attempt, &open).await? {
                Some((request, _)) => self.wait_until_answered(&caller, &task, &request).await?,
                None => stored.into(),
            }
        } else if self.was_answer(&attempt).await? {
            self.check_earlier_answer(&attempt, &[]).await?;
            stored.into()
        } else {
            if !stored.task.status.state.is_terminal() {
                self.refuse_late_answer(&attempt).await?;
            }
            return Err(takes_no_message(&stored.task));
        };
        self.follow_from(&caller, task, snapshot).await
    }

    /// Waits until the child task shows that the ask is answered. The root task already shows it.
    async fn wait_until_answered(
        &self,
        caller: &Principal,
        task: &TaskId,
        request: &RequestId,
    ) -> Result<Snapshot> {
        loop {
            let now = self.get(caller, task).await?;
            if now.task.open_asks.iter().all(|open| open.request_id != *request) {
                return Ok(now);
            }
            let head = self.head(caller, task).await?;
            self.reader(caller, task.clone(), &head, now.seq).next().await?;
        }
    }

    /// Sends a message to a task that runs, waits for credentials or is held. `None`: the task accepts no message now.
    pub(super) async fn join(
        &self,
        caller: &Principal,
        task: &TaskId,
        mut message: Message,
        joining: impl FnOnce(Message, Reply) -> Joining,
    ) -> Result<Option<Snapshot>> {
        message.task_id = Some(task.clone());
        let sent = message.clone();
        let request = |reply| ActorRequest::Join(Box::new(joining(sent, reply)));
        if let Some(answered) = self.send_to_actor(task, request).await {
            return answered.map(Some);
        }
        // The actor has ended without a reply. The log shows whether the message joined.
        let now = self.get(caller, task).await?;
        Ok(now.task.history.contains(&message).then_some(now))
    }
}

fn check_session(wire: WireNames, stored: &StoredTask, named: Option<&SessionId>) -> Result<()> {
    let own = stored.turn.as_ref().map(|turn| &turn.session.id);
    match named {
        Some(named) if own != Some(named) => Err(refusal(wire, &Created::OtherSession)),
        _ => Ok(()),
    }
}

fn takes_no_message(task: &Task) -> Error {
    let state = task.status.state;
    let text = if task.parent.is_some() && !state.is_terminal() {
        "The task is the work of a sub-agent, which takes messages only to answer what it asks; send this one to the \
         task that it works for."
            .to_owned()
    } else if state.is_terminal() {
        format!(
            "The task is {state} and takes no more messages; send this one without taskId, with its contextId."
        )
    } else if state != TaskState::Submitted {
        "The task takes no more messages: it is about to end, or its agent takes none while it works. Send this one without taskId, \
         with its contextId, and it will be taken up when the task is over."
            .to_owned()
    } else {
        format!(
            "The task is {state} and has not begun; send this message without taskId, with its contextId, and it \
             will be taken up when the task is over."
        )
    };
    Error::new(ErrorKind::UnsupportedOperation, text)
        .detail("taskId", task.id.as_str())
        .detail("state", state.as_str())
}
