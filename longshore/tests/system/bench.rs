//! The bench works with the current gateway: the gateway accepts the stand-in of the bench as an OpenCode and as an ACP agent, and
//! understands the clients of the bench.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use longshore_bench::drive::{Connection, End, ProtocolVersion, Tally, call, sent_text};
use longshore_bench::load::stream_once;
use longshore_bench::servers::{Agent, Kind, Limits, Programs, Server};
use longshore_bench::stamp;
use longshore_bench::stand_in::{self, Script};
use longshore_engine::Tasks;
use tokio::net::TcpListener;

#[tokio::test]
async fn the_bench_reads_whole_streams_and_turns_in_both_versions() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let source = listener.local_addr().unwrap();
    let tasks = Tasks::new();
    let serving = tasks.clone();
    let stand_in = tasks.spawn("stand-in", async move { stand_in::serve(listener, &serving).await });
    let place = tempfile::tempdir().unwrap();
    let programs = Programs { longshore: PathBuf::from(env!("CARGO_BIN_EXE_longshore")), peer: None };
    let home = place.path().join("server");
    let server = Server::start(Kind::Longshore, &programs, Agent::OpenCode(source), home, Limits::Off, &[])
        .await
        .unwrap();
    let mut asking = Connection::open(source).await.unwrap();

    for (line, key) in [(ProtocolVersion::V1, "one"), (ProtocolVersion::V03, "two")] {
        let script = Script { key: key.to_owned(), deltas: 50, rate: 200, ..Script::default() };
        let outcome = stream_once(&server.target(line), &script, Arc::new(Tally::default())).await;
        assert_eq!(outcome.end, End::Completed);
        let told = sent_text(&mut asking, key).await.unwrap().unwrap();
        assert_eq!((outcome.deltas, outcome.gaps), (told.deltas, 0));
        assert_eq!(outcome.sum.0, told.sum);
    }

    let mut connection = Connection::open(server.address).await.unwrap();
    let script = Script { deltas: 3, ..Script::default() }.to_string();
    for line in [ProtocolVersion::V1, ProtocolVersion::V03] {
        let target = server.target(line);
        let reply = call(&mut connection, &target.send(&format!("m-{line:?}"), &script, true)).await.unwrap();
        assert_eq!(
            numbers(&reply.body),
            BTreeSet::from([0, 1, 2]),
            "{}",
            String::from_utf8_lossy(&reply.body)
        );
        let task = reply.task().unwrap();
        let kept = call(&mut connection, &target.get_task(task["id"].as_str().unwrap())).await.unwrap();
        assert_eq!(numbers(&kept.body), BTreeSet::from([0, 1, 2]));
    }
    assert!(server.database_bytes() > 0);
    server.stop().await;
    stand_in.abort();
}

#[tokio::test]
async fn the_bench_reads_whole_streams_of_an_acp_agent() {
    let longshore = PathBuf::from(env!("CARGO_BIN_EXE_longshore"));
    // The tests of the workspace build it too.
    let bench = longshore.with_file_name("longshore-bench");
    let place = tempfile::tempdir().unwrap();
    let programs = Programs { longshore, peer: None };
    let home = place.path().join("server");
    let agent = Agent::Acp(bench);
    let server = Server::start(Kind::Longshore, &programs, agent, home, Limits::Off, &[]).await.unwrap();
    let mut asking = Connection::open(server.stand_in).await.unwrap();
    let script = Script { key: "one".to_owned(), deltas: 50, rate: 200, ..Script::default() };
    let target = server.target(ProtocolVersion::V1);
    let outcome = stream_once(&target, &script, Arc::new(Tally::default())).await;
    assert_eq!(outcome.end, End::Completed);
    let told = sent_text(&mut asking, "one").await.unwrap().unwrap();
    assert_eq!((outcome.deltas, outcome.gaps, outcome.sum.0), (told.deltas, 0, told.sum));
    server.stop().await;
}

/// The numbers of the deltas in a task. In 0.3 the status repeats the whole text.
fn numbers(body: &[u8]) -> BTreeSet<u64> {
    stamp::find(body).map(|stamp| stamp.number).collect()
}
