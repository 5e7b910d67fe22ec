//! Describes the items in results, with their fields, for the card, the `OpenAPI` document and the reference page. A test compares
//! the description with real results.

use super::row::Answer;
use crate::surface::ProtocolVersion;

/// A field of an item.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Field {
    pub name: &'static str,
    pub field_type: FieldType,
    /// Whether the field is always present. If not, it is left out when it has no value.
    pub always: bool,
    /// The only version with this field. `None`: both versions have it.
    pub version: Option<ProtocolVersion>,
    pub help: &'static str,
}

/// The type of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FieldType {
    Id,
    Text,
    Flag,
    /// A whole number, zero or more.
    Count,
    /// A time in milliseconds since 1970.
    Millis,
    Texts,
    Words(&'static [&'static str]),
    /// A number of seconds since 1970, or null.
    Deadline,
    /// An object with arbitrary fields.
    Facts,
    Object(&'static [Field]),
    Objects(&'static [Field]),
}

pub(crate) const fn always(name: &'static str, field_type: FieldType, help: &'static str) -> Field {
    Field { name, field_type, always: true, version: None, help }
}

pub(crate) const fn sometimes(name: &'static str, field_type: FieldType, help: &'static str) -> Field {
    Field { name, field_type, always: false, version: None, help }
}

/// A kind of item in results.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ItemType {
    /// The name in the documents.
    pub name: &'static str,
    /// A description of one sentence.
    pub help: &'static str,
    /// The fields. Empty for items that A2A itself defines.
    pub fields: &'static [Field],
    /// The schema name of a list of these items. `None`: it is made from `name`.
    pub list: Option<&'static str>,
    /// Whether a list in 0.3 contains only a text for each item.
    pub is_text_in_v03: bool,
}

/// A kind of item, whose fields are described once.
pub type Item = &'static ItemType;

impl ItemType {
    pub(crate) const fn new(name: &'static str, help: &'static str, fields: &'static [Field]) -> Self {
        Self { name, help, fields, list: None, is_text_in_v03: false }
    }

    /// The fields of this version.
    pub fn fields_of(&self, version: ProtocolVersion) -> impl Iterator<Item = &'static Field> + use<> {
        self.fields.iter().filter(move |field| field.version.is_none_or(|only| only == version))
    }
}

/// The items in results of the methods about asks.
pub(crate) const OF_ASKS: [Item; 2] = [INTERRUPT, APPROVAL];

pub(crate) const INTERRUPT: Item = &ItemType {
    list: Some("InterruptList"),
    ..ItemType::new("InterruptRequest", "An open ask of a task.", OPEN_ASK)
};

pub(crate) const APPROVAL: Item =
    &ItemType::new("Approval", "The answer always to a permission, which the gateway keeps.", KEPT_APPROVAL);

impl Answer {
    /// The fields of the result. The task fields are present only if the call started a task.
    pub fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Items(_) => &["items"],
            Self::Page(_) => &["items", "next_cursor"],
            Self::Catalog(_) => &["items", "default_by_provider", "connected"],
            Self::Item(_) | Self::ItemOrNull(_) => &["item"],
            Self::ItemOfTask(_) => &["item", "task_id", "context_id"],
            Self::Flag => &["ok"],
            Self::Done => &["ok", "session_id"],
            Self::Begun => &["ok", "session_id", "task_id", "context_id"],
            Self::Answered => &["ok", "request_id"],
        }
    }

    /// The item in the result.
    pub fn item(self) -> Option<Item> {
        match self {
            Self::Items(item)
            | Self::Page(item)
            | Self::Catalog(item)
            | Self::Item(item)
            | Self::ItemOrNull(item)
            | Self::ItemOfTask(item) => Some(item),
            Self::Flag | Self::Done | Self::Begun | Self::Answered => None,
        }
    }

    /// The type of the result in the notation of the contracts.
    pub fn items_type(self, version: ProtocolVersion) -> Option<String> {
        let name = self.item().map(|item| item.name);
        match (self, version) {
            (Self::Flag, _) => Some("boolean".to_owned()),
            (Self::Items(item), ProtocolVersion::V03) if item.is_text_in_v03 => Some("string[]".to_owned()),
            (Self::Items(_) | Self::Page(_) | Self::Catalog(_), _) => name.map(|name| format!("{name}[]")),
            _ => name.map(str::to_owned),
        }
    }
}

const OPEN_ASK: &[Field] = &[
    always("request_id", FieldType::Id, "The id that an answer must contain."),
    always("session_id", FieldType::Id, "The session of the ask."),
    always("interrupt_type", FieldType::Words(&["permission", "question"]), "The kind of ask."),
    always("task_id", FieldType::Id, "The waiting task."),
    always("context_id", FieldType::Id, "Its context."),
    always("details", FieldType::Facts, "The details from the agent."),
    always("expires_at", FieldType::Deadline, "The deadline in seconds since 1970. Null: there is none."),
    sometimes(
        "options",
        FieldType::Objects(ASK_OPTION),
        "The answers that the agent offers. Left out if these are just once, always and reject.",
    ),
];

const ASK_OPTION: &[Field] = &[
    always("id", FieldType::Text, "The id, which an answer may name."),
    always("name", FieldType::Text, "The name, which an answer may give instead if no other option has it."),
    always(
        "kind",
        FieldType::Words(&["allow_once", "allow_always", "reject_once", "reject_always", "other"]),
        "The meaning of the option.",
    ),
];

const KEPT_APPROVAL: &[Field] = &[
    always(
        "request_id",
        FieldType::Id,
        "The ask that was answered with always. To revoke the approval, send this id.",
    ),
    always("session_id", FieldType::Id, "The approval applies in this session and its sub-agents."),
    always("context_id", FieldType::Id, "The context of the task that asked."),
    always("permission", FieldType::Text, "The kind of permission, such as bash."),
    always(
        "patterns",
        FieldType::Texts,
        "What is approved. In a pattern, * is any text and ? is any character.",
    ),
    sometimes("tool", FieldType::Text, "The agent's name of the tool."),
    sometimes(
        "kind",
        FieldType::Text,
        "What the tool does, such as execute or edit. The approval covers no other kind.",
    ),
    sometimes("command", FieldType::Text, "The command of the action that was approved. A long one is cut."),
    sometimes(
        "paths",
        FieldType::Texts,
        "The files of the action that was approved. Of other files, the approval covers only those in the directory of the session.",
    ),
    always("approved_at", FieldType::Millis, "When it was approved, in milliseconds since 1970."),
];
