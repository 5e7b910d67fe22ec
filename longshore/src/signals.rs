//! How the process is told to end.

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Makes a limit on the size of files a failure of the write that meets it. By itself it would end the process.
pub(crate) fn survive_file_limit() -> std::io::Result<()> {
    // Caught and not ignored: what is ignored stays so in the processes that this one starts. It stays caught when the
    // listener is dropped.
    signal(SignalKind::from_raw(Number::XFSZ.as_raw())).map(drop)
}

/// Who asked, which decides what becomes of a managed OpenCode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// Ctrl-C: somebody is done with it all.
    ByPerson,
    /// SIGTERM or a closed terminal: a restart may follow.
    BySystem,
}

impl Ended {
    /// Who asked, when somebody asked again. A person who is done with it all is, whatever else comes before or after.
    pub(crate) fn or(self, again: Self) -> Self {
        if again == Self::ByPerson { again } else { self }
    }
}

/// The signals that end the process, caught from the moment that this is made.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    pub(crate) fn catch() -> std::io::Result<Self> {
        survive_file_limit()?;
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Ended {
        tokio::select! {
            _ = self.interrupt.recv() => Ended::ByPerson,
            _ = self.terminate.recv() => Ended::BySystem,
            _ = self.hangup.recv() => Ended::BySystem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ended::{ByPerson, BySystem};

    #[test]
    fn a_person_is_heard_whatever_else_is_asked() {
        assert_eq!([BySystem.or(BySystem), BySystem.or(ByPerson)], [BySystem, ByPerson]);
        assert_eq!([ByPerson.or(BySystem), ByPerson.or(ByPerson)], [ByPerson, ByPerson]);
    }
}
