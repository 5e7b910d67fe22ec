//! A task's log as the events of a stream.
//!
//! An event is encoded once and its bytes are shared by all readers that see the same of it.

use bytes::Bytes;
use longshore_engine::{Engine, Form, LogEntry, TaskReader};
use longshore_model::{Principal, Result};
use longshore_wire::v1::encode::{self, View};

use crate::sse::{Event, Source, Standing};

/// A log, as one caller sees it.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) engine: Engine,
    pub(crate) caller: Principal,
    pub(crate) reader: TaskReader,
    pub(crate) view: View,
}

impl Log {
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
}

impl Source for Log {
    async fn next(&mut self) -> Result<Option<Vec<Event>>> {
        let Some(entries) = self.reader.next().await? else { return Ok(None) };
        let events = entries.iter().map(|logged| Event {
            seq: logged.entry.seq,
            json: self.shown(logged),
            standing: logged.entry.event.status().map(|status| Standing::of(status.state)),
        });
        Ok(Some(events.collect()))
    }

    async fn is_at_head(&mut self) -> Result<bool> {
        let now = self.engine.get(&self.caller, self.reader.task_id()).await?;
        Ok(self.reader.cursor() >= now.seq)
    }
}
