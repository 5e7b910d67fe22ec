//! The methods that list providers and models.

use longshore_model::ControlQuery;

use super::errors::UPSTREAM;
use super::params::METADATA;
use super::{build, items};
use crate::extension::Extension;
use crate::methods::{Answer, DIRECTORY_QUERY, Effect, Method, NAME, Param, Stability, Upstream};

const CATALOG: Method = Method {
    name: "",
    key: "",
    extension: Extension::ProviderDiscovery,
    summary: "",
    params: &[METADATA],
    first: 0,
    paged: false,
    result: Answer::Catalog(items::PROVIDER),
    effect: Effect::Read,
    switch: None,
    upstream: &[Upstream::get("/provider", DIRECTORY_QUERY)],
    errors: UPSTREAM,
    stability: Stability::Stable,
    build: |args| build::query(args, ControlQuery::Providers),
};

pub(super) static METHODS: [Method; 2] = [
    Method {
        name: "opencode.providers.list",
        key: "list_providers",
        summary: "Lists the providers of models that OpenCode knows, and which of them are connected.",
        ..CATALOG
    },
    Method {
        name: "opencode.models.list",
        key: "list_models",
        summary: "Lists the models of all providers, or of one.",
        params: &[Param::optional("provider_id", NAME, "Only the models of this provider."), METADATA],
        result: Answer::Catalog(items::MODEL),
        build: |args| {
            build::query(args, ControlQuery::Models { provider: build::owned(args, "provider_id") })
        },
        ..CATALOG
    },
];
