//! What a caller asks of the gateway in metadata. Everything else in there is carried, not read.

use longshore_model::{Metadata, SessionId};
use serde_json::value::RawValue;

use super::params::id;
use crate::json::{Object, Read, some_text};

/// `shared.session.id`, in the request's metadata or else in the message's. Blank is absent.
pub(super) fn session(request: Option<&Metadata>, message: Option<&Metadata>) -> Read<Option<SessionId>> {
    if let Some(session) = session_in(request).map_err(|fault| fault.under("metadata"))? {
        return Ok(Some(session));
    }
    session_in(message).map_err(|fault| fault.under("metadata").under("message"))
}

fn session_in(metadata: Option<&Metadata>) -> Read<Option<SessionId>> {
    let Some(metadata) = metadata else { return Ok(None) };
    let read_id = |raw: &RawValue| some_text(raw)?.map(|text| id(&text, SessionId::parse)).transpose();
    let read_session = |raw: &RawValue| Object::read(raw, &["id"])?.optional("id", read_id);
    let read_shared = |raw: &RawValue| Object::read(raw, &["session"])?.optional("session", read_session);
    let session = Object::read(metadata.json().raw(), &["shared"])?.optional("shared", read_shared)?;
    Ok(session.flatten().flatten().flatten())
}

#[cfg(test)]
mod tests {
    use crate::v1::decode::send_message;

    fn session_of(request: &str, message: &str) -> Result<Option<String>, String> {
        let json = format!(
            r#"{{"metadata":{request},"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"x"}}],"metadata":{message}}}}}"#
        );
        match send_message(&json) {
            Ok(command) => Ok(command.session.map(|session| session.to_string())),
            Err(error) => Err(error.violations()[0].field.clone()),
        }
    }

    #[test]
    fn a_session_is_named_in_either_metadata() {
        let named = |id: &str| format!(r#"{{"shared":{{"session":{{"id":"{id}"}}}},"other":1}}"#);
        let cases = [
            (named("ses_1"), "null".to_owned(), Ok(Some("ses_1"))),
            ("null".to_owned(), named("ses_2"), Ok(Some("ses_2"))),
            (named("ses_1"), named("ses_2"), Ok(Some("ses_1"))),
            (named(""), named("ses_2"), Ok(Some("ses_2"))),
            ("{}".to_owned(), r#"{"shared":null}"#.to_owned(), Ok(None)),
            (r#"{"shared":{"session":null}}"#.to_owned(), "null".to_owned(), Ok(None)),
            (named("a/b"), "null".to_owned(), Err("metadata.shared.session.id")),
            (named("..%2fconfig"), "null".to_owned(), Err("metadata.shared.session.id")),
            ("null".to_owned(), named("a%2fb"), Err("message.metadata.shared.session.id")),
            (
                r#"{"shared":{"session":{"id":7}}}"#.to_owned(),
                "null".to_owned(),
                Err("metadata.shared.session.id"),
            ),
            (r#"{"shared":[]}"#.to_owned(), "null".to_owned(), Err("metadata.shared")),
        ];
        for (request, message, expected) in cases {
            let expected = expected.map(|id| id.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(session_of(&request, &message), expected, "{request} {message}");
        }
    }
}
