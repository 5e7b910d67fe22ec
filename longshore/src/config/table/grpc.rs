//! The gRPC binding.

use super::super::setting::Fallback::{Computed, Value};
use super::super::setting::{Kind, Setting};

pub const GRPC: Setting = Setting {
    key: "grpc.enabled",
    flag: Some("grpc"),
    env: Some("LONGSHORE_GRPC"),
    kind: Kind::Switch,
    fallback: Value("true"),
    help: "Whether A2A is served over gRPC: on the port and on the unix socket, to clients of HTTP/2 that send \
           `application/grpc`.",
};

pub const GRPC_PORT: Setting = Setting {
    key: "grpc.port",
    flag: Some("grpc-port"),
    env: Some("LONGSHORE_GRPC_PORT"),
    kind: Kind::Port,
    fallback: Value("off"),
    help: "A further port, at the same address and with the same TLS, that serves gRPC and nothing else. 0 takes a free port. \
           `off`: no such port. The card names this port for gRPC, and not `serve.port`, which serves it \
           too.",
};

pub const GRPC_PUBLIC_URL: Setting = Setting {
    key: "grpc.public_url",
    flag: Some("grpc-public-url"),
    env: Some("LONGSHORE_GRPC_PUBLIC_URL"),
    kind: Kind::BaseUrl,
    fallback: Computed(
        "the host of the public URL with the gRPC port, or without such a port the public URL if it has no path",
    ),
    help: "Where clients reach the gateway over gRPC, such as https://grpc.example.com: for the card. It has no path. Set it if a \
           proxy passes gRPC on; one that does not needs `grpc.enabled = false`, so that the card names no gRPC.",
};

pub const GRPC_REFLECTION: Setting = Setting {
    key: "grpc.reflection",
    flag: Some("grpc-reflection"),
    env: Some("LONGSHORE_GRPC_REFLECTION"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Whether tools such as grpcurl can read which calls there are (reflection, v1 and v1alpha). They need a credential.",
};

pub const GRPC_HEALTH: Setting = Setting {
    key: "grpc.health",
    flag: Some("grpc-health"),
    env: Some("LONGSHORE_GRPC_HEALTH"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Whether the standard health service of gRPC is served, for load balancers. It says only that the gateway runs. `Check` \
           needs no credential; `Watch` does.",
};
