//! Tests what only gRPC has, over real sockets with the generated stubs. Every operation is called elsewhere: by the table of all
//! bindings (`crates/edge/tests/http/bindings.rs`) and by the official clients (`interop/`, `official_client`).

#![expect(clippy::unwrap_used, reason = "a panic is the right answer in a test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longshore_edge::contract::Deployment;
use longshore_edge::{Credentials, Edge, EdgeConfig, Limits, Listeners};
use longshore_engine::port::SystemClock;
use longshore_engine::{Engine, EngineConfig, EngineParts, Tasks};
use longshore_grpc::rpc::{ErrorInfo, RetryInfo, Status as Details};
use longshore_grpc::v1::a2a_service_client::A2aServiceClient;
use longshore_grpc::v1::stream_response::Payload;
use longshore_grpc::{Messages, Services, v1};
use longshore_testkit::scripted_agent::{ScriptedAgent, StartedTurn};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

/// The longest wait of a test. A longer wait means a hang.
const PATIENCE: Duration = Duration::from_secs(20);

struct Gateway {
    address: SocketAddr,
    /// The address of a listener that serves only gRPC.
    own: SocketAddr,
    turns: mpsc::Receiver<StartedTurn>,
    shutdown: CancellationToken,
}

impl Gateway {
    async fn start(configure: impl FnOnce(&mut EdgeConfig)) -> Self {
        let (agent, turns) = ScriptedAgent::manual();
        let credentials =
            Credentials::builder().bearer("tok-ada".into(), "ada").bearer("tok-bob".into(), "bob");
        let mut config = EdgeConfig::new(Deployment::default(), credentials.build().unwrap());
        config.grpc = Some(&Messages);
        configure(&mut config);
        let tasks = Tasks::new();
        let store = Arc::new(longshore_store::memory());
        let engine = Engine::new(EngineParts {
            store,
            agent,
            control: None,
            clock: Arc::new(SystemClock),
            tasks: tasks.clone(),
            metrics: Arc::clone(&config.metrics),
            config: EngineConfig { names: longshore_edge::wire_names(), ..EngineConfig::default() },
        });
        let [tcp, grpc] = [listener().await, listener().await];
        let (address, own) = (tcp.local_addr().unwrap(), grpc.local_addr().unwrap());
        let listeners = Listeners { tcp: Some(tcp), grpc: Some(grpc), ..Listeners::default() };
        let shutdown = CancellationToken::new();
        let edge = Edge::new(engine, config, tasks.clone());
        tasks.spawn("edge", edge.serve(listeners, shutdown.clone()));
        Self { address, own, turns, shutdown }
    }

    async fn client(&self) -> A2aServiceClient<Channel> {
        A2aServiceClient::new(channel(self.address).await)
    }

    /// Sends a message and streams its task. Returns the stream, the agent's turn, and the task's id.
    async fn stream(&mut self, id: &str) -> (Streaming<v1::StreamResponse>, StartedTurn, String) {
        let mut client = self.client().await;
        let mut events = client.send_streaming_message(of("ada", send(id, "go"))).await.unwrap().into_inner();
        let turn = self.turns.recv().await.unwrap();
        let Some(Payload::Task(task)) = next(&mut events).await.payload else { panic!("no task first") };
        (events, turn, task.id)
    }
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

async fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// A request with the credential of `caller`.
fn of<T>(caller: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let token = MetadataValue::try_from(format!("Bearer tok-{caller}")).unwrap();
    request.metadata_mut().insert("authorization", token);
    request.metadata_mut().insert("a2a-version", MetadataValue::from_static("1.0"));
    request
}

fn send(id: &str, text: &str) -> v1::SendMessageRequest {
    let part = v1::Part { content: Some(v1::part::Content::Text(text.to_owned())), ..v1::Part::default() };
    let message = v1::Message {
        message_id: id.to_owned(),
        role: v1::Role::User.into(),
        parts: vec![part],
        ..v1::Message::default()
    };
    v1::SendMessageRequest { message: Some(message), ..v1::SendMessageRequest::default() }
}

fn get(id: &str) -> v1::GetTaskRequest {
    v1::GetTaskRequest { id: id.to_owned(), ..v1::GetTaskRequest::default() }
}

fn subscribe(id: &str, after: Option<&str>) -> Request<v1::SubscribeToTaskRequest> {
    let message = v1::SubscribeToTaskRequest { id: id.to_owned(), ..v1::SubscribeToTaskRequest::default() };
    let mut request = of("ada", message);
    if let Some(after) = after {
        request.metadata_mut().insert("last-event-id", after.parse().unwrap());
    }
    request
}

async fn next<T>(events: &mut Streaming<T>) -> T {
    tokio::time::timeout(PATIENCE, events.message()).await.expect("an event comes").unwrap().unwrap()
}

async fn rest<T>(events: &mut Streaming<T>) -> Vec<T> {
    let mut all = Vec::new();
    while let Some(event) =
        tokio::time::timeout(PATIENCE, events.message()).await.expect("the stream ends").unwrap()
    {
        all.push(event);
    }
    all
}

fn details(status: &Status) -> Details {
    Details::decode(status.details()).unwrap()
}

fn reason(status: &Status) -> (Code, String) {
    let info: ErrorInfo = details(status).detail().unwrap();
    assert_eq!(info.domain, "a2a-protocol.org");
    (status.code(), info.reason)
}

#[tokio::test]
async fn errors_have_their_code_reason_and_domain() {
    let mut gateway = Gateway::start(|config| {
        config.max_body_bytes = 10_000;
        config.deployment.push = false;
    })
    .await;
    let (_events, _turn, task) = gateway.stream("m1").await;
    let mut client = gateway.client().await;

    let anonymous = client.get_task(get(&task)).await.unwrap_err();
    assert_eq!(reason(&anonymous), (Code::Unauthenticated, "UNAUTHENTICATED".to_owned()));
    let of_another = client.get_task(of("bob", get(&task))).await.unwrap_err();
    assert_eq!(reason(&of_another), (Code::NotFound, "TASK_NOT_FOUND".to_owned()));
    let long = client.send_message(of("ada", send("m2", &"x".repeat(20_000)))).await.unwrap_err();
    assert_eq!(reason(&long), (Code::ResourceExhausted, "REQUEST_BODY_TOO_LARGE".to_owned()));
    let push = v1::TaskPushNotificationConfig::default();
    let push = client.create_task_push_notification_config(of("ada", push)).await.unwrap_err();
    assert_eq!(reason(&push).0, Code::FailedPrecondition);
    let mut raw = tonic::client::Grpc::new(channel(gateway.address).await);
    raw.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<v1::GetTaskRequest, v1::Task>::default();
    let path = PathAndQuery::from_static("/lf.a2a.v1.A2AService/Nonsense");
    let unknown = raw.unary(of("ada", get(&task)), path, codec).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_deadline_ends_a_blocking_send_and_not_its_task() {
    let mut gateway = Gateway::start(|_| {}).await;
    let mut client = gateway.client().await;
    let mut request = of("ada", send("m1", "go"));
    request.set_timeout(Duration::from_millis(300));
    let late = client.send_message(request).await.unwrap_err();
    // The status differs because the client also ends the call at its deadline, maybe earlier than the gateway.
    assert!(matches!(late.code(), Code::DeadlineExceeded | Code::Cancelled), "{late:?}");
    let turn = gateway.turns.recv().await.unwrap();
    turn.complete().await;
    // The same message id leads to the same task.
    let sent = client.send_message(of("ada", send("m1", "go"))).await.unwrap().into_inner();
    let Some(v1::send_message_response::Payload::Task(task)) = sent.payload else { panic!("{sent:?}") };
    assert_eq!(task.status.unwrap().state(), v1::TaskState::Completed);
}

#[tokio::test]
async fn a_canceled_call_frees_its_slot() {
    let one =
        |config: &mut EdgeConfig| config.limits = Limits { streams_per_principal: 1, ..Limits::default() };
    let mut gateway = Gateway::start(one).await;
    let (events, _turn, task) = gateway.stream("m1").await;
    let mut client = gateway.client().await;
    let full = client.subscribe_to_task(subscribe(&task, None)).await.unwrap_err();
    assert_eq!(reason(&full).0, Code::ResourceExhausted);
    assert!(details(&full).detail::<RetryInfo>().is_some());
    drop(events);
    let freed = async {
        // Poll, because no event announces that the gateway has noticed the closed stream.
        while client.subscribe_to_task(subscribe(&task, None)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("the slot is freed");
}

#[tokio::test]
async fn a_stream_ends_with_a_hint_when_the_gateway_stops() {
    let mut gateway = Gateway::start(|_| {}).await;
    let (mut events, _turn, _) = gateway.stream("m1").await;
    gateway.shutdown.cancel();
    let ended = loop {
        match tokio::time::timeout(PATIENCE, events.message()).await.expect("the stream ends") {
            Ok(event) => assert!(event.is_some(), "the stream looks complete"),
            Err(ended) => break ended,
        }
    };
    assert_eq!(reason(&ended), (Code::Unavailable, "UNAVAILABLE".to_owned()));
}

#[tokio::test]
async fn a_reader_that_pauses_loses_nothing() {
    const COUNT: usize = 400;
    let mut gateway = Gateway::start(|_| {}).await;
    let (mut events, turn, _) = gateway.stream("m1").await;
    let words = "word ".repeat(800);
    for _ in 0..COUNT {
        turn.say("a", &words).await;
    }
    turn.complete().await;
    let mut length = 0;
    for event in rest(&mut events).await {
        let Some(Payload::ArtifactUpdate(update)) = event.payload else { continue };
        for part in update.artifact.unwrap().parts {
            let Some(v1::part::Content::Text(text)) = part.content else { panic!("not a text") };
            length += text.len();
        }
    }
    assert_eq!(length, COUNT * words.len());
}

#[tokio::test]
async fn the_port_of_grpc_serves_nothing_else() {
    let gateway = Gateway::start(|_| {}).await;
    let status = async |address: SocketAddr| {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let request =
            "GET /.well-known/agent-card.json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer[9..12].to_owned()
    };
    assert_eq!(status(gateway.address).await, "200");
    assert_eq!(status(gateway.own).await, "404");
}

#[tokio::test]
async fn reflection_and_health_are_served_when_they_are_switched_on() {
    let check = HealthCheckRequest { service: "lf.a2a.v1.A2AService".to_owned() };
    let without = Gateway::start(|_| {}).await;
    let mut health = HealthClient::new(channel(without.address).await);
    // Like every unknown path, an unknown service needs a credential.
    assert_eq!(health.check(check.clone()).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(health.check(of("ada", check.clone())).await.unwrap_err().code(), Code::Unimplemented);

    let mut services = Services::default();
    services.add_reflection().unwrap();
    services.add_health().await;
    let gateway = Gateway::start(|config| config.grpc_services = Some(Arc::new(services))).await;
    let mut health = HealthClient::new(channel(gateway.address).await);
    let found = health.check(check.clone()).await.unwrap().into_inner();
    assert_eq!(found.status(), ServingStatus::Serving);
    assert_eq!(health.watch(check.clone()).await.unwrap_err().code(), Code::Unauthenticated);
    let mut watched = health.watch(of("ada", check)).await.unwrap().into_inner();
    assert_eq!(next(&mut watched).await.status(), ServingStatus::Serving);

    let long = HealthCheckRequest { service: "x".repeat(5000) };
    let long = health.check(long).await.unwrap_err();
    assert_eq!(reason(&long), (Code::ResourceExhausted, "REQUEST_BODY_TOO_LARGE".to_owned()));

    let ask = |request| ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let (asking, asked) = mpsc::channel(1);
    asking.send(ask(MessageRequest::ListServices(String::new()))).await.unwrap();
    let mut reflection = ServerReflectionClient::new(channel(gateway.address).await);
    let asked = futures_util::stream::unfold(asked, async |mut asked| Some((asked.recv().await?, asked)));
    let mut answers = reflection.server_reflection_info(of("ada", asked)).await.unwrap().into_inner();
    let Some(MessageResponse::ListServicesResponse(listed)) = next(&mut answers).await.message_response
    else {
        panic!("no list")
    };
    let names: Vec<String> = listed.service.into_iter().map(|service| service.name).collect();
    for name in ["lf.a2a.v1.A2AService", "a2a.v1.A2AService", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|listed| listed == name), "{names:?}");
    }
    // Reflection is a bidirectional stream: a second question follows the first answer.
    asking.send(ask(MessageRequest::FileContainingSymbol("lf.a2a.v1.Task".to_owned()))).await.unwrap();
    let found = next(&mut answers).await.message_response;
    assert!(matches!(found, Some(MessageResponse::FileDescriptorResponse(_))), "{found:?}");
    gateway.shutdown.cancel();
    let ended = tokio::time::timeout(PATIENCE, answers.message()).await.expect("the stream ends");
    assert_eq!(reason(&ended.unwrap_err()), (Code::Unavailable, "UNAVAILABLE".to_owned()));
    let ended = tokio::time::timeout(PATIENCE, watched.message()).await.expect("the stream ends");
    assert_eq!(reason(&ended.unwrap_err()), (Code::Unavailable, "UNAVAILABLE".to_owned()));
}

#[tokio::test]
async fn a_deadline_ends_a_call_of_another_service() {
    let mut services = Services::default();
    services.add_health().await;
    let gateway = Gateway::start(|config| config.grpc_services = Some(Arc::new(services))).await;
    let mut health = HealthClient::new(channel(gateway.address).await);
    let mut request = of("ada", HealthCheckRequest::default());
    request.set_timeout(Duration::from_millis(300));
    let late = match health.watch(request).await {
        // The client, too, ends a call at its deadline.
        Err(late) => late,
        Ok(answer) => {
            let mut watched = answer.into_inner();
            let ended = async {
                while watched.message().await?.is_some() {}
                Err(Status::ok("the stream is complete"))
            };
            let ended: Result<(), Status> =
                tokio::time::timeout(PATIENCE, ended).await.expect("the stream ends");
            ended.unwrap_err()
        }
    };
    assert!(matches!(late.code(), Code::DeadlineExceeded | Code::Cancelled), "{late:?}");
}

#[tokio::test]
async fn a_question_without_a_credential_must_arrive_in_time() {
    let mut services = Services::default();
    services.add_health().await;
    let gateway = Gateway::start(|config| {
        config.grpc_services = Some(Arc::new(services));
        config.body_timeout = Duration::from_millis(50);
    })
    .await;
    let mut raw = tonic::client::Grpc::new(channel(gateway.address).await);
    raw.ready().await.unwrap();
    let codec =
        tonic_prost::ProstCodec::<HealthCheckRequest, tonic_health::pb::HealthCheckResponse>::default();
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let silent = futures_util::stream::pending::<HealthCheckRequest>();
    let call = raw.client_streaming(Request::new(silent), path, codec);
    let late = tokio::time::timeout(PATIENCE, call).await.expect("the call ends").unwrap_err();
    assert_eq!(late.code(), Code::InvalidArgument, "{late:?}");
}

#[tokio::test]
async fn a_client_of_1_0_may_send_no_version() {
    let old = |config: &mut EdgeConfig| {
        config.deployment.missing_version = longshore_edge::contract::MissingVersion::V03;
    };
    let mut gateway = Gateway::start(old).await;
    let (_events, _turn, task) = gateway.stream("m1").await;
    let mut request = of("ada", get(&task));
    request.metadata_mut().remove("a2a-version");
    let found = gateway.client().await.get_task(request).await.unwrap().into_inner();
    assert_eq!(found.id, task);
}
