//! Messages on a task that exists: each answers what it asks, joins what runs, or tries again what lacked credentials.

use std::time::Duration;

use longshore_model::{
    Ask, Delivery, Error, ErrorKind, Message, Principal, PromptOptions, RequestId, Result, SendMessage,
    SessionId, Task, TaskId, TaskState, TraceContext,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answering::Reply;
use super::sending::{Admitted, busy, refusal};
use super::{Engine, Sent, Snapshot};
use crate::actor::Inbox;
use crate::joins::Joining;
use crate::lanes::LaneKey;
use crate::port::{Created, IdempotencyKey, Input, StoredTask};

/// How long a message waits for the task that it is for to begin. Then it is told that the task has not.
const BEGINNING: Duration = Duration::from_secs(5);

/// A message that wants to join a task.
pub(super) struct JoinRequest {
    pub(super) message: Message,
    pub(super) key: IdempotencyKey,
    pub(super) input: Vec<Input>,
    pub(super) options: PromptOptions,
    pub(super) trace: Option<TraceContext>,
}

impl Engine {
    /// A message on a task that exists: the answer to what it asks, one more word to what it does, or another try.
    pub(super) async fn follow_up(
        &self,
        caller: Principal,
        task: TaskId,
        command: SendMessage,
    ) -> Result<Sent> {
        let key = self.key(&command);
        let SendMessage { mut message, wishes, trace, .. } = command;
        let stored = self.around.store.get(&caller, &task).await?;
        let stored = stored.ok_or_else(|| Error::task_not_found(&task))?;
        let context = stored.task.context_id.clone();
        if message.context_id.as_ref().is_some_and(|named| *named != context) {
            return Err(Error::invalid(
                "message.contextId",
                "is not the context of the task in message.taskId; leave it out, or send the task's own",
            ));
        }
        message.context_id = Some(context);
        // The same message again, because its answer got lost: it was taken, and the caller is attached.
        if stored.task.history.contains(&message) {
            return self.attached(&caller, task, now(stored)).await;
        }
        if stored.task.parent.is_some() {
            return self.answer_of_sub_agent(caller, stored, message, key).await;
        }
        let stored = self.once_begun(&caller, stored).await?;
        let reply = Reply { caller: &caller, task: &task, root: &task, message: &message, key: &key };
        let given_before = self.was_given(&reply).await?;
        let snapshot = match stored.task.status.state {
            TaskState::InputRequired
                if !stored.open_asks.is_empty() && wishes.delivery != Delivery::Steer =>
            {
                let open: Vec<&Ask> = stored.open_asks.iter().map(|open| &open.ask).collect();
                let given = self.give(&reply, &open).await?;
                given.map_or_else(|| now(stored), |(_, snapshot)| snapshot)
            }
            // It was an answer, to something that is not asked any more.
            _ if given_before => {
                self.check_given(&reply, &[]).await?;
                now(stored)
            }
            TaskState::Working | TaskState::InputRequired if wishes.delivery == Delivery::Reject => {
                return Err(busy());
            }
            TaskState::Working | TaskState::InputRequired | TaskState::AuthRequired => {
                if wishes.delivery != Delivery::Steer {
                    self.check_no_answer(&reply).await?;
                }
                check_session(&stored, wishes.session.as_ref())?;
                let place = self.around.store.place(&caller, &stored.task.context_id).await?;
                let Admitted { input, .. } = self.admit(&message, &wishes, &place).await?;
                let joining = JoinRequest { message, key, input, options: wishes.prompt, trace };
                match self.join(&caller, &task, joining).await? {
                    Some(snapshot) => snapshot,
                    None => return Err(takes_no_message(&self.get(&caller, &task).await?.task)),
                }
            }
            state => {
                if !state.is_terminal() {
                    self.check_no_answer(&reply).await?;
                }
                return Err(takes_no_message(&stored.task));
            }
        };
        self.attached(&caller, task, snapshot).await
    }

    /// A task whose turn it is begins in a moment, unless its agent is away: a message that comes meanwhile is not too
    /// early. For a task that waits behind others of its context it is, and that is told at once. (Where it waits for the
    /// session, which another context has, or for room among the turns, it is told only after the wait.)
    async fn once_begun(&self, caller: &Principal, mut stored: StoredTask) -> Result<StoredTask> {
        let task = stored.task.id.clone();
        let lane = LaneKey::Context(caller.clone(), stored.task.context_id.clone());
        let until = Instant::now() + BEGINNING;
        while stored.task.status.state == TaskState::Submitted
            && self.around.lanes.holder(&lane).as_ref() == Some(&task)
        {
            let head = self.head(caller, &task).await?;
            let mut reader = self.reader(caller, task.clone(), &head, stored.seq);
            let Ok(read) = tokio::time::timeout_at(until, reader.next()).await else { break };
            read?;
            let known = self.around.store.get(caller, &task).await?;
            stored = known.ok_or_else(|| Error::task_not_found(&task))?;
        }
        Ok(stored)
    }

    /// A message on the task of a sub-agent can only answer what that one asks.
    async fn answer_of_sub_agent(
        &self,
        caller: Principal,
        stored: StoredTask,
        message: Message,
        key: IdempotencyKey,
    ) -> Result<Sent> {
        let Some(parent) = &stored.task.parent else { return Err(takes_no_message(&stored.task)) };
        let task = stored.task.id.clone();
        let reply = Reply { caller: &caller, task: &task, root: &parent.root, message: &message, key: &key };
        // The root task owns what its sub-agents ask.
        let root = self.around.store.get(&caller, &parent.root).await?;
        let root = root.ok_or_else(|| Error::task_not_found(&parent.root))?;
        let asks = root.open_asks.iter().map(|open| &open.ask);
        let open: Vec<&Ask> = asks.filter(|ask| ask.session == parent.session).collect();
        let snapshot = if stored.task.status.state == TaskState::InputRequired && !open.is_empty() {
            match self.give(&reply, &open).await? {
                Some((request, _)) => self.without_ask(&caller, &task, &request).await?,
                None => now(stored),
            }
        } else if self.was_given(&reply).await? {
            self.check_given(&reply, &[]).await?;
            now(stored)
        } else {
            if !stored.task.status.state.is_terminal() {
                self.check_no_answer(&reply).await?;
            }
            return Err(takes_no_message(&stored.task));
        };
        self.attached(&caller, task, snapshot).await
    }

    /// Waits until the sub-agent's own task says that the ask is answered. The root task has said so already.
    async fn without_ask(&self, caller: &Principal, task: &TaskId, request: &RequestId) -> Result<Snapshot> {
        loop {
            let now = self.get(caller, task).await?;
            if now.task.open_asks.iter().all(|open| open.request_id != *request) {
                return Ok(now);
            }
            let head = self.head(caller, task).await?;
            self.reader(caller, task.clone(), &head, now.seq).next().await?;
        }
    }

    /// Hands a message to a task that runs, or that waits for credentials. `None`: it does neither.
    pub(super) async fn join(
        &self,
        caller: &Principal,
        task: &TaskId,
        request: JoinRequest,
    ) -> Result<Option<Snapshot>> {
        let JoinRequest { mut message, key, input, options, trace } = request;
        message.task_id = Some(task.clone());
        let (reply, told) = oneshot::channel();
        let joining = Joining { message: message.clone(), key, input, options, trace, reply };
        if let Some(inbox) = self.around.registry.inbox(task)
            && inbox.send(Inbox::Join(Box::new(joining))).await.is_ok()
            && let Ok(told) = told.await
        {
            return told.map(Some);
        }
        // Nobody said what became of it. The log does.
        let now = self.get(caller, task).await?;
        Ok(now.task.history.contains(&message).then_some(now))
    }
}

fn now(stored: StoredTask) -> Snapshot {
    Snapshot { task: stored.task, seq: stored.seq, epoch: stored.epoch }
}

fn check_session(stored: &StoredTask, named: Option<&SessionId>) -> Result<()> {
    let own = stored.turn.as_ref().map(|turn| &turn.session.id);
    match named {
        Some(named) if own != Some(named) => Err(refusal(&Created::OtherSession)),
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
        "The task is about to end and takes no more messages; send this one without taskId, with its contextId."
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
