//! The requests to the demo model, from its own log.

use longshore_testkit::gateway::OpenCodeApi;
use serde_json::Value;

/// The requests of turns, the oldest first, without titles and summaries.
pub(crate) async fn turns(opencode: &OpenCodeApi) -> Vec<Value> {
    let providers = opencode.get("/config/providers").await;
    let base = providers
        .pointer("/providers/0/options/baseURL")
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("OpenCode names no model server: {providers:#}"));
    let url = format!("{}/_log", base.trim_end_matches("/v1"));
    let client = reqwest::Client::builder().no_proxy().build().expect("a client without options");
    let answer = client.get(&url).send().await.expect("the demo model answers");
    let text = answer.text().await.expect("the log arrives whole");
    let log: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("the demo model said {text}"));
    let requests = log["requests"].as_array().cloned().unwrap_or_default();
    requests.into_iter().filter(|request| request["purpose"] == "turn").collect()
}

/// The requests of turns with this prompt.
pub(crate) async fn asked(opencode: &OpenCodeApi, text: &str) -> Vec<Value> {
    let mut asked = turns(opencode).await;
    asked.retain(|request| request["prompt"] == text);
    asked
}
