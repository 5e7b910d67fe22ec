use std::path::Path;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::world::World;
use crate::stamp::{self, TextSum};

const DIRECTORY: &str = "/workspace";
const PROMPT: &str = "bench key=k1 n=6 rate=0 size=24";

/// The lines of a recording of the real OpenCode.
fn recording(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/testkit/recordings/http").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn recorded_events() -> Vec<Value> {
    let mut lines = recording("text_async.jsonl");
    lines.retain(|line| line["kind"] == "sse" && line["stream"] == "event");
    lines.iter_mut().map(|line| line["data"].take()).collect()
}

fn recorded_answer(path_end: &str) -> Value {
    let lines = recording("text_async.jsonl");
    let is_answer = |line: &&Value| {
        let (kind, path) = (line["kind"].as_str().unwrap(), line["path"].as_str().unwrap_or_default());
        kind == "response" && path.ends_with(path_end) && line["status"] == 200
    };
    lines.iter().rfind(is_answer).expect("the recording has this answer")["body"].clone()
}

/// The types of all values, without the values. A list has the type of its first element.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.iter().map(|(key, value)| (key.clone(), shape(value))).collect();
            keys.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(Map::from_iter(keys))
        }
        Value::Array(list) => json!([list.first().map(shape)]),
        Value::String(_) => json!("text"),
        Value::Number(_) => json!("number"),
        Value::Bool(_) => json!("boolean"),
        Value::Null => Value::Null,
    }
}

/// All events that are waiting for a reader.
fn events(reader: &mut mpsc::Receiver<Bytes>) -> Vec<Value> {
    let mut text = String::new();
    while let Ok(piece) = reader.try_recv() {
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    let bodies = text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
    bodies.map(|body| serde_json::from_str(body).unwrap()).collect()
}

fn id_of(info: &str) -> String {
    serde_json::from_str::<Value>(info).unwrap()["id"].as_str().unwrap().to_owned()
}

/// Plays one turn to its end.
fn play(world: &mut World) -> String {
    let session = id_of(&world.make_session(DIRECTORY, None));
    assert_eq!(world.prompt(&session, PROMPT, None), Some(true));
    while world.running() > 0 {
        world.advance();
    }
    session
}

fn compare(found: &[Value], recorded: &[Value]) {
    for (found, recorded) in found.iter().zip(recorded) {
        assert_eq!(shape(found), shape(recorded), "\n{found}\ndoes not have the shape of\n{recorded}");
    }
    let types = |events: &[Value]| events.iter().map(|event| event["type"].clone()).collect::<Vec<_>>();
    assert_eq!(types(found), types(recorded));
}

#[test]
fn events_of_a_turn_match_the_recording_in_kind_order_and_shape() {
    let mut world = World::default();
    let mut reader = world.bus.connect(DIRECTORY);
    let mut elsewhere = world.bus.connect("/elsewhere");
    play(&mut world);
    let found = events(&mut reader);
    // The recording does not include `server.connected`.
    compare(&found[1..], &recorded_events());
    assert_eq!(events(&mut elsewhere).len(), 1, "another directory receives only `server.connected`");
}

#[test]
fn the_global_stream_wraps_every_event_and_repeats_stored_ones() {
    let mut world = World::default();
    let (mut reader, mut all) = (world.bus.connect(DIRECTORY), world.bus.connect_global());
    play(&mut world);
    let (found, global) = (events(&mut reader), events(&mut all));
    let is_copy = |event: &&Value| event["payload"]["type"] == "sync";
    let plain: Vec<_> = global.iter().filter(|event| !is_copy(event)).skip(1).collect();
    assert_eq!(
        plain.iter().map(|event| &event["payload"]).collect::<Vec<_>>(),
        found[1..].iter().collect::<Vec<_>>()
    );
    assert!(plain.iter().all(|event| event["directory"] == DIRECTORY && event["project"].is_string()));
    for (number, copy) in global.iter().filter(is_copy).enumerate() {
        let (outer, inner) = (&copy["payload"], &copy["payload"]["syncEvent"]);
        let of = found.iter().find(|event| event["id"] == inner["id"]).unwrap();
        let name = format!("{}.1", of["type"].as_str().unwrap());
        assert_eq!(
            (&inner["type"], &inner["data"], &outer["id"]),
            (&json!(name), &of["properties"], &of["id"])
        );
        assert_eq!((&inner["seq"], &inner["aggregateID"]), (&json!(number), &of["properties"]["sessionID"]));
        assert!(!["message.part.delta", "session.status"].contains(&of["type"].as_str().unwrap()));
    }
}

#[test]
fn sessions_and_messages_have_the_recorded_shapes() {
    let mut world = World::default();
    let made: Value = serde_json::from_str(&world.make_session(DIRECTORY, None)).unwrap();
    assert_eq!(shape(&made), shape(&recorded_answer("/session")));
    let id = play(&mut world);
    let session = world.session(&id).unwrap();
    let info: Value = serde_json::to_value(session.info()).unwrap();
    let messages: Vec<Value> =
        session.messages().iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let lines = recording("text_async.jsonl");
    let recorded = lines.iter().find(|line| line["kind"] == "response" && line["body"].is_array()).unwrap();
    let recorded = recorded["body"].as_array().unwrap();
    compare(&messages, recorded);
    for (found, recorded) in messages.iter().zip(recorded) {
        compare(found["parts"].as_array().unwrap(), recorded["parts"].as_array().unwrap());
    }
    let last = recorded_events().into_iter().rfind(|event| event["type"] == "session.updated").unwrap();
    assert_eq!(shape(&info), shape(&last["properties"]["info"]));
    assert_eq!(world.statuses(DIRECTORY), "{}");
}

#[test]
fn the_sent_text_of_a_turn_is_the_text_of_its_deltas() {
    let mut world = World::default();
    let mut reader = world.bus.connect(DIRECTORY);
    let session = play(&mut world);
    let deltas: String = events(&mut reader)
        .iter()
        .filter(|event| event["type"] == "message.part.delta")
        .map(|event| event["properties"]["delta"].as_str().unwrap().to_owned())
        .collect();
    let numbers: Vec<_> = stamp::find(deltas.as_bytes()).map(|stamp| stamp.number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    let sent = world.sent_text("k1").unwrap();
    assert_eq!((sent.deltas, sent.bytes, sent.sum), (6, 6 * 24, TextSum::of(deltas.as_bytes())));
    let messages = world.session(&session).unwrap().messages();
    assert!(messages[1].contains(&deltas), "the stored text is the sum of the deltas");
}

#[test]
fn a_turn_that_awaits_a_reader_sends_nothing_before_its_own_reader_connects() {
    let mut world = World::default();
    // The readers of earlier turns may stay open for a while.
    let mut earlier = Vec::new();
    for _ in 0..2 {
        let session = id_of(&world.make_session(DIRECTORY, None));
        world.prompt(&session, "bench n=1 await=1", None);
        assert!(world.advance().is_some(), "the turn waits for a bounded time");
        assert_eq!(world.running(), 1);
        let mut reader = world.bus.connect(DIRECTORY);
        while world.running() > 0 {
            world.advance();
        }
        let kinds: Vec<_> = events(&mut reader).iter().map(|event| event["type"].clone()).collect();
        assert!(
            kinds.contains(&json!("message.part.delta")) && kinds.last() == Some(&json!("message.updated"))
        );
        earlier.push(reader);
    }
}

#[test]
fn a_held_turn_begins_and_sends_its_text_after_its_release() {
    let mut world = World::default();
    let mut reader = world.bus.connect(DIRECTORY);
    let session = id_of(&world.make_session(DIRECTORY, None));
    world.prompt(&session, &format!("{PROMPT} hold=1"), None);
    assert_eq!(world.advance(), None);
    let deltas =
        |events: &[Value]| events.iter().filter(|event| event["type"] == "message.part.delta").count();
    let begun = events(&mut reader);
    assert!(begun.len() > 3 && deltas(&begun) == 0 && world.running() == 1, "{begun:?}");
    world.release();
    while world.running() > 0 {
        world.advance();
    }
    assert_eq!(deltas(&events(&mut reader)), 6);
}

#[test]
fn an_abort_ends_a_turn_with_an_error() {
    let mut world = World::default();
    let mut reader = world.bus.connect(DIRECTORY);
    let session = id_of(&world.make_session(DIRECTORY, None));
    world.prompt(&session, "bench n=1000 rate=1", None);
    world.advance();
    assert!(world.statuses(DIRECTORY).contains(&session));
    world.abort(&session);
    assert_eq!(world.running(), 0);
    let events = events(&mut reader);
    let errors = events.iter().filter(|event| event["type"] == "session.error").count();
    let idle = events.iter().filter(|event| event["type"] == "session.idle").count();
    // The real OpenCode sends idle twice too.
    assert_eq!((errors, idle), (1, 2));
}

#[test]
fn deltas_come_at_their_rate() {
    let mut world = World::default();
    let session = id_of(&world.make_session(DIRECTORY, None));
    world.prompt(&session, "bench key=r n=50 rate=1000", None);
    let start = crate::clock::monotonic_ns();
    while world.running() > 0 {
        world.advance();
    }
    let took = crate::clock::monotonic_ns() - start;
    assert!(took >= 49_000_000, "49 intervals of 1 ms took {took} ns");
}
