//! The card parameters of the extension for providers and models.

use serde_json::{Value, json};

use crate::contract::params::{errors_of, item_fields, merge, routing, routing_fields};
use crate::contract::{Deployment, method};
use crate::extension::Extension;
use crate::opencode::items;
use crate::surface::ProtocolVersion;

const EXTENSION: Extension = Extension::ProviderDiscovery;

pub(in crate::opencode) fn params(deployment: &Deployment, version: ProtocolVersion) -> Value {
    let mut params = json!({
        "methods": method::names(deployment, EXTENSION),
        "method_contracts": method::contracts(deployment, version, EXTENSION),
    });
    routing(deployment, &mut params);
    let rest = json!({
        "context_fields": routing_fields(deployment),
        "provider_item_fields": item_fields(items::PROVIDER, version),
        "model_item_fields": item_fields(items::MODEL, version),
        "errors": errors_of(deployment, version, EXTENSION),
        "notes": [
            "The lists are OpenCode's own, for the directory that the metadata names or the root of the workspace.",
            "No credentials of a provider are shown: no keys, options or headers.",
            "A provider_id that OpenCode does not know gives no models.",
        ],
    });
    merge(&mut params, rest);
    params
}
