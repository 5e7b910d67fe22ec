//! The frame of an event: its id and, for JSON-RPC, its envelope. On a connection that carries several requests, each frame is a
//! message.

use std::fmt::Write as _;

use bytes::{BufMut, Bytes, BytesMut};
use longshore_model::{Error, EventId};
use longshore_wire::jsonrpc::{self, Id, multiplex};

use crate::reply;
use crate::rules::{Errors, Rules};
use crate::version::ProtocolVersion;

/// Writes the text around the JSON of an event, and encodes errors.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    errors: &'static Errors,
    wrapper: Wrapper,
}

#[derive(Clone, Debug)]
enum Wrapper {
    None,
    /// The events already have their frames.
    Framed,
    Rpc {
        id: Id,
        before: Bytes,
        after: Bytes,
    },
    /// Each event is a message: a JSON-RPC response that also contains the id of the event.
    Message {
        id: Id,
        before: Bytes,
    },
}

const ID: &str = "id: ";
const DATA: &[u8] = b"data: ";
const END: &[u8] = b"\n\n";

/// Written when the gateway shuts down: tells the client to reconnect after this time.
const RETRY: &[u8] = b"retry: 1000\n\n";

const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

impl Envelope {
    pub(crate) fn bare(version: ProtocolVersion) -> Self {
        Self { errors: &Rules::for_version(version).errors, wrapper: Wrapper::None }
    }

    pub(crate) fn rpc(version: ProtocolVersion, id: Id) -> Self {
        // The envelope of an empty result, split at the position of the result, because `result` is the last member.
        let mut before = jsonrpc::result(&id, b"");
        let after = before.split_off(before.len() - 1);
        Self { errors: &Rules::for_version(version).errors, wrapper: Wrapper::Rpc { id, before, after } }
    }

    /// An envelope for events that already have their frames.
    pub(crate) fn framed(version: ProtocolVersion) -> Self {
        Self { errors: &Rules::for_version(version).errors, wrapper: Wrapper::Framed }
    }

    /// An envelope for a connection that carries several requests.
    pub(crate) fn message(version: ProtocolVersion, id: Id) -> Self {
        let mut before = jsonrpc::result(&id, b"");
        before.truncate(before.len() - 1);
        let wrapper = Wrapper::Message { id, before };
        Self { errors: &Rules::for_version(version).errors, wrapper }
    }

    /// Whether each event is written separately. If not, short events share one piece of bytes.
    pub(super) fn is_message(&self) -> bool {
        matches!(self.wrapper, Wrapper::Message { .. })
    }

    /// Whether the stream is written as server-sent events.
    fn is_sse(&self) -> bool {
        matches!(self.wrapper, Wrapper::None | Wrapper::Rpc { .. })
    }

    /// Shows the client that the connection is alive. `None`: HTTP/2 (for gRPC), and connections that carry several requests, have
    /// their own pings.
    pub(super) fn keep_alive(&self) -> Option<Bytes> {
        self.is_sse().then(|| Bytes::from_static(KEEP_ALIVE))
    }

    /// The last bytes of a stream that ends because the gateway shuts down. `None`: on a connection that carries several requests,
    /// the end of the connection tells the client.
    pub(super) fn closing(&self) -> Option<Bytes> {
        self.is_sse().then(|| Bytes::from_static(RETRY))
    }

    /// The last bytes of a complete stream. `None`: a stream of server-sent events is complete when its response ends.
    pub(super) fn complete(&self) -> Option<Bytes> {
        let Wrapper::Message { id, .. } = &self.wrapper else { return None };
        Some(multiplex::ended(id))
    }

    /// The last event of a stream that fails. It has no id, so a reconnecting client resumes after the previous event.
    pub(super) fn failure(&self, error: &Error) -> Bytes {
        reply::log(error, "stream");
        let (event, json) = match &self.wrapper {
            Wrapper::None | Wrapper::Framed => (&b"event: error\n"[..], (self.errors.rest)(error)),
            Wrapper::Rpc { id, .. } => (&b""[..], (self.errors.rpc)(id, error)),
            Wrapper::Message { id, .. } => return (self.errors.rpc)(id, error),
        };
        debug_assert!(is_one_line(&json), "{json:?}");
        [event, DATA, &json, END].concat().into()
    }

    /// The length of an event's frame without its JSON.
    pub(super) fn overhead(&self, id: Option<EventId>) -> usize {
        let id =
            id.map(|EventId { seq, epoch }| decimals(seq.0) + epoch.map_or(0, |epoch| 1 + decimals(epoch.0)));
        let (before, after) = match &self.wrapper {
            Wrapper::None => (0, 0),
            Wrapper::Framed => return 0,
            Wrapper::Rpc { before, after, .. } => (before.len(), after.len()),
            Wrapper::Message { before, .. } => {
                return before.len() + id.map_or(1, |id| multiplex::EVENT_TAIL_LENGTH + id);
            }
        };
        id.map_or(0, |id| ID.len() + id + 1) + DATA.len() + before + after + END.len()
    }

    /// Writes everything before the JSON of an event.
    pub(super) fn begin(&self, buffer: &mut BytesMut, id: Option<EventId>, json: &[u8]) {
        if matches!(self.wrapper, Wrapper::Framed) {
            return;
        }
        debug_assert!(is_one_line(json), "{:?}", String::from_utf8_lossy(json));
        if let Wrapper::Message { before, .. } = &self.wrapper {
            buffer.put_slice(before);
            return;
        }
        if let Some(id) = id {
            writeln!(buffer, "{ID}{id}").expect("writing to memory cannot fail");
        }
        buffer.put_slice(DATA);
        if let Wrapper::Rpc { before, .. } = &self.wrapper {
            buffer.put_slice(before);
        }
    }

    /// Writes everything after the JSON of an event.
    pub(super) fn end(&self, buffer: &mut BytesMut, id: Option<EventId>) {
        match (&self.wrapper, id) {
            (Wrapper::Framed, _) => return,
            (Wrapper::None, _) => {}
            (Wrapper::Rpc { after, .. }, _) => buffer.put_slice(after),
            (Wrapper::Message { .. }, Some(id)) => {
                return buffer.put_slice(multiplex::event_tail(id).as_bytes());
            }
            (Wrapper::Message { .. }, None) => return buffer.put_slice(b"}"),
        }
        buffer.put_slice(END);
    }
}

fn decimals(number: impl Into<u64>) -> usize {
    number.into().checked_ilog10().unwrap_or(0) as usize + 1
}

fn is_one_line(json: &[u8]) -> bool {
    !json.iter().any(|byte| matches!(byte, b'\n' | b'\r'))
}

#[cfg(test)]
mod tests {
    use longshore_model::{Epoch, Seq};

    use super::*;

    #[test]
    fn the_overhead_of_a_frame_is_exact() {
        let ids = [
            None,
            Some(EventId::from(Seq(0))),
            Some(EventId::from(Seq(9))),
            Some(EventId::new(Seq(10), Epoch(1))),
            Some(EventId::new(Seq(u64::MAX), Epoch(99))),
        ];
        for envelope in [
            Envelope::bare(ProtocolVersion::V1),
            Envelope::rpc(ProtocolVersion::V03, Id::String("x".to_owned())),
            Envelope::message(ProtocolVersion::V1, Id::String("x".to_owned())),
        ] {
            for id in ids {
                let mut buffer = BytesMut::new();
                envelope.begin(&mut buffer, id, b"");
                envelope.end(&mut buffer, id);
                assert_eq!(buffer.len(), envelope.overhead(id), "{buffer:?}");
            }
        }
    }
}
