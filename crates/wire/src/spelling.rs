//! The differences in names and formats between the dialects of A2A. The dialects share all other code for reading and writing.

use longshore_model::{BlockKind, Part, Role, TaskState};
use serde_json::value::RawValue;

use crate::json::Read;

/// The names and formats of one dialect.
pub(crate) struct Spelling {
    pub(crate) role_name: fn(Role) -> &'static str,
    pub(crate) state_name: fn(TaskState) -> &'static str,
    pub(crate) role: fn(&RawValue) -> Read<Named<Role>>,
    pub(crate) state: fn(&RawValue) -> Read<Named<TaskState>>,
    /// Decodes a state from a query string, in which even a number is text.
    pub(crate) state_from_text: fn(&str) -> Read<Named<TaskState>>,
    pub(crate) read_part: fn(&RawValue) -> Read<Part>,
    pub(crate) write_part: fn(&mut Vec<u8>, PartView<'_>),
    /// The possible names of the field with a message's parts. The writer uses the first one.
    pub(crate) parts: &'static [&'static str],
    /// Whether messages, tasks and events have a `kind` field.
    pub(crate) has_kinds: bool,
    /// Whether messages can name other tasks.
    pub(crate) has_references: bool,
}

/// The value of an enum field: a value that the model knows, or the zero value, which means "unspecified".
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

/// A part in the form in which one client gets it.
#[derive(Clone, Copy)]
pub(crate) struct PartView<'a> {
    pub(crate) part: &'a Part,
    /// Whether the data of the part is written as text.
    pub(crate) as_text: bool,
    /// The kind of the block to which the part belongs. Set in dialects in which each part has it.
    pub(crate) block: Option<BlockKind>,
}
