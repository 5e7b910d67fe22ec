//! Ends an OpenCode and whatever it started.
//!
//! OpenCode gives each tool a process group and a session of its own, and does not take them along when it ends. So
//! they are looked for before the first signal, while they still descend from it, and afterwards by the marker in
//! their environment. Each signal goes to one process that is known by its start time, never to a group: nothing
//! else can be hit.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore_model::{Error, Result};
use rustix::process::Signal;
use tokio::time::Instant;

use super::process::{self, Process};
use super::record::Record;

/// After so long a process that was asked to end is made to.
const GRACE: Duration = Duration::from_secs(3);

/// After so long a process that was made to end is given up; only the kernel can keep it so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often we look.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Ends all of it and says how many processes that were.
pub(super) async fn end(record: &Record) -> Result<usize> {
    let mut known = family(record).await?;
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
            tokio::time::sleep(LOOK_EVERY).await;
            // What was started since we looked.
            known.append(&mut family(record).await?);
        }
    }
    Err(super::unavailable("OpenCode, or a tool that it left running, cannot be ended. Look for it by hand."))
}

async fn family(record: &Record) -> Result<BTreeSet<Process>> {
    let (root, marker) = (record.living(), record.marker.clone());
    tokio::task::spawn_blocking(move || process::family(root, &marker)).await.map_err(Error::internal)
}
