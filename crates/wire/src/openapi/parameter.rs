//! Parameters in paths, queries and headers.

use serde_json::{Value, json};

use super::schema::{self, Dialect, list_fields, reference};
use crate::contract::{Deployment, MissingVersion};
use crate::extension::HEADER;
use crate::surface::ProtocolVersion;
use crate::v1::method::Method;

/// The variable segments of a path.
pub(super) fn of_path(path: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name);
    names
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": reference("Id")}))
        .collect()
}

/// The headers of every REST operation of a version. A header is required if a request without it is refused.
pub(super) fn of_operation(deployment: &Deployment, method: Method, version: ProtocolVersion) -> Vec<Value> {
    let (mut version_header, mut extensions) = (self::version(&[version]), extensions());
    if version == ProtocolVersion::V1 {
        if deployment.missing_version == MissingVersion::V03 {
            // At the root, a request without this header counts as 0.3, so the header is required. Under the base of 1.0 it is
            // optional, but a parameter cannot express that difference.
            version_header["required"] = json!(true);
        }
        if !deployment.required_extensions.is_empty() && method != Method::GetExtendedAgentCard {
            extensions["required"] = json!(true);
        }
    }
    vec![version_header, extensions]
}

pub(super) fn of_rpc() -> Vec<Value> {
    vec![version(&ProtocolVersion::ALL), extensions(), last_event_id()]
}

pub(super) fn of_list(dialect: Dialect) -> Vec<Value> {
    let fields = list_fields(dialect);
    let fields = fields.as_object().into_iter().flatten();
    fields.map(|(name, schema)| json!({"name": name, "in": "query", "schema": schema})).collect()
}

pub(super) fn of_push_list() -> [Value; 2] {
    ["pageSize", "pageToken"]
        .map(|name| json!({"name": name, "in": "query", "schema": schema::push_list_fields()[name]}))
}

pub(super) fn history_length(dialect: Dialect) -> Value {
    json!({"name": "historyLength", "in": "query", "schema": schema::history_length(dialect)})
}

pub(super) fn last_event_id() -> Value {
    json!({
        "name": "Last-Event-ID",
        "in": "header",
        "description": "The id of the last event that the caller received: the stream of a task continues after it.",
        "schema": {"type": "string", "pattern": "^[0-9]{1,15}([.]([0-9]{1,9}|[1-3][0-9]{9}))?$"},
    })
}

pub(super) fn if_none_match() -> Value {
    json!({
        "name": "If-None-Match",
        "in": "header",
        "description": "The entity tags of the versions that the caller has.",
        "schema": {"type": "string"},
    })
}

pub(super) fn range() -> Value {
    json!({
        "name": "Range",
        "in": "header",
        "description": "The requested bytes, as one range.",
        "schema": {"type": "string"},
    })
}

/// The `A2A-Version` header. It also permits a patch number, which has no effect.
pub(super) fn version(versions: &[ProtocolVersion]) -> Value {
    let versions: Vec<&str> = versions.iter().map(|version| version.as_str()).collect();
    json!({
        "name": "A2A-Version",
        "in": "header",
        "description": "The version of A2A. Without the header, a query parameter of this name counts.",
        "schema": {"type": "string", "enum": versions},
    })
}

fn extensions() -> Value {
    json!({
        "name": HEADER,
        "in": "header",
        "description": "The URIs of the extensions that the caller activates, separated by commas.",
        "schema": {"type": "string"},
    })
}
