//! A reader of one task's log: a cursor, and a way to wait for what comes after it.

use std::sync::Arc;

use longshore_model::{ContextId, Error, ErrorKind, OutputModes, Result, Seq, TaskId};
use tokio::sync::watch;

use crate::live::{Found, LiveLog, Progress};
use crate::log_entry::LogEntry;
use crate::port::Store;
use crate::registry::Registry;

/// How many events one call of [`TaskReader::next`] gives at most. A reader with a full socket asks for no more,
/// so this bounds what it costs.
const BATCH: usize = 128;

/// Reads a task's log from a cursor to its end. Dropping it changes nothing for the task.
#[derive(Debug)]
pub struct TaskReader {
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    task: TaskId,
    context: ContextId,
    output: OutputModes,
    cursor: Seq,
    live: Option<(Arc<LiveLog>, watch::Receiver<Progress>)>,
    finished: bool,
}

impl TaskReader {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        registry: Arc<Registry>,
        task: TaskId,
        context: ContextId,
        output: OutputModes,
        cursor: Seq,
    ) -> Self {
        let live = live_log(&registry, &task);
        Self { store, registry, task, context, output, cursor, live, finished: false }
    }

    pub fn task_id(&self) -> &TaskId {
        &self.task
    }

    pub fn context_id(&self) -> &ContextId {
        &self.context
    }

    /// What the caller who made the task accepts. The same for every reader.
    pub fn output(&self) -> &OutputModes {
        &self.output
    }

    /// The last event that was given.
    pub fn cursor(&self) -> Seq {
        self.cursor
    }

    /// The events after the cursor, as many as are there; waits when there are none. `None` once the event that
    /// ended the task has been given. Cancel safe: an event counts as given only when this returns.
    pub async fn next(&mut self) -> Result<Option<Vec<Arc<LogEntry>>>> {
        loop {
            if self.finished {
                return Ok(None);
            }
            let found = match &self.live {
                Some((live, _)) => live.after(self.cursor, BATCH),
                None => Found::InStore,
            };
            match found {
                Found::Entries(entries) => return Ok(Some(self.give(entries))),
                Found::InStore => {
                    let stored = self.store.read(&self.task, self.cursor, BATCH).await?;
                    if stored.is_empty() {
                        self.reattach().await?;
                        continue;
                    }
                    self.check_hole(stored[0].seq)?;
                    let entries = stored.into_iter().map(|entry| Arc::new(LogEntry::new(entry))).collect();
                    return Ok(Some(self.give(entries)));
                }
                Found::Nothing => self.wait().await,
            }
        }
    }

    fn give(&mut self, entries: Vec<Arc<LogEntry>>) -> Vec<Arc<LogEntry>> {
        if let Some(last) = entries.last() {
            self.cursor = last.entry.seq;
            self.finished = last.entry.event.is_terminal();
        }
        entries
    }

    /// Waits until the log grows or is closed.
    async fn wait(&mut self) {
        let Some((_, progress)) = &mut self.live else { return };
        let cursor = self.cursor;
        let reached = progress.wait_for(|now| now.head > cursor || now.closed).await.map(|now| *now);
        match reached {
            Ok(now) if now.head > cursor => {}
            // Closed at the cursor: either the task is over and its end was given, or its owner went away.
            // The store knows which.
            Ok(_) | Err(_) => self.live = None,
        }
    }

    /// The store has nothing after the cursor and no live log was known: look again before giving up.
    async fn reattach(&mut self) -> Result<()> {
        self.live = live_log(&self.registry, &self.task);
        if self.live.is_some() {
            return Ok(());
        }
        let before = Seq(self.cursor.0.saturating_sub(1));
        let last = self.store.read(&self.task, before, 1).await?;
        if last.last().is_some_and(|entry| entry.event.is_terminal()) {
            self.finished = true;
            return Ok(());
        }
        Err(self.registry.no_owner())
    }

    /// Events that retention folded away under the cursor are told, never passed over.
    fn check_hole(&self, next: Seq) -> Result<()> {
        if next == self.cursor.next() {
            return Ok(());
        }
        let text = "Events after this cursor are no longer kept; get the task, or subscribe anew.";
        Err(Error::new(ErrorKind::Unavailable, text).detail("first", next.to_string()))
    }
}

fn live_log(registry: &Registry, task: &TaskId) -> Option<(Arc<LiveLog>, watch::Receiver<Progress>)> {
    let live = registry.log(task)?;
    let progress = live.progress();
    Some((live, progress))
}
