//! Lists everything that a client can call: one table of the operations in both versions and all bindings, and one of all other
//! paths.
//!
//! Cards, contracts and the `OpenAPI` document are generated from these tables and from those of the extensions, so no document can
//! promise anything that is not served.

use std::fmt;

use longshore_model::ErrorKind;

use crate::contract::Deployment;
use crate::methods;
use crate::v1::method::Method;

/// A version of the A2A protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum ProtocolVersion {
    V1,
    V03,
}

impl ProtocolVersion {
    /// All versions, the newest first.
    pub const ALL: [Self; 2] = [Self::V1, Self::V03];

    /// The version in the spelling of `A2A-Version` and of the documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "1.0",
            Self::V03 => "0.3",
        }
    }

    /// The gRPC service of this version.
    pub fn grpc_service(self) -> &'static str {
        match self {
            Self::V1 => "lf.a2a.v1.A2AService",
            Self::V03 => "a2a.v1.A2AService",
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

/// The verbs, in the order of the header `Allow`.
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

/// An HTTP verb and a path. Variable path segments are in braces.
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

/// An operation of A2A: the row from which bindings, documents and logs get all facts about the operation.
#[derive(Debug)]
pub struct Operation {
    pub method: Method,
    pub summary: &'static str,
    pub params: Params,
    /// Whether the response is a stream of events.
    pub streams: bool,
    /// The callers that may use the operation, in every binding.
    pub access: Access,
    /// Whether the caller must have activated the extensions that the deployment requires.
    pub needs_extensions: bool,
    /// The JSON-RPC method of 0.3. The method of 1.0 is the name of the operation.
    old_name: &'static str,
    /// The gRPC call of 0.3. The call of 1.0 is the name of the operation. `None`: 0.3 has no such call.
    old_grpc: Option<&'static str>,
    rest: &'static [Endpoint],
    old_rest: &'static [Endpoint],
}

/// The kind of an operation's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Params {
    /// A message, and how the gateway responds to it.
    Message,
    Task,
    /// A task, and how much of its history is returned.
    TaskWithHistory,
    List,
    /// A push configuration to register for a task.
    NewPushConfig,
    /// A task and one of its push configurations.
    PushConfig,
    /// A task, and which page of its push configurations is returned.
    PushConfigs,
    /// The operation has no parameters, and ignores any that it gets.
    Ignored,
}

impl Operation {
    /// The JSON-RPC method.
    pub fn jsonrpc(&self, version: ProtocolVersion) -> &'static str {
        match version {
            ProtocolVersion::V1 => self.method.as_str(),
            ProtocolVersion::V03 => self.old_name,
        }
    }

    /// The name of the call in the gRPC service of a version.
    pub fn grpc(&self, version: ProtocolVersion) -> Option<&'static str> {
        match version {
            ProtocolVersion::V1 => Some(self.method.as_str()),
            ProtocolVersion::V03 => self.old_grpc,
        }
    }

    /// The row of an operation.
    pub fn of(method: Method) -> &'static Self {
        let row = OPERATIONS.iter().find(|operation| operation.method == method);
        row.expect("a test checks that every operation has a row")
    }

    /// The operation with this JSON-RPC method. `None`: the version has no such operation.
    pub fn by_jsonrpc(version: ProtocolVersion, name: &str) -> Option<&'static Self> {
        OPERATIONS.iter().find(|operation| operation.jsonrpc(version) == name)
    }

    /// The error for every call, if the operator has disabled the operation. `None`: the operation is enabled.
    pub fn refused(&self, deployment: &Deployment) -> Option<ErrorKind> {
        let is_push = matches!(self.params, Params::NewPushConfig | Params::PushConfig | Params::PushConfigs);
        (is_push && !deployment.push).then_some(ErrorKind::PushNotSupported)
    }

    /// The version and operation of a gRPC call with this path (`/service/call`).
    pub fn by_grpc(path: &str) -> Option<(ProtocolVersion, &'static Self)> {
        let (service, call) = path.strip_prefix('/')?.split_once('/')?;
        let version = ProtocolVersion::ALL.into_iter().find(|version| version.grpc_service() == service)?;
        let operation = OPERATIONS.iter().find(|operation| operation.grpc(version) == Some(call))?;
        Some((version, operation))
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
pub static OPERATIONS: [Operation; 11] = [
    Operation {
        method: Method::SendMessage,
        summary: "Sends a message and returns the task when it ends or needs input, or at once if requested.",
        params: Params::Message,
        streams: false,
        access: Access::Credential,
        needs_extensions: true,
        old_name: "message/send",
        old_grpc: Some("SendMessage"),
        rest: &[post("/message:send")],
        old_rest: &[post("/v1/message:send")],
    },
    Operation {
        method: Method::SendStreamingMessage,
        summary: "Sends a message and streams the events of its task.",
        params: Params::Message,
        streams: true,
        access: Access::Credential,
        needs_extensions: true,
        old_name: "message/stream",
        old_grpc: Some("SendStreamingMessage"),
        rest: &[post("/message:stream")],
        old_rest: &[post("/v1/message:stream")],
    },
    Operation {
        method: Method::GetTask,
        summary: "Reads a task.",
        params: Params::TaskWithHistory,
        streams: false,
        access: Access::Credential,
        needs_extensions: true,
        old_name: "tasks/get",
        old_grpc: Some("GetTask"),
        rest: &[get("/tasks/{id}")],
        old_rest: &[get("/v1/tasks/{id}")],
    },
    Operation {
        method: Method::ListTasks,
        summary: "Lists the caller's tasks, the newest first.",
        params: Params::List,
        streams: false,
        access: Access::Credential,
        needs_extensions: true,
        old_name: "tasks/list",
        old_grpc: None,
        rest: &[get("/tasks")],
        old_rest: &[get("/v1/tasks")],
    },
    Operation {
        method: Method::CancelTask,
        summary: "Cancels a task that is not over.",
        params: Params::Task,
        streams: false,
        access: Access::Credential,
        needs_extensions: true,
        old_name: "tasks/cancel",
        old_grpc: Some("CancelTask"),
        rest: &[post("/tasks/{id}:cancel")],
        old_rest: &[post("/v1/tasks/{id}:cancel")],
    },
    Operation {
        method: Method::CreateTaskPushNotificationConfig,
        summary: "Registers a webhook for a task.",
        params: Params::NewPushConfig,
        streams: false,
        access: Access::Credential,
        needs_extensions: true,
        old_name: "tasks/pushNotificationConfig/set",
        old_grpc: Some("CreateTaskPushNotificationConfig"),
        rest: &[post("/tasks/{id}/pushNotificationConfigs")],
        old_rest: &[post("/v1/tasks/{id}/pushNotificationConfigs")],
    },
    Operation {
        method: Method::GetTaskPushNotificationConfig,
        summary: "Reads a webhook of a task.",
        params: Params::PushConfig,
        streams: false,
        access: Access::Credential,
        needs_extensions: true,
        old_name: "tasks/pushNotificationConfig/get",
        old_grpc: Some("GetTaskPushNotificationConfig"),
        rest: &[get("/tasks/{id}/pushNotificationConfigs/{push_id}")],
        old_rest: &[get("/v1/tasks/{id}/pushNotificationConfigs/{push_id}")],
    },
    Operation {
        method: Method::ListTaskPushNotificationConfigs,
        summary: "Lists the webhooks of a task.",
        params: Params::PushConfigs,
        streams: false,
        access: Access::Credential,
        needs_extensions: true,
        old_name: "tasks/pushNotificationConfig/list",
        old_grpc: Some("ListTaskPushNotificationConfig"),
        rest: &[get("/tasks/{id}/pushNotificationConfigs")],
        old_rest: &[get("/v1/tasks/{id}/pushNotificationConfigs")],
    },
    Operation {
        method: Method::DeleteTaskPushNotificationConfig,
        summary: "Removes a webhook of a task.",
        params: Params::PushConfig,
        streams: false,
        access: Access::Credential,
        needs_extensions: true,
        old_name: "tasks/pushNotificationConfig/delete",
        old_grpc: Some("DeleteTaskPushNotificationConfig"),
        rest: &[delete("/tasks/{id}/pushNotificationConfigs/{push_id}")],
        old_rest: &[delete("/v1/tasks/{id}/pushNotificationConfigs/{push_id}")],
    },
    Operation {
        method: Method::SubscribeToTask,
        summary: "Streams a task: its current state, then its further events.",
        params: Params::Task,
        streams: true,
        access: Access::Credential,
        needs_extensions: true,
        old_name: "tasks/resubscribe",
        old_grpc: Some("TaskSubscription"),
        // The table in the specification says POST and its protocol buffers say GET, and there are clients for both.
        rest: &[get("/tasks/{id}:subscribe"), post("/tasks/{id}:subscribe")],
        old_rest: &[get("/v1/tasks/{id}:subscribe"), post("/v1/tasks/{id}:subscribe")],
    },
    Operation {
        method: Method::GetExtendedAgentCard,
        summary: "Reads the card for callers with a credential.",
        params: Params::Ignored,
        streams: false,
        access: Access::Credential,
        needs_extensions: false,
        old_name: "agent/getAuthenticatedExtendedCard",
        old_grpc: Some("GetAgentCard"),
        rest: &[get("/extendedAgentCard"), head("/extendedAgentCard")],
        old_rest: &[
            get("/v1/card"),
            head("/v1/card"),
            get("/agent/authenticatedExtendedCard"),
            head("/agent/authenticatedExtendedCard"),
        ],
    },
];

/// The callers that may use an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Anybody,
    /// Any caller. A caller with a credential gets a longer document.
    Graded,
    Credential,
}

/// The content at a path that is not an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    Rpc,
    Card,
    File,
    Health,
    OpenApi,
    /// The metrics of the gateway, if they are enabled.
    Metrics,
    /// An empty response that shows that the gateway runs.
    Alive,
    /// Connections that carry JSON-RPC in messages, if WebSockets are enabled.
    WebSocket,
    /// The tools for MCP clients, if MCP is enabled.
    Mcp,
}

/// A path that is not an operation.
#[derive(PartialEq, Eq, Debug)]
pub struct Route {
    pub path: &'static str,
    pub verbs: &'static [Verb],
    pub access: Access,
    /// The only version with this path. `None`: both versions have it.
    pub version: Option<ProtocolVersion>,
    pub served: Served,
    pub summary: &'static str,
}

/// The paths that are not operations. (Every operation needs a credential in every binding.)
pub static ROUTES: [Route; 8] = [
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

/// The route of WebSockets, whose path is a setting. Not in [`ROUTES`], because the `OpenAPI` document cannot describe what follows
/// the handshake.
pub static WEBSOCKET: Route = Route {
    path: "/ws",
    verbs: &[Verb::Get],
    access: Access::Credential,
    version: None,
    served: Served::WebSocket,
    summary: "Opens a WebSocket that carries JSON-RPC 2.0 in text messages.",
};

/// The route of MCP, whose path is a setting. Not in [`ROUTES`], because MCP describes itself to its clients.
pub static MCP: Route = Route {
    path: "/mcp",
    verbs: &[Verb::Post],
    access: Access::Credential,
    version: None,
    served: Served::Mcp,
    summary: "Offers the agent to clients of MCP, as tools.",
};

/// The operations of a version, by their JSON-RPC names.
pub fn core_methods(version: ProtocolVersion) -> Vec<&'static str> {
    OPERATIONS.iter().map(|operation| operation.jsonrpc(version)).collect()
}

/// The served methods of the extensions, which are the same in both versions.
pub fn extension_methods(deployment: &Deployment) -> Vec<&'static str> {
    methods::enabled(deployment).map(|method| method.name).collect()
}

/// All JSON-RPC methods that are served in a version, with the extension methods at the end.
pub fn supported_methods(version: ProtocolVersion, deployment: &Deployment) -> Vec<&'static str> {
    let mut methods = core_methods(version);
    methods.extend(extension_methods(deployment));
    methods
}

/// The REST endpoints of a version. Does not list HEAD, although a path with GET may support it.
pub fn endpoints(version: ProtocolVersion) -> Vec<Endpoint> {
    let all = OPERATIONS.iter().flat_map(|operation| operation.rest(version).iter().copied());
    all.filter(|endpoint| endpoint.verb != Verb::Head).collect()
}

/// The gRPC calls of a version, each with its service.
pub fn grpc_calls(version: ProtocolVersion) -> Vec<String> {
    let calls = OPERATIONS.iter().filter_map(|operation| operation.grpc(version));
    calls.map(|call| format!("{}/{call}", version.grpc_service())).collect()
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

    /// The names must be those in the protocol buffers of the two versions.
    #[test]
    fn the_calls_of_grpc() {
        let names = |version| OPERATIONS.iter().filter_map(move |operation| operation.grpc(version));
        for version in ProtocolVersion::ALL {
            assert_eq!(names(version).count(), names(version).collect::<HashSet<_>>().len(), "{version:?}");
        }
        assert!(names(ProtocolVersion::V1).eq(OPERATIONS.iter().map(|operation| operation.method.as_str())));
        let renamed: Vec<_> = OPERATIONS
            .iter()
            .filter(|operation| operation.grpc(ProtocolVersion::V03) != operation.grpc(ProtocolVersion::V1))
            .map(|operation| operation.grpc(ProtocolVersion::V03))
            .collect();
        let list = "ListTaskPushNotificationConfig";
        assert_eq!(renamed, [None, Some(list), Some("TaskSubscription"), Some("GetAgentCard")]);
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
