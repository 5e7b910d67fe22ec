//! What the model was asked, and how often: for tests, and for people who wonder what OpenCode sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use tokio::sync::watch;

use crate::reply;
use crate::request::{Asked, Media, Purpose, digest};
use crate::script::Directive;

/// Older requests are forgotten when there are more; `total` still counts them.
const MAX_REQUESTS: usize = 10_000;

/// At so many counted directives the counts begin anew: a script would have to fail for ten thousand turns.
const MAX_COUNTERS: usize = 10_000;

/// How much of a text of the conversation is kept.
const EXCERPT: usize = 600;

/// One chat request.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// 0 for the first request since the start or the last reset.
    pub number: u64,
    pub purpose: Purpose,
    /// What answered it; none for the greeting, a title, a summary, or the end of a script.
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

/// How often a directive that can fail was asked for, at one place of one conversation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Place {
    pub session: String,
    /// 0 for a directive whose attempts are counted over all prompts.
    pub user_messages: usize,
    pub step: usize,
    pub name: String,
    /// Tells apart directives of one name with different arguments.
    pub digest: String,
}

/// Numbers that say how much happened; they can be waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Chat requests since the start or the last reset.
    pub requests: u64,
    /// Answers under way now.
    pub active: u64,
}

#[derive(Debug, Default)]
pub struct Journal {
    pages: Mutex<Pages>,
    counts: watch::Sender<Counts>,
}

#[derive(Debug, Default)]
struct Pages {
    entries: VecDeque<Entry>,
    attempts: BTreeMap<Place, u64>,
}

/// What `GET /_log` answers.
#[derive(Debug, Serialize)]
pub(crate) struct Copy {
    total: u64,
    requests: Vec<Entry>,
    attempts: Vec<Attempts>,
}

#[derive(Debug, Serialize)]
struct Attempts {
    #[serde(flatten)]
    place: Place,
    attempts: u64,
}

/// An answer under way. Dropped when it is said or when the client has left.
#[derive(Debug)]
pub(crate) struct Active(watch::Sender<Counts>);

impl Journal {
    /// The requests that are kept, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.pages().entries.iter().cloned().collect()
    }

    /// The steps of turns among [`Self::entries`]: no titles, no summaries.
    pub fn turns(&self) -> Vec<Entry> {
        let mut entries = self.entries();
        entries.retain(|entry| entry.purpose == Purpose::Turn);
        entries
    }

    pub fn attempts(&self) -> BTreeMap<Place, u64> {
        self.pages().attempts.clone()
    }

    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// Waits until the counts are as wanted. Bound it with a timeout.
    pub async fn wait_for(&self, wanted: impl FnMut(&Counts) -> bool) -> Counts {
        let mut counts = self.counts.subscribe();
        // The sender lives in `self`, so that it cannot be gone.
        counts.wait_for(wanted).await.map_or_else(|_| self.counts(), |counts| *counts)
    }

    /// Forgets the requests and the attempts.
    pub fn reset(&self) {
        *self.pages() = Pages::default();
        self.counts.send_modify(|counts| counts.requests = 0);
    }

    /// Takes a request down and says which attempt at its directive it is.
    pub(crate) fn record(&self, asked: &Asked) -> u64 {
        let directive = asked.directive();
        let mut pages = self.pages();
        let attempt = directive
            .filter(|directive| reply::fails_only(directive).is_some())
            .map_or(1, |directive| pages.count(place(asked, directive)));
        if pages.entries.len() == MAX_REQUESTS {
            pages.entries.pop_front();
        }
        pages.entries.push_back(Entry {
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
        // Under the lock, so that whoever sees the count also finds the entry.
        self.counts.send_modify(|counts| counts.requests += 1);
        attempt
    }

    pub(crate) fn begin(&self) -> Active {
        self.counts.send_modify(|counts| counts.active += 1);
        Active(self.counts.clone())
    }

    pub(crate) fn copy(&self) -> Copy {
        let pages = self.pages();
        Copy {
            total: self.counts.borrow().requests,
            requests: pages.entries.iter().cloned().collect(),
            attempts: pages
                .attempts
                .iter()
                .map(|(place, attempts)| Attempts { place: place.clone(), attempts: *attempts })
                .collect(),
        }
    }

    fn pages(&self) -> std::sync::MutexGuard<'_, Pages> {
        // A panic while it was held leaves at worst one entry too few.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    fn count(&mut self, place: Place) -> u64 {
        if self.attempts.len() >= MAX_COUNTERS && !self.attempts.contains_key(&place) {
            self.attempts.clear();
        }
        let attempts = self.attempts.entry(place).or_default();
        *attempts += 1;
        *attempts
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.send_modify(|counts| counts.active -= 1);
    }
}

fn place(asked: &Asked, directive: &Directive) -> Place {
    // Nobody tries a key again that was refused: the next attempt is the next prompt.
    let is_tried_again = directive.name != "auth";
    Place {
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
