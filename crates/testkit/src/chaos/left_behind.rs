//! Finds the processes that a gateway started, directly or indirectly, by a mark in their environment.

use std::ffi::OsString;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::gateway::is_alive;

/// The variable with the mark. Child processes inherit it.
const VARIABLE: &str = "CHAOS_MARK";
/// How long a stopped process may take to end.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The mark of all processes of one world.
#[derive(Clone, Debug)]
pub(super) struct Mark(String);

impl Mark {
    pub(super) fn new() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()))
    }

    pub(super) fn variable(&self) -> (OsString, OsString) {
        (VARIABLE.into(), self.0.clone().into())
    }

    /// A bearer token that only this world knows.
    pub(super) fn token(&self) -> String {
        format!("a-token-for-tests-only-{}", self.0)
    }

    /// The running processes with the mark, each with its command line. Empty without `/proc`.
    pub(super) fn alive(&self) -> Vec<(u32, String)> {
        let wanted = format!("{VARIABLE}={}", self.0);
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let marked = pids.filter(|pid| {
            // Processes of other users, and processes that end meanwhile, cannot be read.
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
        });
        let named = |pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            (pid, String::from_utf8_lossy(&line).replace('\0', " "))
        };
        marked.filter(|pid| is_alive(*pid)).map(named).collect()
    }

    /// The processes that are left after everything was stopped.
    pub(super) async fn left(&self) -> Vec<(u32, String)> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.alive();
            if left.is_empty() || Instant::now() >= deadline {
                return left;
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[tokio::test]
    async fn a_descendant_of_a_marked_process_is_found_until_it_ends() {
        let mark = Mark::new();
        assert_eq!(mark.left().await, []);
        let (name, value) = mark.variable();
        // The parent process ends at once.
        let script = "sleep 600 >/dev/null 2>&1 & echo $!";
        let started = Command::new("sh").args(["-c", script]).env(name, value).stdin(Stdio::null()).output();
        let pid: u32 = String::from_utf8(started.unwrap().stdout).unwrap().trim().parse().unwrap();
        let alive: Vec<u32> = mark.alive().into_iter().map(|(pid, _)| pid).collect();
        assert_eq!(alive, [pid]);
        assert!(Mark::new().alive().is_empty(), "another mark");
        crate::gateway::kill(pid);
        assert_eq!(mark.left().await, []);
    }
}
