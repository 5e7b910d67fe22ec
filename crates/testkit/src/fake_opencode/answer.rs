//! The answer to a request, and the shapes of OpenCode's refusals.

use longshore_opencode_shapes::{NamedError, to_value};
use serde_json::{Value, json};

use super::streams::Connection;

#[derive(Debug)]
pub(super) enum Answer {
    /// A null body is an empty one. `stored`: session and message of the prompt that this answers.
    Json {
        status: u16,
        body: Value,
        stored: Option<(String, String)>,
    },
    /// A body as it is, with the content type `kind`.
    Raw {
        status: u16,
        kind: &'static str,
        body: String,
    },
    /// A page of the message list, and the cursor of the page before it.
    Messages {
        page: Vec<Value>,
        cursor: Option<String>,
    },
    Events(Connection),
    /// The web page that OpenCode answers unknown paths with.
    Page,
}

/// The part of a request that a `BadRequest` is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Params,
    Query,
    Payload,
}

pub(super) fn ok(body: Value) -> Answer {
    with_status(200, body)
}

pub(super) fn with_status(status: u16, body: Value) -> Answer {
    Answer::Json { status, body, stored: None }
}

/// The body `null`, which differs from an empty body.
pub(super) fn null() -> Answer {
    Answer::Raw { status: 200, kind: "application/json", body: "null".to_owned() }
}

pub(super) fn busy(session: &str) -> Answer {
    let message = format!("Session is busy: {session}");
    with_status(409, json!({"_tag": "SessionBusyError", "sessionID": session, "message": message}))
}

/// OpenCode's answer with this error status. 401 has no body.
pub(super) fn failure(status: u16) -> Answer {
    let body = match status {
        401 => Value::Null,
        _ => json!({"name": "UnknownError", "data": {
            "message": "Unexpected server error. Check server logs for details.", "ref": "err_0021d745",
        }}),
    };
    with_status(status, body)
}

pub(super) fn not_found(message: &str) -> Answer {
    named(404, "NotFoundError", message)
}

pub(super) fn named(status: u16, name: &str, message: &str) -> Answer {
    with_status(status, to_value(&NamedError::new(name, message)))
}

pub(super) fn bad_request(kind: Kind, message: &str) -> Answer {
    let kind = format!("{kind:?}");
    with_status(400, json!({"name": "BadRequest", "data": {"message": message, "kind": kind}}))
}

/// Some endpoints refuse like this, without a reason.
pub(super) fn tagged_bad_request() -> Answer {
    with_status(400, json!({"_tag": "BadRequest"}))
}
