use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::FutureExt;
use longshore_meter::label::Limit;
use longshore_model::{Epoch, ErrorKind, Seq};
use longshore_wire::jsonrpc::{self, Id};
use serde_json::Value;

use super::*;
use crate::version::ProtocolVersion;

/// A source that returns scripted batches and then waits forever.
struct Script {
    steps: VecDeque<Result<Option<Vec<Event>>>>,
    given: VecDeque<Event>,
    pulls: Arc<AtomicUsize>,
    excused: Arc<AtomicBool>,
    /// Whether even available events need an await.
    slow: Arc<AtomicBool>,
}

type Steps = Vec<Result<Option<Vec<Event>>>>;

impl Source for Script {
    async fn wait(&mut self) -> Result<bool> {
        self.pulls.fetch_add(1, Ordering::Relaxed);
        if self.slow.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        match self.steps.pop_front() {
            Some(Ok(Some(events))) => {
                self.given.extend(events);
                Ok(true)
            }
            Some(step) => step.map(|_| false),
            None => std::future::pending().await,
        }
    }

    async fn event(&mut self) -> Result<Option<Event>> {
        Ok(self.given.pop_front())
    }

    async fn is_at_head(&mut self) -> Result<bool> {
        Ok(self.steps.is_empty() && self.given.is_empty())
    }

    fn may_be_silent(&self) -> bool {
        self.excused.load(Ordering::Relaxed)
    }

    fn queued_since(&mut self) -> Option<std::time::Instant> {
        Some(std::time::Instant::now())
    }
}

struct Run {
    pulls: Arc<AtomicUsize>,
    excused: Arc<AtomicBool>,
    slow: Arc<AtomicBool>,
    closing: CancellationToken,
    metrics: Arc<Metrics>,
    frames: BoxStream<'static, Bytes>,
}

const NO_BUDGET: Budget = Budget { bytes: None, duration: None, idle: None };

fn settings(keep_alive: Duration, budget: Budget) -> Arc<StreamSettings> {
    let (closing, metrics) = (CancellationToken::new(), Arc::default());
    Arc::new(StreamSettings { keep_alive, budget, closing, metrics })
}

fn try_run(
    first: Vec<Event>,
    steps: Steps,
    until: Until,
    envelope: Envelope,
    budget: Budget,
) -> (Arc<Metrics>, Result<Run>) {
    let pulls = Arc::new(AtomicUsize::new(0));
    let (excused, slow) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (steps, given) = (steps.into(), VecDeque::new());
    let source = Script {
        steps,
        given,
        pulls: Arc::clone(&pulls),
        excused: Arc::clone(&excused),
        slow: Arc::clone(&slow),
    };
    let settings = settings(Duration::from_secs(15), budget);
    let (closing, metrics) = (settings.closing.clone(), Arc::clone(&settings.metrics));
    let frames = frames(
        OpenStream { task: task(), first, source, until, slot: None, line: RequestLine::default() },
        envelope,
        &settings,
        Span::none(),
    );
    (Arc::clone(&metrics), frames.map(|frames| Run { pulls, excused, slow, closing, metrics, frames }))
}

fn run(first: Vec<Event>, steps: Steps, until: Until, envelope: Envelope) -> Run {
    try_run(first, steps, until, envelope, NO_BUDGET).1.unwrap()
}

fn bare() -> Envelope {
    Envelope::bare(ProtocolVersion::V1)
}

fn task() -> TaskId {
    TaskId::parse("task").unwrap()
}

fn event(seq: u64, json: &str) -> Event {
    Event {
        id: Some(EventId::new(Seq(seq), Epoch(4))),
        body: Some(Bytes::copy_from_slice(json.as_bytes())),
        state: None,
    }
}

fn hidden(seq: u64) -> Event {
    Event { body: None, ..event(seq, "") }
}

fn status(seq: u64, state: TaskState) -> Event {
    Event { state: Some(state), ..event(seq, "{}") }
}

fn terminal(seq: u64) -> Event {
    status(seq, TaskState::Completed)
}

fn interrupted(seq: u64) -> Event {
    status(seq, TaskState::InputRequired)
}

async fn text(run: Run) -> Vec<String> {
    run.frames.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect().await
}

#[tokio::test]
async fn one_frame_for_each_event_one_write_for_each_batch() {
    let first = vec![event(1, "{\"a\":1}")];
    let steps = vec![Ok(Some(vec![event(2, "{\"b\":2}"), terminal(3)]))];
    let run = run(first, steps, Until::Terminal, bare());
    let metrics = Arc::clone(&run.metrics);
    assert_eq!(
        text(run).await,
        ["id: 1.4\ndata: {\"a\":1}\n\n", "id: 2.4\ndata: {\"b\":2}\n\nid: 3.4\ndata: {}\n\n"]
    );
    assert_eq!(metrics.event_delay.count(), 2, "one for each write");
}

#[tokio::test]
async fn the_rpc_envelope_equals_that_of_plain_responses() {
    let id = Id::String("x\"y".to_owned());
    let expected = jsonrpc::result(&id, b"{\"a\":1}");
    let run = run(
        vec![event(1, "{\"a\":1}"), terminal(2)],
        vec![],
        Until::Terminal,
        Envelope::rpc(ProtocolVersion::V1, id),
    );
    let sent = text(run).await;
    assert!(
        sent[0].starts_with(&format!("id: 1.4\ndata: {}\n\nid: 2.4\n", str::from_utf8(&expected).unwrap())),
        "{sent:?}"
    );
}

/// The ids of the events that a stream of these batches has sent when it ends. `None`: the stream waits for more.
fn given(batches: Vec<Vec<Event>>, until: Until) -> Option<Vec<u64>> {
    let mut batches = batches.into_iter();
    let first = batches.next().unwrap_or_default();
    let run = run(first, batches.map(|batch| Ok(Some(batch))).collect(), until, bare());
    let lines = text(run).now_or_never()?.concat();
    let ids = lines.lines().filter_map(|line| line.strip_prefix("id: "));
    Some(ids.map(|id| EventId::parse(id).unwrap().seq.0).collect())
}

#[tokio::test]
async fn only_a_send_ends_when_the_task_asks() {
    let (said, working) = (|seq| event(seq, "{}"), |seq| status(seq, TaskState::Working));
    // The task has an open ask, and nothing follows.
    let asked = [working(1), interrupted(2)];
    // The task had an ask, which was answered, and works again.
    let answered = [working(1), interrupted(2), said(3), working(4)];
    // The task sends text while its ask is open.
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
        // The result must not depend on the boundaries of the batches.
        for size in 1..=events.len() {
            let batches: Vec<Vec<Event>> = events.chunks(size).map(<[Event]>::to_vec).collect();
            assert_eq!(given(batches, until), expected, "{events:?} {until:?} in batches of {size}");
        }
    }
    assert_eq!(text(run(vec![], vec![Ok(None)], Until::Terminal, bare())).await.len(), 0);
}

#[tokio::test]
async fn a_failure_is_the_last_frame() {
    let failed = || vec![Err(Error::new(ErrorKind::Unavailable, "No store."))];
    let rest = text(run(vec![event(1, "{}")], failed(), Until::Terminal, bare())).await;
    assert_eq!(rest.len(), 2);
    assert!(rest[1].starts_with("event: error\ndata: {\"error\":{"), "{}", rest[1]);
    let rpc = text(run(
        vec![event(1, "{}")],
        failed(),
        Until::Terminal,
        Envelope::rpc(ProtocolVersion::V1, Id::Null),
    ))
    .await;
    assert!(rpc[1].starts_with("data: {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{"), "{}", rpc[1]);
    let old = [Envelope::bare(ProtocolVersion::V03), Envelope::rpc(ProtocolVersion::V03, Id::Null)];
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
    let mut run = run(vec![], vec![], Until::Terminal, bare());
    let started = tokio::time::Instant::now();
    for n in 1..=3 {
        assert_eq!(run.frames.next().await.unwrap(), ": keep-alive\n\n");
        assert_eq!(started.elapsed().as_secs(), 15 * n);
    }
}

#[tokio::test]
async fn a_reader_that_does_not_pull_reads_nothing_ahead() {
    // Short enough to be copied into the batch.
    let some = "x".repeat(1_000);
    let steps = (0..100).map(|n| Ok(Some(vec![event(n, &some); 12]))).collect();
    let mut run = run(vec![], steps, Until::Terminal, bare());
    assert_eq!(run.pulls.load(Ordering::Relaxed), 0);
    // Each pull gives one and a half batches, which need two writes.
    for expected_pulls in [1, 1, 2, 2] {
        let bytes = run.frames.next().now_or_never().unwrap().unwrap();
        assert!(bytes.len() <= BATCH_BYTES + 1_100, "{}", bytes.len());
        assert_eq!(run.pulls.load(Ordering::Relaxed), expected_pulls);
    }
}

#[tokio::test]
async fn large_events_are_written_from_shared_bytes() {
    let huge = event(2, &"x".repeat(BATCH_BYTES * 2));
    let shared = huge.body.clone().unwrap();
    for envelope in [bare(), Envelope::rpc(ProtocolVersion::V1, Id::String("i".to_owned()))] {
        let first = vec![event(1, "{}"), huge.clone(), terminal(3)];
        let run = run(first, vec![], Until::Terminal, envelope);
        let pieces: Vec<Bytes> = run.frames.collect().await;
        assert_eq!(pieces.len(), 3, "{pieces:?}");
        assert_eq!(pieces[1].as_ptr(), shared.as_ptr());
        let whole = String::from_utf8(pieces.concat()).unwrap();
        assert_eq!(whole.matches("\n\n").count(), 3);
        assert_eq!(whole.lines().filter(|line| line.starts_with("data: ")).count(), 3);
    }
}

#[tokio::test]
async fn shutdown_asks_clients_to_reconnect() {
    let mut waiting = run(vec![], vec![], Until::Terminal, bare());
    assert_eq!(waiting.frames.next().now_or_never(), None);
    waiting.closing.cancel();
    assert_eq!(text(waiting).await, ["retry: 1000\n\n"]);
}

#[tokio::test]
async fn shutdown_writes_events_that_were_read() {
    let first = "id: 1.4\ndata: {}\n\n";
    let opened = run(vec![event(1, "{}")], vec![], Until::Terminal, bare());
    opened.closing.cancel();
    assert_eq!(text(opened).await, [first, "retry: 1000\n\n"]);

    // The data has several pieces, of which the first was written. Nothing new is read.
    let long = format!("\"{}\"", "x".repeat(BATCH_BYTES));
    let steps = vec![Ok(Some(vec![event(2, &long)])), Ok(Some(vec![event(3, "{}")]))];
    let mut busy = run(vec![event(1, "{}")], steps, Until::Terminal, bare());
    for expected in ["id: 1.4\n", "id: 2.4\n"] {
        assert!(busy.frames.next().await.unwrap().starts_with(expected.as_bytes()));
    }
    busy.closing.cancel();
    let rest = text(busy).await;
    assert_eq!(rest, [long, "\n\n".to_owned(), "retry: 1000\n\n".to_owned()]);

    // The client of a finished task need not reconnect.
    let over = run(vec![event(1, "{}"), terminal(2)], vec![], Until::Terminal, bare());
    over.closing.cancel();
    assert_eq!(text(over).await, [format!("{first}id: 2.4\ndata: {{}}\n\n")]);
}

#[tokio::test]
async fn hidden_events_write_nothing() {
    let first = vec![hidden(1), hidden(2)];
    let steps = vec![
        Ok(Some(vec![hidden(3)])),
        Ok(Some(vec![event(4, "{}"), hidden(5)])),
        Ok(Some(vec![hidden(6), hidden(7)])),
        Ok(Some(vec![hidden(8), terminal(9)])),
    ];
    let run = run(first, steps, Until::Terminal, bare());
    assert_eq!(text(run).await, ["id: 4.4\ndata: {}\n\n", "id: 9.4\ndata: {}\n\n"]);
}

#[tokio::test]
async fn a_send_ends_at_an_ask_followed_by_hidden_events() {
    let asked = [status(1, TaskState::Working), interrupted(2), hidden(3), hidden(4)];
    for size in 1..=asked.len() {
        let batches: Vec<Vec<Event>> = asked.chunks(size).map(<[Event]>::to_vec).collect();
        assert_eq!(given(batches.clone(), Until::Settled), Some(vec![1, 2]), "in batches of {size}");
        assert_eq!(given(batches, Until::Terminal), None, "in batches of {size}");
    }
}

/// A source that returns hidden events without end.
struct Hidden {
    every: Duration,
    is_there: bool,
}

impl Source for Hidden {
    async fn wait(&mut self) -> Result<bool> {
        if !self.every.is_zero() {
            tokio::time::sleep(self.every).await;
        }
        self.is_there = true;
        Ok(true)
    }

    async fn event(&mut self) -> Result<Option<Event>> {
        Ok(std::mem::take(&mut self.is_there).then(|| hidden(1)))
    }

    async fn is_at_head(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn may_be_silent(&self) -> bool {
        false
    }

    fn queued_since(&mut self) -> Option<std::time::Instant> {
        None
    }
}

fn unseen(every: Duration, settings: &Arc<StreamSettings>) -> BoxStream<'static, Bytes> {
    let source = Hidden { every, is_there: false };
    let opened = OpenStream {
        task: task(),
        first: vec![],
        source,
        until: Until::Terminal,
        slot: None,
        line: RequestLine::default(),
    };
    frames(opened, bare(), settings, Span::none()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn hidden_events_are_silence_for_the_client_and_no_idle_time() {
    let budget = Budget { idle: Some(Duration::from_secs(10)), ..NO_BUDGET };
    let settings = settings(Duration::from_secs(15), budget);
    let mut frames = unseen(Duration::from_secs(4), &settings);
    let started = Instant::now();
    for n in 1..=3 {
        assert_eq!(frames.next().await.unwrap(), ": keep-alive\n\n");
        assert_eq!(started.elapsed().as_secs(), 15 * n);
    }
    settings.closing.cancel();
    assert_eq!(frames.next().await.unwrap(), "retry: 1000\n\n");
}

#[tokio::test]
async fn a_flood_of_hidden_events_starves_nobody() {
    let quick = settings(Duration::from_millis(1), NO_BUDGET);
    assert_eq!(unseen(Duration::ZERO, &quick).next().await.unwrap(), ": keep-alive\n\n");
    // Runs on the same thread, so the token is canceled only if the stream yields.
    let slow = settings(Duration::from_hours(1), NO_BUDGET);
    let mut frames = unseen(Duration::ZERO, &slow);
    let (last, ()) = tokio::join!(frames.next(), async { slow.closing.cancel() });
    assert_eq!(last.unwrap(), "retry: 1000\n\n");
    // The limit of the duration applies too.
    let budget = Budget { duration: Some(Duration::from_millis(1)), ..NO_BUDGET };
    let short = settings(Duration::from_hours(1), budget);
    let last = unseen(Duration::ZERO, &short).next().await.unwrap();
    assert!(last.starts_with(b"event: error\n"), "{last:?}");
}

/// Each format in which a stream reports an error.
fn envelopes() -> [Envelope; 4] {
    let id = || Id::String("i".to_owned());
    [
        bare(),
        Envelope::rpc(ProtocolVersion::V1, id()),
        Envelope::bare(ProtocolVersion::V03),
        Envelope::rpc(ProtocolVersion::V03, id()),
    ]
}

/// The first sentence of the error in a frame. Fails if the frame does not report an exceeded budget in this format.
fn budget_error(frame: &Bytes, form: usize) -> String {
    let frame = str::from_utf8(frame).unwrap();
    assert_eq!(frame.starts_with("event: error\n"), form.is_multiple_of(2), "{frame}");
    assert!(!frame.contains("id: ") && frame.ends_with("\n\n"), "{frame}");
    let data = frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    let (message, word) = match form {
        0 => (&data["error"]["message"], &data["error"]["details"][0]["reason"]),
        1 => (&data["error"]["message"], &data["error"]["data"][0]["reason"]),
        2 => (&data["message"], &data["type"]),
        _ => (&data["error"]["message"], &data["error"]["data"]["type"]),
    };
    assert_eq!(word, "STREAM_BUDGET_EXCEEDED", "{data}");
    if form % 2 == 1 {
        assert_eq!((&data["id"], &data["error"]["code"]), (&"i".into(), &(-31062).into()), "{data}");
    }
    let (what, advice) = message.as_str().unwrap().split_once(". ").unwrap();
    assert!(advice.contains("Last-Event-ID"), "{advice}");
    what.to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_ends_with_an_error_unless_silence_is_excused() {
    let budget = Budget { idle: Some(Duration::from_secs(40)), ..NO_BUDGET };
    for (form, envelope) in envelopes().into_iter().enumerate() {
        let started = Instant::now();
        let (_, run) = try_run(vec![event(1, "{}")], vec![], Until::Terminal, envelope, budget);
        let mut run = run.unwrap();
        run.excused.store(true, Ordering::Relaxed);
        assert!(run.frames.next().await.unwrap().starts_with(b"id: 1.4"));
        // Keep-alive comments are no events. Whether silence is expected is checked when the idle time is over.
        for n in 1..=3 {
            assert_eq!(run.frames.next().await.unwrap(), ": keep-alive\n\n");
            assert_eq!(started.elapsed().as_secs(), 15 * n, "{form}");
        }
        run.excused.store(false, Ordering::Relaxed);
        for _ in 4..=5 {
            assert_eq!(run.frames.next().await.unwrap(), ": keep-alive\n\n");
        }
        let last = run.frames.next().await.unwrap();
        assert_eq!(started.elapsed().as_secs(), 80, "{form}");
        assert_eq!(budget_error(&last, form), "Stream budget exceeded: idle timeout");
        assert_eq!(run.frames.next().await, None);
        assert_eq!(run.metrics.stream_budget_rejected.get(), 1);
        assert_eq!(run.metrics.refused.of(Limit::StreamIdle).get(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_an_error_at_its_maximum_duration() {
    let budget = Budget { duration: Some(Duration::from_secs(40)), ..NO_BUDGET };
    for (form, envelope) in envelopes().into_iter().enumerate() {
        let started = Instant::now();
        let (_, run) = try_run(vec![event(1, "{}")], vec![], Until::Terminal, envelope, budget);
        let mut run = run.unwrap();
        // An expected silence does not extend the maximum duration.
        run.excused.store(true, Ordering::Relaxed);
        assert!(run.frames.next().await.unwrap().starts_with(b"id: 1.4"));
        for _ in 1..=2 {
            assert_eq!(run.frames.next().await.unwrap(), ": keep-alive\n\n");
        }
        let last = run.frames.next().await.unwrap();
        assert_eq!(started.elapsed().as_secs(), 40, "{form}");
        assert_eq!(budget_error(&last, form), "Stream budget exceeded: duration budget");
        assert_eq!(run.frames.next().await, None);
        assert_eq!(run.metrics.refused.of(Limit::StreamDuration).get(), 1);
    }
    // Events that were already read are written, and the end of the task is a normal end.
    let (_, run) = try_run(
        vec![event(1, "{}")],
        vec![Ok(Some(vec![event(2, "{}")]))],
        Until::Terminal,
        envelopes()[0].clone(),
        budget,
    );
    let mut run = run.unwrap();
    run.frames.next().await.unwrap();
    run.frames.next().await.unwrap();
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(budget_error(&run.frames.next().await.unwrap(), 0), "Stream budget exceeded: duration budget");
    let (_, run) = try_run(vec![terminal(1)], vec![], Until::Terminal, envelopes()[0].clone(), budget);
    let run = run.unwrap();
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(text(run).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_an_error_before_the_event_over_its_byte_budget() {
    for (form, envelope) in envelopes().into_iter().enumerate() {
        let one = envelope.overhead(Some(EventId::new(Seq(1), Epoch(4)))) + 2;
        let exactly_two = Budget { bytes: Some(2 * one as u64), ..NO_BUDGET };
        let later = vec![event(2, "{}"), event(3, "{}"), terminal(4)];
        let steps = vec![Ok(Some(later))];
        let (_, run) = try_run(vec![event(1, "{}")], steps, Until::Terminal, envelope.clone(), exactly_two);
        let run = run.unwrap();
        let metrics = Arc::clone(&run.metrics);
        let pieces: Vec<Bytes> = run.frames.collect().await;
        let [first, second, last] = pieces.as_slice() else { panic!("{pieces:?}") };
        assert_eq!(first.len() + second.len(), 2 * one);
        assert!(second.starts_with(b"id: 2.4\n"), "{second:?}");
        assert_eq!(budget_error(last, form), "Stream budget exceeded: byte budget");
        assert_eq!(metrics.refused.of(Limit::StreamBytes).get(), 1);

        // A budget of exactly this size is enough.
        let enough = Budget { bytes: Some(one as u64), ..NO_BUDGET };
        let (_, run) = try_run(vec![terminal(1)], vec![], Until::Terminal, envelope.clone(), enough);
        assert_eq!(text(run.unwrap()).await.len(), 1);

        // If not even the first event is within the budget, there is no stream.
        let too_little = Budget { bytes: Some(one as u64 - 1), ..NO_BUDGET };
        let (metrics, run) = try_run(vec![event(1, "{}")], vec![], Until::Terminal, envelope, too_little);
        let error = run.err().expect("it is refused");
        assert_eq!(error.kind(), ErrorKind::StreamBudgetExceeded);
        assert_eq!(metrics.stream_budget_rejected.get(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_not_idle() {
    let budget = Budget { idle: Some(Duration::from_secs(40)), ..NO_BUDGET };
    // First with events in memory, then with events in the store.
    for slow in [false, true] {
        let steps = vec![Ok(Some(vec![event(2, "{}")]))];
        let (_, run) = try_run(vec![event(1, "{}")], steps, Until::Terminal, envelopes()[0].clone(), budget);
        let mut run = run.unwrap();
        run.slow.store(slow, Ordering::Relaxed);
        assert!(run.frames.next().await.unwrap().starts_with(b"id: 1.4"));
        tokio::time::advance(Duration::from_mins(5)).await;
        // A keep-alive comment may come first, because nothing has been sent for long.
        let mut next = run.frames.next().await.unwrap();
        if next == ": keep-alive\n\n" {
            next = run.frames.next().await.unwrap();
        }
        assert!(next.starts_with(b"id: 2.4"), "slow: {slow}, {next:?}");
        assert_eq!(run.metrics.stream_budget_rejected.get(), 0);
    }
}

/// Each caller may have a stream open for hours, so a stream must be small while nothing happens.
#[test]
fn a_waiting_stream_is_small() {
    let size = size_of::<EventStream<crate::log::Log>>();
    assert!(size <= 1_280, "{size}");
}
