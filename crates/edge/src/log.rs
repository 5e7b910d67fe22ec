//! A task's log as the events of a stream.
//!
//! An event is encoded once and its bytes are shared by all readers that see the same of it.

use bytes::Bytes;
use longshore_engine::{Engine, Form, TaskReader};
use longshore_model::{Entry, Principal, Result};
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
    /// The 1.0 stream response, without an envelope, as readers with this view see it. JSON-RPC and REST share it.
    fn form(&self, entry: &Entry) -> Form {
        Form(encode::spelling(&entry.event, self.view))
    }

    fn encode(&self, entry: &Entry) -> Bytes {
        encode::stream_entry(self.reader.task_id(), self.reader.context_id(), entry, self.view)
    }
}

impl Source for Log {
    async fn next(&mut self) -> Result<Option<Vec<Event>>> {
        let Some(entries) = self.reader.next().await? else { return Ok(None) };
        let events = entries.iter().map(|logged| Event {
            seq: logged.entry.seq,
            json: logged.encoded(self.form(&logged.entry), |entry| self.encode(entry)),
            standing: logged.entry.event.status().map(|status| Standing::of(status.state)),
        });
        Ok(Some(events.collect()))
    }

    async fn is_at_head(&mut self) -> Result<bool> {
        let now = self.engine.get(&self.caller, self.reader.task_id()).await?;
        Ok(self.reader.cursor() >= now.seq)
    }
}
