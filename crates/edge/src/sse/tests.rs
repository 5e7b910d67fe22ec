use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use longshore_model::ErrorKind;

use super::*;

/// Gives scripted batches, then waits for ever.
struct Script {
    steps: VecDeque<Result<Option<Vec<Event>>>>,
    pulls: Arc<AtomicUsize>,
}

impl Source for Script {
    async fn next(&mut self) -> Result<Option<Vec<Event>>> {
        self.pulls.fetch_add(1, Ordering::Relaxed);
        match self.steps.pop_front() {
            Some(step) => step,
            None => std::future::pending().await,
        }
    }
}

struct Run {
    pulls: Arc<AtomicUsize>,
    closing: CancellationToken,
    frames: BoxStream<'static, Bytes>,
}

fn run(first: Vec<Event>, steps: Vec<Result<Option<Vec<Event>>>>, until: Until, envelope: Envelope) -> Run {
    let (pulls, closing) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let source = Script { steps: steps.into(), pulls: Arc::clone(&pulls) };
    let settings = StreamSettings { keep_alive: Duration::from_secs(15), closing: closing.clone() };
    Run { pulls, closing, frames: frames(Opened { first, source, until }, envelope, settings) }
}

fn event(seq: u64, json: &str) -> Event {
    Event {
        seq: Seq(seq),
        json: one_line(Bytes::copy_from_slice(json.as_bytes())),
        terminal: false,
        settled: false,
    }
}

fn terminal(seq: u64) -> Event {
    Event { terminal: true, settled: true, ..event(seq, "{}") }
}

fn interrupted(seq: u64) -> Event {
    Event { settled: true, ..event(seq, "{}") }
}

async fn text(run: Run) -> Vec<String> {
    run.frames.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect().await
}

#[tokio::test]
async fn one_frame_for_each_event_one_write_for_each_batch() {
    let first = vec![event(1, "{\"a\":1}")];
    let steps = vec![Ok(Some(vec![event(2, "{\"b\":\n\r2}"), terminal(3)]))];
    let run = run(first, steps, Until::Terminal, Envelope::Bare);
    assert_eq!(
        text(run).await,
        ["id: 1\ndata: {\"a\":1}\n\n", "id: 2\ndata: {\"b\":  2}\n\nid: 3\ndata: {}\n\n"]
    );
}

#[tokio::test]
async fn the_rpc_envelope_is_the_one_of_plain_answers() {
    let id = Id::String("x\"y".to_owned());
    let expected = jsonrpc::result(&id, b"{\"a\":1}");
    let run = run(vec![event(1, "{\"a\":1}"), terminal(2)], vec![], Until::Terminal, Envelope::rpc(id));
    let sent = text(run).await;
    assert!(
        sent[0].starts_with(&format!("id: 1\ndata: {}\n\nid: 2\n", str::from_utf8(&expected).unwrap())),
        "{sent:?}"
    );
}

#[tokio::test]
async fn only_a_send_ends_when_the_task_asks() {
    let batches = || vec![Ok(Some(vec![interrupted(2)])), Ok(Some(vec![terminal(3)]))];
    let sent = run(vec![event(1, "{}")], batches(), Until::Settled, Envelope::Bare);
    assert_eq!(text(sent).await.len(), 2);
    let subscribed = run(vec![event(1, "{}")], batches(), Until::Terminal, Envelope::Bare);
    assert_eq!(text(subscribed).await.len(), 3);
    // An ask that was answered is history.
    let replayed = run(vec![interrupted(1), event(2, "{}")], vec![Ok(None)], Until::Settled, Envelope::Bare);
    assert_eq!(text(replayed).await.len(), 1);
    assert_eq!(text(run(vec![], vec![Ok(None)], Until::Terminal, Envelope::Bare)).await.len(), 0);
}

#[tokio::test]
async fn a_failure_is_the_last_frame() {
    let failed = || vec![Err(Error::new(ErrorKind::Unavailable, "No store."))];
    let rest = text(run(vec![event(1, "{}")], failed(), Until::Terminal, Envelope::Bare)).await;
    assert_eq!(rest.len(), 2);
    assert!(rest[1].starts_with("event: error\ndata: {\"error\":{"), "{}", rest[1]);
    let rpc = text(run(vec![event(1, "{}")], failed(), Until::Terminal, Envelope::rpc(Id::Null))).await;
    assert!(rpc[1].starts_with("data: {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{"), "{}", rpc[1]);
    for frame in [&rest[1], &rpc[1]] {
        assert!(frame.ends_with("\n\n") && !frame.contains("id: "), "{frame}");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_is_filled_with_comments() {
    let mut run = run(vec![], vec![], Until::Terminal, Envelope::Bare);
    let started = tokio::time::Instant::now();
    for n in 1..=3 {
        assert_eq!(run.frames.next().await.unwrap(), ": keep-alive\n\n");
        assert_eq!(started.elapsed().as_secs(), 15 * n);
    }
}

#[tokio::test]
async fn a_reader_that_does_not_pull_reads_nothing_ahead() {
    let big = "x".repeat(BATCH_BYTES / 2);
    let steps = (0..100).map(|n| Ok(Some(vec![event(n, &big), event(n, &big), event(n, &big)]))).collect();
    let mut run = run(vec![], steps, Until::Terminal, Envelope::Bare);
    assert_eq!(run.pulls.load(Ordering::Relaxed), 0);
    // Three events of half a batch each: two writes, still one pull.
    for (expected_pulls, within) in [(1, BATCH_BYTES), (1, BATCH_BYTES), (1, BATCH_BYTES), (2, BATCH_BYTES)] {
        let bytes = run.frames.next().now_or_never().unwrap().unwrap();
        assert!(bytes.len() <= within + 64, "{}", bytes.len());
        assert_eq!(run.pulls.load(Ordering::Relaxed), expected_pulls);
    }
}

#[tokio::test]
async fn an_event_larger_than_a_batch_goes_alone() {
    let huge = "x".repeat(BATCH_BYTES * 2);
    let mut run =
        run(vec![event(1, "{}"), event(2, &huge), terminal(3)], vec![], Until::Terminal, Envelope::Bare);
    let lengths: Vec<usize> = run.frames.by_ref().map(|bytes| bytes.len()).collect().await;
    assert_eq!(lengths.len(), 3, "{lengths:?}");
}

#[tokio::test]
async fn a_gateway_that_stops_asks_its_clients_to_come_back() {
    let mut waiting = run(vec![], vec![], Until::Terminal, Envelope::Bare);
    assert_eq!(waiting.frames.next().now_or_never(), None);
    waiting.closing.cancel();
    assert_eq!(text(waiting).await, ["retry: 1000\n\n"]);
    let busy = run(vec![event(1, "{}")], vec![], Until::Terminal, Envelope::Bare);
    busy.closing.cancel();
    assert_eq!(text(busy).await, ["retry: 1000\n\n"]);
}
