//! Problems of the configuration, with their source.

use std::fmt;

use super::setting::Setting;

/// Where a value came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    Flag(&'static str),
    Environment(&'static str),
    File { name: String, line: usize },
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "--{flag}"),
            Self::Environment(name) => f.write_str(name),
            Self::File { name, line } => write!(f, "{name} line {line}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A problem as one line. It names the source, the key and the allowed values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem(pub String);

impl Problem {
    /// A problem for a value that `setting` does not allow. The text contains the value unless it is a secret.
    pub fn value(source: &Source, setting: &Setting, value: &str) -> Self {
        let at = location(source, setting);
        let allowed = setting.kind.allowed();
        // A URL with a user name may contain a password, and one with a query may contain a token.
        let may_hold_a_secret = value.contains("://") && value.contains(['@', '?', '#']);
        if setting.kind.is_secret() || may_hold_a_secret {
            return Self(format!("{at}: the value is not allowed; it takes {allowed}"));
        }
        Self(format!("{at}: {value:?} is not allowed; it takes {allowed}"))
    }

    /// A problem for a value that violates a rule other than those of the setting's kind.
    pub fn rule(source: &Source, setting: &Setting, reason: impl fmt::Display) -> Self {
        Self(format!("{}: {reason}", location(source, setting)))
    }
}

/// The source and the key: `A2A_PORT (serve.port)`.
pub(super) fn location(source: &Source, setting: &Setting) -> String {
    format!("{source} ({})", setting.key)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All problems that must be solved before the gateway can start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "  {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
