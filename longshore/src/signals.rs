//! Catches the signals that end the process. If TLS is used, SIGHUP instead makes the gateway read the TLS files again.

use std::io::IsTerminal as _;
use std::sync::Arc;

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// Makes a write beyond the file size limit fail with an error. By default, SIGXFSZ would end the process.
pub(crate) fn survive_file_limit() -> std::io::Result<()> {
    // Catch the signal instead of ignoring it, because child processes inherit an ignored signal. It stays caught after the
    // listener is dropped.
    signal(SignalKind::from_raw(Number::XFSZ.as_raw())).map(drop)
}

/// Who ended the gateway. This decides whether a managed OpenCode ends too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// Ctrl-C: the user wants everything to end.
    ByPerson,
    /// SIGTERM or a closed terminal: a restart may follow.
    BySystem,
}

impl Ended {
    /// Combines two signals. If one of them is Ctrl-C, Ctrl-C counts.
    pub(crate) fn or(self, again: Self) -> Self {
        if again == Self::ByPerson { again } else { self }
    }
}

/// The signals that end the process, caught from the creation of this value on.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// Notified on SIGHUP. `None`: SIGHUP ends the process.
    reload: Option<Arc<Notify>>,
    began_on_terminal: bool,
}

impl Signals {
    pub(crate) fn catch() -> std::io::Result<Self> {
        survive_file_limit()?;
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            reload: None,
            began_on_terminal: is_on_terminal(),
        })
    }

    /// Makes SIGHUP notify the returned value instead of ending the process, unless SIGHUP means that the terminal was closed.
    pub(crate) fn reload_on_hangup(&mut self) -> Arc<Notify> {
        Arc::clone(self.reload.get_or_insert_default())
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Ended {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return Ended::ByPerson,
                _ = self.terminate.recv() => return Ended::BySystem,
                _ = self.hangup.recv() => match &self.reload {
                    // When a terminal was closed, standard input is no longer a terminal by the time the signal arrives.
                    Some(reload) if self.began_on_terminal == is_on_terminal() => reload.notify_one(),
                    _ => return Ended::BySystem,
                }
            }
        }
    }
}

fn is_on_terminal() -> bool {
    std::io::stdin().is_terminal() || std::io::stdout().is_terminal() || std::io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::Ended::{ByPerson, BySystem};

    #[test]
    fn ctrl_c_counts_whatever_other_signal_comes() {
        assert_eq!([BySystem.or(BySystem), BySystem.or(ByPerson)], [BySystem, ByPerson]);
        assert_eq!([ByPerson.or(BySystem), ByPerson.or(ByPerson)], [ByPerson, ByPerson]);
    }
}
