//! Terminates a program and all processes that it started.
//!
//! OpenCode, for example, gives each tool its own process group and session, and does not end its tools when it ends. So the tools
//! are searched for twice: before the first signal, while they still descend from the program, and afterwards by the marker in
//! their environment. Each signal goes to one process that is identified by its start time, never to a group, so it cannot
//! reach any other process.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use super::process::{Process, process_tree};

/// How long a process may take to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// How long to wait for a killed process. Only the kernel can delay its end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the processes are checked.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Processes that could not be terminated. Only the kernel can delay the end of a killed process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StillRunning(pub usize);

impl fmt::Display for StillRunning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} killed processes still run", self.0)
    }
}

impl std::error::Error for StillRunning {}

/// Terminates `root`, the processes with the marker, and all their descendants. Returns how many there were.
pub async fn terminate(root: Option<Process>, marker: &str) -> Result<usize, StillRunning> {
    let mut known = found(root, marker).await;
    let mut living = Vec::new();
    for (signal, patience) in [(Signal::TERM, GRACE), (Signal::KILL, PATIENCE)] {
        let mut signalled = BTreeSet::new();
        let deadline = Instant::now() + patience;
        loop {
            living = known.iter().copied().filter(|process| process.is_alive()).collect();
            if living.is_empty() {
                return Ok(known.len());
            }
            for process in &living {
                if signalled.insert(*process) {
                    process.signal(signal);
                }
            }
            if Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(CHECK_EVERY).await;
            // Processes that were started in the meantime.
            known.append(&mut found(root, marker).await);
        }
    }
    Err(StillRunning(living.len()))
}

/// On a thread of its own, because reading `/proc` may take long on a machine with many processes.
async fn found(root: Option<Process>, marker: &str) -> BTreeSet<Process> {
    let marker = marker.to_owned();
    // An error means that the runtime ends.
    tokio::task::spawn_blocking(move || process_tree(root, &marker)).await.unwrap_or_default()
}
