//! A task's log as the events of a stream, in the spelling of one line.
//!
//! An event is encoded once and its bytes are shared by all readers that see the same of it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use longshore_engine::{Engine, Form, LogEntry, Opening, TaskReader};
use longshore_model::{Principal, Result, Seq, Task};
use longshore_wire::v1::encode::{self, Gap, View};
use longshore_wire::v03::encode::{Step, Stream};

use crate::line::Line;
use crate::shape::Shape;
use crate::sse::{Event, Source, Standing};

/// A log, as one caller sees it.
#[derive(Debug)]
pub(crate) struct Log {
    engine: Engine,
    caller: Principal,
    reader: TaskReader,
    shape: Shape,
    view: View,
    /// What a reader of the 0.3 line has been told.
    told: Option<Stream>,
    /// The task as the events so far make it, from the first one on that cannot be told without. Kept, so that the log is
    /// read from its start no more than once.
    folded: Option<Task>,
    /// Events up to here are part of a snapshot that the reader got.
    known: Seq,
    /// What was read, and not yet made into events.
    waiting: VecDeque<Arc<LogEntry>>,
    /// Events that are ready, while the next one is still waited for. Kept here, so that nothing is lost with the wait.
    ready: Vec<Event>,
}

impl Log {
    /// `opening`: what the reader is told before the events of the log.
    pub(crate) fn new(
        engine: Engine,
        caller: Principal,
        reader: TaskReader,
        opening: &Opening,
        shape: Shape,
        view: View,
    ) -> Self {
        let dialect = shape.dialect;
        let told = match (shape.line, opening) {
            (Line::V1, _) => None,
            (Line::V03, Opening::Tail) if reader.cursor() == Seq::START => {
                Some(Stream::from_start(view, dialect))
            }
            (Line::V03, Opening::Tail) => Some(Stream::resumed(view, dialect)),
            (Line::V03, Opening::Snapshot(now) | Opening::Gap(now, _)) => {
                Some(Stream::from_snapshot(&now.task, view, dialect))
            }
        };
        let (folded, waiting, ready) = (None, VecDeque::new(), Vec::new());
        Self { engine, caller, reader, shape, view, told, folded, known: Seq::START, waiting, ready }
    }

    /// The 1.0 stream response, without an envelope, as readers with this view see it. JSON-RPC and REST share it. `None`:
    /// nothing of the event is for them, which is kept as no bytes at all.
    fn shown(&self, logged: &LogEntry) -> Option<Bytes> {
        let form = Form(encode::spelling(&logged.entry.event, self.view));
        let json = logged.encoded(form, |entry| {
            let (task, context) = (self.reader.task_id(), self.reader.context_id());
            encode::stream_entry(task, context, entry, self.view, self.reader.output()).unwrap_or_default()
        });
        (!json.is_empty()).then_some(json)
    }

    /// Nothing is changed before the last wait, so that a wait that is given up can be taken up again.
    async fn event(&mut self, logged: &LogEntry) -> Result<Event> {
        let entry = &logged.entry;
        let (task, context) = (self.reader.task_id(), self.reader.context_id());
        let standing = entry.event.status().map(|status| Standing::of(status.state));
        let Some(told) = &mut self.told else {
            return Ok(Event { id: entry.id(), json: self.shown(logged), standing });
        };
        if entry.seq <= self.known {
            return Ok(Event { id: entry.id(), json: None, standing: None });
        }
        let output = self.reader.output();
        let json = match told.step(&entry.event, output) {
            Step::Hidden => None,
            Step::Frame(frame) => {
                let encode = |entry: &_| frame.encode(task, context, entry, output);
                Some(logged.encoded(Form(frame.form()), encode))
            }
            Step::NeedsTask => {
                if self.folded.is_none() {
                    self.folded = self.engine.task_before(&self.caller, task, entry.seq).await?;
                }
                let Some(folded) = &mut self.folded else { return self.anew(entry.seq).await };
                return Ok(Event { id: entry.id(), json: told.recall(folded, entry), standing });
            }
        };
        if let Some(folded) = &mut self.folded {
            folded.apply(&entry.event);
        }
        Ok(Event { id: entry.id(), json, standing })
    }

    /// The task as it is now, in place of an event and those behind it that cannot be told without what was before them,
    /// which is gone. The reader is told that it has not seen them.
    async fn anew(&mut self, unseen: Seq) -> Result<Event> {
        let now = self.engine.get(&self.caller, self.reader.task_id()).await?;
        let id = now.id();
        let gap = Gap { requested: Seq(unseen.0 - 1).into(), first: unseen, head: id };
        self.told = Some(Stream::from_snapshot(&now.task, self.view, self.shape.dialect));
        self.known = now.seq;
        let json = self.shape.snapshot(&now.task, self.view, Some(gap));
        let standing = Standing::of(now.task.status.state);
        self.folded = Some(now.task);
        Ok(Event { id, json: Some(json), standing: Some(standing) })
    }
}

impl Source for Log {
    async fn next(&mut self) -> Result<Option<Vec<Event>>> {
        if self.waiting.is_empty() {
            let Some(entries) = self.reader.next().await? else { return Ok(None) };
            self.waiting.extend(entries);
        }
        while let Some(logged) = self.waiting.front().map(Arc::clone) {
            let event = self.event(&logged).await?;
            self.waiting.pop_front();
            self.ready.push(event);
        }
        Ok(Some(std::mem::take(&mut self.ready)))
    }

    async fn is_at_head(&mut self) -> Result<bool> {
        let now = self.engine.get(&self.caller, self.reader.task_id()).await?;
        Ok(self.reader.cursor() >= now.seq)
    }
}

#[cfg(test)]
mod tests {
    use longshore_wire::v03::encode::FORMS;

    use super::*;

    #[test]
    fn every_form_of_a_frame_is_kept() {
        assert_eq!(FORMS.start, encode::HIDDEN + 1, "the lines share no form");
        assert_eq!(usize::from(FORMS.end), LogEntry::KEPT_FORMS);
    }
}
