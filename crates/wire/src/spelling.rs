//! The differences in names and formats between the dialects of A2A. All other code for reading and writing is shared between them.

use longshore_model::{BlockKind, Part, Role, TaskState};
use serde_json::value::RawValue;

use crate::json::Read;

/// The names and formats of one dialect.
pub(crate) struct Spelling {
    pub(crate) role_name: fn(Role) -> &'static str,
    pub(crate) state_name: fn(TaskState) -> &'static str,
    pub(crate) role: fn(&RawValue) -> Read<Named<Role>>,
    pub(crate) state: fn(&RawValue) -> Read<Named<TaskState>>,
    /// Decodes a state from a query string, where even a number is text.
    pub(crate) state_from_text: fn(&str) -> Read<Named<TaskState>>,
    pub(crate) read_part: fn(&RawValue) -> Read<Part>,
    pub(crate) write_part: fn(&mut Vec<u8>, PartView<'_>),
    /// The names that the parts of a message may have. The writer uses the first.
    pub(crate) parts: &'static [&'static str],
    /// Whether messages, tasks and events have a `kind` field.
    pub(crate) has_kinds: bool,
    /// Whether messages can name other tasks.
    pub(crate) has_references: bool,
}

/// The value of an enum field: one that the model knows, or the zero value that means "unspecified".
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

/// A part as it is written for one client.
#[derive(Clone, Copy)]
pub(crate) struct PartView<'a> {
    pub(crate) part: &'a Part,
    /// Whether the data of the part is written as text.
    pub(crate) as_text: bool,
    /// The kind of the block that the part belongs to, in dialects where each part carries it.
    pub(crate) block: Option<BlockKind>,
}
