//! A stream that is cut again and again and resumed is the stream that was never cut.

use longshore_testkit::raw::{self, Frame};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinSet;

use crate::client::{Binding, Client, Stream, message};
use crate::frames::{id, is_terminal, nth_text, task_id};
use crate::harness::Harness;
use crate::upstream::Agreement;

/// How often each stream is cut at least.
const CUTS: usize = 200;

/// The first connections are cut after fewer bytes than this: from a cut in the first line to an event or two.
const REACH: usize = 700;

/// How much further a connection may go after one that brought no whole event.
const FURTHER: usize = 200;

/// Others who read the same task meanwhile.
const READERS: usize = 13;
/// Of these, some begin to read when the task is over.
const LATE: usize = 2;
/// And some never do.
const STALLED: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_cut_at_200_points_is_the_uncut_stream() {
    let harness = Harness::demo().await;
    harness.play("scn:text n=1").await.ended("COMPLETED", "");

    // Alive for some seconds, so that most cuts fall into the run. On a busy machine chunks come together in one event.
    let prompt = "scn:text n=1000 delay=6 size=10";
    let mut uncut = harness.client.stream(&message(prompt)).await;
    let mut frames = uncut.until("the first text", nth_text(1)).await;
    let task = task_id(&frames[0]);
    let others = OtherReaders::new(&harness.client, &task).await;
    let cut =
        tokio::join!(cut_and_resume(&harness.client, &task, 1), async { frames.extend(uncut.rest().await) })
            .0;
    assert_same("cut during the run", &cut, &frames);
    others.compare("during the run", &frames).await;
    harness.check(prompt, frames.clone(), Agreement::Whole).await.ended("COMPLETED", "");

    // The same when the task is over.
    let others = OtherReaders::new(&harness.client, &task).await;
    assert_same("cut after the end", &cut_and_resume(&harness.client, &task, 2).await, &frames);
    others.compare("after the end", &frames).await;

    // A cursor that the log does not have gets the task as it is, marked, and never silence.
    let beyond = harness.client.resume(&task, 1_000_000).await.rest().await;
    let [gap] = beyond.as_slice() else { panic!("expected one frame, got {beyond:#?}") };
    assert_eq!(id(gap), frames.len() as u64, "{gap:#?}");
    assert_eq!(
        gap.json.pointer("/task/metadata/longshore/gap/requested"),
        Some(&1_000_000.into()),
        "{gap:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_changes_nothing() {
    let harness = Harness::demo().await;
    let prompt = "scn:text n=60 delay=20";
    let mut stream = harness.client.stream(&message(prompt)).await;
    let seen = stream.until("five texts", nth_text(5)).await;
    drop(stream);
    let mut watcher = harness.client.subscribe(&task_id(&seen[0])).await;
    let snapshot = watcher.next().await.expect("a subscription begins with the task");
    assert!(snapshot.json.get("task").is_some(), "{snapshot:#?}");
    assert!(id(&snapshot) >= seen.len() as u64, "the task is older than what was seen: {snapshot:#?}");
    let mut rest = watcher.rest().await;
    assert!(rest.last().is_some_and(is_terminal), "{rest:#?}");

    // The snapshot and what follows it fold into the same task as the whole log.
    rest.insert(0, snapshot);
    let from_snapshot = raw::fold(&rest);
    let whole = harness.client.resume(&task_id(&seen[0]), 0).await.rest().await;
    assert_same("the log that was left", &whole[..seen.len()], &seen);
    let played = harness.check(prompt, whole, Agreement::Whole).await;
    played.ended("COMPLETED", "");
    assert_eq!(from_snapshot, played.task, "the snapshot and its tail fold into another task");
    assert_eq!(played.text().len(), 60 * 8, "the text is not whole");
}

/// Reads the whole log over connections that are each cut after a random number of bytes.
///
/// A log of few events is read again, with the same result, until it was cut often enough.
async fn cut_and_resume(client: &Client, task: &str, seed: u64) -> Vec<Frame> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut frames, mut cuts) = read_in_pieces(client, task, &mut random).await;
    while cuts < CUTS {
        let (again, more) = read_in_pieces(client, task, &mut random).await;
        assert_same("cut and read again", &again, &frames);
        assert!(more > 0, "the log is so short that no cut falls into it");
        (frames, cuts) = (again, cuts + more);
    }
    frames
}

/// The log once, and how often the stream was cut.
async fn read_in_pieces(client: &Client, task: &str, random: &mut StdRng) -> (Vec<Frame>, usize) {
    let mut frames: Vec<Frame> = Vec::new();
    let (mut cuts, mut reach) = (0, REACH);
    loop {
        let after = frames.last().map_or(0, id);
        let stream = client.resume(task, after).await;
        let piece = stream.cut_after(random.random_range(1..reach)).await;
        // An event may be longer than any cut so far.
        reach = if piece.is_empty() { reach + FURTHER } else { REACH };
        frames.extend(piece);
        if frames.last().is_some_and(is_terminal) {
            return (frames, cuts);
        }
        cuts += 1;
    }
}

/// Other readers of a task: some that read, some that read late, some that never do.
struct OtherReaders {
    readers: JoinSet<Vec<Frame>>,
    late: Vec<Stream>,
    _stalled: Vec<tokio::net::TcpStream>,
}

impl OtherReaders {
    async fn new(client: &Client, task: &str) -> Self {
        let mut stalled = Vec::new();
        for _ in 0..STALLED {
            stalled.push(client.stall(task).await);
        }
        let mut late = Vec::new();
        for _ in 0..LATE {
            late.push(client.resume(task, 0).await);
        }
        let mut readers = JoinSet::new();
        for reader in 0..READERS {
            let (client, task) = (client.clone(), task.to_owned());
            readers.spawn(async move {
                // The two bindings say the same.
                let binding = if reader % 2 == 0 { Binding::JsonRpc } else { Binding::Rest };
                client.over(binding).resume(&task, 0).await.rest().await
            });
        }
        Self { readers, late, _stalled: stalled }
    }

    /// Every reader has exactly the uncut stream.
    async fn compare(mut self, when: &str, expected: &[Frame]) {
        while let Some(frames) = self.readers.join_next().await {
            assert_same(
                &format!("one of {READERS} readers {when}"),
                &frames.expect("a reader reads to the end"),
                expected,
            );
        }
        for stream in self.late {
            assert_same(&format!("a late reader {when}"), &stream.rest().await, expected);
        }
    }
}

/// The same ids and the same bytes.
fn assert_same(what: &str, found: &[Frame], expected: &[Frame]) {
    let differs = found.iter().zip(expected).find(|(found, expected)| found != expected);
    if let Some((found, expected)) = differs {
        panic!("{what}: expected {expected:#?}\nbut got {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{what}: the number of events");
}
