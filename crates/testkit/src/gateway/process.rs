//! Processes and signals.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Nothing signals the end of a process or a new file, so that the tests poll this often.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Waits until `holds`, and panics with `what` if it does not hold within `limit`.
pub async fn until(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + limit;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "expected within {limit:?}: {what}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Whether the process is running. A zombie is not.
pub fn is_alive(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The state follows the name, which is in parentheses and may contain any character.
        Ok(stat) => !matches!(stat.rsplit(") ").next().and_then(|rest| rest.chars().next()), Some('Z' | 'X')),
        Err(_) if cfg!(target_os = "linux") => false,
        Err(_) => rustix::process::test_kill_process(known(pid)).is_ok(),
    }
}

/// Kills the process, as a crash would.
pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// A process that is stopped until this is dropped: it answers nothing, and data that is sent to it waits.
#[derive(Debug)]
pub struct Paused(u32);

impl Paused {
    pub fn new(pid: u32) -> Self {
        signal(pid, Signal::STOP);
        Self(pid)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // The process may have ended meanwhile.
        let _ = kill_process(known(self.0), Signal::CONT);
    }
}

/// The resident memory of the process, from `/proc`.
pub fn resident_kilobytes(pid: u32) -> u64 {
    kilobytes(pid, "VmRSS:")
}

/// The most resident memory that the process has had, from `/proc`.
pub fn peak_kilobytes(pid: u32) -> u64 {
    kilobytes(pid, "VmHWM:")
}

fn kilobytes(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux says how much memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number of kB")
}

pub(super) fn signal(pid: u32, signal: Signal) {
    kill_process(known(pid), signal).expect("a test may signal the processes that it started");
}

fn known(pid: u32) -> Pid {
    let pid = i32::try_from(pid).expect("a process id is a positive number");
    Pid::from_raw(pid).expect("a process id is not zero")
}
