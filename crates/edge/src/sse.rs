//! A task's log as server-sent events.
//!
//! The body is pulled: while the socket is full nothing is read from the log, so a stalled reader costs one batch
//! and hyper's own buffer. An event is encoded once and its bytes are shared by all readers; only the JSON-RPC
//! envelope, which holds the caller's id, is written for each.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, StreamExt};
use longshore_engine::{Form, TaskReader};
use longshore_model::{Error, Result, Seq};
use longshore_wire::jsonrpc::{self, Id};
use longshore_wire::v1;
use tokio_util::sync::CancellationToken;

use crate::reply;

/// The 1.0 stream response, without an envelope. JSON-RPC and REST share it.
const V1_FORM: Form = Form(0);

/// A batch is closed when it has grown to this; one event may be larger. More waits for the next pull.
const BATCH_BYTES: usize = 16 * 1024;

/// What a stream that ends because the gateway stops tells the client: come back after this long.
const COME_BACK: &[u8] = b"retry: 1000\n\n";

const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// One event, ready to be framed.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) seq: Seq,
    /// One line.
    pub(crate) json: Bytes,
    pub(crate) terminal: bool,
    pub(crate) settled: bool,
}

impl Event {
    /// A whole task, as of `seq`.
    pub(crate) fn task(seq: Seq, json: Bytes) -> Self {
        Self { seq, json: one_line(json), terminal: false, settled: false }
    }
}

/// Where events come from. Cancel safe: an event counts as given only when the future returns.
pub(crate) trait Source: Send + 'static {
    /// At least one event; `None` when there will be no more.
    fn next(&mut self) -> impl Future<Output = Result<Option<Vec<Event>>>> + Send;
}

impl Source for TaskReader {
    async fn next(&mut self) -> Result<Option<Vec<Event>>> {
        let Some(entries) = Self::next(self).await? else { return Ok(None) };
        let (task, context) = (self.task_id(), self.context_id());
        let events = entries.iter().map(|logged| Event {
            seq: logged.entry.seq,
            json: logged.encoded(V1_FORM, |entry| one_line(v1::encode::stream_entry(task, context, entry))),
            terminal: logged.entry.event.is_terminal(),
            settled: logged.entry.event.is_settling(),
        });
        Ok(Some(events.collect()))
    }
}

/// When a stream closes by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// At the end of the task.
    Terminal,
    /// Also when the task asks something: whoever sent the message has to answer now.
    Settled,
}

/// Events that have been opened: the first ones are there, so nothing can fail before them.
#[derive(Debug)]
pub(crate) struct Opened<S> {
    pub(crate) first: Vec<Event>,
    pub(crate) source: S,
    pub(crate) until: Until,
}

/// What stands around an event.
#[derive(Clone, Debug)]
pub(crate) enum Envelope {
    Bare,
    Rpc { id: Id, before: Bytes, after: Bytes },
}

impl Envelope {
    pub(crate) fn rpc(id: Id) -> Self {
        // The envelope of nothing, cut where the result goes: `result` is its last member.
        let mut before = jsonrpc::result(&id, b"");
        let after = before.split_off(before.len() - 1);
        Self::Rpc { id, before, after }
    }
}

/// What all streams of a gateway have in common.
#[derive(Clone, Debug)]
pub(crate) struct StreamSettings {
    /// A comment is sent after this long without an event.
    pub(crate) keep_alive: Duration,
    /// The gateway stops: streams end, and their clients come back to its successor.
    pub(crate) closing: CancellationToken,
}

pub(crate) fn frames<S: Source>(
    opened: Opened<S>,
    envelope: Envelope,
    settings: StreamSettings,
) -> BoxStream<'static, Bytes> {
    let mut streaming = Streaming {
        source: opened.source,
        until: opened.until,
        pending: VecDeque::new(),
        last: false,
        envelope,
        settings,
    };
    streaming.take(opened.first);
    stream::unfold(Some(streaming), |state| async {
        let mut streaming = state?;
        let (bytes, more) = streaming.next().await?;
        Some((bytes, more.then_some(streaming)))
    })
    .boxed()
}

struct Streaming<S> {
    source: S,
    until: Until,
    pending: VecDeque<Event>,
    /// Nothing comes after what is pending.
    last: bool,
    envelope: Envelope,
    settings: StreamSettings,
}

impl<S: Source> Streaming<S> {
    /// The next bytes, and whether there may be more. `None` at the end.
    async fn next(&mut self) -> Option<(Bytes, bool)> {
        loop {
            if self.settings.closing.is_cancelled() {
                return Some((Bytes::from_static(COME_BACK), false));
            }
            if !self.pending.is_empty() {
                let batch = self.batch();
                return Some((batch, !(self.last && self.pending.is_empty())));
            }
            if self.last {
                return None;
            }
            tokio::select! {
                biased;
                pulled = self.source.next() => match pulled {
                    Ok(Some(events)) => self.take(events),
                    Ok(None) => return None,
                    Err(error) => return Some((self.failure(&error), false)),
                },
                () = self.settings.closing.cancelled() => {}
                () = tokio::time::sleep(self.settings.keep_alive) => {
                    return Some((Bytes::from_static(KEEP_ALIVE), true));
                }
            }
        }
    }

    fn take(&mut self, events: Vec<Event>) {
        // An interrupted state that is followed by more was answered long ago: only the newest event counts.
        self.last = events
            .last()
            .is_some_and(|newest| newest.terminal || (self.until == Until::Settled && newest.settled));
        self.pending.extend(events);
    }

    /// As many pending events as fit into one write, at least one.
    fn batch(&mut self) -> Bytes {
        let mut batch = BytesMut::new();
        while let Some(event) = self.pending.front() {
            if !batch.is_empty() && batch.len() + event.json.len() > BATCH_BYTES {
                break;
            }
            write_event(&mut batch, event, &self.envelope);
            self.pending.pop_front();
        }
        batch.freeze()
    }

    /// A failure after the stream began. It has no id, so a client that comes back goes on from the last event.
    fn failure(&self, error: &Error) -> Bytes {
        reply::log(error, "stream");
        let (event, json) = match &self.envelope {
            Envelope::Bare => (&b"event: error\n"[..], v1::error::rest_body(error)),
            Envelope::Rpc { id, .. } => (&b""[..], jsonrpc::error(id, error)),
        };
        let mut frame = BytesMut::new();
        for piece in [event, b"data: ", &one_line(json), b"\n\n"] {
            frame.put_slice(piece);
        }
        frame.freeze()
    }
}

fn write_event(buffer: &mut BytesMut, event: &Event, envelope: &Envelope) {
    let seq = event.seq.to_string();
    let (before, after): (&[u8], &[u8]) = match envelope {
        Envelope::Bare => (b"", b""),
        Envelope::Rpc { before, after, .. } => (before, after),
    };
    for piece in [b"id: ", seq.as_bytes(), b"\ndata: ", before, &event.json, after, b"\n\n"] {
        buffer.put_slice(piece);
    }
}

/// JSON without line breaks: a line break would end the `data:` field. In JSON a raw one can only stand between
/// tokens (metadata is carried as the caller wrote it), so a space means the same.
fn one_line(json: Bytes) -> Bytes {
    let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
    if !json.iter().any(is_break) {
        return json;
    }
    json.iter().map(|byte| if is_break(byte) { b' ' } else { *byte }).collect()
}

#[cfg(test)]
mod tests;
