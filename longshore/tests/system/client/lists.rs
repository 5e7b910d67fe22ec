//! The lists of tasks, and the card.

use longshore_testkit::fake_opencode::Turn;

use super::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_listed_read_and_watched() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|_| Turn::new().text("The answer.", 2).finish("stop"));
    let none = fixture.run(&["tasks", "list"]).await;
    assert_eq!(
        (none.code, none.stdout.as_str(), none.stderr.as_str()),
        (Some(0), "", "There are no tasks.\n")
    );
    fixture.run(&["call", "hello"]).await;
    let task = fixture.task().await;
    let listed = fixture.run(&["tasks", "list"]).await;
    assert!(listed.stdout.starts_with(&format!("{task}  completed ")), "{listed:?}");
    for words in [["tasks", "get", &task], ["tasks", "watch", &task]] {
        let run = fixture.run(&words).await;
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), "The answer.\n"), "{words:?}: {run:?}");
    }
    let late = fixture.run(&["tasks", "cancel", &task]).await;
    assert_eq!(late.code, Some(1), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_card_is_printed_for_people_and_for_programs() {
    let fixture = Fixture::new().await;
    let url = fixture.gateway.url().to_owned();
    let short = fixture.run(&["card"]).await;
    assert_eq!(short.code, Some(0), "{short:?}");
    assert!(short.stdout.contains(&format!("interface  JSONRPC of A2A 1.0 at {url}")), "{}", short.stdout);
    let public = fixture.run(&["card", &url, "--output", "json"]).await;
    let extended = fixture.run(&["card", "--extended", "--output", "json"]).await;
    for run in [&public, &extended] {
        assert!(serde_json::from_str::<serde_json::Value>(&run.stdout).is_ok(), "{run:?}");
    }
    assert!(extended.stdout.len() > public.stdout.len());
}
