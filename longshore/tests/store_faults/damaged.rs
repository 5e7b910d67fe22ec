//! A row of the store makes no sense any more.

use longshore_testkit::fake_opencode::{FakeOpenCode, Gate, Turn};
use rusqlite::Connection;
use serde_json::json;

use crate::place::Place;
use crate::process::{Gateway, end_of, task_of, text_of, until_text};

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_task_ends_with_a_reason_and_the_others_go_on() {
    let (place, fake) = (Place::plain(), FakeOpenCode::start());
    let gateway = Gateway::start(&place, &fake).await;
    let gates = [Gate::new(), Gate::new()];
    let mut tasks = Vec::new();
    for (name, gate) in ["spoiled", "sound"].into_iter().zip(&gates) {
        fake.queue(Turn::new().text("one ", 2).hold(gate).text("two", 1).finish("stop"));
        let mut stream = gateway.stream(name, name).await;
        tasks.push(task_of(&until_text(&mut stream, "one").await));
        gate.reached().await;
    }
    gateway.kill().await;
    let damage = "UPDATE events SET body = '{' WHERE kind = 'artifact' AND task = (SELECT ordinal FROM tasks WHERE id = ?)";
    let changed =
        Connection::open(place.data().join("longshore.db")).and_then(|db| db.execute(damage, [&tasks[0]]));
    assert!(changed.expect("the file is there") > 0);

    let gateway = Gateway::start(&place, &fake).await;
    let spoiled = gateway.client.task(&tasks[0]).await;
    assert_eq!(spoiled["status"]["state"], "TASK_STATE_FAILED", "{spoiled:#}");
    let reason = spoiled["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default();
    assert!(reason.contains("damaged"), "{spoiled:#}");
    // Nobody finds it at work, and it is not hidden.
    let working = json!({"status": "TASK_STATE_WORKING"});
    let working = gateway.client.rpc("ListTasks", working).await.result()["tasks"].clone();
    assert_eq!(working[0]["id"], tasks[1].as_str(), "{working:#}");
    assert_eq!(working.as_array().map(Vec::len), Some(1));
    assert_eq!(gateway.listed().await, tasks.iter().cloned().collect());
    // The log itself cannot be read past the damage, and says so.
    let path = format!("/tasks/{}:subscribe", tasks[0]);
    match gateway.client.rest_stream("GET", &path, None, Some(0)).await {
        Err(answer) => assert!(answer.body.to_string().contains("damaged"), "{answer:?}"),
        Ok(stream) => {
            let frames = stream.all().await;
            let last = frames.last().expect("a stream has an end").json.to_string();
            assert!(last.contains("damaged"), "{frames:?}");
        }
    }

    gates[1].open();
    let log = gateway.log_of(&tasks[1]).await;
    assert_eq!((text_of(&log), end_of(&log)), ("one two".to_owned(), "TASK_STATE_COMPLETED"));
    // What was written about the damage stays.
    gateway.kill().await;
    let gateway = Gateway::start(&place, &fake).await;
    assert_eq!(gateway.client.task(&tasks[0]).await, spoiled);
}
