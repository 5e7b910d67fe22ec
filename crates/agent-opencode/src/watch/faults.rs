//! Remembers why OpenCode could not answer prompts of other clients.
//!
//! OpenCode reports such an error once, on its event stream, and does not store it in a message. The turn is over before a driver
//! can follow it, so the error is kept here for the driver.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::api::Fault;
use crate::reader::lock;

/// Maximum number of remembered errors. Each is needed only until its task is created, which happens at once.
const MAX_FAILED: usize = 64;

/// Errors by prompt id, the newest last.
#[derive(Debug, Default)]
pub(super) struct PromptFaults(Mutex<VecDeque<(String, Fault)>>);

impl PromptFaults {
    pub(super) fn note(&self, prompt: &str, fault: Fault) {
        let mut failed = lock(&self.0);
        if failed.len() >= MAX_FAILED {
            failed.pop_front();
        }
        failed.push_back((prompt.to_owned(), fault));
    }

    pub(super) fn find(&self, prompt: &str) -> Option<Fault> {
        lock(&self.0).iter().rev().find(|(known, _)| known == prompt).map(|(_, fault)| fault.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_errors_are_remembered() {
        let failed = PromptFaults::default();
        for number in 0..=MAX_FAILED {
            failed.note(&format!("msg_{number}"), Fault { name: number.to_string(), ..Fault::default() });
        }
        assert_eq!(failed.find("msg_0"), None);
        assert_eq!(failed.find("msg_1").map(|fault| fault.name).as_deref(), Some("1"));
    }
}
