//! Tests that the routing and the documents agree about the paths that are served.

use std::collections::BTreeSet;

use longshore_wire::surface::{Access, OPERATIONS, ProtocolVersion, ROUTES, Verb};

use crate::route::{Resolved, Target, resolve};

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
fn every_path_of_the_documents_is_served() {
    for (path, version, verbs, access) in every_path() {
        let target = resolve(&path.replace("{id}", "t1").replace("{push_id}", "p1"), None);
        let Target { base: None, version: served_for, resolved: Resolved::Route(route) } = target else {
            panic!("{path} is not served");
        };
        assert_eq!(served_for, version, "{path}");
        assert_eq!(route.path(), path);
        let taken: BTreeSet<&str> = route.verbs().into_iter().collect();
        assert_eq!(taken, verbs, "{path}");
        assert_eq!(route.access(), access, "{path}");
    }
}

/// Documents, files, health and metrics accept HEAD, no other path does, and the table says so.
#[test]
fn only_paths_that_are_not_operations_accept_head() {
    for (path, _, verbs, _) in every_path() {
        let is_document = path.contains("ard") || path.contains(".json") || path.starts_with("/artifacts");
        let has_head = verbs.contains(Verb::Head.as_str());
        assert_eq!(has_head, is_document || ["/livez", "/health", "/metrics"].contains(&path), "{path}");
    }
}
