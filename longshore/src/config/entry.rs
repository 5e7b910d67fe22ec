//! Reads a table of the file that is not a section, such as one `[[agents]]` or `[[peers]]`.

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
    /// The position of the table in the file, such as `agents[0]`.
    pub at: String,
    pub fields: &'r Map<String, Value>,
    /// Whether no problem has been found yet.
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

    /// Reads a duration in seconds. `None`: it is missing, or a problem was found.
    pub(super) fn seconds(&mut self, name: &str, reason: &str, shortest: Duration) -> Option<Duration> {
        let seconds = match self.fields.get(name)? {
            Value::Number(seconds) => seconds.as_f64(),
            // Numbers with a fraction are text here.
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

    /// Records a problem with a field. If the name is empty, the problem is with the whole table.
    pub(super) fn wrong(&mut self, name: &str, reason: &str) {
        self.is_good = false;
        let dot = if name.is_empty() { "" } else { "." };
        let problem = format!("{} ({}{dot}{name}): {reason}", self.written.source, self.at);
        self.reader.problem(Problem(problem));
    }
}
