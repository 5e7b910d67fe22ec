//! Lists everything that a client can call: one table of the operations in both versions and bindings, and one of all other paths.
//!
//! Cards, contracts and the `OpenAPI` document are generated from these tables and from those of the extensions, so a document
//! cannot promise anything that is not served.

use std::fmt;

use longshore_model::ErrorKind;

use crate::contract::Deployment;
use crate::methods;
use crate::v1::method::Method;
use crate::v03;

/// A version of the A2A protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum ProtocolVersion {
    V1,
    V03,
}

impl ProtocolVersion {
    /// All versions, the newest first.
    pub const ALL: [Self; 2] = [Self::V1, Self::V03];

    /// The version as `A2A-Version` and the documents spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "1.0",
            Self::V03 => "0.3",
        }
    }

    /// The path under which only this version is served.
    pub fn base(self) -> &'static str {
        match self {
            Self::V1 => "/a2a/1.0",
            Self::V03 => "/a2a/0.3",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verb {
    Get,
    Head,
    Post,
    Delete,
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }
}

/// An HTTP verb and a path. Variable path segments stand in braces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    pub verb: Verb,
    pub path: &'static str,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb.as_str(), self.path)
    }
}

/// An operation of A2A, with its names and endpoints in both versions.
#[derive(Debug)]
pub struct Operation {
    pub method: Method,
    pub summary: &'static str,
    /// Whether the response is a stream of events.
    pub streams: bool,
    /// For an operation that is known but not implemented: the error with which every call is refused.
    pub refused: Option<ErrorKind>,
    rest: &'static [Endpoint],
    old_rest: &'static [Endpoint],
}

impl Operation {
    /// The JSON-RPC method.
    pub fn jsonrpc(&self, version: ProtocolVersion) -> &'static str {
        match version {
            ProtocolVersion::V1 => self.method.as_str(),
            ProtocolVersion::V03 => v03::method::name(self.method),
        }
    }

    pub fn rest(&self, version: ProtocolVersion) -> &'static [Endpoint] {
        match version {
            ProtocolVersion::V1 => self.rest,
            ProtocolVersion::V03 => self.old_rest,
        }
    }
}

const fn get(path: &'static str) -> Endpoint {
    Endpoint { verb: Verb::Get, path }
}

const fn head(path: &'static str) -> Endpoint {
    Endpoint { verb: Verb::Head, path }
}

const fn post(path: &'static str) -> Endpoint {
    Endpoint { verb: Verb::Post, path }
}

const fn delete(path: &'static str) -> Endpoint {
    Endpoint { verb: Verb::Delete, path }
}

/// The operations, in the order in which the documents list them.
pub const OPERATIONS: [Operation; 11] = [
    Operation {
        method: Method::SendMessage,
        summary: "Sends a message and returns the task when it ends or needs input, or at once if requested.",
        streams: false,
        refused: None,
        rest: &[post("/message:send")],
        old_rest: &[post("/v1/message:send")],
    },
    Operation {
        method: Method::SendStreamingMessage,
        summary: "Sends a message and streams the events of its task.",
        streams: true,
        refused: None,
        rest: &[post("/message:stream")],
        old_rest: &[post("/v1/message:stream")],
    },
    Operation {
        method: Method::GetTask,
        summary: "Reads a task.",
        streams: false,
        refused: None,
        rest: &[get("/tasks/{id}")],
        old_rest: &[get("/v1/tasks/{id}")],
    },
    Operation {
        method: Method::ListTasks,
        summary: "Lists the caller's tasks, the newest first.",
        streams: false,
        refused: None,
        rest: &[get("/tasks")],
        old_rest: &[get("/v1/tasks")],
    },
    Operation {
        method: Method::CancelTask,
        summary: "Cancels a task that is not over.",
        streams: false,
        refused: None,
        rest: &[post("/tasks/{id}:cancel")],
        old_rest: &[post("/v1/tasks/{id}:cancel")],
    },
    Operation {
        method: Method::CreateTaskPushNotificationConfig,
        summary: "Registers a webhook for a task.",
        streams: false,
        refused: Some(ErrorKind::PushNotSupported),
        rest: &[post("/tasks/{id}/pushNotificationConfigs")],
        old_rest: &[post("/v1/tasks/{id}/pushNotificationConfigs")],
    },
    Operation {
        method: Method::GetTaskPushNotificationConfig,
        summary: "Reads a webhook of a task.",
        streams: false,
        refused: Some(ErrorKind::PushNotSupported),
        rest: &[get("/tasks/{id}/pushNotificationConfigs/{push_id}")],
        old_rest: &[get("/v1/tasks/{id}/pushNotificationConfigs/{push_id}")],
    },
    Operation {
        method: Method::ListTaskPushNotificationConfigs,
        summary: "Lists the webhooks of a task.",
        streams: false,
        refused: Some(ErrorKind::PushNotSupported),
        rest: &[get("/tasks/{id}/pushNotificationConfigs")],
        old_rest: &[get("/v1/tasks/{id}/pushNotificationConfigs")],
    },
    Operation {
        method: Method::DeleteTaskPushNotificationConfig,
        summary: "Removes a webhook of a task.",
        streams: false,
        refused: Some(ErrorKind::PushNotSupported),
        rest: &[delete("/tasks/{id}/pushNotificationConfigs/{push_id}")],
        old_rest: &[delete("/v1/tasks/{id}/pushNotificationConfigs/{push_id}")],
    },
    Operation {
        method: Method::SubscribeToTask,
        summary: "Streams a task: its current state, then its further events.",
        streams: true,
        refused: None,
        // The table of the specification says POST, its protocol buffers say GET, and there are clients for both.
        rest: &[get("/tasks/{id}:subscribe"), post("/tasks/{id}:subscribe")],
        old_rest: &[get("/v1/tasks/{id}:subscribe"), post("/v1/tasks/{id}:subscribe")],
    },
    Operation {
        method: Method::GetExtendedAgentCard,
        summary: "Reads the card for callers with a credential.",
        streams: false,
        refused: None,
        rest: &[get("/extendedAgentCard"), head("/extendedAgentCard")],
        old_rest: &[
            get("/v1/card"),
            head("/v1/card"),
            get("/agent/authenticatedExtendedCard"),
            head("/agent/authenticatedExtendedCard"),
        ],
    },
];

/// Who may call an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Anybody,
    /// Anybody, but a caller with a credential gets a longer document.
    Graded,
    Credential,
}

/// The content that is served at a path outside of the operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    Rpc,
    Card,
    File,
    Health,
    OpenApi,
    /// The metrics of the gateway, if metrics are switched on.
    Metrics,
    /// An empty response that shows that the gateway runs.
    Alive,
}

/// A path outside of the operations.
#[derive(Debug)]
pub struct Route {
    pub path: &'static str,
    pub verbs: &'static [Verb],
    pub access: Access,
    /// The only version that has this path. `None`: both have it.
    pub version: Option<ProtocolVersion>,
    pub served: Served,
    pub summary: &'static str,
}

/// The paths outside of the operations. Every operation needs a credential in every binding.
pub const ROUTES: [Route; 8] = [
    Route {
        path: "/",
        verbs: &[Verb::Post],
        access: Access::Credential,
        version: None,
        served: Served::Rpc,
        summary: "Calls an operation, or a method of an extension, by JSON-RPC 2.0.",
    },
    Route {
        path: "/.well-known/agent-card.json",
        verbs: &[Verb::Get, Verb::Head],
        access: Access::Anybody,
        version: None,
        served: Served::Card,
        summary: "Reads the public card.",
    },
    Route {
        path: "/.well-known/agent.json",
        verbs: &[Verb::Get, Verb::Head],
        access: Access::Anybody,
        version: Some(ProtocolVersion::V03),
        served: Served::Card,
        summary: "Reads the public card, at the path that the oldest clients use.",
    },
    Route {
        path: "/artifacts/{id}",
        verbs: &[Verb::Get, Verb::Head],
        access: Access::Credential,
        version: None,
        served: Served::File,
        summary: "Reads a file that a task made.",
    },
    Route {
        path: "/health",
        verbs: &[Verb::Get, Verb::Head],
        access: Access::Credential,
        version: None,
        served: Served::Health,
        summary: "Reports which parts of the gateway work.",
    },
    Route {
        path: "/openapi.json",
        verbs: &[Verb::Get, Verb::Head],
        access: Access::Graded,
        version: None,
        served: Served::OpenApi,
        summary: "Reads this document.",
    },
    Route {
        path: "/metrics",
        verbs: &[Verb::Get, Verb::Head],
        access: Access::Credential,
        version: None,
        served: Served::Metrics,
        summary: "Reads the metrics of the gateway in the format of Prometheus.",
    },
    Route {
        path: "/livez",
        verbs: &[Verb::Get, Verb::Head],
        access: Access::Anybody,
        version: None,
        served: Served::Alive,
        summary: "Reports that the gateway runs.",
    },
];

/// The operations of a version, by their JSON-RPC names.
pub fn core_methods(version: ProtocolVersion) -> Vec<&'static str> {
    OPERATIONS.iter().map(|operation| operation.jsonrpc(version)).collect()
}

/// The methods of the extensions that are served. They are the same in both versions.
pub fn extension_methods(deployment: &Deployment) -> Vec<&'static str> {
    methods::enabled(deployment).map(|method| method.name).collect()
}

/// Every JSON-RPC method that is served in a version. The methods of the extensions come last.
pub fn supported_methods(version: ProtocolVersion, deployment: &Deployment) -> Vec<&'static str> {
    let mut methods = core_methods(version);
    methods.extend(extension_methods(deployment));
    methods
}

/// The REST endpoints of a version. HEAD is not listed, although a path with GET may support it.
pub fn endpoints(version: ProtocolVersion) -> Vec<Endpoint> {
    let all = OPERATIONS.iter().flat_map(|operation| operation.rest(version).iter().copied());
    all.filter(|endpoint| endpoint.verb != Verb::Head).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn the_whole_table() {
        let mut table = String::new();
        for operation in &OPERATIONS {
            writeln!(table, "{}", operation.method.as_str()).unwrap();
            for version in ProtocolVersion::ALL {
                let name = operation.jsonrpc(version);
                let rest: Vec<String> = operation.rest(version).iter().map(ToString::to_string).collect();
                writeln!(table, "  {} {name}; {}", version.as_str(), rest.join(", ")).unwrap();
            }
        }
        for Route { path, verbs, access, version, .. } in &ROUTES {
            let verbs: Vec<&str> = verbs.iter().map(|verb| verb.as_str()).collect();
            let version = version.map_or("both", ProtocolVersion::as_str);
            writeln!(table, "{} {path} {access:?} {version}", verbs.join(", ")).unwrap();
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn every_operation_has_one_row() {
        for method in Method::ALL {
            let rows = OPERATIONS.iter().filter(|operation| operation.method == method).count();
            assert_eq!(rows, 1, "{method:?}");
        }
    }

    #[test]
    fn every_name_and_endpoint_is_unique() {
        let mut names = HashSet::new();
        let mut endpoints = HashSet::new();
        for version in ProtocolVersion::ALL {
            for operation in &OPERATIONS {
                assert!(names.insert(operation.jsonrpc(version)), "{operation:?}");
                assert!(operation.rest(version).iter().all(|endpoint| endpoints.insert(*endpoint)));
            }
        }
        assert!(crate::opencode::methods().all(|method| names.insert(method.name)));
        for route in &ROUTES {
            let mut own = route.verbs.iter().map(|verb| Endpoint { verb: *verb, path: route.path });
            assert!(own.all(|endpoint| endpoints.insert(endpoint)), "{}", route.path);
        }
    }
}
