//! A reader of one task's log: it has a cursor, and can wait for the events after the cursor.

use std::sync::Arc;

use longshore_model::{ContextId, Error, ErrorKind, OutputModes, Principal, Result, Seq, TaskId};

use crate::engine_context::EngineContext;
use crate::live::{Follower, Found};
use crate::log_entry::{Entries, Events};
use crate::port::Store;
use crate::registry::Registry;
use crate::snapshot::Snapshot;

/// How many events one call of [`TaskReader::next`] reads from the store at most. This bounds the memory of a reader whose
/// client is slow, because such a reader does not ask for more.
const BATCH: usize = 128;

/// Reads a task's log from a cursor to its end. Dropping the reader does not affect the task.
#[derive(Debug)]
pub struct TaskReader {
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    /// The principal for whom the reader reads.
    caller: Principal,
    task: TaskId,
    context: ContextId,
    output: OutputModes,
    cursor: Seq,
    live: Option<Follower>,
    finished: bool,
}

impl TaskReader {
    pub(crate) fn new(
        ctx: &EngineContext,
        caller: Principal,
        task: TaskId,
        context: ContextId,
        output: OutputModes,
        cursor: Seq,
    ) -> Self {
        let (store, registry) = (Arc::clone(&ctx.ports.store), Arc::clone(&ctx.live.registry));
        let live = registry.log(&task).map(|live| live.follow(cursor));
        Self { store, registry, caller, task, context, output, cursor, live, finished: false }
    }

    pub fn task_id(&self) -> &TaskId {
        &self.task
    }

    pub fn context_id(&self) -> &ContextId {
        &self.context
    }

    /// The media types that the caller who created the task accepts. All readers of a task return the same.
    pub fn output(&self) -> &OutputModes {
        &self.output
    }

    /// The number of the last event that was returned.
    pub fn cursor(&self) -> Seq {
        self.cursor
    }

    /// The current task, if the live log has a copy. Works even if the task's actor has just ended.
    pub(crate) fn snapshot(&self, caller: &Principal) -> Option<Snapshot> {
        self.live.as_ref()?.snapshot(caller)
    }

    /// Whether a long time without events is normal, because the task waits for its user or a tool, or does not run.
    pub fn is_silence_expected(&self) -> bool {
        // Without a live log the reader never waits: the store returns the rest of the log at once, or an error.
        self.live.as_ref().is_none_or(|live| live.progress().is_silence_expected)
    }

    /// The next available events after the cursor. Waits if there are none. `None`: the event that ended the task was already
    /// returned. Cancel safe: an event counts as returned only when this function returns.
    pub async fn next(&mut self) -> Result<Option<Entries>> {
        let mut has_waited = false;
        loop {
            if self.finished {
                return Ok(None);
            }
            let Some(live) = &self.live else {
                match self.read().await? {
                    Some(entries) => return Ok(Some(self.give(entries))),
                    None => continue,
                }
            };
            match live.after(self.cursor) {
                Found::Entries(entries) => {
                    let entries = if has_waited { entries } else { entries.found_late() };
                    return Ok(Some(self.give(entries)));
                }
                Found::Nothing => {
                    live.grows_beyond(self.cursor).await;
                    has_waited = true;
                }
                // Either the task's end was already returned, or the actor ended without ending the task. The store knows which.
                Found::Closed => self.live = None,
                Found::InStore => {
                    if let Some(entries) = self.read().await? {
                        return Ok(Some(self.give(entries)));
                    }
                }
            }
        }
    }

    /// Reads the next events from the store. `None`: the store has none. Then either the task is over, or `self.live` is set, and
    /// the reader continues with the live log.
    async fn read(&mut self) -> Result<Option<Entries>> {
        let stored = self.store.read(&self.caller, &self.task, self.cursor, BATCH).await?;
        let Some(first) = stored.first() else {
            self.reattach().await?;
            return Ok(None);
        };
        self.check_gap(first.seq)?;
        Ok(Some(Entries::new(Events::read(stored), 0, Vec::new())))
    }

    fn give(&mut self, entries: Entries) -> Entries {
        if let Some(last) = entries.iter().next_back() {
            self.cursor = last.entry.seq;
            self.finished = last.entry.event.is_terminal();
        }
        entries
    }

    /// Looks for a live log again before the reader ends. Called when the store has no event after the cursor.
    async fn reattach(&mut self) -> Result<()> {
        self.live = self.registry.log(&self.task).map(|live| live.follow(self.cursor));
        if self.live.is_some() {
            return Ok(());
        }
        let before = Seq(self.cursor.0.saturating_sub(1));
        let last = self.store.read(&self.caller, &self.task, before, 1).await?;
        if last.last().is_some_and(|entry| entry.event.is_terminal()) {
            self.finished = true;
            return Ok(());
        }
        Err(self.registry.no_actor())
    }

    /// Fails if retention has removed events after the cursor. The reader never skips events without an error.
    fn check_gap(&self, next: Seq) -> Result<()> {
        if next == self.cursor.next() {
            return Ok(());
        }
        let text = "Events after this cursor are no longer kept; get the task, or subscribe again.";
        Err(Error::new(ErrorKind::Unavailable, text).detail("first", next.to_string()))
    }
}
