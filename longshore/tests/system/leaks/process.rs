//! The gateway as a process: the kernel reports its memory, files, threads and children.

use std::path::Path;
use std::time::Duration;

use longshore_testkit::chaos::proxy::{ChaosProxy, Plan};
use longshore_testkit::gateway::{Gateway, Setup, TOKEN};
use longshore_testkit::process::ProcessResources;
use tokio::io::AsyncWriteExt;

use crate::leaks::connection::{Disconnect, Target};
use crate::leaks::cycles::{self, Tally};
use crate::leaks::fixture::{self, Fixture, wait_until_equal};

const SEED: u64 = 5;
/// All connections to OpenCode are cut after this many requests, in addition to those that break by themselves.
const CUT_EVERY: u64 = 150;
/// How many kilobytes the memory may grow once the caches are filled.
const ALLOWED: u64 = 4 * 1024;
/// Connections that stay open at the end: the test must notice them.
const KEPT: usize = 600;

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_clients_leave_no_open_file_or_thread_behind() {
    let few = Load { rounds: 2, requests_per_round: 160, warm_rounds: 1 };
    run(few).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_two_thousand_interrupted_clients_leave_nothing_behind() {
    run(Load { rounds: 10, requests_per_round: 250, warm_rounds: 5 }).await;
}

struct Load {
    rounds: u64,
    requests_per_round: u64,
    /// In these rounds the allocator and the cache of the store still grow.
    warm_rounds: usize,
}

async fn run(load: Load) {
    let fake = fixture::fake();
    let upstream = ChaosProxy::start(fake.address(), SEED).await.expect("loopback has a free port");
    let directory = tempfile::tempdir().expect("a directory for the socket");
    let socket = directory.path().join("gateway.sock");
    let setup = Setup::attached(env!("CARGO_BIN_EXE_longshore"), &upstream.url());
    // Watching a directory for external turns would add a connection that opens and closes at any time.
    let setup = setup.flag("--watch-directories=0").flag("--unix-socket").flag(&socket);
    let gateway = Gateway::start(setup).await;
    let address = gateway.url().trim_start_matches("http://").parse().expect("the gateway has an address");
    let target = Target { address, socket, token: TOKEN };
    let now = || ProcessResources::of(gateway.pid());
    let threads = now().threads.len();

    let (mut tally, mut resting) = (Tally::default(), Vec::<ProcessResources>::new());
    for round in 0..load.rounds {
        let fixture = Fixture::set_up(&target, round).await;
        upstream.set_plan(connection_faults());
        let numbers = round * load.requests_per_round..(round + 1) * load.requests_per_round;
        cycles::run(&fixture, SEED, numbers, &mut tally, |count| {
            if count % CUT_EVERY == 0 {
                upstream.cut_now();
            }
        })
        .await;
        upstream.set_plan(Plan::calm());
        fixture.tear_down(&fake).await;
        let mut look = now();
        wait_until_equal("connections of the gateway when all have left", (0, 0), || {
            // The gateway keeps idle connections to OpenCode for the next turn.
            upstream.cut_now();
            look = now();
            (look.connections, connections_to(&target.socket))
        })
        .await;
        resting.push(look);
    }
    let requests = load.rounds * load.requests_per_round;
    tally.check();
    let (to_opencode, tasks) = (upstream.counts(), fixture::task_count(&target, "").await);
    // Most connections end before their fault is due, so the number of faults is not fixed.
    assert!(to_opencode.connections >= requests / 25 && to_opencode.ended >= load.rounds, "{to_opencode:?}");
    assert!(tasks >= requests / 7, "{tasks} tasks");
    let (first, last) = (&resting[load.warm_rounds], &resting[resting.len() - 1]);
    // Compare the number of files: the names of sockets differ each time.
    let count = |holdings: &ProcessResources| holdings.files.len();
    assert!(resting.iter().all(|holdings| count(holdings) == count(first)), "open files: {resting:#?}");
    let memory: Vec<u64> = resting.iter().map(|holdings| holdings.memory).collect();
    let grown = last.memory.saturating_sub(first.memory);
    assert!(grown < ALLOWED, "the memory grew by {grown} KB after the warm-up: {memory:?}");
    assert!(last.children.is_empty(), "a gateway that runs no OpenCode started a process: {last:?}");
    // Threads for blocking file operations stay alive for some seconds after their last work.
    wait_until_equal("threads that were not there at the start", 0, || {
        now().threads.len().saturating_sub(threads)
    })
    .await;

    assert_eq!(fixture::open_streams(&target).await, "0", "streams whose clients have left");

    // Connections that stay open are noticed.
    let mut kept = Vec::new();
    for _ in 0..KEPT {
        let mut connection = target.open(Disconnect::Fin).await;
        connection.write_all(b"GET /tasks HTTP/1.1\r\n").await.expect("the gateway takes requests");
        kept.push(connection);
    }
    wait_until_equal("connections and open files of the gateway", (KEPT, count(first) + KEPT), || {
        // The gateway may connect to OpenCode again at any time.
        upstream.cut_now();
        let look = now();
        (look.connections, count(&look))
    })
    .await;
    let grown = now().memory.saturating_sub(last.memory);
    assert!(grown > ALLOWED, "{KEPT} connections cost {grown} KB");
    drop(kept);
    wait_until_equal("open files of the gateway", count(first), || {
        upstream.cut_now();
        count(&now())
    })
    .await;
}

/// How many connections to a unix socket the gateway has open.
fn connections_to(socket: &Path) -> usize {
    const CONNECTED: &str = "03";
    let list = std::fs::read_to_string("/proc/net/unix").expect("the kernel lists its sockets");
    let socket = socket.to_str().expect("a path of the test");
    let is_open = |line: &&str| line.ends_with(socket) && line.split_whitespace().nth(5) == Some(CONNECTED);
    list.lines().filter(is_open).count()
}

/// The faults of connections to OpenCode.
fn connection_faults() -> Plan {
    Plan {
        nothing: 4,
        cut_answer: 3,
        cut_request: 1,
        stall: 1,
        half_close: 1,
        after: 300..200_000,
        stall_for: Duration::from_millis(5)..Duration::from_millis(100),
        ..Plan::calm()
    }
}
