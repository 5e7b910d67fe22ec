//! The frame of an event: its id and, for JSON-RPC, its envelope.

use std::fmt::Write as _;

use bytes::{BufMut, Bytes, BytesMut};
use longshore_model::{Error, EventId};
use longshore_wire::jsonrpc::{self, Id};

use crate::reply;
use crate::rules::{Errors, Rules};
use crate::version::ProtocolVersion;

/// Writes the text around the JSON of an event, and encodes failures.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    errors: &'static Errors,
    wrapper: Wrapper,
}

#[derive(Clone, Debug)]
enum Wrapper {
    None,
    /// The events have their frames already.
    Framed,
    Rpc { id: Id, before: Bytes, after: Bytes },
}

const ID: &str = "id: ";
const DATA: &[u8] = b"data: ";
const END: &[u8] = b"\n\n";

const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

impl Envelope {
    pub(crate) fn bare(version: ProtocolVersion) -> Self {
        Self { errors: &Rules::for_version(version).errors, wrapper: Wrapper::None }
    }

    pub(crate) fn rpc(version: ProtocolVersion, id: Id) -> Self {
        // The envelope of an empty result, split where the result goes: `result` is the last member.
        let mut before = jsonrpc::result(&id, b"");
        let after = before.split_off(before.len() - 1);
        Self { errors: &Rules::for_version(version).errors, wrapper: Wrapper::Rpc { id, before, after } }
    }

    /// For events that have their frames already.
    pub(crate) fn framed(version: ProtocolVersion) -> Self {
        Self { errors: &Rules::for_version(version).errors, wrapper: Wrapper::Framed }
    }

    /// Shows the client that the connection lives. HTTP/2, which carries framed events, has pings of its own.
    pub(super) fn keep_alive(&self) -> Option<Bytes> {
        (!self.is_framed()).then(|| Bytes::from_static(KEEP_ALIVE))
    }

    fn is_framed(&self) -> bool {
        matches!(self.wrapper, Wrapper::Framed)
    }

    /// The last event of a stream that fails. It has no id, so a reconnecting client resumes after the event before.
    pub(super) fn failure(&self, error: &Error) -> Bytes {
        reply::log(error, "stream");
        let (event, json) = match &self.wrapper {
            Wrapper::None | Wrapper::Framed => (&b"event: error\n"[..], (self.errors.rest)(error)),
            Wrapper::Rpc { id, .. } => (&b""[..], (self.errors.rpc)(id, error)),
        };
        debug_assert!(is_one_line(&json), "{json:?}");
        [event, DATA, &json, END].concat().into()
    }

    /// The length of an event's frame without its JSON.
    pub(super) fn overhead(&self, id: Option<EventId>) -> usize {
        if self.is_framed() {
            return 0;
        }
        let (before, after) = self.wrapper();
        let id = id.map_or(0, |EventId { seq, epoch }| {
            ID.len() + decimals(seq.0) + epoch.map_or(0, |epoch| 1 + decimals(epoch.0)) + 1
        });
        id + DATA.len() + before.len() + after.len() + END.len()
    }

    /// Writes everything before the JSON of an event.
    pub(super) fn begin(&self, buffer: &mut BytesMut, id: Option<EventId>, json: &[u8]) {
        if self.is_framed() {
            return;
        }
        debug_assert!(is_one_line(json), "{:?}", String::from_utf8_lossy(json));
        if let Some(id) = id {
            writeln!(buffer, "{ID}{id}").expect("writing to memory cannot fail");
        }
        buffer.put_slice(DATA);
        buffer.put_slice(self.wrapper().0);
    }

    pub(super) fn end(&self, buffer: &mut BytesMut) {
        if self.is_framed() {
            return;
        }
        buffer.put_slice(self.wrapper().1);
        buffer.put_slice(END);
    }

    fn wrapper(&self) -> (&[u8], &[u8]) {
        match &self.wrapper {
            Wrapper::None | Wrapper::Framed => (b"", b""),
            Wrapper::Rpc { before, after, .. } => (before, after),
        }
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
        ] {
            for id in ids {
                let mut buffer = BytesMut::new();
                envelope.begin(&mut buffer, id, b"");
                envelope.end(&mut buffer);
                assert_eq!(buffer.len(), envelope.overhead(id), "{buffer:?}");
            }
        }
    }
}
