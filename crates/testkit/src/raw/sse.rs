//! Reads server-sent events frame by frame, and disconnects where the test asks for it.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::Response;
use serde_json::Value;

/// One event of a stream.
#[derive(Clone, PartialEq, Debug)]
pub struct Frame {
    /// The sequence number: the part of the `id:` before its epoch.
    pub id: Option<u64>,
    /// The `id:` as received.
    pub cursor: Option<String>,
    /// The stream response. Of a JSON-RPC frame, its `result` if there is one.
    pub json: Value,
}

/// A stream that is being read.
#[derive(Debug)]
pub struct Frames {
    response: Option<Response>,
    pub headers: http::HeaderMap,
    /// Received bytes that are not a complete frame yet.
    rest: Vec<u8>,
    ready: VecDeque<Frame>,
    comments: Vec<String>,
    retry: Option<Duration>,
    last_id: Option<u64>,
    last_cursor: Option<String>,
    /// How many more bytes are read before the connection is dropped.
    allowance: usize,
}

impl Frames {
    pub(super) fn new(response: Response) -> Self {
        let headers = response.headers().clone();
        Self {
            response: Some(response),
            headers,
            rest: Vec::new(),
            ready: VecDeque::new(),
            comments: Vec::new(),
            retry: None,
            last_id: None,
            last_cursor: None,
            allowance: usize::MAX,
        }
    }

    /// Drops the connection after this many bytes of the body, wherever that is.
    #[must_use]
    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.allowance = bytes;
        self
    }

    /// The next frame. `None` when the stream has ended or was cut.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                self.last_id = frame.id.or(self.last_id);
                self.last_cursor = frame.cursor.clone().or(self.last_cursor.take());
                return Some(frame);
            }
            let chunk = self.response.as_mut()?.chunk().await;
            // A broken connection ends the stream.
            let Ok(Some(mut chunk)) = chunk else {
                self.response = None;
                return None;
            };
            chunk.truncate(self.allowance);
            self.allowance -= chunk.len();
            if self.allowance == 0 {
                self.response = None;
            }
            self.take(&chunk);
        }
    }

    /// All frames to the end.
    pub async fn all(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// The sequence number of the last returned event.
    pub fn last_id(&self) -> Option<u64> {
        self.last_id
    }

    /// The `id:` of the last returned event, with which a client resumes.
    pub fn last_cursor(&self) -> Option<&str> {
        self.last_cursor.as_deref()
    }

    /// The comments so far.
    pub fn comments(&self) -> &[String] {
        &self.comments
    }

    /// The last `retry:` interval, if the stream sent one.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.windows(2).position(|window| window == b"\n\n") {
            let frame: Vec<u8> = self.rest.drain(..end + 2).collect();
            self.frame(&String::from_utf8(frame).expect("the stream is UTF-8"));
        }
    }

    fn frame(&mut self, text: &str) {
        let (mut cursor, mut data) = (None, String::new());
        for line in text.lines() {
            match line.split_once(':') {
                Some(("", comment)) => self.comments.push(comment.trim().to_owned()),
                Some(("id", value)) => cursor = Some(value.trim().to_owned()),
                Some(("retry", value)) => {
                    let milliseconds = value.trim().parse().expect("`retry:` is a number");
                    self.retry = Some(Duration::from_millis(milliseconds));
                }
                Some(("data", value)) => data.push_str(value.strip_prefix(' ').unwrap_or(value)),
                _ => {}
            }
        }
        if !data.is_empty() {
            let json: Value = serde_json::from_str(&data).expect("a frame is JSON");
            let json = if json["result"].is_object() { json["result"].clone() } else { json };
            let number = |cursor: &String| cursor.split('.').next()?.parse().ok();
            self.ready.push_back(Frame { id: cursor.as_ref().and_then(number), cursor, json });
        }
    }
}
