//! JSON-RPC on a connection that carries several requests at once, in messages without headers: WebSocket and stdio.
//!
//! Three things are added to JSON-RPC. A request can have the member `serviceParameters`, with the values that HTTP has in headers.
//! A response that is an event of a stream has the member `eventId`, the cursor with which the stream can be resumed. Two
//! notifications end requests: [`CANCEL`] from the client, and [`ended`] from the gateway.

use std::borrow::Cow;

use bytes::Bytes;
use longshore_model::{Error, EventId, Result};
use serde_json::value::RawValue;

use super::{Id, id_of, write_id};
use crate::json::{Object, ObjectWriter, is_null, text_of};

/// The notification by which a client ends a request. The task of the request continues.
pub const CANCEL: &str = "$/cancelRequest";

/// The notification that tells the client that a request gets no further response, because its stream is complete or it was
/// canceled.
const ENDED: &str = "$/requestEnded";

/// The names of the service parameters, in the spelling of the HTTP headers.
const PARAMETERS: &[&str] =
    &["A2A-Version", "A2A-Extensions", "X-A2A-Extensions", "Last-Event-ID", "traceparent", "tracestate"];

/// The beginning of the member with the event id, which is the last member of a response.
const EVENT_ID: &str = ",\"eventId\":\"";

/// Whether a method controls the connection and is not an A2A method. JSON-RPC reserves no names for such methods, so their names
/// begin with `$/`, as in the Language Server Protocol.
pub fn is_connection_method(method: &str) -> bool {
    method.starts_with("$/")
}

/// The service parameters of a request, as names and values. Ignores unknown names, as unknown headers are ignored.
pub fn service_parameters(raw: &RawValue) -> Result<Vec<(&'static str, Cow<'_, str>)>> {
    let object = Object::read(raw, PARAMETERS)
        .map_err(|_| Error::invalid("serviceParameters", "must be an object"))?;
    let given = PARAMETERS.iter().filter_map(|name| Some((*name, object.raw(name)?)));
    given
        .filter(|(_, value)| !is_null(value))
        .map(|(name, value)| {
            let text = text_of(value.get());
            let field = || format!("serviceParameters.{name}");
            text.map(|text| (name, text)).ok_or_else(|| Error::invalid(field(), "must be a string"))
        })
        .collect()
}

/// The id of the request that the client ends. `None`: the notification contains none.
pub fn canceled(params: Option<&RawValue>) -> Option<Id> {
    let params = Object::read(params?, &["id"]).ok()?;
    id_of(params.raw("id")?)
}

/// The notification for a request that has no further response.
pub fn ended(id: &Id) -> Bytes {
    let mut out = Vec::with_capacity(80);
    let mut object = ObjectWriter::begin(&mut out);
    object.text("jsonrpc", "2.0");
    object.text("method", ENDED);
    object.object("params", |params| write_id(params.key("id"), id));
    object.end();
    out.into()
}

/// The end of a response whose result is an event: the member with its id, and the closing brace.
pub fn event_tail(id: EventId) -> String {
    format!("{EVENT_ID}{id}\"}}")
}

/// The length of [`event_tail`] without the id.
pub const EVENT_TAIL_LENGTH: usize = EVENT_ID.len() + 2;

#[cfg(test)]
mod tests {
    use longshore_model::{Epoch, Seq};

    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn service_parameters_are_texts_with_known_names() {
        type Expected = std::result::Result<Vec<(&'static str, &'static str)>, &'static str>;

        let cases: [(&str, Expected); 6] = [
            ("{}", Ok(vec![])),
            (r#"{"A2A-Version":"1.0","x":1}"#, Ok(vec![("A2A-Version", "1.0")])),
            (r#"{"Last-Event-ID":null}"#, Ok(vec![])),
            (
                r#"{"Last-Event-ID":"17.3","A2A-Extensions":"a, b"}"#,
                Ok(vec![("A2A-Extensions", "a, b"), ("Last-Event-ID", "17.3")]),
            ),
            (r#"{"Last-Event-ID":17}"#, Err("serviceParameters.Last-Event-ID")),
            ("[]", Err("serviceParameters")),
        ];
        for (json, expected) in cases {
            let given = raw(json);
            let found = service_parameters(&given);
            let found =
                found.as_ref().map(|found| found.iter().map(|(name, value)| (*name, &**value)).collect());
            let found = found.map_err(|error| error.violations()[0].field.as_str());
            assert_eq!(found, expected, "{json}");
        }
    }

    #[test]
    fn the_notifications_name_the_request() {
        assert_eq!(canceled(Some(&raw(r#"{"id":"a"}"#))), Some(Id::String("a".to_owned())));
        for json in ["{}", r#"{"id":{}}"#, "[7]"] {
            assert_eq!(canceled(Some(&raw(json))), None, "{json}");
        }
        let ended = ended(&Id::Number("7".to_owned()));
        assert_eq!(ended, r#"{"jsonrpc":"2.0","method":"$/requestEnded","params":{"id":7}}"#);
    }

    #[test]
    fn the_length_of_the_tail_is_exact() {
        let id = EventId::new(Seq(17), Epoch(3));
        assert_eq!(event_tail(id), r#","eventId":"17.3"}"#);
        assert_eq!(event_tail(id).len(), EVENT_TAIL_LENGTH + id.to_string().len());
    }
}
