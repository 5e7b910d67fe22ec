//! The readers of `/event`: who gets which event, and how a stream breaks off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::fault::{Cut, CutKind, Delivery, GARBAGE};
use super::garble::{Garbling, frame};
use super::ids;

/// Events that may wait for one reader. One that does not drain stops the script; the test then times out.
pub(super) const WAITING: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Streams {
    readers: Vec<Reader>,
    /// Connections on which nothing comes any more.
    stalled: Vec<Reader>,
    /// The cut of the next turn, and that of the turn that runs.
    armed: Option<Cut>,
    cut: Option<Cut>,
    /// How many events are still to be lost before a reader may come back.
    losing: usize,
    /// A cut has lost what it had to: the next event waits for a reader.
    awaits_reader: bool,
    pub(super) delivery: Delivery,
    pub(super) garbling: Garbling,
    /// How many streams were opened in all.
    pub(super) opened: usize,
}

#[derive(Debug)]
struct Reader {
    directory: String,
    /// Only sessions of this workspace; without one, only those of none.
    workspace: Option<String>,
    sender: mpsc::Sender<Chunk>,
    muted: Arc<AtomicBool>,
}

/// The other end of a stream, for the connection that sends it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) chunks: mpsc::Receiver<Chunk>,
    /// Not even heartbeats go out.
    pub(super) muted: Arc<AtomicBool>,
    /// It is one of `/global/event`.
    pub(super) is_global: bool,
}

/// What goes on a stream.
#[derive(Clone, Debug)]
pub(super) enum Chunk {
    Data(Bytes),
    /// The connection is cut here.
    Reset,
}

/// What is to be sent to whom. Sent outside the lock, because a slow reader is waited for.
pub(super) type Deliveries = Vec<(mpsc::Sender<Chunk>, Chunk)>;

impl Streams {
    /// A new stream of a directory. The reader is registered before the first event, so nothing is lost.
    pub(super) fn connect(&mut self, directory: &str, workspace: Option<&str>) -> Connection {
        let (sender, chunks) = mpsc::channel(WAITING);
        let muted = Arc::new(AtomicBool::new(false));
        self.opened += 1;
        // The channel is new and has room.
        let _ = sender.try_send(Chunk::Data(frame(&connected())));
        let (directory, workspace) = (directory.to_owned(), workspace.map(str::to_owned));
        self.readers.push(Reader { directory, workspace, sender, muted: Arc::clone(&muted) });
        self.awaits_reader = false;
        Connection { chunks, muted, is_global: false }
    }

    /// Nothing comes any more on the streams that are open now.
    pub(super) fn stall(&mut self) {
        for reader in self.readers.drain(..) {
            reader.muted.store(true, Ordering::Relaxed);
            self.stalled.push(reader);
        }
    }

    pub(super) fn arm(&mut self, cut: Cut) {
        self.armed = Some(cut);
    }

    /// A turn begins: its events are counted.
    pub(super) fn begin_turn(&mut self) {
        self.cut = self.armed.take().or(self.cut.take());
    }

    /// A reader may not come back yet.
    pub(super) fn closed_to_readers(&self) -> bool {
        self.losing > 0
    }

    pub(super) fn awaits_reader(&mut self) -> bool {
        self.readers.retain(|reader| !reader.sender.is_closed());
        self.awaits_reader && self.readers.is_empty()
    }

    /// The turn is over: whoever waits may connect.
    pub(super) fn stop_losing(&mut self) {
        self.losing = 0;
        self.awaits_reader = false;
    }

    /// Ends all streams of a directory, or of all.
    pub(super) fn end(&mut self, directory: Option<&str>) {
        let stays = |reader: &Reader| directory.is_some_and(|directory| reader.directory != directory);
        self.readers.retain(stays);
        self.stalled.retain(stays);
    }

    /// Who gets this event. Counts it for a cut, and cuts.
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
    frame(&json!({"id": ids::fresh("evt"), "type": "server.heartbeat", "properties": {}}))
}

pub(super) fn connected() -> Value {
    json!({"id": ids::fresh("evt"), "type": "server.connected", "properties": {}})
}
