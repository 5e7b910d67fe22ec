//! Processes as the operating system sees them.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{END, Gateway};

/// Nothing outside tells when a process ends or a file appears, so the tests look this often.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Waits until `holds`, and fails in plain words when it does not within `limit`.
pub async fn until(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + limit;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "expected within {limit:?}: {what}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Whether the process runs. One that has ended but that nobody has waited for does not run.
pub fn is_alive(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The state follows the name, which stands in parentheses and may itself hold any character.
        Ok(stat) => !matches!(stat.rsplit(") ").next().and_then(|rest| rest.chars().next()), Some('Z' | 'X')),
        Err(_) if cfg!(target_os = "linux") => false,
        Err(_) => rustix::process::test_kill_process(known(pid)).is_ok(),
    }
}

/// Ends the process as a crash would.
pub fn kill(pid: u32) {
    kill_process(known(pid), Signal::KILL).expect("the test may end the process that it started");
}

/// A process that stands still until this is dropped: it answers nothing, and nothing that is sent to it is lost.
#[derive(Debug)]
pub struct Paused(u32);

impl Paused {
    pub fn new(pid: u32) -> Self {
        kill_process(known(pid), Signal::STOP).expect("the test may stop the process that it had started");
        Self(pid)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // It may have been ended meanwhile.
        let _ = kill_process(known(self.0), Signal::CONT);
    }
}

/// How much memory the process holds, from `/proc`.
pub fn resident_kilobytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("VmRSS is a number of kB")
}

pub(super) fn terminate(pid: u32) {
    kill_process(known(pid), Signal::TERM).expect("the test may end the process that it started");
}

impl Gateway {
    /// Ends the gateway as Ctrl-C on its terminal does, and waits for it.
    pub async fn interrupt(&mut self) -> std::process::ExitStatus {
        let mut child = self.child.take().expect("the gateway runs");
        kill_process(known(child.id()), Signal::INT).expect("the test may end the process that it started");
        let mut status = None;
        until(END, "the gateway ends after SIGINT", || {
            status = child.try_wait().expect("a child can be waited for");
            status.is_some()
        })
        .await;
        status.expect("the wait above ends with a status")
    }
}

fn known(pid: u32) -> Pid {
    let pid = i32::try_from(pid).expect("a process id is a positive number");
    Pid::from_raw(pid).expect("a process id is not zero")
}
