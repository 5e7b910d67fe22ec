//! The routing and the documents agree on what is served.

use std::collections::BTreeSet;
use std::mem::discriminant;

use longshore_wire::surface::{Access, OPERATIONS, ProtocolVersion, ROUTES, Verb};
use longshore_wire::v03::Dialect;

use crate::route::{Resolved, Route, Target, resolve};

/// One route of each kind. The compiler reports a new route here, because the match has no arm for it.
fn every_route() -> Vec<Route> {
    let id = String::new;
    let next = |route: &Route| match route {
        Route::Rpc => Some(Route::Card),
        Route::Card => Some(Route::OpenApi),
        Route::OpenApi => Some(Route::Health),
        Route::Health => Some(Route::Metrics),
        Route::Metrics => Some(Route::Livez),
        Route::Livez => Some(Route::SendMessage),
        Route::SendMessage => Some(Route::StreamMessage),
        Route::StreamMessage => Some(Route::Tasks),
        Route::Tasks => Some(Route::Task(id())),
        Route::Task(_) => Some(Route::CancelTask(id())),
        Route::CancelTask(_) => Some(Route::SubscribeToTask(id())),
        Route::SubscribeToTask(_) => Some(Route::PushConfigs),
        Route::PushConfigs => Some(Route::PushConfig),
        Route::PushConfig => Some(Route::ExtendedCard(Dialect::Rpc)),
        Route::ExtendedCard(_) => Some(Route::File(id())),
        Route::File(_) => None,
    };
    std::iter::successors(Some(Route::Rpc), next).collect()
}

/// Each path of the table: its version, its verbs, and who may use it.
fn every_path() -> Vec<(&'static str, Option<ProtocolVersion>, BTreeSet<&'static str>, Access)> {
    let mut paths = Vec::new();
    for row in &ROUTES {
        let verbs = row.verbs.iter().map(|verb| verb.as_str()).collect();
        paths.push((row.path, row.version, verbs, row.access));
    }
    for version in ProtocolVersion::ALL {
        let endpoints: Vec<_> = OPERATIONS.iter().flat_map(|operation| operation.rest(version)).collect();
        for path in endpoints.iter().map(|endpoint| endpoint.path).collect::<BTreeSet<_>>() {
            let of_path = endpoints.iter().filter(|endpoint| endpoint.path == path);
            let verbs = of_path.map(|endpoint| endpoint.verb.as_str()).collect();
            paths.push((path, Some(version), verbs, Access::Credential));
        }
    }
    paths
}

#[test]
fn every_path_of_the_documents_is_served_and_every_route_is_in_the_documents() {
    let mut reached = Vec::new();
    for (path, version, verbs, access) in every_path() {
        let target = resolve(&path.replace("{id}", "t1").replace("{push_id}", "p1"));
        let Target { base: None, version: served_for, resolved: Resolved::Route(route) } = target else {
            panic!("{path} is not served");
        };
        assert_eq!(served_for, version, "{path}");
        let taken: BTreeSet<&str> = route.verbs().iter().map(http::Method::as_str).collect();
        assert_eq!(taken, verbs, "{path}");
        assert_eq!(route.access(), access, "{path}");
        reached.push(discriminant(&route));
    }
    for route in every_route() {
        assert!(reached.contains(&discriminant(&route)), "{route:?} is in no document");
    }
}

/// HEAD is accepted for documents, files, health and metrics only, and the table says so.
#[test]
fn only_paths_that_are_not_operations_accept_head() {
    for (path, _, verbs, _) in every_path() {
        let is_document = path.contains("ard") || path.contains(".json") || path.starts_with("/artifacts");
        let has_head = verbs.contains(Verb::Head.as_str());
        assert_eq!(has_head, is_document || ["/livez", "/health", "/metrics"].contains(&path), "{path}");
    }
}
