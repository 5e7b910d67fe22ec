//! `/global/event`: the events of all directories, each with the directory in which it happened.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use longshore_opencode_shapes::{Event, GlobalEvent, SyncCopy, is_stored};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::garble::frame;
use super::streams::{Chunk, Connection, Deliveries, WAITING, bare};
use super::world::text;

/// Where an event happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location<'a> {
    /// `global` for events of the project itself.
    pub(super) directory: &'a str,
    pub(super) project: Option<&'a str>,
    pub(super) workspace: Option<&'a str>,
}

#[derive(Debug, Default)]
pub(super) struct Globals {
    listeners: Vec<Listener>,
    /// How long a new listener misses all events. The real OpenCode loses the events of the first moments.
    pub(super) deaf: Duration,
    /// How many streams were opened in total.
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
        let _ = sender.try_send(Chunk::Data(frame(&everywhere(bare("server.connected")))));
        self.listeners.push(Listener { sender, hears_from: Instant::now() + self.deaf });
        Connection { chunks, muted: Arc::new(AtomicBool::new(false)), is_global: true }
    }

    /// Ends the open streams. New streams work.
    pub(super) fn end(&mut self) {
        self.listeners.clear();
    }

    /// The frames of this event for every listener that hears it.
    pub(super) fn route(&mut self, location: Location<'_>, event: &Value) -> Deliveries {
        self.listeners.retain(|listener| !listener.sender.is_closed());
        if self.listeners.is_empty() {
            return Deliveries::new();
        }
        let mut frames = vec![located(location, event)];
        let (id, kind, properties) = (text(event, "id"), text(event, "type"), &event["properties"]);
        if is_stored(kind) {
            let copy = SyncCopy::new(Event { id, kind, properties }, text(properties, "sessionID"), 0);
            frames.push(located(location, copy));
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
    frame(&everywhere(bare("server.heartbeat")))
}

fn located(location: Location<'_>, payload: impl Serialize) -> Bytes {
    let Location { directory, project, workspace } = location;
    frame(&GlobalEvent { directory: Some(directory), project, workspace, payload })
}

/// An event that belongs to no directory.
fn everywhere(payload: Value) -> GlobalEvent<'static, Value> {
    GlobalEvent { directory: None, project: None, workspace: None, payload }
}
