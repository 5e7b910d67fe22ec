//! The parameters of methods: their names and types.
//!
//! All limits of texts are in bytes.

use std::fmt::Write as _;

use serde_json::Value;
use serde_json::value::RawValue;

use super::args::Location;
use super::row::Switch;
use crate::json::Read;

/// A parameter, or a field of a parameter that is an object.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    /// Another parameter that must be present together with this one.
    pub with: Option<&'static str>,
    /// The switch that the parameter needs, together with its capability.
    pub switch: Option<Switch>,
    /// The switch that a value needs, together with its capability, if the agent would run a part of the value in a shell.
    pub runs: Option<Switch>,
    /// A short description.
    pub help: &'static str,
}

impl Param {
    pub(crate) const fn optional(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, kind, required: false, with: None, switch: None, runs: None, help }
    }

    pub(crate) const fn required(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { required: true, ..Self::optional(name, kind, help) }
    }

    pub(crate) const fn with(self, other: &'static str) -> Self {
        Self { with: Some(other), ..self }
    }

    pub(crate) const fn only_with(self, switch: Switch) -> Self {
        Self { switch: Some(switch), ..self }
    }

    pub(crate) const fn runs_with(self, switch: Switch) -> Self {
        Self { runs: Some(switch), ..self }
    }

    /// The switch that the parameter, or some of its values, needs in addition to that of the method.
    pub(crate) fn needs(&self) -> Option<Switch> {
        self.switch.or(self.runs)
    }

    /// The description, which includes the switch that the parameter needs.
    pub(crate) fn description(&self) -> String {
        let needed = |switch: Switch| {
            format!("`{}` and the capability `{}`", switch.toggle(), switch.capability().as_str())
        };
        let mut text = self.help.to_owned();
        if let Some(switch) = self.switch {
            let _ = write!(text, " Only with {}.", needed(switch));
        }
        if let Some(switch) = self.runs {
            let _ = write!(text, " A value that runs a shell needs {}.", needed(switch));
        }
        text
    }
}

/// The type of a parameter. `null` always means absent. Unknown names are errors, except inside metadata.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Id(IdKind),
    /// Text without control characters.
    Line {
        max: usize,
        may_be_blank: bool,
    },
    /// Text whose only control characters are tabs and line ends.
    Lines {
        max: usize,
        may_be_blank: bool,
    },
    /// Any text.
    Text {
        max: usize,
    },
    /// One of these words.
    Word(&'static [&'static str]),
    /// The name of a file or directory that will be created: one line without a slash that does not begin with a dash or a dot.
    FileName {
        max: usize,
    },
    /// A valid name of a git branch.
    Branch,
    /// The name of a command of the agent. One leading slash is removed.
    Command,
    /// A whole number, or a text that contains one.
    Int {
        min: i64,
        max: i64,
        default: Option<i64>,
    },
    /// `true` or `false`, or a text that means one of them.
    Flag,
    /// A flag that may only be false.
    Off,
    /// The start of a page: a cursor that the previous page returned.
    Cursor,
    Directory,
    /// An object that may contain only the agent's object ([`crate::names::AGENT_OBJECT`]) and `shared`. `routed`: set for methods
    /// that use the directory or workspace in it. Everything else in the object is ignored.
    Metadata {
        routed: Option<&'static Routing>,
    },
    Object(&'static [Param]),
    /// An object with exactly one of these fields.
    OneOf(&'static [Param]),
    /// An object whose fields depend on its `type`.
    Tagged(&'static [Variant]),
    List {
        of: &'static Self,
        max: usize,
        may_be_empty: bool,
    },
    /// An object with arbitrary names, each of which is one line of at most [`MAX_NAME`] bytes.
    Map {
        of: &'static Self,
        max: usize,
    },
    /// A model: an object with `providerID` and `modelID`, or a text `provider/model`.
    ModelRef,
    /// Any object, which is passed on unchanged.
    Json {
        max: usize,
    },
    /// `once`, `always` or `reject` in any case, or the id or the name of an option. One line of at most [`MAX_LINE`] bytes.
    Reply,
    /// For each question, the chosen labels.
    Answers,
}

/// One variant of a tagged object.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub tag: &'static str,
    pub fields: &'static [Param],
}

/// A kind of id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IdKind {
    /// The kind of object that the ids name.
    pub name: &'static str,
    /// The prefix of all these ids, which may be empty.
    pub prefix: &'static str,
    /// The agent that makes the ids. Named in the error about a wrong prefix.
    pub(crate) agent: &'static str,
}

impl IdKind {
    /// The ids of permission requests and questions.
    pub const REQUEST: Self = Self { name: "Request", prefix: "", agent: "" };
}

/// How a location is read from the metadata of a call.
#[derive(Clone, Copy, Debug)]
pub struct Routing {
    /// Reads the agent's object in the metadata.
    pub(crate) read: fn(&RawValue) -> Read<Location>,
    /// The schema of the fields in that object.
    pub(crate) fields: fn() -> Value,
}

/// The longest name, for example of an agent, a model or a tool.
pub const MAX_NAME: usize = 128;
/// The longest text of one line.
pub const MAX_LINE: usize = 1024;
/// The longest multi-line text.
pub const MAX_LINES: usize = 64 * 1024;
/// The longest cursor.
pub const MAX_CURSOR: usize = 512;
/// The longest name of a branch.
pub const MAX_BRANCH: usize = 255;
/// The largest whole number that every JSON reader reads exactly.
pub const MAX_INT: i64 = (1 << 53) - 1;

pub(crate) const NAME: Kind = Kind::Line { max: MAX_NAME, may_be_blank: false };
pub(crate) const LINE: Kind = Kind::Line { max: MAX_LINE, may_be_blank: false };
pub(crate) const LINES: Kind = Kind::Lines { max: MAX_LINES, may_be_blank: false };

/// The two parameters that name a model.
pub(crate) const MODEL: &[Param] = &[
    Param::required("providerID", NAME, "The provider of the model."),
    Param::required("modelID", LINE, "The model, as its provider calls it."),
];
