//! Replaces ids, times and paths by names that are the same in every run, so that streams can be compared.

use std::collections::HashMap;

use serde_json::{Value, json};

/// Prefixes of ids that are numbered in the order in which they appear.
const NUMBERED: [&str; 6] = ["prt_", "ses_", "msg_", "per_", "que_", "call_"];

#[derive(Debug, Default)]
pub(crate) struct Names {
    known: Vec<(String, String)>,
    counts: HashMap<&'static str, usize>,
}

impl Names {
    /// Replaces `text` by `name`.
    pub(crate) fn call(&mut self, text: &str, name: &str) {
        if !text.is_empty() {
            self.known.push((text.to_owned(), name.to_owned()));
        }
    }

    pub(crate) fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| {
                    let value = match key.as_str() {
                        "timestamp" => json!("<time>"),
                        // These count events, and how many texts one event holds depends on the load.
                        "sequence" => json!("<sequence>"),
                        "event_id" => json!("<event>"),
                        "child_task_id" => json!(self.child(value.as_str().unwrap_or_default())),
                        _ => self.value(value),
                    };
                    (key.clone(), value)
                })
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }

    /// The tasks of sub-agents are numbered as well.
    fn child(&mut self, id: &str) -> String {
        if !self.known.iter().any(|(known, _)| known == id) {
            let count = self.counts.entry("child").or_default();
            *count += 1;
            let name = format!("<child {count}>");
            self.call(id, &name);
        }
        self.text(id)
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (known, name) in &self.known {
            text = text.replace(known, name);
        }
        while let Some((id, name)) = self.unnamed(&text) {
            text = text.replace(&id, &name);
            self.known.push((id, name));
        }
        text
    }

    /// The first id in the text without a name, and a name for it.
    fn unnamed(&mut self, text: &str) -> Option<(String, String)> {
        for prefix in NUMBERED {
            for (start, _) in text.match_indices(prefix) {
                let id: String =
                    text[start..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                // A name is shorter than any id.
                if id.len() >= prefix.len() + 10 {
                    let count = self.counts.entry(prefix).or_default();
                    *count += 1;
                    return Some((id, format!("{prefix}{count}")));
                }
            }
        }
        None
    }
}
