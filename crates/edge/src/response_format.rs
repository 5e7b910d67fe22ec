//! Encodes responses for a protocol version and binding. The formats differ in spelling only.

use bytes::Bytes;
use http::HeaderMap;
use longshore_engine::{EncodedForm, Listing, LogEntry};
use longshore_model::{Entry, Error, EventId, Result, Task};
use longshore_wire::jsonrpc::Id;
use longshore_wire::v1::encode::{Gap, View};
use longshore_wire::v1::extension;
use longshore_wire::v03::Dialect;
use longshore_wire::{v1, v03};

use crate::grpc::{self, Protobuf};
use crate::operation::MethodReply;
use crate::reply::{self, Response};
use crate::rules::Rules;
use crate::version::ProtocolVersion;

/// The protocol version and encoding in which a caller is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseFormat {
    pub(crate) version: ProtocolVersion,
    pub(crate) encoding: Encoding,
}

/// How a binding writes messages. In 1.0 all of them write the same JSON, which gRPC then converts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Encoding {
    JsonRpc,
    Rest,
    Grpc(&'static dyn Protobuf),
}

/// The forms of an event in gRPC have the numbers of its forms in JSON, from this number on.
const GRPC_FORMS: u16 = 256;

impl ResponseFormat {
    pub(crate) fn rpc(version: ProtocolVersion) -> Self {
        Self { version, encoding: Encoding::JsonRpc }
    }

    pub(crate) fn rest(version: ProtocolVersion) -> Self {
        Self { version, encoding: Encoding::Rest }
    }

    pub(crate) fn grpc(version: ProtocolVersion, protobuf: &'static dyn Protobuf) -> Self {
        Self { version, encoding: Encoding::Grpc(protobuf) }
    }

    pub(crate) fn rules(self) -> &'static Rules {
        Rules::for_version(self.version)
    }

    /// The spelling of the JSON in 0.3.
    pub(crate) fn dialect(self) -> Dialect {
        match self.encoding {
            Encoding::JsonRpc => Dialect::Rpc,
            Encoding::Rest | Encoding::Grpc(_) => Dialect::Rest,
        }
    }

    /// A bare task.
    pub(crate) fn task(self, task: &Task, view: View) -> Bytes {
        match self.version {
            ProtocolVersion::V1 => v1::encode::task(task, view),
            ProtocolVersion::V03 => v03::encode::task(task, view, self.dialect()),
        }
    }

    /// The response to a send.
    pub(crate) fn sent(self, task: &Task, view: View) -> Bytes {
        match self.version {
            ProtocolVersion::V1 => v1::encode::send_response(task, view),
            ProtocolVersion::V03 => v03::encode::send_response(task, view, self.dialect()),
        }
    }

    pub(crate) fn page(self, listing: &Listing, view: View) -> Bytes {
        let Listing { tasks, total, page_size, next_page_token: token } = listing;
        match self.version {
            ProtocolVersion::V1 => v1::encode::list_response(tasks, view, token, *page_size, *total),
            ProtocolVersion::V03 => {
                v03::encode::list_response(tasks, view, self.dialect(), token, *page_size, *total)
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

    /// An event that all readers with the same format and form share. `form`: the number of its form in JSON. `encode` returns no
    /// bytes if the form hides the event.
    pub(crate) fn shared_event(
        self,
        logged: &LogEntry,
        form: u8,
        encode: impl FnOnce(&Entry) -> Bytes,
    ) -> Bytes {
        let first = match self.encoding {
            Encoding::JsonRpc | Encoding::Rest => 0,
            Encoding::Grpc(_) => GRPC_FORMS,
        };
        let form = EncodedForm(first + u16::from(form));
        logged.encoded(form, |entry| self.own_event(Some(entry.id()), encode(entry)))
    }

    /// An event that one reader gets, from its JSON. `id`: the position at which a reader resumes after the event, if it has one.
    pub(crate) fn own_event(self, id: Option<EventId>, json: Bytes) -> Bytes {
        match self.encoding {
            Encoding::Grpc(protobuf) if !json.is_empty() => {
                grpc::event(protobuf, self.version, id, &json)
            }
            _ => json,
        }
    }

    /// A task as an event of a stream. `id`: its newest event.
    pub(crate) fn snapshot(self, task: &Task, id: EventId, view: View, gap: Option<Gap>) -> Bytes {
        let json = match self.version {
            ProtocolVersion::V1 => v1::encode::stream_task(task, view, gap),
            ProtocolVersion::V03 => v03::encode::stream_task(task, view, self.dialect(), gap),
        };
        self.own_event(Some(id), json)
    }

    /// Logs an error and encodes it for the caller. `id` is the id of a JSON-RPC request.
    pub(crate) fn refuse(self, id: &Id, headers: &HeaderMap, error: &Error) -> Response {
        let rules = self.rules();
        let mut response = match self.encoding {
            Encoding::JsonRpc => {
                reply::log(error, "JSON-RPC");
                reply::rpc_error(&rules.errors, id, error)
            }
            Encoding::Rest => {
                reply::log(error, "REST");
                reply::rest_error(&rules.errors, error, (rules.media)(headers))
            }
            Encoding::Grpc(protobuf) => {
                reply::log(error, "gRPC");
                grpc::refusal(protobuf, error)
            }
        };
        reply::note_error(&mut response, error);
        response
    }
}
