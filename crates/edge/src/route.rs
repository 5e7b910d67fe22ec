//! From a path to what is meant by it: one table, read before any body is.
//!
//! A path is split at its slashes first and each segment is percent-decoded after, so `%2F` in an id stays in the id
//! (where the id rule refuses it) and `message%3Asend` is `message:send`. A suffix `:cancel` or `:subscribe` is a
//! verb; any other colon belongs to the id.

use http::Method;
use percent_encoding::percent_decode_str;

/// What a path names. Ids are as the caller wrote them, decoded but not yet checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// The JSON-RPC endpoint: `/`.
    Rpc,
    Card,
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
    ExtendedCard,
    /// A file that a task keeps.
    File(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Resolved {
    Route(Route),
    /// A REST path under a first segment that could be a tenant. None are configured.
    UnknownTenant(String),
    Unknown,
}

/// First segments that are kept for other surfaces, and so can never be a tenant.
const RESERVED: [&str; 3] = ["v1", "a2a", "artifacts"];

impl Route {
    /// The verbs of the path, in the order in which `Allow` lists them.
    pub(crate) fn verbs(&self) -> &'static [Method] {
        match self {
            Self::Card | Self::Livez | Self::File(_) => &[Method::GET, Method::HEAD],
            Self::Rpc | Self::SendMessage | Self::StreamMessage | Self::CancelTask(_) => &[Method::POST],
            Self::Tasks | Self::Task(_) | Self::ExtendedCard => &[Method::GET],
            Self::SubscribeToTask(_) | Self::PushConfigs => &[Method::GET, Method::POST],
            Self::PushConfig => &[Method::GET, Method::DELETE],
        }
    }

    /// Served to anybody.
    pub(crate) fn is_public(&self) -> bool {
        matches!(self, Self::Card | Self::Livez)
    }
}

pub(crate) fn resolve(path: &str) -> Resolved {
    if is_root(path) {
        return Resolved::Route(Route::Rpc);
    }
    let Some(segments) = decoded_segments(path) else { return Resolved::Unknown };
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        [".well-known", "agent-card.json"] => return Resolved::Route(Route::Card),
        ["livez"] => return Resolved::Route(Route::Livez),
        ["artifacts", id] => return Resolved::Route(Route::File((*id).to_owned())),
        _ => {}
    }
    if let Some(route) = rest(&segments) {
        return Resolved::Route(route);
    }
    match segments.as_slice() {
        [first, inner @ ..] if may_be_tenant(first) && rest(inner).is_some() => {
            Resolved::UnknownTenant((*first).to_owned())
        }
        _ => Resolved::Unknown,
    }
}

/// Clients append a slash to an interface URL that may end in one already.
pub(crate) fn is_root(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte == b'/')
}

fn may_be_tenant(segment: &str) -> bool {
    !segment.is_empty() && !RESERVED.contains(&segment)
}

/// The REST operations of the 1.0 line.
fn rest(segments: &[&str]) -> Option<Route> {
    match segments {
        ["message:send"] => Some(Route::SendMessage),
        ["message:stream"] => Some(Route::StreamMessage),
        ["extendedAgentCard"] => Some(Route::ExtendedCard),
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

/// `None` when a segment does not decode to text. One slash at the end is ignored, except after `/tasks` and `/artifacts`:
/// there it stands before an id that the caller left empty, and a list of all would not be what was asked for.
fn decoded_segments(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix('/')?;
    let path = match path.strip_suffix('/') {
        Some(rest) if !matches!(rest, "tasks" | "artifacts") => rest,
        _ => path,
    };
    path.split('/').map(|raw| percent_decode_str(raw).decode_utf8().ok().map(Into::into)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn every_path_and_its_verbs() {
        let cases = [
            ("/", Route::Rpc, "POST"),
            ("//", Route::Rpc, "POST"),
            ("/.well-known/agent-card.json", Route::Card, "GET, HEAD"),
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
            ("/extendedAgentCard", Route::ExtendedCard, "GET"),
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
            assert_eq!(resolve(path), Resolved::Route(route), "{path}");
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
            assert_eq!(resolve(path), Resolved::UnknownTenant(id("acme")), "{path}");
            for reserved in RESERVED {
                let path = path.replace("acme", reserved);
                // What follows `artifacts` directly is the id of a file.
                let is_file = reserved == "artifacts" && path.matches('/').count() == 2;
                assert_eq!(resolve(&path) == Resolved::Unknown, !is_file, "{path}");
                assert_eq!(matches!(resolve(&path), Resolved::Route(Route::File(_))), is_file, "{path}");
            }
        }
    }

    #[test]
    fn everything_else_is_unknown() {
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
            "/.well-known/agent.json",
            "/acme/.well-known/agent-card.json",
            "//tasks",
            "//tasks/x",
        ] {
            assert_eq!(resolve(path), Resolved::Unknown, "{path}");
        }
    }
}
