//! Builds the text of one text or reasoning part from its deltas and snapshots.

mod sent;

use longshore_model::{AgentEvent, Artifact, BlockRef};

use self::sent::SentText;

#[derive(Debug)]
pub(super) struct TextBlock {
    block: BlockRef,
    /// The text that was reported so far.
    sent: SentText,
    phase: Phase,
    /// Whether the log already contains the end of this text. Reset if the text changes nevertheless.
    end_is_known: bool,
    /// Whether the log contains a later block of the same message, which means that this text is complete.
    is_followed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Every delta since the start of the part has arrived, so the next one continues `sent`.
    Live,
    /// Some deltas were missed, so further deltas are ignored. The final snapshot contains the whole text.
    Incomplete,
    /// The final snapshot has arrived.
    Ended,
    /// The attempt that wrote the text failed, or a user deleted it.
    Withdrawn,
}

impl TextBlock {
    pub(super) fn new(block: BlockRef) -> Self {
        Self {
            block,
            sent: SentText::default(),
            phase: Phase::Incomplete,
            end_is_known: false,
            is_followed: false,
        }
    }

    /// Restores a block from the log, which may contain all, some or none of its text.
    pub(super) fn resumed(
        block: BlockRef,
        artifact: &Artifact,
        end_is_known: bool,
        is_followed: bool,
    ) -> Self {
        let mut sent = SentText::default();
        artifact.parts.iter().filter_map(|part| part.as_text()).for_each(|text| sent.push(text));
        Self { sent, end_is_known, is_followed, ..Self::new(block) }
    }

    pub(super) fn is_in(&self, message: &str) -> bool {
        self.block.message.as_ref().is_some_and(|mine| mine.as_str() == message)
    }

    /// Whether OpenCode may have written more text than the gateway received.
    pub(super) fn is_incomplete(&self) -> bool {
        self.phase == Phase::Incomplete && !self.is_followed
    }

    pub(super) fn gap(&mut self) {
        if self.phase == Phase::Live {
            self.phase = Phase::Incomplete;
        }
    }

    /// Appends a delta.
    pub(super) fn append(&mut self, delta: &str, out: &mut Vec<AgentEvent>) {
        if self.phase == Phase::Live && !delta.is_empty() {
            self.sent.push(delta);
            match out.last_mut() {
                // The delta is appended to an event that was not taken yet.
                Some(AgentEvent::Text { block, text }) if *block == self.block => text.push_str(delta),
                _ => out.push(AgentEvent::Text { block: self.block.clone(), text: delta.to_owned() }),
            }
        }
    }

    /// Merges a snapshot from the stream that is not final, but shows the start of the part or its text so far.
    pub(super) fn open(&mut self, text: &str, out: &mut Vec<AgentEvent>) {
        // A snapshot shorter than the sent text is outdated, and the deltas after it may be outdated too.
        let older = self.sent.begins_with(text);
        if self.is_open() && !older {
            self.merge_text(text, out);
            self.phase = Phase::Live;
        }
    }

    /// Merges the final snapshot, and ends the text.
    pub(super) fn ended(&mut self, text: &str, out: &mut Vec<AgentEvent>) {
        if self.phase == Phase::Withdrawn {
            self.phase = Phase::Incomplete;
        }
        self.merge_text(text, out);
        self.end(out);
    }

    /// Ends the text.
    pub(super) fn end(&mut self, out: &mut Vec<AgentEvent>) {
        if self.is_open() {
            self.phase = Phase::Ended;
            self.sent.seal();
            if !self.end_is_known && !self.sent.is_empty() {
                out.push(AgentEvent::TextEnded { block: self.block.clone() });
            }
        }
    }

    /// Withdraws an unfinished text, because the attempt that wrote it failed.
    pub(super) fn withdraw(&mut self, out: &mut Vec<AgentEvent>) {
        if self.is_open() {
            self.remove(out);
        }
    }

    /// Withdraws the text, because a user deleted the part.
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
                self.sent = SentText::default();
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
