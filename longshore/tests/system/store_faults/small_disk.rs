//! A small disk: the write-ahead log does not fill it, new work is refused below a floor of free space, and a start on a full
//! disk recovers with the reserve.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use longshore_engine::Tasks;
use longshore_testkit::chaos::ClientProtocol;
use longshore_testkit::fake_opencode::{FakeOpenCode, Gate, Turn};
use longshore_testkit::raw::Frame;

use crate::store_faults::data_dir::DataDir;
use crate::store_faults::gateway::{Gateway, check_numbers, end_of, rest, task_of, text_of, until_text};
use crate::store_faults::refusals::send;

const MIB: u64 = 1024 * 1024;

/// The disk of the data directory. `None`: the system allows no mount, and then there is nothing to test.
fn disk_of(size: &str) -> Option<DataDir> {
    Some(DataDir::disk_of(size)).filter(DataDir::is_own_disk)
}

fn size_of(data_dir: &DataDir, file: &str) -> u64 {
    std::fs::metadata(data_dir.reachable_path().join(file)).map_or(0, |file| file.len())
}

/// Ten turns at once, with as many small events as fill 12 MB with their write-ahead log several times, but not with their data.
#[tokio::test(flavor = "multi_thread")]
async fn ten_streams_do_not_fill_a_small_disk_with_their_log() {
    let Some(data_dir) = disk_of("12m") else { return };
    let fake = FakeOpenCode::start();
    let gateway = Gateway::start(&data_dir, &fake).await;
    let piece = Duration::from_millis(1);
    fake.answer_others_with(vec![
        Turn::new().paced("text", &"word ".repeat(1200), 1200, piece).finish("stop"),
    ]);
    let (tasks, mut streams) = (Tasks::new(), FuturesUnordered::new());
    for number in 0..10 {
        let stream = gateway.stream(&format!("stream-{number}"), "many words").await;
        streams.push(tasks.spawn("stream", rest(stream)));
    }
    let mut longest = 0;
    while let Some(frames) = loop {
        longest = longest.max(size_of(&data_dir, "longshore.db-wal"));
        if let Ok(ended) = tokio::time::timeout(Duration::from_millis(20), streams.next()).await {
            break ended;
        }
    } {
        let frames = frames.expect("the stream goes on");
        check_numbers(&frames);
        assert_eq!((end_of(&frames), text_of(&frames).len()), ("TASK_STATE_COMPLETED", 5 * 1200));
    }
    assert!(longest < 6 * MIB, "the log took {longest} bytes of a disk of 12 MB");
    gateway.until_store_is("up").await;
    let log = gateway.kill().await;
    assert!(!log.contains("the store failed"), "a write failed: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn below_the_floor_new_work_is_refused_with_one_log_line_and_running_work_ends() {
    let Some(data_dir) = disk_of("24m") else { return };
    let (fake, gate) = (FakeOpenCode::start(), Gate::new());
    let floor = ["--min-free-disk", "4194304"];
    let gateway = Gateway::try_start_with(&data_dir, &fake, &floor).await.expect("there is room");
    fake.queue(Turn::new().text("begun ", 1).hold(&gate).text("and ended", 4).finish("stop"));
    fake.answer_others_with(vec![Turn::new().text("done", 1).finish("stop")]);
    let mut running = gateway.stream("running", "a turn that runs").await;
    let mut frames = until_text(&mut running, "begun").await;
    gate.reached().await;
    data_dir.fill_but(3 * MIB);
    let health = gateway.until_store_is("down").await;
    assert!(
        health["parts"]["store"]["message"].as_str().is_some_and(|text| text.contains("nearly full")),
        "{health}"
    );
    for number in 0..40 {
        for speaker in ClientProtocol::ALL {
            let refused = send(speaker, &gateway, &format!("refused-{number}"), "one more").await;
            refused.expect_err("there is too little space").check("nearly full");
        }
    }
    assert_eq!(fake.prompts().len(), 1, "a refused message was prompted");
    gate.open();
    frames.extend(rest(running).await);
    assert_eq!((text_of(&frames), end_of(&frames)), ("begun and ended".to_owned(), "TASK_STATE_COMPLETED"));
    data_dir.free(None);
    gateway.until_store_is("up").await;
    send(ClientProtocol::ALL[0], &gateway, "refused-0", "one more").await.expect("there is room");
    let metrics = gateway.client.rest("GET", "/metrics", None).await;
    let metrics = metrics.body.to_string();
    assert!(metrics.contains("longshore_refused_total{limit=\\\"min_free_disk\\\"}"), "{metrics}");
    let log = gateway.kill().await;
    let lines: Vec<_> = log.lines().filter(|line| line.contains("request failed")).collect();
    assert!((1..=3).contains(&lines.len()), "{lines:#?}");
    assert!(lines.iter().all(|line| line.contains("refused=")), "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_on_a_full_disk_gives_up_the_reserve_and_makes_it_again_later() {
    let Some(data_dir) = disk_of("12m") else { return };
    let (fake, gate) = (FakeOpenCode::start(), Gate::new());
    let gateway = Gateway::start(&data_dir, &fake).await;
    assert!(size_of(&data_dir, "longshore.db-reserve") > MIB, "there is no reserve");
    fake.queue(Turn::new().text("begun ", 1).hold(&gate).text("and ended", 4).finish("stop"));
    let mut running = gateway.stream("running", "a turn that runs").await;
    let seen: Vec<Frame> = until_text(&mut running, "begun").await;
    gate.reached().await;
    gateway.kill().await;
    data_dir.fill(None);
    let gateway = Gateway::start(&data_dir, &fake).await;
    assert_eq!(size_of(&data_dir, "longshore.db-reserve"), 0, "the reserve was not given up");
    gateway.until_store_is("up").await;
    gate.open();
    let log = gateway.log_of(&task_of(&seen)).await;
    check_numbers(&log);
    assert_eq!((text_of(&log), end_of(&log)), ("begun and ended".to_owned(), "TASK_STATE_COMPLETED"));
    gateway.terminate().await;
    data_dir.free(None);
    let gateway = Gateway::start(&data_dir, &fake).await;
    assert!(size_of(&data_dir, "longshore.db-reserve") > MIB, "the reserve was not made again");
    assert_eq!(gateway.log_of(&task_of(&seen)).await, log);
}
