//! The operations of 0.3, by their JSON-RPC names.
//!
//! `tasks/list` is an addition of the gateway, because a 0.3 JSON-RPC client could not list tasks otherwise. A2A 0.3 defines a list
//! only as a REST path, and its SDKs do not have it at all. Clients that do not call `tasks/list` are not affected.

use crate::surface::{Operation, ProtocolVersion};
pub use crate::v1::method::Method;

/// Parses a method name. `None`: 0.3 has no such method.
pub fn parse(method: &str) -> Option<Method> {
    Operation::by_jsonrpc(ProtocolVersion::V03, method).map(|operation| operation.method)
}

pub fn name(method: Method) -> &'static str {
    Operation::of(method).jsonrpc(ProtocolVersion::V03)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_version_reads_the_names_of_the_other() {
        for method in Method::ALL {
            assert_eq!(parse(name(method)), Some(method));
            assert_eq!(parse(method.as_str()), None);
            assert_eq!(Method::parse(name(method)), None);
        }
        for name in ["message/sends", "Message/Send", "tasks/pushNotification/set", "tasks", ""] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
