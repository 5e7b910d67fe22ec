//! The unix socket: the same requests and credentials as on a port, and the user at its other end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_edge::{EdgeConfig, Listeners, Rights};
use longshore_meter::Metrics;
use longshore_meter::label::Limit;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};

use crate::support::log_lines::LogLines;
use crate::support::route::Route;
use crate::support::{ADA, BOB, Binding, Gateway, PATIENCE, credentials_builder, message};

/// A gateway on a port and on a socket.
async fn gateway(configure: impl FnOnce(&mut EdgeConfig)) -> (Gateway, PathBuf, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let unix = Some(UnixListener::bind(&path).unwrap());
    let gateway = Gateway::manual_listening(Listeners { unix, ..Listeners::default() }, configure).await;
    (gateway, path, directory)
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[tokio::test]
async fn the_credential_rules_are_those_of_the_port_but_for_a_known_user() {
    let known = credentials_builder().local_user(own_user(), "ada", Rights::default());
    let other = credentials_builder().local_user(own_user() + 1, "ada", Rights::default());
    // The user that the gateway knows, the header, and the status of a request for ada's task.
    let cases = [
        (credentials_builder(), [("", 401), ("Bearer wrong", 401), (ADA, 200), (BOB, 404)]),
        (known, [("", 200), ("Bearer wrong", 401), (ADA, 200), (BOB, 404)]),
        (other, [("", 401), ("Bearer wrong", 401), (ADA, 200), (BOB, 404)]),
    ];
    for (credentials, cases) in cases {
        let (mut gateway, path, _directory) =
            gateway(|config| config.credentials = credentials.build().unwrap()).await;
        let (task, turn) = gateway.working_task("m1").await;
        let route = Route::Unix(path);
        for (header, expected) in cases {
            let call = gateway.call("GET", &format!("/tasks/{task}")).header("authorization", header);
            // The connection on the port is of the same user, and that says nothing there.
            let on_port = if header.is_empty() { 401 } else { expected };
            assert_eq!(call.clone().send().await.status.as_u16(), on_port, "{header:?}");
            for call in [call.clone(), call.http2()] {
                assert_eq!(call.over(&route).send().await.status.as_u16(), expected, "{header:?}");
            }
        }
        turn.complete().await;
        gateway.stop().await;
    }
}

#[tokio::test]
async fn the_known_user_needs_no_other_credential_in_any_binding_on_the_socket() {
    let credentials = credentials_builder().local_user(own_user(), "ada", Rights::default());
    let credentials = credentials.local_user(own_user() + 1, "bob", Rights::default());
    let (mut gateway, path, _directory) = gateway(|config| {
        config.credentials = credentials.build().unwrap();
        config.grpc = Some(&longshore_grpc::Messages);
    })
    .await;
    let (task, turn) = gateway.working_task("m1").await;
    let bindings = Binding::all(&gateway, &path, gateway.address, &gateway.stdio()).await;
    // On stdio there are no credentials.
    for binding in bindings.iter().filter(|binding| !binding.is_owner) {
        let read = async |who| binding.get(&gateway, who, &task).await.map(|task| task.id.to_string());
        let refused = Err("UNAUTHENTICATED".to_owned());
        let expected =
            if binding.name.ends_with("on a unix socket") { Ok(task.clone()) } else { refused.clone() };
        assert_eq!(read("").await, expected, "{}", binding.name);
        assert_eq!(read("Bearer wrong").await, refused, "{}", binding.name);
        assert!(read(BOB).await.is_err(), "{}", binding.name);
    }
    turn.complete().await;
    gateway.stop().await;
}

#[tokio::test]
async fn any_host_is_accepted_and_a_foreign_origin_is_not() {
    let (gateway, path, _directory) =
        gateway(|config| config.limits.allowed_hosts = vec!["agent.test".to_owned()]).await;
    let route = Route::Unix(path);
    let call = gateway.call("GET", "/tasks").under("anything.example");
    assert_eq!(call.clone().send().await.status.as_u16(), 403);
    assert_eq!(call.clone().over(&route).send().await.status.as_u16(), 200);
    let foreign = call.header("origin", "https://evil.example").over(&route);
    assert_eq!(foreign.send().await.status.as_u16(), 403);
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_is_delivered_whole() {
    let (mut gateway, path, _directory) = gateway(|_| {}).await;
    let (task, turn) = gateway.working_task("m1").await;
    let subscribe = gateway.call("GET", &format!("/tasks/{task}:subscribe")).over(&Route::Unix(path));
    for call in [subscribe.clone(), subscribe.http2()] {
        let mut events = call.stream().await;
        events.next().await.unwrap();
        turn.say("b1", &"x".repeat(64 * 1024)).await;
        let mut received = 0;
        while received < 64 * 1024 {
            received += events.next().await.unwrap().raw.matches('x').count();
        }
    }
    turn.complete().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_takes_no_byte_is_disconnected() {
    let metrics = Arc::new(Metrics::new("1"));
    let counted = Arc::clone(&metrics);
    let (mut gateway, path, _directory) = gateway(|config| {
        config.write_timeout = Duration::from_millis(200);
        config.metrics = counted;
    })
    .await;
    let _lines = LogLines::begin();
    let body = json!({"message": message("m1", "go")}).to_string();
    let mut stalled = UnixStream::connect(&path).await.unwrap();
    let head = format!(
        "POST /message:stream HTTP/1.1\r\nhost: localhost\r\nauthorization: {ADA}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stalled.write_all(head.as_bytes()).await.unwrap();
    let turn = gateway.turns.recv().await.unwrap();
    // More than all buffers between the gateway and the client together.
    for number in 0..80 {
        turn.say(&format!("b{number}"), &"x".repeat(64 * 1024)).await;
    }
    let ended = async {
        while metrics.stream_active.get() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the stalled stream ends");
    assert_eq!(metrics.refused.of(Limit::WriteTimeout).get(), 1);
    turn.complete().await;
    gateway.stop().await;
}
