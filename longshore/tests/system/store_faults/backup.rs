//! `longshore backup` during turns.

use std::path::Path;
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_testkit::fake_opencode::{FakeOpenCode, Gate, Turn};
use longshore_testkit::raw::{self, Frame, Frames};
use serde_json::json;
use tokio::sync::watch;

use crate::store_faults::data_dir::DataDir;
use crate::store_faults::gateway::{Gateway, check_numbers, end_of, longshore, rest, task_of, text_of};

const TURNS: usize = 3;

/// Reads a stream to its end, and publishes the number of the last event.
async fn follow(mut stream: Frames, told: watch::Sender<u64>) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(frame) = stream.next().await {
        told.send_replace(frame.id.expect("a frame has a number"));
        frames.push(frame);
    }
    frames
}

async fn run_backup(data_dir: &DataDir, target: &Path) {
    let mut command = tokio::process::Command::from(longshore(data_dir, "backup"));
    let output = command.arg(target).output().await.expect("longshore can be run");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains(&format!("longshore serve --data-dir {}", target.display())), "{stdout}");
}

/// The event numbers of each task in a backup.
fn logs(backup: &Path) -> Vec<(String, Vec<u64>)> {
    let db = rusqlite::Connection::open(backup.join("longshore.db")).expect("a backup has a store");
    let mut tasks =
        db.prepare("SELECT ordinal, id, summary_seq FROM tasks ORDER BY ordinal").expect("it has tasks");
    let tasks =
        tasks.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).expect("they can be read");
    let read = |task: rusqlite::Result<(i64, String, i64)>| {
        let (ordinal, id, newest_status) = task.expect("a task can be read");
        let mut events =
            db.prepare("SELECT seq FROM events WHERE task = ? ORDER BY seq").expect("it has events");
        let numbers = events.query_map([ordinal], |row| row.get::<_, i64>(0)).expect("they can be read");
        let numbers: Vec<u64> = numbers.map(|number| number.expect("a number").unsigned_abs()).collect();
        // The row of a task has no status that its log lacks, and the log has no gap.
        assert!(numbers.contains(&newest_status.unsigned_abs()), "a status without its event");
        assert!((1..).zip(&numbers).all(|(expected, number)| expected == *number), "{numbers:?}");
        (id, numbers)
    };
    tasks.map(read).collect()
}

/// A turn that writes one piece during each backup, and then waits for the next. A piece takes longer than a backup on a busy
/// machine, so that some backups are taken in the middle of it.
fn pieces(gates: &[Gate]) -> Turn {
    gates.iter().fold(Turn::new(), |turn, gate| {
        turn.paced("text", &"word ".repeat(300), 300, Duration::from_millis(4)).hold(gate)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_during_turns_are_complete_and_can_be_served() {
    back_up_during_turns(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_many_backups_during_turns_are_complete_and_can_be_served() {
    back_up_during_turns(12).await;
}

async fn back_up_during_turns(count: usize) {
    let (data_dir, fake, tasks) = (DataDir::plain(), FakeOpenCode::start(), Tasks::new());
    let gateway = Gateway::start(&data_dir, &fake).await;
    let (mut followers, mut heard, mut gates) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let holds: Vec<Gate> = (0..=count).map(|_| Gate::new()).collect();
        fake.queue(pieces(&holds));
        let (told, hearing) = watch::channel(0);
        let stream = gateway.stream(&format!("turn-{turn}"), "stream").await;
        followers.push(tasks.spawn("follower", follow(stream, told)));
        heard.push(hearing);
        // In this order, so that each turn gets its own script.
        holds[0].reached().await;
        gates.push(holds);
    }
    let targets = tempfile::tempdir().expect("a directory");
    let (mut backups, mut in_the_middle) = (Vec::new(), 0);
    for number in 0..count {
        for holds in &gates {
            holds[number].reached().await;
        }
        let acknowledged: Vec<u64> = heard.iter().map(|hearing| *hearing.borrow()).collect();
        for holds in &gates {
            holds[number].open();
        }
        let target = targets.path().join(format!("backup-{number}"));
        run_backup(&data_dir, &target).await;
        let later: Vec<u64> = heard.iter().map(|hearing| *hearing.borrow()).collect();
        let logs = logs(&target);
        assert_eq!(logs.len(), TURNS);
        for ((_, numbers), (acknowledged, later)) in logs.iter().zip(acknowledged.iter().zip(&later)) {
            let count = numbers.len() as u64;
            assert_eq!(*numbers, (1..=count).collect::<Vec<_>>(), "the log of a backup has a gap");
            assert!(count >= *acknowledged, "an event that a client had seen is missing");
            in_the_middle += usize::from(count > *acknowledged && count < *later);
        }
        backups.push((target, logs));
    }
    assert!(in_the_middle > 0, "no backup was taken while a turn was at work");
    let mut whole = Vec::new();
    for (follower, holds) in followers.into_iter().zip(&gates) {
        holds[count].open();
        let frames = follower.await.expect("a stream can be read");
        check_numbers(&frames);
        assert_eq!(end_of(&frames), "TASK_STATE_COMPLETED");
        whole.push(frames);
    }
    gateway.kill().await;

    // Each copy can be served: its tasks are resumed, and end like the originals.
    for (target, logs) in [&backups[0], &backups[count / 2], &backups[count - 1]] {
        let copy = DataDir::at(target);
        let gateway = Gateway::start(&copy, &fake).await;
        for (frames, (task, numbers)) in whole.iter().zip(logs) {
            assert_eq!(*task, task_of(frames));
            let log = gateway.log_of(task).await;
            check_numbers(&log);
            let copied = |frames: &[Frame]| -> Vec<Frame> {
                let is_copied = |frame: &&Frame| frame.id.is_some_and(|id| numbers.contains(&id));
                frames.iter().filter(is_copied).cloned().collect()
            };
            assert_eq!(copied(&log), copied(frames), "another log than the gateway's");
            assert_eq!((text_of(&log), end_of(&log)), (text_of(frames), "TASK_STATE_COMPLETED"));
            assert_eq!(raw::plain_text(&gateway.client.task(task).await), raw::fold(&log));
        }
        fake.queue(Turn::new().text("new", 1).finish("stop"));
        let new = rest(gateway.stream("new", "something new").await).await;
        assert_eq!((text_of(&new), end_of(&new)), ("new".to_owned(), "TASK_STATE_COMPLETED"));
    }
    assert_eq!(fake.prompts().len(), TURNS + 3, "a turn was prompted twice");
}

/// The answer to a message on a task.
async fn message_on(gateway: &Gateway, task: &str, text: &str) -> raw::Answer {
    let mut message = raw::message(&format!("{}-{task}", text.len()), text);
    message["message"]["taskId"] = json!(task);
    message["configuration"]["returnImmediately"] = json!(true);
    gateway.client.rpc("SendMessage", message).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_copy_does_not_prompt_again_what_the_original_has_prompted() {
    let (data_dir, fake) = (DataDir::plain(), FakeOpenCode::start());
    let gateway = Gateway::start(&data_dir, &fake).await;
    let gate = Gate::new();
    fake.queue(Turn::new().hold(&gate).text("ran", 1).finish("stop"));
    let mut streams = Vec::new();
    for name in ["runs", "answered", "canceled", "resumed"] {
        let mut message = raw::message(name, name);
        message["message"]["contextId"] = json!("one-context");
        let stream = gateway.client.rest_stream("POST", "/message:stream", Some(&message), None).await;
        let mut stream = stream.expect("it is accepted");
        let first = stream.next().await.expect("a stream begins with its task");
        streams.push((task_of(&[first]), stream));
        gate.reached().await;
    }
    let targets = tempfile::tempdir().expect("a directory");
    let target = targets.path().join("copy");
    run_backup(&data_dir, &target).await;
    for _ in 0..3 {
        fake.queue(Turn::new().text("by the original", 1).finish("stop"));
    }
    gate.open();
    let mut tasks = Vec::new();
    for (task, stream) in streams {
        assert_eq!(end_of(&rest(stream).await), "TASK_STATE_COMPLETED");
        tasks.push(task);
    }
    gateway.kill().await;
    assert_eq!(fake.prompts().len(), 4);

    let copy = DataDir::at(&target);
    let gateway = Gateway::start(&copy, &fake).await;
    // The turn that ran is looked up, and its context is free for new messages.
    assert_eq!(text_of(&gateway.log_of(&tasks[0]).await), "ran");
    fake.queue(Turn::new().text("new", 1).finish("stop"));
    let mut new = raw::message("new", "new");
    new["message"]["contextId"] = json!("one-context");
    let new = gateway.client.rest_stream("POST", "/message:stream", Some(&new), None).await;
    assert_eq!(text_of(&rest(new.expect("it is accepted")).await), "new");
    assert_eq!(fake.prompts().len(), 5);
    for task in &tasks[1..] {
        let held = gateway.client.task(task).await;
        assert_eq!(held["status"]["state"], "TASK_STATE_SUBMITTED", "{held:#}");
        let message = &held["status"]["message"];
        assert_eq!(message["metadata"]["longshore"]["held"], "restored", "{held:#}");
        let why = message["parts"][0]["text"].as_str().unwrap_or_default();
        assert!(why.contains("send the message `resume-restored` on this task"), "{why}");
    }
    assert!(gateway.said.contains("3 waiting tasks are held"), "{}", gateway.said);
    // Another message is refused; the decision lets the task begin, with its own text, and is one decision when it is repeated.
    let refused = message_on(&gateway, &tasks[1], "hello?").await.body;
    let text = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(text.contains("resume-restored"), "{refused:#}");
    fake.queue(Turn::new().text("by the copy", 1).finish("stop"));
    for _ in 0..2 {
        message_on(&gateway, &tasks[1], "resume-restored").await.result();
    }
    assert_eq!(text_of(&gateway.log_of(&tasks[1]).await), "by the copy");
    let canceled = gateway.client.rpc("CancelTask", json!({"id": tasks[2]})).await.result().clone();
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED", "{canceled:#}");
    assert_eq!(fake.prompts().len(), 6);

    // What is held stays held across restarts, until the operator decides.
    gateway.kill().await;
    let gateway = Gateway::start(&copy, &fake).await;
    assert!(gateway.said.contains("1 waiting task is held"), "{}", gateway.said);
    gateway.kill().await;
    fake.queue(Turn::new().text("by the operator", 1).finish("stop"));
    let gateway = Gateway::try_start_with(&copy, &fake, &["--resume-restored"]).await.expect("it starts");
    assert_eq!(text_of(&gateway.log_of(&tasks[3]).await), "by the operator");
    let texts: Vec<String> = fake.prompts().iter().map(|prompt| format!("{prompt:?}")).collect();
    assert_eq!(texts.len(), 7);
    assert!(texts[5].contains("answered") && texts[6].contains("resumed"), "{texts:#?}");
}
