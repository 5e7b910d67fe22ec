//! The log of the requests to the model, and counts of them: for tests, and for people who want to see what OpenCode sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use tokio::sync::watch;

use crate::reply;
use crate::request::{Media, ParsedRequest, Purpose, digest};
use crate::script::Directive;

/// When there are more, the oldest requests are dropped; `total` still counts them.
const MAX_REQUESTS: usize = 10_000;

/// At so many counted directives all counts start again: a script would have to fail for ten thousand turns.
const MAX_COUNTERS: usize = 10_000;

/// How many characters of a text of the conversation are kept.
const EXCERPT: usize = 600;

/// One chat request.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// 0 for the first request since the start or the last reset.
    pub number: u64,
    pub purpose: Purpose,
    /// The directive that answered it; none for the greeting, a title, a summary, or the end of a script.
    pub directive: Option<Directive>,
    /// 1 unless the directive counts its attempts.
    pub attempt: u64,
    pub step: usize,
    pub session: String,
    pub parent_session: Option<String>,
    pub model: String,
    pub stream: bool,
    pub messages: usize,
    pub user_messages: usize,
    pub tools: Vec<String>,
    pub system: String,
    pub prompt: String,
    pub tool_results: Vec<String>,
    pub media: Vec<Media>,
}

/// Identifies a directive that can fail, at one step of one conversation. Its attempts are counted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct AttemptKey {
    pub session: String,
    /// 0 for a directive whose attempts are counted over all prompts.
    pub user_messages: usize,
    pub step: usize,
    pub name: String,
    /// Distinguishes directives with the same name and different arguments.
    pub digest: String,
}

/// Counts that a test can wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Chat requests since the start or the last reset.
    pub requests: u64,
    /// Replies in progress.
    pub active: u64,
}

#[derive(Debug, Default)]
pub struct Journal {
    log: Mutex<Log>,
    counts: watch::Sender<Counts>,
}

#[derive(Debug, Default)]
struct Log {
    entries: VecDeque<Entry>,
    attempts: BTreeMap<AttemptKey, u64>,
}

/// The answer to `GET /_log`.
#[derive(Debug, Serialize)]
pub(crate) struct LogCopy {
    total: u64,
    requests: Vec<Entry>,
    attempts: Vec<Attempts>,
}

#[derive(Debug, Serialize)]
struct Attempts {
    #[serde(flatten)]
    key: AttemptKey,
    attempts: u64,
}

/// A reply in progress. Dropped when it is complete or the client has left.
#[derive(Debug)]
pub(crate) struct ActiveReply(watch::Sender<Counts>);

impl Journal {
    /// The kept requests, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.iter().cloned().collect()
    }

    /// The requests of turns among [`Self::entries`]: no titles, no summaries.
    pub fn turns(&self) -> Vec<Entry> {
        let mut entries = self.entries();
        entries.retain(|entry| entry.purpose == Purpose::Turn);
        entries
    }

    pub fn attempts(&self) -> BTreeMap<AttemptKey, u64> {
        self.lock().attempts.clone()
    }

    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// Waits until the counts are as wanted. Bound it with a timeout.
    pub async fn wait_for(&self, wanted: impl FnMut(&Counts) -> bool) -> Counts {
        let mut counts = self.counts.subscribe();
        // `self` holds the sender, so that the channel stays open.
        counts.wait_for(wanted).await.map_or_else(|_| self.counts(), |counts| *counts)
    }

    /// Clears the requests and the attempts.
    pub fn reset(&self) {
        *self.lock() = Log::default();
        self.counts.send_modify(|counts| counts.requests = 0);
    }

    /// Logs a request and returns the number of the attempt at its directive.
    pub(crate) fn record(&self, asked: &ParsedRequest) -> u64 {
        let directive = asked.directive();
        let mut log = self.lock();
        let attempt = directive
            .filter(|directive| reply::fails_only(directive).is_some())
            .map_or(1, |directive| log.count(attempt_key(asked, directive)));
        if log.entries.len() == MAX_REQUESTS {
            log.entries.pop_front();
        }
        log.entries.push_back(Entry {
            number: self.counts.borrow().requests,
            purpose: asked.purpose,
            directive: directive.cloned(),
            attempt,
            step: asked.step,
            session: asked.session.id.clone(),
            parent_session: asked.session.parent.clone(),
            model: asked.model.clone(),
            stream: asked.stream,
            messages: asked.messages,
            user_messages: asked.user_messages,
            tools: asked.tools.clone(),
            system: excerpt(&asked.system),
            prompt: excerpt(&asked.prompt),
            tool_results: asked.tool_results.iter().map(|result| excerpt(result)).collect(),
            media: asked.media.clone(),
        });
        // Under the lock, so that a task that sees the count also finds the entry.
        self.counts.send_modify(|counts| counts.requests += 1);
        attempt
    }

    pub(crate) fn begin(&self) -> ActiveReply {
        self.counts.send_modify(|counts| counts.active += 1);
        ActiveReply(self.counts.clone())
    }

    pub(crate) fn copy(&self) -> LogCopy {
        let log = self.lock();
        LogCopy {
            total: self.counts.borrow().requests,
            requests: log.entries.iter().cloned().collect(),
            attempts: log
                .attempts
                .iter()
                .map(|(key, attempts)| Attempts { key: key.clone(), attempts: *attempts })
                .collect(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Log> {
        // A panic under the lock loses at most one entry.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn count(&mut self, key: AttemptKey) -> u64 {
        if self.attempts.len() >= MAX_COUNTERS && !self.attempts.contains_key(&key) {
            self.attempts.clear();
        }
        let attempts = self.attempts.entry(key).or_default();
        *attempts += 1;
        *attempts
    }
}

impl Drop for ActiveReply {
    fn drop(&mut self) {
        self.0.send_modify(|counts| counts.active -= 1);
    }
}

fn attempt_key(asked: &ParsedRequest, directive: &Directive) -> AttemptKey {
    // OpenCode does not retry a refused key: the next attempt is the next prompt.
    let is_tried_again = directive.name != "auth";
    AttemptKey {
        session: asked.session.id.clone(),
        user_messages: if is_tried_again { asked.user_messages } else { 0 },
        step: asked.step,
        name: directive.name.clone(),
        digest: digest(&directive.to_string()),
    }
}

fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => text[..end].to_owned(),
        None => text.to_owned(),
    }
}
