//! The JSON-RPC 2.0 envelope, which both versions of A2A use.

use std::borrow::Cow;

use bytes::Bytes;
use longshore_model::nearest::nearest;
use longshore_model::{Error, ErrorKind};
use serde_json::value::RawValue;

use crate::json::{Object, ObjectWriter, is_null, text_of, text_of_list, write_text};
use crate::surface::{self, ProtocolVersion};
use crate::v1;

pub mod multiplex;
#[cfg(test)]
mod tests;

/// The longest accepted id. The limit exists because the id is repeated in every event of a stream.
pub const MAX_ID_LENGTH: usize = 1024;

/// The id of a request. The response repeats it unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Id {
    Null,
    /// The digits of an integer of any length.
    Number(String),
    String(String),
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The id of the request. `None`: the request is a notification, whose caller expects no response.
    pub id: Option<Id>,
    pub method: Cow<'a, str>,
    /// The parameters: a JSON object, if present.
    pub params: Option<&'a RawValue>,
    /// Only used on connections that carry several requests: see [`multiplex::service_parameters`].
    pub service_parameters: Option<&'a RawValue>,
}

/// A body that is not a valid request, with the error for the response.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// The id of the request. Null if it could not be read.
    pub id: Id,
    /// The method name, if it could be read. It shows which version the client uses, and therefore the format of the error.
    pub method: Option<String>,
    pub error: Error,
}

pub fn parse(body: &[u8]) -> Result<Request<'_>, Rejected> {
    let envelope = envelope(body).map_err(|error| Rejected { id: Id::Null, method: None, error })?;
    let rejected = |id: Option<Id>, error| {
        let method = envelope.raw("method").and_then(|raw| text_of(raw.get())).map(Cow::into_owned);
        Rejected { id: id.unwrap_or(Id::Null), method, error }
    };
    let id = id(&envelope).map_err(|error| rejected(None, error))?;
    let (method, params) = call(&envelope).map_err(|error| rejected(id.clone(), error))?;
    let service_parameters = envelope.raw("serviceParameters").filter(|raw| !is_null(raw));
    Ok(Request { id, method, params, service_parameters })
}

/// Whether the body looks like a JSON-RPC request, valid or not.
pub fn is_request(body: &str) -> bool {
    let Ok(envelope) = Object::parse(body, &["jsonrpc", "method"]) else { return false };
    ["jsonrpc", "method"]
        .iter()
        .all(|name| envelope.raw(name).is_some_and(|raw| text_of(raw.get()).is_some()))
}

/// The response to a request. `result` must already be JSON.
pub fn result(id: &Id, result: &[u8]) -> Bytes {
    answer(id, result.len(), |object| object.key("result").extend_from_slice(result))
}

/// The error response in the format of 1.0. For the format of 0.3 see [`crate::v03::error::jsonrpc`].
pub fn error(id: &Id, error: &Error) -> Bytes {
    answer(id, 320, |object| object.object("error", |object| v1::error::write_jsonrpc(object, error)))
}

/// The error for a method that this version does not have. `supported`: all methods of the version.
pub fn unknown_method<'a>(
    name: &str,
    supported: impl IntoIterator<Item = &'a str> + Clone,
    version: ProtocolVersion,
) -> Error {
    // The caller's method name is cut, so that it fits into a message.
    const LONGEST: usize = 64;
    let shown: String = name.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
    let similar = || nearest(&shown, supported.clone()).map(|known| format!("Did you mean {known}?"));
    let hint = hint_at_other_version(name, version).or_else(similar);
    let mut text = format!("Unsupported method: {shown}");
    // 0.3 clients know exactly this text, so everything else is in the error data.
    if version == ProtocolVersion::V1 {
        let advice = hint.as_deref().unwrap_or("The field supportedMethods of this error lists the methods.");
        text.push_str(". ");
        text.push_str(advice);
    }
    let error = Error::new(ErrorKind::MethodNotFound, text)
        .detail("method", shown)
        .detail("supportedMethods", text_of_list(supported))
        .detail("protocolVersion", version.as_str());
    match hint {
        Some(hint) if version == ProtocolVersion::V03 => error.detail("hint", hint),
        _ => error,
    }
}

/// Advice for a method that only the other version has.
fn hint_at_other_version(name: &str, version: ProtocolVersion) -> Option<String> {
    let mut others = ProtocolVersion::ALL.into_iter().filter(|other| *other != version);
    let other = others.find(|other| surface::core_methods(*other).contains(&name))?;
    let (own, base, other) = (version.as_str(), version.base(), other.as_str());
    Some(format!(
        "It is a method of A2A {other}: send A2A-Version: {other}, and not under {base}, where only {own} is served."
    ))
}

pub(crate) fn answer(id: &Id, size: usize, write: impl FnOnce(&mut ObjectWriter<'_>)) -> Bytes {
    let mut out = Vec::with_capacity(size + 80);
    let mut object = ObjectWriter::begin(&mut out);
    object.text("jsonrpc", "2.0");
    write_id(object.key("id"), id);
    write(&mut object);
    object.end();
    out.into()
}

fn write_id(out: &mut Vec<u8>, id: &Id) {
    match id {
        Id::Null => out.extend_from_slice(b"null"),
        Id::Number(digits) => out.extend_from_slice(digits.as_bytes()),
        Id::String(text) => write_text(out, text),
    }
}

fn envelope(body: &[u8]) -> Result<Object<'_>, Error> {
    let body = std::str::from_utf8(body)
        .map_err(|error| Error::new(ErrorKind::Parse, "The request is not UTF-8 text.").caused_by(error))?;
    Object::parse(body, &["jsonrpc", "id", "method", "params", "serviceParameters"]).map_err(|error| {
        if !error.is_data() {
            return Error::new(ErrorKind::Parse, format!("The request is not valid JSON: {error}."))
                .caused_by(error);
        }
        if body.trim_ascii_start().starts_with('[') {
            return invalid("Batches are not supported: send each request by itself.");
        }
        invalid("The request must be a JSON object.")
    })
}

fn id(envelope: &Object<'_>) -> Result<Option<Id>, Error> {
    let Some(raw) = envelope.raw("id") else { return Ok(None) };
    if raw.get().len() > MAX_ID_LENGTH {
        return Err(invalid("The id of the request must have at most 1024 characters."));
    }
    let id = id_of(raw);
    id.map(Some).ok_or_else(|| invalid("The id of the request must be a string, a whole number or null."))
}

fn id_of(raw: &RawValue) -> Option<Id> {
    let json = raw.get();
    match json.as_bytes() {
        b"null" => Some(Id::Null),
        [b'"', ..] => text_of(json).map(|text| Id::String(text.into_owned())),
        [b'-' | b'0'..=b'9', ..] if !json.contains(['.', 'e', 'E']) => Some(Id::Number(json.to_owned())),
        _ => None,
    }
}

fn call<'a>(envelope: &Object<'a>) -> Result<(Cow<'a, str>, Option<&'a RawValue>), Error> {
    let text = |name| envelope.raw(name).and_then(|raw| text_of(raw.get()));
    if text("jsonrpc").as_deref() != Some("2.0") {
        return Err(invalid("The request must say \"jsonrpc\": \"2.0\"."));
    }
    let method = text("method").ok_or_else(|| invalid("The request must name its method, as a string."))?;
    let params = envelope.raw("params").filter(|raw| !is_null(raw));
    if params.is_some_and(|raw| !raw.get().starts_with('{')) {
        return Err(Error::invalid("params", "must be an object"));
    }
    Ok((method, params))
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, message)
}
