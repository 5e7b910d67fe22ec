//! Events as server-sent events.
//!
//! The body is pulled: while the socket is full nothing is read from the log, so a stalled reader costs one batch
//! and hyper's own buffer. The bytes of an event are shared by all readers; only the JSON-RPC envelope, which holds
//! the caller's id, is written for each.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, StreamExt};
use longshore_model::{Error, EventId, Result, TaskState};
use longshore_wire::jsonrpc::{self, Id};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::line::Line;
use crate::reply;
use crate::rules::{Errors, Rules};

/// A batch is closed when it has grown to this; one event may be larger. More waits for the next pull.
const BATCH_BYTES: usize = 16 * 1024;

/// What a stream that ends because the gateway stops tells the client: come back after this long.
const COME_BACK: &[u8] = b"retry: 1000\n\n";

const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// One event, ready to be framed.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) id: EventId,
    /// One line: a line break would end the `data:` field. The wire writes nothing else. `None`: nothing is written for
    /// this event, which is not for this reader.
    pub(crate) json: Option<Bytes>,
    /// What the event says about the state of the task. Most say nothing.
    pub(crate) standing: Option<Standing>,
}

/// How it stands with a task, as far as a stream has to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Working,
    /// Waits for an answer of the caller.
    Asking,
    Over,
}

impl Standing {
    pub(crate) fn of(state: TaskState) -> Self {
        if state.is_terminal() {
            Self::Over
        } else if state.is_settled() {
            Self::Asking
        } else {
            Self::Working
        }
    }
}

/// Where events come from. Cancel safe: an event counts as given only when the future returns.
pub(crate) trait Source: Send + 'static {
    /// The next events, shown or not; `None` when there will be no more.
    fn next(&mut self) -> impl Future<Output = Result<Option<Vec<Event>>>> + Send;

    /// Whether every event that there is by now was given, also those that are not shown.
    fn is_at_head(&mut self) -> impl Future<Output = Result<bool>> + Send;
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

/// What stands around an event, and how a failure is told.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    errors: &'static Errors,
    around: Around,
}

#[derive(Clone, Debug)]
enum Around {
    Nothing,
    Rpc { id: Id, before: Bytes, after: Bytes },
}

impl Envelope {
    pub(crate) fn bare(line: Line) -> Self {
        Self { errors: &Rules::of(line).errors, around: Around::Nothing }
    }

    pub(crate) fn rpc(line: Line, id: Id) -> Self {
        // The envelope of nothing, cut where the result goes: `result` is its last member.
        let mut before = jsonrpc::result(&id, b"");
        let after = before.split_off(before.len() - 1);
        Self { errors: &Rules::of(line).errors, around: Around::Rpc { id, before, after } }
    }

    /// The last event of a stream that fails. It has no id, so a client that comes back goes on from the event before.
    fn failure(&self, error: &Error) -> Bytes {
        reply::log(error, "stream");
        let (event, json) = match &self.around {
            Around::Nothing => (&b"event: error\n"[..], (self.errors.rest)(error)),
            Around::Rpc { id, .. } => (&b""[..], (self.errors.rpc)(id, error)),
        };
        let mut frame = BytesMut::new();
        debug_assert!(is_one_line(&json), "{json:?}");
        for piece in [event, b"data: ", &json, b"\n\n"] {
            frame.put_slice(piece);
        }
        frame.freeze()
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

/// A stream that cannot begin.
pub(crate) fn refused(envelope: &Envelope, error: &Error) -> BoxStream<'static, Bytes> {
    stream::iter([envelope.failure(error)]).boxed()
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
        standing: Standing::Working,
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
    /// What is to be written.
    pending: VecDeque<(EventId, Bytes)>,
    /// What the newest event said that said anything. The end of a batch means nothing.
    standing: Standing,
    envelope: Envelope,
    settings: StreamSettings,
}

impl<S: Source> Streaming<S> {
    /// The next bytes, and whether there may be more. `None` at the end.
    async fn next(&mut self) -> Option<(Bytes, bool)> {
        // Counted from the last write: events that are not shown are silence to the client.
        let mut silence = pin!(tokio::time::sleep(self.settings.keep_alive));
        loop {
            // What was read is written, also when the gateway stops: the first event is all that a client knows its task
            // by. A client that does not take it is cut at the end of the grace.
            if !self.pending.is_empty() {
                let batch = self.batch();
                let is_last = self.standing == Standing::Over && self.pending.is_empty();
                return Some((batch, !is_last));
            }
            match self.is_done().await {
                Ok(false) => {}
                Ok(true) => return None,
                Err(error) => return Some((self.envelope.failure(&error), false)),
            }
            if self.settings.closing.is_cancelled() {
                return Some((Bytes::from_static(COME_BACK), false));
            }
            // Without end, events that are not shown would keep everything else from its turn.
            tokio::task::coop::consume_budget().await;
            if silence.deadline() <= Instant::now() {
                return Some((Bytes::from_static(KEEP_ALIVE), true));
            }
            tokio::select! {
                biased;
                pulled = self.source.next() => match pulled {
                    Ok(Some(events)) => self.take(events),
                    Ok(None) => return None,
                    Err(error) => return Some((self.envelope.failure(&error), false)),
                },
                () = self.settings.closing.cancelled() => {}
                () = silence.as_mut() => {}
            }
        }
    }

    fn take(&mut self, events: Vec<Event>) {
        let newest = events.iter().rev().find_map(|event| event.standing);
        self.standing = newest.unwrap_or(self.standing);
        self.pending.extend(events.into_iter().filter_map(|event| Some((event.id, event.json?))));
    }

    /// Whether the stream closes here, with everything written that was read.
    async fn is_done(&mut self) -> Result<bool> {
        match self.standing {
            Standing::Over => Ok(true),
            // What was asked in the middle of a log may have been answered long ago.
            Standing::Asking if self.until == Until::Settled => self.source.is_at_head().await,
            Standing::Asking | Standing::Working => Ok(false),
        }
    }

    /// As many pending events as fit into one write, at least one.
    fn batch(&mut self) -> Bytes {
        let mut batch = BytesMut::new();
        while let Some((id, json)) = self.pending.front() {
            if !batch.is_empty() && batch.len() + json.len() > BATCH_BYTES {
                break;
            }
            write_event(&mut batch, *id, json, &self.envelope);
            self.pending.pop_front();
        }
        batch.freeze()
    }
}

fn write_event(buffer: &mut BytesMut, id: EventId, json: &[u8], envelope: &Envelope) {
    debug_assert!(is_one_line(json), "{:?}", String::from_utf8_lossy(json));
    let (before, after): (&[u8], &[u8]) = match &envelope.around {
        Around::Nothing => (b"", b""),
        Around::Rpc { before, after, .. } => (before, after),
    };
    write!(buffer, "id: {id}").expect("memory can be written");
    for piece in [b"\ndata: ", before, json, after, b"\n\n"] {
        buffer.put_slice(piece);
    }
}

fn is_one_line(json: &[u8]) -> bool {
    !json.iter().any(|byte| matches!(byte, b'\n' | b'\r'))
}

#[cfg(test)]
mod tests;
