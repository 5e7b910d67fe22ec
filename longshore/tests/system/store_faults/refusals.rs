//! A message in every protocol version and binding, and its refusal while the store fails.

use longshore_testkit::chaos::ClientProtocol;
use longshore_testkit::gateway::TOKEN;
use longshore_testkit::raw::{Answer, RawClient};
use serde_json::json;

use crate::store_faults::gateway::Gateway;

/// Sends without waiting for the end of the task. Returns the id of the task, or the refusal.
pub(crate) async fn send(
    speaker: ClientProtocol,
    gateway: &Gateway,
    id: &str,
    text: &str,
) -> Result<String, Refusal> {
    let request = speaker.send(&speaker.message(id, text, None, None));
    let client = RawClient::new(gateway.url.clone(), TOKEN).speaking(speaker.version.as_str());
    let answer = client.rest(request.verb, &request.path, request.body.as_ref()).await;
    let result = if answer.body["result"].is_object() { &answer.body["result"] } else { &answer.body };
    let task = if result["task"].is_object() { &result["task"] } else { result };
    match task["id"].as_str() {
        Some(id) if answer.body["error"].is_null() => Ok(id.to_owned()),
        _ => Err(Refusal { speaker, answer }),
    }
}

#[derive(Debug)]
pub(crate) struct Refusal {
    speaker: ClientProtocol,
    answer: Answer,
}

impl Refusal {
    /// Fails unless this is the error "service unavailable" of its version and binding, contains these words, and names no file of
    /// the gateway.
    pub(crate) fn check(&self, words: &str) {
        let (status, code) = match self.speaker.name() {
            "1.0 REST" => (503, json!(503)),
            "0.3 REST" => (503, json!(-31057)),
            _ => (200, json!(-31057)),
        };
        let body = &self.answer.body;
        // Errors of 0.3 REST have no envelope.
        let error = body.get("error").filter(|error| error.is_object()).unwrap_or(body);
        assert_eq!((self.answer.status, &error["code"]), (status, &code), "{self:?}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "expected {words:?}: {self:?}");
        let all = body.to_string();
        assert!(all.contains("UNAVAILABLE"), "no reason for programs: {self:?}");
        assert!(!all.contains("longshore.db") && !all.contains("/tmp"), "it names a file: {self:?}");
    }
}
