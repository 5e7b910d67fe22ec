//! The exit codes of the commands that call an agent.

use std::fmt;
use std::process::ExitCode;

use longshore_client::{Error, ErrorKind, TaskState};

use crate::config::Problems;

/// The exit code of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Code {
    Completed = 0,
    Failed = 1,
    Usage = 2,
    InputRequired = 3,
    Canceled = 4,
    Rejected = 5,
    /// The agent refused the credential, or waits for credentials of its own.
    Auth = 6,
    Unreachable = 7,
    /// A signal ended the command. The task goes on.
    Left = 130,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

impl Code {
    /// The code for the last known state of a task.
    pub(crate) fn of_state(state: Option<TaskState>) -> Self {
        match state {
            Some(TaskState::Completed) => Self::Completed,
            Some(TaskState::InputRequired) => Self::InputRequired,
            Some(TaskState::AuthRequired) => Self::Auth,
            Some(TaskState::Canceled) => Self::Canceled,
            Some(TaskState::Rejected) => Self::Rejected,
            Some(TaskState::Failed | TaskState::Submitted | TaskState::Working) | None => Self::Failed,
        }
    }

    fn of_error(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Input => Self::Usage,
            ErrorKind::Unauthenticated | ErrorKind::Forbidden => Self::Auth,
            ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::Lost | ErrorKind::Unavailable => {
                Self::Unreachable
            }
            _ => Self::Failed,
        }
    }
}

/// Names of fields in a Longshore's error messages, and the flags and arguments that fill these fields.
const OPTIONS: [(&str, &str); 4] = [
    ("message.parts[0].data.option", "the answer"),
    ("metadata.opencode.directory", "--directory"),
    ("metadata.opencode.agent", "--mode"),
    ("metadata.shared.model", "--model"),
];

/// Rewrites an agent's message that refuses an option, so that it names the flag instead of the field. `None`: the message is about
/// something else.
pub(crate) fn refused_option(message: &str) -> Option<String> {
    OPTIONS.iter().find_map(|(field, name)| Some(format!("{name}{}", message.strip_prefix(field)?)))
}

/// Why a command failed: a sentence for a person, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// Appends a sentence to the message.
    pub(crate) fn with_advice(mut self, sentence: &str) -> Self {
        self.message = format!("{} {sentence}", self.message);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = Code::of_error(error.kind());
        if let Some(refused) = refused_option(error.message()) {
            return Self::usage(refused);
        }
        // Remove the part of the message that is for programs.
        let message = error.message().replace("; WWW-Authenticate lists the schemes", "");
        let advice = match error.kind() {
            ErrorKind::Unreachable => {
                " Check the URL, and that the agent runs; `longshore serve` starts a gateway."
            }
            ErrorKind::Unauthenticated => {
                " Give the credential of this agent in A2A_CLIENT_BEARER_TOKEN, A2A_CLIENT_BASIC_AUTH or A2A_CLIENT_API_KEY, or \
                 its token with --token-file."
            }
            _ => "",
        };
        Self::new(code, format!("{message}{advice}"))
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::usage(format!("the configuration cannot be used:\n{problems}"))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<Problems>() {
            Ok(problems) => problems.into(),
            Err(error) => Self::new(Code::Failed, format!("{error:#}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_of_a_task_has_its_exit_code() {
        let codes = TaskState::ALL.map(|state| Code::of_state(Some(state)) as u8);
        // For the states submitted, working, input required, auth required, completed, failed, canceled, rejected.
        assert_eq!(codes, [1, 1, 3, 6, 0, 1, 4, 5]);
        assert_eq!(Code::of_state(None) as u8, 1);
    }

    #[test]
    fn a_refused_option_is_named_as_its_flag() {
        let refused = Error::new(ErrorKind::InvalidRequest, "metadata.shared.model: There is no such model.");
        let failure = Failure::from(refused);
        assert_eq!(
            (failure.code(), failure.to_string().as_str()),
            (Code::Usage, "--model: There is no such model.")
        );
    }

    #[test]
    fn an_error_has_the_exit_code_of_its_kind() {
        for (kind, code) in [
            (ErrorKind::Input, 2),
            (ErrorKind::Unauthenticated, 6),
            (ErrorKind::Forbidden, 6),
            (ErrorKind::Unreachable, 7),
            (ErrorKind::Timeout, 7),
            (ErrorKind::Unavailable, 7),
            (ErrorKind::InvalidResponse, 1),
            (ErrorKind::TaskNotFound, 1),
        ] {
            assert_eq!(Failure::from(Error::new(kind, "x")).code() as u8, code, "{kind:?}");
        }
    }
}
