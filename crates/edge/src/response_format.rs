//! Encodes responses for a protocol version and binding. The formats differ only in their encoding.

use bytes::Bytes;
use http::HeaderMap;
use longshore_engine::{EncodedForm, Listing, LogEntry, PushListing};
use longshore_model::{Entry, Error, EventId, PushConfig, Result, Task};
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

/// The protocol version and the encoding of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseFormat {
    pub(crate) version: ProtocolVersion,
    pub(crate) encoding: Encoding,
}

/// How a binding encodes messages. In 1.0 all bindings produce the same JSON, which gRPC then converts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Encoding {
    JsonRpc,
    Rest,
    Grpc(&'static dyn Protobuf),
}

/// The offset of gRPC forms: the form of an event in gRPC is the number of its JSON form plus this offset.
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

    /// The dialect of the 0.3 JSON.
    pub(crate) fn dialect(self) -> Dialect {
        match self.encoding {
            Encoding::JsonRpc => Dialect::Rpc,
            Encoding::Rest | Encoding::Grpc(_) => Dialect::Rest,
        }
    }

    /// Encodes a task without an envelope.
    pub(crate) fn task(self, task: &Task, view: View) -> Bytes {
        match self.version {
            ProtocolVersion::V1 => v1::encode::task(task, view),
            ProtocolVersion::V03 => v03::encode::task(task, view, self.dialect()),
        }
    }

    /// Encodes the response to a send.
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

    pub(crate) fn push_config(self, config: &PushConfig) -> Bytes {
        match self.version {
            ProtocolVersion::V1 => v1::encode::push_config(config),
            ProtocolVersion::V03 => v03::encode::push_config(config, self.dialect()),
        }
    }

    pub(crate) fn push_page(self, listing: &PushListing) -> Bytes {
        let PushListing { configs, next_page_token: token } = listing;
        match self.version {
            ProtocolVersion::V1 => v1::encode::push_page(configs, token),
            ProtocolVersion::V03 => v03::encode::push_page(configs, token, self.dialect()),
        }
    }

    pub(crate) fn push_config_deleted(self) -> Bytes {
        match self.version {
            ProtocolVersion::V1 => v1::encode::deleted(),
            ProtocolVersion::V03 => v03::encode::deleted(self.dialect()),
        }
    }

    /// Encodes the result of an extension method.
    pub(crate) fn method(self, reply: &MethodReply) -> Result<Bytes> {
        Ok(match reply {
            MethodReply::Asks(asks) => extension::asks(asks),
            MethodReply::Approvals(approvals) => extension::approvals(approvals),
            MethodReply::Answered(request) => extension::answered(request),
            MethodReply::Control(method, result) => return method.answer(result, self.version),
        })
    }

    /// An event whose bytes all readers with the same format and form share. `form`: the number of its JSON form. `encode` returns
    /// empty bytes if the form hides the event.
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

    /// An event for one reader, from its JSON. `id`: the position at which a reader resumes after the event, if it has one.
    pub(crate) fn own_event(self, id: Option<EventId>, json: Bytes) -> Bytes {
        match self.encoding {
            Encoding::Grpc(protobuf) if !json.is_empty() => grpc::event(protobuf, self.version, id, &json),
            _ => json,
        }
    }

    /// A task as an event of a stream. `id`: the id of the newest event in the task.
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
