//! The methods about the sessions that the agent keeps, for agents without methods of their own.

use longshore_model::{
    Control, ControlCommand, ControlQuery, ControlRequest, ErrorKind, RequestedDirectory, RequestedLocation,
    SessionId, SessionInfo, SessionQuery,
};
use serde_json::{Value, json};

use crate::contract::params::errors_of;
use crate::contract::{Deployment, method};
use crate::extension::Extension;
use crate::json::ObjectWriter;
use crate::methods::item::{always, sometimes};
use crate::methods::{
    Answer, Args, CHECKED, Call, Effect, Field, FieldType, IdKind, Item, ItemType, Kind, Method, Param,
    Stability, Switch,
};
use crate::surface::ProtocolVersion;

/// The methods that only some agents offer. The remaining method needs only what the gateway itself knows.
pub const LIST: &str = "a2a.sessions.list";
pub const FORK: &str = "a2a.sessions.fork";
pub const DELETE: &str = "a2a.sessions.delete";

pub const SESSION: Item = &ItemType::new("Session", "A session of the agent.", SESSION_FIELDS);

const SESSION_FIELDS: &[Field] = &[
    always("id", FieldType::Id, "The session. A message continues it with `metadata.shared.session.id`."),
    always("title", FieldType::Text, "Its title, which may be empty."),
    sometimes("directory", FieldType::Text, "The directory of the session."),
];

const SESSION_ID: Param = Param::required(
    "session_id",
    Kind::Id(IdKind { name: "Session", prefix: "", agent: "" }),
    "The session of the agent.",
);

const DIRECTORY: Param =
    Param::optional("directory", Kind::Directory, "The directory; the default is the root of the workspace.");

const LIMIT: Param = Param::optional(
    "limit",
    Kind::Int { min: 1, max: 100, default: Some(20) },
    "The maximum number of items.",
);

/// The errors of a request to the agent. `UnsupportedOperation` means that the agent does not offer the method.
const AGENT: &[ErrorKind] = &[
    ErrorKind::UnsupportedOperation,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

const OF_SESSION: &[ErrorKind] = &[
    ErrorKind::SessionNotFound,
    ErrorKind::SessionForbidden,
    ErrorKind::UnsupportedOperation,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

const DELETION: &[ErrorKind] = &[
    ErrorKind::AuthorizationForbidden,
    ErrorKind::SessionNotFound,
    ErrorKind::SessionForbidden,
    ErrorKind::SessionBusy,
    ErrorKind::UnsupportedOperation,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

const GET: Method = Method {
    name: "a2a.sessions.get",
    key: "get_session",
    extension: Extension::SessionManagement,
    summary: "Reads a session of the caller.",
    params: &[SESSION_ID],
    first: 0,
    paged: false,
    result: Answer::Item(SESSION),
    effect: Effect::Read,
    switch: None,
    upstream: &[],
    errors: OF_SESSION,
    stability: Stability::Stable,
    build: |args| call(args, Control::Query(ControlQuery::Session(session(args)))),
};

pub(crate) static METHODS: [Method; 4] = [
    Method {
        name: LIST,
        key: "list_sessions",
        summary: "Lists the caller's sessions in a directory, in the order of the agent.",
        params: &[LIMIT, DIRECTORY],
        paged: true,
        result: Answer::Items(SESSION),
        errors: AGENT,
        build: |args| {
            let limit = args.int("limit").and_then(|limit| u32::try_from(limit).ok()).expect(CHECKED);
            let query = SessionQuery { limit, roots: None, start: None, search: None };
            call(args, Control::Query(ControlQuery::Sessions(query)))
        },
        ..GET
    },
    GET,
    Method {
        name: FORK,
        key: "fork",
        summary: "Copies a session. The copy belongs to the caller.",
        effect: Effect::Mutate,
        build: |args| {
            call(args, Control::Command(ControlCommand::Fork { session: session(args), before: None }))
        },
        ..GET
    },
    Method {
        name: DELETE,
        key: "delete",
        summary: "Deletes a session with its messages, unless a turn runs in it.",
        result: Answer::Done,
        effect: Effect::Mutate,
        switch: Some(Switch::SessionDelete),
        errors: DELETION,
        build: |args| call(args, Control::Command(ControlCommand::Delete(session(args)))),
        ..GET
    },
];

/// The parameters of the extension in the extended card.
pub(crate) fn params(deployment: &Deployment, version: ProtocolVersion, extension: Extension) -> Value {
    if extension != Extension::SessionManagement {
        return json!({});
    }
    let by_effect = |effect| method::names_by_effect(deployment, extension, effect);
    json!({
        "methods": method::names(deployment, extension),
        "read_methods": by_effect(Effect::Read),
        "mutation_methods": by_effect(Effect::Mutate),
        "control_method_flags": method::flags(deployment, extension),
        "method_capabilities": method::capabilities(deployment, extension),
        "method_contracts": method::contracts(deployment, version, extension),
        "errors": errors_of(deployment, version, extension),
        "upstream_session_id_field": "metadata.shared.session.id",
        "notes": [
            "A session belongs to the caller for whom it was created. Sessions of others are refused unless the operator shares \
             them; unowned sessions are for callers with the capability session_claim.",
            "A method that the agent turns out to lack fails with UNSUPPORTED_OPERATION.",
        ],
    })
}

/// Example calls: their names and parameters.
pub(crate) fn examples() -> Vec<(&'static str, Value)> {
    let id = "0b6f6c1e-6a0e-4f6e-9d52-2f1c0f3f8f10";
    vec![(LIST, json!({"limit": 20})), (FORK, json!({"session_id": id}))]
}

pub(crate) fn write(out: &mut Vec<u8>, info: &SessionInfo) {
    let mut item = ObjectWriter::begin(out);
    item.text("id", info.id.as_str());
    item.text("title", &info.title);
    item.some_text("directory", info.directory.as_deref());
    item.end();
}

fn session(args: &Args) -> SessionId {
    args.text("session_id").and_then(|id| SessionId::parse(id).ok()).expect(CHECKED)
}

fn call(args: &Args, control: Control) -> Call {
    let directory = args.text("directory");
    let directory = directory.map(|path| RequestedDirectory { path: path.to_owned(), field: DIRECTORY.name });
    let location = RequestedLocation { directory, workspace: None };
    Call::Control(ControlRequest { control, location })
}

#[cfg(test)]
mod tests {
    use longshore_model::ControlResult;

    use super::*;
    use crate::extension::Activated;

    #[test]
    fn a_call_has_its_session_and_its_directory() {
        let read = |at: usize, params: &str| {
            METHODS[at].read(ProtocolVersion::V1, params, Activated::ALL).map(|call| match call {
                Call::Control(request) => request,
                other => panic!("{other:?}"),
            })
        };
        let list = read(0, r#"{"directory": "sub"}"#).unwrap();
        assert_eq!(list.location.directory.unwrap().path, "sub");
        let fork = read(2, r#"{"session_id": "s1"}"#).unwrap();
        assert_eq!(fork.control.session().unwrap().as_str(), "s1");
        for params in ["{}", r#"{"session_id": "a b"}"#, r#"{"session_id": "s1", "more": 1}"#] {
            assert_eq!(read(3, params).unwrap_err().kind(), ErrorKind::InvalidParams, "{params}");
        }
    }

    #[test]
    fn sessions_are_written_as_the_table_says() {
        let info = SessionInfo {
            id: SessionId::parse("s1").unwrap(),
            title: "A \"title\"".to_owned(),
            project: None,
            directory: Some("/w".to_owned()),
            parent: None,
            workspace: None,
            version: None,
            share_url: None,
            revert: None,
            created: None,
            updated: None,
        };
        let expected = json!({"id": "s1", "title": "A \"title\"", "directory": "/w"});
        let answer = |at: usize, result| {
            let bytes = METHODS[at].answer(&result, ProtocolVersion::V1).unwrap();
            serde_json::from_slice::<Value>(&bytes).unwrap()
        };
        assert_eq!(answer(0, ControlResult::Sessions(vec![info.clone()])), json!({"items": [expected]}));
        assert_eq!(answer(2, ControlResult::Session(info)), json!({"item": expected}));
    }
}
