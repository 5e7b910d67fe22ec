//! Event streams: sending, subscribing, resuming, stalling.

use std::time::Duration;

use longshore_model::EventId;
use longshore_testkit::faulty_store::FaultyStore;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::support::{Answer, Call, Frame, Gateway, first_half, message, redacted, second_half};

fn state(frame: &Frame) -> Option<&str> {
    frame.data["statusUpdate"]["status"]["state"].as_str()
}

/// The sequence number in an id.
fn number(id: &str) -> u64 {
    EventId::parse(id).expect("an id").seq.0
}

/// The events without their envelopes.
fn bare(frames: &[Frame]) -> Vec<(u64, Value)> {
    let strip = |frame: &Frame| frame.data.get("result").unwrap_or(&frame.data).clone();
    frames.iter().map(|frame| (frame.id.expect("every event has an id"), strip(frame))).collect()
}

#[tokio::test]
async fn a_streamed_send_is_the_log_from_its_start() {
    let gateway = Gateway::echoing().await;
    let body = json!({"message": message("m1", "one two three")});
    let by_rest = gateway.call("POST", "/message:stream").json(&body).stream().await.rest().await;
    // The same message again: the same task, the same events.
    let by_rpc = gateway.rpc("SendStreamingMessage", &body).stream().await.rest().await;
    assert!(by_rpc.iter().all(|frame| frame.data["jsonrpc"] == "2.0" && frame.data["id"] == 1));
    assert_eq!(bare(&by_rest), bare(&by_rpc));
    let ids: Vec<u64> = by_rest.iter().map(|frame| frame.id.unwrap()).collect();
    assert_eq!(ids, (1..=by_rest.len() as u64).collect::<Vec<_>>());
    assert_eq!(by_rest[0].data["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    assert_eq!(state(by_rest.last().unwrap()), Some("TASK_STATE_COMPLETED"));
    let text: String = by_rest
        .iter()
        .filter_map(|frame| frame.data["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str())
        .collect();
    assert_eq!(text, "one two three");
    for frame in by_rest.iter().chain(&by_rpc) {
        assert_eq!(frame.raw.lines().count(), 2, "an id line and a data line: {}", frame.raw);
    }
    assert_eq!(gateway.agent.log().prompted.len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn the_frames_of_a_played_turn() {
    let mut gateway = Gateway::manual().await;
    let body = json!({"message": message("m1", "go")});
    let mut events = gateway.rpc("SendStreamingMessage", &body).stream().await;
    let turn = gateway.turns.recv().await.unwrap();
    let mut frames = vec![events.next().await.unwrap(), events.next().await.unwrap()];
    turn.say("b1", "Hel").await;
    frames.push(events.next().await.unwrap());
    turn.say("b1", "lo").await;
    frames.push(events.next().await.unwrap());
    turn.complete().await;
    frames.extend(events.rest().await);
    let shown: Vec<Value> =
        frames.into_iter().map(|frame| json!({"id": frame.id, "data": redacted(frame.data)})).collect();
    insta::assert_snapshot!(shown.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_subscription_starts_with_a_snapshot_and_continues() {
    let mut gateway = Gateway::manual().await;
    let (id, turn) = gateway.working_task("m1").await;
    let path = format!("/tasks/{id}:subscribe");
    let mut early = gateway.call("GET", &path).stream().await;
    let opening = early.next().await.unwrap();
    turn.say("b", "one ").await;
    let first_said = early.next().await.unwrap();
    let mut late = gateway.rpc("SubscribeToTask", &json!({"id": id})).stream().await;
    let snapshot = late.next().await.unwrap();
    let task = &snapshot.data["result"]["task"];
    assert_eq!((&task["id"], &task["status"]["state"]), (&json!(id), &json!("TASK_STATE_WORKING")));
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "one ");
    assert_eq!(snapshot.id, first_said.id, "the id is that of the newest event in the task");
    assert!(opening.id < first_said.id);
    turn.say("b", "two").await;
    turn.complete().await;
    let (early_rest, late_rest) = (early.rest().await, late.rest().await);
    assert_eq!(bare(&early_rest), bare(&late_rest));
    assert_eq!(early_rest[0].id.unwrap(), snapshot.id.unwrap() + 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_resumed_stream_gives_exactly_the_missed_events() {
    let mut gateway = Gateway::manual().await;
    let body = json!({"message": message("m1", "go")});
    let mut whole = gateway.call("POST", "/message:stream").json(&body).stream().await;
    let turn = gateway.turns.recv().await.unwrap();
    let id = turn.request.task.to_string();
    let path = format!("/tasks/{id}:subscribe");
    let ways = |cursor: &str| -> [Call; 4] {
        [
            gateway.call("GET", &path),
            gateway.call("POST", &path),
            gateway.rpc("SubscribeToTask", &json!({"id": id})),
            gateway.call("POST", "/message:stream").json(&body),
        ]
        .map(|call| call.header("last-event-id", cursor))
    };

    // While the task runs: attached after the first event, before the others.
    let first = whole.next().await.unwrap();
    let mut live = Vec::new();
    for way in ways(first.cursor.as_ref().unwrap()) {
        live.push(way.stream().await);
    }
    for word in ["a ", "b ", "c"] {
        turn.say("b", word).await;
    }
    turn.complete().await;
    let rest = whole.rest().await;
    for mut events in live {
        assert_eq!(bare(&events.rest().await), bare(&rest));
    }

    // After its end, from every event.
    let mut all = vec![first];
    all.extend(rest);
    for after in 0..=all.len() {
        let seen = after.checked_sub(1).and_then(|last| all[last].cursor.clone());
        for cursor in seen.into_iter().chain([after.to_string()]) {
            for way in ways(&cursor) {
                let tail = way.stream().await.rest().await;
                assert_eq!(bare(&tail), bare(&all[after..]), "after {cursor}");
            }
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_cursor_beyond_the_log_is_a_gap_and_never_silence() {
    let mut gateway = Gateway::manual().await;
    let (id, turn) = gateway.working_task("m1").await;
    let path = format!("/tasks/{id}:subscribe");
    let mut live = gateway.call("GET", &path).header("last-event-id", "99").stream().await;
    let opening = live.next().await.unwrap();
    turn.complete().await;
    let end = live.rest().await;
    assert_eq!(end.len(), 1);
    assert_eq!(state(&end[0]), Some("TASK_STATE_COMPLETED"));
    let finished = gateway.rpc("SubscribeToTask", &json!({"id": id})).header("last-event-id", "99");
    let finished = finished.stream().await.rest().await;
    assert_eq!(finished.len(), 1);
    assert_eq!(finished[0].id, end[0].id);
    insta::assert_json_snapshot!([
        json!({"id": opening.id, "data": redacted(opening.data)}),
        json!({"id": finished[0].id, "data": redacted(finished[0].data.clone())}),
    ]);
    gateway.stop().await;
}

/// Whether a response reports the unreadable log of [`FaultyStore`] as a plain error.
fn is_plain_error(answer: &Answer) -> bool {
    let info = json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "UNAVAILABLE",
        "domain": "a2a-protocol.org",
    });
    let message = "The store is away.";
    let body = answer.json();
    let (status, expected) = if body.get("jsonrpc").is_some() {
        let error = json!({"code": -31057, "message": message, "data": [info]});
        (200, json!({"jsonrpc": "2.0", "id": 1, "error": error}))
    } else {
        let error = json!({"code": 503, "status": "UNAVAILABLE", "message": message, "details": [info]});
        (503, json!({"error": error}))
    };
    assert_eq!(body, expected);
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (status, "application/json"));
    true
}

#[tokio::test]
async fn a_log_that_cannot_be_read_is_a_plain_error_and_no_stream() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut gateway = Gateway::manual_on(store.clone()).await;
    let (running_body, finished_body) =
        (json!({"message": message("m1", "go")}), json!({"message": message("m2", "go")}));
    let mut running = gateway.call("POST", "/message:stream").json(&running_body).stream().await;
    let running_turn = gateway.turns.recv().await.unwrap();
    let mut finished = gateway.call("POST", "/message:stream").json(&finished_body).stream().await;
    let finished_turn = gateway.turns.recv().await.unwrap();
    let finished_id = finished_turn.request.task.to_string();
    finished_turn.complete().await;
    let finished_head = finished.rest().await.last().unwrap().id.unwrap();
    // More than is kept in memory. Each text is read before the next, so that the last one read is the newest.
    let mut running_head = 0;
    for _ in ["submitted", "working"] {
        running.next().await.unwrap();
    }
    while running_head < 100 {
        running_turn.say("b", "word ").await;
        running_head = running.next().await.unwrap().id.unwrap();
    }
    let running_id = running_turn.request.task.to_string();

    store.break_logs();
    let ways = |id: &str, body: &Value, after: u64| -> [Call; 5] {
        let path = format!("/tasks/{id}:subscribe");
        [
            gateway.call("GET", &path),
            gateway.call("POST", &path),
            gateway.rpc("SubscribeToTask", &json!({"id": id})),
            gateway.call("POST", "/message:stream").json(body),
            gateway.rpc("SendStreamingMessage", body),
        ]
        .map(|call| call.header("last-event-id", &after.to_string()))
    };
    for after in 0..=finished_head {
        for way in ways(&finished_id, &finished_body, after) {
            assert!(is_plain_error(&way.send().await), "after {after}");
        }
    }
    for after in [0, 1, 30] {
        for way in ways(&running_id, &running_body, after) {
            assert!(is_plain_error(&way.send().await), "after {after}");
        }
    }
    // A reader that has all events needs no store, and neither do new events.
    for which in 0..5 {
        let way = ways(&running_id, &running_body, running_head).into_iter().nth(which);
        let mut events = way.expect("there are five").stream().await;
        running_turn.say("b", "word ").await;
        running_head += 1;
        assert_eq!(events.next().await.unwrap().id, Some(running_head));
    }
    gateway.stop().await;
}

/// Clients of 0.3 expect a stream before they check for an error: they would not see the error in any other response.
#[tokio::test]
async fn a_stream_of_0_3_that_fails_to_start_has_the_error_as_its_only_event() {
    let gateway = Gateway::echoing().await;
    let nameless = json!({"message": {"kind": "message", "role": "user", "parts": []}});
    for (method, params, code) in [
        ("tasks/resubscribe", json!({"id": "nope"}), -32001),
        ("tasks/resubscribe", json!({}), -32602),
        ("message/stream", nameless, -32602),
    ] {
        let call = json!({"jsonrpc": "2.0", "id": "s", "method": method, "params": params});
        let frames = gateway.call("POST", "/").json(&call).stream().await.rest().await;
        let [error] = frames.as_slice() else { panic!("{method}: {frames:?}") };
        assert_eq!(
            (&error.data["id"], &error.data["error"]["code"]),
            (&json!("s"), &json!(code)),
            "{error:?}"
        );
        assert_eq!(error.id, None, "the error is no event of a task");
    }
    // Errors below the method are plain responses.
    let unknown = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/stream", "params": {}});
    let answer = gateway.call("POST", "/").header("A2A-Version", "0.3").json(&unknown).send().await;
    assert_eq!(
        (answer.header("content-type"), &answer.json()["error"]["code"]),
        ("application/json", &json!(-32601))
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_streamed_send_shows_as_much_history_as_was_requested() {
    let gateway = Gateway::echoing().await;
    let body = |history_length: Value| json!({"message": message("m1", "hi"), "configuration": {"historyLength": history_length}});
    // One task, so the same events: the history length of one caller must not affect another.
    for (history_length, expected) in
        [(json!(0), 0), (Value::Null, 1), (json!(0), 0), (json!(1), 1), (json!(7), 1)]
    {
        let body = body(history_length);
        let ways =
            [gateway.call("POST", "/message:stream").json(&body), gateway.rpc("SendStreamingMessage", &body)];
        for way in ways {
            // From the start, from the start again, and after a gap.
            for cursor in ["", "0", "99"] {
                let first = way.clone().header("last-event-id", cursor).stream().await.next().await.unwrap();
                let task = &first.data.get("result").unwrap_or(&first.data)["task"];
                let history = task.get("history").map(|history| history.as_array().unwrap().len());
                assert_eq!(history, (expected > 0).then_some(expected), "{body} {cursor:?}");
            }
        }
    }
    assert_eq!(gateway.agent.log().prompted.len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn silence_is_filled_with_comments() {
    let mut gateway = Gateway::manual_with(|config| config.keep_alive = Duration::from_millis(5)).await;
    let (id, turn) = gateway.working_task("m1").await;
    let mut events = gateway.call("GET", &format!("/tasks/{id}:subscribe")).stream().await;
    let opening = events.next().await.unwrap();
    for _ in 0..3 {
        assert_eq!(events.next_raw().await.unwrap(), ": keep-alive");
    }
    turn.complete().await;
    let end = events.next().await.unwrap();
    assert_eq!(end.id.unwrap(), opening.id.unwrap() + 1);
    assert_eq!(events.next().await, None);
    gateway.stop().await;
}

#[tokio::test]
async fn closing_a_stream_closes_only_the_stream() {
    let mut gateway = Gateway::manual().await;
    let body = json!({"message": message("m1", "go")});
    let mut first = gateway.call("POST", "/message:stream").json(&body).stream().await;
    let turn = gateway.turns.recv().await.unwrap();
    let path = format!("/tasks/{}:subscribe", turn.request.task);
    let mut second = gateway.call("GET", &path).stream().await;
    second.next().await.unwrap();
    first.next().await.unwrap();
    drop(first);
    turn.say("b", "on").await;
    turn.complete().await;
    assert_eq!(state(second.rest().await.last().unwrap()), Some("TASK_STATE_COMPLETED"));
    assert!(gateway.agent.log().aborted.is_empty());
    gateway.stop().await;
}

/// The text that the stalled reader leaves unread: more than the kernel's buffers of a loopback connection hold.
const STALLED_CHUNKS: usize = 800;
const STALLED_CHUNK: usize = 16 * 1024;

#[tokio::test]
async fn a_stalled_reader_delays_nobody_and_misses_nothing() {
    let mut gateway = Gateway::manual().await;
    let (id, turn) = gateway.working_task("m1").await;
    let path = format!("/tasks/{id}:subscribe");

    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 * 1024).unwrap();
    let mut stalled = socket.connect(gateway.address).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer tok-ada\r\nconnection: close\r\n\r\n"
    );
    stalled.write_all(head.as_bytes()).await.unwrap();
    // Once the response has begun, nothing more is read.
    let mut start = [0; 15];
    stalled.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");

    let mut quick = gateway.call("GET", &path).stream().await;
    let (seen, ()) = tokio::join!(quick.rest(), async {
        for number in 0..STALLED_CHUNKS {
            turn.say(&format!("b{number}"), &"x".repeat(STALLED_CHUNK)).await;
        }
        turn.complete().await;
    });
    assert_eq!(state(seen.last().unwrap()), Some("TASK_STATE_COMPLETED"));

    let mut rest = Vec::new();
    stalled.read_to_end(&mut rest).await.unwrap();
    let text = String::from_utf8(rest).unwrap();
    let ids: Vec<u64> = text.lines().filter_map(|line| line.strip_prefix("id: ")).map(number).collect();
    let last = seen.last().unwrap().id.unwrap();
    assert_eq!(ids, (ids[0]..=last).collect::<Vec<_>>());
    assert!(last > STALLED_CHUNKS as u64);
    gateway.stop().await;
}

/// The end of the artifact is known only when the task ends. No other frame waits for it.
#[tokio::test]
async fn a_stream_of_0_3_marks_the_last_chunk_of_its_artifact_and_resumes_exactly() {
    let mut gateway = Gateway::manual().await;
    let (id, turn) = gateway.working_task("m1").await;
    let ways = |cursor: &str| {
        let rpc = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": {"id": id}});
        let rest = gateway.call("GET", &format!("/v1/tasks/{id}:subscribe"));
        [rest, gateway.call("POST", "/").json(&rpc)].map(|way| way.header("last-event-id", cursor))
    };
    let mut streams = Vec::new();
    for way in ways("0") {
        streams.push(way.stream().await);
    }
    first_half(&turn).await;
    second_half(turn).await;
    for (which, stream) in streams.iter_mut().enumerate() {
        let frames = stream.rest().await;
        let update = |frame: &Frame| {
            let event = frame.data.get("result").unwrap_or(&frame.data);
            event.get("artifactUpdate").unwrap_or(event).clone()
        };
        let is_last = |frame: &&Frame| {
            let update = update(frame);
            update["lastChunk"] == true && update["artifact"]["artifactId"] == format!("{id}:stream")
        };
        let marked: Vec<usize> = (0..frames.len()).filter(|index| is_last(&&frames[*index])).collect();
        assert_eq!(marked, [frames.len() - 2], "once, just before the end of the task");
        let last = &frames[frames.len() - 2];
        assert_eq!((last.id, update(last)["append"].clone()), (None, json!(true)), "{last:?}");
        for (index, frame) in frames.iter().enumerate() {
            let Some(cursor) = &frame.cursor else { continue };
            let [rest, rpc] = ways(cursor);
            let resumed = if which == 0 { rest } else { rpc }.stream().await.rest().await;
            assert_eq!(resumed, frames[index + 1..], "after {cursor}");
        }
    }

    // Without an artifact there is nothing to mark.
    let (id, turn) = gateway.working_task("m2").await;
    let path = format!("/v1/tasks/{id}:subscribe");
    let mut stream = gateway.call("GET", &path).header("last-event-id", "0").stream().await;
    turn.complete().await;
    let frames = stream.rest().await;
    assert!(frames.iter().all(|frame| frame.id.is_some() && frame.data.get("artifactUpdate").is_none()));
    gateway.stop().await;
}
