//! A gateway with MCP on a free port, and a client that sends single requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longshore_edge::contract::Deployment;
use longshore_edge::{Credentials, Edge, EdgeConfig, Listeners};
use longshore_engine::port::SystemClock;
use longshore_engine::{Engine, EngineConfig, EngineParts, Tasks};
use longshore_meter::Metrics;
use longshore_testkit::scripted_agent::{ScriptedAgent, StartedTurn};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub(crate) const ADA: &str = "Bearer tok-ada";
pub(crate) const BOB: &str = "Bearer tok-bob";

pub(crate) struct Gateway {
    address: SocketAddr,
    agent: Arc<ScriptedAgent>,
    pub(crate) turns: mpsc::Receiver<StartedTurn>,
    pub(crate) shutdown: CancellationToken,
    metrics: Arc<Metrics>,
    /// The version of MCP that the client speaks.
    pub(crate) version: &'static str,
    client: reqwest::Client,
    _tasks: Tasks,
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        Self::with_streams(0).await
    }

    /// Starts a gateway that allows this many open streams.
    pub(crate) async fn with_streams(streams: usize) -> Self {
        let (agent, turns) = ScriptedAgent::manual();
        let deployment = Deployment {
            title: "Test agent".to_owned(),
            public_url: "http://agent.test".to_owned(),
            ..Deployment::of_opencode()
        };
        let credentials =
            Credentials::builder().bearer("tok-ada".into(), "ada").bearer("tok-bob".into(), "bob");
        let mut config = EdgeConfig::new(deployment, credentials.build().unwrap());
        config.limits.streams = streams;
        config.mcp = Some(("/mcp".to_owned(), Arc::new(longshore_mcp::Http)));
        let (metrics, tasks) = (Arc::clone(&config.metrics), Tasks::new());
        let engine = Engine::new(EngineParts {
            store: Arc::new(longshore_store::memory()),
            agent: agent.clone(),
            control: None,
            clock: Arc::new(SystemClock),
            tasks: tasks.clone(),
            metrics: Arc::clone(&metrics),
            config: EngineConfig { names: longshore_edge::wire_names(), ..EngineConfig::default() },
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
        let listeners = Listeners { tcp: Some(listener), ..Listeners::default() };
        tasks.spawn("edge", Edge::new(engine, config, tasks.clone()).serve(listeners, shutdown.clone()));
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Self { address, agent, turns, shutdown, metrics, version: "2025-11-25", client, _tasks: tasks }
    }

    pub(crate) async fn raw(&self, verb: &str, headers: &[(&str, &str)], body: String) -> Response {
        let verb = Method::from_bytes(verb.as_bytes()).unwrap();
        // If the test sets the header itself, its value replaces this one.
        let own = headers.iter().find(|(name, _)| *name == "content-type");
        let kind = own.map_or("application/json", |(_, kind)| kind);
        let mut request = self.client.request(verb, format!("http://{}/mcp", self.address));
        request = request.header("content-type", kind);
        for (name, value) in headers.iter().filter(|(name, _)| *name != "content-type") {
            request = request.header(*name, *value);
        }
        request.body(body).send().await.unwrap()
    }

    /// Sends an MCP request.
    pub(crate) async fn request(&self, credential: &str, method: &str, params: Value) -> Answer {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let accept = "application/json, text/event-stream";
        let headers =
            [("authorization", credential), ("accept", accept), ("mcp-protocol-version", self.version)];
        let response = self.raw("POST", &headers, body.to_string()).await;
        assert_eq!(response.status(), 200);
        Answer { response, text: String::new() }
    }

    pub(crate) async fn call(&self, credential: &str, tool: &str, arguments: Value) -> Answer {
        self.request(credential, "tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// Calls a tool with an idempotency key.
    pub(crate) async fn keyed(&self, key: &str, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"longshore/call-key": key}});
        self.request(ADA, "tools/call", params).await.result().await
    }

    /// Sends a GET request to the A2A REST binding.
    pub(crate) async fn get(&self, credential: &str, path: &str) -> Value {
        let request =
            self.client.get(format!("http://{}{path}", self.address)).header("authorization", credential);
        serde_json::from_slice(&request.send().await.unwrap().bytes().await.unwrap()).unwrap()
    }

    /// Waits until the agent has the answer to an ask.
    pub(crate) async fn answered(&self, request: &str) {
        until(|| self.agent.log().replied.iter().any(|(id, _)| id.as_str() == request)).await;
    }

    /// The ids of the asks that the agent has an answer to.
    pub(crate) fn replied(&self) -> Vec<String> {
        self.agent.log().replied.iter().map(|(id, _)| id.to_string()).collect()
    }

    /// Waits until no client is connected.
    pub(crate) async fn until_alone(&self) {
        until(|| self.metrics.connections.get() == 0).await;
    }
}

/// Polls until `is_so` is true, for conditions that no event announces.
async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never was so");
}

/// The response to a request, read message by message.
pub(crate) struct Answer {
    response: Response,
    /// The text of the next event that was read so far.
    text: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            while let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                let data = event.lines().find_map(|line| line.strip_prefix("data:")).map(str::trim);
                if let Some(data) = data.filter(|data| !data.is_empty()) {
                    return serde_json::from_str(data).unwrap();
                }
            }
            let chunk = self.response.chunk().await.unwrap().expect("the stream ended without the message");
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Reads up to the result of the request, and skips the messages before it.
    pub(crate) async fn result(&mut self) -> Value {
        loop {
            let mut message = self.next().await;
            assert!(message.get("error").is_none(), "{message}");
            if message.get("result").is_some() {
                return message["result"].take();
            }
        }
    }
}

pub(crate) fn text_of(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

pub(crate) fn progress_of(message: &Value) -> String {
    assert_eq!(message["method"], "notifications/progress", "{message}");
    message["params"]["message"].as_str().unwrap().to_owned()
}
