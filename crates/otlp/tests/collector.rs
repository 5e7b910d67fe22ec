//! Runs the exporter against a collector on loopback that records the requests.

#![expect(clippy::unwrap_used, reason = "a test whose environment fails may panic")]

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_engine::port::{Span, SpanKind, SpanPosition, Spans, TurnAttributes};
use longshore_meter::Metrics;
use longshore_model::{ContextId, ModelName, TaskId, TaskState, Timestamp, TraceContext, Usage};
use longshore_otlp::{BATCH, FLUSH, Headers, Otlp, OtlpConfig, QUEUE};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The number of requests that a test may leave unread.
const KEPT: usize = 64;

struct Request {
    head: String,
    body: Value,
}

impl Request {
    fn spans(&self) -> Vec<Value> {
        self.body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    }
}

struct Collector {
    endpoint: String,
    requests: mpsc::Receiver<Request>,
    tasks: Tasks,
}

impl Collector {
    /// Answers each request with the next of these responses, and then with success.
    async fn start(answers: Vec<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (keep, requests) = mpsc::channel(KEPT);
        let tasks = Tasks::new();
        let mut answers = answers.into_iter();
        tasks.spawn("collector", async move {
            loop {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let Some(request) = read(&mut stream).await else { continue };
                let answer = answers.next().unwrap_or("200 OK\r\ncontent-length: 2\r\n\r\n{}");
                let answer = format!("HTTP/1.1 {}", answer.replacen("\r\n", "\r\nconnection: close\r\n", 1));
                stream.write_all(answer.as_bytes()).await.unwrap();
                if keep.send(request).await.is_err() {
                    return;
                }
            }
        });
        Self { endpoint, requests, tasks }
    }

    async fn next(&mut self) -> Request {
        self.requests.recv().await.unwrap()
    }
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        if body.len() >= length.parse().ok()? {
            return Some(Request { head: head.to_owned(), body: serde_json::from_str(body).ok()? });
        }
    }
}

struct Exporter {
    spans: Arc<Otlp>,
    tasks: Tasks,
    metrics: Arc<Metrics>,
}

impl Exporter {
    fn start(config: OtlpConfig) -> Self {
        let (tasks, metrics) = (Tasks::new(), Arc::new(Metrics::new("test")));
        let spans = Otlp::start(config, &metrics, &tasks).unwrap();
        Self { spans, tasks, metrics }
    }

    /// The numbers of sent and dropped spans.
    fn counted(&self) -> (u64, u64) {
        (self.metrics.spans_sent.get(), self.metrics.spans_dropped.get())
    }
}

fn config(endpoint: &str) -> OtlpConfig {
    OtlpConfig {
        endpoint: endpoint.parse().unwrap(),
        headers: Headers::parse("api-key=s3cret").unwrap(),
        service_name: "harbour".to_owned(),
        service_version: "1.2.3".to_owned(),
        sample_ratio: 1.0,
        agent: "opencode".to_owned(),
        model: Some("acme/large".to_owned()),
    }
}

fn task() -> TaskId {
    TaskId::parse("task-1").unwrap()
}

fn place(span: u64, parent: Option<u64>) -> SpanPosition {
    let context = |span: u64| {
        let traceparent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{span:016x}-01");
        TraceContext::from_headers(Some(&traceparent), Some("a=1"))
    };
    SpanPosition { own: context(span), parent: parent.map(context) }
}

fn tool(number: u64) -> Span {
    let work = SpanKind::Tool { name: "bash".to_owned(), call: format!("call-{number}") };
    let (began, ended) = (Timestamp(2), Timestamp(3));
    Span { place: place(number + 1, Some(1)), began, ended, task: task(), work, error: None }
}

fn turn(agent: Option<&str>, model: Option<&str>, usage: Option<Usage>, state: TaskState) -> SpanKind {
    SpanKind::Turn(Box::new(TurnAttributes {
        context: ContextId::parse("context-1").unwrap(),
        agent: agent.map(str::to_owned),
        model: model.and_then(ModelName::parse),
        state,
        usage,
    }))
}

#[tokio::test]
async fn spans_are_encoded_as_the_standard_defines_them() {
    let mut collector = Collector::start(Vec::new()).await;
    let exporter = Exporter::start(config(&format!("{}/otlp/", collector.endpoint)));
    let usage =
        Usage { input: 10, output: 20, reasoning: 5, cache_read: 3, cache_write: 2, ..Usage::default() };
    let began = Timestamp(1_700_000_000_123);
    let span = |place, work, error: Option<&'static str>| Span {
        place,
        began,
        ended: Timestamp(began.0 + 1_500),
        task: task(),
        work,
        error: error.map(Into::into),
    };
    let of_caller = place(1, Some(0x00f0_67aa_0ba9_02b7));
    exporter.spans.ended(span(
        of_caller,
        turn(Some("plan"), Some("acme/small"), Some(usage), TaskState::Completed),
        None,
    ));
    exporter.spans.ended(span(
        place(2, None),
        turn(None, None, None, TaskState::Failed),
        Some("UPSTREAM_ERROR"),
    ));
    exporter.spans.ended(tool(2));
    exporter.spans.ended(Span { error: Some("tool_error".into()), ..tool(3) });
    exporter.tasks.stop().await;
    let request = collector.next().await;
    assert!(request.head.starts_with("POST /otlp/v1/traces HTTP/1.1\r\n"), "{}", request.head);
    for header in ["api-key: s3cret", "content-type: application/json"] {
        assert!(request.head.lines().any(|line| line == header), "{}", request.head);
    }
    insta::assert_json_snapshot!(request.body);
    assert_eq!(exporter.counted(), (4, 0));
    collector.tasks.stopping().cancel();
}

#[tokio::test]
async fn the_caller_or_the_sample_ratio_decides_whether_a_turn_has_a_span() {
    let exporter = Exporter::start(OtlpConfig { sample_ratio: 0.0, ..config("http://127.0.0.1:1") });
    let caller = TraceContext::from_headers(Some(CALLER), Some("a=1"));
    let place = exporter.spans.begin(Some(&caller)).unwrap();
    assert_eq!(place.parent, Some(caller.clone()));
    assert_eq!(place.own.trace_id().to_string(), caller.trace_id().to_string());
    assert_ne!(place.own.span_id().to_string(), caller.span_id().to_string());
    assert_eq!(place.own.tracestate(), Some("a=1"));
    let unsampled = TraceContext::parse(&CALLER.replace("-01", "-00")).unwrap();
    assert_eq!(exporter.spans.begin(Some(&unsampled)), None);
    // Traces that the gateway starts are sampled by the ratio.
    let fresh = TraceContext::generate();
    assert_eq!(exporter.spans.begin(Some(&fresh)), None);
    assert_eq!(exporter.spans.begin(None), None);
    // Calls for such a trace carry the same decision. The decision of a caller is not changed.
    let left_out = exporter.spans.decided(fresh.clone());
    // Only the flags at the end change. The random ids before them may contain `-01` as well.
    let fresh_parent = fresh.traceparent();
    let unsampled_parent = format!("{}-00", fresh_parent.strip_suffix("-01").unwrap());
    assert_eq!(left_out.traceparent(), unsampled_parent);
    assert_eq!(exporter.spans.decided(caller.clone()), caller);
    let all = Exporter::start(config("http://127.0.0.1:1"));
    assert_eq!(all.spans.decided(fresh.clone()), fresh);
    assert_eq!(all.spans.begin(Some(&fresh)), Some(SpanPosition { own: fresh, parent: None }));
    assert!(all.spans.begin(None).unwrap().parent.is_none());
}

#[tokio::test]
async fn a_full_queue_drops_further_spans_and_counts_them() {
    let mut collector = Collector::start(Vec::new()).await;
    let exporter = Exporter::start(config(&collector.endpoint));
    // There is no await in this loop, so the exporter takes no span out of the queue.
    for number in 0..QUEUE as u64 + 10 {
        exporter.spans.ended(tool(number));
    }
    assert_eq!(exporter.counted(), (0, 10));
    let mut calls = Vec::new();
    while calls.len() < QUEUE {
        let spans = collector.next().await.spans();
        assert!(spans.len() <= BATCH);
        calls.extend(spans.iter().map(|span| span["spanId"].as_str().unwrap().to_owned()));
    }
    exporter.tasks.stop().await;
    assert_eq!(exporter.counted(), (QUEUE as u64, 10));
    let expected: Vec<_> = (1..=QUEUE).map(|number| format!("{number:016x}")).collect();
    assert_eq!(calls, expected);
}

#[tokio::test]
async fn an_unreachable_collector_costs_spans_only() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let exporter = Exporter::start(config(&endpoint));
    exporter.spans.ended(tool(1));
    tokio::time::timeout(FLUSH * 5, exporter.tasks.stop()).await.unwrap();
    assert_eq!(exporter.counted(), (0, 1));
    // Reporting a span after the shutdown does no harm.
    exporter.spans.ended(tool(2));
    assert_eq!(exporter.counted(), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_does_not_answer_does_not_delay_the_shutdown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let exporter = Exporter::start(config(&format!("http://{}", listener.local_addr().unwrap())));
    for number in 0..=BATCH as u64 {
        exporter.spans.ended(tool(number));
    }
    // The collector has received the first batch, and does not answer.
    let held = listener.accept().await.unwrap();
    let began = tokio::time::Instant::now();
    exporter.tasks.stop().await;
    assert!(began.elapsed() < FLUSH + Duration::from_millis(100), "{:?}", began.elapsed());
    assert_eq!(exporter.counted(), (0, BATCH as u64 + 1));
    drop(held);
}

#[tokio::test]
async fn a_batch_is_retried_only_if_that_may_help() {
    let busy = "503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
    let wrong = "400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let partial = "200 OK\r\ncontent-length: 41\r\n\r\n{\"partialSuccess\":{\"rejectedSpans\": \"1\"}}";
    for (answers, requests, counted) in [
        (vec![busy, busy], 3, (BATCH as u64, 0)),
        (vec![busy, busy, busy, busy], 4, (0, BATCH as u64)),
        (vec![wrong], 1, (0, BATCH as u64)),
        (vec![partial], 1, (BATCH as u64 - 1, 1)),
    ] {
        let mut collector = Collector::start(answers.clone()).await;
        let exporter = Exporter::start(config(&collector.endpoint));
        // A full batch is sent at once.
        for number in 0..BATCH as u64 {
            exporter.spans.ended(tool(number));
        }
        for _ in 0..requests {
            assert_eq!(collector.next().await.spans().len(), BATCH);
        }
        exporter.tasks.stop().await;
        assert_eq!(exporter.counted(), counted, "{answers:?}");
        assert!(collector.requests.try_recv().is_err());
    }
}
