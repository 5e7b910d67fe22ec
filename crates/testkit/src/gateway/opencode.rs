//! Requests to the managed OpenCode itself, without the gateway in between.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

/// OpenCode answers such calls in a fraction of a second; a busy machine may need some seconds.
const CALL: Duration = Duration::from_secs(30);

/// The gateway's record of its OpenCode.
#[derive(Clone, Debug)]
pub struct Record {
    pub pid: u32,
    pub port: u16,
    pub password: String,
}

impl Record {
    /// `None` while there is no record, or OpenCode does not listen yet.
    pub fn read(data_dir: &Path) -> Option<Self> {
        let text = std::fs::read(data_dir.join("managed.json")).ok()?;
        let record: Value = serde_json::from_slice(&text).ok()?;
        // The gateway records the version when OpenCode answers.
        record["version"].as_str()?;
        Some(Self {
            pid: u32::try_from(record["pid"].as_u64()?).ok()?,
            port: u16::try_from(record["port"].as_u64()?).ok()?,
            password: record["password"].as_str()?.to_owned(),
        })
    }
}

/// The file with the output of the managed OpenCode.
pub(super) fn output_file(data_dir: &Path) -> PathBuf {
    data_dir.join("opencode.log")
}

#[derive(Clone, Debug)]
pub struct OpenCodeApi {
    record: Record,
    directory: PathBuf,
    http: reqwest::Client,
}

impl OpenCodeApi {
    pub(super) fn new(record: Record, directory: PathBuf) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().expect("a client without settings");
        Self { record, directory, http }
    }

    pub fn pid(&self) -> u32 {
        self.record.pid
    }

    pub async fn get(&self, path: &str) -> Value {
        self.call(reqwest::Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str) -> Value {
        self.call(reqwest::Method::POST, path, None).await
    }

    pub async fn post_json(&self, path: &str, body: &Value) -> Value {
        self.call(reqwest::Method::POST, path, Some(body)).await
    }

    /// The same with another timeout.
    pub async fn post_json_within(&self, path: &str, body: &Value, limit: Duration) -> Value {
        self.call_within(reqwest::Method::POST, path, Some(body), limit).await
    }

    pub async fn delete(&self, path: &str) -> Value {
        self.call(reqwest::Method::DELETE, path, None).await
    }

    /// The newest first.
    pub async fn sessions(&self) -> Vec<Value> {
        list(self.get("/session").await)
    }

    /// `{info, parts}` of each message, the oldest first.
    pub async fn messages(&self, session: &str) -> Vec<Value> {
        list(self.get(&format!("/session/{session}/message")).await)
    }

    /// The ids of the permissions and questions that wait for an answer.
    pub async fn asks(&self) -> Vec<String> {
        let mut asks = list(self.get("/permission").await);
        asks.extend(list(self.get("/question").await));
        asks.iter().filter_map(|ask| Some(ask["id"].as_str()?.to_owned())).collect()
    }

    /// The sessions that are busy or wait for a retry.
    pub async fn busy(&self) -> Vec<String> {
        let status = self.get("/session/status").await;
        status.as_object().expect("the status is an object").keys().cloned().collect()
    }

    async fn call(&self, method: reqwest::Method, path: &str, body: Option<&Value>) -> Value {
        self.call_within(method, path, body, CALL).await
    }

    async fn call_within(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Value {
        let url = format!("http://127.0.0.1:{}{path}", self.record.port);
        let directory = self.directory.to_str().expect("the path of a test is UTF-8");
        let mut request = self
            .http
            .request(method.clone(), &url)
            .timeout(limit)
            .header("x-opencode-directory", directory)
            .basic_auth("opencode", Some(&self.record.password));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request
            .send()
            .await
            .unwrap_or_else(|error| panic!("OpenCode does not answer {method} {path}: {error}"));
        let status = response.status();
        let body = response.text().await.unwrap_or_else(|error| panic!("{method} {path} broke off: {error}"));
        assert!(status.is_success(), "OpenCode answered {status} to {method} {path}: {body}");
        // Requests that are only accepted, such as an asynchronous prompt, are answered with an empty body.
        if body.is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&body).unwrap_or_else(|_| panic!("{method} {path} returned no JSON: {body}"))
    }
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        other => panic!("expected a list from OpenCode, got {other}"),
    }
}
