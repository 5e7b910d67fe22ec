//! Reads a table of the file that is no section, such as one `[[agents]]` or `[[peers]]`.

use std::time::Duration;

use longshore_model::nearest::did_you_mean;
use serde_json::{Map, Value};

use super::problem::Problem;
use super::read::{Reader, Written};
use super::setting::LONGEST;

/// A table that is being checked.
pub(super) struct Table<'r, 'a> {
    pub reader: &'r mut Reader<'a>,
    pub written: &'r Written,
    /// Where the table is, such as `agents[0]`.
    pub at: String,
    pub fields: &'r Map<String, Value>,
    /// No problem was found so far.
    pub is_good: bool,
}

impl Table<'_, '_> {
    pub(super) fn check_names(&mut self, known: &[&str]) {
        for name in self.fields.keys().filter(|name| !known.contains(&name.as_str())) {
            let hint = did_you_mean(name, known.iter().copied());
            self.wrong(name, &format!("there is no such field{hint}"));
        }
    }

    pub(super) fn required(&mut self, name: &str) -> Option<String> {
        if !self.fields.contains_key(name) {
            self.wrong(name, "is required");
        }
        self.text(name)
    }

    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        match self.fields.get(name)? {
            Value::String(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
            _ => {
                self.wrong(name, "must be a text that is not empty");
                None
            }
        }
    }

    /// `None`: not given, or a problem.
    pub(super) fn seconds(&mut self, name: &str, reason: &str, shortest: Duration) -> Option<Duration> {
        let seconds = match self.fields.get(name)? {
            Value::Number(seconds) => seconds.as_f64(),
            // The file's numbers with a fraction come as text.
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let duration = duration.filter(|duration| (shortest..=LONGEST).contains(duration));
        if duration.is_none() {
            self.wrong(name, reason);
        }
        duration
    }

    /// Notes a problem with a field, or with the whole table if the name is empty.
    pub(super) fn wrong(&mut self, name: &str, reason: &str) {
        self.is_good = false;
        let dot = if name.is_empty() { "" } else { "." };
        let problem = format!("{} ({}{dot}{name}): {reason}", self.written.source, self.at);
        self.reader.problem(Problem(problem));
    }
}
