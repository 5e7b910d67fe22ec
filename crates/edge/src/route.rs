//! Maps the path of a request to a row of the tables in [`longshore_wire::surface`], before any body is read.
//!
//! A path is split at its slashes first, and each segment is percent-decoded afterwards. So `%2F` in an id stays in the id, which
//! the check of the id then refuses, and `message%3Asend` is `message:send`. A suffix `:cancel` or `:subscribe` is a verb. Any
//! other colon belongs to the id.
//!
//! The root serves both protocol versions, each at its own paths: those of 0.3 are under `/v1`. The base path of a version
//! (`/a2a/1.0`, `/a2a/0.3`) serves only the paths of that version. JavaScript clients look for the card of `/a2a/0.3` at
//! `/a2a/.well-known`, because they replace the last segment of a base URL that has no trailing slash. So the card is served
//! there too.

use http::Method;
use longshore_wire::surface::{
    self, Access, Endpoint, MCP, OPERATIONS, Operation, ROUTES, Served, Verb, WEBSOCKET,
};
use longshore_wire::v1::method::Method as OperationName;
use percent_encoding::percent_decode_str;

use crate::grpc::GrpcServices;
use crate::version::ProtocolVersion;

/// The resource that a path names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    kind: RouteKind,
    /// The first id in the path, decoded but not validated. Empty: the path has none.
    pub(crate) id: String,
    /// The second id in the path, decoded but not validated. Empty: the path has none.
    pub(crate) sub_id: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RouteKind {
    /// A path that does not belong to an operation.
    Fixed(&'static surface::Route),
    /// The path of one or more operations, which differ by their verbs.
    Operations(ProtocolVersion, &'static str),
    /// The path of an A2A call over gRPC.
    Grpc(OperationName),
    /// The path of a call of another gRPC service.
    GrpcService(Access),
}

/// A resolved path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// The version whose base path contains the path. `None`: the path is directly under the root.
    pub(crate) base: Option<ProtocolVersion>,
    /// The version, if only one version has such a path.
    pub(crate) version: Option<ProtocolVersion>,
    pub(crate) resolved: Resolved,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Resolved {
    Route(Route),
    /// A REST path with a prefix that could be a tenant. No tenants are configured.
    UnknownTenant(String),
    Unknown,
}

/// The path of the public card.
const CARD: &str = "/.well-known/agent-card.json";

/// First segments that are reserved for other paths, so they can never be a tenant.
const RESERVED: [&str; 3] = ["v1", "a2a", "artifacts"];

impl Target {
    pub(crate) fn is_websocket(&self) -> bool {
        matches!(&self.resolved, Resolved::Route(route) if route.served() == Some(Served::WebSocket))
    }
}

impl Route {
    /// The document or other resource at the path. `None`: the path belongs to operations.
    pub(crate) fn served(&self) -> Option<Served> {
        match self.kind {
            RouteKind::Fixed(row) => Some(row.served),
            RouteKind::Operations(..) | RouteKind::Grpc(_) | RouteKind::GrpcService(_) => None,
        }
    }

    /// The operation that this verb performs at the path.
    pub(crate) fn operation(&self, verb: &Method) -> Option<&'static Operation> {
        if let RouteKind::Grpc(name) = self.kind {
            return (verb == Method::POST).then(|| Operation::of(name));
        }
        self.operations().find(|(_, own)| own.as_str() == verb.as_str()).map(|(operation, _)| operation)
    }

    /// The operations at this path, each with its verb.
    fn operations(&self) -> impl Iterator<Item = (&'static Operation, Verb)> + use<> {
        let kind = self.kind;
        OPERATIONS.iter().flat_map(move |operation| {
            let endpoints = match kind {
                RouteKind::Fixed(_) | RouteKind::Grpc(_) | RouteKind::GrpcService(_) => &[],
                RouteKind::Operations(version, _) => operation.rest(version),
            };
            let here = move |endpoint: &&Endpoint| {
                matches!(kind, RouteKind::Operations(_, path) if path == endpoint.path)
            };
            endpoints.iter().filter(here).map(move |endpoint| (operation, endpoint.verb))
        })
    }

    /// The path as it is written in the tables.
    pub(crate) fn path(&self) -> &'static str {
        match self.kind {
            RouteKind::Fixed(row) => row.path,
            RouteKind::Operations(_, path) => path,
            RouteKind::Grpc(name) => name.as_str(),
            RouteKind::GrpcService(_) => "gRPC service",
        }
    }

    /// The verbs that the path accepts, in the order of the `Allow` header.
    pub(crate) fn verbs(&self) -> Vec<&'static str> {
        let mut verbs: Vec<Verb> = match self.kind {
            RouteKind::Fixed(row) => row.verbs.to_vec(),
            RouteKind::Operations(..) => self.operations().map(|(_, verb)| verb).collect(),
            RouteKind::Grpc(_) | RouteKind::GrpcService(_) => vec![Verb::Post],
        };
        verbs.sort_by_key(|verb| *verb as u8);
        verbs.into_iter().map(Verb::as_str).collect()
    }

    /// Whether the path is a call of a gRPC service other than A2A.
    pub(crate) fn is_grpc_service(&self) -> bool {
        matches!(self.kind, RouteKind::GrpcService(_))
    }

    pub(crate) fn accepts(&self, verb: &Method) -> bool {
        self.verbs().contains(&verb.as_str())
    }

    pub(crate) fn access(&self) -> Access {
        match self.kind {
            RouteKind::Fixed(row) => row.access,
            RouteKind::Operations(..) => {
                self.operations().next().map_or(Access::Credential, |(operation, _)| operation.access)
            }
            RouteKind::Grpc(name) => Operation::of(name).access,
            RouteKind::GrpcService(access) => access,
        }
    }

    /// The path of an operation for the log: the path of 1.0, without the caller's ids. `None`: the path is not an operation.
    pub(crate) fn logged_path(&self) -> Option<&'static str> {
        match self.kind {
            RouteKind::Fixed(row) => (row.served == Served::Rpc).then_some(row.path),
            RouteKind::Operations(..) => {
                let (operation, _) = self.operations().next()?;
                operation.rest(ProtocolVersion::V1).first().map(|endpoint| endpoint.path)
            }
            RouteKind::Grpc(name) => Some(name.as_str()),
            RouteKind::GrpcService(_) => None,
        }
    }
}

/// The name of a request to this path in the log. For an operation it is the method name of 1.0, for every binding. `None`: the
/// path is only for probes.
pub(crate) fn logged_name(resolved: &Resolved, verb: &Method) -> Option<&'static str> {
    let Resolved::Route(route) = resolved else { return Some("unknown path") };
    Some(match route.served() {
        Some(Served::Health | Served::Alive | Served::Metrics) => return None,
        // The name is replaced when the body names the method.
        Some(Served::Rpc) => "JSON-RPC",
        Some(Served::Card) => "agent card",
        Some(Served::OpenApi) => "OpenAPI",
        Some(Served::File) => "file",
        Some(Served::WebSocket) => "WebSocket",
        Some(Served::Mcp) => "MCP",
        None => {
            let first = || route.operations().next().map(|(operation, _)| operation);
            match route.kind {
                RouteKind::GrpcService(_) => route.path(),
                _ => route.operation(verb).or_else(first)?.method.as_str(),
            }
        }
    })
}

/// The target of a gRPC call.
pub(crate) fn resolve_grpc(path: &str, services: Option<&dyn GrpcServices>) -> Target {
    let of_service = || services?.access(path).map(|access| (None, RouteKind::GrpcService(access)));
    let of_operation = Operation::by_grpc(path)
        .map(|(version, operation)| (Some(version), RouteKind::Grpc(operation.method)));
    let (version, resolved) = match of_operation.or_else(of_service) {
        Some((version, kind)) => {
            (version, Resolved::Route(Route { kind, id: String::new(), sub_id: String::new() }))
        }
        None => (None, Resolved::Unknown),
    };
    Target { base: None, version, resolved }
}

/// Resolves a path. `websocket`: the path of WebSockets, if they are enabled.
pub(crate) fn resolve(path: &str, websocket: Option<&str>) -> Target {
    let (base, path) = split_base(path);
    let (version, resolved) = if Some(path) == websocket {
        let kind = RouteKind::Fixed(&WEBSOCKET);
        (None, Resolved::Route(Route { kind, id: String::new(), sub_id: String::new() }))
    } else {
        match_path(path)
    };
    match (base, version) {
        // The base of one version does not serve the paths of the other.
        (Some(base), Some(version)) if version != base => {
            Target { base: Some(base), version: Some(base), resolved: Resolved::Unknown }
        }
        (Some(_), _) if is_at_root_only(&resolved) => Target { base, version, resolved: Resolved::Unknown },
        _ => Target { base, version, resolved },
    }
}

/// The target of an MCP request.
pub(crate) fn mcp() -> Target {
    let route = Route { kind: RouteKind::Fixed(&MCP), id: String::new(), sub_id: String::new() };
    Target { base: None, version: None, resolved: Resolved::Route(route) }
}

/// The target of the messages on a connection that carries several requests: the same as for JSON-RPC.
pub(crate) fn rpc(base: Option<ProtocolVersion>) -> Target {
    resolve(base.map_or("/", ProtocolVersion::base), None)
}

/// Whether WebSockets or MCP may use this path, because nothing else is served at it.
pub fn is_free_path(path: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    let is_well_formed = path.starts_with('/') && !path.contains("//") && !path.ends_with('/');
    let Target { base, version, resolved } = resolve(path, None);
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    is_well_formed
        && path.chars().all(is_plain)
        && !RESERVED.contains(&first)
        && (base, version, resolved) == (None, None, Resolved::Unknown)
}

/// Splits a path into the version of its base path, if it has one, and the rest.
fn split_base(path: &str) -> (Option<ProtocolVersion>, &str) {
    for version in ProtocolVersion::ALL {
        match path.strip_prefix(version.base()) {
            Some("") => return (Some(version), "/"),
            Some(rest) if rest.starts_with('/') => return (Some(version), rest),
            _ => {}
        }
    }
    match path.strip_prefix("/a2a") {
        Some(CARD) => (None, CARD),
        _ => (None, path),
    }
}

/// Whether the route is served only at the root, and not under the base path of a version.
fn is_at_root_only(resolved: &Resolved) -> bool {
    use Served::{Alive, File, Health, Metrics, OpenApi};
    let Resolved::Route(route) = resolved else { return false };
    matches!(route.served(), Some(OpenApi | Health | Metrics | Alive | File))
}

/// The route of a path below a base, and the version if only one version has the path.
fn match_path(path: &str) -> (Option<ProtocolVersion>, Resolved) {
    let segments =
        if is_root(path) { vec![String::new()] } else { decoded_segments(path).unwrap_or_default() };
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let mut fixed = ROUTES.iter().filter_map(|row| Some((row, matched(row.path, &segments)?)));
    if let Some((row, [id, sub_id])) = fixed.next() {
        return (row.version, Resolved::Route(Route { kind: RouteKind::Fixed(row), id, sub_id }));
    }
    for version in ProtocolVersion::ALL {
        if let Some(route) = operations(version, &segments) {
            return (Some(version), Resolved::Route(route));
        }
    }
    match segments.first() {
        // All paths under `/v1` belong to 0.3, even those that do not exist.
        Some(&"v1") => (Some(ProtocolVersion::V03), Resolved::Unknown),
        _ => (None, tenant(&segments)),
    }
}

fn tenant(segments: &[&str]) -> Resolved {
    match segments {
        [first, inner @ ..] if may_be_tenant(first) && operations(ProtocolVersion::V1, inner).is_some() => {
            Resolved::UnknownTenant((*first).to_owned())
        }
        _ => Resolved::Unknown,
    }
}

/// Whether the path is the root. Clients append a slash to an interface URL that may already end in one.
pub(crate) fn is_root(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte == b'/')
}

fn may_be_tenant(segment: &str) -> bool {
    !segment.is_empty() && !RESERVED.contains(&segment)
}

/// The route of the operations that a version has at this path. A path with a suffix such as `:cancel` is matched before the same
/// path without the suffix.
fn operations(version: ProtocolVersion, segments: &[&str]) -> Option<Route> {
    let endpoints = OPERATIONS.iter().flat_map(|operation| operation.rest(version));
    let matching = endpoints.filter_map(|endpoint| Some((endpoint.path, matched(endpoint.path, segments)?)));
    let (path, [id, sub_id]) = matching.max_by_key(|(path, _)| path.len())?;
    Some(Route { kind: RouteKind::Operations(version, path), id, sub_id })
}

/// The two ids of a path, if its segments match this path of a table. An id is empty if the path has none.
fn matched(path: &str, segments: &[&str]) -> Option<[String; 2]> {
    let (mut ids, mut wanted) = (Vec::new(), path.strip_prefix('/')?.split('/'));
    for segment in segments {
        let wanted = wanted.next()?;
        match wanted.strip_prefix('{').and_then(|wanted| wanted.split_once('}')) {
            Some((_, suffix)) => {
                ids.push(segment.strip_suffix(suffix)?);
            }
            None if wanted == *segment => {}
            None => return None,
        }
    }
    let id = |index: usize| ids.get(index).copied().unwrap_or_default().to_owned();
    wanted.next().is_none().then(|| [id(0), id(1)])
}

/// The decoded segments of a path. `None`: a segment does not decode to text. A trailing slash is ignored, except after `/tasks`
/// and `/artifacts`: there it precedes an id that the caller left empty, and the caller did not mean to request a list.
fn decoded_segments(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix('/')?;
    let path = match path.strip_suffix('/') {
        Some(rest) if !matches!(rest, "tasks" | "v1/tasks" | "artifacts") => rest,
        _ => path,
    };
    path.split('/').map(|raw| percent_decode_str(raw).decode_utf8().ok().map(Into::into)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: Option<ProtocolVersion> = Some(ProtocolVersion::V1);
    const V03: Option<ProtocolVersion> = Some(ProtocolVersion::V03);

    fn id(text: &str) -> String {
        text.to_owned()
    }

    /// The table path to which this path resolves, and the id in it.
    fn route(path: &str) -> Option<(&'static str, String)> {
        match resolve(path, None).resolved {
            Resolved::Route(route) => Some((route.path(), route.id)),
            _ => None,
        }
    }

    #[test]
    fn every_path_and_its_verbs() {
        let cases = [
            ("/", "/", "", "POST"),
            ("//", "/", "", "POST"),
            ("/.well-known/agent-card.json", CARD, "", "GET, HEAD"),
            ("/a2a/.well-known/agent-card.json", CARD, "", "GET, HEAD"),
            ("/livez", "/livez", "", "GET, HEAD"),
            ("/artifacts/f1", "/artifacts/{id}", "f1", "GET, HEAD"),
            ("/artifacts/", "/artifacts/{id}", "", "GET, HEAD"),
            ("/artifacts/%2E%2E%2Fx", "/artifacts/{id}", "../x", "GET, HEAD"),
            ("/artifacts/tasks", "/artifacts/{id}", "tasks", "GET, HEAD"),
            ("/message:send", "/message:send", "", "POST"),
            ("/message%3Asend", "/message:send", "", "POST"),
            ("/message%3asend/", "/message:send", "", "POST"),
            ("/message:stream", "/message:stream", "", "POST"),
            ("/message%3Astream", "/message:stream", "", "POST"),
            ("/extendedAgentCard", "/extendedAgentCard", "", "GET, HEAD"),
            ("/openapi.json", "/openapi.json", "", "GET, HEAD"),
            ("/health", "/health", "", "GET, HEAD"),
            ("/metrics", "/metrics", "", "GET, HEAD"),
            ("/tasks", "/tasks", "", "GET"),
            ("/tasks/", "/tasks/{id}", "", "GET"),
            ("/tasks/t1", "/tasks/{id}", "t1", "GET"),
            ("/tasks/t1/", "/tasks/{id}", "t1", "GET"),
            ("/tasks/a:b", "/tasks/{id}", "a:b", "GET"),
            ("/tasks/..", "/tasks/{id}", "..", "GET"),
            ("/tasks/a%2Fb", "/tasks/{id}", "a/b", "GET"),
            ("/tasks/a%252Fb", "/tasks/{id}", "a%2Fb", "GET"),
            ("/tasks/%2E%2E%2Fx:cancel", "/tasks/{id}:cancel", "../x", "POST"),
            ("/tasks/t1:cancel", "/tasks/{id}:cancel", "t1", "POST"),
            ("/tasks/t1%3Acancel", "/tasks/{id}:cancel", "t1", "POST"),
            ("/tasks/a:b:cancel", "/tasks/{id}:cancel", "a:b", "POST"),
            ("/tasks/:cancel", "/tasks/{id}:cancel", "", "POST"),
            ("/tasks/t1:subscribe", "/tasks/{id}:subscribe", "t1", "GET, POST"),
            ("/tasks/t1%3Asubscribe", "/tasks/{id}:subscribe", "t1", "GET, POST"),
            ("/tasks/t1/pushNotificationConfigs", "/tasks/{id}/pushNotificationConfigs", "t1", "GET, POST"),
            (
                "/tasks/t1/pushNotificationConfigs/c",
                "/tasks/{id}/pushNotificationConfigs/{push_id}",
                "t1",
                "GET, DELETE",
            ),
        ];
        for (path, of_table, id, verbs) in cases {
            let Resolved::Route(route) = resolve(path, None).resolved else { panic!("{path}") };
            assert_eq!((route.path(), route.id.as_str()), (of_table, id), "{path}");
            assert_eq!(route.verbs().join(", "), verbs, "{path}");
        }
    }

    #[test]
    fn a_first_segment_before_an_operation_is_a_tenant_unless_reserved() {
        for path in [
            "/acme/message:send",
            "/acme/message%3Astream",
            "/acme/tasks",
            "/acme/tasks/t1",
            "/acme/tasks/t1:cancel",
            "/acme/tasks/t1/pushNotificationConfigs/c",
            "/acme/extendedAgentCard",
        ] {
            assert_eq!(resolve(path, None).resolved, Resolved::UnknownTenant(id("acme")), "{path}");
            for reserved in RESERVED {
                let path = path.replace("acme", reserved);
                // The segment after `artifacts` is the id of a file.
                let is_file = reserved == "artifacts" && path.matches('/').count() == 2;
                let resolved = resolve(&path, None).resolved;
                // The paths after `v1` belong to 0.3.
                if reserved == "v1" && !path.ends_with("extendedAgentCard") {
                    assert!(matches!(resolved, Resolved::Route(_)), "{path}");
                    continue;
                }
                assert_eq!(resolved == Resolved::Unknown, !is_file, "{path}");
                let served = if let Resolved::Route(route) = &resolved { route.served() } else { None };
                assert_eq!(served == Some(Served::File), is_file, "{path}");
            }
        }
    }

    #[test]
    fn other_paths_are_unknown() {
        for path in [
            "",
            "*",
            "/message",
            "/message:sendx",
            "/message:send/x",
            "/v1",
            "/v1/x",
            "/a2a",
            "/acme",
            "/acme/x",
            "/acme/v1/tasks",
            "/tasks/t1/x",
            "/tasks/t1/pushNotificationConfigs/c/d",
            "/tasks/%ff",
            "/livez/x",
            "/artifacts",
            "/artifacts/f1/x",
            "/acme/artifacts/f1",
            "/v1/extendedAgentCard",
            "/v1/.well-known/agent-card.json",
            "/v1/message:send/x",
            "/card",
            "/agent",
            "/a2a/1.0x/tasks",
            "/a2a/0.3/tasks",
            "/a2a/0.3/extendedAgentCard",
            "/a2a/1.0/v1/tasks",
            "/a2a/1.0/.well-known/agent.json",
            "/a2a/1.0/agent/authenticatedExtendedCard",
            "/a2a/1.0/livez",
            "/a2a/1.0/artifacts/f1",
            "/a2a/0.3/health",
            "/a2a/1.0/metrics",
            "/a2a/0.3/openapi.json",
            "/a2a/0.3/a2a/0.3/v1/tasks",
            "/acme/.well-known/agent-card.json",
            "//tasks",
            "//tasks/x",
        ] {
            assert_eq!(resolve(path, None).resolved, Resolved::Unknown, "{path}");
        }
    }

    #[test]
    fn websockets_have_a_path_of_their_own() {
        for (path, base) in [("/live", None), ("/a2a/1.0/live", V1), ("/a2a/0.3/live", V03)] {
            let target = resolve(path, Some("/live"));
            assert_eq!((target.is_websocket(), target.base, target.version), (true, base, None), "{path}");
        }
        assert!(!resolve("/live", None).is_websocket() && !resolve("/ws", Some("/live")).is_websocket());
        for path in ["/ws", "/a/b-c.d"] {
            assert!(is_free_path(path), "{path}");
        }
        for path in ["", "/", "ws", "/ws/", "//ws", "/a b", "/w?s", "/%77s", "/{id}"] {
            assert!(!is_free_path(path), "{path}");
        }
        for path in
            ["/tasks", "/message:send", "/v1/ws", "/a2a/ws", "/artifacts/ws", "/health", "/acme/tasks"]
        {
            assert!(!is_free_path(path), "{path}");
        }
    }

    #[test]
    fn each_version_has_its_paths_at_the_root_and_under_its_base() {
        type Bases<'a> = &'a [Option<ProtocolVersion>];

        let both = [None, V1, V03];
        let cases: [(&str, &str, Option<ProtocolVersion>, Bases<'_>); 12] = [
            ("/", "/", None, &both),
            (CARD, CARD, None, &both),
            ("/.well-known/agent.json", "/.well-known/agent.json", V03, &[None, V03]),
            ("/message:send", "/message:send", V1, &[None, V1]),
            ("/tasks/t1:cancel", "/tasks/{id}:cancel", V1, &[None, V1]),
            ("/extendedAgentCard", "/extendedAgentCard", V1, &[None, V1]),
            ("/v1/message:send", "/v1/message:send", V03, &[None, V03]),
            ("/v1/tasks/", "/v1/tasks/{id}", V03, &[None, V03]),
            ("/v1/tasks/t1%3Acancel", "/v1/tasks/{id}:cancel", V03, &[None, V03]),
            (
                "/v1/tasks/t/pushNotificationConfigs/c",
                "/v1/tasks/{id}/pushNotificationConfigs/{push_id}",
                V03,
                &[None, V03],
            ),
            ("/v1/card", "/v1/card", V03, &[None, V03]),
            ("/agent/authenticatedExtendedCard", "/agent/authenticatedExtendedCard", V03, &[None, V03]),
        ];
        for (path, of_table, version, bases) in cases {
            for base in both {
                let path = format!("{}{path}", base.map_or("", ProtocolVersion::base));
                let target = resolve(&path, None);
                assert_eq!(target.base, base, "{path}");
                if bases.contains(&base) {
                    assert_eq!(target.version, version, "{path}");
                    assert_eq!(route(&path).map(|(path, _)| path), Some(of_table), "{path}");
                } else {
                    assert_eq!((target.version, target.resolved), (base, Resolved::Unknown), "{path}");
                }
            }
        }
        for version in ProtocolVersion::ALL {
            assert_eq!(route(version.base()), Some(("/", String::new())));
        }
        // Unknown paths under `/v1` belong to 0.3, too.
        assert_eq!(resolve("/v1/nope", None).version, V03);
        assert_eq!(resolve("/nope", None).version, None);
    }
}
