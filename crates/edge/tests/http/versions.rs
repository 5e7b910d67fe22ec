//! One gateway, two protocol versions: every operation gives the same result in each, except for named losses.

use longshore_model::{
    Artifact, ArtifactId, BlockKind, ContextId, Json, MessageId, PartContent, Task, TaskId, TaskState,
    Timestamp,
};
use longshore_wire::surface::{OPERATIONS, ProtocolVersion};
use longshore_wire::v1::method::Method;
use serde_json::{Value, json};

use crate::support::{ClientView, Gateway, ProtocolClient, TEXT, first_half, second_half};

type Lose = fn(&mut Task);

/// What 0.3 cannot express of a task, and what remains of it. Everything else is equal in both versions.
const LOSSES: [(&str, Lose); 2] = [
    ("a tool call is its last state", |task| {
        for artifact in &mut task.artifacts {
            let is_call = artifact.kind == BlockKind::ToolCall;
            artifact.parts.drain(..if is_call { artifact.parts.len() - 1 } else { 0 });
        }
    }),
    ("all blocks are one artifact, before the files", |task| {
        let (files, blocks): (Vec<_>, Vec<_>) = task.artifacts.drain(..).partition(is_file);
        if let Some(mut one) = blocks.first().cloned() {
            one.id = ArtifactId::parse(&format!("{}:stream", task.id)).unwrap();
            one.name = Some("response".to_owned());
            one.parts = blocks.into_iter().flat_map(|block| block.parts).collect();
            task.artifacts.push(one);
        }
        task.artifacts.extend(files);
    }),
];

fn is_file(artifact: &Artifact) -> bool {
    artifact.id.as_str().starts_with("file")
}

/// A task as clients of both versions know it: without what 0.3 cannot express, and without the hints about its blocks, which
/// one version has in the artifact and the other in its parts.
fn common(mut task: Task, client: ProtocolClient) -> Task {
    if client.version == ProtocolVersion::V1 {
        for (_, lose) in LOSSES {
            lose(&mut task);
        }
    }
    for artifact in task.artifacts.iter_mut().filter(|artifact| !is_file(artifact)) {
        (artifact.metadata, artifact.kind, artifact.source_message) = (None, BlockKind::Text, None);
        artifact.parts.iter_mut().for_each(|part| part.metadata = None);
    }
    // The order of an object's members does not matter.
    if let Some(metadata) = &task.metadata {
        let sorted: Value = serde_json::from_str(metadata.get()).unwrap();
        task.metadata = Some(Json::from_value(&sorted).try_into().unwrap());
    }
    task
}

/// The same for the response to a send or a get, where the status of 0.3 repeats the agent's text. Frames and lists do not
/// repeat it.
fn answered(mut task: Task, client: ProtocolClient) -> Task {
    if client.version == ProtocolVersion::V03 {
        let message = task.status.message.take().expect("clients of 0.3 look for the answer there");
        assert_eq!(message.parts[0].as_text(), Some("Better words. Done."));
    }
    common(task, client)
}

/// Creates such a task with a 1.0 client.
async fn finished_task(gateway: &mut Gateway, message_id: &str) -> String {
    let (task, turn) = gateway.working_task(message_id).await;
    let mut events = gateway.call("GET", &format!("/tasks/{task}:subscribe")).stream().await;
    first_half(&turn).await;
    second_half(turn).await;
    events.rest().await;
    task
}

/// The result of an operation, decoded to the model.
#[derive(Clone, PartialEq, Debug)]
enum OperationResult {
    Task(Box<Task>),
    Page {
        tasks: Vec<Task>,
        total: u32,
        size: u32,
        token: bool,
    },
    /// The task folded from the events of a stream.
    Stream(Box<ClientView>),
    Card(String),
    Refused {
        reason: String,
    },
}

/// Removes the ids that differ from send to send: a file has another URL in each task.
fn nameless(mut task: Task) -> Task {
    let id = task.id.to_string();
    task.id = TaskId::parse("t").unwrap();
    task.context_id = ContextId::parse("c").unwrap();
    task.status.at = Timestamp(0);
    for message in task.history.iter_mut().chain(&mut task.status.message) {
        message.id = MessageId::parse("m").unwrap();
        (message.task_id, message.context_id) = (None, None);
    }
    for artifact in &mut task.artifacts {
        let name = artifact.id.as_str().replace(&id, "t");
        artifact.id = ArtifactId::parse(&name).unwrap();
    }
    for part in task.artifacts.iter_mut().flat_map(|artifact| &mut artifact.parts) {
        if let PartContent::Url(url) = &mut part.content {
            "/artifacts/x".clone_into(url);
            part.metadata = None;
        }
    }
    for artifact in task.artifacts.iter_mut().filter(|artifact| is_file(artifact)) {
        artifact.metadata = None;
    }
    task
}

/// Calls one operation as one client does.
async fn perform(
    gateway: &mut Gateway,
    client: ProtocolClient,
    method: Method,
    task: &str,
) -> OperationResult {
    let unique = format!("{method:?}-{}", client.name().replace(' ', "-"));
    let message = client.message(&unique, "go");
    match method {
        Method::SendMessage => {
            let (answer, ()) = tokio::join!(client.send(gateway, &message, true).send(), async {
                let turn = gateway.turns.recv().await.unwrap();
                first_half(&turn).await;
                second_half(turn).await;
            });
            OperationResult::Task(answered(nameless(client.sent(&answer)), client).into())
        }
        Method::SendStreamingMessage => {
            let mut events = client.stream(gateway, &message).stream().await;
            let turn = gateway.turns.recv().await.unwrap();
            first_half(&turn).await;
            second_half(turn).await;
            let frames = events.rest().await;
            let folded = client.fold(None, &frames).unwrap();
            OperationResult::Stream(ClientView::of(&nameless(folded)).into())
        }
        Method::GetTask => {
            let answer = client.on(gateway, method, task).send().await;
            OperationResult::Task(answered(client.task(&answer), client).into())
        }
        Method::ListTasks => {
            let page = client.page(&client.list(gateway).send().await);
            let tasks = page.tasks.into_iter().map(|task| common(task, client)).collect();
            let token = !page.next_page_token.is_empty();
            OperationResult::Page { tasks, total: page.total, size: page.page_size, token }
        }
        Method::CancelTask => {
            let (working, turn) = gateway.working_task(&unique).await;
            let canceled = client.task(&client.on(gateway, method, &working).send().await);
            drop(turn);
            OperationResult::Task(common(nameless(canceled), client).into())
        }
        Method::SubscribeToTask => {
            let (working, turn) = gateway.working_task(&unique).await;
            first_half(&turn).await;
            let mut events = client.on(gateway, method, &working).stream().await;
            second_half(turn).await;
            let folded = client.fold(None, &events.rest().await).unwrap();
            OperationResult::Stream(ClientView::of(&nameless(folded)).into())
        }
        Method::GetExtendedAgentCard => {
            let answer = client.on(gateway, method, "").send().await;
            let body = answer.json();
            let card = body.get("result").unwrap_or(&body);
            OperationResult::Card(card["name"].as_str().unwrap().to_owned())
        }
        Method::CreateTaskPushNotificationConfig
        | Method::GetTaskPushNotificationConfig
        | Method::ListTaskPushNotificationConfigs
        | Method::DeleteTaskPushNotificationConfig => {
            let answer = client.call(gateway, method, task, &json!({"id": task})).send().await;
            OperationResult::Refused { reason: client.reason(&answer) }
        }
    }
}

#[tokio::test]
async fn every_operation_gives_the_same_result_in_every_version_and_binding() {
    let mut gateway = Gateway::manual().await;
    let task = finished_task(&mut gateway, "m0").await;
    for operation in &OPERATIONS {
        let mut first: Option<OperationResult> = None;
        for client in ProtocolClient::ALL {
            let result = perform(&mut gateway, client, operation.method, &task).await;
            let first = first.get_or_insert_with(|| result.clone());
            assert_eq!(result, *first, "{:?} by {}", operation.method, client.name());
        }
        match first.unwrap() {
            OperationResult::Stream(seen) => {
                assert_eq!((seen.state, &*seen.text), (TaskState::Completed, TEXT));
            }
            OperationResult::Task(task) if operation.method != Method::CancelTask => {
                assert_eq!(ClientView::of(&task).text, TEXT);
            }
            OperationResult::Page { tasks, .. } => assert!(!tasks.is_empty()),
            OperationResult::Refused { reason } => assert_eq!(reason, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
            OperationResult::Task(_) | OperationResult::Card(_) => {}
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn on_rest_of_0_3_a_list_spells_its_tasks_like_the_other_paths() {
    let mut gateway = Gateway::manual().await;
    let (id, turn) = gateway.working_task("m1").await;
    gateway.call("POST", &format!("/v1/tasks/{id}:cancel")).send().await;
    drop(turn);
    let mut got = gateway.call("GET", &format!("/v1/tasks/{id}")).send().await.json();
    assert_eq!(got["status"]["state"], "TASK_STATE_CANCELLED");
    // Lists leave the history out.
    got.as_object_mut().unwrap().remove("history");
    let listed = gateway.call("GET", "/v1/tasks?historyLength=0").send().await.json();
    let mut task = listed["tasks"][0].clone();
    task.as_object_mut().unwrap().remove("history");
    assert_eq!(task, got);
    gateway.stop().await;
}
