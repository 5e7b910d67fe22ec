//! Another program locks the database file.

use std::collections::BTreeMap;

use longshore_testkit::chaos::ClientProtocol;
use longshore_testkit::fake_opencode::{FakeOpenCode, Gate, Turn};
use longshore_testkit::raw;
use rusqlite::Connection;

use crate::store_faults::data_dir::DataDir;
use crate::store_faults::gateway::{Gateway, check_numbers, end_of, rest, task_of, text_of, until_text};
use crate::store_faults::refusals::{Refusal, send};

#[tokio::test(flavor = "multi_thread")]
async fn long_a_store_that_another_program_locks_is_reported_and_recovers() {
    let (data_dir, fake) = (DataDir::plain(), FakeOpenCode::start());
    let gateway = Gateway::start(&data_dir, &fake).await;
    let gate = Gate::new();
    fake.queue(Turn::new().text("before ", 2).hold(&gate).text("and behind the lock", 9).finish("stop"));
    fake.answer_others_with(vec![Turn::new().text("done", 1).finish("stop")]);
    let mut stream = gateway.stream("running", "a turn that runs").await;
    let mut seen = until_text(&mut stream, "before").await;
    gate.reached().await;

    let intruder = Connection::open(data_dir.path().join("longshore.db")).expect("the file is there");
    intruder.execute_batch("BEGIN IMMEDIATE").expect("no write is in progress");
    gate.open();
    fake.wait_until_idle().await;
    // All at once, because each waits some seconds for the lock.
    let ids = ClientProtocol::ALL.map(|speaker| format!("refused-{}", speaker.name().replace(' ', "-")));
    let sends = ClientProtocol::ALL
        .into_iter()
        .zip(&ids)
        .map(|(speaker, id)| send(speaker, &gateway, id, "one more"));
    let refused: Vec<Refusal> = futures_util::future::join_all(sends)
        .await
        .into_iter()
        .map(|sent| sent.expect_err("the store is locked"))
        .collect();
    for refusal in refused {
        refusal.check("in use by another program");
    }
    let task = raw::plain_text(&gateway.client.task(&task_of(&seen)).await);
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "before ", "text that is not durable was shown");
    assert_eq!(gateway.listed().await, [task_of(&seen)].into());

    intruder.execute_batch("ROLLBACK").expect("the lock is ours");
    seen.extend(rest(stream).await);
    check_numbers(&seen);
    let expected = ("before and behind the lock".to_owned(), "TASK_STATE_COMPLETED");
    assert_eq!((text_of(&seen), end_of(&seen)), expected);
    let mut logs = BTreeMap::from([(task_of(&seen), seen)]);
    for (speaker, id) in ClientProtocol::ALL.into_iter().zip(&ids) {
        let task = send(speaker, &gateway, id, "one more").await;
        let task = task.unwrap_or_else(|refusal| panic!("the lock was released: {refusal:?}"));
        let log = gateway.log_of(&task).await;
        assert_eq!(end_of(&log), "TASK_STATE_COMPLETED");
        logs.insert(task, log);
    }

    gateway.kill().await;
    let gateway = Gateway::start(&data_dir, &fake).await;
    assert_eq!(gateway.listed().await, logs.keys().cloned().collect());
    for (task, log) in logs {
        assert_eq!(gateway.log_of(&task).await, log, "another log after a crash");
    }
    assert_eq!(fake.prompts().len(), 1 + ClientProtocol::ALL.len(), "a turn was prompted twice");
}
