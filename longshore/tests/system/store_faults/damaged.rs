//! Rows of the store are damaged.

use longshore_testkit::fake_opencode::{FakeOpenCode, Gate, Turn};
use longshore_testkit::gateway::TOKEN;
use longshore_testkit::raw::RawClient;
use rusqlite::Connection;
use serde_json::json;

use crate::store_faults::data_dir::DataDir;
use crate::store_faults::gateway::{Gateway, end_of, longshore, rest, task_of, text_of, until_text};

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_task_fails_with_a_reason_and_the_others_continue() {
    let (data_dir, fake) = (DataDir::plain(), FakeOpenCode::start());
    let gateway = Gateway::start(&data_dir, &fake).await;
    let gates = [Gate::new(), Gate::new(), Gate::new()];
    let mut tasks = Vec::new();
    for (name, gate) in ["spoiled", "flipped", "sound"].into_iter().zip(&gates) {
        fake.queue(Turn::new().text("one ", 2).hold(gate).text("two", 1).finish("stop"));
        let mut stream = gateway.stream(name, name).await;
        tasks.push(task_of(&until_text(&mut stream, "one").await));
        gate.reached().await;
    }
    gateway.kill().await;
    let damages = [
        "UPDATE events SET body = '{' WHERE kind = 'artifact' AND task = (SELECT ordinal FROM tasks WHERE id = ?)",
        // Invalid UTF-8.
        "UPDATE tasks SET prompt = CAST(x'ff' AS TEXT) WHERE id = ?",
    ];
    let db = Connection::open(data_dir.path().join("longshore.db")).expect("the file is there");
    for (damage, task) in damages.iter().zip(&tasks) {
        assert!(db.execute(damage, [task]).expect("the file can be written") > 0);
    }
    drop(db);

    let gateway = Gateway::start(&data_dir, &fake).await;
    let mut ended = Vec::new();
    for task in &tasks[..2] {
        let spoiled = gateway.client.task(task).await;
        assert_eq!(spoiled["status"]["state"], "TASK_STATE_FAILED", "{spoiled:#}");
        let reason = spoiled["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default();
        assert!(reason.contains("damaged"), "{spoiled:#}");
        // A reader with a cursor gets the task with a gap mark.
        for cursor in [0, 1] {
            let path = format!("/tasks/{task}:subscribe");
            let frames = gateway.client.rest_stream("GET", &path, None, Some(cursor)).await;
            let frames = frames.expect("the task can be subscribed to").all().await;
            let [gap] = frames.as_slice() else { panic!("expected one frame, got {frames:#?}") };
            let requested = gap.json.pointer("/task/metadata/longshore/gap/requested");
            assert_eq!(requested, Some(&json!(cursor)), "{gap:#?}");
            assert_eq!(gap.json["task"]["status"], spoiled["status"], "{gap:#?}");
        }
        ended.push(spoiled);
    }
    // The damaged tasks are not listed as working, and are not hidden. That their turns were started by the gateway is
    // lost: what OpenCode still does there becomes new tasks, as external turns do.
    let working = json!({"status": "TASK_STATE_WORKING"});
    let working = gateway.client.rpc("ListTasks", working).await.result()["tasks"].clone();
    let is_at_work = |id: &str| working.as_array().is_some_and(|all| all.iter().any(|task| task["id"] == id));
    let at_work: Vec<bool> = tasks.iter().map(|id| is_at_work(id)).collect();
    assert_eq!(at_work, [false, false, true], "{working:#}");
    let listed = gateway.listed().await;
    assert!(tasks.iter().all(|id| listed.contains(id)), "{listed:?}");

    gates[2].open();
    let log = gateway.log_of(&tasks[2]).await;
    assert_eq!((text_of(&log), end_of(&log)), ("one two".to_owned(), "TASK_STATE_COMPLETED"));
    // The failure of the damaged tasks is stored.
    gateway.kill().await;
    let gateway = Gateway::start(&data_dir, &fake).await;
    for (task, ended) in tasks.iter().zip(&ended) {
        assert_eq!(gateway.client.task(task).await, *ended);
    }
}

/// `longshore check`: its exit code, and all that it printed.
fn check(data_dir: &DataDir) -> (Option<i32>, String) {
    let output = longshore(data_dir, "check").output().expect("longshore can be run");
    let printed =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), printed)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overwritten_byte_is_noticed_and_named_and_what_is_whole_is_served() {
    let (data_dir, fake) = (DataDir::plain(), FakeOpenCode::start());
    let gateway = Gateway::start(&data_dir, &fake).await;
    let mut tasks = Vec::new();
    for text in ["an ordinary answer", "another answer"] {
        fake.queue(Turn::new().text(text, 1).finish("stop"));
        tasks.push(task_of(&rest(gateway.stream(&text.replace(' ', "-"), text).await).await));
    }
    let (code, printed) = check(&data_dir);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("already uses the data directory"), "{printed}");
    gateway.terminate().await;
    assert_eq!(check(&data_dir).0, Some(0));

    // The text stays JSON, and SQLite's own check finds nothing.
    let file = data_dir.path().join("longshore.db");
    let mut bytes = std::fs::read(&file).expect("the file can be read");
    let places: Vec<usize> = bytes
        .windows(18)
        .enumerate()
        .filter_map(|(place, text)| (text == b"an ordinary answer").then_some(place))
        .collect();
    assert!(!places.is_empty(), "the answer is in the file");
    for place in places {
        bytes[place + 3] = b'O';
    }
    std::fs::write(&file, bytes).expect("the file can be written");
    let (code, printed) = check(&data_dir);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains(&format!("damaged: task {}", tasks[0])), "{printed}");
    assert!(!printed.contains(&tasks[1]), "{printed}");

    let gateway = Gateway::start(&data_dir, &fake).await;
    let health = gateway.until_store_is("degraded").await;
    assert_eq!((&health["status"], &health["ready"]), (&json!("degraded"), &json!(true)), "{health:#}");
    let refused = gateway.client.rpc("GetTask", json!({"id": tasks[0]})).await.body;
    assert_eq!(refused["error"]["code"], -32603, "{refused:#}");
    let text = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(text.contains(&tasks[0]) && text.contains("damaged"), "{refused:#}");
    let old = RawClient::new(gateway.url.clone(), TOKEN).speaking("0.3");
    let refused_before = old.rpc("tasks/get", json!({"id": tasks[0]})).await.body;
    assert_eq!(refused_before["error"]["message"], refused["error"]["message"], "{refused_before:#}");
    let listed = gateway.client.rpc("ListTasks", json!({})).await.result().clone();
    assert_eq!(
        (&listed["totalSize"], &listed["tasks"][0]["id"]),
        (&json!(1), &json!(tasks[1])),
        "{listed:#}"
    );
    assert_eq!(text_of(&gateway.log_of(&tasks[1]).await), "another answer");
    let log = gateway.kill().await;
    assert!(log.contains("a stored task is damaged") && log.contains(&tasks[0]), "{log}");

    // An emptied file, and a missing one, are no new store.
    for (damage, word) in [("", "is empty"), ("remove", "is missing")] {
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(data_dir.path().join(format!("longshore.db{suffix}")));
        }
        if damage.is_empty() {
            std::fs::write(&file, "").expect("the file can be written");
        } else {
            std::fs::remove_file(&file).expect("the file is there");
        }
        let ended = Gateway::try_start(&data_dir, &fake).await.err().expect("the start is refused");
        assert!(
            ended.stderr.contains(word) && ended.stderr.contains("restore it from a backup"),
            "{ended:?}"
        );
    }
}
