use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use longshore_model::{Epoch, ErrorKind, Seq};

use super::*;

/// Gives scripted batches, then waits for ever.
struct Script {
    steps: VecDeque<Result<Option<Vec<Event>>>>,
    pulls: Arc<AtomicUsize>,
}

type Steps = Vec<Result<Option<Vec<Event>>>>;

impl Source for Script {
    async fn next(&mut self) -> Result<Option<Vec<Event>>> {
        self.pulls.fetch_add(1, Ordering::Relaxed);
        match self.steps.pop_front() {
            Some(step) => step,
            None => std::future::pending().await,
        }
    }

    async fn is_at_head(&mut self) -> Result<bool> {
        Ok(self.steps.is_empty())
    }
}

struct Run {
    pulls: Arc<AtomicUsize>,
    closing: CancellationToken,
    frames: BoxStream<'static, Bytes>,
}

fn run(first: Vec<Event>, steps: Steps, until: Until, envelope: Envelope) -> Run {
    let (pulls, closing) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let source = Script { steps: steps.into(), pulls: Arc::clone(&pulls) };
    let settings = StreamSettings { keep_alive: Duration::from_secs(15), closing: closing.clone() };
    Run { pulls, closing, frames: frames(Opened { first, source, until }, envelope, settings) }
}

fn event(seq: u64, json: &str) -> Event {
    Event {
        id: EventId::new(Seq(seq), Epoch(4)),
        json: Some(Bytes::copy_from_slice(json.as_bytes())),
        standing: None,
    }
}

fn hidden(seq: u64) -> Event {
    Event { json: None, ..event(seq, "") }
}

fn status(seq: u64, standing: Standing) -> Event {
    Event { standing: Some(standing), ..event(seq, "{}") }
}

fn terminal(seq: u64) -> Event {
    status(seq, Standing::Over)
}

fn interrupted(seq: u64) -> Event {
    status(seq, Standing::Asking)
}

async fn text(run: Run) -> Vec<String> {
    run.frames.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect().await
}

#[tokio::test]
async fn one_frame_for_each_event_one_write_for_each_batch() {
    let first = vec![event(1, "{\"a\":1}")];
    let steps = vec![Ok(Some(vec![event(2, "{\"b\":2}"), terminal(3)]))];
    let run = run(first, steps, Until::Terminal, Envelope::bare(Line::V1));
    assert_eq!(
        text(run).await,
        ["id: 1.4\ndata: {\"a\":1}\n\n", "id: 2.4\ndata: {\"b\":2}\n\nid: 3.4\ndata: {}\n\n"]
    );
}

#[tokio::test]
async fn the_rpc_envelope_is_the_one_of_plain_answers() {
    let id = Id::String("x\"y".to_owned());
    let expected = jsonrpc::result(&id, b"{\"a\":1}");
    let run =
        run(vec![event(1, "{\"a\":1}"), terminal(2)], vec![], Until::Terminal, Envelope::rpc(Line::V1, id));
    let sent = text(run).await;
    assert!(
        sent[0].starts_with(&format!("id: 1.4\ndata: {}\n\nid: 2.4\n", str::from_utf8(&expected).unwrap())),
        "{sent:?}"
    );
}

/// The ids that a stream of these batches has given when it ends, or `None` if it waits for more.
fn given(batches: Vec<Vec<Event>>, until: Until) -> Option<Vec<u64>> {
    let mut batches = batches.into_iter();
    let first = batches.next().unwrap_or_default();
    let run = run(first, batches.map(|batch| Ok(Some(batch))).collect(), until, Envelope::bare(Line::V1));
    let lines = text(run).now_or_never()?.concat();
    let ids = lines.lines().filter_map(|line| line.strip_prefix("id: "));
    Some(ids.map(|id| EventId::parse(id).unwrap().seq.0).collect())
}

#[tokio::test]
async fn only_a_send_ends_when_the_task_asks() {
    let (said, working) = (|seq| event(seq, "{}"), |seq| status(seq, Standing::Working));
    // It asks, and nothing came after that.
    let asked = [working(1), interrupted(2)];
    // It asked, was answered, and works.
    let answered = [working(1), interrupted(2), said(3), working(4)];
    // It said something while it asked.
    let talking = [working(1), interrupted(2), said(3), said(4)];
    let ended = [working(1), interrupted(2), working(3), terminal(4)];
    let cases = [
        (&asked[..], Until::Settled, Some(2)),
        (&asked, Until::Terminal, None),
        (&answered, Until::Settled, None),
        (&talking, Until::Settled, Some(4)),
        (&talking, Until::Terminal, None),
        (&ended, Until::Settled, Some(4)),
        (&ended, Until::Terminal, Some(4)),
    ];
    for (events, until, expected) in cases {
        let expected: Option<Vec<u64>> = expected.map(|last| (1..=last).collect());
        // Wherever the batches happen to be cut.
        for size in 1..=events.len() {
            let batches: Vec<Vec<Event>> = events.chunks(size).map(<[Event]>::to_vec).collect();
            assert_eq!(given(batches, until), expected, "{events:?} {until:?} in batches of {size}");
        }
    }
    assert_eq!(text(run(vec![], vec![Ok(None)], Until::Terminal, Envelope::bare(Line::V1))).await.len(), 0);
}

#[tokio::test]
async fn a_failure_is_the_last_frame() {
    let failed = || vec![Err(Error::new(ErrorKind::Unavailable, "No store."))];
    let rest = text(run(vec![event(1, "{}")], failed(), Until::Terminal, Envelope::bare(Line::V1))).await;
    assert_eq!(rest.len(), 2);
    assert!(rest[1].starts_with("event: error\ndata: {\"error\":{"), "{}", rest[1]);
    let rpc =
        text(run(vec![event(1, "{}")], failed(), Until::Terminal, Envelope::rpc(Line::V1, Id::Null))).await;
    assert!(rpc[1].starts_with("data: {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{"), "{}", rpc[1]);
    let old = [Envelope::bare(Line::V03), Envelope::rpc(Line::V03, Id::Null)];
    let old = old.map(|envelope| run(vec![event(1, "{}")], failed(), Until::Terminal, envelope));
    let [old_rest, old_rpc] = old;
    let (old_rest, old_rpc) = (text(old_rest).await, text(old_rpc).await);
    assert!(old_rest[1].starts_with("event: error\ndata: {\"message\":\"No store.\","), "{}", old_rest[1]);
    assert!(old_rpc[1].contains("\"data\":{\"type\":\"UNAVAILABLE\"}"), "{}", old_rpc[1]);
    for frame in [&rest[1], &rpc[1], &old_rest[1], &old_rpc[1]] {
        assert!(frame.ends_with("\n\n") && !frame.contains("id: "), "{frame}");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_is_filled_with_comments() {
    let mut run = run(vec![], vec![], Until::Terminal, Envelope::bare(Line::V1));
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
    let mut run = run(vec![], steps, Until::Terminal, Envelope::bare(Line::V1));
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
    let mut run = run(
        vec![event(1, "{}"), event(2, &huge), terminal(3)],
        vec![],
        Until::Terminal,
        Envelope::bare(Line::V1),
    );
    let lengths: Vec<usize> = run.frames.by_ref().map(|bytes| bytes.len()).collect().await;
    assert_eq!(lengths.len(), 3, "{lengths:?}");
}

#[tokio::test]
async fn a_gateway_that_stops_asks_its_clients_to_come_back() {
    let mut waiting = run(vec![], vec![], Until::Terminal, Envelope::bare(Line::V1));
    assert_eq!(waiting.frames.next().now_or_never(), None);
    waiting.closing.cancel();
    assert_eq!(text(waiting).await, ["retry: 1000\n\n"]);
}

#[tokio::test]
async fn a_gateway_that_stops_writes_what_it_has_read() {
    let first = "id: 1.4\ndata: {}\n\n";
    let opened = run(vec![event(1, "{}")], vec![], Until::Terminal, Envelope::bare(Line::V1));
    opened.closing.cancel();
    assert_eq!(text(opened).await, [first, "retry: 1000\n\n"]);

    // More than one write, of which the first was made; nothing new is read.
    let half = format!("\"{}\"", "x".repeat(BATCH_BYTES / 2));
    let steps = vec![Ok(Some(vec![event(2, &half), event(3, &half)])), Ok(Some(vec![event(4, "{}")]))];
    let mut busy = run(vec![event(1, "{}")], steps, Until::Terminal, Envelope::bare(Line::V1));
    for expected in ["id: 1.4\n", "id: 2.4\n"] {
        assert!(busy.frames.next().await.unwrap().starts_with(expected.as_bytes()));
    }
    busy.closing.cancel();
    let rest = text(busy).await;
    assert_eq!(rest, [format!("id: 3.4\ndata: {half}\n\n"), "retry: 1000\n\n".to_owned()]);

    // A task that is over needs nobody to come back.
    let over = run(vec![event(1, "{}"), terminal(2)], vec![], Until::Terminal, Envelope::bare(Line::V1));
    over.closing.cancel();
    assert_eq!(text(over).await, [format!("{first}id: 2.4\ndata: {{}}\n\n")]);
}

#[tokio::test]
async fn what_is_not_shown_leaves_no_trace() {
    let first = vec![hidden(1), hidden(2)];
    let steps = vec![
        Ok(Some(vec![hidden(3)])),
        Ok(Some(vec![event(4, "{}"), hidden(5)])),
        Ok(Some(vec![hidden(6), hidden(7)])),
        Ok(Some(vec![hidden(8), terminal(9)])),
    ];
    let run = run(first, steps, Until::Terminal, Envelope::bare(Line::V1));
    assert_eq!(text(run).await, ["id: 4.4\ndata: {}\n\n", "id: 9.4\ndata: {}\n\n"]);
}

#[tokio::test]
async fn a_send_ends_at_an_ask_also_behind_what_is_not_shown() {
    let asked = [status(1, Standing::Working), interrupted(2), hidden(3), hidden(4)];
    for size in 1..=asked.len() {
        let batches: Vec<Vec<Event>> = asked.chunks(size).map(<[Event]>::to_vec).collect();
        assert_eq!(given(batches.clone(), Until::Settled), Some(vec![1, 2]), "in batches of {size}");
        assert_eq!(given(batches, Until::Terminal), None, "in batches of {size}");
    }
}

/// Gives an event that is not shown again and again.
struct Hidden {
    every: Duration,
}

impl Source for Hidden {
    async fn next(&mut self) -> Result<Option<Vec<Event>>> {
        if !self.every.is_zero() {
            tokio::time::sleep(self.every).await;
        }
        Ok(Some(vec![hidden(1)]))
    }

    async fn is_at_head(&mut self) -> Result<bool> {
        Ok(false)
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_are_not_shown_are_silence() {
    let closing = CancellationToken::new();
    let settings = StreamSettings { keep_alive: Duration::from_secs(15), closing: closing.clone() };
    let source = Hidden { every: Duration::from_secs(4) };
    let opened = Opened { first: vec![], source, until: Until::Terminal };
    let mut frames = frames(opened, Envelope::bare(Line::V1), settings);
    let started = tokio::time::Instant::now();
    for n in 1..=3 {
        assert_eq!(frames.next().await.unwrap(), ": keep-alive\n\n");
        assert_eq!(started.elapsed().as_secs(), 15 * n);
    }
    closing.cancel();
    assert_eq!(frames.next().await.unwrap(), "retry: 1000\n\n");
}

#[tokio::test]
async fn a_flood_that_is_not_shown_stops_nobody_else() {
    let flood = |keep_alive| {
        let closing = CancellationToken::new();
        let settings = StreamSettings { keep_alive, closing: closing.clone() };
        let source = Hidden { every: Duration::ZERO };
        (
            frames(
                Opened { first: vec![], source, until: Until::Terminal },
                Envelope::bare(Line::V1),
                settings,
            ),
            closing,
        )
    };
    let (mut frames, _) = flood(Duration::from_millis(1));
    assert_eq!(frames.next().await.unwrap(), ": keep-alive\n\n");
    // On the same thread: the token is reached only if the stream lets others run.
    let (mut frames, closing) = flood(Duration::from_hours(1));
    let (last, ()) = tokio::join!(frames.next(), async { closing.cancel() });
    assert_eq!(last.unwrap(), "retry: 1000\n\n");
}
