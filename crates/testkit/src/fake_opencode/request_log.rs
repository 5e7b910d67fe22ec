//! What the fake was asked: all of it, or the newest where a long run would fill the memory.

use std::collections::VecDeque;

use serde_json::Value;

/// A request that reached the fake.
#[derive(Clone, PartialEq, Debug)]
pub struct LoggedRequest {
    pub method: String,
    /// Without the query, still percent-encoded.
    pub path: String,
    /// Decoded.
    pub query: Vec<(String, String)>,
    /// Null when there was none, a string when it was no JSON.
    pub body: Value,
    /// The directory that the request was for, resolved.
    pub directory: String,
    /// The header of that name.
    pub traceparent: Option<String>,
    /// A prompt that came while a turn of its session still ran.
    pub while_busy: bool,
}

/// Places in it stay what they are when the oldest requests are forgotten.
#[derive(Debug)]
pub(super) struct RequestLog {
    forgotten: usize,
    kept: VecDeque<LoggedRequest>,
    limit: usize,
}

impl Default for RequestLog {
    fn default() -> Self {
        Self { forgotten: 0, kept: VecDeque::new(), limit: usize::MAX }
    }
}

impl RequestLog {
    pub(super) fn keep(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Adds a request and gives the place behind it.
    pub(super) fn push(&mut self, request: LoggedRequest) -> usize {
        self.kept.push_back(request);
        while self.kept.len() > self.limit {
            self.kept.pop_front();
            self.forgotten += 1;
        }
        self.forgotten + self.kept.len()
    }

    /// The place behind the first such request from `since` on.
    pub(super) fn find(&self, since: usize, matches: impl Fn(&LoggedRequest) -> bool) -> Option<usize> {
        let skipped = since.saturating_sub(self.forgotten);
        let place = self.kept.iter().skip(skipped).position(matches)?;
        Some(self.forgotten + skipped + place + 1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LoggedRequest> {
        self.kept.iter()
    }
}
