//! Messages on a task that exists: each answers what it asks, joins what runs, or tries again what lacked credentials.

use std::time::Duration;

use longshore_model::{
    Ask, Delivery, Error, ErrorKind, Message, Principal, PromptOptions, RequestId, Result, SendMessage,
    SessionId, Task, TaskId, TaskState,
};
use tokio::sync::oneshot;

use super::sending::{Admitted, busy, refusal};
use super::{Engine, Sent, Snapshot};
use crate::actor::Inbox;
use crate::answer;
use crate::asks;
use crate::joins::Joining;
use crate::lanes::LaneKey;
use crate::port::{Created, IdempotencyKey, Input, NotedSends, StoredTask};

/// How long a message waits for the task that it is for to begin. Then it is told that the task has not.
const BEGINNING: Duration = Duration::from_secs(5);

/// A message that wants to join a task.
pub(super) struct JoinRequest {
    pub(super) message: Message,
    pub(super) key: IdempotencyKey,
    pub(super) input: Vec<Input>,
    pub(super) options: PromptOptions,
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
        let SendMessage { mut message, wishes, .. } = command;
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
            return self.answer_of_sub_agent(caller, stored, message).await;
        }
        let stored = self.once_begun(&caller, stored).await?;
        let given_before = self.around.store.earlier_send(&caller, &key).await?.as_ref() == Some(&task);
        let snapshot = match stored.task.status.state {
            TaskState::InputRequired
                if !stored.open_asks.is_empty() && wishes.delivery != Delivery::Steer =>
            {
                let mut open: Vec<&Ask> = stored.open_asks.iter().map(|open| &open.ask).collect();
                if given_before {
                    let Some(same) = self.asked_before(&caller, &key, &open).await? else {
                        return self.attached(&caller, task, now(stored)).await;
                    };
                    open = vec![same];
                }
                let (request, answer) = answer::read(&message, &open)?;
                // Before the agent has it: the gateway may die in between, and the same message again must not become
                // a prompt, or the answer to something else.
                let keys = vec![key.of_answer(&request), key];
                let (owner, at) = (caller.clone(), self.around.clock.now());
                self.around.store.note_sends(NotedSends { owner, task: task.clone(), keys, at }).await?;
                self.deliver(&caller, &task, request, answer, Some(message)).await?
            }
            // It was an answer, to something that is not asked any more.
            _ if given_before => now(stored),
            TaskState::Working | TaskState::InputRequired if wishes.delivery == Delivery::Reject => {
                return Err(busy());
            }
            TaskState::Working if wishes.delivery != Delivery::Steer && answer::is_answer(&message) => {
                return Err(self.too_late_to_answer(&caller, &message).await?);
            }
            TaskState::Working | TaskState::InputRequired | TaskState::AuthRequired => {
                check_session(&stored, wishes.session.as_ref())?;
                let place = self.around.store.place(&caller, &stored.task.context_id).await?;
                let Admitted { input, .. } = self.admit(&message, &wishes, &place).await?;
                let joining = JoinRequest { message, key, input, options: wishes.prompt };
                match self.join(&caller, &task, joining).await? {
                    Some(snapshot) => snapshot,
                    None => return Err(takes_no_message(&self.get(&caller, &task).await?.task)),
                }
            }
            _ => return Err(takes_no_message(&stored.task)),
        };
        self.attached(&caller, task, snapshot).await
    }

    /// Why an answer cannot be given to a task that works: what was asked is closed. As a message to the agent it would
    /// make no sense.
    async fn too_late_to_answer(&self, caller: &Principal, message: &Message) -> Result<Error> {
        if let Some(request) = answer::answered(message) {
            let known = self.around.store.interrupt(&request).await?;
            let closed = known.filter(|known| known.owner == *caller).and_then(|known| known.closed);
            return Ok(
                closed.map_or_else(|| asks::not_open(&request), |closed| self.too_late(&request, &closed))
            );
        }
        Ok(Error::new(
            ErrorKind::InterruptNotFound,
            "This task asks nothing at the moment, so this answer came too late; get the task to see how it went on. To tell \
             the agent just this word, send it with metadata shared.delivery = steer.",
        ))
    }

    /// The ask that this message was an answer to, if it is still open.
    async fn asked_before<'a>(
        &self,
        caller: &Principal,
        key: &IdempotencyKey,
        open: &[&'a Ask],
    ) -> Result<Option<&'a Ask>> {
        for ask in open {
            let key = key.of_answer(&ask.request_id);
            if self.around.store.earlier_send(caller, &key).await?.is_some() {
                return Ok(Some(ask));
            }
        }
        Ok(None)
    }

    /// A task whose turn it is begins in a moment: a message that comes meanwhile is not too early. For a task that
    /// waits behind others of its context it is, and that is told at once. (Behind a turn that another context has in
    /// the same session, which is rare, it is told only after the wait.)
    async fn once_begun(&self, caller: &Principal, stored: StoredTask) -> Result<StoredTask> {
        let task = stored.task.id.clone();
        let lane = LaneKey::Context(caller.clone(), stored.task.context_id.clone());
        if stored.task.status.state != TaskState::Submitted
            || self.around.lanes.holder(&lane) != Some(task.clone())
        {
            return Ok(stored);
        }
        let head = self.head(caller, &task).await?;
        let mut reader = self.reader(task.clone(), &head, stored.seq);
        // The first event of a turn is that it begins, or that it cannot.
        if let Ok(read) = tokio::time::timeout(BEGINNING, reader.next()).await {
            read?;
        }
        let stored = self.around.store.get(caller, &task).await?;
        stored.ok_or_else(|| Error::task_not_found(&task))
    }

    /// A message on the task of a sub-agent can only answer what that one asks.
    async fn answer_of_sub_agent(
        &self,
        caller: Principal,
        stored: StoredTask,
        message: Message,
    ) -> Result<Sent> {
        let (Some(parent), true) =
            (&stored.task.parent, stored.task.status.state == TaskState::InputRequired)
        else {
            return Err(takes_no_message(&stored.task));
        };
        // The root task owns what its sub-agents ask.
        let root = self.around.store.get(&caller, &parent.root).await?;
        let root = root.ok_or_else(|| Error::task_not_found(&parent.root))?;
        let asks = root.open_asks.iter().map(|open| &open.ask);
        let open: Vec<&Ask> = asks.filter(|ask| ask.session == parent.session).collect();
        if open.is_empty() {
            return Err(takes_no_message(&stored.task));
        }
        let (request, answer) = answer::read(&message, &open)?;
        self.deliver(&caller, &parent.root, request.clone(), answer, None).await?;
        let task = stored.task.id;
        let snapshot = self.without_ask(&caller, &task, &request).await?;
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
            self.reader(task.clone(), &head, now.seq).next().await?;
        }
    }

    /// Hands a message to a task that runs, or that waits for credentials. `None`: it does neither.
    pub(super) async fn join(
        &self,
        caller: &Principal,
        task: &TaskId,
        request: JoinRequest,
    ) -> Result<Option<Snapshot>> {
        let JoinRequest { mut message, key, input, options } = request;
        message.task_id = Some(task.clone());
        let (reply, told) = oneshot::channel();
        let joining = Joining { message: message.clone(), key, input, options, reply };
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
