//! One request and its complete answer.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::connection::{Connection, Head};

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub head: Head,
    pub body: Vec<u8>,
}

/// Sends a request on an idle connection, and reads the answer.
pub async fn call(connection: &mut Connection, request: &[u8]) -> Result<Reply> {
    connection.write(request).await?;
    let head = connection.head().await?;
    let body = connection.body(head.body).await?;
    Ok(Reply { head, body })
}

/// The same on a connection that is kept for the next call, and opened again after an error.
pub async fn call_reusing(
    connection: &mut Option<Connection>,
    address: SocketAddr,
    request: &[u8],
) -> Result<Reply> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => Connection::open(address).await?,
    };
    let reply = call(&mut open, request).await?;
    *connection = Some(open);
    Ok(reply)
}

impl Reply {
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).context("the answer is not JSON")
    }

    /// The task in the answer to a send, in either protocol version.
    pub fn task(&self) -> Option<Value> {
        let mut answer = self.json().ok()?;
        let result = answer.get_mut("result")?;
        let task = if result["task"].is_object() { result["task"].take() } else { result.take() };
        task["id"].is_string().then_some(task)
    }

    /// The HTTP status of a refusal, and the code of a typed error. `None`: the request was not refused.
    pub fn refusal(&self) -> Option<(u16, Option<i64>)> {
        let code = self.json().ok().and_then(|answer| answer["error"]["code"].as_i64());
        (self.head.status != 200 || code.is_some()).then_some((self.head.status, code))
    }

    /// The `reason` of a typed error.
    pub fn reason(&self) -> Option<String> {
        let answer = self.json().ok()?;
        let details = answer["error"]["data"].as_array().or_else(|| answer["error"]["details"].as_array())?;
        details.iter().find_map(|detail| detail["reason"].as_str()).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::BodyKind;
    use super::*;

    fn reply(status: u16, body: &str) -> Reply {
        let head = Head { status, content_type: String::new(), retry_after: None, body: BodyKind::Rest };
        Reply { head, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn tasks_are_found_in_both_versions_and_refusals_on_both_levels() {
        for body in [r#"{"result":{"task":{"id":"t"}}}"#, r#"{"result":{"kind":"task","id":"t"}}"#] {
            let reply = reply(200, body);
            assert_eq!(reply.task().unwrap()["id"], "t");
            assert_eq!(reply.refusal(), None);
        }
        assert_eq!(reply(200, r#"{"error":{"code":-31056}}"#).refusal(), Some((200, Some(-31056))));
        let typed =
            reply(429, r#"{"error":{"code":-31056,"data":[{"a":1},{"reason":"TOO_MANY_REQUESTS"}]}}"#);
        assert_eq!(typed.reason().as_deref(), Some("TOO_MANY_REQUESTS"));
        assert_eq!(reply(503, "gone").reason(), None);
        assert_eq!(reply(503, "gone").refusal(), Some((503, None)));
        assert!(reply(503, "gone").task().is_none());
    }
}
