//! A table of the differences in behaviour between the protocol versions. The differences in encoding are in `wire`.
//!
//! Two more differences are in the decoders of `wire`, because they define the meaning of an absent field. In 0.3 a REST send does
//! not wait unless the caller requests it, and a history length of 0 means the whole history.

use bytes::Bytes;
use http::HeaderMap;
use longshore_model::{Error, ErrorKind};
use longshore_wire::extension::Activated;
use longshore_wire::jsonrpc::{self, Id};
use longshore_wire::{v1, v03};

use crate::extensions;
use crate::media::Media;
use crate::version::ProtocolVersion;

/// The behaviour of one protocol version.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each field is one row of the table, and the rows are independent"
)]
pub(crate) struct Rules {
    /// Whether only callers that activated an extension get its methods and metadata. If not, every caller gets them.
    pub(crate) requires_activation: bool,
    /// Whether a subscription to a finished task sends the task once. If not, the subscription is refused.
    pub(crate) replays_ended: bool,
    /// Whether canceling a canceled task returns the task. If not, the cancel is refused, as for every finished task.
    pub(crate) cancels_again: bool,
    /// Whether the stream of a sent message closes when the task has an open ask, unless the sender can answer other than by
    /// message.
    pub(crate) closes_at_ask: bool,
    /// Whether any method may be called without an id and then gets no response. If not, only extension methods may.
    pub(crate) allows_operation_notifications: bool,
    /// Whether a streaming JSON-RPC method that fails to start reports the error as the only event of its stream, because clients
    /// of this version expect a stream before they check for an error. If not, the error is a plain JSON response.
    pub(crate) refuses_in_stream: bool,
    /// The function that selects the media type of REST responses.
    pub(crate) media: fn(&HeaderMap) -> Media,
    pub(crate) errors: Errors,
}

/// How errors are encoded in one version.
#[derive(Debug)]
pub(crate) struct Errors {
    /// The HTTP status of an error kind. JSON-RPC responses mostly ignore it.
    pub(crate) status: fn(ErrorKind) -> u16,
    pub(crate) rpc: fn(&Id, &Error) -> Bytes,
    pub(crate) rest: fn(&Error) -> Bytes,
}

const V1: Rules = Rules {
    requires_activation: true,
    replays_ended: false,
    cancels_again: false,
    closes_at_ask: true,
    allows_operation_notifications: true,
    refuses_in_stream: false,
    media: Media::of_response,
    errors: Errors {
        status: |kind| v1::error::row(kind).http,
        rpc: jsonrpc::error,
        rest: v1::error::rest_body,
    },
};

const V03: Rules = Rules {
    requires_activation: false,
    replays_ended: true,
    cancels_again: true,
    closes_at_ask: false,
    allows_operation_notifications: false,
    refuses_in_stream: true,
    media: |_| Media::Json,
    errors: Errors {
        status: |kind| v03::error::row(kind).http,
        rpc: v03::error::jsonrpc,
        rest: v03::error::rest_body,
    },
};

impl Rules {
    pub(crate) fn for_version(version: ProtocolVersion) -> &'static Self {
        match version {
            ProtocolVersion::V1 => &V1,
            ProtocolVersion::V03 => &V03,
        }
    }

    /// The extensions that are active for a request with these headers.
    pub(crate) fn activated(&self, headers: &HeaderMap) -> Activated {
        if self.requires_activation { extensions::activated(headers) } else { Activated::ALL }
    }
}
