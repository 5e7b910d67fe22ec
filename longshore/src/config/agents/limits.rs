//! The limits of the processes of an agent.

use std::time::Duration;

use super::Table;

/// How much an agent may use, and how long it may take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentLimits {
    /// How long an unused process stays. `None`: the agent runs as long as the gateway.
    pub idle_stop: Option<Duration>,
    /// The most open sessions of a process. 0: no limit.
    pub open_sessions: usize,
    /// The most memory of the agent and all processes that it started. `None`: no limit.
    pub memory_bytes: Option<u64>,
    /// How long the agent may take to start, and to open a session. On a busy machine, some agents take half a minute for each.
    pub start_timeout: Duration,
    /// How long the agent may take to end a canceled turn. After that, its process may be ended, so this is much longer than any
    /// tested agent takes.
    pub cancel_timeout: Duration,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            idle_stop: None,
            open_sessions: 16,
            memory_bytes: None,
            start_timeout: Duration::from_mins(2),
            cancel_timeout: Duration::from_secs(30),
        }
    }
}

impl Table<'_, '_> {
    pub(super) fn limits(&mut self) -> AgentLimits {
        let defaults = AgentLimits::default();
        let never = |reason: &str| format!("must be a number of seconds, at most 366 days{reason}");
        let idle_stop = self.seconds("idle_stop", &never(" (0: never)"), Duration::ZERO);
        let shortest = Duration::from_secs(1);
        let start_timeout = self.seconds("start_timeout", &never(", and at least 1"), shortest);
        let cancel_timeout = self.seconds("cancel_timeout", &never(", and at least 1"), shortest);
        let open_sessions = self.count("open_sessions", "must be a whole number (0: no limit)");
        let memory = self.count("memory_limit", "must be a whole number of MiB (0: no limit)");
        AgentLimits {
            idle_stop: idle_stop.filter(|duration| !duration.is_zero()),
            open_sessions: open_sessions.unwrap_or(defaults.open_sessions),
            memory_bytes: memory
                .filter(|mebibytes| *mebibytes > 0)
                .map(|mebibytes| mebibytes as u64 * 1024 * 1024),
            start_timeout: start_timeout.unwrap_or(defaults.start_timeout),
            cancel_timeout: cancel_timeout.unwrap_or(defaults.cancel_timeout),
        }
    }

    fn count(&mut self, name: &str, reason: &str) -> Option<usize> {
        /// More memory in MiB than any machine has. It is low enough that the bytes do not overflow.
        const MOST: u64 = 1 << 40;
        let count = self.fields.get(name)?.as_u64().filter(|count| *count <= MOST);
        let count = count.and_then(|count| usize::try_from(count).ok());
        if count.is_none() {
            self.wrong(name, reason);
        }
        count
    }
}
