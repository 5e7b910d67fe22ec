//! The description of one setting: its names in each source, its kind, and its help text.

use std::borrow::Cow;
use std::time::Duration;

use longshore_engine::MAX_TASK_BYTES;

/// The longest duration that can be set. Longer ones are refused, because adding them to a time could leave the range of the clock.
pub const LONGEST: Duration = Duration::from_hours(366 * 24);

/// The most threads that can be set. No machine has more cores, so a larger number must be a typing error.
pub const MOST_THREADS: usize = 1024;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The dotted name in `longshore.toml`. It also identifies the setting in the code.
    pub key: &'static str,
    /// The flag, without the dashes. Secrets have none, because other users of the machine can see a command line.
    pub flag: Option<&'static str>,
    pub env: Option<&'static str>,
    pub kind: Kind,
    pub fallback: Fallback,
    /// The help text. Lists show only its first sentence.
    pub help: &'static str,
}

impl Setting {
    /// The heading under which the setting is listed. The section of its key decides it.
    pub fn group(&self) -> Group {
        match self.key.split_once('.').map_or(self.key, |(section, _)| section) {
            "serve" | "grpc" | "protocol" => Group::Listener,
            "auth" => Group::Auth,
            "agents" => Group::Agent,
            "opencode" => Group::OpenCode,
            "turns" => Group::Turns,
            "control" => Group::Control,
            "limits" => Group::Limits,
            "input" => Group::Input,
            "output" => Group::Output,
            "push" => Group::Push,
            "data" => Group::Data,
            "card" => Group::Card,
            "environment" => Group::Environment,
            "log" | "metrics" | "trace" => Group::Log,
            "peers" | "calls" => Group::Peers,
            "client" => Group::Client,
            section => unreachable!("the section {section} has no group"),
        }
    }
}

/// The value when the setting is not given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallback {
    /// This text.
    Value(&'static str),
    /// A value that depends on other facts, described in words.
    Computed(&'static str),
    /// There is no default.
    Nothing,
}

/// The headings of the help text and of the reference page, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Group {
    Listener,
    Auth,
    Agent,
    OpenCode,
    Turns,
    Control,
    Limits,
    Input,
    Output,
    Push,
    Data,
    Card,
    Environment,
    Log,
    Peers,
    Client,
}

impl Group {
    pub const ALL: [Self; 16] = [
        Self::Listener,
        Self::Auth,
        Self::Agent,
        Self::OpenCode,
        Self::Turns,
        Self::Control,
        Self::Limits,
        Self::Input,
        Self::Output,
        Self::Push,
        Self::Data,
        Self::Card,
        Self::Environment,
        Self::Log,
        Self::Peers,
        Self::Client,
    ];

    pub fn heading(self) -> &'static str {
        match self {
            Self::Listener => "Listener",
            Self::Auth => "Credentials",
            Self::Agent => "Agent",
            Self::OpenCode => "OpenCode",
            Self::Turns => "Turns and timeouts",
            Self::Control => "Sessions, worktrees and workspaces of OpenCode",
            Self::Limits => "Limits",
            Self::Input => "What messages may contain",
            Self::Output => "What callers see",
            Self::Push => "Push notifications",
            Self::Data => "Data",
            Self::Card => "Agent card",
            Self::Environment => "Where the agent works (declared to callers, not enforced)",
            Self::Log => "Log, metrics and traces",
            Self::Peers => "Agents that the agent may call",
            Self::Client => "Calls of other agents",
        }
    }
}

/// The type of a setting's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Text,
    /// Text that is never printed.
    Secret,
    Host,
    /// A number, or `off`.
    Port,
    /// `http` or `https`, with a host. Paths are appended to it, so it must have no query and no fragment.
    BaseUrl,
    /// `http` or `https`, with a host, for people to open.
    Link,
    Path,
    /// Permissions in octal.
    FileMode,
    /// A path, or an SQLite URL of `SQLAlchemy` as `opencode-a2a` uses it.
    Database,
    /// `provider/model`.
    Model,
    /// A whole number of bytes; 0 means no limit.
    Bytes,
    /// A whole number of bytes from which on an action is taken; 0 means always.
    Threshold,
    /// A whole number of bytes, more than 0.
    Size,
    /// A whole number of bytes from 1 to [`MAX_TASK_BYTES`].
    TaskSize,
    /// A whole number; 0 means no limit.
    Count,
    /// A whole number above 0.
    AtLeastOne,
    /// A whole number; 0 means none at all.
    CountOrNone,
    /// A whole number up to [`MOST_THREADS`]; 0 means by the number of cores.
    Threads,
    /// A number from 0 to 1.
    Ratio,
    /// A number from 1.
    Factor,
    /// Paths separated by colons, or a JSON array of strings.
    Paths,
    /// Words separated by commas, or a JSON array of strings.
    List,
    /// Seconds, more than 0.
    Seconds,
    /// Seconds; 0 means no time at all.
    SecondsOrNone,
    /// Seconds; 0 means no limit.
    SecondsOrOff,
    Choice(&'static [&'static str]),
    Switch,
    /// A list of credentials: JSON in the environment, an array of tables in the file.
    Credentials,
    /// A preset or a command line; an array of tables in the file.
    Agents,
    /// A list of agents that may be called: JSON in the environment, an array of tables in the file.
    Peers,
}

impl Kind {
    /// The allowed values, to complete the sentence "allowed: ...".
    pub fn allowed(self) -> Cow<'static, str> {
        match self {
            Self::Text | Self::Secret => "a text that is not empty".into(),
            Self::Host => "a host name or an IP address, without a port".into(),
            Self::Port => "a whole number from 0 to 65535 (0: any free port), or off".into(),
            Self::BaseUrl => {
                "an http or https URL without a user name or password, a query or a fragment".into()
            }
            Self::Link => "an http or https URL without a user name or password".into(),
            Self::Path => "a path".into(),
            Self::FileMode => {
                "permissions in octal that let the owner read and write, such as 600 or 660".into()
            }
            Self::Database => {
                "a path, or an SQLite URL like sqlite:///relative.db or sqlite:////absolute.db".into()
            }
            Self::Model => "a model as provider/model".into(),
            Self::Bytes => "a whole number of bytes (0: no limit)".into(),
            Self::Threshold => "a whole number of bytes (0: always)".into(),
            Self::Size => "a whole number of bytes above 0".into(),
            Self::TaskSize => format!("a whole number of bytes from 1 to {MAX_TASK_BYTES}").into(),
            Self::Count => "a whole number (0: no limit)".into(),
            Self::AtLeastOne => "a whole number above 0".into(),
            Self::CountOrNone => "a whole number (0: none)".into(),
            Self::Threads => {
                format!("a whole number up to {MOST_THREADS} (0: by the number of cores)").into()
            }
            Self::Ratio => "a number from 0 to 1".into(),
            Self::Factor => "a number, 1 or more".into(),
            Self::List => "a list: words separated by commas, or a JSON array of strings".into(),
            Self::Paths => "a list of paths: separated by colons, or a JSON array of strings".into(),
            Self::Seconds => format!("a number of seconds above 0, {}", at_most()).into(),
            Self::SecondsOrNone => format!("a number of seconds, 0 or more, {}", at_most()).into(),
            Self::SecondsOrOff => {
                format!("a number of seconds, at most {} (366 days; 0: no limit)", LONGEST.as_secs()).into()
            }
            Self::Choice(choices) => format!("one of {}", choices.join(", ")).into(),
            Self::Switch => "true or false".into(),
            Self::Credentials => "a list of credentials".into(),
            Self::Agents => "a preset or a command line; in the file, one [[agents]] table".into(),
            Self::Peers => "a list of agents".into(),
        }
    }

    /// The placeholder of the value in the help text.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Text => "TEXT",
            Self::Secret => "SECRET",
            Self::Host => "HOST",
            Self::Port => "PORT",
            Self::BaseUrl | Self::Link => "URL",
            Self::Path => "PATH",
            Self::FileMode => "MODE",
            Self::Database => "FILE",
            Self::Model => "MODEL",
            Self::Bytes | Self::Threshold | Self::Size | Self::TaskSize => "BYTES",
            Self::Count
            | Self::AtLeastOne
            | Self::CountOrNone
            | Self::Threads
            | Self::Ratio
            | Self::Factor => "NUMBER",
            Self::Seconds | Self::SecondsOrNone | Self::SecondsOrOff => "SECONDS",
            Self::Choice(_) => "CHOICE",
            Self::Agents => "COMMAND",
            Self::Switch => "true|false",
            Self::List | Self::Paths | Self::Credentials | Self::Peers => "LIST",
        }
    }

    pub fn is_secret(self) -> bool {
        matches!(self, Self::Secret | Self::Credentials)
    }
}

fn at_most() -> String {
    format!("at most {} (366 days)", LONGEST.as_secs())
}
