//! Why somebody else's prompts could not be answered. OpenCode says so once, on its stream, and keeps no message of it: it is over
//! before anybody can follow it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::api::Fault;

/// So many are remembered, the newest: each is asked for as soon as its task is made.
const MAX_FAILED: usize = 64;

/// By the name of the prompt.
#[derive(Debug, Default)]
pub(super) struct PromptFaults(Mutex<VecDeque<(String, Fault)>>);

impl PromptFaults {
    pub(super) fn note(&self, prompt: &str, fault: Fault) {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.len() >= MAX_FAILED {
            failed.pop_front();
        }
        failed.push_back((prompt.to_owned(), fault));
    }

    pub(super) fn why(&self, prompt: &str) -> Option<Fault> {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.iter().rev().find(|(known, _)| known == prompt).map(|(_, fault)| fault.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered() {
        let failed = PromptFaults::default();
        for number in 0..=MAX_FAILED {
            failed.note(&format!("msg_{number}"), Fault { name: number.to_string(), ..Fault::default() });
        }
        assert_eq!(failed.why("msg_0"), None);
        assert_eq!(failed.why("msg_1").map(|fault| fault.name).as_deref(), Some("1"));
    }
}
