//! Floods on every binding: calls, streams, messages and connections beyond a limit are refused with a typed error, everything that
//! was accepted is answered whole, and other principals are served. `websocket` floods one WebSocket with requests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use longshore_edge::{Credentials, Rate};
use longshore_meter::Metrics;
use longshore_meter::label::Limit;
use longshore_model::TaskState;
use longshore_testkit::scripted_agent::StartedTurn;
use longshore_wire::v03::Dialect;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use crate::bindings::{fold, gateway};
use crate::support::log_lines::LogLines;
use crate::support::{
    ADA, Answer, BOB, Binding, BindingEvents, ClientView, Gateway, Http2Frame, PATIENCE, credentials_builder,
    http2_cancel, http2_headers, http2_last_data, http2_start,
};

/// The calls of a client that floods, all at once. Those of gRPC share a connection.
const CALLS: usize = 24;
/// How many of them are within the limit.
const ALLOWED: usize = 8;

/// More than there are bindings.
const ROWS: usize = 32;

/// For each binding a principal that floods and one that works beside it. The limits of principals are counted apart, so all
/// bindings can be flooded at once.
fn credentials() -> Credentials {
    let names = (0..ROWS).flat_map(|row| [format!("flood{row}"), format!("quiet{row}")]);
    let all = names.fold(credentials_builder(), |all, name| all.bearer(format!("tok-{name}").into(), name));
    all.build().unwrap()
}

fn flooding(row: usize) -> String {
    format!("Bearer tok-flood{row}")
}

fn quiet(row: usize) -> String {
    format!("Bearer tok-quiet{row}")
}

fn take_turns(gateway: &mut Gateway) -> mpsc::Receiver<StartedTurn> {
    std::mem::replace(&mut gateway.turns, mpsc::channel(1).1)
}

/// Waits until only so many tasks run as before: nothing announces that a connection has ended.
async fn until_running(gateway: &Gateway, before: usize) {
    let gone = async {
        while gateway.tasks.running() > before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("nothing of the flood is left");
}

#[tokio::test]
async fn calls_beyond_the_rate_are_refused_and_no_accepted_one_is_lost() {
    let rate = Rate { requests: u32::try_from(ALLOWED).unwrap(), window: Duration::from_hours(1) };
    let (mut gateway, bindings, _directory) = gateway(|config| {
        config.credentials = credentials();
        config.limits.rate = Some(rate);
    })
    .await;
    let mut turns = take_turns(&mut gateway);
    let agent = async {
        while let Some(turn) = turns.recv().await {
            turn.complete().await;
        }
    };
    // The clients of these tests open a WebSocket for each call, and the handshake is a request, too.
    let rows = bindings.iter().enumerate().filter(|(_, row)| !row.is_owner && !row.is_websocket());
    // All at once, because each refusal is delayed.
    let floods = join_all(rows.map(|(row, binding)| flood_with_calls(&gateway, binding, row)));
    let rows = tokio::select! {
        floods = floods => floods.len(),
        () = agent => panic!("the agent goes on"),
    };
    assert_eq!(gateway.agent.log().prompted.len(), rows * 2 * ALLOWED, "no refused call reaches the agent");
    gateway.stop().await;
}

async fn flood_with_calls(gateway: &Gateway, binding: &Binding, row: usize) {
    let send = async |who: String, number: usize| {
        let message = binding.client.message(&format!("m{number}"), "go");
        binding.answer(&who, binding.client.send(gateway, &message, true)).await
    };
    let flood = join_all((0..CALLS).map(|number| send(flooding(row), number)));
    let work = join_all((0..ALLOWED).map(|number| send(quiet(row), number)));
    let (flood, work) = tokio::join!(flood, work);
    let is_refused = |answer: &Answer| String::from_utf8_lossy(&answer.body).contains("TOO_MANY_REQUESTS");
    let (refused, accepted): (Vec<_>, Vec<_>) = flood.into_iter().partition(is_refused);
    assert_eq!(refused.len(), CALLS - ALLOWED, "{}", binding.name);
    for answer in &refused {
        binding.assert_limited(answer, 429);
    }
    let mut ended = BTreeSet::new();
    for answer in accepted.iter().chain(&work) {
        let task = binding.client.sent(answer);
        assert_eq!(task.status.state, TaskState::Completed, "{}", binding.name);
        ended.insert(task.id.to_string());
    }
    assert_eq!(ended.len(), 2 * ALLOWED, "{}", binding.name);
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused_and_the_open_ones_are_delivered_whole() {
    let metrics = Arc::new(Metrics::new("1"));
    let counted = Arc::clone(&metrics);
    let (mut gateway, bindings, _directory) = gateway(|config| {
        config.credentials = credentials();
        config.limits.streams_per_principal = ALLOWED;
        config.metrics = counted;
    })
    .await;
    let mut turns = take_turns(&mut gateway);
    let (mut open, mut rows) = (Vec::new(), 0);
    for (row, binding) in bindings.iter().enumerate().filter(|(_, row)| !row.is_owner) {
        open.extend(
            flood_with_streams(&gateway, binding, row).await.into_iter().map(|events| (binding, events)),
        );
        rows += 1;
    }
    let accepted = open.len();
    assert_eq!(metrics.stream_active.get(), i64::try_from(accepted).unwrap());
    assert_eq!(metrics.refused.of(Limit::StreamsPerPrincipal).get(), (rows * (CALLS - ALLOWED)) as u64);
    let agent = async {
        for _ in 0..accepted {
            let turn = turns.recv().await.unwrap();
            turn.say("b1", "All of it.").await;
            turn.complete().await;
        }
    };
    let read = join_all(open.iter_mut().map(|(binding, events)| async {
        let seen = ClientView::of(&fold(None, events.rest().await));
        assert_eq!((seen.state, &*seen.text), (TaskState::Completed, "All of it."), "{}", binding.name);
    }));
    tokio::join!(read, agent);
    assert_eq!(gateway.agent.log().prompted.len(), accepted, "no refused stream reaches the agent");
    gateway.stop().await;
}

/// Returns the streams that the limit lets open, with that of the quiet principal.
async fn flood_with_streams(gateway: &Gateway, binding: &Binding, row: usize) -> Vec<BindingEvents> {
    let (flooding, quiet) = (flooding(row), quiet(row));
    let name = |number: usize| format!("m{number}");
    let open = (0..ALLOWED).map(async |number| binding.stream(gateway, &flooding, &name(number)).await);
    let mut open = join_all(open).await;
    let refused = (ALLOWED..CALLS).map(async |number| {
        let message = binding.client.message(&name(number), "go");
        binding.answer(&flooding, binding.client.stream(gateway, &message)).await
    });
    // A JSON-RPC response with an id has no status of its own.
    let status = if binding.client.dialect == Dialect::Rest { 429 } else { 200 };
    for answer in join_all(refused).await {
        binding.assert_limited(&answer, status);
    }
    open.push(binding.stream(gateway, &quiet, "m").await);
    open
}

/// The calls that one connection may have open.
const CALLS_PER_CONNECTION: u32 = 1024;
const BEYOND: u32 = 76;

/// Clients of gRPC, whose connections carry several calls.
fn multiplexed(bindings: &[Binding]) -> impl Iterator<Item = &Binding> {
    named(bindings, &["1.0 gRPC", "1.0 gRPC on a unix socket"])
}

/// The same, and HTTP on the unix socket.
pub(crate) fn multiplexed_or_on_unix_socket(bindings: &[Binding]) -> impl Iterator<Item = &Binding> {
    multiplexed(bindings).chain(named(bindings, &["1.0 REST on a unix socket"]))
}

fn named<'a>(bindings: &'a [Binding], names: &'static [&'static str]) -> impl Iterator<Item = &'a Binding> {
    names.iter().map(|name| bindings.iter().find(|binding| binding.name == *name).expect("a row"))
}

/// The head of a call for the tasks of a principal.
fn call(stream: u32, token: &str) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/lf.a2a.v1.A2AService/ListTasks"),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("authorization", token),
    ];
    http2_headers(stream, &fields, false)
}

/// A message without a field.
const NOTHING: [u8; 5] = [0; 5];

/// The numbers of the streams that a client opens, in order.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| 2 * number + 1)
}

#[tokio::test]
async fn calls_that_ignore_the_limit_of_their_connection_are_reset_and_the_others_are_answered() {
    const REFUSED_STREAM: u32 = 7;

    let (gateway, bindings, _directory) = gateway(|_| {}).await;
    for binding in multiplexed(&bindings) {
        // Its connection stays open.
        assert_eq!(binding.list(&gateway, BOB).await.unwrap(), [], "{}", binding.name);
        let before = gateway.tasks.running();
        let mut connection = binding.connect().await;
        let heads = streams(CALLS_PER_CONNECTION + BEYOND).flat_map(|stream| call(stream, ADA));
        connection
            .write_all(&http2_start(65_535).into_iter().chain(heads).collect::<Vec<_>>())
            .await
            .unwrap();
        let mut reset = Vec::new();
        while reset.len() < BEYOND as usize {
            let frame = Http2Frame::read(&mut connection).await;
            if let Some(code) = frame.reset() {
                assert_eq!(code, REFUSED_STREAM, "{}: {frame:?}", binding.name);
                reset.push(frame.stream);
            }
        }
        assert!(streams(CALLS_PER_CONNECTION + BEYOND).skip(CALLS_PER_CONNECTION as usize).eq(reset));
        // One for the connection, and one for each call.
        let most = before + 1 + CALLS_PER_CONNECTION as usize;
        assert!(gateway.tasks.running() <= most, "{}", gateway.tasks.running());
        assert_eq!(binding.list(&gateway, BOB).await.unwrap(), [], "{}", binding.name);

        let bodies = streams(CALLS_PER_CONNECTION).flat_map(|stream| http2_last_data(stream, &NOTHING));
        connection.write_all(&bodies.collect::<Vec<_>>()).await.unwrap();
        let (mut replied, mut ended) = (BTreeSet::new(), BTreeSet::new());
        while ended.len() < CALLS_PER_CONNECTION as usize {
            let frame = Http2Frame::read(&mut connection).await;
            assert_eq!(frame.reset(), None, "{}: {frame:?}", binding.name);
            if frame.kind == Http2Frame::DATA {
                replied.insert(frame.stream);
            }
            if frame.ends {
                ended.insert(frame.stream);
            }
        }
        assert_eq!(replied, ended, "{}: a refusal has no message", binding.name);
        drop(connection);
        until_running(&gateway, before).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_connection_that_opens_calls_without_an_end_is_closed() {
    const AT_ONCE: u32 = 64;

    let (gateway, bindings, _directory) = gateway(|_| {}).await;
    for binding in multiplexed(&bindings) {
        assert_eq!(binding.list(&gateway, BOB).await.unwrap(), [], "{}", binding.name);
        let before = gateway.tasks.running();
        // One client leaves its calls open, the other one cancels each at once.
        for cancels in [false, true] {
            let mut connection = binding.connect().await;
            let flood = async {
                let mut bytes = http2_start(65_535);
                for stream in streams(u32::MAX / 4) {
                    bytes.extend(call(stream, ADA));
                    if cancels {
                        bytes.extend(http2_cancel(stream));
                    }
                    if stream % AT_ONCE == 1
                        && connection.write_all(&std::mem::take(&mut bytes)).await.is_err()
                    {
                        return;
                    }
                }
            };
            let closed = tokio::time::timeout(PATIENCE, flood).await;
            closed.unwrap_or_else(|_| panic!("{} stays open, cancels: {cancels}", binding.name));
            until_running(&gateway, before).await;
            assert_eq!(binding.list(&gateway, BOB).await.unwrap(), [], "{}", binding.name);
        }
    }
    gateway.stop().await;
}

/// A client that obeys the limit keeps the other calls until earlier ones have ended.
#[tokio::test]
async fn more_calls_than_a_connection_may_have_open_are_all_answered() {
    let (mut gateway, bindings, _directory) = gateway(|_| {}).await;
    let mut turns = take_turns(&mut gateway);
    for (row, binding) in multiplexed(&bindings).enumerate() {
        let before = gateway.tasks.running();
        // The same message is one task, for which all of them wait.
        let name = format!("m{row}");
        let calls = (0..CALLS_PER_CONNECTION + BEYOND).map(|_| binding.send(&gateway, ADA, &name, true));
        let agent = async {
            let turn = turns.recv().await.unwrap();
            while gateway.tasks.running() < before + CALLS_PER_CONNECTION as usize {
                tokio::task::yield_now().await;
            }
            turn.complete().await;
        };
        let (answers, ()) = tokio::join!(join_all(calls), agent);
        for answer in answers {
            assert_eq!(answer.unwrap().status.state, TaskState::Completed, "{}", binding.name);
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_flood_of_connections_displaces_its_own_and_keeps_no_caller_out() {
    const CONNECTIONS: u16 = 16;
    const ROUNDS: usize = 32;

    let metrics = Arc::new(Metrics::new("1"));
    let counted = Arc::clone(&metrics);
    let (mut gateway, bindings, _directory) = gateway(|config| {
        config.limits.connections = CONNECTIONS.into();
        config.metrics = counted;
    })
    .await;
    // A line that is first written by a test that captures none would be captured by no other test.
    let _lines = LogLines::begin();
    let rows: Vec<&Binding> = multiplexed_or_on_unix_socket(&bindings).collect();
    let mut open = Vec::new();
    for (row, binding) in rows.iter().enumerate() {
        let mut events = binding.stream(&gateway, ADA, &format!("m{row}")).await;
        let first = events.next().await.unwrap();
        open.push((first, events, gateway.turns.recv().await.unwrap()));
    }
    let mut flood = Vec::new();
    for round in 0..ROUNDS {
        for binding in &rows {
            let mut connection = binding.connect().await;
            // Every second client sends a call with a wrong credential. The oldest connection may be closed by now.
            if round % 2 == 0 {
                let _ = connection.write_all(&[http2_start(65_535), call(1, "Bearer wrong")].concat()).await;
            }
            flood.push(connection);
        }
        if round % 8 == 0 {
            for binding in &rows {
                assert_eq!(binding.apart().list(&gateway, BOB).await.unwrap(), [], "{}", binding.name);
            }
        }
    }
    assert!(metrics.connections.get() <= CONNECTIONS.into(), "{}", metrics.connections.get());
    assert!(metrics.refused.of(Limit::Connections).get() >= (flood.len() - usize::from(CONNECTIONS)) as u64);
    for (binding, (first, mut events, turn)) in rows.iter().zip(open) {
        turn.say("b1", "Still here.").await;
        turn.complete().await;
        let seen = [first].into_iter().chain(events.rest().await).collect();
        let seen = ClientView::of(&fold(None, seen));
        assert_eq!((seen.state, &*seen.text), (TaskState::Completed, "Still here."), "{}", binding.name);
    }
    drop(flood);
    gateway.stop().await;
}
