//! The official Rust client of A2A uses the gateway and the real OpenCode, over JSON-RPC, REST and gRPC.

use std::sync::Arc;
use std::time::Duration;

use a2a::{
    A2AError, AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
    ListTaskPushNotificationConfigsRequest, ListTasksRequest, Message, Part, Role, SVC_PARAM_VERSION,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, StreamResponse,
    SubscribeToTaskRequest, TRANSPORT_PROTOCOL_GRPC, TRANSPORT_PROTOCOL_HTTP_JSON,
    TRANSPORT_PROTOCOL_JSONRPC, Task, TaskPushNotificationConfig, TaskState, VERSION, error_code,
};
use a2a_client::agent_card::AgentCardResolver;
use a2a_client::auth::AuthInterceptor;
use a2a_client::jsonrpc::JsonRpcTransportFactory;
use a2a_client::rest::RestTransportFactory;
use a2a_client::{A2AClient, A2AClientFactory, BoxStream, ServiceParams, Transport};
use a2a_grpc::{GrpcTransport, GrpcTransportFactory};
use futures_util::StreamExt;
use longshore_testkit::gateway::{Gateway, Setup, TOKEN};

/// No call takes longer, not even in the first turn of a new OpenCode.
const PATIENCE: Duration = Duration::from_secs(45);

/// The name of the binding of WebSockets, which only Longshore has.
const WEBSOCKET: &str = "urn:longshore:binding:websocket:v1";

pub(crate) type Client = A2AClient<Box<dyn Transport>>;

#[tokio::test(flavor = "multi_thread")]
async fn the_official_client_uses_every_operation_over_every_binding() {
    let setup = Setup::demo(env!("CARGO_BIN_EXE_longshore")).flag("--push-internal-networks=127.0.0.1/32");
    let gateway = Gateway::start(setup).await;
    let (http, card) = discover(&gateway).await;
    let offered: Vec<(&str, &str)> = card
        .supported_interfaces
        .iter()
        .map(|interface| (interface.protocol_binding.as_str(), interface.protocol_version.as_str()))
        .collect();
    // The preferred binding of each version comes first.
    let expected = [
        (TRANSPORT_PROTOCOL_JSONRPC, "1.0"),
        (TRANSPORT_PROTOCOL_HTTP_JSON, "1.0"),
        (TRANSPORT_PROTOCOL_GRPC, "1.0"),
        (WEBSOCKET, "1.0"),
        (TRANSPORT_PROTOCOL_HTTP_JSON, "0.3"),
        (TRANSPORT_PROTOCOL_JSONRPC, "0.3"),
        (TRANSPORT_PROTOCOL_GRPC, "0.3"),
        (WEBSOCKET, "0.3"),
    ];
    assert_eq!(offered, expected);
    assert_eq!(card.capabilities.streaming, Some(true), "{card:#?}");

    for binding in [TRANSPORT_PROTOCOL_JSONRPC, TRANSPORT_PROTOCOL_HTTP_JSON, TRANSPORT_PROTOCOL_GRPC] {
        let client = connect(&http, &card, binding, TOKEN).await;
        send_get_and_list(&client, binding).await;
        stream(&client, binding).await;
        subscribe_and_cancel(&client, binding).await;
        push_configs(&client, binding).await;
        extended_card(&client, &card, binding).await;
        errors(&client, binding).await;
        let stranger = connect(&http, &card, binding, "not the token").await;
        let refused = stranger.get_task(&get("any")).await;
        assert!(refused.is_err(), "{binding}: a wrong token was let in: {refused:#?}");
    }
    resume_after_a_cut(&card).await;
}

pub(crate) async fn discover(gateway: &Gateway) -> (reqwest::Client, AgentCard) {
    let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build();
    let http = http.expect("a client without certificates");
    let card = AgentCardResolver::new(Some(http.clone())).resolve(gateway.url()).await;
    (http, card.expect("the gateway serves its card"))
}

async fn send_get_and_list(client: &Client, binding: &str) {
    let first = send(client, message("scn:text n=3 text=\"ahoy there\"")).await;
    assert_eq!(first.status.state, TaskState::Completed, "{binding}: {first:#?}");
    assert_eq!(texts(&first), ["ahoy there"], "{binding}");
    let got = ok("GetTask", client.get_task(&get(&first.id)).await);
    assert_eq!(got, first, "{binding}: GetTask differs from what the send gave");

    let mut more = message("scn:text n=1");
    more.context_id = Some(first.context_id.clone());
    let second = send(client, more).await;
    assert_eq!(second.context_id, first.context_id, "{binding}: another context");
    let listed = ok(
        "ListTasks",
        client.list_tasks(&ListTasksRequest { page_size: Some(1), ..list(&first.context_id) }).await,
    );
    let ids = |tasks: &[Task]| tasks.iter().map(|task| task.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&listed.tasks), [second.id.as_str()], "{binding}: the newest comes first");
    assert_eq!((listed.total_size, listed.page_size), (2, 1), "{binding}");
    let rest = ListTasksRequest {
        page_token: Some(listed.next_page_token),
        page_size: Some(1),
        ..list(&first.context_id)
    };
    let rest = ok("ListTasks", client.list_tasks(&rest).await);
    assert_eq!(ids(&rest.tasks), [first.id.as_str()], "{binding}: the second page");
    assert_eq!(rest.next_page_token, "", "{binding}: there is no third page");
}

async fn stream(client: &Client, binding: &str) {
    let request = request(message("scn:bash cmd=\"echo aboard\" scn:text n=4 text=\"all is well\""));
    let events = collect(ok("SendStreamingMessage", client.send_streaming_message(&request).await)).await;
    let Some(StreamResponse::Task(first)) = events.first() else {
        panic!("{binding}: expected a task first, got {events:#?}")
    };
    let stored = ok("GetTask", client.get_task(&get(&first.id)).await);
    assert_eq!(texts(&stored).last().map(String::as_str), Some("all is well"), "{binding}: {stored:#?}");
    let folded = fold(&events);
    assert_eq!(texts(&folded), texts(&stored), "{binding}: the stream folds into another task");
    assert_eq!(folded.status, stored.status, "{binding}: the stream ends in another state");
    let ends = events.iter().filter(|event| is_terminal(event)).count();
    assert!(ends == 1 && events.last().is_some_and(is_terminal), "{binding}: one end, the last: {events:#?}");
}

async fn subscribe_and_cancel(client: &Client, binding: &str) {
    let mut endless = request(message("scn:forever delay=20"));
    endless.configuration = Some(SendMessageConfiguration {
        return_immediately: Some(true),
        accepted_output_modes: None,
        task_push_notification_config: None,
        history_length: None,
    });
    let task = task_of(ok("SendMessage", within(client.send_message(&endless)).await));
    assert!(!task.status.state.is_terminal(), "{binding}: {task:#?}");
    let subscribe = SubscribeToTaskRequest { id: task.id.clone(), tenant: None };
    let mut events = ok("SubscribeToTask", client.subscribe_to_task(&subscribe).await);
    let first = within(events.next()).await;
    assert!(
        matches!(&first, Some(Ok(StreamResponse::Task(seen))) if seen.id == task.id),
        "{binding}: expected the task first, got {first:#?}"
    );
    loop {
        match within(events.next()).await {
            Some(Ok(StreamResponse::ArtifactUpdate(_))) => break,
            Some(Ok(_)) => {}
            other => panic!("{binding}: expected some text, got {other:#?}"),
        }
    }
    let cancel = CancelTaskRequest { id: task.id.clone(), metadata: None, tenant: None };
    let canceled = ok("CancelTask", client.cancel_task(&cancel).await);
    assert_eq!(canceled.status.state, TaskState::Canceled, "{binding}: {canceled:#?}");
    let rest = collect(events).await;
    assert!(rest.last().is_some_and(is_terminal), "{binding}: the stream ended without an end: {rest:#?}");

    expect_code(
        binding,
        "a second cancel",
        client.cancel_task(&cancel).await,
        error_code::TASK_NOT_CANCELABLE,
    );
    let again = first_event(client.subscribe_to_task(&subscribe).await).await;
    expect_code(binding, "a subscription to an ended task", again, error_code::UNSUPPORTED_OPERATION);
}

async fn push_configs(client: &Client, binding: &str) {
    let task = send(client, message("scn:text n=1")).await.id;
    let config = TaskPushNotificationConfig {
        url: "https://127.0.0.1/hook".to_owned(),
        id: Some("hook".to_owned()),
        task_id: task.clone(),
        token: None,
        authentication: None,
        tenant: None,
    };
    let made = ok("CreateTaskPushNotificationConfig", client.create_push_config(&config).await);
    assert_eq!(made, config, "{binding}");
    let get =
        GetTaskPushNotificationConfigRequest { task_id: task.clone(), id: "hook".to_owned(), tenant: None };
    assert_eq!(ok("GetTaskPushNotificationConfig", client.get_push_config(&get).await), config, "{binding}");
    let list = ListTaskPushNotificationConfigsRequest {
        task_id: task.clone(),
        page_size: None,
        page_token: None,
        tenant: None,
    };
    let listed = ok("ListTaskPushNotificationConfigs", client.list_push_configs(&list).await);
    assert_eq!(listed.configs, [config], "{binding}");
    let id = "hook".to_owned();
    let delete = DeleteTaskPushNotificationConfigRequest { task_id: task, id, tenant: None };
    ok("DeleteTaskPushNotificationConfig", client.delete_push_config(&delete).await);
    expect_code(binding, "no configuration", client.get_push_config(&get).await, error_code::TASK_NOT_FOUND);
}

async fn extended_card(client: &Client, card: &AgentCard, binding: &str) {
    let request = GetExtendedAgentCardRequest { tenant: None };
    let extended = ok("GetExtendedAgentCard", client.get_extended_agent_card(&request).await);
    assert_eq!((extended.name, extended.version), (card.name.clone(), card.version.clone()), "{binding}");
}

/// The events of gRPC name their cursor, and the client sends it as metadata of the next call.
async fn resume_after_a_cut(card: &AgentCard) {
    let interface = card.supported_interfaces.iter().find(|interface| {
        (interface.protocol_binding.as_str(), interface.protocol_version.as_str())
            == (TRANSPORT_PROTOCOL_GRPC, VERSION)
    });
    let transport = ok("the connection", GrpcTransport::connect(&interface.expect("gRPC").url).await);
    let mut params = ServiceParams::from([
        (SVC_PARAM_VERSION.to_owned(), vec![VERSION.to_owned()]),
        ("authorization".to_owned(), vec![format!("Bearer {TOKEN}")]),
    ]);
    let request = request(message("scn:text n=6 delay=30 text=\"one two three four five six\""));
    let mut events = ok("SendStreamingMessage", transport.send_streaming_message(&params, &request).await);
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(ok("an event", within(events.next()).await.expect("the stream goes on")));
    }
    drop(events);
    let Some(StreamResponse::Task(task)) = seen.first() else { panic!("no task first: {seen:#?}") };
    let cut = cursor(seen.last().expect("three events"));
    params.insert("last-event-id".to_owned(), vec![cut]);
    let subscribe = SubscribeToTaskRequest { id: task.id.clone(), tenant: None };
    let rest = collect(ok("SubscribeToTask", transport.subscribe_to_task(&params, &subscribe).await)).await;
    let stored = ok("GetTask", transport.get_task(&params, &get(&task.id)).await);
    seen.extend(rest);
    // Neither an event twice nor the whole task again: both would change the text.
    let folded = fold(&seen);
    assert_eq!((texts(&folded), folded.status), (texts(&stored), stored.status));
}

fn cursor(event: &StreamResponse) -> String {
    let metadata = match event {
        StreamResponse::Task(task) => &task.metadata,
        StreamResponse::StatusUpdate(update) => &update.metadata,
        StreamResponse::ArtifactUpdate(update) => &update.metadata,
        StreamResponse::Message(message) => &message.metadata,
    };
    let own = metadata.as_ref().and_then(|metadata| metadata.get("longshore"));
    let cursor = own.and_then(|own| own["cursor"].as_str());
    cursor.unwrap_or_else(|| panic!("an event without a cursor: {event:#?}")).to_owned()
}

async fn errors(client: &Client, binding: &str) {
    let unknown = "no-such-task";
    expect_code(binding, "an unknown task", client.get_task(&get(unknown)).await, error_code::TASK_NOT_FOUND);
    let cancel = CancelTaskRequest { id: unknown.to_owned(), metadata: None, tenant: None };
    expect_code(binding, "an unknown task", client.cancel_task(&cancel).await, error_code::TASK_NOT_FOUND);
    let subscribe = SubscribeToTaskRequest { id: unknown.to_owned(), tenant: None };
    let subscribed = first_event(client.subscribe_to_task(&subscribe).await).await;
    expect_code(binding, "an unknown task", subscribed, error_code::TASK_NOT_FOUND);
    let empty = request(Message::new(Role::User, Vec::new()));
    expect_code(binding, "no parts", client.send_message(&empty).await, error_code::INVALID_PARAMS);
    let film = Part { media_type: Some("video/mp4".to_owned()), ..Part::raw(vec![1, 2, 3]) };
    let film = request(Message::new(Role::User, vec![film]));
    expect_code(binding, "a film", client.send_message(&film).await, error_code::CONTENT_TYPE_NOT_SUPPORTED);
}

pub(crate) async fn connect(http: &reqwest::Client, card: &AgentCard, binding: &str, token: &str) -> Client {
    let factory = A2AClientFactory::builder()
        .no_defaults()
        .register(Arc::new(JsonRpcTransportFactory::new(Some(http.clone()))))
        .register(Arc::new(RestTransportFactory::new(Some(http.clone()))))
        .register(Arc::new(GrpcTransportFactory::new()))
        .preferred_bindings(vec![binding.to_owned()])
        .with_interceptor(Arc::new(AuthInterceptor::bearer(token)))
        .build();
    let (client, chosen) = ok("the card", factory.create_from_card_with_interface(card).await);
    assert_eq!(chosen.protocol_binding, binding, "the client chose another binding");
    client
}

pub(crate) async fn send(client: &Client, message: Message) -> Task {
    task_of(ok("SendMessage", within(client.send_message(&request(message))).await))
}

pub(crate) async fn collect(
    mut events: BoxStream<'static, Result<StreamResponse, A2AError>>,
) -> Vec<StreamResponse> {
    let mut collected = Vec::new();
    while let Some(event) = within(events.next()).await {
        collected.push(ok("an event", event));
    }
    collected
}

/// A stream may be refused at once, or by its first event.
async fn first_event(
    opened: Result<BoxStream<'static, Result<StreamResponse, A2AError>>, A2AError>,
) -> Result<Option<StreamResponse>, A2AError> {
    within(opened?.next()).await.transpose()
}

/// The result of a call that must succeed.
pub(crate) fn ok<T>(what: &str, result: Result<T, A2AError>) -> T {
    result.unwrap_or_else(|error| panic!("{what} was refused: {error:#?}"))
}

fn expect_code<T: std::fmt::Debug>(binding: &str, what: &str, result: Result<T, A2AError>, code: i32) {
    match result {
        Err(error) => assert_eq!(error.code, code, "{binding}: {what}: {error:#?}"),
        Ok(value) => panic!("{binding}: {what} was accepted: {value:#?}"),
    }
}

pub(crate) fn fold(events: &[StreamResponse]) -> Task {
    let Some(StreamResponse::Task(first)) = events.first() else { panic!("no task first: {events:#?}") };
    let mut task = first.clone();
    for event in &events[1..] {
        match event {
            StreamResponse::StatusUpdate(update) => task.status = update.status.clone(),
            StreamResponse::ArtifactUpdate(update) => {
                let artifacts = task.artifacts.get_or_insert_default();
                let id = &update.artifact.artifact_id;
                match artifacts.iter_mut().find(|known| known.artifact_id == *id) {
                    None => artifacts.push(update.artifact.clone()),
                    Some(known) if update.append == Some(true) => {
                        known.parts.extend(update.artifact.parts.clone());
                    }
                    Some(known) => *known = update.artifact.clone(),
                }
            }
            other => panic!("expected an update, got {other:#?}"),
        }
    }
    task
}

fn is_terminal(event: &StreamResponse) -> bool {
    matches!(event, StreamResponse::StatusUpdate(update) if update.status.state.is_terminal())
}

/// The text of each artifact.
fn texts(task: &Task) -> Vec<String> {
    let artifacts = task.artifacts.iter().flatten();
    artifacts.map(|artifact| artifact.parts.iter().filter_map(Part::as_text).collect()).collect()
}

pub(crate) fn message(text: &str) -> Message {
    Message::new(Role::User, vec![Part::text(text)])
}

pub(crate) fn request(message: Message) -> SendMessageRequest {
    SendMessageRequest { message, configuration: None, metadata: None, tenant: None }
}

pub(crate) fn get(id: &str) -> GetTaskRequest {
    GetTaskRequest { id: id.to_owned(), history_length: None, tenant: None }
}

fn list(context: &str) -> ListTasksRequest {
    ListTasksRequest {
        context_id: Some(context.to_owned()),
        status: None,
        page_size: None,
        page_token: None,
        history_length: None,
        status_timestamp_after: None,
        include_artifacts: None,
        tenant: None,
    }
}

pub(crate) fn task_of(response: SendMessageResponse) -> Task {
    match response {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(message) => panic!("expected a task, got {message:#?}"),
    }
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("an answer in time")
}
