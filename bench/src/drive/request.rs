//! The requests of a client, in both protocol versions.

use std::net::SocketAddr;

use serde_json::{Value, json};

/// A version of A2A.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolVersion {
    V1,
    V03,
}

/// A server, and the credentials and the protocol version of its clients.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: SocketAddr,
    pub token: String,
    pub version: ProtocolVersion,
}

impl Target {
    /// Sends a message and streams the task.
    pub fn stream(&self, message: &str, text: &str) -> Vec<u8> {
        let method = match self.version {
            ProtocolVersion::V1 => "SendStreamingMessage",
            ProtocolVersion::V03 => "message/stream",
        };
        self.rpc(method, &json!({"message": self.message(message, text)}), true)
    }

    /// Sends a message. With `wait`, the answer comes at the end of the turn.
    pub fn send(&self, message: &str, text: &str, wait: bool) -> Vec<u8> {
        let (method, configuration) = match self.version {
            ProtocolVersion::V1 => ("SendMessage", json!({"returnImmediately": !wait})),
            ProtocolVersion::V03 => ("message/send", json!({"blocking": wait})),
        };
        let mut params = json!({"message": self.message(message, text)});
        // Waiting is the default of 1.0, and most callers do not name it.
        if self.version == ProtocolVersion::V03 || !wait {
            params["configuration"] = configuration;
        }
        self.rpc(method, &params, false)
    }

    pub fn get_task(&self, task: &str) -> Vec<u8> {
        let method = match self.version {
            ProtocolVersion::V1 => "GetTask",
            ProtocolVersion::V03 => "tasks/get",
        };
        self.rpc(method, &json!({"id": task}), false)
    }

    pub fn subscribe(&self, task: &str) -> Vec<u8> {
        let method = match self.version {
            ProtocolVersion::V1 => "SubscribeToTask",
            ProtocolVersion::V03 => "tasks/resubscribe",
        };
        self.rpc(method, &json!({"id": task}), true)
    }

    /// A plain request.
    pub fn get(&self, path: &str) -> Vec<u8> {
        format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            self.address, self.token
        )
        .into_bytes()
    }

    fn message(&self, id: &str, text: &str) -> Value {
        match self.version {
            ProtocolVersion::V1 => json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}),
            ProtocolVersion::V03 => json!({
                "kind": "message", "messageId": id, "role": "user", "parts": [{"kind": "text", "text": text}],
            }),
        }
    }

    fn rpc(&self, method: &str, params: &Value, streams: bool) -> Vec<u8> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let version = match self.version {
            ProtocolVersion::V1 => "1.0",
            ProtocolVersion::V03 => "0.3",
        };
        let accept = if streams { "text/event-stream" } else { "application/json" };
        format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nA2A-Version: {version}\r\nAccept: {accept}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        )
        .into_bytes()
    }
}
