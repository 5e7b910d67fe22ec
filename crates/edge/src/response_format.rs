//! Encodes responses for a protocol version and binding. The formats differ in spelling only.

use bytes::Bytes;
use http::HeaderMap;
use longshore_engine::Listing;
use longshore_model::{Error, Result, Task};
use longshore_wire::jsonrpc::Id;
use longshore_wire::v1::encode::{Gap, View};
use longshore_wire::v1::extension;
use longshore_wire::v03::Dialect;
use longshore_wire::{v1, v03};

use crate::operation::MethodReply;
use crate::reply::{self, Response};
use crate::rules::Rules;
use crate::version::ProtocolVersion;

/// The protocol version and binding in which a caller is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ResponseFormat {
    pub(crate) version: ProtocolVersion,
    /// The binding. In 1.0 both bindings share one spelling.
    pub(crate) dialect: Dialect,
}

impl ResponseFormat {
    pub(crate) fn rpc(version: ProtocolVersion) -> Self {
        Self { version, dialect: Dialect::Rpc }
    }

    pub(crate) fn rest(version: ProtocolVersion) -> Self {
        Self { version, dialect: Dialect::Rest }
    }

    pub(crate) fn rules(self) -> &'static Rules {
        Rules::for_version(self.version)
    }

    /// A bare task.
    pub(crate) fn task(self, task: &Task, view: View) -> Bytes {
        match self.version {
            ProtocolVersion::V1 => v1::encode::task(task, view),
            ProtocolVersion::V03 => v03::encode::task(task, view, self.dialect),
        }
    }

    /// The response to a send.
    pub(crate) fn sent(self, task: &Task, view: View) -> Bytes {
        match self.version {
            ProtocolVersion::V1 => v1::encode::send_response(task, view),
            ProtocolVersion::V03 => v03::encode::send_response(task, view, self.dialect),
        }
    }

    pub(crate) fn page(self, listing: &Listing, view: View) -> Bytes {
        let Listing { tasks, total, page_size, next_page_token: token } = listing;
        match self.version {
            ProtocolVersion::V1 => v1::encode::list_response(tasks, view, token, *page_size, *total),
            ProtocolVersion::V03 => {
                v03::encode::list_response(tasks, view, self.dialect, token, *page_size, *total)
            }
        }
    }

    /// The result of an extension method.
    pub(crate) fn method(self, reply: &MethodReply) -> Result<Bytes> {
        Ok(match reply {
            MethodReply::Asks(asks) => extension::asks(asks),
            MethodReply::Approvals(approvals) => extension::approvals(approvals),
            MethodReply::Answered(request) => extension::answered(request),
            MethodReply::Control(method, result) => return method.answer(result, self.version),
        })
    }

    /// A task as an event of a stream.
    pub(crate) fn snapshot(self, task: &Task, view: View, gap: Option<Gap>) -> Bytes {
        match self.version {
            ProtocolVersion::V1 => v1::encode::stream_task(task, view, gap),
            ProtocolVersion::V03 => v03::encode::stream_task(task, view, self.dialect, gap),
        }
    }

    /// Logs an error and encodes it for the caller. `id` is the id of a JSON-RPC request.
    pub(crate) fn refuse(self, id: &Id, headers: &HeaderMap, error: &Error) -> Response {
        let rules = self.rules();
        let mut response = match self.dialect {
            Dialect::Rpc => {
                reply::log(error, "JSON-RPC");
                reply::rpc_error(&rules.errors, id, error)
            }
            Dialect::Rest => {
                reply::log(error, "REST");
                reply::rest_error(&rules.errors, error, (rules.media)(headers))
            }
        };
        reply::note_error(&mut response, error);
        response
    }
}
