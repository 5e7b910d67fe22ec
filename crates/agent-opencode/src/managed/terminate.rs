//! Terminates an OpenCode and all processes that it started.
//!
//! OpenCode gives each tool its own process group and session, and does not end its tools when it ends. So the tools are
//! searched for twice: before the first signal, while they still descend from OpenCode, and afterwards by the marker in
//! their environment. Each signal goes to one process that is identified by its start time, never to a group, so it cannot
//! reach any other process.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore_model::{Error, Result};
use rustix::process::Signal;
use tokio::time::Instant;

use super::process::{self, Process};
use super::record::Record;

/// How long a process may take to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// How long to wait for a killed process. Only the kernel can delay its end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the processes are checked.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Terminates all processes and returns their number.
pub(super) async fn terminate(record: &Record) -> Result<usize> {
    let mut known = process_tree(record).await?;
    for (signal, patience) in [(Signal::TERM, GRACE), (Signal::KILL, PATIENCE)] {
        let mut signalled = BTreeSet::new();
        let deadline = Instant::now() + patience;
        loop {
            let living: Vec<Process> = known.iter().copied().filter(|process| process.is_alive()).collect();
            if living.is_empty() {
                return Ok(known.len());
            }
            for process in living {
                if signalled.insert(process) {
                    process.signal(signal);
                }
            }
            if Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(CHECK_EVERY).await;
            // Processes that were started in the meantime.
            known.append(&mut process_tree(record).await?);
        }
    }
    Err(super::unavailable(
        "OpenCode, or a tool that it left running, cannot be terminated. End the processes by hand.",
    ))
}

async fn process_tree(record: &Record) -> Result<BTreeSet<Process>> {
    let (root, marker) = (record.running_process(), record.marker.clone());
    tokio::task::spawn_blocking(move || process::process_tree(root, &marker)).await.map_err(Error::internal)
}
