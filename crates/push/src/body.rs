//! Writes the body of a notification in the version of its configuration: the event in 1.0, the task as of the event in 0.3.
//!
//! If a body would be too large, it contains only the task's id and a note that the rest can be read from the task.

use bytes::Bytes;
use longshore_engine::port::{Head, Store};
use longshore_model::{
    Entry, Json, Metadata, Part, Principal, PushConfig, PushFormat, Result, Seq, TaskEvent, TaskId,
};
use longshore_wire::extension::{Activated, Exposure};
use longshore_wire::v1::encode::View;
use longshore_wire::v03::Dialect;
use longshore_wire::{v1, v03};

use crate::folded::Folded;

/// The most events that are read at a time.
const READ: usize = 256;

/// The metadata that marks a shortened body.
const CUT: &str = r#"{"longshore":{"truncated":true}}"#;

/// Writes the bodies of one configuration, in the order of its log.
#[derive(Debug)]
pub(crate) struct Bodies<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) owner: &'a Principal,
    pub(crate) config: &'a PushConfig,
    pub(crate) head: &'a Head,
    pub(crate) max_bytes: usize,
    /// The task as of the last event that was followed or written. Used only for version 0.3.
    pub(crate) folded: Option<Folded>,
}

impl<'a> Bodies<'a> {
    pub(crate) fn new(
        store: &'a dyn Store,
        owner: &'a Principal,
        config: &'a PushConfig,
        head: &'a Head,
        max_bytes: usize,
    ) -> Self {
        Self { store, owner, config, head, max_bytes, folded: None }
    }

    /// Applies an event to the folded task, whether or not the caller wants the event, so that later bodies need not read it again.
    pub(crate) fn follow(&mut self, entry: &Entry) {
        if self.config.format == PushFormat::V1 {
            return;
        }
        match &mut self.folded {
            Some(folded) => folded.add(entry, self.max_bytes),
            none => *none = Folded::begin(&self.config.task, entry, self.max_bytes),
        }
    }

    /// Whether the configuration includes the event, and the caller may see the event.
    pub(crate) fn wants(&self, event: &TaskEvent) -> bool {
        self.config.events.covers(event) && v1::encode::is_shown(event, self.view(), &self.head.output)
    }

    /// The body for an event that [`Self::wants`] accepts.
    pub(crate) async fn write(&mut self, entry: &Entry) -> Result<Bytes> {
        match self.config.format {
            PushFormat::V1 => Ok(self.event(entry)),
            PushFormat::V03 => self.task(entry.seq).await,
        }
    }

    fn view(&self) -> View {
        let view = &self.config.view;
        let exposure = Exposure { raw_thinking: view.raw_thinking, tool_trace: view.tool_trace };
        let activated = match self.config.format {
            PushFormat::V1 => Activated::from_header(view.extensions.iter().map(String::as_str)),
            PushFormat::V03 => Activated::NONE,
        };
        View { activated, exposure, ..View::default() }
    }

    fn event(&self, entry: &Entry) -> Bytes {
        let encode = |entry: &Entry| {
            let (task, context) = (&self.config.task, &self.head.context);
            v1::encode::stream_entry(task, context, entry, self.view(), &self.head.output).unwrap_or_default()
        };
        let body = encode(entry);
        if body.len() <= self.max_bytes {
            return body;
        }
        let mut cut = entry.clone();
        cut_event(&mut cut.event, &self.config.task);
        encode(&cut)
    }

    async fn task(&mut self, seq: Seq) -> Result<Bytes> {
        self.fold_to(seq).await?;
        let Some(Folded { task, is_cut, .. }) = &self.folded else { return Ok(Bytes::new()) };
        let view = self.view();
        if !is_cut {
            let body = v03::encode::task(task, view, Dialect::Rpc);
            if body.len() <= self.max_bytes {
                return Ok(body);
            }
        }
        let mut cut = task.clone();
        (cut.history, cut.artifacts, cut.metadata) = (Vec::new(), Vec::new(), cut_mark());
        if let Some(message) = &mut cut.status.message {
            message.parts = vec![rest(&self.config.task)];
        }
        Ok(v03::encode::task(&cut, view, Dialect::Rpc))
    }

    /// Folds the log up to an event. If retention has folded the log, only its last event is left; then the task is that of the
    /// end.
    async fn fold_to(&mut self, seq: Seq) -> Result<()> {
        let mut folded = self.folded.take().filter(|folded| folded.at <= seq);
        loop {
            let after = folded.as_ref().map_or(Seq::START, |folded| folded.at);
            let missing = usize::try_from(seq.0.saturating_sub(after.0)).unwrap_or(READ);
            if missing == 0 {
                break;
            }
            let entries = self.store.read(self.owner, &self.config.task, after, missing.min(READ)).await?;
            let is_whole = entries.first().is_some_and(|entry| entry.seq == after.next());
            for entry in entries.iter().filter(|_| is_whole) {
                match &mut folded {
                    Some(folded) => folded.add(entry, self.max_bytes),
                    none => *none = Folded::begin(&self.config.task, entry, self.max_bytes),
                }
            }
            if !is_whole || folded.is_none() {
                let stored = self.store.get(self.owner, &self.config.task).await?;
                self.folded =
                    stored.map(|stored| Folded { at: stored.seq, task: stored.task, is_cut: false });
                return Ok(());
            }
        }
        self.folded = folded;
        Ok(())
    }
}

/// Replaces the content of an event by a note that the content was left out.
fn cut_event(event: &mut TaskEvent, task: &TaskId) {
    match event {
        TaskEvent::Submitted { message, .. } => {
            (message.parts, message.metadata) = (vec![rest(task)], cut_mark());
        }
        TaskEvent::Status(update) => {
            if let Some(message) = &mut update.status.message {
                message.parts = vec![rest(task)];
            }
            (update.metadata, update.joined) = (cut_mark(), None);
        }
        TaskEvent::Artifact(update) => {
            update.artifact.parts = vec![rest(task)];
            (update.artifact.metadata, update.metadata) = (None, cut_mark());
        }
    }
}

fn rest(task: &TaskId) -> Part {
    Part::text(format!("This notification was too long. Get the task {task} for the rest."))
}

fn cut_mark() -> Option<Metadata> {
    Json::parse(CUT).and_then(|json| Metadata::try_from(json).ok())
}
