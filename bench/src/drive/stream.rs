//! A client that follows a stream and checks every delta in it.
//!
//! The client finds deltas by their stamps in the bytes of the events, without parsing JSON: the same way for every server, and
//! cheap enough for thousands of streams next to the measured server. Only the text of a gRPC message is taken out first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use memchr::{memchr, memmem};
use serde_json::Value;

use super::chunked::Chunks;
use super::connection::{BodyKind, Connection};
use super::grpc::{self, StreamedMessage};
use super::request::{Binding, Target};
use super::websocket;
use crate::clock;
use crate::histogram::Histogram;
use crate::stamp::{self, TextSum};

/// A period in which deltas are counted, on the clock of [`clock::monotonic_ns`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Window {
    pub from_ns: u64,
    pub to_ns: u64,
}

impl Window {
    fn has(self, at: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&at)
    }
}

/// The counts of all streams of one load.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Counts>);

#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub window: Window,
    /// Of deltas that were written in the window, whenever they were received.
    pub delays: Histogram,
    /// Deltas received in the window.
    pub in_window: u64,
    /// Events of streams received in the window.
    pub frames_in_window: u64,
    /// All received deltas.
    pub deltas: u64,
    /// Streams that received something.
    pub started: u64,
}

impl Tally {
    pub fn lock(&self) -> MutexGuard<'_, Counts> {
        // Nothing that holds this lock can panic in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a stream ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Completed,
    /// The task ended in this other state.
    Otherwise(String),
    /// Refused, with the HTTP status and the code of the error.
    Refused(u16, Option<i64>),
    /// The stream ended, or broke, before the task did.
    Cut(String),
    /// The client stopped waiting.
    Abandoned,
}

/// What a client sends to start a stream.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    /// The name of the turn, under which its outcome is kept.
    pub key: &'a str,
    /// The id of the message.
    pub message: &'a str,
    pub text: &'a str,
}

/// What a client received.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub key: String,
    pub task: Option<String>,
    pub end: End,
    pub deltas: u64,
    pub bytes: u64,
    pub sum: TextSum,
    /// Missing deltas.
    pub gaps: u64,
    /// Repeated deltas, as in the complete text at the end.
    pub repeats: u64,
    pub frames: u64,
}

impl Outcome {
    /// The task completed, and all of so many deltas were received.
    pub fn is_whole(&self, deltas: u64) -> bool {
        self.end == End::Completed && self.gaps == 0 && self.deltas == deltas
    }
}

/// Reads the events of one stream.
#[derive(Debug)]
pub(super) struct Follower {
    tally: Arc<Tally>,
    outcome: Outcome,
    /// Bytes after the last complete line.
    rest: Vec<u8>,
    pub(super) ended: Option<End>,
}

impl Follower {
    pub(super) fn new(key: &str, tally: Arc<Tally>) -> Self {
        let outcome = Outcome {
            key: key.to_owned(),
            task: None,
            end: End::Abandoned,
            deltas: 0,
            bytes: 0,
            sum: TextSum::default(),
            gaps: 0,
            repeats: 0,
            frames: 0,
        };
        Self { tally, outcome, rest: Vec::new(), ended: None }
    }

    /// Processes the complete lines in `rest`.
    fn read_lines(&mut self) {
        let now = clock::monotonic_ns();
        let rest = std::mem::take(&mut self.rest);
        let mut left = rest.as_slice();
        while let Some(end) = memchr(b'\n', left) {
            self.line(left[..end].trim_ascii_end(), now);
            left = &left[end + 1..];
        }
        let done = rest.len() - left.len();
        self.rest = rest;
        self.rest.drain(..done);
    }

    fn line(&mut self, line: &[u8], now: u64) {
        if let Some(data) = line.strip_prefix(b"data:") {
            self.event(data, now);
        }
    }

    /// An event in JSON.
    pub(super) fn event(&mut self, data: &[u8], now: u64) {
        if self.outcome.frames == 0 {
            self.outcome.task = task_of(data);
        }
        if !self.text(data, now) && self.ended.is_none() {
            self.ended = end_of(data);
        }
    }

    /// An event over gRPC.
    pub(super) fn message(&mut self, event: &StreamedMessage<'_>, now: u64) {
        if self.outcome.frames == 0 {
            self.outcome.task = event.task.map(|task| String::from_utf8_lossy(task).into_owned());
        }
        let text: Vec<u8> = event.texts.concat();
        if !self.text(&text, now) && self.ended.is_none() {
            self.ended = event.state.and_then(grpc::end_of);
        }
    }

    /// Finds the deltas in the text of one event. Returns whether there are any.
    fn text(&mut self, data: &[u8], now: u64) -> bool {
        let outcome = &mut self.outcome;
        let mut counts = self.tally.lock();
        let is_counted = counts.window.has(now);
        counts.started += u64::from(outcome.frames == 0);
        outcome.frames += 1;
        counts.frames_in_window += u64::from(is_counted);
        let mut has_deltas = false;
        for stamp in stamp::find(data) {
            has_deltas = true;
            if stamp.number < outcome.deltas {
                outcome.repeats += 1;
                continue;
            }
            outcome.gaps += stamp.number - outcome.deltas;
            outcome.deltas = stamp.number + 1;
            outcome.bytes += u64::try_from(stamp.text.len()).unwrap_or_default();
            outcome.sum.add(stamp.text);
            counts.deltas += 1;
            counts.in_window += u64::from(is_counted);
            if counts.window.has(stamp.made_ns) {
                counts.delays.record(now.saturating_sub(stamp.made_ns));
            }
        }
        has_deltas
    }

    pub(super) fn finished(mut self, broke: Option<String>) -> Outcome {
        self.outcome.end = match (self.ended, broke) {
            (Some(end), _) => end,
            (None, Some(why)) => End::Cut(why),
            (None, None) => End::Cut("the stream ended before the task".to_owned()),
        };
        self.outcome
    }
}

/// Sends a prompt over a binding, and follows the stream to its end.
pub async fn open_stream(
    target: &Target,
    binding: Binding,
    prompt: &Prompt<'_>,
    tally: Arc<Tally>,
) -> Outcome {
    let Prompt { key, message, text } = *prompt;
    let mut follower = Follower::new(key, tally);
    let done = match binding {
        Binding::JsonRpc => follow(target, &target.stream(message, text), &mut follower).await,
        Binding::Rest => follow(target, &target.stream_rest(message, text), &mut follower).await,
        Binding::WebSocket => {
            websocket::follow(target, &target.stream_body(message, text), &mut follower).await
        }
        Binding::Grpc => grpc::follow(target, message, text, &mut follower).await,
    };
    match done {
        Ok(()) => follower.finished(None),
        Err(error) => follower.finished(Some(format!("{error:#}"))),
    }
}

async fn follow(target: &Target, request: &[u8], follower: &mut Follower) -> Result<()> {
    let mut connection = Connection::open(target.address).await?;
    connection.write(request).await?;
    let head = connection.head().await?;
    if head.status != 200 || !head.content_type.starts_with("text/event-stream") {
        let body = connection.body(head.body).await?;
        let code =
            serde_json::from_slice::<Value>(&body).ok().and_then(|body| body["error"]["code"].as_i64());
        follower.ended = Some(End::Refused(head.status, code));
        return Ok(());
    }
    match head.body {
        BodyKind::Chunked => {
            let mut chunks = Chunks::default();
            while connection.piece(&mut chunks, &mut follower.rest).await? {
                follower.read_lines();
            }
            follower.read_lines();
        }
        kind => {
            follower.rest = connection.body(kind).await?;
            follower.read_lines();
        }
    }
    Ok(())
}

/// The task id in a first event, in either protocol version.
fn task_of(data: &[u8]) -> Option<String> {
    let mut event: Value = serde_json::from_slice(data).ok()?;
    let result = event.get_mut("result").map(Value::take).unwrap_or(event);
    let ids = [&result["task"]["id"], &result["statusUpdate"]["taskId"], &result["taskId"], &result["id"]];
    ids.into_iter().find_map(Value::as_str).map(str::to_owned)
}

/// The end of the task, if the event reports it.
fn end_of(data: &[u8]) -> Option<End> {
    // The versions differ only in the spelling of the state.
    let has = |word: &[u8]| memmem::find(data, word).is_some();
    if has(b"\"TASK_STATE_COMPLETED\"") || has(b"\"state\":\"completed\"") || has(b"\"state\": \"completed\"")
    {
        return Some(End::Completed);
    }
    if has(b"\"error\":{") && has(b"\"code\":") {
        let code = serde_json::from_slice::<Value>(data).ok().and_then(|body| body["error"]["code"].as_i64());
        return code.map(|code| End::Refused(200, Some(code)));
    }
    let others = ["FAILED", "CANCELED", "REJECTED", "AUTH_REQUIRED"];
    let other = others.into_iter().find(|state| {
        has(format!("\"TASK_STATE_{state}\"").as_bytes())
            || has(format!("\"state\":\"{}\"", state.to_ascii_lowercase().replace('_', "-")).as_bytes())
    });
    other.map(|state| End::Otherwise(state.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(numbers: std::ops::Range<u64>) -> String {
        let mut text = String::new();
        numbers.for_each(|number| stamp::write(&mut text, number, 24));
        text
    }

    fn read(body: &str, cut: usize) -> (Outcome, Counts) {
        let tally = Arc::new(Tally::default());
        tally.lock().window = Window { from_ns: 0, to_ns: u64::MAX };
        let mut follower = Follower::new("k", Arc::clone(&tally));
        for piece in body.as_bytes().chunks(cut) {
            follower.rest.extend_from_slice(piece);
            follower.read_lines();
        }
        let counts = tally.lock().clone();
        (follower.finished(None), counts)
    }

    #[test]
    fn a_stream_is_read_in_both_versions_however_it_is_split() {
        let whole = text(0..5);
        let v1 = format!(
            "id: 1\ndata: {{\"result\":{{\"task\":{{\"id\":\"t1\"}}}}}}\n\n: ping\n\ndata: {{\"text\":\"{}\"}}\r\n\r\n\
             data: {{\"text\":\"{}\"}}\n\ndata: {{\"state\":\"TASK_STATE_COMPLETED\"}}\n\n",
            &whole[..72],
            &whole[72..]
        );
        let v03 = v1.replace("{\"task\":{\"id\":\"t1\"}}", "{\"kind\":\"task\",\"id\":\"t1\"}");
        let v03 = v03.replace("TASK_STATE_COMPLETED", "completed");
        for (body, cut) in [(&v1, 1), (&v1, 7), (&v1, 4096), (&v03, 13)] {
            let (outcome, counts) = read(body, cut);
            assert_eq!(outcome.end, End::Completed);
            assert_eq!(outcome.task.as_deref(), Some("t1"));
            assert_eq!((outcome.deltas, outcome.gaps, outcome.repeats, outcome.frames), (5, 0, 0, 4));
            assert_eq!((outcome.sum, outcome.bytes), (TextSum::of(whole.as_bytes()), 120));
            assert_eq!(
                (counts.deltas, counts.in_window, counts.delays.count(), counts.started),
                (5, 5, 5, 1)
            );
        }
    }

    #[test]
    fn missing_and_repeated_deltas_are_counted_separately() {
        let body = format!("data: \"{}\"\n\ndata: \"{}\"\n\n", text(0..2), text(3..4));
        let (outcome, _) = read(&body, 50);
        assert_eq!((outcome.deltas, outcome.gaps, outcome.repeats), (4, 1, 0));
        assert!(matches!(outcome.end, End::Cut(_)));
        let body = format!("data: \"{}\"\n\ndata: \"{}\"\n\n", text(0..2), text(0..2));
        let (outcome, counts) = read(&body, 50);
        assert_eq!((outcome.deltas, outcome.gaps, outcome.repeats, counts.deltas), (2, 0, 2, 2));
    }

    #[test]
    fn other_ends_are_recognized() {
        let end = |event: &str| end_of(event.as_bytes());
        assert_eq!(end(r#"{"state":"TASK_STATE_FAILED"}"#), Some(End::Otherwise("failed".to_owned())));
        assert_eq!(end(r#"{"state":"canceled"}"#), Some(End::Otherwise("canceled".to_owned())));
        assert_eq!(end(r#"{"error":{"code":-31062}}"#), Some(End::Refused(200, Some(-31062))));
        assert_eq!(end(r#"{"state":"TASK_STATE_WORKING"}"#), None);
    }
}
