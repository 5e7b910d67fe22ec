//! Follows one task to its end, through broken connections: every event is returned once, and none is lost.
//!
//! An agent that gives its events ids resumes after the last one. From any other agent the stream gets the current task, and returns
//! only what is new in it.

use std::collections::VecDeque;
use std::time::Duration;

use longshore_model::TaskState;

use crate::changes::changes;
use crate::client::Client;
use crate::connection::{Begin, Connection, Ended, Received};
use crate::error::{Error, ErrorKind, Retry};
use crate::polling::Looks;
use crate::request::Outgoing;
use crate::settings::Polling;
use crate::value::{Event, Task};
use crate::{Result, http};

/// After so many attempts in a row that brought no event, the stream fails. With the waits between them, this takes about half a
/// minute.
const MAX_FAILURES: u32 = 12;

/// After so many connections in a row that the agent ended without news, the task is looked at instead: this agent does not keep
/// its streams open.
const MAX_CLOSES: u32 = 3;

/// The waits between two attempts: doubled from the first to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The least time between two looks at a task whose stream cannot be joined exactly.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a stream begins with.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    Message(Outgoing),
    Task(String),
}

/// The events of one task. Dropping it leaves the task as it is.
#[derive(Debug)]
pub struct TaskStream {
    client: Client,
    start: Start,
    source: Source,
    ready: VecDeque<Event>,
    /// All that was returned so far, folded.
    task: Option<Task>,
    /// About how many bytes the task takes.
    weight: usize,
    /// The id of the last event.
    cursor: Option<String>,
    /// Attempts in a row that brought no event.
    failures: u32,
    is_over: bool,
}

#[derive(Debug)]
enum Source {
    Open(Box<Connection>),
    /// There is no stream, or it has ended.
    Closed,
    /// The agent has no stream for the task: it is looked at again and again.
    Looking(Looks),
}

impl TaskStream {
    pub(crate) async fn open(client: Client, start: Start) -> Result<Self> {
        let mut stream = Self {
            client,
            start,
            source: Source::Closed,
            ready: VecDeque::new(),
            task: None,
            weight: 0,
            cursor: None,
            failures: 0,
            is_over: false,
        };
        match &stream.start {
            Start::Message(message) if !stream.client.streams() => {
                let event = stream.client.send_once(message, false).await?;
                stream.take(event)?;
                stream.look_from_now_on();
            }
            Start::Message(_) => stream.reopen().await?,
            Start::Task(_) => stream.join().await?,
        }
        Ok(stream)
    }

    /// The next event. `None`: the task has ended, or waits for its user and the agent has closed the stream.
    ///
    /// The future should be kept until it is ready: when it is dropped, its waits begin again.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.is_over {
                return Ok(None);
            }
            match &mut self.source {
                Source::Open(connection) => match connection.next(&self.client).await? {
                    Ok(received) => self.take_received(received).await?,
                    Err(ended) => self.source_ended(ended).await?,
                },
                Source::Looking(looks) => {
                    let id = self.task.as_ref().map_or("", |task| task.id.as_str());
                    looks.wait(id).await?;
                    match self.look().await {
                        Err(error) if is_passing(&error) && self.failures < MAX_FAILURES => {
                            self.failures += 1;
                        }
                        looked => {
                            looked?;
                            self.failures = 0;
                            self.is_over = self.is_settled();
                        }
                    }
                }
                Source::Closed => self.resume().await?,
            }
        }
    }

    /// The task as far as its events were returned or are ready.
    pub fn task(&self) -> Option<&Task> {
        self.task.as_ref()
    }

    pub fn into_task(self) -> Option<Task> {
        self.task
    }

    /// Sends another message on the task, such as the answer to what it asks, and follows the task from here.
    pub async fn send(&mut self, message: Outgoing) -> Result<()> {
        self.source = Source::Closed;
        self.is_over = false;
        self.failures = 0;
        let resumes_exactly = self.cursor.is_some();
        if self.client.streams() && !resumes_exactly {
            self.start = Start::Message(message);
            return self.reopen().await;
        }
        let answer = self.client.send_once(&message, false).await?;
        if !resumes_exactly {
            self.take(answer)?;
            self.look_from_now_on();
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.task.as_ref().is_some_and(Task::is_settled)
    }

    fn look_from_now_on(&mut self) {
        let polling = self.client.settings().polling;
        let polling = polling.unwrap_or(Polling { timeout: None, ..Polling::default() });
        self.source = Source::Looking(Looks::new(polling));
        self.is_over |= self.is_settled();
    }

    /// Decides what the end of a connection means.
    async fn source_ended(&mut self, ended: Ended) -> Result<()> {
        let is_joining = self.is_joining();
        self.source = Source::Closed;
        // Some agents have an empty stream for a task that has ended.
        if ended == Ended::Closed && is_joining && self.task.is_none() {
            self.look().await?;
        }
        if ended == Ended::Silent {
            if self.task.is_none() {
                return Err(http::timed_out(self.client.settings().timeout));
            }
            // An agent that answers this is alive: its task may be silent for long.
            match self.look().await {
                Err(error) if is_passing(&error) => {
                    self.failures += 1;
                }
                looked => {
                    looked?;
                    self.is_over = self.is_settled();
                }
            }
            return Ok(());
        }
        // A task that waits for its user says nothing more until then.
        if self.is_settled() {
            self.is_over = true;
            return Ok(());
        }
        self.failures += 1;
        if self.failures > MAX_FAILURES {
            let text = "The connection to the agent broke again and again.";
            return Err(Error::new(ErrorKind::Lost, text));
        }
        if self.failures > MAX_CLOSES && ended == Ended::Closed && self.task.is_some() {
            self.look_from_now_on();
        }
        Ok(())
    }

    /// Connects again, after a wait that grows with the failures.
    async fn resume(&mut self) -> Result<()> {
        if self.failures > 0 {
            let wait = FIRST_WAIT * 2_u32.pow((self.failures - 1).min(10));
            tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
        }
        let is_unanswered = self.task.is_none() && matches!(self.start, Start::Message(_));
        if is_unanswered && !self.client.settings().resends {
            return Err(Error::new(
                ErrorKind::Lost,
                "The connection broke before the agent answered. The agent may have received the message, so it is not sent again.",
            ));
        }
        let attempt = if is_unanswered { self.reopen().await } else { self.join().await };
        match attempt {
            Err(error) if is_passing(&error) && self.failures < MAX_FAILURES => {
                self.failures += 1;
                Ok(())
            }
            other => other,
        }
    }

    /// Opens the stream that the start names.
    async fn reopen(&mut self) -> Result<()> {
        let opened = self.client.open_stream(&self.start, None).await?;
        self.source = Source::Open(Box::new(Connection::new(opened, Begin::Message)));
        Ok(())
    }

    /// Follows a task that exists: after the last event, or from its present state.
    async fn join(&mut self) -> Result<()> {
        let Some(id) = self.id() else { return self.reopen().await };
        if !self.client.streams() {
            self.look_at(&id).await?;
            self.look_from_now_on();
            return Ok(());
        }
        match self.client.open_stream(&Start::Task(id.clone()), self.cursor.as_deref()).await {
            Ok(opened) => {
                let begin = if self.cursor.is_some() { Begin::Cursor } else { Begin::Present };
                self.source = Source::Open(Box::new(Connection::new(opened, begin)));
                Ok(())
            }
            Err(error) if is_refused_join(&error) => self.look_instead(&id).await,
            Err(error) => Err(error),
        }
    }

    /// The id of the task, if it is known.
    fn id(&self) -> Option<String> {
        match (&self.task, &self.start) {
            (Some(task), _) => Some(task.id.clone()),
            (None, Start::Task(id)) => Some(id.clone()),
            (None, Start::Message(_)) => None,
        }
    }

    /// The task has ended, or the agent has no stream for a task that runs. If the task is missing, this says so.
    async fn look_instead(&mut self, id: &str) -> Result<()> {
        self.look_at(id).await?;
        self.look_from_now_on();
        Ok(())
    }

    async fn look(&mut self) -> Result<()> {
        let Some(id) = self.id() else { return Ok(()) };
        self.look_at(&id).await
    }

    /// Gets the task, and returns what is new in it.
    async fn look_at(&mut self, id: &str) -> Result<()> {
        let task = self.client.get(id).await?;
        self.take(Event::Task(task))
    }

    async fn take_received(&mut self, received: Received) -> Result<()> {
        let event = match received.event {
            Ok(event) => event,
            // Some agents open the stream before they refuse it.
            Err(error) if self.is_joining() && is_refused_join(&error) => {
                let Some(id) = self.id() else { return Err(error) };
                return self.look_instead(&id).await;
            }
            // The agent ends the stream for now, such as at a limit of its own.
            Err(error) if is_passing(&error) && self.task.is_some() && self.failures < MAX_FAILURES => {
                self.failures += 1;
                self.source = Source::Closed;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if received.id.is_some() {
            self.cursor = received.id;
        }
        self.take_from_connection(event).await?;
        // An agent that only repeats itself is asked more and more seldom.
        if !self.ready.is_empty() || self.is_over {
            self.failures = 0;
        }
        Ok(())
    }

    async fn take_from_connection(&mut self, event: Event) -> Result<()> {
        let Source::Open(connection) = &mut self.source else { return self.take(event) };
        let is_first = std::mem::take(&mut connection.is_first);
        let is_task = matches!(event, Event::Task(_));
        if is_first && !is_task && self.task.is_some() && connection.begin != Begin::Cursor {
            connection.is_inexact = true;
        }
        if !connection.is_inexact {
            return self.take(event);
        }
        if is_task {
            connection.is_inexact = false;
            return self.take(event);
        }
        // The event may be older than the known state, so it only says that something happened.
        let last = matches!(&event, Event::StatusUpdate(update) if update.status.state.is_some_and(TaskState::is_settled));
        if !last {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.look().await
    }

    /// No event of a stream that was joined was read yet.
    fn is_joining(&self) -> bool {
        matches!(&self.source, Source::Open(connection) if connection.is_first && connection.begin != Begin::Message)
    }

    /// Applies an event, and makes it ready to return.
    fn take(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Task(mut task) => {
                let events = match &mut self.task {
                    Some(old) if old.id == task.id => {
                        let events = changes(old, &task);
                        task.keep_missing(old);
                        events
                    }
                    Some(_) => return Ok(()),
                    None => vec![Event::Task(task.clone())],
                };
                self.weight = task.weight();
                self.ready.extend(events);
                self.task = Some(task);
            }
            Event::Message(_) => {
                self.is_over = true;
                self.ready.push_back(event);
            }
            Event::StatusUpdate(update) => {
                let task =
                    self.task.get_or_insert_with(|| Task::of_update(&update.task_id, &update.context_id));
                if task.id != update.task_id {
                    return Ok(());
                }
                self.weight = task.apply_status(&update, self.weight);
                self.is_over |= task.is_over();
                self.ready.push_back(Event::StatusUpdate(update));
            }
            Event::ArtifactUpdate(update) => {
                let task =
                    self.task.get_or_insert_with(|| Task::of_update(&update.task_id, &update.context_id));
                if task.id != update.task_id {
                    return Ok(());
                }
                self.weight = task.apply_artifact(&update, self.weight);
                self.ready.push_back(Event::ArtifactUpdate(update));
            }
        }
        self.is_over |= self.task.as_ref().is_some_and(Task::is_over);
        let limit = self.client.settings().limits.task;
        if self.weight > limit {
            let text = format!(
                "The task has more than {limit} bytes, and is no longer followed. It goes on at the agent."
            );
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        Ok(())
    }
}

/// Whether another attempt can succeed. A connection that broke is such a case, because nothing was sent that must not be repeated.
fn is_passing(error: &Error) -> bool {
    error.kind() == ErrorKind::Lost || matches!(error.retry(), Retry::Later(_))
}

/// Whether the agent refused to stream the task, which can still be looked at.
fn is_refused_join(error: &Error) -> bool {
    let is_final = matches!(
        error.kind(),
        ErrorKind::Unauthenticated | ErrorKind::Forbidden | ErrorKind::InvalidResponse | ErrorKind::TooLarge
    );
    !is_passing(error) && !is_final
}
