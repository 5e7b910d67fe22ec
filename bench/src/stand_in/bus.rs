//! The event streams: each directory has its readers, and there is one stream of all directories.
//!
//! Events are written once per directory, straight into a buffer, and each reader gets the same bytes with each flush.

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use super::ids;

/// Flushes that may wait for one reader. The real OpenCode has no bound and keeps all; two minutes' worth is as good. A
/// reader that is further behind is cut off, and counted.
const WAITING: usize = 65_536;

/// The project that all directories belong to.
pub(super) const PROJECT: &str = "7bb4d3e19fe42a416cc148d209851cc3017bbaca";

#[derive(Debug, Default)]
pub(super) struct Bus {
    channels: HashMap<String, Channel>,
    global: Channel,
    /// Readers that were too far behind.
    cut: u64,
}

#[derive(Debug, Default)]
struct Channel {
    readers: Vec<mpsc::Sender<Bytes>>,
    /// Readers that came since this was last forgotten, whether or not they are still there.
    opened: usize,
    buffer: BytesMut,
}

/// An event to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'a> {
    pub(super) kind: &'a str,
    /// Set for those that OpenCode stores: the session, and the event's number there.
    pub(super) durable: Option<(&'a str, u64)>,
    pub(super) properties: fmt::Arguments<'a>,
}

impl Bus {
    /// A new reader of a directory. It is registered before its first event, so that nothing is lost.
    pub(super) fn connect(&mut self, directory: &str) -> mpsc::Receiver<Bytes> {
        self.flush();
        let (sender, receiver) = mpsc::channel(WAITING);
        let hello = format!("data: {}\n\n", bare("server.connected"));
        // The channel is new and has room.
        let _ = sender.try_send(hello.into());
        let channel = self.channels.entry(directory.to_owned()).or_default();
        channel.readers.push(sender);
        channel.opened += 1;
        receiver
    }

    /// A new reader of all directories.
    pub(super) fn connect_global(&mut self) -> mpsc::Receiver<Bytes> {
        self.flush();
        let (sender, receiver) = mpsc::channel(WAITING);
        let hello = format!("data: {{\"payload\":{}}}\n\n", bare("server.connected"));
        let _ = sender.try_send(hello.into());
        self.global.readers.push(sender);
        receiver
    }

    /// How many readers of a directory came since the last [`Self::forget_opened`].
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

    /// How many readers were cut off.
    pub(super) fn cut(&self) -> u64 {
        self.cut
    }

    /// Writes an event for the next flush.
    pub(super) fn emit(&mut self, directory: &str, event: Event<'_>) {
        let Event { kind, durable, properties } = event;
        let global = !self.global.readers.is_empty();
        if global && !self.channels.contains_key(directory) {
            self.channels.insert(directory.to_owned(), Channel::default());
        }
        let Some(channel) = self.channels.get_mut(directory) else { return };
        if channel.readers.is_empty() && !global {
            return;
        }
        let id = ids::fresh("evt");
        let buffer = &mut channel.buffer;
        let start = buffer.len();
        // Writing to a buffer in memory cannot fail.
        let _ = write!(buffer, "data: {{\"id\":\"{id}\",\"type\":\"{kind}\",\"properties\":");
        let at = buffer.len();
        let _ = buffer.write_fmt(properties);
        let end = buffer.len();
        let _ = buffer.write_str("}\n\n");
        if !global {
            return;
        }
        let text =
            |from: usize, to: usize| std::str::from_utf8(&channel.buffer[from..to]).unwrap_or_default();
        let (payload, told) = (text(start + "data: ".len(), end + 1), text(at, end));
        let envelope =
            format!("data: {{\"directory\":\"{directory}\",\"project\":\"{PROJECT}\",\"payload\":");
        let all = &mut self.global.buffer;
        let _ = write!(all, "{envelope}{payload}}}\n\n");
        if let Some((session, number)) = durable {
            let _ = write!(
                all,
                "{envelope}{{\"type\":\"sync\",\"syncEvent\":{{\"id\":\"{id}\",\"type\":\"{kind}.1\",\"seq\":{number},\
                 \"aggregateID\":\"{session}\",\"data\":{told}}},\"id\":\"{id}\"}}}}\n\n"
            );
        }
    }

    /// Every reader is told that the server lives.
    pub(super) fn heartbeat(&mut self) {
        for channel in self.channels.values_mut().filter(|channel| !channel.readers.is_empty()) {
            let _ = write!(channel.buffer, "data: {}\n\n", bare("server.heartbeat"));
        }
        if !self.global.readers.is_empty() {
            let _ = write!(self.global.buffer, "data: {{\"payload\":{}}}\n\n", bare("server.heartbeat"));
        }
        self.flush();
    }

    /// Hands what was written to the readers: one piece each.
    pub(super) fn flush(&mut self) {
        for channel in self.channels.values_mut().chain([&mut self.global]) {
            if channel.buffer.is_empty() {
                continue;
            }
            let piece = channel.buffer.split().freeze();
            let cut = &mut self.cut;
            channel.readers.retain(|reader| match reader.try_send(piece.clone()) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    *cut += 1;
                    false
                }
                Err(mpsc::error::TrySendError::Closed(_)) => false,
            });
        }
    }
}

/// An event that says nothing but its kind.
fn bare(kind: &str) -> String {
    format!("{{\"id\":\"{}\",\"type\":\"{kind}\",\"properties\":{{}}}}", ids::fresh("evt"))
}
