//! The log of requests: complete, or only the newest where a long run would fill the memory.

use std::collections::VecDeque;

use serde_json::Value;

/// A request that reached the fake.
#[derive(Clone, PartialEq, Debug)]
pub struct LoggedRequest {
    pub method: String,
    /// Path and query as received, byte for byte.
    pub target: String,
    /// Without the query, still percent-encoded.
    pub path: String,
    /// Decoded.
    pub query: Vec<(String, String)>,
    /// Null when there was none, a string when it was not JSON.
    pub body: Value,
    /// The directory that the request is for, resolved.
    pub directory: String,
    /// The header of that name.
    pub traceparent: Option<String>,
    /// The request is a prompt that came while a turn of its session was running.
    pub while_busy: bool,
    /// The request came from a `OtherClient`, not from a gateway.
    pub(super) is_typed: bool,
}

impl LoggedRequest {
    /// The first value of that name in the query.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Positions in the log stay valid when the oldest requests are dropped.
#[derive(Debug)]
pub(super) struct RequestLog {
    dropped: usize,
    kept: VecDeque<LoggedRequest>,
    /// Method and target of every request, including those that a fault kept from being answered.
    arrived: VecDeque<String>,
    limit: usize,
}

impl Default for RequestLog {
    fn default() -> Self {
        Self { dropped: 0, kept: VecDeque::new(), arrived: VecDeque::new(), limit: usize::MAX }
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

    /// Adds a request and returns the position after it.
    pub(super) fn push(&mut self, request: LoggedRequest) -> usize {
        self.kept.push_back(request);
        while self.kept.len() > self.limit {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.dropped + self.kept.len()
    }

    /// The position after the first matching request from `since` on.
    pub(super) fn find(&self, since: usize, matches: impl Fn(&LoggedRequest) -> bool) -> Option<usize> {
        let skipped = since.saturating_sub(self.dropped);
        let index = self.kept.iter().skip(skipped).position(matches)?;
        Some(self.dropped + skipped + index + 1)
    }

    /// The requests that came over the network.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LoggedRequest> {
        self.kept.iter().filter(|request| !request.is_typed)
    }
}
