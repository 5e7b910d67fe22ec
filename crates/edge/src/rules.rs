//! One table of the differences in behaviour between the protocol versions. `wire` holds the differences in spelling.
//!
//! Two more differences are in the decoders of `wire`, because they define what an absent field means: in 0.3 a REST send
//! does not wait unless the caller asks for it, and a history length of 0 means the whole history.

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
    /// Only callers that activated an extension get its methods and metadata. Otherwise every caller gets them.
    pub(crate) requires_activation: bool,
    /// A subscription to a finished task sends the task once. Otherwise the subscription is refused.
    pub(crate) replays_ended: bool,
    /// Canceling a canceled task returns the task. Otherwise the cancel is refused, as for every finished task.
    pub(crate) cancels_again: bool,
    /// The stream of a sent message closes when the task asks, unless the sender can answer in another way than by message.
    pub(crate) closes_at_ask: bool,
    /// Any method may be called without an id and then gets no response. Otherwise only extension methods may.
    pub(crate) allows_operation_notifications: bool,
    /// A streaming JSON-RPC method that fails to start reports the error as the only event of its stream, because clients of
    /// this version expect a stream before they check for an error. Otherwise the error is a plain JSON response.
    pub(crate) refuses_in_stream: bool,
    /// The media type of REST responses.
    pub(crate) media: fn(&HeaderMap) -> Media,
    pub(crate) errors: Errors,
}

/// How one version reports errors.
#[derive(Debug)]
pub(crate) struct Errors {
    /// The HTTP status. JSON-RPC responses mostly ignore it.
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
