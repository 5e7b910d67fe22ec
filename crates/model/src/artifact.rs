//! Artifacts: the output of an agent.

use serde::{Deserialize, Serialize};

use crate::id::{ArtifactId, MessageId};
use crate::json::Metadata;
use crate::named_enum::named_enum;
use crate::part::Part;

named_enum! {
    /// The kind of a block of output.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum BlockKind {
        Text = "text",
        Reasoning = "reasoning",
        ToolCall = "tool_call",
        /// A file that the gateway stores. The part contains its URL.
        File = "file",
    }
    fn as_str
}

/// One block of output: a text, reasoning, a tool call, or a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Artifact {
    pub id: ArtifactId,
    pub kind: BlockKind,
    /// The agent's own message to which the block belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_message: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The content. Never empty, because A2A requires at least one part. A withdrawn block has one empty text.
    pub parts: Vec<Part>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// A change to an artifact.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArtifactUpdate {
    pub artifact: Artifact,
    /// Whether the parts are appended to the existing ones. If not, the update replaces the artifact.
    pub append: bool,
    pub last_chunk: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

impl ArtifactUpdate {
    /// Merges `next` into this update if that does not change the resulting artifact. Returns whether it did.
    pub fn try_join(&mut self, next: &Self) -> bool {
        let same_block = self.artifact.id == next.artifact.id
            && self.artifact.kind == next.artifact.kind
            && self.artifact.source_message == next.artifact.source_message
            && self.artifact.name == next.artifact.name
            && self.artifact.description == next.artifact.description
            && self.artifact.extensions == next.artifact.extensions
            && self.artifact.metadata == next.artifact.metadata
            && self.metadata == next.metadata;
        if !same_block || !next.append || self.last_chunk {
            return false;
        }
        let ([mine], [theirs]) = (self.artifact.parts.as_mut_slice(), next.artifact.parts.as_slice()) else {
            return false;
        };
        if !mine.try_join(theirs) {
            return false;
        }
        self.last_chunk = next.last_chunk;
        true
    }
}
