//! The requests of the agent that have no answer yet.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use longshore_mcp::CALL_KEY;
use rand::distr::{Alphanumeric, SampleString as _};
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value, json};

/// The most unanswered requests. A further request is answered with an error.
const MAX_WAITING: usize = 1_000;

const KEY_LENGTH: usize = 22;

/// The id of the handshake that the bridge repeats. No agent uses this id.
const REPEATED_HANDSHAKE: &str = "longshore-handshake";

const GIVEN_UP: &str = "The gateway could not be reached for ten minutes. If it had the call before that, the other agent may have got \
                        the message; when the gateway is back, a2a_status can tell. Otherwise nothing was sent.";

const TOO_LONG: &str = "The result is too long to be passed on. The call itself was made, so do not repeat it; ask the other agent for \
                        less with a2a_continue.";

/// The unanswered requests of the agent, by their ids, oldest first.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    requests: VecDeque<(Value, Value)>,
    /// The `initialize` request of the agent. The next field: whether the agent has sent `notifications/initialized` after it.
    handshake: Option<Value>,
    is_initialized: bool,
}

/// What the bridge must do with a message of the agent.
#[derive(PartialEq, Debug)]
pub(super) enum Received {
    Forward(Value),
    /// Answer the agent with this message.
    Answer(Value),
    Nothing,
}

impl Waiting {
    pub(super) fn take_from_agent(&mut self, line: &str) -> Received {
        if line.trim().is_empty() {
            return Received::Nothing;
        }
        let Ok(Value::Object(mut message)) = serde_json::from_str(line) else {
            return Received::Answer(error(&Value::Null, -32700, "The message is no JSON object."));
        };
        let method = message.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        match (method.as_str(), message.get("id").cloned()) {
            ("notifications/initialized", _) => self.is_initialized = true,
            // Drop a cancellation of an answered call: OpenCode cancels each call once more after it got the answer.
            ("notifications/cancelled", _) => {
                let id = message.get("params").and_then(|params| params.get("requestId"));
                if id.is_none_or(|id| self.take(id).is_none()) {
                    return Received::Nothing;
                }
            }
            // An answer of the agent to a request of the gateway, or a notification. Neither gets an answer.
            ("", _) | (_, None) => {}
            (_, Some(id)) if self.requests.len() >= MAX_WAITING => {
                return Received::Answer(error(&id, -32000, "Too many requests are open. Try again later."));
            }
            (method, Some(id)) => {
                match method {
                    "initialize" => self.handshake = Some(Value::Object(message.clone())),
                    "tools/call" => add_key(&mut message),
                    _ => {}
                }
                self.requests.push_back((id, Value::Object(message.clone())));
            }
        }
        Received::Forward(Value::Object(message))
    }

    /// Handles a message of the gateway. Returns whether the bridge passes it on to the agent.
    pub(super) fn take_from_gateway(&mut self, line: &str) -> bool {
        let Ok(Value::Object(message)) = serde_json::from_str(line) else { return false };
        match (message.get("method"), message.get("id")) {
            // Pass on only the first answer to a request: a second one would confuse the agent.
            (None, Some(id)) => self.take(id).is_some(),
            _ => true,
        }
    }

    /// The messages for a new connection: the handshake, if the agent has completed its own, and all unanswered requests.
    pub(super) fn resend(&self) -> Vec<Value> {
        let mut messages = Vec::new();
        if let Some(handshake) = self.handshake.as_ref().filter(|_| self.is_initialized) {
            let mut handshake = handshake.clone();
            handshake["id"] = json!(REPEATED_HANDSHAKE);
            messages.push(handshake);
            messages.push(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        messages.extend(self.requests.iter().map(|(_, request)| request.clone()));
        messages
    }

    /// Progress notifications for the waiting calls, so that the agent does not cancel them.
    pub(super) fn progress(&self, away: Duration) -> Vec<Value> {
        let tokens =
            self.requests.iter().filter_map(|(_, request)| request.pointer("/params/_meta/progressToken"));
        let report = |token: &Value| {
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
                "progressToken": token,
                "progress": away.as_secs(),
                "message": "The gateway is away. The call goes on when it is back.",
            }})
        };
        tokens.map(report).collect()
    }

    /// Removes all requests, and returns an error answer for each.
    pub(super) fn give_up(&mut self) -> Vec<Value> {
        let answer = |(id, request): (Value, Value)| failed(&id, &request, GIVEN_UP);
        self.requests.drain(..).map(answer).collect()
    }

    /// Removes the request whose answer is too long, and returns an error answer for it.
    pub(super) fn too_long(&mut self, id: &Value) -> Option<Value> {
        self.take(id).map(|request| failed(id, &request, TOO_LONG))
    }

    fn take(&mut self, id: &Value) -> Option<Value> {
        let at = self.requests.iter().position(|(waiting, _)| waiting == id)?;
        self.requests.remove(at).map(|(_, request)| request)
    }
}

/// Gives the call an idempotency key. Replaces a key that the agent gave, because the key must be new for each call.
fn add_key(message: &mut Map<String, Value>) {
    let key = Alphanumeric.sample_string(&mut rand::rng(), KEY_LENGTH);
    let params = message.entry("params").or_insert_with(|| json!({}));
    if let Some(params) = params.as_object_mut() {
        let meta = params.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert(CALL_KEY.to_owned(), json!(key));
        }
    }
}

/// Reads the id of a message from its beginning, because the whole message is too long to read.
pub(super) fn id_of(beginning: &[u8]) -> Option<Value> {
    let mut id = None;
    // Always fails, at the latest where the beginning ends. The id may have been read before that.
    let _ = serde_json::Deserializer::from_slice(beginning).deserialize_map(IdOf(&mut id));
    id
}

struct IdOf<'a>(&'a mut Option<Value>);

impl<'de> Visitor<'de> for IdOf<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut message: A) -> Result<(), A::Error> {
        while let Some(name) = message.next_key::<String>()? {
            if name == "id" {
                *self.0 = Some(message.next_value()?);
            } else {
                message.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Makes an error answer. For a tool call the error is a result, because the model reads results but not protocol errors.
fn failed(id: &Value, request: &Value, why: &str) -> Value {
    match request["method"].as_str() {
        Some("tools/call") => json!({"jsonrpc": "2.0", "id": id, "result": {
            "isError": true,
            "content": [{"type": "text", "text": why}],
        }}),
        _ => error(id, -32000, why),
    }
}

fn error(id: &Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(waiting: &mut Waiting, message: &Value) -> Value {
        match waiting.take_from_agent(&message.to_string()) {
            Received::Forward(message) => message,
            other => panic!("{other:?}"),
        }
    }

    fn call(id: u32) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "a2a_call", "_meta": {"progressToken": id, CALL_KEY: "made up"}}})
    }

    #[test]
    fn a_call_keeps_its_key_until_it_is_answered() {
        let mut waiting = Waiting::default();
        let sent = forwarded(&mut waiting, &call(1));
        let key = &sent["params"]["_meta"][CALL_KEY];
        assert!(key.is_string() && key != "made up", "{key}");
        assert_eq!(waiting.resend(), [sent]);
        let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {}}).to_string();
        assert!(waiting.take_from_gateway(&answer));
        assert!(!waiting.take_from_gateway(&answer), "an answer comes once");
        assert_eq!(waiting.resend(), Vec::<Value>::new());
    }

    #[test]
    fn the_handshake_is_repeated_when_the_agent_has_finished_it() {
        let mut waiting = Waiting::default();
        let handshake = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"clientInfo": {"name": "a"}}});
        forwarded(&mut waiting, &handshake);
        assert_eq!(
            waiting.resend(),
            std::slice::from_ref(&handshake),
            "the agent still waits for the answer"
        );
        assert!(waiting.take_from_gateway(r#"{"jsonrpc": "2.0", "id": 0, "result": {}}"#));
        forwarded(&mut waiting, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        let resent = waiting.resend();
        assert_eq!((resent.len(), &resent[0]["params"]), (2, &handshake["params"]));
        let answer = json!({"jsonrpc": "2.0", "id": resent[0]["id"], "result": {}}).to_string();
        assert!(!waiting.take_from_gateway(&answer), "the agent has its answer");
    }

    #[test]
    fn only_a_call_that_waits_is_canceled() {
        let mut waiting = Waiting::default();
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        assert_eq!(waiting.take_from_agent(&cancel.to_string()), Received::Nothing);
        forwarded(&mut waiting, &call(1));
        forwarded(&mut waiting, &cancel);
        assert_eq!(waiting.resend(), Vec::<Value>::new());
    }

    #[test]
    fn without_a_gateway_the_agent_hears_of_it_and_gets_an_error_in_the_end() {
        let mut waiting = Waiting::default();
        forwarded(&mut waiting, &call(1));
        forwarded(&mut waiting, &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}));
        let progress = waiting.progress(Duration::from_secs(20));
        assert_eq!(progress.len(), 1);
        assert_eq!(progress[0]["params"]["progressToken"], 1);
        let answers = waiting.give_up();
        assert_eq!(answers[0]["result"]["isError"], true);
        assert_eq!(answers[1]["error"]["code"], -32000);
        assert_eq!(waiting.give_up(), Vec::<Value>::new());
    }

    #[test]
    fn nonsense_is_answered_and_the_number_of_requests_is_bounded() {
        let mut waiting = Waiting::default();
        for nonsense in ["{", "[]", "1"] {
            assert!(matches!(waiting.take_from_agent(nonsense), Received::Answer(_)), "{nonsense}");
        }
        assert!(!waiting.take_from_gateway("nonsense"));
        for id in 0..1_000 {
            forwarded(&mut waiting, &call(id));
        }
        assert!(matches!(waiting.take_from_agent(&call(9_999).to_string()), Received::Answer(_)));
    }
}
