//! Messages of users and agents.

use serde::{Deserialize, Serialize};

use crate::id::{ContextId, MessageId, TaskId};
use crate::json::Metadata;
use crate::part::Part;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Agent,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Message {
    pub id: MessageId,
    pub role: Role,
    pub parts: Vec<Part>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<ContextId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reference_task_ids: Vec<TaskId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

impl Message {
    pub fn new(id: MessageId, role: Role, parts: Vec<Part>) -> Self {
        Self {
            id,
            role,
            parts,
            context_id: None,
            task_id: None,
            reference_task_ids: Vec::new(),
            extensions: Vec::new(),
            metadata: None,
        }
    }

    /// The approximate number of bytes in the message.
    pub fn weight(&self) -> usize {
        let parts = self.parts.iter().map(|part| part.weight() + part.overhead()).sum::<usize>();
        let extensions = self.extensions.iter().map(String::len).sum::<usize>();
        parts + extensions + self.metadata.as_ref().map_or(0, |metadata| metadata.get().len())
    }
}
