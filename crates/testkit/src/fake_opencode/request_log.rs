//! What the fake was asked: all of it, or the newest where a long run would fill the memory.

use std::collections::VecDeque;

use serde_json::Value;

/// A request that reached the fake.
#[derive(Clone, PartialEq, Debug)]
pub struct LoggedRequest {
    pub method: String,
    /// Path and query as they came, byte for byte.
    pub target: String,
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
    /// A typist's, not a gateway's.
    pub(super) is_typed: bool,
}

impl LoggedRequest {
    /// The first value of that name in the query.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Places in it stay what they are when the oldest requests are forgotten.
#[derive(Debug)]
pub(super) struct RequestLog {
    forgotten: usize,
    kept: VecDeque<LoggedRequest>,
    /// Method and target of whatever came, also of what a fault kept from being answered.
    arrived: VecDeque<String>,
    limit: usize,
}

impl Default for RequestLog {
    fn default() -> Self {
        Self { forgotten: 0, kept: VecDeque::new(), arrived: VecDeque::new(), limit: usize::MAX }
    }
}

impl RequestLog {
    pub(super) fn keep(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(super) fn arrive(&mut self, method: &str, target: &str) {
        self.arrived.push_back(format!("{method} {target}"));
        if self.arrived.len() > self.limit {
            self.arrived.pop_front();
        }
    }

    pub(super) fn arrived(&self) -> Vec<String> {
        self.arrived.iter().cloned().collect()
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

    /// What came over the network.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LoggedRequest> {
        self.kept.iter().filter(|request| !request.is_typed)
    }
}
