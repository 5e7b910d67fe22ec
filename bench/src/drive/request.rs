//! The requests of a client, in both protocol versions.

use std::net::SocketAddr;

use clap::ValueEnum;
use serde_json::{Value, json};

/// A version of A2A.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolVersion {
    V1,
    V03,
}

/// How a client of version 1.0 streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Binding {
    /// JSON-RPC, with server-sent events.
    JsonRpc,
    /// HTTP+JSON, with server-sent events.
    Rest,
    /// JSON-RPC in messages of a WebSocket.
    #[value(name = "websocket")]
    WebSocket,
    Grpc,
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
        self.post("/", &self.stream_body(message, text), true)
    }

    /// The same over HTTP+JSON.
    pub fn stream_rest(&self, message: &str, text: &str) -> Vec<u8> {
        let body = json!({"message": self.message(message, text)}).to_string();
        self.post("/message:stream", &body, true)
    }

    /// The same as a JSON-RPC request for any transport.
    pub fn stream_body(&self, message: &str, text: &str) -> String {
        let method = match self.version {
            ProtocolVersion::V1 => "SendStreamingMessage",
            ProtocolVersion::V03 => "message/stream",
        };
        rpc_body(method, &json!({"message": self.message(message, text)}))
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

    /// Sends a message without waiting, in 1.0. The webhook gets every event of the task.
    pub fn send_with_webhook(&self, message: &str, text: &str, url: &str) -> Vec<u8> {
        let params = json!({
            "message": self.message(message, text),
            "configuration": {"returnImmediately": true, "taskPushNotificationConfig": {"id": "first", "url": url}},
            "metadata": {"shared": {"push": {"events": "all"}}},
        });
        self.rpc("SendMessage", &params, false)
    }

    /// Registers a webhook for the usual events of a task, in 1.0.
    pub fn add_webhook(&self, task: &str, id: &str, url: &str) -> Vec<u8> {
        let params = json!({"taskId": task, "id": id, "url": url});
        self.rpc("CreateTaskPushNotificationConfig", &params, false)
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
        self.post("/", &rpc_body(method, params), streams)
    }

    fn post(&self, path: &str, body: &str, streams: bool) -> Vec<u8> {
        let version = match self.version {
            ProtocolVersion::V1 => "1.0",
            ProtocolVersion::V03 => "0.3",
        };
        let accept = if streams { "text/event-stream" } else { "application/json" };
        format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nA2A-Version: {version}\r\nAccept: {accept}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        )
        .into_bytes()
    }
}

fn rpc_body(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}
