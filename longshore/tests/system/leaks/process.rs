//! The program itself, from outside: what the kernel says that it holds.

use std::time::Duration;

use longshore_testkit::chaos::proxy::{ChaosProxy, Plan};
use longshore_testkit::gateway::{Gateway, Setup, TOKEN};
use longshore_testkit::process::Holdings;
use tokio::io::AsyncWriteExt;

use crate::leaks::connection::{Target, Disconnect};
use crate::leaks::cycles::{self, Tally};
use crate::leaks::fixture::{self, Fixture, wait_until_equal};

const SEED: u64 = 5;
const ROUNDS: u64 = 10;
const CYCLES_PER_ROUND: u64 = 250;
/// Until then the allocator and the store's cache take what they keep.
const WARM: usize = 5;
/// All connections to OpenCode are cut after so many cycles, besides those that break by themselves.
const CUT_EVERY: u64 = 150;
/// By how many kilobytes the memory may grow after that.
const ALLOWED: u64 = 4 * 1024;
/// Connections that are kept, to see that they would be noticed.
const KEPT: usize = 600;

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_clients_that_are_cut_off_leave_nothing_behind() {
    let fake = fixture::fake();
    let upstream = ChaosProxy::start(fake.address(), SEED).await.expect("loopback has a free port");
    // The stream on which it hears of what others prompt would be one connection more, which comes and goes.
    let setup =
        Setup::attached(env!("CARGO_BIN_EXE_longshore"), &upstream.url()).flag("--watch-directories=0");
    let gateway = Gateway::start(setup).await;
    let address = gateway.url().trim_start_matches("http://").parse().expect("the gateway has an address");
    let target = Target { address, token: TOKEN };
    let now = || Holdings::of(gateway.pid());
    let threads = now().threads.len();

    let (mut tally, mut resting) = (Tally::default(), Vec::<Holdings>::new());
    for round in 0..ROUNDS {
        let fixture = Fixture::set(target, round).await;
        upstream.set_plan(connection_faults());
        let numbers = round * CYCLES_PER_ROUND..(round + 1) * CYCLES_PER_ROUND;
        cycles::run(&fixture, SEED, numbers, &mut tally, |count| {
            if count % CUT_EVERY == 0 {
                upstream.cut_now();
            }
        })
        .await;
        upstream.set_plan(Plan::calm());
        fixture.tear_down(&fake).await;
        let mut look = now();
        wait_until_equal("connections of the gateway when all have left", 0, || {
            // Those to OpenCode are kept for the next turn, as long as they live.
            upstream.cut_now();
            look = now();
            look.connections
        })
        .await;
        resting.push(look);
    }
    tally.check();
    let (to_opencode, tasks) = (upstream.counts(), fixture::task_count(target, "").await);
    // How many break by themselves is left to chance: most end before their break is due.
    assert!(to_opencode.connections >= 100 && to_opencode.ended >= ROUNDS, "{to_opencode:?}");
    assert!(tasks >= 400, "{tasks} tasks");
    let (first, last) = (&resting[WARM], &resting[resting.len() - 1]);
    // What they lead to has other numbers each time.
    let count = |holdings: &Holdings| holdings.files.len();
    assert!(resting.iter().all(|holdings| count(holdings) == count(first)), "open files: {resting:#?}");
    let memory: Vec<u64> = resting.iter().map(|holdings| holdings.memory).collect();
    println!("memory at rest after each round: {memory:?} KB");
    let grown = last.memory.saturating_sub(first.memory);
    assert!(grown < ALLOWED, "the memory grew by {grown} KB once it was warm: {memory:?}");
    assert!(last.children.is_empty(), "a gateway that runs no OpenCode started a process: {last:?}");
    // Those that read files stay for some seconds after their last work.
    wait_until_equal("threads that were not there at the start", 0, || now().threads.len().saturating_sub(threads))
        .await;

    // What stays is noticed.
    let mut kept = Vec::new();
    for _ in 0..KEPT {
        let mut connection = target.open(Disconnect::Fin).await;
        connection.write_all(b"GET /tasks HTTP/1.1\r\n").await.expect("the gateway takes requests");
        kept.push(connection);
    }
    wait_until_equal("connections of the gateway", KEPT, || now().connections).await;
    assert_eq!(count(&now()), count(first) + KEPT, "open files");
    let grown = now().memory.saturating_sub(last.memory);
    assert!(grown > ALLOWED, "{KEPT} connections cost {grown} KB");
    drop(kept);
    wait_until_equal("open files of the gateway", count(first), || count(&now())).await;
}

/// What the connections to OpenCode meet.
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
