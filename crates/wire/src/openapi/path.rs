//! Builds the paths of the document, with the operation of each verb.

use serde_json::{Map, Value, json};

use super::schema::{Dialect, reference};
use super::{example, extension, parameter, response, security};
use crate::contract::{Audience, Deployment, method};
use crate::surface::{
    Access, Endpoint, OPERATIONS, Operation, Params, ProtocolVersion, ROUTES, Route, Served, Verb,
};
use crate::v1::method::Method;

const DISCOVERY: &str = "Discovery";
const RPC: &str = "JSON-RPC";

pub(super) fn all(deployment: &Deployment, audience: Audience) -> Map<String, Value> {
    let mut paths = Map::new();
    for route in &ROUTES {
        let is_seen = route.access != Access::Credential || audience == Audience::Authenticated;
        let is_served = route.served != Served::Metrics || deployment.metrics;
        if is_seen && is_served {
            for verb in route.verbs {
                let operation = of_route(deployment, route, *verb);
                add(&mut paths, Endpoint { verb: *verb, path: route.path }, operation);
            }
            paths[route.path]["servers"] = servers(deployment, versions_of(route));
        }
    }
    if audience == Audience::Anonymous {
        return paths;
    }
    for version in ProtocolVersion::ALL {
        for operation in &OPERATIONS {
            for endpoint in operation.rest(version) {
                add(&mut paths, *endpoint, of_operation(deployment, operation, version, *endpoint));
                paths[endpoint.path]["servers"] = servers(deployment, &[version]);
            }
        }
    }
    paths
}

fn add(paths: &mut Map<String, Value>, endpoint: Endpoint, operation: Value) {
    let item = paths.entry(endpoint.path).or_insert_with(|| {
        let parameters = parameter::of_path(endpoint.path);
        if parameters.is_empty() { json!({}) } else { json!({"parameters": parameters}) }
    });
    item[endpoint.verb.as_str().to_ascii_lowercase()] = operation;
}

/// The URLs of the root and of the bases of these versions.
fn servers(deployment: &Deployment, versions: &[ProtocolVersion]) -> Value {
    let url = deployment.public_url.trim_end_matches('/');
    let mut servers = vec![json!({"url": url})];
    servers.extend(versions.iter().map(|version| json!({"url": format!("{url}{}", version.base())})));
    Value::from(servers)
}

/// The versions under whose base paths a route is also served.
fn versions_of(route: &Route) -> &[ProtocolVersion] {
    match (route.served, &route.version) {
        (Served::Rpc | Served::Card, Some(version)) => std::slice::from_ref(version),
        (Served::Rpc | Served::Card, None) => &ProtocolVersion::ALL,
        _ => &[],
    }
}

pub(super) fn tags(audience: Audience) -> Vec<Value> {
    let mut tags = vec![json!({"name": DISCOVERY, "description": "Descriptions of this gateway."})];
    if audience == Audience::Authenticated {
        tags.push(json!({"name": RPC, "description": "All operations of both versions, and the methods of extensions."}));
        for version in ProtocolVersion::ALL {
            let description = format!("The HTTP+JSON binding of A2A {}.", version.as_str());
            tags.push(json!({"name": tag(version), "description": description}));
        }
    }
    tags
}

fn tag(version: ProtocolVersion) -> String {
    format!("REST {}", version.as_str())
}

fn of_operation(
    deployment: &Deployment,
    operation: &Operation,
    version: ProtocolVersion,
    endpoint: Endpoint,
) -> Value {
    let dialect = match version {
        ProtocolVersion::V1 => Dialect::V1,
        ProtocolVersion::V03 => Dialect::V03Rest,
    };
    let mut parameters = parameter::of_operation(deployment, operation.method, version);
    if operation.method == Method::ListTasks {
        parameters.extend(parameter::of_list(dialect));
    }
    if operation.params == Params::PushConfigs {
        parameters.extend(parameter::of_push_list());
    }
    if operation.method == Method::GetTask {
        parameters.push(parameter::history_length(dialect));
    }
    if operation.method == Method::GetExtendedAgentCard {
        parameters.push(parameter::if_none_match());
    }
    if operation.streams {
        parameters.push(parameter::last_event_id());
    }
    let mut responses = answer(deployment, operation, version, dialect, endpoint.verb);
    responses.extend(response::errors(version));
    let mut entry = json!({
        "tags": [tag(version)],
        "operationId": operation_id(operation, version, endpoint),
        "summary": operation.summary,
        "parameters": parameters,
    });
    if let Some(kind) = operation.refused(deployment) {
        let (_, word) = method::code(version, kind);
        entry["description"] = json!(format!("Switched off: every call is refused ({word})."));
    }
    if (operation.method, version) == (Method::SendMessage, ProtocolVersion::V03) {
        entry["description"] = json!("The response comes at once, unless configuration.blocking is true.");
    }
    if let Some(body) = body(deployment, operation, dialect, endpoint.verb) {
        entry["requestBody"] = body;
    }
    entry["responses"] = Value::Object(responses);
    entry
}

/// The id of an operation. If an operation has several endpoints, each gets a longer id.
fn operation_id(operation: &Operation, version: ProtocolVersion, endpoint: Endpoint) -> String {
    let version_word = match version {
        ProtocolVersion::V1 => "v1",
        ProtocolVersion::V03 => "v03",
    };
    let mut id = format!("{version_word}_{}", operation.method.as_str());
    let endpoints = operation.rest(version);
    if endpoints.len() > 1 {
        id = format!("{id}_{}", endpoint.verb.as_str().to_ascii_lowercase());
    }
    if endpoints[0].path != endpoint.path {
        id.push_str("_alias");
    }
    id
}

fn answer(
    deployment: &Deployment,
    operation: &Operation,
    version: ProtocolVersion,
    dialect: Dialect,
    verb: Verb,
) -> Map<String, Value> {
    if operation.refused(deployment).is_some() {
        return Map::new();
    }
    if operation.streams {
        return ok(response::events(&dialect.reference("StreamResponse")));
    }
    let name = match operation.method {
        Method::SendMessage => "SendMessageResponse",
        Method::ListTasks => "TaskPage",
        Method::CreateTaskPushNotificationConfig | Method::GetTaskPushNotificationConfig => {
            "TaskPushNotificationConfig"
        }
        Method::ListTaskPushNotificationConfigs => "TaskPushNotificationConfigPage",
        Method::DeleteTaskPushNotificationConfig => {
            return ok(response::json(version, &json!({"type": "object"})));
        }
        Method::GetExtendedAgentCard => return card(&dialect_card(version), verb),
        _ => "Task",
    };
    ok(response::json(version, &dialect.reference(name)))
}

fn dialect_card(version: ProtocolVersion) -> Value {
    match version {
        ProtocolVersion::V1 => reference("AgentCard"),
        ProtocolVersion::V03 => reference("V03AgentCard"),
    }
}

fn ok(response: Value) -> Map<String, Value> {
    Map::from_iter([("200".to_owned(), response)])
}

fn card(schema: &Value, verb: Verb) -> Map<String, Value> {
    response::cached("The card.", schema, verb)
}

fn body(deployment: &Deployment, operation: &Operation, dialect: Dialect, verb: Verb) -> Option<Value> {
    if verb != Verb::Post {
        return None;
    }
    let (schema, is_required) = match operation.method {
        Method::SendMessage | Method::SendStreamingMessage => (dialect.reference("SendMessageRequest"), true),
        Method::CreateTaskPushNotificationConfig => {
            (dialect.reference("CreateTaskPushNotificationConfigRequest"), true)
        }
        // The body may be empty. If it is an object, only its id is read, which must equal the id in the path.
        _ => (json!({"type": "object", "additionalProperties": true}), false),
    };
    let mut media = json!({"application/json": {"schema": schema}});
    if operation.params == Params::Message {
        media["application/json"]["examples"] = Value::Object(example::sends(deployment, dialect));
    }
    if dialect == Dialect::V1 {
        media["application/a2a+json"] = json!({"schema": schema});
    }
    Some(json!({"required": is_required, "content": media}))
}

fn of_route(deployment: &Deployment, route: &Route, verb: Verb) -> Value {
    let mut entry =
        json!({"tags": [DISCOVERY], "operationId": route_id(route, verb), "summary": route.summary});
    let mut responses = match route.served {
        Served::Rpc => {
            entry["tags"] = json!([RPC]);
            entry["parameters"] = json!(parameter::of_rpc());
            entry["requestBody"] = json!({
                "required": true,
                "content": {
                    "application/json": {
                        "schema": reference("JsonRpcRequest"),
                        "examples": example::calls(deployment),
                    },
                },
            });
            let contracts = extension::contracts(deployment, Audience::Authenticated);
            entry["x-a2a-extension-contracts"] = Value::Object(contracts);
            response::rpc()
        }
        Served::Card => {
            entry["parameters"] =
                json!([parameter::version(&ProtocolVersion::ALL), parameter::if_none_match()]);
            let both = json!({"anyOf": [reference("AgentCard"), reference("V03AgentCard")]});
            card(&both, verb)
        }
        Served::File => {
            entry["parameters"] = json!([parameter::if_none_match(), parameter::range()]);
            response::file(verb)
        }
        Served::Health => response::health(verb),
        Served::OpenApi => {
            entry["parameters"] = json!([parameter::if_none_match()]);
            let document = json!({"type": "object", "additionalProperties": true});
            let mut responses = response::cached("The document.", &document, verb);
            responses.insert("401".to_owned(), response::error(ProtocolVersion::V1, 401));
            responses
        }
        Served::Metrics => response::metrics(verb),
        Served::Alive => ok(json!({"description": "The gateway runs."})),
        // These routes are not among those that the document lists.
        Served::WebSocket | Served::Mcp => Map::new(),
    };
    // Requests that need no credential do not count towards the rate limit.
    let is_counted = route.access != Access::Anybody;
    for status in response::OF_ANY_PATH.into_iter().filter(|status| is_counted || *status != 429) {
        responses.entry(status.to_string()).or_insert_with(|| response::error(ProtocolVersion::V1, status));
    }
    match route.access {
        Access::Anybody => entry["security"] = json!([]),
        Access::Graded => {
            let mut alternatives = vec![json!({})];
            alternatives.extend(security(deployment));
            entry["security"] = json!(alternatives);
        }
        Access::Credential => {}
    }
    entry["responses"] = Value::Object(responses);
    entry
}

fn route_id(route: &Route, verb: Verb) -> String {
    let name = match (route.served, route.version) {
        (Served::Rpc, _) => "call",
        (Served::Card, None) => "card",
        (Served::Card, Some(_)) => "old_card",
        (Served::File, _) => "artifact",
        (Served::Health, _) => "health",
        (Served::OpenApi, _) => "openapi",
        (Served::Metrics, _) => "metrics",
        (Served::Alive, _) => "livez",
        (Served::WebSocket, _) => "websocket",
        (Served::Mcp, _) => "mcp",
    };
    format!("{name}_{}", verb.as_str().to_ascii_lowercase())
}
