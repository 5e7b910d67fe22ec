//! The tokens that a turn used: the sum over its steps and over those of its sub-agents.

use std::collections::HashMap;

use longshore_model::Usage;

use crate::api::{Message, Part};

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// In boxes: a map allocates room for three entries at first, and most turns have one.
    by_message: HashMap<String, Box<Entry>>,
    reported: Usage,
    /// Entries changed since the last report.
    is_stale: bool,
    /// From when sub-agents' messages counted in the last report.
    since: Option<f64>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Creation time of a sub-agent's message. A sub-agent may have worked for an earlier turn as well.
    child_created: Option<f64>,
    /// The usage in the message itself. If the message has several steps, this covers only the last one.
    message: Usage,
    /// The usage of its steps, by part.
    steps: HashMap<String, Usage>,
}

impl Ledger {
    /// A message of the turn.
    pub(super) fn message(&mut self, info: &Message) {
        self.enter(info);
    }

    /// A message of a sub-agent.
    pub(super) fn child_message(&mut self, info: &Message) {
        if info.role != "user" {
            self.enter(info).child_created = Some(info.time.created);
        }
    }

    /// The end of a step of the turn.
    pub(super) fn step(&mut self, part: &Part) {
        if let Some(tokens) = &part.tokens {
            self.is_stale = true;
            let entry = self.by_message.entry(part.message.clone()).or_default();
            entry.steps.insert(part.id.clone(), tokens.usage(part.cost));
        }
    }

    /// The total, if it changed since the last report. Sub-agents' messages count from `since` on.
    pub(super) fn changed_total(&mut self, since: Option<f64>) -> Option<Usage> {
        // Most events are text and change no usage, and a turn can have many messages.
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
        // A message starts without usage, and an older snapshot may arrive late.
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
