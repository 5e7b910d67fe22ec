//! Where the lines differ in what they do: one table. How they spell things is the wire's.
//!
//! Two more differences are in the wire's decoders, since they say what an absent field means: a REST send of 0.3 does not
//! wait unless it says so, and a history of length 0 is all of it there.

use bytes::Bytes;
use http::HeaderMap;
use longshore_model::{Error, ErrorKind};
use longshore_wire::extension::Activated;
use longshore_wire::jsonrpc::{self, Id};
use longshore_wire::{v1, v03};

use crate::extensions;
use crate::line::ProtocolVersion;
use crate::media::Media;

/// What one line does.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one row of the table, and none depends on another"
)]
pub(crate) struct Rules {
    /// Methods and metadata of extensions are for callers that activated them. Else they are for everybody.
    pub(crate) is_gated: bool,
    /// Whoever subscribes to a task that is over is told it once. Else the subscription is refused.
    pub(crate) replays_ended: bool,
    /// Canceling a canceled task gives the task. Else it is refused, as for every task that is over.
    pub(crate) cancels_again: bool,
    /// The stream of a sent message closes when the task asks, unless the sender can answer by another way.
    pub(crate) closes_at_ask: bool,
    /// Operations may be called without an id, and are then done in silence. Else only methods of extensions may.
    pub(crate) notifies_operations: bool,
    /// A JSON-RPC method that streams tells why it cannot begin as the one event of its stream: clients look for a stream
    /// before they look for an error. Else that is told as any other error.
    pub(crate) refuses_in_stream: bool,
    /// How a REST answer is labelled.
    pub(crate) media: fn(&HeaderMap) -> Media,
    pub(crate) errors: Errors,
}

/// How one line tells errors.
#[derive(Debug)]
pub(crate) struct Errors {
    /// The status of HTTP, where it is the binding's to say.
    pub(crate) status: fn(ErrorKind) -> u16,
    pub(crate) rpc: fn(&Id, &Error) -> Bytes,
    pub(crate) rest: fn(&Error) -> Bytes,
}

const V1: Rules = Rules {
    is_gated: true,
    replays_ended: false,
    cancels_again: false,
    closes_at_ask: true,
    notifies_operations: true,
    refuses_in_stream: false,
    media: Media::of_answer,
    errors: Errors {
        status: |kind| v1::error::row(kind).http,
        rpc: jsonrpc::error,
        rest: v1::error::rest_body,
    },
};

const V03: Rules = Rules {
    is_gated: false,
    replays_ended: true,
    cancels_again: true,
    closes_at_ask: false,
    notifies_operations: false,
    refuses_in_stream: true,
    media: |_| Media::Json,
    errors: Errors {
        status: |kind| v03::error::row(kind).http,
        rpc: v03::error::jsonrpc,
        rest: v03::error::rest_body,
    },
};

impl Rules {
    pub(crate) fn of(line: ProtocolVersion) -> &'static Self {
        match line {
            ProtocolVersion::V1 => &V1,
            ProtocolVersion::V03 => &V03,
        }
    }

    /// The extensions that count for a request with these headers.
    pub(crate) fn activated(&self, headers: &HeaderMap) -> Activated {
        if self.is_gated { extensions::activated(headers) } else { Activated::ALL }
    }
}
