//! The users of the gateway. They lose their connections, come back, repeat themselves, and change their minds.

mod answers;

use std::sync::Arc;

use longshore_engine::{Engine, Sent, Snapshot, Subscription, SubscriptionStart, TaskReader};
use longshore_model::{
    ContextId, Delivery, Error, ErrorKind, Json, Message, MessageId, Metadata, Part, Principal, Result, Role,
    SendConfig, SendMessage, SendOptions, Seq, TaskEvent, TaskId, TaskState, TaskStatus,
};
use tokio_util::sync::CancellationToken;

use crate::world::World;

pub(crate) fn owner() -> Principal {
    Principal::new("alice")
}

/// The connection broke, or the gateway went away.
#[derive(Debug)]
struct Lost;

/// A reader, valid as long as its gateway runs.
struct OpenReader {
    reader: TaskReader,
    is_gone: CancellationToken,
}

/// The task that a message created or joined.
struct TaskOfMessage {
    task: TaskId,
    opening: SubscriptionStart,
    line: OpenReader,
}

/// The outcome of a send.
enum SendOutcome {
    Sent(Box<TaskOfMessage>),
    /// Refused for now, or for good.
    Refused,
    /// The user gave up and does not know the outcome.
    GaveUp,
}

struct User {
    world: Arc<World>,
    name: String,
    messages: u64,
}

/// Sends some messages, one after the other, and follows their tasks.
pub(crate) async fn live(world: Arc<World>, number: u64) {
    let mut user = User { world, name: format!("u{number}"), messages: 0 };
    for _ in 0..user.draw_between(1, 3) {
        user.world.stage.wait(0, 800).await;
        let context = format!("c{}", user.draw_between(1, 2));
        let delivery = match user.draw_between(0, 9) {
            0 => Delivery::Reject,
            1 | 2 => Delivery::Steer,
            _ => Delivery::Queue,
        };
        user.say(&context, delivery).await;
    }
}

/// Reads tasks of others.
pub(crate) async fn watch(world: Arc<World>, number: u64) {
    let user = User { world, name: format!("w{number}"), messages: 0 };
    for _ in 0..user.draw_between(1, 3) {
        user.world.stage.wait(0, 2000).await;
        let Some(task) = user.world.oracle.some_task(&user.world.stage) else { continue };
        user.check_invisible_to_others(&task).await;
        let task = match user.world.store.children_of(&task).pop() {
            Some(child) if user.one_in(2) => child,
            _ => task,
        };
        let cursor = Seq::START;
        user.follow(Following { task, cursor, line: None, command: None, is_watching: true }).await;
    }
}

/// A task that a user reads.
struct Following {
    task: TaskId,
    cursor: Seq,
    line: Option<OpenReader>,
    /// The message that created the task, if this user sent it.
    command: Option<SendMessage>,
    /// Only reads.
    is_watching: bool,
}

impl User {
    fn draw_between(&self, low: u64, high: u64) -> u64 {
        self.world.stage.draw(|chance| chance.between(low, high))
    }

    fn one_in(&self, times: u64) -> bool {
        self.world.stage.draw(|chance| chance.one_in(times))
    }

    fn note(&self, line: std::fmt::Arguments<'_>) {
        self.world.stage.note(format_args!("{}: {line}", self.name));
    }

    fn find(&self, what: std::fmt::Arguments<'_>) {
        self.world.stage.find(format_args!("{}: {what}", self.name));
    }

    /// Calls the gateway, as long as the connection holds.
    async fn call<T, F: Future<Output = T>>(&self, work: impl FnOnce(Engine) -> F) -> Result<T, Lost> {
        self.call_with_gateway(work).await.map(|(done, _)| done)
    }

    /// The same, with the gateway's number and the token that ends with it.
    async fn call_with_gateway<T, F: Future<Output = T>>(
        &self,
        work: impl FnOnce(Engine) -> F,
    ) -> Result<(T, CancellationToken), Lost> {
        let gateway = self.world.gateway().await;
        let work = work(gateway.engine.clone());
        tokio::select! {
            biased;
            () = gateway.is_gone.cancelled() => Err(Lost),
            () = self.world.stage.connection_breaks() => Err(Lost),
            done = work => Ok((done, gateway.is_gone.clone())),
        }
    }

    /// Words that were not used before.
    fn new_words(&mut self) -> String {
        self.messages += 1;
        format!("{}m{}", self.name, self.messages)
    }

    /// Sends a message into a context and follows its task.
    async fn say(&mut self, context: &str, delivery: Delivery) {
        let words = self.new_words();
        // Half of the tasks are so large that they leave the memory while they wait.
        let large = Json::from_value(&serde_json::json!({ "large": "x".repeat(2048) }));
        let metadata = Metadata::try_from(large).ok().filter(|_| self.messages.is_multiple_of(2));
        let command = command(&words, vec![Part::text(words.clone())], delivery, |message| {
            message.context_id = Some(ContextId::parse(context).expect("letters and digits"));
            message.metadata = metadata;
        });
        let began = self.world.stage.tick();
        let SendOutcome::Sent(place) = self.send(&command).await else { return };
        let TaskOfMessage { task, opening, line } = *place;
        if matches!(opening, SubscriptionStart::Tail) {
            self.world.oracle.made(&self.world.stage, context, &words, &task, began);
        }
        let cursor = self.opened(&task, opening);
        let line = (!self.one_in(4)).then_some(line);
        let following = Following { task, cursor, line, command: Some(command), is_watching: false };
        Box::pin(self.follow(following)).await;
    }

    /// Sends until there is a response, or the user gives up.
    async fn send(&self, command: &SendMessage) -> SendOutcome {
        let words = command.message.id.clone();
        loop {
            self.note(format_args!("sends {words}"));
            let sent = self
                .call_with_gateway(|engine| {
                    let command = command.clone();
                    async move { engine.send(&owner(), command).await }
                })
                .await;
            match sent {
                Ok((Ok(Sent { task, opening, reader, .. }), is_gone)) => {
                    self.note(format_args!("{words} is with {task}"));
                    self.world.oracle.told(&self.world.stage, &words, &task);
                    return SendOutcome::Sent(Box::new(TaskOfMessage {
                        task,
                        opening,
                        line: OpenReader { reader, is_gone },
                    }));
                }
                Ok((Err(error), _)) if is_for_later(&error) => {
                    self.note(format_args!("{words}: {:?}", error.kind()));
                }
                Ok((Err(error), _)) => {
                    self.note(format_args!("{words} is refused: {:?}", error.kind()));
                    self.expect(
                        &error,
                        &[
                            ErrorKind::SessionBusy,
                            ErrorKind::UnsupportedOperation,
                            ErrorKind::InterruptNotFound,
                            ErrorKind::InterruptExpired,
                            ErrorKind::InvalidParams,
                        ],
                    );
                    return SendOutcome::Refused;
                }
                Err(Lost) if self.one_in(6) => return SendOutcome::GaveUp,
                Err(Lost) => self.note(format_args!("{words}: no answer")),
            }
            self.world.stage.wait(0, 300).await;
        }
    }

    fn expect(&self, error: &Error, kinds: &[ErrorKind]) {
        if !kinds.contains(&error.kind()) {
            let (kind, cause) = (error.kind(), error.cause());
            self.find(format_args!("{kind:?} is no answer to that: {} {cause:?}", error.message()));
        }
    }

    /// Where reading starts.
    fn opened(&self, task: &TaskId, opening: SubscriptionStart) -> Seq {
        match opening {
            SubscriptionStart::Tail => Seq::START,
            SubscriptionStart::Snapshot(snapshot) => {
                self.note(format_args!("joins {task} at {}", snapshot.seq));
                self.world.check_snapshot(task, &snapshot);
                snapshot.seq
            }
            SubscriptionStart::Gap(snapshot, bounds) => {
                self.find(format_args!("{task} has a gap: {bounds:?}"));
                snapshot.seq
            }
        }
    }

    /// Reads to the end of the task, with interruptions.
    async fn follow(&self, mut following: Following) {
        loop {
            let line = match following.line.take() {
                Some(line) => Some(line),
                None => self.reopen(&mut following).await,
            };
            let Some(OpenReader { mut reader, is_gone }) = line else {
                self.world.stage.wait(0, 100).await;
                continue;
            };
            loop {
                let next = tokio::select! {
                    biased;
                    () = is_gone.cancelled() => Err(Lost),
                    () = self.world.stage.connection_breaks() => Err(Lost),
                    next = reader.next() => Ok(next),
                };
                match next {
                    Err(Lost) => break,
                    Ok(Err(error)) => {
                        self.expect(&error, &[ErrorKind::Unavailable]);
                        break;
                    }
                    Ok(Ok(None)) => {
                        self.note(format_args!("{} is over for me", following.task));
                        self.world.check_end(&following.task, following.cursor);
                        return;
                    }
                    Ok(Ok(Some(entries))) => {
                        for entry in entries {
                            self.world.check_entry(&following.task, following.cursor, &entry.entry);
                            following.cursor = entry.entry.seq;
                            if !following.is_watching {
                                Box::pin(self.react(&following.task, &entry.entry.event)).await;
                            }
                        }
                    }
                }
                if self.one_in(12) {
                    break;
                }
            }
            drop(reader);
            self.world.stage.wait(0, 400).await;
        }
    }

    /// Opens a reader again, in one of several ways. `None`: not possible now.
    async fn reopen(&self, following: &mut Following) -> Option<OpenReader> {
        let task = following.task.clone();
        match (self.draw_between(0, 5), &following.command) {
            (0, Some(command)) => {
                let SendOutcome::Sent(place) = self.send(&command.clone()).await else { return None };
                let TaskOfMessage { opening, line, .. } = *place;
                following.cursor = self.opened(&task, opening);
                Some(line)
            }
            (1, _) => {
                let snapshot = self.get(&task).await?;
                following.cursor = following.cursor.max(snapshot.seq);
                self.subscribe(&task, Some(following.cursor)).await.map(|(_, line)| line)
            }
            (2, _) => {
                let (opening, line) = self.subscribe(&task, None).await?;
                let cursor = self.opened(&task, opening);
                if cursor < following.cursor {
                    self.find(format_args!("{task} went back from {} to {cursor}", following.cursor));
                }
                following.cursor = cursor;
                Some(line)
            }
            _ => {
                let (opening, line) = self.subscribe(&task, Some(following.cursor)).await?;
                if !matches!(opening, SubscriptionStart::Tail) {
                    self.find(format_args!("{task} does not go on from {}", following.cursor));
                }
                Some(line)
            }
        }
    }

    async fn get(&self, task: &TaskId) -> Option<Snapshot> {
        let got = self
            .call(|engine| {
                let task = task.clone();
                async move { engine.get(&owner(), &task).await }
            })
            .await;
        match got {
            Ok(Ok(snapshot)) => {
                self.world.check_snapshot(task, &snapshot);
                Some(snapshot)
            }
            Ok(Err(error)) => {
                self.expect(&error, &[ErrorKind::Unavailable]);
                None
            }
            Err(Lost) => None,
        }
    }

    /// Another principal does not see the task.
    async fn check_invisible_to_others(&self, task: &TaskId) {
        let stranger = Principal::new("mallory");
        let got = self
            .call(|engine| {
                let task = task.clone();
                async move { engine.get(&stranger, &task).await }
            })
            .await;
        match got {
            Ok(Ok(_)) => self.find(format_args!("{task} is shown to a stranger")),
            Ok(Err(error)) => self.expect(&error, &[ErrorKind::TaskNotFound, ErrorKind::Unavailable]),
            Err(Lost) => {}
        }
    }

    async fn subscribe(&self, task: &TaskId, after: Option<Seq>) -> Option<(SubscriptionStart, OpenReader)> {
        let subscribed = self
            .call_with_gateway(|engine| {
                let task = task.clone();
                async move { engine.subscribe(&owner(), &task, after.map(Into::into)).await }
            })
            .await;
        match subscribed {
            Ok((Ok(Subscription { opening, reader, .. }), is_gone)) => {
                Some((opening, OpenReader { reader, is_gone }))
            }
            // The task is over, and only the rest of it can be read.
            Ok((Err(error), _)) if after.is_none() && error.kind() == ErrorKind::UnsupportedOperation => None,
            Ok((Err(error), _)) => {
                self.expect(&error, &[ErrorKind::Unavailable]);
                None
            }
            Err(Lost) => None,
        }
    }

    /// The user's reaction to an event.
    async fn react(&self, task: &TaskId, event: &TaskEvent) {
        if let TaskEvent::Status(update) = event {
            match update.status.state {
                TaskState::InputRequired if !self.one_in(6) => {
                    if let Some(note) = &update.notes.interrupt {
                        self.answer(task, &note.request_id).await;
                    }
                }
                TaskState::AuthRequired if !self.one_in(3) => self.add(task).await,
                _ => {}
            }
        }
        match self.draw_between(0, 80) {
            0 => self.cancel(task).await,
            1 | 2 => self.add(task).await,
            3 => self.query(task).await,
            _ => {}
        }
    }

    /// Sends one more message to a task.
    async fn add(&self, task: &TaskId) {
        let words = format!("{}t{}", self.name, self.world.stage.tick());
        let command = command(&words, vec![Part::text(words.clone())], Delivery::Queue, |message| {
            message.task_id = Some(task.clone());
        });
        if let SendOutcome::Sent(place) = self.send(&command).await {
            self.opened(task, place.opening);
        }
    }

    /// Queries open asks and tasks, cancels a sub-agent's task, or waits for the task to settle.
    async fn query(&self, task: &TaskId) {
        if self.one_in(2) {
            let children = self.world.store.children_of(task);
            if let Some(child) = children.first() {
                self.cancel(child).await;
            }
            return;
        }
        let Some((_, OpenReader { reader, is_gone })) = self.subscribe(task, Some(Seq::START)).await else {
            return;
        };
        let (gateway, owner) = (self.world.gateway().await, owner());
        let settled = tokio::select! {
            biased;
            () = is_gone.cancelled() => return,
            () = self.world.stage.connection_breaks() => return,
            settled = gateway.engine.settled(&owner, reader) => settled,
        };
        match settled {
            Ok(snapshot)
                if snapshot.task.status.state.is_settled() || waits_for_agent(&snapshot.task.status) =>
            {
                self.world.check_snapshot(task, &snapshot);
            }
            Ok(snapshot) => {
                self.find(format_args!("{task} has settled, and is {}", snapshot.task.status.state));
            }
            Err(error) => self.expect(&error, &[ErrorKind::Unavailable]),
        }
    }

    async fn cancel(&self, task: &TaskId) {
        self.world.oracle.wants_to_cancel(task);
        loop {
            self.note(format_args!("cancels {task}"));
            let canceled = self
                .call(|engine| {
                    let task = task.clone();
                    async move { engine.cancel(&owner(), &task).await }
                })
                .await;
            match canceled {
                Ok(Ok(snapshot)) => {
                    self.note(format_args!("{task} is canceled"));
                    self.world.oracle.canceled(&self.world, task, &snapshot);
                    return;
                }
                Ok(Err(error)) if error.kind() == ErrorKind::TaskNotCancelable => {
                    self.world.check_over(task);
                    return;
                }
                Ok(Err(error)) => self.expect(&error, &[ErrorKind::Unavailable]),
                Err(Lost) if self.one_in(4) => return,
                Err(Lost) => {}
            }
            self.world.stage.wait(0, 300).await;
        }
    }
}

fn is_for_later(error: &Error) -> bool {
    // Answers to asks get the second kind where sends get the third.
    matches!(
        error.kind(),
        ErrorKind::Unavailable
            | ErrorKind::AgentUnavailable
            | ErrorKind::UpstreamUnreachable
            | ErrorKind::TooManyRequests
    )
}

fn command(
    id: &str,
    parts: Vec<Part>,
    delivery: Delivery,
    address: impl FnOnce(&mut Message),
) -> SendMessage {
    let id = MessageId::parse(id).expect("letters and digits");
    let mut message = Message::new(id, Role::User, parts);
    address(&mut message);
    SendMessage {
        message,
        config: SendConfig::default(),
        metadata: None,
        options: SendOptions { delivery, ..SendOptions::default() },
        may_claim: false,
        trace: None,
    }
}

/// Whether the status says that the agent cannot be reached. A blocking send then returns, because nobody knows when the agent
/// comes back.
fn waits_for_agent(status: &TaskStatus) -> bool {
    let metadata = status.message.as_ref().and_then(|message| message.metadata.as_ref());
    let waits_for =
        metadata.and_then(|metadata| metadata.json().to_value().pointer("/longshore/waitsFor").cloned());
    status.state == TaskState::Submitted && waits_for == Some("agent".into())
}
