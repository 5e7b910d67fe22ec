//! Follows one task to its end across broken connections. Every event is returned exactly once.
//!
//! If the agent gives its events ids, the stream resumes after the last one. Otherwise the stream reads the current task, and
//! returns only the changes since the last event.

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

/// After this many attempts in a row without an event, the stream fails. With the pauses between them, this takes about half a
/// minute.
const MAX_FAILURES: u32 = 12;

/// After this many connections in a row that the agent closed without news, the client polls the task instead: this agent does not
/// keep its streams open.
const MAX_CLOSES: u32 = 3;

/// The first and the longest pause between two attempts. Each pause is twice the one before, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The least time between two reads of a task whose stream the client could not join exactly.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The request that begins a stream: a message, or a subscription to a task.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    Message(Outgoing),
    Task(String),
}

/// The events of one task. Dropping this does not cancel the task.
#[derive(Debug)]
pub struct TaskStream {
    client: Client,
    start: Start,
    source: Source,
    ready: VecDeque<Event>,
    /// The task after all events that were returned or are ready.
    task: Option<Task>,
    /// About how many bytes of memory the task takes.
    weight: usize,
    /// The id of the last event.
    cursor: Option<String>,
    /// The number of attempts in a row that brought no event.
    failures: u32,
    is_over: bool,
}

#[derive(Debug)]
enum Source {
    Open(Box<Connection>),
    /// There is no open stream.
    Closed,
    /// The agent offers no stream for the task, so the client polls.
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
    /// Keep the future until it is ready: if it is dropped, its pauses start again.
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

    /// The task after all events that were returned or are ready.
    pub fn task(&self) -> Option<&Task> {
        self.task.as_ref()
    }

    pub fn into_task(self) -> Option<Task> {
        self.task
    }

    /// Sends another message to the task, such as the answer to an ask, and follows the task from here.
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

    /// Handles the end of a connection: retries, polls, or ends the stream.
    async fn source_ended(&mut self, ended: Ended) -> Result<()> {
        let is_joining = self.is_joining();
        self.source = Source::Closed;
        // Some agents send an empty stream for a task that has ended, so read the task.
        if ended == Ended::Closed && is_joining && self.task.is_none() {
            self.look().await?;
        }
        if ended == Ended::Silent {
            if self.task.is_none() {
                return Err(http::timed_out(self.client.settings().timeout));
            }
            // The task may be silent for long. If the agent answers this request, it is alive.
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
        // The agent closed the stream because the task waits for its user, so no more events come.
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

    /// Connects again, after a pause that grows with the number of failures.
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

    /// Opens a stream with the start request.
    async fn reopen(&mut self) -> Result<()> {
        let opened = self.client.open_stream(&self.start, None).await?;
        self.source = Source::Open(Box::new(Connection::new(opened, Begin::Message)));
        Ok(())
    }

    /// Follows an existing task: after the last event id, or else from the current state.
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

    /// Reads the task once and then polls it, because the agent refused to stream it. The task may have ended; if it does not
    /// exist, reading it returns that error.
    async fn look_instead(&mut self, id: &str) -> Result<()> {
        self.look_at(id).await?;
        self.look_from_now_on();
        Ok(())
    }

    async fn look(&mut self) -> Result<()> {
        let Some(id) = self.id() else { return Ok(()) };
        self.look_at(&id).await
    }

    /// Reads the task, and makes its changes ready to return.
    async fn look_at(&mut self, id: &str) -> Result<()> {
        let task = self.client.get(id).await?;
        self.take(Event::Task(task))
    }

    async fn take_received(&mut self, received: Received) -> Result<()> {
        let event = match received.event {
            Ok(event) => event,
            // Some agents accept the stream first, and then refuse with an error in it.
            Err(error) if self.is_joining() && is_refused_join(&error) => {
                let Some(id) = self.id() else { return Err(error) };
                return self.look_instead(&id).await;
            }
            // The agent ends the stream for now, for example because of a limit of its own. Connect again.
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
        // Reset only if there is news. An agent that only repeats old events is asked at growing intervals.
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
        // The event may be older than the known state, so read the task instead of applying the event.
        let last = matches!(&event, Event::StatusUpdate(update) if update.status.state.is_some_and(TaskState::is_settled));
        if !last {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.look().await
    }

    /// Whether the stream of an existing task was opened but no event was read yet.
    fn is_joining(&self) -> bool {
        matches!(&self.source, Source::Open(connection) if connection.is_first && connection.begin != Begin::Message)
    }

    /// Applies an event, and makes the resulting events ready to return.
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

/// Whether another attempt can succeed. A broken stream counts, because resuming it repeats no message.
fn is_passing(error: &Error) -> bool {
    error.kind() == ErrorKind::Lost || matches!(error.retry(), Retry::Later(_))
}

/// Whether the agent refused to stream the task although the task can still be read.
fn is_refused_join(error: &Error) -> bool {
    let is_final = matches!(
        error.kind(),
        ErrorKind::Unauthenticated | ErrorKind::Forbidden | ErrorKind::InvalidResponse | ErrorKind::TooLarge
    );
    !is_passing(error) && !is_final
}
