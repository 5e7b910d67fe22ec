//! A stream that is cut again and again and resumed equals the stream that was never cut.

use longshore_testkit::raw::Frame;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinSet;

use crate::client::{Binding, Client, Stream, message};
use crate::frames::{id, is_terminal, nth_text, task_id};
use crate::harness::Harness;
use crate::upstream::Agreement;

/// The first connections are cut after fewer bytes than this: from a cut in the first line to an event or two.
const REACH: usize = 700;

/// How many more bytes a connection may read after one that brought no whole event.
const FURTHER: usize = 200;

/// Other readers of the same task at the same time.
const READERS: usize = 13;
/// Readers that start to read after the task has ended.
const LATE: usize = 2;
/// Readers that never read.
const STALLED: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn long_a_stream_cut_at_200_points_is_the_uncut_stream() {
    let harness = Harness::demo().await;
    harness.play("scn:text n=1").await.ended("COMPLETED", "");
    // The turn runs for some seconds, so that most cuts fall into it. On a busy machine one event holds several chunks.
    a_cut_stream_is_the_uncut_stream(&harness, "scn:text n=1000 delay=6 size=10", 200).await;
}

/// Cuts the stream of a turn this often during the turn, and this often after its end.
pub(crate) async fn a_cut_stream_is_the_uncut_stream(harness: &Harness, prompt: &str, cuts: usize) {
    let mut uncut = harness.client.stream(&message(prompt)).await;
    let mut frames = uncut.until("the first text", nth_text(1)).await;
    let task = task_id(&frames[0]);
    let others = OtherReaders::new(&harness.client, &task).await;
    let cut = tokio::join!(cut_and_resume(&harness.client, &task, 1, cuts), async {
        frames.extend(uncut.rest().await);
    })
    .0;
    assert_same("cut during the run", &cut, &frames);
    others.compare("during the run", &frames).await;
    harness.check(prompt, frames.clone(), Agreement::Whole).await.ended("COMPLETED", "");

    let others = OtherReaders::new(&harness.client, &task).await;
    assert_same("cut after the end", &cut_and_resume(&harness.client, &task, 2, cuts).await, &frames);
    others.compare("after the end", &frames).await;

    // A cursor beyond the end of the log gets the current task, marked as a gap.
    let beyond = harness.client.resume(&task, 1_000_000).await.rest().await;
    let [gap] = beyond.as_slice() else { panic!("expected one frame, got {beyond:#?}") };
    assert_eq!(id(gap), frames.last().map(id).unwrap_or_default(), "{gap:#?}");
    assert_eq!(
        gap.json.pointer("/task/metadata/longshore/gap/requested"),
        Some(&1_000_000.into()),
        "{gap:#?}"
    );
}

/// Reads the whole log over connections that are each cut after a random number of bytes. A short log is read repeatedly, with
/// the same result, until it was cut often enough.
async fn cut_and_resume(client: &Client, task: &str, seed: u64, at_least: usize) -> Vec<Frame> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut frames, mut cuts) = read_in_pieces(client, task, &mut random).await;
    while cuts < at_least {
        let (again, more) = read_in_pieces(client, task, &mut random).await;
        assert_same("cut and read again", &again, &frames);
        assert!(more > 0, "the log is so short that no cut falls into it");
        (frames, cuts) = (again, cuts + more);
    }
    frames
}

/// Reads the log once. Returns the frames and how often the stream was cut.
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

/// Other readers of a task: some read at once, some late, some never.
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
                // Both bindings must give the same frames.
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
