//! The commands call the gateway of the directory, and no other program that has its address.

use longshore_testkit::stub_agent::{Reply, StubAgent};

use super::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn a_program_at_the_address_of_a_gateway_that_has_ended_gets_no_token() {
    let mut fixture = Fixture::new().await;
    let thief = StubAgent::start(|_, url| Reply::json(&StubAgent::card(url)));
    let address = fixture.gateway.data_dir().join("address");
    // A killed gateway leaves its address behind.
    fixture.gateway.kill();
    assert!(address.exists());
    std::fs::write(&address, thief.url()).unwrap();
    for words in [&["call", "hello"][..], &["asks", "list"], &["card"]] {
        let run = fixture.run(words).await;
        assert_eq!(run.code, Some(7), "{words:?}: {run:?}");
        assert!(run.stderr.contains("Start one with `longshore serve`"), "{words:?}: {run:?}");
    }
    let doctor = fixture.run(&["doctor", "--port", "0"]).await;
    assert!(doctor.stdout.contains("does not run now"), "{doctor:?}");
    assert!(thief.requests().is_empty(), "{:?}", thief.requests());

    fixture.gateway.restart().await;
    assert_eq!(fixture.run(&["tasks", "list"]).await.code, Some(0));
    fixture.gateway.terminate().await;
    assert!(!address.exists(), "an orderly end removes the address");
}
