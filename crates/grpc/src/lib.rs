//! The gRPC messages of A2A in the packages of both protocol versions, and their `ProtoJSON`.
//!
//! `tools/grpc/generate.sh` generates the types from the descriptors of A2A. They are committed, so that a build needs no protoc.
//! Only this crate handles protocol buffers. The feature `client` adds calls to agents, with messages as JSON, and generated client
//! stubs in the packages (`a2a_service_client`).

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "server")]
mod convert;
#[cfg(feature = "client")]
pub mod refusal;
pub mod rpc;
#[cfg(feature = "server")]
mod services;
pub mod well_known;

#[cfg(feature = "server")]
pub use convert::Messages;
#[cfg(feature = "server")]
pub use services::Services;

/// `lf.a2a.v1`, the package of A2A 1.0.
#[expect(clippy::pedantic, clippy::use_self, clippy::allow_attributes, reason = "the code is generated")]
pub mod v1 {
    include!("generated/lf.a2a.v1.rs");
    include!("generated/lf.a2a.v1.serde.rs");
}

/// `a2a.v1`, the package of A2A 0.3.
#[expect(clippy::pedantic, clippy::use_self, clippy::allow_attributes, reason = "the code is generated")]
pub mod v03 {
    include!("generated/a2a.v1.rs");
    include!("generated/a2a.v1.serde.rs");
}

/// The descriptors of both packages and of the well-known types: a serialized `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("descriptors.binpb");
