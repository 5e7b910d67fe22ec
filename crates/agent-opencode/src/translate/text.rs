//! One text or reasoning part: its deltas and its snapshots, merged.

use longshore_model::{AgentEvent, Artifact, ArtifactId, BlockKind};

#[derive(Debug)]
pub(super) struct TextBlock {
    kind: BlockKind,
    message: String,
    /// What was reported so far.
    sent: String,
    phase: Phase,
    /// The log says already that no more text will come, unless the text turns out to be another.
    end_is_known: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Every delta since the start of the part was seen, so the next one continues `sent`.
    Live,
    /// Some deltas were missed, so the next ones say nothing. The final snapshot will.
    Deaf,
    /// The final snapshot was seen.
    Ended,
    /// OpenCode gave it up.
    Withdrawn,
}

impl TextBlock {
    pub(super) fn new(kind: BlockKind, message: &str) -> Self {
        Self {
            kind,
            message: message.to_owned(),
            sent: String::new(),
            phase: Phase::Deaf,
            end_is_known: false,
        }
    }

    /// A block of which the log has some text, all of it or none.
    pub(super) fn resumed(kind: BlockKind, artifact: &Artifact, end_is_known: bool) -> Self {
        let sent = artifact.parts.iter().filter_map(|part| part.as_text()).collect();
        Self { sent, end_is_known, ..Self::new(kind, "") }
    }

    pub(super) fn belongs_to(&mut self, message: &str) {
        if self.message.is_empty() {
            message.clone_into(&mut self.message);
        }
    }

    pub(super) fn is_in(&self, message: &str) -> bool {
        self.message == message
    }

    pub(super) fn gap(&mut self) {
        if self.phase == Phase::Live {
            self.phase = Phase::Deaf;
        }
    }

    /// A delta.
    pub(super) fn append(&mut self, id: &ArtifactId, delta: &str, out: &mut Vec<AgentEvent>) {
        if self.phase == Phase::Live && !delta.is_empty() {
            self.sent.push_str(delta);
            out.push(AgentEvent::Text { block: id.clone(), kind: self.kind, text: delta.to_owned() });
        }
    }

    /// A snapshot from the stream that is not final: the start of the part, or its text so far.
    pub(super) fn open(&mut self, id: &ArtifactId, text: &str, out: &mut Vec<AgentEvent>) {
        // Shorter than what was sent: it is older, and the deltas after it may be older too.
        let older = text.len() < self.sent.len() && self.sent.starts_with(text);
        if self.is_open() && !older {
            self.become_text(id, text, out);
            self.phase = Phase::Live;
        }
    }

    /// The final snapshot.
    pub(super) fn ended(&mut self, id: &ArtifactId, text: &str, out: &mut Vec<AgentEvent>) {
        if self.phase == Phase::Withdrawn {
            self.phase = Phase::Deaf;
        }
        self.become_text(id, text, out);
        self.end(id, out);
    }

    /// No more text will come.
    pub(super) fn end(&mut self, id: &ArtifactId, out: &mut Vec<AgentEvent>) {
        if self.is_open() {
            self.phase = Phase::Ended;
            if !self.end_is_known && !self.sent.is_empty() {
                out.push(AgentEvent::TextEnded { block: id.clone(), kind: self.kind });
            }
        }
    }

    /// The attempt that wrote this failed.
    pub(super) fn withdraw(&mut self, id: &ArtifactId, out: &mut Vec<AgentEvent>) {
        if self.is_open() {
            self.remove(id, out);
        }
    }

    /// Somebody deleted the part.
    pub(super) fn remove(&mut self, id: &ArtifactId, out: &mut Vec<AgentEvent>) {
        self.phase = Phase::Withdrawn;
        self.become_text(id, "", out);
    }

    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Live | Phase::Deaf)
    }

    fn become_text(&mut self, id: &ArtifactId, text: &str, out: &mut Vec<AgentEvent>) {
        let (block, kind) = (id.clone(), self.kind);
        match text.strip_prefix(self.sent.as_str()) {
            Some("") => return,
            Some(suffix) => out.push(AgentEvent::Text { block, kind, text: suffix.to_owned() }),
            None => out.push(AgentEvent::TextReplaced { block, kind, text: text.to_owned() }),
        }
        text.clone_into(&mut self.sent);
        self.end_is_known = false;
    }
}
