//! The same inside one process, where background tasks can be counted. A timer exists only in the task that awaits it,
//! so no task means no timer.

use tokio::runtime::{Builder, Runtime};

use crate::common::{Options, TOKEN, TestGateway};
use crate::leaks::connection::{Disconnect, Target};
use crate::leaks::cycles::{self, Tally};
use crate::leaks::fixture::{self, Fixture, wait_until_equal};

const SEED: u64 = 6;
const ROUNDS: u64 = 2;
const CYCLES_PER_ROUND: u64 = 400;
const CUT_EVERY: u64 = 100;
/// A gateway without clients runs three tasks: one accepts connections, one watches for external turns, and one closes idle
/// directories. While OpenCode is down, a fourth one waits for its return.
const AT_REST: usize = 4;
/// The HTTP client to OpenCode may run one more, which closes idle connections.
const OF_LIBRARIES: usize = 1;

/// A separate runtime, so that every task in it belongs to the gateway.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a test can have a runtime")
}

#[test]
fn interrupted_clients_leave_no_task_and_no_timer_behind() {
    let (of_gateway, of_test) = (runtime(), runtime());
    let fake = of_test.block_on(async { fixture::fake() });
    let directory = tempfile::tempdir().expect("a directory for the socket");
    let socket = directory.path().join("gateway.sock");
    let options = Options { every_binding_at: Some(socket.clone()), ..Options::default() };
    let gateway = of_gateway.block_on(TestGateway::start_with(&fake, options));
    let address = gateway.url.trim_start_matches("http://").parse().expect("an address");
    let target = Target { address, socket, token: TOKEN };
    // The tracked tasks of the gateway, and all others.
    let alive = || {
        let (ours, all) = (gateway.tasks.running(), of_gateway.metrics().num_alive_tasks());
        (ours, all.saturating_sub(ours + OF_LIBRARIES))
    };
    of_test.block_on(async {
        let mut tally = Tally::default();
        for round in 0..ROUNDS {
            let fixture = Fixture::set_up(&target, round).await;
            let numbers = round * CYCLES_PER_ROUND..(round + 1) * CYCLES_PER_ROUND;
            cycles::run(&fixture, SEED, numbers, &mut tally, |count| {
                if count % CUT_EVERY == 0 {
                    fake.end_streams();
                }
            })
            .await;
            fixture.tear_down(&fake).await;
            // The gateway keeps idle connections to OpenCode for the next turn, unless OpenCode closes them.
            fake.kill().await;
            wait_until_equal("tasks when all have left", (AT_REST, 0), alive).await;
            if round + 1 < ROUNDS {
                fake.restart();
            }
        }
        tally.check();
        // A connection that stays open is noticed.
        let kept = target.open(Disconnect::Fin).await;
        wait_until_equal("tasks when one is there", (AT_REST + 1, 0), alive).await;
        drop(kept);
        wait_until_equal("tasks when it has left", (AT_REST, 0), alive).await;
    });
    of_gateway.block_on(gateway.stop());
    of_test.block_on(wait_until_equal("tasks behind the end", 0, || of_gateway.metrics().num_alive_tasks()));
}
