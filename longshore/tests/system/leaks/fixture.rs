//! The tasks that clients request: tasks that run for a whole round, and one long task that has ended.

use std::fmt::Debug;
use std::future::ready;
use std::time::Duration;

use longshore_testkit::chaos::{ClientProtocol, ClientRequest};
use longshore_testkit::fake_opencode::{self, Decision, FakeOpenCode, Tool, Turn};
use longshore_testkit::gateway::until;
use serde_json::Value;
use tokio::time::Instant;

use crate::leaks::connection::{PATIENCE, Target};

/// A prompt whose turn runs until it is canceled.
const ENDLESS: &str = "talk on";
/// A prompt with a long answer.
const LONG: &str = "say it all";
/// How many requests the fake logs. It receives thousands, and no test reads them.
const KEPT_REQUESTS: usize = 10;
/// The states of a task that has not ended.
const UNFINISHED: [&str; 3] = ["SUBMITTED", "WORKING", "INPUT_REQUIRED"];

#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    pub(crate) target: Target,
    /// A running task for each of [`ClientProtocol::ALL`], with the id of its message.
    pub(crate) live: Vec<(String, String)>,
    /// An ended task with a log of some hundred kilobytes.
    pub(crate) long: String,
}

/// A fake OpenCode for thousands of turns.
pub(crate) fn fake() -> FakeOpenCode {
    let setup = fake_opencode::Setup { keep_log: KEPT_REQUESTS, ..fake_opencode::Setup::default() };
    let fake = FakeOpenCode::start_with(setup);
    fake.answering(turn);
    fake
}

fn turn(words: &str) -> Turn {
    let pace = |milliseconds| Duration::from_millis(milliseconds);
    if words.starts_with(ENDLESS) {
        endless()
    } else if words.starts_with(LONG) {
        Turn::new().text(&"all there is to say ".repeat(3_000), 600)
    } else {
        let turn = Turn::new().paced("reasoning", "Let me see.", 2, pace(1));
        turn.tool(Tool::bash("ls", "README.md\n")).paced("text", "This is what there is.", 4, pace(2))
    }
}

/// In short blocks: OpenCode stores the text of a block only at its end, so a reader that missed a part gets it then.
fn endless() -> Turn {
    let blocks = (0..20).fold(Turn::new(), |turn, _| {
        turn.paced("text", "and on it goes and on ", 4, Duration::from_millis(20))
    });
    blocks.then(Decision::new(|_| Box::pin(ready(endless()))))
}

impl Fixture {
    pub(crate) async fn set_up(target: &Target, round: u64) -> Self {
        let long = create_task(target, ClientProtocol::ALL[0], &format!("long-{round}"), LONG).await;
        let mut live = Vec::new();
        for (speaker, index) in ClientProtocol::ALL.into_iter().zip(0..) {
            let message = format!("live-{round}-{index}");
            live.push((create_task(target, speaker, &message, ENDLESS).await, message));
        }
        let fixture = Self { target: target.clone(), live, long };
        fixture.until_long_is_over().await;
        fixture
    }

    /// The running task of a client, with the id of its message. Clients whose messages have the same form share it.
    pub(crate) fn live_of(&self, speaker: ClientProtocol) -> &(String, String) {
        let is_like =
            |other: &&ClientProtocol| (other.version, other.dialect) == (speaker.version, speaker.dialect);
        let index = ClientProtocol::ALL.iter().position(|other| is_like(&other));
        &self.live[index.expect("HTTP has each form")]
    }

    /// The message of a running task. Sending it again returns the same task.
    pub(crate) fn message_again(&self, speaker: ClientProtocol) -> Value {
        speaker.message(&self.live_of(speaker).1, ENDLESS, None, None)
    }

    async fn until_long_is_over(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self
            .target
            .call(ClientProtocol::ALL[0], &ClientProtocol::ALL[0].get(&self.long))
            .await
            .contains("TASK_STATE_COMPLETED")
        {
            assert!(Instant::now() < deadline, "a turn does not end");
        }
    }

    /// Cancels the running tasks, and waits until every task has ended.
    pub(crate) async fn tear_down(self, fake: &FakeOpenCode) {
        for (speaker, (task, _)) in ClientProtocol::ALL.into_iter().zip(&self.live) {
            let answer = self.target.call(speaker, &speaker.cancel(task)).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{}: {answer}", speaker.name());
        }
        let deadline = Instant::now() + PATIENCE;
        while let unfinished @ 1.. = unfinished_count(&self.target).await {
            assert!(Instant::now() < deadline, "{unfinished} tasks do not end");
        }
        fake.wait_until_idle().await;
    }
}

/// Sends a message, and returns the id of its task.
async fn create_task(target: &Target, speaker: ClientProtocol, message: &str, words: &str) -> String {
    let answer = target.call(speaker, &speaker.send(&speaker.message(message, words, None, None))).await;
    let body: Value = serde_json::from_str(body(&answer)).unwrap_or_else(|_| panic!("no JSON: {answer}"));
    let task = ["/result/task/id", "/result/id", "/task/id", "/id"]
        .into_iter()
        .find_map(|at| body.pointer(at)?.as_str());
    task.unwrap_or_else(|| panic!("no task: {answer}")).to_owned()
}

/// How many tasks have not ended.
pub(crate) async fn unfinished_count(target: &Target) -> u64 {
    let mut found = 0;
    for state in UNFINISHED {
        found += task_count(target, &format!("&status=TASK_STATE_{state}")).await;
    }
    found
}

/// How many tasks there are.
pub(crate) async fn task_count(target: &Target, filter: &str) -> u64 {
    let path = format!("/tasks?pageSize=1{filter}");
    let answer = target.call(ClientProtocol::ALL[1], &ClientRequest { verb: "GET", path, body: None }).await;
    let body: Value = serde_json::from_str(body(&answer)).unwrap_or_else(|_| panic!("no JSON: {answer}"));
    body["totalSize"].as_u64().unwrap_or_else(|| panic!("no page: {answer}"))
}

/// How many streams of sent messages the gateway says are open.
pub(crate) async fn open_streams(target: &Target) -> String {
    let request = ClientRequest { verb: "GET", path: "/metrics".to_owned(), body: None };
    let answer = target.call(ClientProtocol::ALL[1], &request).await;
    let count = answer.lines().find_map(|line| line.strip_prefix("a2a_stream_active "));
    count.unwrap_or_else(|| panic!("no metrics: {answer}")).to_owned()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}")).1
}

/// Waits until `found` returns the expected value.
pub(crate) async fn wait_until_equal<T: PartialEq + Debug>(
    what: &str,
    expected: T,
    mut found: impl FnMut() -> T,
) {
    let deadline = Instant::now() + PATIENCE;
    until(PATIENCE * 2, what, || {
        let found = found();
        assert!(Instant::now() < deadline, "{what}: expected {expected:?}, found {found:?}");
        found == expected
    })
    .await;
}
