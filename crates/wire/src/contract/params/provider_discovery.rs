//! The card parameters of the extension for providers and models.

use serde_json::{Value, json};

use super::super::deployment::Deployment;
use super::super::method;
use super::{errors_of, item_fields, merge, routing, routing_fields};
use crate::extension::Extension;
use crate::methods::Item;
use crate::surface::ProtocolVersion;

const EXTENSION: Extension = Extension::ProviderDiscovery;

pub(super) fn params(deployment: &Deployment, version: ProtocolVersion) -> Value {
    let mut params = json!({
        "methods": method::names(deployment, EXTENSION),
        "method_contracts": method::contracts(deployment, version, EXTENSION),
    });
    routing(&mut params);
    let rest = json!({
        "context_fields": routing_fields(),
        "provider_item_fields": item_fields(Item::Provider, version),
        "model_item_fields": item_fields(Item::Model, version),
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
