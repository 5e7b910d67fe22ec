//! The disk is full: new messages are refused with a reason, running turns wait, acknowledged data stays, and
//! everything continues when there is room.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore_testkit::chaos::ClientProtocol;
use longshore_testkit::fake_opencode::{FakeOpenCode, Gate, Turn};
use longshore_testkit::raw::{self, Frame, Frames};

use crate::store_faults::data_dir::DataDir;
use crate::store_faults::gateway::{
    Gateway, PATIENCE, check_numbers, end_of, rest, task_of, text_of, until_text,
};
use crate::store_faults::refusals::send;

const HEARD: &str = "heard before the disk was full. ";
const LATER: &str = "said while nothing could be written. ";

/// So much text that it does not fit into what the gateway has already.
const MUCH: usize = 10_000;

/// A log of this size is emptied when the disk is full.
const LONG_LOG: u64 = 512 * 1024;

/// Bytes on a loopback socket arrive long before that.
const MOMENT: Duration = Duration::from_millis(250);

/// A gateway whose disk is full during a turn, and everything that it has acknowledged.
struct FullDisk {
    fake: FakeOpenCode,
    gateway: Gateway,
    words: &'static str,
    is_own_disk: bool,
    /// A task that ended before, and its log.
    over: (String, Vec<Frame>),
    /// The running task, the frames that arrived so far, and its stream.
    running: String,
    seen: Vec<Frame>,
    stream: Frames,
    gate: Gate,
}

impl FullDisk {
    async fn on(data_dir: &DataDir) -> Self {
        let fake = FakeOpenCode::start();
        let gateway = Gateway::start(data_dir, &fake).await;
        fake.queue(Turn::new().text("done", 2).finish("stop"));
        let over = rest(gateway.stream("over", "a turn that ends").await).await;
        assert_eq!(end_of(&over), "TASK_STATE_COMPLETED");

        let gate = Gate::new();
        fake.queue(Turn::new().text(HEARD, 4).hold(&gate).text(&LATER.repeat(MUCH), 60).finish("stop"));
        fake.answer_others_with(vec![Turn::new().text("done", 1).finish("stop")]);
        let mut stream = gateway.stream("running", "a turn that runs").await;
        let seen = until_text(&mut stream, HEARD.trim_end()).await;
        gate.reached().await;
        data_dir.keep_full(gateway.pid());
        if data_dir.is_own_disk() {
            // The gateway empties a long log, once. Each check of its health writes.
            let log = data_dir.reachable_path().join("longshore.db-wal");
            let is_long = || std::fs::metadata(&log).is_ok_and(|log| log.len() >= LONG_LOG);
            let deadline = tokio::time::Instant::now() + PATIENCE;
            while is_long() {
                gateway.client.rest("GET", "/health", None).await;
                assert!(tokio::time::Instant::now() < deadline, "the log stays long");
            }
        }
        let words = if data_dir.is_own_disk() { "full" } else { "cannot be written or read" };
        Self {
            fake,
            words,
            is_own_disk: data_dir.is_own_disk(),
            over: (task_of(&over), over),
            running: task_of(&seen),
            seen,
            stream,
            gate,
            gateway,
        }
    }

    /// New messages are refused in every version and binding and leave no trace. Existing tasks can be read.
    async fn check_refusals(&mut self) {
        for (index, speaker) in ClientProtocol::ALL.into_iter().enumerate() {
            let refused = send(speaker, &self.gateway, &format!("refused-{index}"), &large()).await;
            refused.expect_err("nothing more fits").check(self.words);
            self.gateway.check_alive();
        }
        if !self.is_own_disk {
            let health = self.gateway.until_store_is("down").await;
            assert_eq!(
                (&health["status"], &health["live"]),
                (&"unavailable".into(), &true.into()),
                "{health}"
            );
        }
        assert_eq!(self.gateway.listed().await, self.acknowledged());
        assert_eq!(self.gateway.log_of(&self.over.0).await, self.over.1);
    }

    /// OpenCode finishes the turn, and no client receives the rest, because it is not durable.
    async fn check_that_nothing_is_sent(&mut self) {
        self.gate.open();
        self.fake.wait_until_idle().await;
        // By now a faulty gateway would have sent something.
        tokio::time::sleep(MOMENT).await;
        let task = raw::plain_text(&self.gateway.client.task(&self.running).await);
        assert_eq!(task["status"]["state"], "TASK_STATE_WORKING");
        let text = task["artifacts"][0]["parts"][0]["text"].as_str().unwrap_or_default();
        self.check_part(text, "shown");
        // An open stream has received no more either; bytes in flight arrive within a moment.
        while let Ok(Some(frame)) = tokio::time::timeout(MOMENT, self.stream.next()).await {
            self.seen.push(frame);
        }
        self.check_part(&text_of(&self.seen), "streamed");
        self.gateway.check_alive();
    }

    /// A file that may not grow takes nothing more. On a full disk a little fits into what the gateway has already.
    fn check_part(&self, text: &str, how: &str) {
        let whole = whole();
        let is_part = if self.is_own_disk {
            whole.starts_with(text.trim_end()) && text.len() < whole.len()
        } else {
            text.trim_end() == HEARD.trim_end()
        };
        assert!(is_part, "text that is not durable was {how}: {text}");
    }

    fn acknowledged(&self) -> BTreeSet<String> {
        [self.over.0.clone(), self.running.clone()].into()
    }
}

/// A message that needs more space than a full disk has.
fn large() -> String {
    "one more ".repeat(20_000)
}

/// The whole text of the running turn.
fn whole() -> String {
    format!("{HEARD}{}", LATER.repeat(MUCH))
}

async fn continues_when_there_is_room(data_dir: &DataDir) {
    let mut full = FullDisk::on(data_dir).await;
    full.check_refusals().await;
    full.check_that_nothing_is_sent().await;

    data_dir.free(Some(full.gateway.pid()));
    let acknowledged = full.acknowledged();
    let FullDisk { fake, gateway, over, running, mut seen, stream, .. } = full;
    seen.extend(rest(stream).await);
    check_numbers(&seen);
    assert_eq!((text_of(&seen), end_of(&seen)), (whole(), "TASK_STATE_COMPLETED"));
    gateway.until_store_is("up").await;

    // The refused messages are sent again, and each becomes one task and one prompt.
    let mut tasks = acknowledged;
    for (index, speaker) in ClientProtocol::ALL.into_iter().enumerate() {
        let task = send(speaker, &gateway, &format!("refused-{index}"), &large()).await;
        tasks.insert(task.unwrap_or_else(|refusal| panic!("there is room: {refusal:?}")));
    }
    assert_eq!(tasks.len(), 2 + ClientProtocol::ALL.len());
    let mut logs = vec![over, (running, seen)];
    for task in &tasks {
        if logs.iter().all(|(known, _)| known != task) {
            logs.push((task.clone(), gateway.log_of(task).await));
        }
    }
    assert_eq!(fake.prompts().len(), tasks.len());

    gateway.kill().await;
    let gateway = Gateway::start(data_dir, &fake).await;
    assert_eq!(gateway.listed().await, tasks);
    for (task, log) in logs {
        assert_eq!(gateway.log_of(&task).await, log, "another log after a crash");
    }
}

async fn crash_loses_nothing(data_dir: &DataDir) {
    let mut full = FullDisk::on(data_dir).await;
    full.check_refusals().await;
    full.check_that_nothing_is_sent().await;
    let tasks = full.acknowledged();
    let FullDisk { fake, gateway, over, running, seen, .. } = full;
    gateway.kill().await;

    // The gateway starts on the full disk, and shows its tasks.
    let mut gateway = Gateway::start(data_dir, &fake).await;
    data_dir.free(data_dir.is_own_disk().then_some(gateway.pid()));
    assert_eq!(gateway.listed().await, tasks);
    assert_eq!(gateway.log_of(&over.0).await, over.1);
    let log = gateway.log_of(&running).await;
    check_numbers(&log);
    assert_eq!(log[..seen.len()], seen, "what a client had seen is gone");
    assert_eq!((text_of(&log), end_of(&log)), (whole(), "TASK_STATE_COMPLETED"));
    assert_eq!(fake.prompts().len(), 2, "a turn was prompted twice");
    gateway.check_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_continues_when_a_full_disk_has_room_again() {
    continues_when_there_is_room(&DataDir::small_disk()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_gateway_continues_when_a_file_size_limit_is_lifted() {
    continues_when_there_is_room(&DataDir::plain()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_crash_while_the_disk_is_full_loses_nothing() {
    crash_loses_nothing(&DataDir::small_disk()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_crash_under_a_file_size_limit_loses_nothing() {
    crash_loses_nothing(&DataDir::plain()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_on_a_full_disk_fails_and_leaves_a_usable_directory() {
    first_start_fails(&DataDir::small_disk()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_first_start_under_a_file_size_limit_fails_and_leaves_a_usable_directory() {
    first_start_fails(&DataDir::plain()).await;
}

async fn first_start_fails(data_dir: &DataDir) {
    let fake = FakeOpenCode::start();
    data_dir.fill(None);
    let Err(ended) = Gateway::try_start(data_dir, &fake).await else { panic!("it started without a store") };
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: cannot "), "{}", ended.stderr);
    assert!(last.contains(data_dir.path().to_str().expect("UTF-8")), "it does not say where: {last}");
    assert!(last.contains("free space"), "it does not say what to do: {last}");
    data_dir.free(None);
    let gateway = Gateway::start(data_dir, &fake).await;
    gateway.until_store_is("up").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_restart_on_a_full_disk_reports_the_full_disk() {
    later_start_fails(&DataDir::small_disk()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_start_under_a_file_size_limit_after_an_orderly_end_says_so() {
    later_start_fails(&DataDir::plain()).await;
}

async fn later_start_fails(data_dir: &DataDir) {
    let fake = FakeOpenCode::start();
    let gateway = Gateway::start(data_dir, &fake).await;
    fake.queue(Turn::new().text("done", 2).finish("stop"));
    let log = rest(gateway.stream("over", "a turn that ends").await).await;
    gateway.terminate().await;

    data_dir.remove_reserve();
    data_dir.fill(None);
    let Err(ended) = Gateway::try_start(data_dir, &fake).await else { panic!("it started without room") };
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: cannot open the store "), "{}", ended.stderr);
    assert!(last.contains("full"), "it does not say why: {last}");
    data_dir.free(None);
    let gateway = Gateway::start(data_dir, &fake).await;
    assert_eq!(gateway.log_of(&task_of(&log)).await, log);
}
