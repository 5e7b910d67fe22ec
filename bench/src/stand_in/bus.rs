//! The event streams: one per directory, and one of all directories.
//!
//! An event is written once per directory, straight into a buffer. A flush hands the same bytes to every reader.

use std::collections::HashMap;

use bytes::Bytes;
use longshore_opencode_shapes::{
    Event, GlobalEvent, Properties, SyncCopy, is_stored, to_value, write_delta_frame, write_frame,
};
use serde::Serialize;
use tokio::sync::mpsc;

use super::ids;
use super::session::Session;

/// Flushes that may wait for one reader: two minutes' worth. The real OpenCode has no bound and keeps all. A reader that is
/// further behind is disconnected, and counted.
const MAX_WAITING_FLUSHES: usize = 65_536;

/// The project that all directories belong to.
pub(super) const PROJECT: &str = "7bb4d3e19fe42a416cc148d209851cc3017bbaca";

#[derive(Debug, Default)]
pub(super) struct Bus {
    channels: HashMap<String, Channel>,
    global: Channel,
    /// Readers that were disconnected because they were too far behind.
    dropped_readers: u64,
}

#[derive(Debug, Default)]
struct Channel {
    readers: Vec<mpsc::Sender<Bytes>>,
    /// Readers that connected since the last [`Bus::forget_opened`], including those that have left.
    opened: usize,
    buffer: Vec<u8>,
}

impl Bus {
    /// Connects a reader to a directory. The reader is registered before its first event, so that it misses nothing.
    pub(super) fn connect(&mut self, directory: &str) -> mpsc::Receiver<Bytes> {
        self.flush();
        let channel = self.channels.entry(directory.to_owned()).or_default();
        channel.opened += 1;
        channel.connect(&bare("server.connected"))
    }

    /// Connects a reader to the events of all directories.
    pub(super) fn connect_global(&mut self) -> mpsc::Receiver<Bytes> {
        self.flush();
        self.global.connect(&everywhere(bare("server.connected")))
    }

    /// How many readers of a directory connected since the last [`Self::forget_opened`].
    pub(super) fn opened(&self, directory: &str) -> usize {
        self.channels.get(directory).map_or(0, |channel| channel.opened)
    }

    pub(super) fn forget_opened(&mut self) {
        self.channels.values_mut().for_each(|channel| channel.opened = 0);
    }

    pub(super) fn all_readers(&self) -> usize {
        let open = |channel: &Channel| channel.readers.iter().filter(|reader| !reader.is_closed()).count();
        self.channels.values().map(open).sum::<usize>() + open(&self.global)
    }

    pub(super) fn dropped_readers(&self) -> u64 {
        self.dropped_readers
    }

    /// Writes an event of a session for the next flush.
    pub(super) fn emit<T: Serialize>(
        &mut self,
        session: &Session,
        kind: &str,
        properties: &Properties<'_, T>,
    ) {
        let number = session.stored_events.get();
        if is_stored(kind) {
            session.stored_events.set(number + 1);
        }
        let id = self.write(&session.directory, |buffer, id| {
            // Writing to a buffer in memory cannot fail.
            let _ = write_frame(buffer, &Event { id, kind, properties });
        });
        if let Some(id) = id
            && is_stored(kind)
            && !self.global.readers.is_empty()
        {
            let payload = SyncCopy::new(Event { id: &id, kind, properties }, &session.id, number);
            let (directory, project) = (Some(session.directory.as_str()), Some(PROJECT));
            self.global.write(&GlobalEvent { directory, project, workspace: None, payload });
        }
    }

    /// Writes a delta for the next flush. Deltas are most of the events, so that they have a faster way of their own.
    pub(super) fn emit_delta(&mut self, session: &Session, message: &str, part: &str, delta: &str) {
        self.write(&session.directory, |buffer, id| {
            write_delta_frame(buffer, id, [&session.id, message, part, delta]);
        });
    }

    /// Writes an event for the readers of this directory and for the readers that follow all directories. Returns the id of
    /// the event. `None`: the event has no reader.
    fn write(&mut self, directory: &str, write: impl FnOnce(&mut Vec<u8>, &str)) -> Option<String> {
        let is_read_globally = !self.global.readers.is_empty();
        if is_read_globally && !self.channels.contains_key(directory) {
            self.channels.insert(directory.to_owned(), Channel::default());
        }
        let channel = self.channels.get_mut(directory)?;
        if channel.readers.is_empty() && !is_read_globally {
            return None;
        }
        let id = ids::fresh("evt");
        let start = channel.buffer.len();
        write(&mut channel.buffer, &id);
        if is_read_globally {
            let payload = &channel.buffer[start + "data: ".len()..channel.buffer.len() - "\n\n".len()];
            let all = &mut self.global.buffer;
            let head =
                format!("data: {{\"directory\":\"{directory}\",\"project\":\"{PROJECT}\",\"payload\":");
            all.extend_from_slice(head.as_bytes());
            all.extend_from_slice(payload);
            all.extend_from_slice(b"}\n\n");
        }
        Some(id)
    }

    /// Sends a heartbeat to every reader.
    pub(super) fn heartbeat(&mut self) {
        let beat = bare("server.heartbeat");
        for channel in self.channels.values_mut().filter(|channel| !channel.readers.is_empty()) {
            channel.write(&beat);
        }
        if !self.global.readers.is_empty() {
            self.global.write(&everywhere(beat));
        }
        self.flush();
    }

    /// Hands everything written since the last flush to the readers, as one piece.
    pub(super) fn flush(&mut self) {
        for channel in self.channels.values_mut().chain([&mut self.global]) {
            if channel.buffer.is_empty() {
                continue;
            }
            // As much again will come before the next flush.
            let room = Vec::with_capacity(channel.buffer.len());
            let piece = Bytes::from(std::mem::replace(&mut channel.buffer, room));
            let dropped = &mut self.dropped_readers;
            channel.readers.retain(|reader| match reader.try_send(piece.clone()) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    *dropped += 1;
                    false
                }
                Err(mpsc::error::TrySendError::Closed(_)) => false,
            });
        }
    }
}

impl Channel {
    fn connect(&mut self, hello: &impl Serialize) -> mpsc::Receiver<Bytes> {
        let (sender, receiver) = mpsc::channel(MAX_WAITING_FLUSHES);
        let mut frame = Vec::new();
        let _ = write_frame(&mut frame, hello);
        // The channel is new and has room.
        let _ = sender.try_send(frame.into());
        self.readers.push(sender);
        receiver
    }

    fn write(&mut self, event: &impl Serialize) {
        // Writing to a buffer in memory cannot fail.
        let _ = write_frame(&mut self.buffer, event);
    }
}

/// An event without properties.
fn bare(kind: &str) -> serde_json::Value {
    let properties: Properties<'_> = Properties::None {};
    to_value(&Event { id: &ids::fresh("evt"), kind, properties })
}

/// An event that belongs to no directory, as the stream of all directories sends it.
fn everywhere<P>(payload: P) -> GlobalEvent<'static, P> {
    GlobalEvent { directory: None, project: None, workspace: None, payload }
}
