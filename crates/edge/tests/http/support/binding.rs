//! One row for each binding and version: the same operations, with results in the types of the model. A test over the rows shows
//! that all bindings do the same.

use std::net::SocketAddr;
use std::path::Path;

use http::header::AUTHORIZATION;
use longshore_model::Task;
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v1::decode::StreamEvent;
use longshore_wire::v1::method::Method;
use longshore_wire::v03::Dialect;
use serde_json::{Value, json};

use super::grpc::{self, Grpc};
use super::route::{Connection, Route};
use super::{Answer, Call, Events, Frame, Gateway, ProtocolClient, Stdio};

/// A binding in one version.
pub(crate) struct Binding {
    pub(crate) name: String,
    pub(crate) version: ProtocolVersion,
    pub(crate) client: ProtocolClient,
    route: Route,
    /// The binding has no credentials: its client is the owner.
    pub(crate) is_owner: bool,
}

pub(crate) struct BindingEvents {
    client: ProtocolClient,
    events: Events,
}

/// The reason of an error, in the words of the error tables.
pub(crate) type Reason = String;

impl Binding {
    /// All rows. A new binding is one more line here. `grpc`: the port that serves gRPC alone.
    pub(crate) async fn all(gateway: &Gateway, socket: &Path, grpc: SocketAddr, stdio: &Stdio) -> Vec<Self> {
        let (tcp, unix) = (|| Route::Tcp(gateway.address), || Route::Unix(socket.to_owned()));
        let to_socket = grpc::port_of_unix_socket(socket.to_owned()).await;
        // The messages of gRPC have the JSON of REST.
        let service = |name: &str, version, address| {
            Self::new(name, version, Dialect::Rest, Route::Grpc(Grpc::new(version, address)))
        };
        let rows = |version| {
            [
                Self::new("JSON-RPC", version, Dialect::Rpc, tcp()),
                Self::new("REST", version, Dialect::Rest, tcp()),
                Self::new("JSON-RPC on a unix socket", version, Dialect::Rpc, unix()),
                Self::new("REST on a unix socket", version, Dialect::Rest, unix()),
                Self::new("WebSocket", version, Dialect::Rpc, tcp().websocket()),
                Self::new("WebSocket on a unix socket", version, Dialect::Rpc, unix().websocket()),
                Self::new("stdio", version, Dialect::Rpc, Route::Stdio(stdio.clone())),
                service("gRPC", version, gateway.address),
                service("gRPC on a port of its own", version, grpc),
                service("gRPC on a unix socket", version, to_socket),
            ]
        };
        ProtocolVersion::ALL.into_iter().flat_map(rows).collect()
    }

    fn new(name: &str, version: ProtocolVersion, dialect: Dialect, route: Route) -> Self {
        let is_owner = matches!(route, Route::Stdio(_));
        let name = format!("{} {name}", version.as_str());
        Self { name, version, client: ProtocolClient { version, dialect }, route, is_owner }
    }

    /// Whether the binding has the operation. Only the service of gRPC in 0.3 lacks one.
    pub(crate) fn has(&self, method: Method) -> bool {
        !matches!(&self.route, Route::Grpc(service) if !service.has(method))
    }

    pub(crate) fn is_grpc(&self) -> bool {
        matches!(self.route, Route::Grpc(_))
    }

    /// Whether requests are messages of one connection.
    pub(crate) fn has_messages(&self) -> bool {
        matches!(self.route, Route::WebSocket(_) | Route::Stdio(_))
    }

    pub(crate) fn is_websocket(&self) -> bool {
        matches!(self.route, Route::WebSocket(_))
    }

    /// The same binding. Its client of gRPC has a connection of its own, as all others have anyway.
    pub(crate) fn apart(&self) -> Self {
        let route = match &self.route {
            Route::Grpc(service) => Route::Grpc(service.apart()),
            other => other.clone(),
        };
        Self { name: self.name.clone(), route, ..*self }
    }

    /// A connection on which nothing was sent.
    pub(crate) async fn connect(&self) -> Box<dyn Connection> {
        self.route.connect().await.unwrap()
    }

    pub(crate) async fn answer(&self, who: &str, call: Call) -> Answer {
        self.by(who, call).send().await
    }

    /// Checks that a limit has refused a call, and that the refusal says when to call again. `status`: of HTTP, if the binding has
    /// one for each call. In gRPC it stands for `RESOURCE_EXHAUSTED`.
    pub(crate) fn assert_limited(&self, answer: &Answer, status: u16) {
        let text = String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.status.as_u16(), status, "{} {text}", self.name);
        assert_eq!(reason(answer).as_deref(), Some("TOO_MANY_REQUESTS"), "{} {text}", self.name);
        // A call whose body was not read may be refused in the form of the other version.
        let pauses = ["\"retryAfterSeconds\":\"", "\"retry_after_seconds\":"];
        let pause = pauses.iter().find_map(|name| text.split(name).nth(1));
        let pause = pause.unwrap_or_else(|| panic!("no pause: {} {text}", self.name));
        assert!(pause.starts_with(|digit: char| digit.is_ascii_digit()), "{} {text}", self.name);
    }

    /// The result of a call, in the JSON of its version.
    pub(crate) async fn json(&self, who: &str, call: Call) -> Result<Value, Reason> {
        let answer = self.answer(who, call).await;
        let result = || {
            let body = answer.json();
            body.get("result").cloned().unwrap_or(body)
        };
        reason(&answer).map_or_else(|| Ok(result()), Err)
    }

    /// `who`: the credential. Empty: none.
    fn by(&self, who: &str, call: Call) -> Call {
        call.header(AUTHORIZATION.as_str(), who).over(&self.route)
    }

    pub(crate) async fn send(
        &self,
        gateway: &Gateway,
        who: &str,
        message_id: &str,
        waits: bool,
    ) -> Result<Task, Reason> {
        self.send_message(gateway, who, &self.client.message(message_id, "go"), waits).await
    }

    pub(crate) async fn send_message(
        &self,
        gateway: &Gateway,
        who: &str,
        message: &Value,
        waits: bool,
    ) -> Result<Task, Reason> {
        let answer = self.by(who, self.client.send(gateway, message, waits)).send().await;
        reason(&answer).map_or_else(|| Ok(self.client.sent(&answer)), Err)
    }

    pub(crate) async fn get(&self, gateway: &Gateway, who: &str, task: &str) -> Result<Task, Reason> {
        self.task(gateway, who, Method::GetTask, task).await
    }

    pub(crate) async fn cancel(&self, gateway: &Gateway, who: &str, task: &str) -> Result<Task, Reason> {
        self.task(gateway, who, Method::CancelTask, task).await
    }

    async fn task(&self, gateway: &Gateway, who: &str, method: Method, task: &str) -> Result<Task, Reason> {
        let answer = self.by(who, self.client.on(gateway, method, task)).send().await;
        reason(&answer).map_or_else(|| Ok(self.client.task(&answer)), Err)
    }

    pub(crate) async fn list(&self, gateway: &Gateway, who: &str) -> Result<Vec<Task>, Reason> {
        let answer = self.by(who, self.client.list(gateway)).send().await;
        reason(&answer).map_or_else(|| Ok(self.client.page(&answer).tasks), Err)
    }

    /// The name in the extended card.
    pub(crate) async fn card(&self, gateway: &Gateway, who: &str) -> Result<String, Reason> {
        let call = self.client.call(gateway, Method::GetExtendedAgentCard, "", &json!({}));
        let call = call.header("a2a-version", self.version.as_str());
        Ok(self.json(who, call).await?["name"].as_str().unwrap().to_owned())
    }

    pub(crate) async fn stream(&self, gateway: &Gateway, who: &str, message_id: &str) -> BindingEvents {
        let message = self.client.message(message_id, "go");
        let call = self.by(who, self.client.stream(gateway, &message));
        BindingEvents { client: self.client, events: call.stream().await }
    }

    /// `after`: the last event that the client has. Empty: none.
    pub(crate) async fn subscribe(
        &self,
        gateway: &Gateway,
        who: &str,
        task: &str,
        after: &str,
    ) -> BindingEvents {
        let call = self.client.on(gateway, Method::SubscribeToTask, task).header("last-event-id", after);
        BindingEvents { client: self.client, events: self.by(who, call).stream().await }
    }

    /// The reason with which a subscription is refused.
    pub(crate) async fn refused_subscription(&self, gateway: &Gateway, who: &str, task: &str) -> Reason {
        let call = self.client.on(gateway, Method::SubscribeToTask, task);
        self.json(who, call).await.expect_err("a refusal")
    }

    /// The reason with which a stream is refused.
    pub(crate) async fn refused_stream(&self, gateway: &Gateway, who: &str, message_id: &str) -> Reason {
        let message = self.client.message(message_id, "go");
        self.json(who, self.client.stream(gateway, &message)).await.expect_err("a refusal")
    }
}

impl BindingEvents {
    /// The next event, and its cursor.
    pub(crate) async fn next(&mut self) -> Option<(String, StreamEvent)> {
        let frame = self.events.next().await?;
        Some((frame.cursor.clone().unwrap_or_default(), self.client.event(&frame)))
    }

    /// The events that arrived before the stream of gRPC was cut.
    pub(crate) async fn until_cut(&mut self) -> Vec<(String, StreamEvent)> {
        let frames = self.events.until_cut().await;
        let event = |frame: &Frame| (frame.cursor.clone().unwrap_or_default(), self.client.event(frame));
        frames.iter().map(event).collect()
    }

    /// The events up to the end of the stream.
    pub(crate) async fn rest(&mut self) -> Vec<(String, StreamEvent)> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// The reason in an error response, wherever the version and the binding put it.
fn reason(answer: &Answer) -> Option<Reason> {
    const PLACES: [&str; 4] =
        ["/error/data/0/reason", "/error/details/0/reason", "/error/data/type", "/type"];
    // The error of a stream of 0.3 is its only event.
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let json = text.trim_start_matches("data: ").trim();
    let body: Value = serde_json::from_str(json).unwrap_or_else(|_| panic!("no JSON: {text}"));
    PLACES.iter().find_map(|place| body.pointer(place)?.as_str()).map(str::to_owned)
}
