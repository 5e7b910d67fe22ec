//! Limits of streams: their number, and the bytes, duration and idle time of each.

use std::sync::Arc;
use std::time::Duration;

use longshore_edge::EdgeConfig;
use longshore_meter::Metrics;
use longshore_meter::label::Limit;
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v1::method::Method;
use longshore_wire::v03::Dialect;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{
    ADA, BOB, ClientView, Events, Frame, Gateway, Http2, INTERRUPT, PATIENCE, ProtocolClient, message,
};

/// A gateway whose agent the test controls, and its metrics.
async fn counting(configure: impl FnOnce(&mut EdgeConfig)) -> (Gateway, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new("1"));
    let counted = Arc::clone(&metrics);
    let gateway = Gateway::manual_with(|config| {
        config.metrics = counted;
        configure(config);
    })
    .await;
    (gateway, metrics)
}

/// Waits until a condition on the metrics holds.
async fn until(what: impl Fn() -> bool) {
    let waiting = async {
        while !what() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it comes to this");
}

#[tokio::test]
async fn a_stream_beyond_the_limit_is_refused_in_every_format_before_the_agent_is_prompted() {
    let (mut gateway, metrics) = counting(|config| config.limits.streams_per_principal = 1).await;
    let body = json!({"message": message("m0", "go")});
    let mut open = gateway.call("POST", "/message:stream").json(&body).stream().await;
    open.next().await.unwrap();
    let turn = gateway.turns.recv().await.unwrap();
    let task = turn.request.task.to_string();

    for client in ProtocolClient::ALL {
        let send = client.stream(&gateway, &client.message(&client.name().replace(' ', "-"), "go"));
        let subscribe = client.on(&gateway, Method::SubscribeToTask, &task);
        for call in [send, subscribe] {
            let answer = call.send().await;
            let status = if client.dialect == Dialect::Rest { 429 } else { 200 };
            let text = String::from_utf8(answer.body.to_vec()).unwrap();
            assert_eq!(answer.status.as_u16(), status, "{} {text}", client.name());
            assert_eq!(answer.header("retry-after"), "5", "{} {text}", client.name());
            for word in ["TOO_MANY_REQUESTS", "streams_per_principal"] {
                assert!(text.contains(word), "{} {text}", client.name());
            }
        }
    }
    assert_eq!(gateway.agent.log().prompted.len(), 1);
    assert_eq!(metrics.refused.of(Limit::StreamsPerPrincipal).get(), 8);
    assert_eq!((metrics.stream_requests.get(), metrics.stream_active.get()), (1, 1));

    // Other principals have their own slots, and a closed stream frees its slot.
    let of_bob = gateway.call("POST", "/message:stream").header("authorization", BOB).json(&body);
    let of_bob = of_bob.stream().await;
    assert_eq!(metrics.stream_active.get(), 2);
    turn.complete().await;
    open.rest().await;
    drop(of_bob);
    until(|| metrics.stream_active.get() == 0).await;
    let path = format!("/tasks/{task}:subscribe");
    let ended = gateway.call("GET", &path).header("last-event-id", "0").stream().await.rest().await;
    assert!(!ended.is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn the_total_limit_of_streams_applies_to_every_principal() {
    let (gateway, metrics) = counting(|config| config.limits.streams = 1).await;
    let body = json!({"message": message("m0", "go")});
    let open = gateway.call("POST", "/message:stream").json(&body).stream().await;
    let of_bob = gateway.call("POST", "/message:stream").header("authorization", BOB).json(&body);
    let refused = of_bob.send().await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, "5"));
    let details = &refused.json()["error"]["details"][0];
    assert_eq!(details["metadata"]["limit"], "streams", "{details}");
    assert_eq!(metrics.refused.of(Limit::Streams).get(), 1);
    drop(open);
    gateway.stop().await;
}

/// Sends a request for the only slot. Returns the connection.
async fn asking(gateway: &Gateway, message_id: &str) -> TcpStream {
    let body = json!({"message": message(message_id, "go")}).to_string();
    let request = format!(
        "POST /message:stream HTTP/1.1\r\nhost: {}\r\nauthorization: {ADA}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        gateway.address,
        body.len()
    );
    let mut connection = TcpStream::connect(gateway.address).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

#[tokio::test]
async fn a_client_that_disconnects_at_any_moment_frees_its_slot() {
    let (mut gateway, metrics) = counting(|config| config.limits.streams = 1).await;
    let gone = || metrics.stream_active.get() == 0 && metrics.connections.get() == 0;

    // Before the response, however far the request has been processed by then.
    drop(asking(&gateway, "m0").await);
    until(gone).await;
    // After a part of the response head.
    let mut connection = asking(&gateway, "m1").await;
    connection.read_exact(&mut [0; 15]).await.unwrap();
    assert_eq!(metrics.stream_active.get(), 1);
    drop(connection);
    until(gone).await;
    // After the first event.
    let body = json!({"message": message("m2", "go")});
    let mut events = gateway.call("POST", "/message:stream").json(&body).stream().await;
    events.next().await.unwrap();
    drop(events);
    until(gone).await;
    // One stream of a connection that stays open.
    let mut http2 = Http2::connect(gateway.address).await;
    let body = json!({"message": message("m3", "go")});
    let mut events = Events::of(http2.open(gateway.call("POST", "/message:stream").json(&body)).await);
    events.next().await.unwrap();
    drop(events);
    until(|| metrics.stream_active.get() == 0).await;
    drop(http2);
    until(gone).await;
    // Stalled, with more events than all buffers hold.
    let mut stalled = asking(&gateway, "m4").await;
    stalled.read_exact(&mut [0; 15]).await.unwrap();
    let turn = loop {
        let turn = gateway.turns.recv().await.unwrap();
        if gateway.turns.is_empty() {
            break turn;
        }
    };
    for number in 0..600 {
        turn.say(&format!("b{number}"), &"x".repeat(16 * 1024)).await;
    }
    assert_eq!(metrics.stream_active.get(), 1);
    drop(stalled);
    until(gone).await;
    // A request that was refused after it had its slot.
    let missing = gateway.call("GET", "/tasks/nope:subscribe").send().await;
    assert_eq!(missing.status.as_u16(), 404);

    // The only slot is free after all of them.
    let body = json!({"message": message("m5", "go")});
    let mut last = gateway.call("POST", "/message:stream").json(&body).stream().await;
    last.next().await.unwrap();
    gateway.stop().await;
}

/// The budget that a frame names, if the frame ends the stream at a limit.
fn exceeded_budget(frame: &Frame, client: ProtocolClient) -> Option<&str> {
    let error = match (client.version, client.dialect) {
        (ProtocolVersion::V03, Dialect::Rest) => &frame.data,
        _ => frame.data.get("error")?,
    };
    let text = error.get("message")?.as_str()?;
    assert!(frame.id.is_none() && frame.raw.contains("STREAM_BUDGET_EXCEEDED"), "{frame:?}");
    assert_eq!(frame.event.as_deref(), (client.dialect == Dialect::Rest).then_some("error"));
    text.strip_prefix("Stream budget exceeded: ")
}

#[tokio::test]
async fn a_client_that_reconnects_after_a_budget_misses_nothing() {
    let (mut gateway, metrics) = counting(|config| config.limits.stream_bytes = 4 * 1024).await;
    for client in ProtocolClient::ALL {
        let message = client.message(&client.name().replace(' ', "-"), "go");
        let mut events = client.stream(&gateway, &message).stream().await;
        let turn = gateway.turns.recv().await.unwrap();
        let task = turn.request.task.to_string();
        let (mut frames, mut rounds) = (Vec::new(), 0);
        let mut turn = Some(turn);
        loop {
            let Some(frame) = events.next().await else { break };
            if let Some(text) = exceeded_budget(&frame, client) {
                assert!(text.starts_with("byte budget. "), "{text}");
                assert_eq!(events.next().await, None, "it is the last word");
                rounds += 1;
                // While no client is connected.
                if let Some(turn) = turn.take_if(|_| rounds == 3) {
                    turn.say("b1", "The end.").await;
                    turn.complete().await;
                }
                let cursor = frames.iter().rev().find_map(|frame: &Frame| frame.cursor.clone()).unwrap();
                let again = client.on(&gateway, Method::SubscribeToTask, &task);
                events = again.header("last-event-id", &cursor).stream().await;
                continue;
            }
            frames.push(frame);
            if let Some(turn) = &turn {
                turn.say("b1", &format!("word{} ", frames.len())).await;
            }
        }
        assert!(rounds >= 3, "{} {rounds}", client.name());
        let seen = client.fold(None, &frames).unwrap();
        let got = client.on(&gateway, Method::GetTask, &task).send().await;
        let got = client.task(&got);
        assert_eq!(ClientView::of(&seen).text, ClientView::of(&got).text, "{}", client.name());
        assert!(ClientView::of(&got).text.ends_with("The end."));
        assert_eq!(seen.status.state, got.status.state);
    }
    assert_eq!(metrics.stream_budget_rejected.get(), metrics.refused.of(Limit::StreamBytes).get());
    assert_eq!(metrics.stream_active.get(), 0);
    gateway.stop().await;
}

#[tokio::test]
async fn a_first_event_over_the_byte_budget_is_refused_with_advice() {
    let (mut gateway, _) = counting(|config| config.limits.stream_bytes = 2_000).await;
    for client in ProtocolClient::ALL {
        let message = client.message(&client.name().replace(' ', "-"), &"go ".repeat(1_000));
        let answer = client.stream(&gateway, &message).send().await;
        let body = String::from_utf8(answer.body.to_vec()).unwrap();
        let status = if client.dialect == Dialect::Rest { 429 } else { 200 };
        assert_eq!(answer.status.as_u16(), status, "{body}");
        assert!(body.contains("STREAM_BUDGET_EXCEEDED") && body.contains("byte budget"), "{body}");
        let turn = gateway.turns.recv().await.unwrap();
        // The error is all that the caller knows of its task.
        let value_after = |before: &str, end: char| {
            let (_, rest) = body.split_once(before).unwrap_or_else(|| panic!("no {before} in {body}"));
            rest.split(end).next().unwrap().to_owned()
        };
        let task = value_after("Get the task ", ',');
        let cursor = value_after("with Last-Event-ID: ", ' ');
        let (name, last) = match client.version {
            ProtocolVersion::V1 => ("taskId", "lastEventId"),
            ProtocolVersion::V03 => ("task_id", "last_event_id"),
        };
        assert!(body.contains(&format!("\"{name}\":\"{task}\"")), "{body}");
        assert!(body.contains(&format!("\"{last}\":\"{cursor}\"")), "{body}");
        assert_eq!(gateway.call("GET", &format!("/tasks/{task}")).send().await.status.as_u16(), 200);
        let rest = gateway.call("GET", &format!("/tasks/{task}:subscribe")).header("last-event-id", &cursor);
        let mut events = rest.stream().await;
        turn.complete().await;
        let rest = events.rest().await;
        assert!(rest.last().unwrap().raw.contains("TASK_STATE_COMPLETED"), "{rest:?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_open_ask_excuses_silence_and_its_answer_ends_the_excuse() {
    let (mut gateway, metrics) = counting(|config| {
        config.keep_alive = Duration::from_millis(30);
        config.limits.stream_idle = Some(Duration::from_millis(50));
    })
    .await;
    let (task, turn) = gateway.working_task("m1").await;
    turn.ask("per_1").await;
    // Until then nothing excuses the silence.
    let path = format!("/tasks/{task}");
    while gateway.call("GET", &path).send().await.json()["status"]["state"] != "TASK_STATE_INPUT_REQUIRED" {}
    let mut events = gateway.call("GET", &format!("{path}:subscribe")).stream().await;
    assert!(events.next().await.unwrap().raw.contains("TASK_STATE_INPUT_REQUIRED"));
    // Three times the idle limit.
    for _ in 0..5 {
        assert_eq!(events.next_raw().await.unwrap(), ": keep-alive");
    }
    assert_eq!(metrics.refused.of(Limit::StreamIdle).get(), 0);
    let params = json!({"request_id": "per_1", "reply": "once"});
    let reply = gateway.rpc("a2a.interrupt.permission.reply", &params).header("a2a-extensions", INTERRUPT);
    assert_eq!(reply.send().await.status.as_u16(), 200);
    let frames = events.rest().await;
    let [.., last] = frames.as_slice() else { panic!("no frame") };
    assert!(exceeded_budget(last, ProtocolClient::ALL[1]).unwrap().starts_with("idle timeout. "), "{last:?}");
    assert_eq!(metrics.refused.of(Limit::StreamIdle).get(), 1);
    // The task is still running.
    turn.complete().await;
    let head = frames.iter().rev().find_map(|frame| frame.cursor.clone()).unwrap();
    let again = gateway.call("GET", &format!("/tasks/{task}:subscribe")).header("last-event-id", &head);
    let rest = again.stream().await.rest().await;
    assert!(rest.last().unwrap().raw.contains("TASK_STATE_COMPLETED"), "{rest:?}");
    gateway.stop().await;
}

/// The limit equals that of other servers, because the buffer is also the cost of a stalled reader.
#[tokio::test]
async fn a_request_head_up_to_the_buffer_size_is_accepted() {
    let gateway = Gateway::echoing().await;
    for (length, expected) in [(15 * 1024, 200), (17 * 1024, 431)] {
        let answer = gateway.call("GET", "/livez").header("x-long", &"x".repeat(length)).send().await;
        assert_eq!(answer.status.as_u16(), expected, "{length}");
    }
    gateway.stop().await;
}
