//! Sends queued spans in batches from a background task. If the collector is down or slow, spans are dropped, but nothing else is
//! affected.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::port::Span;
use longshore_meter::Metrics;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::{OtlpConfig, encode};

/// The number of spans in one request.
pub const BATCH: usize = 512;

/// How long sending may take at shutdown. Spans that are not sent by then are dropped.
pub const FLUSH: Duration = Duration::from_secs(2);

/// How long the first span of a batch waits for others.
const GATHER: Duration = Duration::from_secs(5);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the collector may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The most attempts to send a batch, and the first and the longest pause between two attempts.
const ATTEMPTS: usize = 4;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The maximum number of bytes that are read of a response.
const MAX_ANSWER: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Sender {
    http: reqwest::Client,
    url: Url,
    config: OtlpConfig,
    queue: mpsc::Receiver<Span>,
    batch: Vec<Span>,
    metrics: Arc<Metrics>,
    stopping: CancellationToken,
    /// Whether the last batch was not accepted. A log line has then already reported it.
    is_away: bool,
}

/// Why a batch was not accepted, without the collector's address and without text of its response.
#[derive(Debug)]
enum Refusal {
    /// A retry may help. The value is the wait that the collector named, if any.
    Temporary(String, Option<Duration>),
    Permanent(String),
}

impl Sender {
    pub(crate) fn new(
        config: OtlpConfig,
        queue: mpsc::Receiver<Span>,
        metrics: Arc<Metrics>,
        stopping: CancellationToken,
    ) -> reqwest::Result<Self> {
        let http = reqwest::Client::builder()
            // Use no proxy from the environment, because it would see the headers. The same applies to every URL in the settings.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .user_agent(concat!("longshore/", env!("CARGO_PKG_VERSION")))
            .build()?;
        let mut url = config.endpoint.clone();
        url.set_path(&format!("{}/v1/traces", url.path().trim_end_matches('/')));
        Ok(Self { http, url, config, queue, batch: Vec::new(), metrics, stopping, is_away: false })
    }

    pub(crate) async fn run(mut self) {
        let stopping = self.stopping.clone();
        let out_of_time = async {
            stopping.cancelled().await;
            tokio::time::sleep(FLUSH).await;
        };
        tokio::select! {
            biased;
            () = self.work() => {}
            () = out_of_time => {}
        }
        self.queue.close();
        self.drop_spans(self.batch.len() + self.queue.len());
    }

    async fn work(&mut self) {
        while self.gather().await {
            self.deliver().await;
        }
    }

    /// Fills the batch from the queue. Returns false if the batch is empty and no more spans will come.
    async fn gather(&mut self) -> bool {
        let stopping = self.stopping.clone();
        tokio::select! {
            biased;
            () = stopping.cancelled() => {}
            _ = self.queue.recv_many(&mut self.batch, BATCH) => {}
        }
        let due = tokio::time::sleep(GATHER);
        tokio::pin!(due);
        while !self.batch.is_empty() && self.batch.len() < BATCH {
            let room = BATCH - self.batch.len();
            tokio::select! {
                biased;
                () = stopping.cancelled() => break,
                () = &mut due => break,
                received = self.queue.recv_many(&mut self.batch, room) => if received == 0 { break },
            }
        }
        while self.batch.len() < BATCH
            && let Ok(span) = self.queue.try_recv()
        {
            self.batch.push(span);
        }
        !self.batch.is_empty()
    }

    /// Sends the batch, with retries. Drops it if that fails.
    async fn deliver(&mut self) {
        let body = encode::body(&self.config, &self.batch);
        let mut pause = FIRST_PAUSE;
        for attempt in 1..=ATTEMPTS {
            match self.post(body.clone()).await {
                Ok(rejected) => {
                    let rejected = rejected.min(self.batch.len());
                    self.metrics.spans_sent.add((self.batch.len() - rejected) as u64);
                    self.metrics.spans_dropped.add(rejected as u64);
                    self.batch.clear();
                    self.note_there();
                    return;
                }
                Err(Refusal::Permanent(why)) => {
                    self.note_away(&why);
                    break;
                }
                Err(Refusal::Temporary(why, after)) => {
                    self.note_away(&why);
                    if attempt == ATTEMPTS || self.stopping.is_cancelled() {
                        break;
                    }
                    let pause_now = after.unwrap_or(pause).min(LONGEST_PAUSE);
                    tokio::select! {
                        // One more attempt at shutdown, without a pause.
                        () = self.stopping.cancelled() => {}
                        () = tokio::time::sleep(pause_now) => {}
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        self.drop_spans(self.batch.len());
        self.batch.clear();
    }

    /// Sends one request. Returns the number of spans that the collector rejected.
    async fn post(&self, body: String) -> Result<usize, Refusal> {
        let request = self
            .http
            .post(self.url.clone())
            .headers(self.config.headers.map().clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body);
        let mut response = request.send().await.map_err(|error| lost(&error))?;
        let status = response.status();
        if status.is_success() {
            let mut answer = Vec::new();
            while let Ok(Some(chunk)) = response.chunk().await
                && answer.len() + chunk.len() <= MAX_ANSWER
            {
                answer.extend_from_slice(&chunk);
            }
            return Ok(rejected(&answer));
        }
        let why = format!("it answers with {status}");
        let is_temporary = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        if !is_temporary {
            return Err(Refusal::Permanent(why));
        }
        let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Err(Refusal::Temporary(why, after.map(Duration::from_secs)))
    }

    fn drop_spans(&self, spans: usize) {
        self.metrics.spans_dropped.add(spans as u64);
    }

    fn note_away(&mut self, why: &str) {
        if !self.is_away {
            tracing::warn!(why, "the collector does not take traces; they are dropped until it does");
        }
        self.is_away = true;
    }

    fn note_there(&mut self) {
        if self.is_away {
            tracing::warn!("the collector takes traces again");
        }
        self.is_away = false;
    }
}

fn lost(error: &reqwest::Error) -> Refusal {
    let why = if error.is_timeout() {
        "it does not answer in time"
    } else if error.is_connect() {
        "it cannot be reached"
    } else {
        "the connection broke"
    };
    Refusal::Temporary(why.to_owned(), None)
}

/// The number of rejected spans in a response. It is a string or a number, as ProtoJSON allows.
fn rejected(answer: &[u8]) -> usize {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    match &answer["partialSuccess"]["rejectedSpans"] {
        Value::String(number) => number.parse().unwrap_or(0),
        Value::Number(number) => number.as_u64().and_then(|number| number.try_into().ok()).unwrap_or(0),
        _ => 0,
    }
}
