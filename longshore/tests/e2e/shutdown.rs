//! Which signals and commands end OpenCode, and which keep it running.

use std::time::Duration;

use futures_util::future::join_all;
use longshore_testkit::gateway::{Record, is_alive, until};
use longshore_testkit::raw::Frame;
use rand::RngExt as _;

use crate::client::{Stream, message};
use crate::frames::{id, is_terminal, nth_text, runs_a_tool, state_of, task_id};
use crate::harness::Harness;
use crate::upstream::Agreement;

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_keeps_opencode_running_and_stop_ends_it_with_its_tools() {
    let (mut harness, _model) = Harness::with_own_model().await;
    harness.play("scn:text n=1").await.ended("COMPLETED", "");
    let opencode = harness.opencode.pid();

    let status = harness.gateway.terminate().await;
    assert!(status.success(), "the gateway ended with {status}: {}", harness.gateway.log());
    assert!(is_alive(opencode), "OpenCode ended with the gateway");
    harness.restart().await;
    assert_eq!(harness.opencode.pid(), opencode, "another OpenCode was started");
    harness.play("scn:text n=2").await.ended("COMPLETED", "");

    let (frames, sleep) = run_a_tool(&harness).await;
    let status = harness.gateway.terminate().await;
    assert!(status.success(), "the gateway ended with {status}: {}", harness.gateway.log());
    let sleepers = sleep.processes();
    assert!(!sleepers.is_empty() && is_alive(opencode), "SIGTERM ended OpenCode or its tool");

    let stopped = harness.gateway.stop_opencode();
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(!is_alive(opencode), "`longshore stop` left OpenCode running");
    for pid in sleepers {
        assert!(!is_alive(pid), "`longshore stop` left a tool running (process {pid})");
    }

    // The turn fails with the true reason: its OpenCode is gone.
    harness.restart().await;
    let last = frames.last().expect("frames came before the end");
    let rest = harness.client.resume(&task_id(last), id(last)).await.rest().await;
    assert!(rest.last().is_some_and(is_terminal), "{rest:#?}");
    let task = harness.client.get(&task_id(last)).await;
    assert_eq!(state_of(&task), "FAILED", "{task:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_sigterm_during_turns_leaves_them_to_the_next_start() {
    let (mut harness, _model) = Harness::with_own_model().await;
    let opencode = harness.opencode.pid();
    harness.play("scn:text n=1").await.ended("COMPLETED", "");

    let prompts = [120, 125, 130, 135].map(|pieces| (pieces, format!("scn:text n={pieces} delay=40 size=9")));
    let begun = prompts.iter().map(async |(_, prompt)| {
        let mut stream = harness.client.stream(&message(prompt)).await;
        let frames = stream.until("ten texts", nth_text(10)).await;
        (stream, frames)
    });
    let begun = join_all(begun).await;
    let (streams, mut seen): (Vec<_>, Vec<_>) = begun.into_iter().unzip();
    let (status, rests) =
        tokio::join!(harness.gateway.terminate(), join_all(streams.into_iter().map(Stream::rest)));
    assert!(status.success(), "the gateway ended with {status}: {}", harness.gateway.log());
    assert!(is_alive(opencode), "OpenCode ended with the gateway");
    for (frames, rest) in seen.iter_mut().zip(rests) {
        frames.extend(rest);
        let last = frames.last().expect("frames came before the end");
        assert!(!is_terminal(last), "the turn was over before the end of the gateway: {last:#?}");
    }

    harness.restart().await;
    assert_eq!(harness.opencode.pid(), opencode, "another OpenCode was started");
    for ((pieces, prompt), mut frames) in prompts.into_iter().zip(seen) {
        let last = frames.last().expect("frames came before the end");
        frames.extend(harness.client.resume(&task_id(last), id(last)).await.rest().await);
        let played = harness.check(&prompt, frames, Agreement::Whole).await;
        played.ended("COMPLETED", "");
        assert_eq!(played.text().len(), pieces * 9, "the text is not whole");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_ctrl_c_ends_opencode_with_its_tools() {
    let (mut harness, _model) = Harness::with_own_model().await;
    let opencode = harness.opencode.pid();
    let (frames, sleep) = run_a_tool(&harness).await;
    let sleepers = sleep.processes();

    let status = harness.gateway.interrupt().await;
    assert!(status.success(), "the gateway ended with {status}: {}", harness.gateway.log());
    assert!(!is_alive(opencode), "Ctrl-C left OpenCode running");
    for pid in sleepers {
        assert!(!is_alive(pid), "Ctrl-C left a tool running (process {pid})");
    }
    assert_eq!(sleep.processes(), [0; 0], "Ctrl-C left a tool running");
    assert!(
        Record::read(&harness.gateway.data_dir()).is_none(),
        "the next start would look for that OpenCode"
    );

    // The next gateway starts another OpenCode, and fails the turn.
    harness.restart().await;
    assert_ne!(harness.opencode.pid(), opencode);
    let last = frames.last().expect("frames came before the end");
    let rest = harness.client.resume(&task_id(last), id(last)).await.rest().await;
    assert!(rest.last().is_some_and(is_terminal), "{rest:#?}");
    harness.play("scn:text n=2").await.ended("COMPLETED", "");
}

/// Starts a turn whose tool runs until it is killed, and waits for its process.
async fn run_a_tool(harness: &Harness) -> (Vec<Frame>, Sleep) {
    let sleep = Sleep::new();
    let prompt = format!("scn:bash cmd=\"{}\" scn:text n=1", sleep.command);
    let mut stream = harness.client.stream(&message(&prompt)).await;
    let frames = stream.until("the command runs", runs_a_tool).await;
    until(Duration::from_secs(20), "the command is a process", || !sleep.processes().is_empty()).await;
    (frames, sleep)
}

/// A command whose processes are recognizable.
struct Sleep {
    command: String,
}

impl Sleep {
    /// A sleep longer than any test, with a unique duration.
    fn new() -> Self {
        let chance: u64 = rand::rng().random_range(1_000_000_000..10_000_000_000);
        Self { command: format!("sleep 311.{chance}") }
    }

    /// The processes of the command.
    fn processes(&self) -> Vec<u32> {
        let wanted: Vec<u8> = self.command.replace(' ', "\0").into_bytes();
        let processes = std::fs::read_dir("/proc").expect("Linux has /proc");
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.strip_suffix(b"\0").is_some_and(|line| line.ends_with(&wanted)) && is_alive(*pid)
        })
        .collect()
    }
}
