//! `/global/event`: what happens anywhere, each event with the place where it does.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::garble::frame;
use super::ids;
use super::streams::{Chunk, Connection, Deliveries, WAITING, connected};

/// Where an event happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// `global` for what is the project's own.
    pub(super) directory: &'a str,
    pub(super) project: Option<&'a str>,
    pub(super) workspace: Option<&'a str>,
}

#[derive(Debug, Default)]
pub(super) struct Globals {
    listeners: Vec<Listener>,
    /// How long a new listener hears nothing. The real one loses what comes in the first moments.
    pub(super) deaf: Duration,
    /// How many streams were opened in all.
    pub(super) opened: usize,
}

#[derive(Debug)]
struct Listener {
    sender: mpsc::Sender<Chunk>,
    hears_from: Instant,
}

impl Globals {
    pub(super) fn connect(&mut self) -> Connection {
        let (sender, chunks) = mpsc::channel(WAITING);
        self.opened += 1;
        // The channel is new and has room.
        let _ = sender.try_send(Chunk::Data(frame(&json!({"payload": connected()}))));
        self.listeners.push(Listener { sender, hears_from: Instant::now() + self.deaf });
        Connection { chunks, muted: Arc::new(AtomicBool::new(false)), is_global: true }
    }

    /// The streams that are open now end; new ones work.
    pub(super) fn end(&mut self) {
        self.listeners.clear();
    }

    /// Who hears of this event, and how.
    pub(super) fn tell(&mut self, place: Place<'_>, event: &Value) -> Deliveries {
        self.listeners.retain(|listener| !listener.sender.is_closed());
        if self.listeners.is_empty() {
            return Deliveries::new();
        }
        let mut told = json!({"directory": place.directory});
        if let Some(project) = place.project {
            told["project"] = project.into();
        }
        if let Some(workspace) = place.workspace {
            told["workspace"] = workspace.into();
        }
        let mut frames = Vec::new();
        for payload in std::iter::once(event.clone()).chain(again(event)) {
            told["payload"] = payload;
            frames.push(frame(&told));
        }
        let now = Instant::now();
        let hearing = self.listeners.iter().filter(|listener| listener.hears_from <= now);
        let deliveries = hearing.flat_map(|listener| {
            frames.iter().map(|frame| (listener.sender.clone(), Chunk::Data(frame.clone())))
        });
        deliveries.collect()
    }
}

pub(super) fn heartbeat() -> Bytes {
    let payload = json!({"id": ids::fresh("evt"), "type": "server.heartbeat", "properties": {}});
    frame(&json!({"payload": payload}))
}

/// What is stored is told twice, the second time for whoever keeps a copy of it.
fn again(event: &Value) -> Option<Value> {
    let kind = event["type"].as_str()?;
    let is_stored = matches!(
        kind,
        "session.created"
            | "session.updated"
            | "session.deleted"
            | "message.updated"
            | "message.removed"
            | "message.part.updated"
            | "message.part.removed"
    );
    let sync = json!({
        "id": event["id"], "type": format!("{kind}.1"), "seq": 0, "aggregateID": event["properties"]["sessionID"],
        "data": event["properties"],
    });
    is_stored.then(|| json!({"type": "sync", "syncEvent": sync, "id": event["id"]}))
}
