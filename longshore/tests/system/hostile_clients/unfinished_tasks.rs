//! One principal fills its unfinished tasks with the largest messages that its limits allow.

use std::time::{Duration, Instant};

use longshore_testkit::chaos::measured::report;
use longshore_testkit::fake_opencode::{FakeOpenCode, Gate, Turn};
use longshore_testkit::gateway::{TOKEN, resident_kilobytes};
use serde_json::{Value, json};

use super::{Latencies, Run, address_of, call, call_within, sample};

const OTHER: &str =
    r#"[{"scheme": "bearer", "token": "other-token-0123456789abcdef", "principal": "other"}]"#;
const OTHER_TOKEN: &str = "other-token-0123456789abcdef";

/// The default of `limits.unfinished_per_principal`. Fewer while the test itself is developed.
fn tasks() -> usize {
    std::env::var("LONGSHORE_CAMPAIGN_TASKS").ok().and_then(|tasks| tasks.parse().ok()).unwrap_or(2_000)
}

/// A send with as much metadata as allowed, and text for the rest of its share of the bytes. `NUMBER` makes it unique.
fn send(bytes: usize) -> String {
    let metadata = "m".repeat(255 * 1024);
    let text = "t".repeat(bytes - metadata.len() - 100);
    let parts = json!([{"text": text}]);
    let message = json!({
        "messageId": "large-NUMBER",
        "role": "ROLE_USER",
        "parts": parts,
        "metadata": {"large": metadata},
    });
    json!({"message": message, "configuration": {"returnImmediately": true}}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn campaign_two_thousand_maximal_unfinished_tasks_wait_on_disk() {
    /// The default of `limits.unfinished_bytes_per_principal` is a gigabyte. The tasks that wait keep next to nothing of it.
    const ALLOWED_KILOBYTES: u64 = 256 * 1024;
    let (tasks, fake, gate) = (tasks(), FakeOpenCode::start(), Gate::new());
    fake.answer_others_with(vec![Turn::new().hold(&gate).text("Done.", 1)]);
    // The turns that run wait for as long as the test takes.
    let flags = ["--max-turns", "4", "--turn-silence", "0", "--turn-timeout", "0"];
    let mut run =
        Run::start_with(fake, &flags, |setup| setup.env("A2A_STATIC_AUTH_CREDENTIALS", OTHER)).await;
    let bytes = 1024 * 1024 * 1024 / 2_000;
    let send = send(bytes);
    let message = |number: usize| send.replace("NUMBER", &number.to_string());
    let (mut other, mut peak, begun) = (Latencies::default(), 0, Instant::now());
    for number in 0..tasks {
        let (answer, _) = call(run.address, "POST", "/message:send", Some(TOKEN), &message(number)).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{number}: {}", &answer[..answer.len().min(2_000)]);
        if number % 20 == 0 {
            other.measure_as(run.address, OTHER_TOKEN).await;
            peak = run.memory().max(peak);
        }
    }
    let (sending, full) = (begun.elapsed(), run.memory());
    // One more is refused: by the number of tasks, or by their bytes.
    if tasks == 2_000 {
        let refused = call(run.address, "POST", "/message:send", Some(TOKEN), &message(tasks)).await.0;
        assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("unfinished_"), "{refused}");
    }
    let disk: u64 = ["longshore.db", "longshore.db-wal"]
        .iter()
        .filter_map(|name| std::fs::metadata(run.gateway.data_dir().join(name)).ok())
        .map(|file| file.len())
        .sum();
    run.gateway.kill();
    let begun = Instant::now();
    run.gateway.restart().await;
    let restart = begun.elapsed();
    run.address = address_of(&run.gateway);
    let unfinished = sample(&run.metrics().await, "longshore_tasks_unfinished");
    assert_eq!(unfinished, tasks as u64, "no task is lost");
    let after = resident_kilobytes(run.gateway.pid());
    // The first list waits for the check of the store, which reads the whole file.
    let check = Duration::from_mins(5);
    let (_, checked) = call_within(check, run.address, "GET", "/tasks", Some(OTHER_TOKEN), "").await;
    let mut later = Latencies::default();
    for _ in 0..20 {
        later.measure_as(run.address, OTHER_TOKEN).await;
    }
    report(
        format!("{tasks} unfinished tasks of {bytes} bytes each, sent by one caller"),
        format!(
            "memory {} MB before, at most {} MB while they came, {} MB with all, {} MB after a restart; disk {} MB; sent in {:.1} s; \
             restart after SIGKILL {:.1} s, and the check of the store {:.1} s; other callers meanwhile: {other}after the restart: {later}",
            run.before / 1024,
            peak / 1024,
            full / 1024,
            after / 1024,
            disk / 1024 / 1024,
            sending.as_secs_f64(),
            restart.as_secs_f64(),
            checked.as_secs_f64(),
        ),
    )
    .expect("a row can be written");
    for (when, memory) in [("while they came", peak), ("with all", full), ("after a restart", after)] {
        let grown = memory.saturating_sub(run.before);
        assert!(grown < ALLOWED_KILOBYTES, "{when} the memory had grown by {grown} KB");
    }
    // They begin when there is room, and are whole.
    gate.open();
    let list = get(&run, "/tasks?pageSize=1").await;
    let path = format!("/tasks/{}", list["tasks"][0]["id"].as_str().unwrap_or_default());
    let task = get(&run, &path).await;
    let metadata = task["history"][0]["metadata"]["large"].as_str().unwrap_or_default();
    assert_eq!(metadata.len(), 255 * 1024, "a task is whole");
}

async fn get(run: &Run, path: &str) -> Value {
    let (answer, _) = call(run.address, "GET", path, Some(TOKEN), "").await;
    let (_, body) = answer.split_once("\r\n\r\n").expect("a response has a body");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}"))
}
