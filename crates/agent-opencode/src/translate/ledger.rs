//! Adds up the tokens that a turn used: those of its own steps and of its sub-agents.

use std::collections::HashMap;

use longshore_model::Usage;

use crate::api::{Message, Part};

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The usage by message. The entries are boxed, because a map first allocates room for three entries, and most turns have one.
    by_message: HashMap<String, Box<Entry>>,
    reported: Usage,
    /// Whether entries have changed since the last report.
    is_stale: bool,
    /// The `since` of the last report. Messages of sub-agents counted from this time on.
    since: Option<f64>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The creation time of a sub-agent's message. Messages older than the turn do not count, because a sub-agent may have worked
    /// for an earlier turn. `None`: a message of the turn itself.
    child_created: Option<f64>,
    /// The usage in the message itself. If the message has several steps, this covers only the last one.
    message: Usage,
    /// The usage of the message's steps, by part id.
    steps: HashMap<String, Usage>,
}

impl Ledger {
    /// Records the usage in a message of the turn.
    pub(super) fn message(&mut self, info: &Message) {
        self.enter(info);
    }

    /// Records the usage in a message of a sub-agent.
    pub(super) fn child_message(&mut self, info: &Message) {
        if info.role != "user" {
            self.enter(info).child_created = Some(info.time.created);
        }
    }

    /// Records the usage at the end of a step of the turn.
    pub(super) fn step(&mut self, part: &Part) {
        if let Some(tokens) = &part.tokens {
            self.is_stale = true;
            let entry = self.by_message.entry(part.message.clone()).or_default();
            entry.steps.insert(part.id.clone(), tokens.usage(part.cost));
        }
    }

    /// The total, if it has changed since the last report. Messages of sub-agents count from `since` on.
    pub(super) fn changed_total(&mut self, since: Option<f64>) -> Option<Usage> {
        // Checked first, because most events are text and change no usage, and a turn can have many messages.
        if !std::mem::take(&mut self.is_stale) && self.since == since {
            return None;
        }
        self.since = since;
        let counts = |entry: &&Entry| {
            entry.child_created.is_none_or(|created| since.is_some_and(|since| created >= since))
        };
        let entries = self.by_message.values().map(Box::as_ref);
        let sum = entries.filter(counts).map(Entry::usage).fold(Usage::default(), Usage::plus);
        (sum != self.reported).then(|| {
            self.reported = sum;
            sum
        })
    }

    fn enter(&mut self, info: &Message) -> &mut Entry {
        self.is_stale = true;
        let entry = self.by_message.entry(info.id.clone()).or_default();
        let usage = info.tokens.as_ref().map(|tokens| tokens.usage(info.cost)).unwrap_or_default();
        // A message has no usage at first, and an older snapshot of it may arrive late. So the usage must never shrink.
        if usage.total >= entry.message.total {
            entry.message = usage;
        }
        entry
    }
}

impl Entry {
    fn usage(&self) -> Usage {
        if self.steps.is_empty() {
            return self.message;
        }
        self.steps.values().copied().fold(Usage::default(), Usage::plus)
    }
}
