//! Every operation in every binding and version: the same tasks, events and errors, for the same credentials, within common limits.

use std::path::PathBuf;

use longshore_edge::{EdgeConfig, Listeners, Rate};
use longshore_model::{Task, TaskState};
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v1::decode::StreamEvent;
use tempfile::TempDir;
use tokio::net::UnixListener;

use crate::support::{ADA, BOB, Binding, BindingEvents, ClientView, Gateway, TEXT, first_half, second_half};

/// A gateway on a port, on a unix socket, and on its standard input and output.
async fn gateway(configure: impl FnOnce(&mut EdgeConfig)) -> (Gateway, Vec<Binding>, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("s");
    let unix = Some(UnixListener::bind(&path).unwrap());
    let gateway = Gateway::manual_listening(Listeners { unix, ..Listeners::default() }, configure).await;
    let bindings = Binding::all(&gateway, &path, &gateway.stdio());
    (gateway, bindings, directory)
}

/// The rows that follow a row, so that each operation of a task is called in another binding.
fn after(bindings: &[Binding], index: usize, steps: usize) -> &Binding {
    &bindings[(index + steps) % bindings.len()]
}

fn fold(mut task: Option<Task>, events: Vec<(String, StreamEvent)>) -> Task {
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
        let listed = for_get.list(&gateway, ADA).await.unwrap();
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
        // What every version refuses, in each binding with the same reason.
        let unknown = for_cancel.get(&gateway, ADA, "nonsense").await.unwrap_err();
        assert_eq!(unknown, "TASK_NOT_FOUND", "{about}");
        let again = for_cancel.cancel(&gateway, ADA, &id).await;
        match for_cancel.version {
            ProtocolVersion::V1 => assert_eq!(again.unwrap_err(), "TASK_NOT_CANCELABLE", "{about}"),
            ProtocolVersion::V03 => assert_eq!(again.unwrap().id, sent.id, "{about}"),
        }
        assert_eq!(maker.card(&gateway, ADA).await.unwrap(), "Test agent", "{about}");
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
        }
        assert_eq!(binding.get(&gateway, ADA, &task).await.unwrap().id.as_str(), task, "{name}");
        assert_eq!(binding.get(&gateway, BOB, &task).await.unwrap_err(), "TASK_NOT_FOUND", "{name}");
        assert_eq!(binding.list(&gateway, BOB).await.unwrap(), [], "{name}");
    }
    turn.complete().await;
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
    let rate = Rate { requests: 100, window: std::time::Duration::from_hours(1) };
    let (gateway, bindings, _directory) = self::gateway(|config| config.limits.rate = Some(rate)).await;
    let common: Vec<&Binding> = bindings.iter().filter(|binding| !binding.is_owner).collect();
    let mut used = 0;
    while used + 2 <= 100 {
        let binding = common[used % common.len()];
        binding.list(&gateway, ADA).await.unwrap();
        used += if binding.name.contains("WebSocket") { 2 } else { 1 };
    }
    for _ in used..100 {
        common[0].list(&gateway, ADA).await.unwrap();
    }
    for binding in common {
        assert_eq!(binding.list(&gateway, ADA).await.unwrap_err(), "TOO_MANY_REQUESTS", "{}", binding.name);
        assert!(binding.list(&gateway, BOB).await.is_ok(), "{}", binding.name);
    }
    gateway.stop().await;
}
