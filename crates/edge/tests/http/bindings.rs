//! Every operation in every binding and version: the same tasks, events and errors, for the same credentials, within common limits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_edge::{EdgeConfig, Listeners, Rate};
use longshore_engine::PushRules;
use longshore_meter::Metrics;
use longshore_meter::label::Limit;
use longshore_model::{Answer, Json, Part, PartContent, PermissionReply, Task, TaskState};
use longshore_wire::extension::Extension;
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v1::decode::StreamEvent;
use longshore_wire::v1::method::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, UnixListener};

use crate::support::log_lines::LogLines;
use crate::support::{
    ADA, BOB, Binding, BindingEvents, Call, ClientView, Gateway, PATIENCE, TEXT, first_half, second_half,
};

/// A gateway on a port, on a port for gRPC, on a unix socket, and on its standard input and output.
pub(crate) async fn gateway(configure: impl FnOnce(&mut EdgeConfig)) -> (Gateway, Vec<Binding>, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("s");
    let unix = Some(UnixListener::bind(&path).unwrap());
    let grpc = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = grpc.local_addr().unwrap();
    let listeners = Listeners { unix, grpc: Some(grpc), ..Listeners::default() };
    let store = Arc::new(longshore_store::memory());
    let gateway = Gateway::pushing_listening(listeners, store, PushRules::default(), |config| {
        config.grpc = Some(&longshore_grpc::Messages);
        configure(config);
    })
    .await;
    let bindings = Binding::all(&gateway, &path, port, &gateway.stdio()).await;
    (gateway, bindings, directory)
}

/// The rows that follow a row, so that each operation of a task is called in another binding.
fn after(bindings: &[Binding], index: usize, steps: usize) -> &Binding {
    &bindings[(index + steps) % bindings.len()]
}

pub(crate) fn fold(mut task: Option<Task>, events: Vec<(String, StreamEvent)>) -> Task {
    for (_, event) in events {
        task = Some(match (event, task) {
            (StreamEvent::Task(task), _) => task,
            (event, Some(mut task)) => {
                task.apply(&event.into_event().unwrap());
                task
            }
            (event, None) => panic!("{event:?} before any task"),
        });
    }
    task.expect("an event")
}

async fn events_until_text(events: &mut BindingEvents, text: &str) -> Vec<(String, StreamEvent)> {
    let mut seen = Vec::new();
    loop {
        let (cursor, event) = events.next().await.expect("the stream goes on");
        let is_last = matches!(&event, StreamEvent::Artifact { update, .. }
            if update.artifact.parts.iter().any(|part| part.as_text().is_some_and(|part| part.contains(text))));
        seen.push((cursor, event));
        if is_last {
            return seen;
        }
    }
}

#[tokio::test]
async fn a_task_is_streamed_read_listed_and_resumed_in_other_bindings_than_it_was_made_in() {
    let (mut gateway, bindings, _directory) = gateway(|_| {}).await;
    for (index, maker) in bindings.iter().enumerate() {
        let [for_get, for_join, for_resume] = [1, 3, 5].map(|steps| after(&bindings, index, steps));
        let about = format!("{} / {} / {} / {}", maker.name, for_get.name, for_join.name, for_resume.name);
        let mut whole = maker.stream(&gateway, ADA, &format!("m{index}")).await;
        let turn = gateway.turns.recv().await.unwrap();
        let id = turn.request.task.to_string();
        first_half(&turn).await;
        let begun = events_until_text(&mut whole, "words. ").await;
        let cut = begun.last().unwrap().0.clone();
        let known = fold(None, begun.clone());
        let read = for_get.get(&gateway, ADA, &id).await.unwrap();
        assert_eq!(ClientView::of(&read), ClientView::of(&known), "{about}");

        let before = for_resume.get(&gateway, ADA, &id).await.unwrap();
        let mut joined = for_join.subscribe(&gateway, ADA, &id, "").await;
        let mut resumed = for_resume.subscribe(&gateway, ADA, &id, &cut).await;
        let snapshot = joined.next().await.unwrap();
        assert_eq!(snapshot.0, cut, "{about}");
        second_half(turn).await;
        let mut all = begun;
        all.extend(whole.rest().await);
        let cursors: Vec<String> = all.iter().map(|(cursor, _)| cursor.clone()).collect();
        let end = ClientView::of(&fold(None, all));
        assert_eq!((end.state, &*end.text), (TaskState::Completed, TEXT), "{about}");
        let mut seen = vec![snapshot];
        seen.extend(joined.rest().await);
        assert_eq!(ClientView::of(&fold(None, seen)), end, "{about}");
        let missed = resumed.rest().await;
        assert!(!missed.is_empty(), "{about}");
        if for_resume.version == maker.version {
            let of_missed: Vec<&String> = missed.iter().map(|(cursor, _)| cursor).collect();
            let expected: Vec<&String> =
                cursors.iter().skip_while(|cursor| **cursor != cut).skip(1).collect();
            assert_eq!(of_missed, expected, "{about}");
        }
        assert_eq!(ClientView::of(&fold(Some(before), missed)), end, "{about}");
        let mut others = (1..).map(|steps| after(&bindings, index, steps));
        let for_list = others.find(|binding| binding.has(Method::ListTasks)).unwrap();
        let listed = for_list.list(&gateway, ADA).await.unwrap();
        assert!(listed.iter().any(|task| task.id.as_str() == id), "{about}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_task_is_canceled_in_another_binding_than_it_was_sent_in() {
    let (mut gateway, bindings, _directory) = gateway(|_| {}).await;
    for (index, maker) in bindings.iter().enumerate() {
        let [for_stream, for_cancel] = [2, 4].map(|steps| after(&bindings, index, steps));
        let about = format!("{} / {} / {}", maker.name, for_stream.name, for_cancel.name);
        let sent = maker.send(&gateway, ADA, &format!("m{index}"), false).await.unwrap();
        let turn = gateway.turns.recv().await.unwrap();
        let id = sent.id.to_string();
        let mut events = for_stream.subscribe(&gateway, ADA, &id, "").await;
        let first = events.next().await.unwrap();
        let canceled = for_cancel.cancel(&gateway, ADA, &id).await.unwrap();
        assert_eq!(canceled.status.state, TaskState::Canceled, "{about}");
        let mut seen = vec![first];
        seen.extend(events.rest().await);
        assert_eq!(fold(None, seen).status.state, TaskState::Canceled, "{about}");
        drop(turn);
        let again = for_cancel.cancel(&gateway, ADA, &id).await;
        match for_cancel.version {
            ProtocolVersion::V1 => assert_eq!(again.unwrap_err(), "TASK_NOT_CANCELABLE", "{about}"),
            ProtocolVersion::V03 => assert_eq!(again.unwrap().id, sent.id, "{about}"),
        }
        assert_eq!(maker.card(&gateway, ADA).await.unwrap(), "Test agent", "{about}");
    }
    gateway.stop().await;
}

/// What a reader sees of an event, without what only some bindings write into its metadata.
fn shape(event: &StreamEvent) -> String {
    match event {
        StreamEvent::Task(task) => format!("{:?}", ClientView::of(task)),
        StreamEvent::Message(message) => format!("{:?}", message.parts),
        StreamEvent::Status { update, .. } => update.status.state.to_string(),
        StreamEvent::Artifact { update, .. } => {
            let (artifact, append, last) = (&update.artifact, update.append, update.last_chunk);
            // The fields of an object have no order in the messages of gRPC.
            let data = |data: &Json| serde_json::from_str::<BTreeMap<String, Value>>(data.get()).unwrap();
            let part = |part: &Part| match &part.content {
                PartContent::Data(json) => format!("{:?}", data(json)),
                content => format!("{content:?}"),
            };
            let parts: Vec<_> = artifact.parts.iter().map(part).collect();
            format!("{} {append} {last} {parts:?}", artifact.id)
        }
    }
}

async fn shown(mut events: BindingEvents) -> Vec<(String, String)> {
    events.rest().await.iter().map(|(cursor, event)| (cursor.clone(), shape(event))).collect()
}

#[tokio::test]
async fn every_binding_of_a_version_shows_the_same_events() {
    let (mut gateway, bindings, _directory) = gateway(|_| {}).await;
    let (task, turn) = gateway.working_task("m1").await;
    let mut live = bindings[0].subscribe(&gateway, ADA, &task, "0").await;
    first_half(&turn).await;
    second_half(turn).await;
    live.rest().await;
    for version in ProtocolVersion::ALL {
        let of_version: Vec<_> = bindings.iter().filter(|binding| binding.version == version).collect();
        let whole = shown(of_version[0].subscribe(&gateway, ADA, &task, "0").await).await;
        // From the start, and after each event but the last. What 0.3 makes of one event may have only one cursor.
        let mut cuts: Vec<&str> =
            whole.iter().map(|(cursor, _)| &**cursor).filter(|cut| !cut.is_empty()).collect();
        cuts.pop();
        assert!(cuts.len() > 5, "{whole:#?}");
        for cut in ["0"].into_iter().chain(cuts) {
            let expected = shown(of_version[0].subscribe(&gateway, ADA, &task, cut).await).await;
            for binding in &of_version[1..] {
                let other = shown(binding.subscribe(&gateway, ADA, &task, cut).await).await;
                assert_eq!(other, expected, "{} after {cut}", binding.name);
            }
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_ask_is_answered_by_a_message_in_another_binding() {
    let (mut gateway, bindings, _directory) = gateway(|_| {}).await;
    for (index, maker) in bindings.iter().enumerate() {
        let [for_get, for_answer] = [3, 5].map(|steps| after(&bindings, index, steps));
        let about = format!("{} / {} / {}", maker.name, for_get.name, for_answer.name);
        let mut events = maker.stream(&gateway, ADA, &format!("m{index}")).await;
        let turn = gateway.turns.recv().await.unwrap();
        let (task, request) = (turn.request.task.to_string(), format!("per_{index}"));
        turn.ask(&request).await;
        while !shape(&events.next().await.unwrap().1).contains(&TaskState::InputRequired.to_string()) {}
        let asked = for_get.get(&gateway, ADA, &task).await.unwrap();
        assert_eq!(asked.status.state, TaskState::InputRequired, "{about}");

        let mut reply = for_answer.client.message(&format!("reply{index}"), "once");
        reply["taskId"] = json!(task);
        let answered = for_answer.send_message(&gateway, ADA, &reply, false).await.unwrap();
        assert_eq!(answered.status.state, TaskState::Working, "{about}");
        let (id, answer) = gateway.agent.log().replied.pop().unwrap();
        assert_eq!(id.as_str(), request, "{about}");
        assert_eq!(answer, Answer::Permission { reply: PermissionReply::Once, message: None }, "{about}");
        turn.complete().await;
        let last = events.rest().await.pop().unwrap().1;
        assert_eq!(shape(&last), TaskState::Completed.to_string(), "{about}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_push_configuration_is_created_read_listed_and_deleted_in_four_bindings() {
    const URL: &str = "https://hooks.test/a";
    let (mut gateway, bindings, _directory) = gateway(|_| {}).await;
    let (task, turn) = gateway.working_task("m1").await;
    for index in 0..bindings.len() {
        let call = async |steps: usize, who: &str, method: Method| {
            let binding = after(&bindings, index, steps);
            let params = binding.client.push_params(method, &task, URL);
            binding.json(who, binding.client.call(&gateway, method, &task, &params)).await
        };
        let create = Method::CreateTaskPushNotificationConfig;
        let read = Method::GetTaskPushNotificationConfig;
        let list = Method::ListTaskPushNotificationConfigs;
        let delete = Method::DeleteTaskPushNotificationConfig;
        // Deleting it again is no error.
        for (steps, method) in [(0, create), (1, read), (3, list), (5, delete), (6, delete)] {
            let name = &after(&bindings, index, steps).name;
            if !after(&bindings, index, steps).is_owner {
                let of_another = call(steps, BOB, method).await;
                assert_eq!(of_another, Err("TASK_NOT_FOUND".to_owned()), "{name} {method:?}");
            }
            let shown = call(steps, ADA, method).await.unwrap().to_string();
            assert_eq!(shown.matches(URL).count(), usize::from(method != delete), "{name}: {shown}");
            assert!(!shown.contains("planted"), "{name}: {shown}");
        }
        assert_eq!(call(2, ADA, read).await.unwrap_err(), "TASK_NOT_FOUND");
        let left = call(4, ADA, list).await.unwrap().to_string();
        assert!(!left.contains(URL), "{left}");
    }
    turn.complete().await;
    gateway.stop().await;
}

/// A mistake of a caller: the name of the case, the call, and its reason in each version.
type Mistake<'a> = (&'a str, Call, [&'a str; 2]);

fn mistakes<'a>(gateway: &Gateway, binding: &Binding, task: &str, ended: &str) -> Vec<Mistake<'a>> {
    let (client, unknown) = (binding.client, ["TASK_NOT_FOUND"; 2]);
    let on = |method, task| client.on(gateway, method, task);
    let push = |method, task, url| client.call(gateway, method, task, &client.push_params(method, task, url));
    let mut without_parts = client.message("m-empty", "");
    for parts in ["parts", "content"] {
        if without_parts.get(parts).is_some() {
            without_parts[parts] = json!([]);
        }
    }
    let mut only_images = client.send_body(&client.message("m-image", "draw"), false);
    only_images["configuration"]["acceptedOutputModes"] = json!(["image/png"]);
    let mut to_ended = client.message("m-late", "go on");
    to_ended["taskId"] = json!(ended);
    let invalid = ["INVALID_PARAMS", "INVALID_FIELD"];
    let send = |message: &Value| client.send(gateway, message, false);
    vec![
        ("get", on(Method::GetTask, "nonsense"), unknown),
        ("cancel", on(Method::CancelTask, "nonsense"), unknown),
        ("subscribe", on(Method::SubscribeToTask, "nonsense"), unknown),
        ("an id with a space", on(Method::GetTask, "a%20b"), invalid),
        ("no parts", send(&without_parts), invalid),
        (
            "no output mode of the agent",
            client.call(gateway, Method::SendMessage, "", &only_images),
            ["CONTENT_TYPE_NOT_SUPPORTED"; 2],
        ),
        ("a message to an ended task", send(&to_ended), ["UNSUPPORTED_OPERATION"; 2]),
        ("stream to an ended task", client.stream(gateway, &to_ended), ["UNSUPPORTED_OPERATION"; 2]),
        (
            "a cursor of another form",
            on(Method::SubscribeToTask, task).header("last-event-id", "nonsense"),
            invalid,
        ),
        (
            "an unknown version",
            on(Method::GetTask, task).header("a2a-version", "7.0"),
            ["VERSION_NOT_SUPPORTED"; 2],
        ),
        ("no such configuration", push(Method::GetTaskPushNotificationConfig, task, ""), unknown),
        (
            "a receiver that is not called",
            push(Method::CreateTaskPushNotificationConfig, task, "https://inside.test/"),
            invalid,
        ),
    ]
}

/// The length of the longest body in [`refused_by_settings`].
const LONGEST: usize = 4000;

/// What a gateway refuses that takes no push notifications and no long bodies, and that requires an extension.
fn refused_by_settings<'a>(gateway: &Gateway, binding: &Binding, task: &str) -> Vec<Mistake<'a>> {
    let client = binding.client;
    let create = Method::CreateTaskPushNotificationConfig;
    let config = client.push_params(create, task, "https://hooks.test/a");
    let mut refused = vec![(
        "push notifications are off",
        client.call(gateway, create, task, &config),
        ["PUSH_NOTIFICATION_NOT_SUPPORTED"; 2],
    )];
    // A message that is too long has no id yet, and ends a WebSocket.
    if !binding.has_messages() {
        let long = client.send(gateway, &client.message("m-long", &"x".repeat(LONGEST)), false);
        refused.push(("a long body", long, ["REQUEST_BODY_TOO_LARGE"; 2]));
    }
    // Extensions are not activated in 0.3.
    if binding.version == ProtocolVersion::V1 {
        let without = client.on(gateway, Method::GetTask, task).header("a2a-extensions", "");
        refused.push(("an extension is missing", without, ["EXTENSION_SUPPORT_REQUIRED"; 2]));
    }
    refused
}

async fn check_reasons(binding: &Binding, mistakes: Vec<Mistake<'_>>) {
    for (about, call, [v1, v03]) in mistakes {
        // gRPC has the reasons of 1.0 in both versions: 0.3 defines none.
        let expected = if binding.version == ProtocolVersion::V1 || binding.is_grpc() { v1 } else { v03 };
        let refused = binding.json(ADA, call).await;
        assert_eq!(refused.unwrap_err(), expected, "{} {about}", binding.name);
    }
}

#[tokio::test]
async fn every_binding_gives_the_same_reasons() {
    let (mut gateway, bindings, _directory) = gateway(|_| {}).await;
    let (task, turn) = gateway.working_task("m1").await;
    let (ended, ending) = gateway.working_task("m2").await;
    ending.complete().await;
    bindings[0].subscribe(&gateway, ADA, &ended, "0").await.rest().await;
    for binding in &bindings {
        check_reasons(binding, mistakes(&gateway, binding, &task, &ended)).await;
    }
    turn.complete().await;
    gateway.stop().await;

    let (mut gateway, bindings, _directory) = self::gateway(|config| {
        config.deployment.push = false;
        config.deployment.required_extensions = vec![Extension::StreamHints];
        config.max_body_bytes = LONGEST;
    })
    .await;
    let task = bindings[0].send(&gateway, ADA, "m1", false).await.unwrap().id.to_string();
    let turn = gateway.turns.recv().await.unwrap();
    for binding in &bindings {
        check_reasons(binding, refused_by_settings(&gateway, binding, &task)).await;
    }
    turn.complete().await;
    gateway.stop().await;
}

/// More than the windows of a client of HTTP/2 and the buffers of the gateway hold together.
const PIECES: usize = 64;
const PIECE: usize = 64 * 1024;

/// The tables of the other bindings are in `slow_clients`, `tls`, `unix_socket` and `websocket`.
#[tokio::test]
async fn a_stalled_reader_of_grpc_is_cut_and_resumes_without_a_loss() {
    let metrics = Arc::new(Metrics::new("1"));
    let counted = Arc::clone(&metrics);
    let (mut gateway, bindings, _directory) = gateway(|config| {
        config.write_timeout = Duration::from_millis(200);
        config.metrics = counted;
    })
    .await;
    let _lines = LogLines::begin();
    for (index, binding) in bindings.iter().filter(|binding| binding.is_grpc()).enumerate() {
        let mut stalled = binding.stream(&gateway, ADA, &format!("m{index}")).await;
        let turn = gateway.turns.recv().await.unwrap();
        let task = turn.request.task.to_string();
        for number in 0..PIECES {
            turn.say(&format!("b{number}"), &"x".repeat(PIECE)).await;
        }
        let cut = async {
            while metrics.stream_active.get() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, cut).await.expect("the stalled stream ends");
        assert_eq!(metrics.refused.of(Limit::WriteTimeout).get(), index as u64 + 1, "{}", binding.name);
        turn.complete().await;

        let mut seen = stalled.until_cut().await;
        // In 0.3, only the last of the events with one cursor has it.
        let known = seen.iter().rposition(|(cursor, _)| !cursor.is_empty()).expect("an event");
        seen.truncate(known + 1);
        let last = seen[known].0.clone();
        seen.extend(binding.subscribe(&gateway, ADA, &task, &last).await.rest().await);
        let end = ClientView::of(&fold(None, seen));
        assert_eq!((end.state, end.text.len()), (TaskState::Completed, PIECES * PIECE), "{}", binding.name);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_blocking_send_returns_the_ended_task() {
    let (mut gateway, bindings, _directory) = gateway(|_| {}).await;
    for (index, binding) in bindings.iter().enumerate() {
        let mut turns = std::mem::replace(&mut gateway.turns, tokio::sync::mpsc::channel(1).1);
        let message_id = format!("m{index}");
        let (sent, ()) = tokio::join!(binding.send(&gateway, ADA, &message_id, true), async {
            turns.recv().await.unwrap().complete().await;
        });
        assert_eq!(sent.unwrap().status.state, TaskState::Completed, "{}", binding.name);
        gateway.turns = turns;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_credential_rules_are_the_same_in_every_binding() {
    let (mut gateway, bindings, _directory) = gateway(|_| {}).await;
    let (task, turn) = gateway.working_task("m1").await;
    for binding in bindings.iter().filter(|binding| !binding.is_owner) {
        let name = &binding.name;
        for who in ["", "Bearer wrong"] {
            assert_eq!(binding.get(&gateway, who, &task).await.unwrap_err(), "UNAUTHENTICATED", "{name}");
            let stream = binding.refused_stream(&gateway, who, "m2").await;
            assert_eq!(stream, "UNAUTHENTICATED", "{name} {who}");
            let subscription = binding.refused_subscription(&gateway, who, &task).await;
            assert_eq!(subscription, "UNAUTHENTICATED", "{name} {who}");
        }
        assert_eq!(binding.get(&gateway, ADA, &task).await.unwrap().id.as_str(), task, "{name}");
        assert_eq!(binding.get(&gateway, BOB, &task).await.unwrap_err(), "TASK_NOT_FOUND", "{name}");
        let cancel = binding.cancel(&gateway, BOB, &task).await;
        assert_eq!(cancel.unwrap_err(), "TASK_NOT_FOUND", "{name}");
        assert_eq!(binding.refused_subscription(&gateway, BOB, &task).await, "TASK_NOT_FOUND", "{name}");
        if binding.has(Method::ListTasks) {
            assert_eq!(binding.list(&gateway, BOB).await.unwrap(), [], "{name}");
        }
    }
    turn.complete().await;
    gateway.stop().await;
}

/// Loopback addresses are never locked, so only the count can be seen here.
#[tokio::test]
async fn failed_logins_are_counted_in_every_binding() {
    let metrics = Arc::new(Metrics::new("1"));
    let counted = Arc::clone(&metrics);
    let (gateway, bindings, _directory) = gateway(|config| config.metrics = counted).await;
    let common = bindings.iter().filter(|binding| !binding.is_owner);
    for (index, binding) in common.enumerate() {
        for (who, reason) in
            [("", "UNAUTHENTICATED"), (ADA, "TASK_NOT_FOUND"), ("Bearer wrong", "UNAUTHENTICATED")]
        {
            let refused = binding.get(&gateway, who, "nonsense").await;
            assert_eq!(refused.unwrap_err(), reason, "{} {who}", binding.name);
        }
        assert_eq!(metrics.failed_logins.get(), index as u64 + 1, "{}", binding.name);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_limits_count_across_bindings() {
    let (mut gateway, bindings, _directory) = gateway(|config| config.limits.streams_per_principal = 2).await;
    let common: Vec<&Binding> = bindings.iter().filter(|binding| !binding.is_owner).collect();
    for (index, binding) in common.iter().enumerate() {
        let mut open = Vec::new();
        for steps in [1, 2] {
            let other = common[(index + steps) % common.len()];
            let mut events = other.stream(&gateway, ADA, &format!("m{index}-{steps}")).await;
            events.next().await.unwrap();
            open.push((events, gateway.turns.recv().await.unwrap()));
        }
        let refused = binding.refused_stream(&gateway, ADA, &format!("m{index}")).await;
        assert_eq!(refused, "TOO_MANY_REQUESTS", "{}", binding.name);
        for (mut events, turn) in open {
            turn.complete().await;
            events.rest().await;
        }
    }
    gateway.stop().await;

    // Each call of a binding takes one request, and that of a WebSocket one more for its handshake.
    let rate = Rate { requests: 100, window: Duration::from_hours(1) };
    let (gateway, bindings, _directory) = self::gateway(|config| config.limits.rate = Some(rate)).await;
    let common: Vec<&Binding> = bindings.iter().filter(|binding| !binding.is_owner).collect();
    let read = async |binding: &Binding, who| binding.get(&gateway, who, "nonsense").await.unwrap_err();
    let mut used = 0;
    while used + 2 <= 100 {
        let binding = common[used % common.len()];
        assert_eq!(read(binding, ADA).await, "TASK_NOT_FOUND", "{}", binding.name);
        used += if binding.name.contains("WebSocket") { 2 } else { 1 };
    }
    for _ in used..100 {
        assert_eq!(read(common[0], ADA).await, "TASK_NOT_FOUND");
    }
    for binding in common {
        assert_eq!(read(binding, ADA).await, "TOO_MANY_REQUESTS", "{}", binding.name);
        assert_eq!(read(binding, BOB).await, "TASK_NOT_FOUND", "{}", binding.name);
    }
    gateway.stop().await;
}
