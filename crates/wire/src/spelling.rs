//! What the dialects of A2A spell differently, so that the rest is read and written by the same code.

use longshore_model::{BlockKind, Part, Role, TaskState};
use serde_json::value::RawValue;

use crate::json::Read;

/// The words and shapes of one dialect.
pub(crate) struct Spelling {
    pub(crate) role_name: fn(Role) -> &'static str,
    pub(crate) state_name: fn(TaskState) -> &'static str,
    pub(crate) role: fn(&RawValue) -> Read<Named<Role>>,
    pub(crate) state: fn(&RawValue) -> Read<Named<TaskState>>,
    /// A state of a query string, where a number has no type of its own.
    pub(crate) state_from_text: fn(&str) -> Read<Named<TaskState>>,
    pub(crate) read_part: fn(&RawValue) -> Read<Part>,
    pub(crate) write_part: fn(&mut Vec<u8>, PartView<'_>),
    /// Under which names the parts of a message may stand. The first is the one that is written.
    pub(crate) parts: &'static [&'static str],
    /// Messages, tasks and events say what they are.
    pub(crate) has_kinds: bool,
    /// Messages can name other tasks.
    pub(crate) has_references: bool,
}

/// What an enum value says: one of ours, or the zero that stands for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named<T> {
    Unspecified,
    Value(T),
}

impl<T> Named<T> {
    pub(crate) fn value(self) -> Option<T> {
        match self {
            Self::Unspecified => None,
            Self::Value(value) => Some(value),
        }
    }
}

/// A part as one reader is to see it.
#[derive(Clone, Copy)]
pub(crate) struct PartView<'a> {
    pub(crate) part: &'a Part,
    /// Its data is told as text.
    pub(crate) as_text: bool,
    /// What the block is that it belongs to, where a part has to tell that itself.
    pub(crate) block: Option<BlockKind>,
}
