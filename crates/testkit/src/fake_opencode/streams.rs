//! The readers of `/event`: which reader receives which event, and how a stream breaks off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use longshore_opencode_shapes::Properties;
use serde_json::Value;
use tokio::sync::mpsc;

use super::fault::{Cut, CutKind, Delivery, GARBAGE};
use super::garble::{Garbling, frame};
use super::world::event;

/// Events that may wait for one reader. A reader that does not drain them stops the script, and the test times out.
pub(super) const WAITING: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Streams {
    readers: Vec<Reader>,
    /// Open connections that receive nothing more.
    stalled: Vec<Reader>,
    /// The cut of the next turn, and that of the turn that runs.
    armed: Option<Cut>,
    cut: Option<Cut>,
    /// How many events are still to be lost before a reader may connect.
    losing: usize,
    /// A cut has lost its events: the next event waits for a reader.
    awaits_reader: bool,
    pub(super) delivery: Delivery,
    pub(super) garbling: Garbling,
    /// How many streams were opened in total.
    pub(super) opened: usize,
}

#[derive(Debug)]
struct Reader {
    directory: String,
    /// The reader receives only sessions of this workspace; without one, only sessions without a workspace.
    workspace: Option<String>,
    sender: mpsc::Sender<Chunk>,
    muted: Arc<AtomicBool>,
}

/// The receiving end of a stream, for the connection that sends it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) chunks: mpsc::Receiver<Chunk>,
    /// Not even heartbeats are sent.
    pub(super) muted: Arc<AtomicBool>,
    /// The stream is one of `/global/event`.
    pub(super) is_global: bool,
}

/// A piece of a stream.
#[derive(Clone, Debug)]
pub(super) enum Chunk {
    Data(Bytes),
    /// The connection is reset here.
    Reset,
}

/// Chunks and their readers. They are sent outside of the lock, because sending waits for slow readers.
pub(super) type Deliveries = Vec<(mpsc::Sender<Chunk>, Chunk)>;

impl Streams {
    /// Connects a reader to a directory. The reader is registered before the first event, so that it misses nothing.
    pub(super) fn connect(&mut self, directory: &str, workspace: Option<&str>) -> Connection {
        let (sender, chunks) = mpsc::channel(WAITING);
        let muted = Arc::new(AtomicBool::new(false));
        self.opened += 1;
        // The channel is new and has room.
        let _ = sender.try_send(Chunk::Data(frame(&bare("server.connected"))));
        let (directory, workspace) = (directory.to_owned(), workspace.map(str::to_owned));
        self.readers.push(Reader { directory, workspace, sender, muted: Arc::clone(&muted) });
        self.awaits_reader = false;
        Connection { chunks, muted, is_global: false }
    }

    /// The open streams receive nothing more.
    pub(super) fn stall(&mut self) {
        for reader in self.readers.drain(..) {
            reader.muted.store(true, Ordering::Relaxed);
            self.stalled.push(reader);
        }
    }

    pub(super) fn arm(&mut self, cut: Cut) {
        self.armed = Some(cut);
    }

    /// Starts to count the events of a turn for the armed cut.
    pub(super) fn begin_turn(&mut self) {
        self.cut = self.armed.take().or(self.cut.take());
    }

    /// Whether a reader must wait before it connects.
    pub(super) fn closed_to_readers(&self) -> bool {
        self.losing > 0
    }

    pub(super) fn awaits_reader(&mut self) -> bool {
        self.readers.retain(|reader| !reader.sender.is_closed());
        self.awaits_reader && self.readers.is_empty()
    }

    /// The turn is over: waiting readers may connect.
    pub(super) fn stop_losing(&mut self) {
        self.losing = 0;
        self.awaits_reader = false;
    }

    /// Ends all streams of a directory, or all streams.
    pub(super) fn end(&mut self, directory: Option<&str>) {
        let stays = |reader: &Reader| directory.is_some_and(|directory| reader.directory != directory);
        self.readers.retain(stays);
        self.stalled.retain(stays);
    }

    /// The readers of this event. Counts the event for a cut, and cuts.
    pub(super) fn route(&mut self, event: &Value, directory: &str, workspace: Option<&str>) -> Deliveries {
        if self.losing > 0 {
            self.losing = if self.losing == usize::MAX { usize::MAX } else { self.losing - 1 };
            self.awaits_reader = self.losing == 0;
            return Vec::new();
        }
        let mut deliveries = Deliveries::new();
        if matches!(self.delivery, Delivery::Live | Delivery::WithGarbage) {
            let bytes = self.garbling.frame(event);
            let hears =
                |reader: &&Reader| reader.directory == directory && reader.workspace.as_deref() == workspace;
            for reader in self.readers.iter().filter(hears) {
                if self.delivery == Delivery::WithGarbage {
                    deliveries
                        .push((reader.sender.clone(), Chunk::Data(Bytes::from_static(GARBAGE.as_bytes()))));
                }
                deliveries.push((reader.sender.clone(), Chunk::Data(bytes.clone())));
            }
        }
        if let Some(cut) = &mut self.cut {
            cut.after = cut.after.saturating_sub(1);
            if cut.after == 0 {
                let cut = *cut;
                self.perform(cut, &mut deliveries);
            }
        }
        if event["type"] == "server.instance.disposed" {
            self.end(Some(directory));
        }
        deliveries
    }

    fn perform(&mut self, cut: Cut, deliveries: &mut Deliveries) {
        self.cut = None;
        self.losing = cut.lose;
        self.awaits_reader = cut.lose == 0;
        for reader in self.readers.drain(..) {
            match cut.how {
                CutKind::CleanEnd => {}
                CutKind::MidLine => {
                    let half = Bytes::from_static(b"data: {\"id\":\"evt_half\",\"type\":\"message.part.del");
                    deliveries.push((reader.sender, Chunk::Data(half)));
                }
                CutKind::Reset => deliveries.push((reader.sender, Chunk::Reset)),
            }
        }
    }
}

pub(super) fn heartbeat() -> Bytes {
    frame(&bare("server.heartbeat"))
}

/// An event without properties.
pub(super) fn bare(kind: &str) -> Value {
    let none: Properties<'_> = Properties::None {};
    event(kind, none)
}
