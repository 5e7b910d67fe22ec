//! A message in the spelling of each line and binding, and how it is refused.

use longshore_testkit::gateway::TOKEN;
use serde_json::{Value, json};

use crate::store_faults::gateway::Gateway;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Speaker {
    V1Rpc,
    V1Rest,
    V03Rpc,
    V03Rest,
}

pub(crate) const SPEAKERS: [Speaker; 4] =
    [Speaker::V1Rpc, Speaker::V1Rest, Speaker::V03Rpc, Speaker::V03Rest];

impl Speaker {
    /// Sends without waiting for the task to end. The id of the task, or how it was refused.
    pub(crate) async fn send(self, gateway: &Gateway, id: &str, text: &str) -> Result<String, Refusal> {
        let (path, version, body) = self.spelled(id, text);
        let response = reqwest::Client::builder()
            .no_proxy()
            .build()
            .expect("a client without options")
            .post(format!("{}{path}", gateway.url))
            .bearer_auth(TOKEN)
            .header("a2a-version", version)
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
            .await
            .expect("the gateway answers");
        let status = response.status().as_u16();
        let text = response.text().await.expect("an answer arrives whole");
        let body: Value = serde_json::from_str(&text).expect("an answer is JSON");
        let result = if self.is_rpc() { &body["result"] } else { &body };
        let task = if result["task"].is_object() { &result["task"] } else { result };
        match task["id"].as_str() {
            Some(id) if body["error"].is_null() => Ok(id.to_owned()),
            _ => Err(Refusal { speaker: self, status, body }),
        }
    }

    fn is_rpc(self) -> bool {
        matches!(self, Self::V1Rpc | Self::V03Rpc)
    }

    fn spelled(self, id: &str, text: &str) -> (&'static str, &'static str, Value) {
        let rpc = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let one = json!({
            "message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]},
            "configuration": {"returnImmediately": true},
        });
        match self {
            Self::V1Rpc => ("/", "1.0", rpc("SendMessage", one)),
            Self::V1Rest => ("/message:send", "1.0", one),
            Self::V03Rpc => {
                let message = json!({
                    "kind": "message", "messageId": id, "role": "user", "parts": [{"kind": "text", "text": text}],
                });
                let params = json!({"message": message, "configuration": {"blocking": false}});
                ("/", "0.3", rpc("message/send", params))
            }
            Self::V03Rest => {
                let message = json!({"messageId": id, "role": "ROLE_USER", "content": [{"text": text}]});
                ("/v1/message:send", "0.3", json!({"message": message, "configuration": {"blocking": false}}))
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Refusal {
    speaker: Speaker,
    status: u16,
    body: Value,
}

impl Refusal {
    /// It is the service error of this speaker's line and binding, in these words, and names no file of the gateway.
    pub(crate) fn check(&self, words: &str) {
        // Errors of 0.3 REST have no shell around them.
        let error = if self.speaker == Speaker::V03Rest { &self.body } else { &self.body["error"] };
        let (status, code) = match self.speaker {
            Speaker::V1Rpc | Speaker::V03Rpc => (200, json!(-32057)),
            Speaker::V1Rest => (503, json!(503)),
            Speaker::V03Rest => (503, json!(-32057)),
        };
        assert_eq!((self.status, &error["code"]), (status, &code), "{self:?}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "expected {words:?}: {self:?}");
        let all = self.body.to_string();
        assert!(all.contains("UNAVAILABLE"), "no word for programs: {self:?}");
        assert!(!all.contains("longshore.db") && !all.contains("/tmp"), "it names a file: {self:?}");
    }
}
