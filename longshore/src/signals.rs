//! How the process is told to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Who asked, which decides what becomes of a managed OpenCode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// Ctrl-C: somebody is done with it all.
    ByPerson,
    /// SIGTERM or a closed terminal: a restart may follow.
    BySystem,
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
