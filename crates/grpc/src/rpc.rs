//! The error model of gRPC: `google.rpc.Status`, which is sent in the trailer `grpc-status-details-bin`, and the types of its
//! details.

use std::collections::BTreeMap;

use prost::Name;

/// `google.rpc.Status`: an error with details.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `google.protobuf.Any`: a message of any type.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// `google.rpc.ErrorInfo`: the machine-readable reason of an error.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ErrorInfo {
    #[prost(string, tag = "1")]
    pub reason: String,
    #[prost(string, tag = "2")]
    pub domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub metadata: BTreeMap<String, String>,
}

/// `google.rpc.BadRequest`: the fields of a request that break a rule.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BadRequest {
    #[prost(message, repeated, tag = "1")]
    pub field_violations: Vec<FieldViolation>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FieldViolation {
    #[prost(string, tag = "1")]
    pub field: String,
    #[prost(string, tag = "2")]
    pub description: String,
}

/// `google.rpc.RetryInfo`: when a call can be sent again.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Delay {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Any {
    pub fn of<M: Name>(message: &M) -> Self {
        Self { type_url: format!("type.googleapis.com/{}", M::full_name()), value: message.encode_to_vec() }
    }

    /// Decodes the message as type `M`. `None`: the message has another type, or is damaged.
    pub fn read<M: Name + Default>(&self) -> Option<M> {
        let (_, name) = self.type_url.rsplit_once('/')?;
        if name == M::full_name() { M::decode(self.value.as_slice()).ok() } else { None }
    }
}

impl Status {
    /// The first detail of type `M`, if there is one.
    pub fn detail<M: Name + Default>(&self) -> Option<M> {
        self.details.iter().find_map(Any::read)
    }
}

impl Name for ErrorInfo {
    const NAME: &'static str = "ErrorInfo";
    const PACKAGE: &'static str = "google.rpc";
}

impl Name for BadRequest {
    const NAME: &'static str = "BadRequest";
    const PACKAGE: &'static str = "google.rpc";
}

impl Name for RetryInfo {
    const NAME: &'static str = "RetryInfo";
    const PACKAGE: &'static str = "google.rpc";
}
