//! An A2A client: it finds an agent by its card, sends messages, and follows tasks through broken connections.
//!
//! The client speaks A2A 1.0 and 0.3 over JSON-RPC, REST and gRPC. It returns the same types for all of them, which serialize to
//! the JSON of 1.0. These types are more tolerant than those of `longshore-model`: an agent may use any text as an id, and may
//! leave out fields that a gateway must always write. Therefore this crate reads responses itself. It takes only names, paths and
//! error codes from the tables of `longshore-wire`.
//!
//! Every read has a limit ([`Limits`]) and every wait a timeout ([`Settings`]).

mod card;
mod changes;
mod client;
mod connection;
mod discovery;
mod error;
mod grpc;
mod http;
mod mcp;
mod pinned;
mod plain;
mod polling;
mod push;
mod read;
mod refusal;
mod request;
mod settings;
mod sse;
mod task_stream;
mod value;

pub use card::{Binding, Card, Interface};
pub use client::{Client, Listing, TaskList};
pub use discovery::{Discovered, Discovery};
pub use error::{Error, ErrorKind, Origin, Retry};
pub use longshore_model::TaskState;
pub use longshore_wire::surface::ProtocolVersion;
pub use mcp::carry_mcp;
pub use plain::is_plain;
pub use push::{PushAuthentication, PushConfig};
pub use request::{Outgoing, new_message_id};
pub use settings::{CardCache, Credential, Guard, Limits, Polling, Settings};
pub use task_stream::TaskStream;
pub use value::{
    Artifact, ArtifactUpdate, Content, Event, Message, Metadata, Part, Role, Status, StatusUpdate, Task,
};

pub type Result<T, E = Error> = std::result::Result<T, E>;
