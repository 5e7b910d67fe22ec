//! The blocks of a turn, which are the parts of its messages that a client sees, by part id.

use std::collections::HashMap;

use longshore_engine::port::ResumedChild;
use longshore_model::{AgentEvent, Artifact, ArtifactId, BlockKind, BlockRef, MessageId};

use super::files::Files;
use super::text::TextBlock;
use super::tool::{self, CallState, ToolBlock};
use crate::api::{Part, PartDelta};
use crate::outcome::FailedTool;

/// How many bytes of text may wait for their part, which OpenCode normally sends first. Text beyond the limit is dropped, and comes
/// with the part's final snapshot.
const MAX_HELD_BYTES: usize = 256 * 1024;

/// The origin of a part's snapshot: the event stream or the message list. The message list does not contain unfinished text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    Stream,
    List,
}

#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// The blocks in order of arrival, each with its part id.
    all: Vec<(Box<str>, Block)>,
    by_part: HashMap<Box<str>, usize>,
    /// The index of the block of the last delta. The next delta is usually for the same block.
    last: usize,
    held_text: HashMap<String, Held>,
    held_bytes: usize,
    files: Files,
    out: Vec<AgentEvent>,
}

/// Text whose part is not known yet.
#[derive(Debug, Default)]
struct Held {
    message: String,
    text: String,
}

#[derive(Debug)]
enum Block {
    Text(TextBlock),
    Tool(Box<ToolBlock>),
}

impl Blocks {
    /// Restores the blocks that the log holds.
    pub(super) fn resume(artifacts: &[Artifact], children: &[ResumedChild]) -> Self {
        let mut this = Self::default();
        // OpenCode ends a block before it starts the next one, so only the newest block may lack its end in the log. If OpenCode
        // is killed, it leaves a block without an end, and later continues with the answer to the next prompt.
        let mut last_in: HashMap<Option<&MessageId>, usize> = HashMap::new();
        for (at, artifact) in artifacts.iter().enumerate() {
            last_in.insert(artifact.source_message.as_ref(), at);
        }
        for (at, artifact) in artifacts.iter().enumerate() {
            let has_end = at + 1 < artifacts.len();
            let is_followed = last_in.get(&artifact.source_message.as_ref()).is_some_and(|last| *last > at);
            let block = BlockRef {
                id: artifact.id.clone(),
                kind: artifact.kind,
                message: artifact.source_message.clone(),
            };
            let block = match artifact.kind {
                BlockKind::Text | BlockKind::Reasoning => {
                    Block::Text(TextBlock::resumed(block, artifact, has_end, is_followed))
                }
                BlockKind::ToolCall => match ToolBlock::resumed(block, artifact) {
                    Some(mut block) => {
                        for child in children {
                            block.set_child(child.call.as_deref().unwrap_or_default(), &child.session);
                        }
                        Block::Tool(Box::new(block))
                    }
                    None => continue,
                },
                BlockKind::File => {
                    this.files.mark_reported(artifact.id.as_str());
                    continue;
                }
            };
            this.add(artifact.id.as_str(), block);
        }
        this
    }

    /// Emits events that do not change a block.
    pub(super) fn emit(&mut self, events: impl IntoIterator<Item = AgentEvent>) {
        self.out.extend(events);
    }

    pub(super) fn take(&mut self) -> Vec<AgentEvent> {
        std::mem::take(&mut self.out)
    }

    fn add(&mut self, part: &str, block: Block) {
        // The log should hold each part once. If a part is repeated, the later one counts.
        if let Some(at) = self.by_part.get(part) {
            self.all[*at].1 = block;
        } else {
            self.by_part.insert(part.into(), self.all.len());
            if self.all.is_empty() {
                // Many turns have exactly one block.
                self.all.reserve_exact(1);
            }
            self.all.push((part.into(), block));
        }
    }

    /// The text blocks in order of arrival, and the buffer for their events.
    fn texts(&mut self) -> (impl Iterator<Item = &mut TextBlock>, &mut Vec<AgentEvent>) {
        let texts = self.all.iter_mut().filter_map(|(_, block)| match block {
            Block::Text(block) => Some(block),
            Block::Tool(_) => None,
        });
        (texts, &mut self.out)
    }

    /// The text block of a part, and the buffer for its events.
    fn text_of(&mut self, part: &str) -> Option<(&mut TextBlock, &mut Vec<AgentEvent>)> {
        match &mut self.all[*self.by_part.get(part)?].1 {
            Block::Text(block) => Some((block, &mut self.out)),
            Block::Tool(_) => None,
        }
    }

    fn tools(&self) -> impl DoubleEndedIterator<Item = &ToolBlock> {
        self.all.iter().filter_map(|(_, block)| match block {
            Block::Tool(block) => Some(block.as_ref()),
            Block::Text(_) => None,
        })
    }

    /// Marks the unfinished texts as incomplete and drops held text, because events were lost.
    pub(super) fn gap(&mut self) {
        self.held_text.clear();
        self.held_bytes = 0;
        self.texts().0.for_each(TextBlock::gap);
    }

    /// Handles a snapshot of a part of one of the turn's steps.
    pub(super) fn part(&mut self, part: &Part, source: Source) {
        match part.kind.as_str() {
            // A second start in one message is a new attempt of the step.
            "step-start" if source == Source::Stream => self.withdraw_open(&part.message),
            "text" => self.text(BlockKind::Text, part, source),
            "reasoning" => self.text(BlockKind::Reasoning, part, source),
            "tool" => {
                self.tool(part);
                self.files.collect_from_tool(part, &mut self.out);
            }
            _ => {}
        }
    }

    /// Appends text to a known part. Returns false if the part is not known, or the text belongs to another message.
    pub(super) fn delta(&mut self, delta: &PartDelta<'_>) -> bool {
        if self.all.get(self.last).is_none_or(|(part, _)| **part != *delta.part) {
            let Some(at) = self.by_part.get(&*delta.part) else { return false };
            self.last = *at;
        }
        match &mut self.all[self.last].1 {
            // The part is a known block, so the text of its message is output.
            Block::Text(block) if block.is_in(&delta.message) => block.append(&delta.delta, &mut self.out),
            Block::Text(_) => return false,
            Block::Tool(_) => {}
        }
        true
    }

    /// Keeps text of a part that may still arrive.
    pub(super) fn hold(&mut self, delta: &PartDelta<'_>) {
        if let Some((block, out)) = self.text_of(&delta.part) {
            block.append(&delta.delta, out);
        } else if self.held_bytes + delta.delta.len() <= MAX_HELD_BYTES {
            self.held_bytes += delta.delta.len();
            let held = self.held_text.entry(delta.part.clone().into_owned()).or_default();
            delta.message.as_ref().clone_into(&mut held.message);
            held.text.push_str(&delta.delta);
        }
    }

    /// Drops the held text of a message that is not output of the turn.
    pub(super) fn drop_held(&mut self, message: &str) {
        self.held_text.retain(|_, held| held.message != message);
        self.held_bytes = self.held_text.values().map(|held| held.text.len()).sum();
    }

    /// Withdraws an unfinished text, because the attempt that wrote it failed.
    pub(super) fn withdraw(&mut self, part: &str) {
        if let Some((block, out)) = self.text_of(part) {
            block.withdraw(out);
        }
    }

    /// Withdraws all unfinished texts of a message.
    pub(super) fn withdraw_open(&mut self, message: &str) {
        let (texts, out) = self.texts();
        texts.filter(|block| block.is_in(message)).for_each(|block| block.withdraw(out));
    }

    /// Removes the block of a part that a user deleted.
    pub(super) fn remove(&mut self, part: &str) {
        if let Some((block, out)) = self.text_of(part) {
            block.remove(out);
        }
    }

    /// Whether a message has an unfinished text of which some deltas were missed.
    pub(super) fn any_incomplete_in(&self, message: &str) -> bool {
        self.all.iter().any(|(_, block)| match block {
            Block::Text(block) => block.is_in(message) && block.is_incomplete(),
            Block::Tool(_) => false,
        })
    }

    /// Ends the texts that OpenCode left open. After an abort or a kill, they keep the text that they have.
    pub(super) fn close(&mut self) {
        let (texts, out) = self.texts();
        texts.for_each(|block| block.end(out));
    }

    /// The last failed tool call of a message.
    pub(super) fn failed_tool(&self, message: &str) -> Option<FailedTool<'_>> {
        self.tools().rev().find_map(|block| block.failure_in(message))
    }

    /// The state of a tool call, if it is known.
    pub(super) fn call(&self, call: &str) -> Option<CallState> {
        self.tools().find_map(|block| block.state_of(call))
    }

    /// The messages of the unfinished tool calls.
    pub(super) fn unfinished_calls(&self) -> impl Iterator<Item = &str> {
        self.tools().filter_map(ToolBlock::unfinished_message)
    }

    pub(super) fn files(&mut self) -> &mut Files {
        &mut self.files
    }

    fn text(&mut self, kind: BlockKind, part: &Part, source: Source) {
        let held = self.held_text.remove(&part.id).map(|held| held.text);
        self.held_bytes -= held.as_ref().map_or(0, String::len);
        if !self.by_part.contains_key(part.id.as_str()) {
            let Some(block) = block_ref(part, kind) else { return };
            self.add(&part.id, Block::Text(TextBlock::new(block)));
        }
        let Some((block, out)) = self.text_of(&part.id) else { return };
        let text = part.text.as_deref().unwrap_or_default();
        if part.time.as_ref().is_some_and(|time| time.end.is_some()) {
            block.ended(text, out);
        } else if source == Source::Stream {
            block.open(text, out);
            // Text that came before its part is used only if the part's snapshot is empty. Otherwise the snapshot already contains
            // that text.
            if let Some(held) = held.filter(|_| text.is_empty()) {
                block.append(&held, out);
            }
        }
    }

    fn tool(&mut self, part: &Part) {
        let Some(call) = tool::call_from(part) else { return };
        let Some(at) = self.by_part.get(part.id.as_str()) else {
            let Some(block) = block_ref(part, BlockKind::ToolCall) else { return };
            let mut block = ToolBlock::opened(block, call, &mut self.out);
            block.note_start(part);
            return self.add(&part.id, Block::Tool(Box::new(block)));
        };
        if let Block::Tool(block) = &mut self.all[*at].1 {
            block.note_start(part);
            block.update(call, &mut self.out);
        }
    }
}

/// The reference to the block of a part. `None`: the part's id is not a valid identifier.
fn block_ref(part: &Part, kind: BlockKind) -> Option<BlockRef> {
    let id = ArtifactId::parse(&part.id).ok()?;
    Some(BlockRef { id, kind, message: MessageId::parse(&part.message).ok() })
}
