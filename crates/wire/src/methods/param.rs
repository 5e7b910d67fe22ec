//! What a method takes: names, and what may stand behind them.
//!
//! All bounds of texts are in bytes.

use std::fmt::Write as _;

use longshore_model::spelled;

use super::row::Switch;

/// A parameter, or a field of one that is an object.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    /// The other one that must be there when this one is.
    pub with: Option<&'static str>,
    /// It is taken only where this is switched on, from those who have its capability.
    pub switch: Option<Switch>,
    /// What the agent would run of it in a shell is taken only where this is switched on, from those who have its capability.
    pub runs: Option<Switch>,
    /// What it is for, in a few words.
    pub help: &'static str,
}

impl Param {
    pub(super) const fn optional(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, kind, required: false, with: None, switch: None, runs: None, help }
    }

    pub(super) const fn required(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { required: true, ..Self::optional(name, kind, help) }
    }

    pub(super) const fn with(self, other: &'static str) -> Self {
        Self { with: Some(other), ..self }
    }

    pub(super) const fn only_with(self, switch: Switch) -> Self {
        Self { switch: Some(switch), ..self }
    }

    pub(super) const fn runs_with(self, switch: Switch) -> Self {
        Self { runs: Some(switch), ..self }
    }

    /// What it, or some of its values, needs that its method does not.
    pub(crate) fn needs(&self) -> Option<Switch> {
        self.switch.or(self.runs)
    }

    /// What it is for, and what it needs.
    pub(crate) fn description(&self) -> String {
        let needed = |switch: Switch| {
            format!("`{}` and the capability `{}`", switch.toggle(), switch.capability().as_str())
        };
        let mut text = self.help.to_owned();
        if let Some(switch) = self.switch {
            let _ = write!(text, " Only with {}.", needed(switch));
        }
        if let Some(switch) = self.runs {
            let _ = write!(text, " What is run needs {}.", needed(switch));
        }
        text
    }
}

/// What may stand behind a name. `null` is the same as nothing everywhere, and what is not named is refused everywhere but in
/// metadata.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Id(IdKind),
    /// Text without control characters.
    ProtocolVersion {
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
    /// One of these.
    Word(&'static [&'static str]),
    /// The name of something that will be on the disk: a version with no slash, which does not begin with a dash or a dot.
    FileName {
        max: usize,
    },
    /// What git takes as the name of a branch.
    Branch,
    /// The name of a command of OpenCode. One slash before it is left out.
    Command,
    /// A whole number, or a text that is one.
    Int {
        min: i64,
        max: i64,
        default: Option<i64>,
    },
    /// `true` or `false`, or a text that says so.
    Flag,
    /// A flag that can only be off.
    Off,
    /// Where a page begins, as a page before told it.
    Cursor,
    Directory,
    /// An object of which only `opencode` and `shared` are known, both objects. What is in them is carried; where it says
    /// where to work, that counts for methods that are `routed`.
    Metadata {
        routed: bool,
    },
    Object(&'static [Param]),
    /// An object with exactly one of these.
    OneOf(&'static [Param]),
    /// An object whose `type` says which fields it has.
    Tagged(&'static [Variant]),
    List {
        of: &'static Self,
        max: usize,
        may_be_empty: bool,
    },
    /// An object with any names, each a version of at most [`MAX_NAME`] bytes.
    Map {
        of: &'static Self,
        max: usize,
    },
    /// A model: an object of `providerID` and `modelID`, or a text `provider/model`.
    ModelRef,
    /// Any object, which is carried.
    Json {
        max: usize,
    },
    /// `once`, `always` or `reject`, in any case.
    Reply,
    /// For each question the labels that were chosen.
    Answers,
}

/// A kind of tagged object.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub tag: &'static str,
    pub fields: &'static [Param],
}

/// What an id names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IdKind {
    Session,
    Message,
    Part,
    Workspace,
    /// An ask, of either kind.
    Request,
}

impl IdKind {
    pub const ALL: [Self; 5] = [Self::Session, Self::Message, Self::Part, Self::Workspace, Self::Request];

    /// What OpenCode's ids of the kind begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Session => spelled::SESSION_ID,
            Self::Message => spelled::MESSAGE_ID,
            Self::Part => spelled::PART_ID,
            Self::Workspace => spelled::WORKSPACE_ID,
            Self::Request => "",
        }
    }
}

/// The longest name of something: an agent, a model, a tool.
pub const MAX_NAME: usize = 128;
/// The longest line.
pub const MAX_LINE: usize = 1024;
/// The longest text of many lines.
pub const MAX_LINES: usize = 64 * 1024;
/// The longest cursor.
pub const MAX_CURSOR: usize = 512;
/// The longest name of a branch.
pub const MAX_BRANCH: usize = 255;
/// The largest whole number that every JSON reader takes as it is.
pub const MAX_INT: i64 = (1 << 53) - 1;

pub(super) const NAME: Kind = Kind::ProtocolVersion { max: MAX_NAME, may_be_blank: false };
pub(super) const LINE: Kind = Kind::ProtocolVersion { max: MAX_LINE, may_be_blank: false };
pub(super) const LINES: Kind = Kind::Lines { max: MAX_LINES, may_be_blank: false };

/// A model by its two names.
pub(super) const MODEL: &[Param] = &[
    Param::required("providerID", NAME, "The provider of the model."),
    Param::required("modelID", LINE, "The model, as its provider calls it."),
];

pub(super) const SESSION_ID: Param =
    Param::required("session_id", Kind::Id(IdKind::Session), "The session of OpenCode.");

pub(super) const DIRECTORY: Param =
    Param::optional("directory", Kind::Directory, "Where to look; the root of the workspace if not given.");

/// For methods of one session, which works where it works.
pub(super) const SESSION_DIRECTORY: Param = Param::optional(
    "directory",
    Kind::Directory,
    "Checked only: what is done is done where the session works.",
);

pub(super) const METADATA: Param = Param::optional(
    "metadata",
    Kind::Metadata { routed: true },
    "`opencode.workspace.id` or `opencode.directory` say where; the workspace goes first.",
);
