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
           `off`: no such port.",
};

pub const GRPC_PUBLIC_URL: Setting = Setting {
    key: "grpc.public_url",
    flag: Some("grpc-public-url"),
    env: Some("LONGSHORE_GRPC_PUBLIC_URL"),
    kind: Kind::BaseUrl,
    fallback: Computed("the URL of the gRPC port, or else the public URL if it has no path"),
    help: "Where clients reach the gateway over gRPC, such as https://grpc.example.com: for the card. It has no path. Set it if a \
           proxy passes gRPC on; one that does not needs `grpc.enabled = false`, so that the card names no gRPC.",
};
