//! A gateway starts on a data directory that another gateway uses.

use std::time::{Duration, Instant};

use longshore_testkit::chaos::ClientProtocol;
use longshore_testkit::fake_opencode::{FakeOpenCode, Turn};
use longshore_testkit::gateway::until;
use rustix::process::Signal;

use crate::restarts::client::Client;
use crate::restarts::installation::{Installation, PATIENCE};

fn installation() -> (FakeOpenCode, Installation) {
    let fake = FakeOpenCode::start();
    fake.answer_others_with(vec![Turn::new().text("Here.", 1)]);
    let installation = Installation::attached(&fake.url(), fake.directory());
    (fake, installation)
}

/// Fails unless a gateway serves a client.
async fn check_served(installation: &Installation, message: &str) {
    let mut client = Client::new(ClientProtocol::ALL[0], &installation.url(), message);
    client.send().await;
    client.read_to_end().await;
    assert_eq!((client.state().as_str(), client.text().as_str()), ("COMPLETED", "Here."));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_data_directory_is_refused_with_its_process_and_a_suggestion() {
    let (_fake, installation) = installation();
    let first = installation.start(&[]).await;
    let (status, log) = installation.launch(&[]).ended().await;
    assert_eq!(status.code(), Some(1), "{log}");
    let expected = format!(
        "error: a gateway (process {}) already uses the data directory {}; end it first, let this one wait for it with \
         --lock-wait SECONDS, or choose another directory with --data-dir",
        first.pid(),
        installation.data().display()
    );
    assert_eq!(log, expected);
    check_served(&installation, "still served").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_gateway_waits_for_the_first_and_takes_over() {
    let (_fake, installation) = installation();
    let mut first = installation.start(&[]).await;
    check_served(&installation, "by the first").await;
    let mut second = installation.launch(&["--lock-wait", "60"]);
    let payload = second.says("Waiting").await;
    assert!(payload.contains(&format!("(process {})", first.pid())) && payload.contains("60s"), "{payload}");
    check_served(&installation, "by the first again").await;
    first.signal(Signal::TERM);
    let (status, log) = first.ended().await;
    assert!(status.success(), "it ended with {status}: {log}");
    second.says("  url ").await;
    check_served(&installation, "by the second").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_gateway_is_refused_after_its_wait() {
    let (_fake, installation) = installation();
    let first = installation.start(&[]).await;
    let began = Instant::now();
    let (status, log) = installation.launch(&["--lock-wait", "1"]).ended().await;
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(began.elapsed() >= Duration::from_secs(1), "it did not wait: {log}");
    let expected = format!(
        "error: a gateway (process {}) still uses the data directory {} after 1s; end it first, or choose another",
        first.pid(),
        installation.data().display()
    );
    assert!(log.starts_with(&expected), "{log}");
    check_served(&installation, "still served").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_gateway_ends_at_once_on_sigterm() {
    let (_fake, installation) = installation();
    let first = installation.start(&[]).await;
    let mut second = installation.launch(&["--lock-wait", "3600"]);
    second.says("Waiting").await;
    second.signal(Signal::TERM);
    let (status, log) = second.ended().await;
    assert!(status.success(), "it ended with {status}: {log}");
    check_served(&installation, "still served").await;
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_keeps_its_data_directory_until_its_opencode_has_ended() {
    let installation = Installation::managing("stubborn");
    let mut first = installation.start(&[]).await;
    first.signal(Signal::INT);
    let ending = std::fs::File::open(installation.data().join("managed.lock")).expect("it manages one");
    until(PATIENCE, "the first ends an OpenCode that does not want to", || match ending.try_lock() {
        Ok(()) => ending.unlock().is_err(),
        Err(_) => true,
    })
    .await;
    let (status, log) = installation.launch(&[]).ended().await;
    assert!(status.code() == Some(1) && log.contains("already uses the data directory"), "{status}: {log}");
    let (status, log) = first.ended().await;
    assert!(status.success(), "it ended with {status}: {log}");
    let stopped = installation.stop();
    assert!(stopped.starts_with("Nothing to stop: "), "{stopped}");
}
