//! One text or reasoning part: its deltas and its snapshots, merged.

mod sent;

use longshore_model::{AgentEvent, Artifact, BlockRef};

use self::sent::Sent;

#[derive(Debug)]
pub(super) struct TextBlock {
    block: BlockRef,
    /// What was reported so far.
    sent: Sent,
    phase: Phase,
    /// The log says already that no more text will come, unless the text turns out to be another.
    end_is_known: bool,
    /// The message goes on behind it, so the text came to its end.
    is_followed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Every delta since the start of the part was seen, so the next one continues `sent`.
    Live,
    /// Some deltas were missed, so the next ones say nothing. The final snapshot will.
    Incomplete,
    /// The final snapshot was seen.
    Ended,
    /// OpenCode gave it up.
    Withdrawn,
}

impl TextBlock {
    pub(super) fn new(block: BlockRef) -> Self {
        Self { block, sent: Sent::default(), phase: Phase::Incomplete, end_is_known: false, is_followed: false }
    }

    /// A block of which the log has some text, all of it or none.
    pub(super) fn resumed(
        block: BlockRef,
        artifact: &Artifact,
        end_is_known: bool,
        is_followed: bool,
    ) -> Self {
        let mut sent = Sent::default();
        artifact.parts.iter().filter_map(|part| part.as_text()).for_each(|text| sent.push(text));
        Self { sent, end_is_known, is_followed, ..Self::new(block) }
    }

    pub(super) fn is_in(&self, message: &str) -> bool {
        self.block.message.as_ref().is_some_and(|mine| mine.as_str() == message)
    }

    /// More may have been written than was completeness.
    pub(super) fn is_incomplete(&self) -> bool {
        self.phase == Phase::Incomplete && !self.is_followed
    }

    pub(super) fn gap(&mut self) {
        if self.phase == Phase::Live {
            self.phase = Phase::Incomplete;
        }
    }

    /// A delta.
    pub(super) fn append(&mut self, delta: &str, out: &mut Vec<AgentEvent>) {
        if self.phase == Phase::Live && !delta.is_empty() {
            self.sent.push(delta);
            match out.last_mut() {
                // It waits together with what came before, and is told together with it.
                Some(AgentEvent::Text { block, text }) if *block == self.block => text.push_str(delta),
                _ => out.push(AgentEvent::Text { block: self.block.clone(), text: delta.to_owned() }),
            }
        }
    }

    /// A snapshot from the stream that is not final: the start of the part, or its text so far.
    pub(super) fn open(&mut self, text: &str, out: &mut Vec<AgentEvent>) {
        // Shorter than what was sent: it is older, and the deltas after it may be older too.
        let older = self.sent.begins_with(text);
        if self.is_open() && !older {
            self.merge_text(text, out);
            self.phase = Phase::Live;
        }
    }

    /// The final snapshot.
    pub(super) fn ended(&mut self, text: &str, out: &mut Vec<AgentEvent>) {
        if self.phase == Phase::Withdrawn {
            self.phase = Phase::Incomplete;
        }
        self.merge_text(text, out);
        self.end(out);
    }

    /// No more text will come.
    pub(super) fn end(&mut self, out: &mut Vec<AgentEvent>) {
        if self.is_open() {
            self.phase = Phase::Ended;
            self.sent.seal();
            if !self.end_is_known && !self.sent.is_empty() {
                out.push(AgentEvent::TextEnded { block: self.block.clone() });
            }
        }
    }

    /// The attempt that wrote this failed.
    pub(super) fn withdraw(&mut self, out: &mut Vec<AgentEvent>) {
        if self.is_open() {
            self.remove(out);
        }
    }

    /// Somebody deleted the part.
    pub(super) fn remove(&mut self, out: &mut Vec<AgentEvent>) {
        self.phase = Phase::Withdrawn;
        self.merge_text("", out);
    }

    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Live | Phase::Incomplete)
    }

    fn merge_text(&mut self, text: &str, out: &mut Vec<AgentEvent>) {
        let block = self.block.clone();
        match self.sent.rest_of(text) {
            Some("") => return,
            Some(suffix) => {
                self.sent.push(suffix);
                out.push(AgentEvent::Text { block, text: suffix.to_owned() });
            }
            None => {
                self.sent = Sent::default();
                self.sent.push(text);
                out.push(AgentEvent::TextReplaced { block, text: text.to_owned() });
            }
        }
        if !self.is_open() {
            self.sent.seal();
        }
        self.end_is_known = false;
    }
}
