//! Maps a path to a route, before any body is read.
//!
//! A path is split at its slashes first and each segment is percent-decoded afterwards, so `%2F` in an id stays in the id
//! (where the id rule refuses it) and `message%3Asend` is `message:send`. A suffix `:cancel` or `:subscribe` is a
//! verb; any other colon belongs to the id.
//!
//! The root serves both protocol versions, each at its own paths: those of 0.3 are under `/v1`. The base path of a
//! version (`/a2a/1.0`, `/a2a/0.3`) serves the paths of that version only. The clients in JavaScript look for the card of
//! `/a2a/0.3` at `/a2a/.well-known`, because they replace the last segment of a base URL without a slash at its
//! end. So the card is served there too.

use http::Method;
use longshore_wire::surface::Access;
use longshore_wire::v03::Dialect;
use percent_encoding::percent_decode_str;

use crate::version::ProtocolVersion;

/// What a path names. Ids are decoded but not validated yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// The JSON-RPC endpoint: `/`.
    Rpc,
    /// The public card.
    Card,
    OpenApi,
    Health,
    /// The metrics page.
    Metrics,
    Livez,
    SendMessage,
    StreamMessage,
    Tasks,
    Task(String),
    CancelTask(String),
    SubscribeToTask(String),
    /// The push configurations of a task, or one of them.
    PushConfigs,
    PushConfig,
    /// The extended card. `Dialect`: the spelling that clients of 0.3 expect at the path.
    ExtendedCard(Dialect),
    /// A file that a task keeps.
    File(String),
}

/// A resolved path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// The version under whose base the path is.
    pub(crate) base: Option<ProtocolVersion>,
    /// The version, if only one version has such a path.
    pub(crate) version: Option<ProtocolVersion>,
    pub(crate) resolved: Resolved,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Resolved {
    Route(Route),
    /// A REST path after a first segment that could be a tenant. No tenants are configured.
    UnknownTenant(String),
    Unknown,
}

const CARD: &str = "/.well-known/agent-card.json";

/// First segments that are reserved for other paths and so can never be a tenant.
const RESERVED: [&str; 3] = ["v1", "a2a", "artifacts"];

impl Route {
    /// The verbs that the path accepts, in the order of the `Allow` header.
    pub(crate) fn verbs(&self) -> &'static [Method] {
        match self {
            Self::Card
            | Self::ExtendedCard(_)
            | Self::OpenApi
            | Self::Health
            | Self::Metrics
            | Self::Livez
            | Self::File(_) => &[Method::GET, Method::HEAD],
            Self::Rpc | Self::SendMessage | Self::StreamMessage | Self::CancelTask(_) => &[Method::POST],
            Self::Tasks | Self::Task(_) => &[Method::GET],
            Self::SubscribeToTask(_) | Self::PushConfigs => &[Method::GET, Method::POST],
            Self::PushConfig => &[Method::GET, Method::DELETE],
        }
    }

    pub(crate) fn access(&self) -> Access {
        match self {
            Self::Card | Self::Livez => Access::Anybody,
            Self::OpenApi => Access::Graded,
            _ => Access::Credential,
        }
    }

    /// The path of an operation as the log shows it: without the caller's ids. `None`: the path is not an operation.
    pub(crate) fn operation(&self) -> Option<&'static str> {
        Some(match self {
            Self::Rpc => "/",
            Self::SendMessage => "/message:send",
            Self::StreamMessage => "/message:stream",
            Self::Tasks => "/tasks",
            Self::Task(_) => "/tasks/{id}",
            Self::CancelTask(_) => "/tasks/{id}:cancel",
            Self::SubscribeToTask(_) => "/tasks/{id}:subscribe",
            Self::PushConfigs | Self::PushConfig => "/tasks/{id}/pushNotificationConfigs",
            Self::ExtendedCard(_) => "/extendedAgentCard",
            Self::Card | Self::OpenApi | Self::Health | Self::Metrics | Self::Livez | Self::File(_) => {
                return None;
            }
        })
    }
}

/// The name in the log of a request for this path. For an operation it is the method of 1.0, whatever the binding. `None`: the
/// path is only for probes.
pub(crate) fn logged_name(resolved: &Resolved) -> Option<&'static str> {
    let Resolved::Route(route) = resolved else { return Some("unknown path") };
    Some(match route {
        Route::Health | Route::Livez | Route::Metrics => return None,
        // Until the body names the method.
        Route::Rpc => "JSON-RPC",
        Route::Card => "agent card",
        Route::OpenApi => "OpenAPI",
        Route::File(_) => "file",
        Route::SendMessage => "SendMessage",
        Route::StreamMessage => "SendStreamingMessage",
        Route::Tasks => "ListTasks",
        Route::Task(_) => "GetTask",
        Route::CancelTask(_) => "CancelTask",
        Route::SubscribeToTask(_) => "SubscribeToTask",
        Route::PushConfigs | Route::PushConfig => "push configurations",
        Route::ExtendedCard(_) => "GetExtendedAgentCard",
    })
}

pub(crate) fn resolve(path: &str) -> Target {
    let (base, path) = split_base(path);
    let (version, resolved) = match_path(path);
    match (base, version) {
        // The base of one version does not serve the paths of the other.
        (Some(base), Some(version)) if version != base => {
            Target { base: Some(base), version: Some(base), resolved: Resolved::Unknown }
        }
        (Some(_), _) if is_at_root_only(&resolved) => Target { base, version, resolved: Resolved::Unknown },
        _ => Target { base, version, resolved },
    }
}

/// The version whose base the path starts with, and the rest of the path.
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

/// Whether the gateway serves the route once, whatever protocol version is used.
fn is_at_root_only(resolved: &Resolved) -> bool {
    use Route::{File, Health, Livez, Metrics, OpenApi};
    matches!(resolved, Resolved::Route(OpenApi | Health | Metrics | Livez | File(_)))
}

/// The route of a path below a base, and the version if only one version has the path.
fn match_path(path: &str) -> (Option<ProtocolVersion>, Resolved) {
    if is_root(path) {
        return (None, Resolved::Route(Route::Rpc));
    }
    let Some(segments) = decoded_segments(path) else { return (None, Resolved::Unknown) };
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let of_both = |route| (None, Resolved::Route(route));
    let of_old = |route| (Some(ProtocolVersion::V03), Resolved::Route(route));
    match segments.as_slice() {
        [".well-known", "agent-card.json"] => of_both(Route::Card),
        [".well-known", "agent.json"] => of_old(Route::Card),
        ["openapi.json"] => of_both(Route::OpenApi),
        ["health"] => of_both(Route::Health),
        ["metrics"] => of_both(Route::Metrics),
        ["livez"] => of_both(Route::Livez),
        ["artifacts", id] => of_both(Route::File((*id).to_owned())),
        ["agent", "authenticatedExtendedCard"] => of_old(Route::ExtendedCard(Dialect::Rpc)),
        ["v1", "card"] => of_old(Route::ExtendedCard(Dialect::Rest)),
        ["v1", inner @ ..] => {
            (Some(ProtocolVersion::V03), operation(inner).map_or(Resolved::Unknown, Resolved::Route))
        }
        segments => match rest(segments) {
            Some(route) => (Some(ProtocolVersion::V1), Resolved::Route(route)),
            None => (None, tenant(segments)),
        },
    }
}

fn tenant(segments: &[&str]) -> Resolved {
    match segments {
        [first, inner @ ..] if may_be_tenant(first) && rest(inner).is_some() => {
            Resolved::UnknownTenant((*first).to_owned())
        }
        _ => Resolved::Unknown,
    }
}

/// Clients append a slash to an interface URL that may already end in one.
pub(crate) fn is_root(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte == b'/')
}

fn may_be_tenant(segment: &str) -> bool {
    !segment.is_empty() && !RESERVED.contains(&segment)
}

/// The REST operations of 1.0.
fn rest(segments: &[&str]) -> Option<Route> {
    match segments {
        ["extendedAgentCard"] => Some(Route::ExtendedCard(Dialect::Rest)),
        segments => operation(segments),
    }
}

/// The REST operations that both versions have, without the prefix of the version.
fn operation(segments: &[&str]) -> Option<Route> {
    match segments {
        ["message:send"] => Some(Route::SendMessage),
        ["message:stream"] => Some(Route::StreamMessage),
        ["tasks"] => Some(Route::Tasks),
        ["tasks", task] => Some(match task.rsplit_once(':') {
            Some((id, "cancel")) => Route::CancelTask(id.to_owned()),
            Some((id, "subscribe")) => Route::SubscribeToTask(id.to_owned()),
            _ => Route::Task((*task).to_owned()),
        }),
        ["tasks", _, "pushNotificationConfigs"] => Some(Route::PushConfigs),
        ["tasks", _, "pushNotificationConfigs", _] => Some(Route::PushConfig),
        _ => None,
    }
}

/// `None` if a segment does not decode to text. One trailing slash is ignored, except after `/tasks` and `/artifacts`: there
/// it precedes an id that the caller left empty, and a list of everything would not be what the caller asked for.
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

    #[test]
    fn every_path_and_its_verbs() {
        let cases = [
            ("/", Route::Rpc, "POST"),
            ("//", Route::Rpc, "POST"),
            ("/.well-known/agent-card.json", Route::Card, "GET, HEAD"),
            ("/a2a/.well-known/agent-card.json", Route::Card, "GET, HEAD"),
            ("/livez", Route::Livez, "GET, HEAD"),
            ("/artifacts/f1", Route::File(id("f1")), "GET, HEAD"),
            ("/artifacts/", Route::File(id("")), "GET, HEAD"),
            ("/artifacts/%2E%2E%2Fx", Route::File(id("../x")), "GET, HEAD"),
            ("/artifacts/tasks", Route::File(id("tasks")), "GET, HEAD"),
            ("/message:send", Route::SendMessage, "POST"),
            ("/message%3Asend", Route::SendMessage, "POST"),
            ("/message%3asend/", Route::SendMessage, "POST"),
            ("/message:stream", Route::StreamMessage, "POST"),
            ("/message%3Astream", Route::StreamMessage, "POST"),
            ("/extendedAgentCard", Route::ExtendedCard(Dialect::Rest), "GET, HEAD"),
            ("/openapi.json", Route::OpenApi, "GET, HEAD"),
            ("/health", Route::Health, "GET, HEAD"),
            ("/metrics", Route::Metrics, "GET, HEAD"),
            ("/tasks", Route::Tasks, "GET"),
            ("/tasks/", Route::Task(id("")), "GET"),
            ("/tasks/t1", Route::Task(id("t1")), "GET"),
            ("/tasks/t1/", Route::Task(id("t1")), "GET"),
            ("/tasks/a:b", Route::Task(id("a:b")), "GET"),
            ("/tasks/..", Route::Task(id("..")), "GET"),
            ("/tasks/a%2Fb", Route::Task(id("a/b")), "GET"),
            ("/tasks/a%252Fb", Route::Task(id("a%2Fb")), "GET"),
            ("/tasks/%2E%2E%2Fx:cancel", Route::CancelTask(id("../x")), "POST"),
            ("/tasks/t1:cancel", Route::CancelTask(id("t1")), "POST"),
            ("/tasks/t1%3Acancel", Route::CancelTask(id("t1")), "POST"),
            ("/tasks/a:b:cancel", Route::CancelTask(id("a:b")), "POST"),
            ("/tasks/:cancel", Route::CancelTask(id("")), "POST"),
            ("/tasks/t1:subscribe", Route::SubscribeToTask(id("t1")), "GET, POST"),
            ("/tasks/t1%3Asubscribe", Route::SubscribeToTask(id("t1")), "GET, POST"),
            ("/tasks/t1/pushNotificationConfigs", Route::PushConfigs, "GET, POST"),
            ("/tasks/t1/pushNotificationConfigs/c", Route::PushConfig, "GET, DELETE"),
        ];
        for (path, route, verbs) in cases {
            let listed: Vec<&str> = route.verbs().iter().map(Method::as_str).collect();
            assert_eq!(listed.join(", "), verbs, "{path}");
            assert_eq!(resolve(path).resolved, Resolved::Route(route), "{path}");
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
            assert_eq!(resolve(path).resolved, Resolved::UnknownTenant(id("acme")), "{path}");
            for reserved in RESERVED {
                let path = path.replace("acme", reserved);
                // The segment after `artifacts` is the id of a file.
                let is_file = reserved == "artifacts" && path.matches('/').count() == 2;
                let resolved = resolve(&path).resolved;
                // The paths after `v1` belong to 0.3.
                if reserved == "v1" && !path.ends_with("extendedAgentCard") {
                    assert!(matches!(resolved, Resolved::Route(_)), "{path}");
                    continue;
                }
                assert_eq!(resolved == Resolved::Unknown, !is_file, "{path}");
                assert_eq!(matches!(resolved, Resolved::Route(Route::File(_))), is_file, "{path}");
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
            assert_eq!(resolve(path).resolved, Resolved::Unknown, "{path}");
        }
    }

    #[test]
    fn each_version_has_its_paths_at_the_root_and_under_its_base() {
        type Bases<'a> = &'a [Option<ProtocolVersion>];

        let both = [None, V1, V03];
        let cases: [(&str, Route, Option<ProtocolVersion>, Bases<'_>); 12] = [
            ("/", Route::Rpc, None, &both),
            ("/.well-known/agent-card.json", Route::Card, None, &both),
            ("/.well-known/agent.json", Route::Card, V03, &[None, V03]),
            ("/message:send", Route::SendMessage, V1, &[None, V1]),
            ("/tasks/t1:cancel", Route::CancelTask(id("t1")), V1, &[None, V1]),
            ("/extendedAgentCard", Route::ExtendedCard(Dialect::Rest), V1, &[None, V1]),
            ("/v1/message:send", Route::SendMessage, V03, &[None, V03]),
            ("/v1/tasks/", Route::Task(id("")), V03, &[None, V03]),
            ("/v1/tasks/t1%3Acancel", Route::CancelTask(id("t1")), V03, &[None, V03]),
            ("/v1/tasks/t/pushNotificationConfigs/c", Route::PushConfig, V03, &[None, V03]),
            ("/v1/card", Route::ExtendedCard(Dialect::Rest), V03, &[None, V03]),
            ("/agent/authenticatedExtendedCard", Route::ExtendedCard(Dialect::Rpc), V03, &[None, V03]),
        ];
        for (path, route, version, bases) in cases {
            for base in both {
                let path = format!("{}{path}", base.map_or("", ProtocolVersion::base));
                let target = resolve(&path);
                assert_eq!(target.base, base, "{path}");
                if bases.contains(&base) {
                    assert_eq!(
                        (target.version, target.resolved),
                        (version, Resolved::Route(route.clone())),
                        "{path}"
                    );
                } else {
                    assert_eq!((target.version, target.resolved), (base, Resolved::Unknown), "{path}");
                }
            }
        }
        for version in ProtocolVersion::ALL {
            assert_eq!(resolve(version.base()).resolved, Resolved::Route(Route::Rpc));
        }
        // Unknown paths under `/v1` belong to 0.3, too.
        assert_eq!(resolve("/v1/nope").version, V03);
        assert_eq!(resolve("/nope").version, None);
    }
}
