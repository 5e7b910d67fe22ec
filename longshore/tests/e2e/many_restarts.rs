//! Restarts of the gateway: there is always exactly one managed OpenCode, and none after `longshore stop`.

use std::time::Duration;

use longshore_testkit::gateway::{is_alive, kill, until};
use longshore_testkit::process::{ProcessResources, with_environment};

use crate::client::message;
use crate::frames::nth_text;
use crate::harness::Harness;

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until only these processes run. OpenCode runs short programs such as `git`.
async fn only(harness: &Harness, gateway: Option<u32>, expected: &[u32], when: &str) {
    let what = format!("{when}: {expected:?} and nothing else runs");
    until(PATIENCE, &what, || processes(harness, gateway) == expected).await;
}

/// The processes of this test besides the gateway: those with its home in their environment.
fn processes(harness: &Harness, gateway: Option<u32>) -> Vec<u32> {
    let data = harness.gateway.data_dir();
    let position = data.parent().expect("the data is in the directory of the test").display().to_string();
    let mut found = with_environment(&position);
    found.retain(|pid| Some(*pid) != gateway && is_alive(*pid));
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn long_many_restarts_of_the_gateway_leave_one_opencode_and_stop_leaves_none() {
    let (mut harness, _model) = Harness::with_own_model().await;
    let first = harness.opencode.pid();
    for life in 0..3 {
        // The gateway is killed during a turn, and the next one ends with SIGTERM.
        let mut stream = harness.client.stream(&message("scn:text n=60 delay=20 size=9")).await;
        stream.until("some text", nth_text(3)).await;
        harness.gateway.kill();
        drop(stream);
        only(&harness, None, &[first], &format!("life {life}, after a crash")).await;
        harness.restart().await;
        let status = harness.gateway.terminate().await;
        assert!(status.success(), "the gateway ended with {status}: {}", harness.gateway.log());
        only(&harness, None, &[first], &format!("life {life}, after an orderly end")).await;
        harness.restart().await;
        let gateway = harness.gateway.pid();
        only(&harness, Some(gateway), &[first], &format!("life {life}, after the next start")).await;
        // OpenCode was taken over and not started, so it is no child of this gateway.
        assert_eq!(ProcessResources::of(gateway).children, [0; 0], "life {life}");
    }

    // A killed OpenCode is replaced, and the gateway waits for the exit of the old one.
    kill(first);
    harness.until_opencode_is_back(first).await;
    let second = harness.opencode.pid();
    let gateway = harness.gateway.pid();
    only(&harness, Some(gateway), &[second], "after a kill").await;
    assert_eq!(ProcessResources::of(gateway).children, [second]);
    kill(second);
    harness.until_opencode_is_back(second).await;
    let third = harness.opencode.pid();
    only(&harness, Some(gateway), &[third], "after another kill").await;
    assert_eq!(ProcessResources::of(gateway).children, [third], "the one before was not waited for");

    harness.play("scn:text n=2").await.ended("COMPLETED", "");
    assert!(harness.gateway.terminate().await.success());
    let stopped = harness.gateway.stop_opencode();
    assert!(stopped.status.success(), "{stopped:?}");
    only(&harness, None, &[], "after `longshore stop`").await;
}
