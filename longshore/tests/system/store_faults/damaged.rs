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
    run(data_dir, "check")
}

fn run(data_dir: &DataDir, subcommand: &str) -> (Option<i32>, String) {
    let output = longshore(data_dir, subcommand).output().expect("longshore can be run");
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
    overwrite(&file, b"an ordinary answer");
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

/// Overwrites a byte of each place in the store that has this text. The text stays JSON.
fn overwrite(file: &std::path::Path, text: &[u8]) {
    let mut bytes = std::fs::read(file).expect("the file can be read");
    let found = bytes.windows(text.len()).enumerate().filter(|(_, found)| *found == text);
    let places: Vec<usize> = found.map(|(place, _)| place).collect();
    assert!(!places.is_empty(), "the text is in the file");
    for place in places {
        bytes[place + 1] ^= 1;
    }
    std::fs::write(file, bytes).expect("the file can be written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_names_the_damage_keeps_the_damaged_store_and_needs_room_for_both() {
    let (data_dir, fake) = (DataDir::small_disk(), FakeOpenCode::start());
    let gateway = Gateway::start(&data_dir, &fake).await;
    let mut tasks = Vec::new();
    for text in ["an ordinary answer", "another answer"] {
        fake.queue(Turn::new().text(text, 1).finish("stop"));
        tasks.push(task_of(&rest(gateway.stream(&text.replace(' ', "-"), text).await).await));
    }
    let log = gateway.log_of(&tasks[1]).await;
    let (code, printed) = run(&data_dir, "repair");
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("already uses the data directory"), "{printed}");
    gateway.terminate().await;
    let (code, printed) = run(&data_dir, "repair");
    assert!(code == Some(0) && printed.contains("is whole"), "{printed}");

    let directory = data_dir.reachable_path();
    overwrite(&directory.join("longshore.db"), b"an ordinary answer");
    let damaged = std::fs::read(directory.join("longshore.db")).expect("the file can be read");
    if data_dir.is_own_disk() {
        data_dir.fill_but(8192);
        let (code, printed) = run(&data_dir, "repair");
        assert!(code == Some(1) && printed.contains("bytes free, and a repair needs"), "{printed}");
        assert_eq!(std::fs::read(directory.join("longshore.db")).expect("it is there"), damaged);
        data_dir.free(None);
    }
    let (code, printed) = run(&data_dir, "repair");
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains(&tasks[0]) && !printed.contains(&tasks[1]), "{printed}");
    let entries = std::fs::read_dir(&directory).expect("the directory is there");
    let paths: Vec<_> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    let kept = paths.iter().find(|path| path.to_string_lossy().contains(".damaged-")).expect("it is kept");
    assert_eq!(std::fs::read(kept.join("longshore.db")).expect("it is there"), damaged);
    let report = std::fs::read_to_string(kept.join("report.txt")).expect("there is a report");
    assert!(printed.contains(&report), "{report}");

    let gateway = Gateway::start(&data_dir, &fake).await;
    gateway.until_store_is("up").await;
    assert_eq!(gateway.log_of(&tasks[1]).await, log);
    let spoiled = gateway.client.task(&tasks[0]).await;
    assert_eq!(spoiled["status"]["state"], "TASK_STATE_FAILED", "{spoiled:#}");
    assert!(spoiled["status"]["message"].to_string().contains("damaged"), "{spoiled:#}");
    gateway.terminate().await;
    assert_eq!(check(&data_dir).0, Some(0));
}
