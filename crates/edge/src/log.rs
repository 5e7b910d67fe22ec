//! A task's log as the events of a stream.
//!
//! An event is encoded once and its bytes are shared by all readers that see the same of it.

use bytes::Bytes;
use longshore_engine::{Engine, Form, TaskReader};
use longshore_model::{Entry, Principal, Result, TaskEvent};
use longshore_wire::v1::encode::{self, View};

use crate::sse::{Event, Source, Standing};

/// The 1.0 stream response, without an envelope. JSON-RPC and REST share it.
const V1_FORM: Form = Form(0);

/// The same without history. Only the first event of a log has one, so only that one is kept in both forms.
const V1_WITHOUT_HISTORY: Form = Form(1);

/// A log, as one caller sees it.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) engine: Engine,
    pub(crate) caller: Principal,
    pub(crate) reader: TaskReader,
    pub(crate) view: View,
}

impl Log {
    fn form(&self, event: &TaskEvent) -> Form {
        match event {
            TaskEvent::Submitted { .. } if self.view.history_length == Some(0) => V1_WITHOUT_HISTORY,
            _ => V1_FORM,
        }
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
            json: logged.encoded(self.form(&logged.entry.event), |entry| self.encode(entry)),
            standing: logged.entry.event.status().map(|status| Standing::of(status.state)),
        });
        Ok(Some(events.collect()))
    }

    async fn is_at_head(&mut self) -> Result<bool> {
        let now = self.engine.get(&self.caller, self.reader.task_id()).await?;
        Ok(self.reader.cursor() >= now.seq)
    }
}
