//! The store cannot be written. The start on a read-only directory is real. During operation SQLite itself is made
//! read-only, because no system makes a disk read-only under a program that has files open on it.

use std::path::Path;
use std::sync::Arc;

use longshore_engine::port::Store;
use longshore_store::{Durability, SqliteStore};
use longshore_testkit::fake_opencode::{FakeOpenCode, Gate, Turn};
use longshore_testkit::raw;

use crate::common::{Options, TestGateway};
use crate::store_faults::data_dir::DataDir;
use crate::store_faults::gateway::{Gateway, check_numbers, end_of, rest, task_of, text_of, until_text};

#[tokio::test(flavor = "multi_thread")]
async fn a_start_on_a_read_only_directory_says_so() {
    a_start_says_so(|has_data| DataDir::read_only(|data| prepare(data, has_data))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_in_a_write_protected_directory_says_so() {
    a_start_says_so(|has_data| DataDir::write_protected(|data| prepare(data, has_data))).await;
}

fn prepare(data: &Path, has_data: bool) {
    if has_data {
        std::fs::write(data.join("lock"), "").expect("a file can be written");
        drop(SqliteStore::open(&data.join("longshore.db"), Durability::Process).expect("a new store"));
    }
}

async fn a_start_says_so(data_dir: impl Fn(bool) -> DataDir) {
    let fake = FakeOpenCode::start();
    for data_dir in [false, true].map(data_dir) {
        let Err(ended) = Gateway::try_start(&data_dir, &fake).await else { panic!("it started") };
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{}", ended.stderr);
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: cannot write "), "{}", ended.stderr);
        assert!(last.contains(data_dir.path().to_str().expect("UTF-8")), "it does not say where: {last}");
        assert!(
            last.contains("writable") && last.contains("--data-dir"),
            "it does not say what to do: {last}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_becomes_read_only_is_reported_and_recovers() {
    let (directory, fake) = (tempfile::tempdir().expect("a directory"), FakeOpenCode::start());
    let file = directory.path().join("longshore.db");
    let store = Arc::new(SqliteStore::open(&file, Durability::Process).expect("a new store"));
    let options = Options { store: Arc::clone(&store) as Arc<dyn Store>, ..Options::default() };
    let gateway = TestGateway::start_with(&fake, options).await;
    let gate = Gate::new();
    fake.queue(Turn::new().text("before ", 2).hold(&gate).text("and behind it", 9).finish("stop"));
    fake.answer_others_with(vec![Turn::new().text("done", 1).finish("stop")]);
    let running = raw::message("running", "a turn that runs");
    let stream = gateway.client.rest_stream("POST", "/message:stream", Some(&running), None).await;
    let mut stream = stream.expect("the store can be written");
    let mut seen = until_text(&mut stream, "before").await;
    gate.reached().await;

    store.set_read_only(true);
    let more = raw::message("more", "one more");
    let refused = gateway.client.rest("POST", "/message:send", Some(&more)).await;
    let words = refused.body["error"]["message"].as_str().unwrap_or_default();
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(words.contains("mounted read-only"), "{words}");
    let refused = gateway.client.rpc("SendMessage", more.clone()).await;
    assert_eq!(refused.body["error"]["code"], -31057, "{refused:?}");
    gate.open();
    fake.wait_until_idle().await;
    let health = gateway.client.rest("GET", "/health", None).await;
    assert_eq!((health.status, &health.body["parts"]["store"]["status"]), (503, &"down".into()));
    let task = raw::plain_text(&gateway.client.task(&task_of(&seen)).await);
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "before ", "text that is not durable was shown");

    store.set_read_only(false);
    seen.extend(rest(stream).await);
    check_numbers(&seen);
    assert_eq!((text_of(&seen), end_of(&seen)), ("before and behind it".to_owned(), "TASK_STATE_COMPLETED"));
    let sent = gateway.client.rest("POST", "/message:send", Some(&more)).await;
    assert_eq!(sent.body["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent:?}");
    assert_eq!(fake.prompts().len(), 2, "a turn was prompted twice");

    gateway.stop().await;
    drop(store);
    let store = Arc::new(SqliteStore::open(&file, Durability::Process).expect("the store is whole"));
    let again = TestGateway::start_with(&fake, Options { store, ..Options::default() }).await;
    let path = format!("/tasks/{}:subscribe", task_of(&seen));
    let log =
        again.client.rest_stream("GET", &path, None, Some(0)).await.expect("the task is there").all().await;
    assert_eq!(log, seen, "another log after a restart");
}
