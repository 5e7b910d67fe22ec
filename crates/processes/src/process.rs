//! Processes in `/proc`: their identity, whether they are alive, and their descendants.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

/// The environment variable that marks a program that the gateway starts, and all processes that the program starts. Its value is
/// different for each start.
pub const MARKER: &str = "LONGSHORE_MANAGED";

/// A process. The kernel reuses process ids, but not with the same start time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// Clock ticks since the machine started.
    pub start_time: u64,
}

/// The fields of `/proc/PID/stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stat {
    process: Process,
    parent: u32,
    group: u32,
    is_dead: bool,
}

impl Process {
    pub fn find(pid: u32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        (!stat.is_dead).then_some(stat.process)
    }

    pub fn is_alive(self) -> bool {
        Self::find(self.pid) == Some(self)
    }

    /// Sends the signal, if this is still the same process.
    pub fn signal(self, signal: Signal) {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return };
        if self.is_alive()
            && let Err(error) = rustix::process::kill_process(pid, signal)
        {
            tracing::debug!(pid = self.pid, %error, "a process could not be signalled");
        }
    }
}

/// A process that can be recognised even after its id was reused, or after a restart of the machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    #[serde(flatten)]
    process: Process,
    boot: String,
}

impl Identity {
    pub fn of(process: Process) -> Self {
        Self { process, boot: boot_id() }
    }

    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// The process, if it still runs.
    pub fn running(&self) -> Option<Process> {
        (self.boot == boot_id() && self.process.is_alive()).then_some(self.process)
    }
}

/// A value for [`MARKER`]. No other program has it.
pub fn new_marker() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Identifies the current boot of the machine.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The living processes among `root`, its process group, the processes with the marker, and all their descendants; without this
/// process itself.
pub fn process_tree(root: Option<Process>, marker: &str) -> BTreeSet<Process> {
    let stats: Vec<Stat> = all().filter(|stat| !stat.is_dead).collect();
    let mut children: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    for stat in &stats {
        children.entry(stat.parent).or_default().push(stat.process);
    }
    // While the leader of a group lives, the id of the group cannot be that of another one.
    let root = root.filter(|root| stats.iter().any(|stat| stat.process == *root));
    let is_meant = |stat: &&Stat| {
        root.is_some_and(|root| stat.process == root || stat.group == root.pid)
            || has_marker(stat.process.pid, marker)
    };
    let mut waiting: Vec<Process> = stats.iter().filter(is_meant).map(|stat| stat.process).collect();
    let mut tree = BTreeSet::new();
    while let Some(process) = waiting.pop() {
        if process.pid != std::process::id() && tree.insert(process) {
            waiting.extend(children.get(&process.pid).into_iter().flatten());
        }
    }
    tree
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(pid, &text)
    }

    fn parse(pid: u32, text: &str) -> Option<Self> {
        // The second field is the name in parentheses, which may itself contain spaces and parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        // The start time is field 22; the fields up to the fifth are consumed.
        let start_time = fields.nth(16)?.parse().ok()?;
        let is_dead = matches!(state, "Z" | "X" | "x");
        Some(Self { process: Process { pid, start_time }, parent, group, is_dead })
    }
}

fn all() -> impl Iterator<Item = Stat> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Stat::read)
}

/// Whether the process has the marker in its environment. The processes of other users cannot be read, and have no marker.
fn has_marker(pid: u32, marker: &str) -> bool {
    let wanted = format!("{MARKER}={marker}");
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|line| line == wanted.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_does_not_confuse_the_other_fields() {
        let check = |name: &str, state: &str, is_dead: bool| {
            let line = format!(
                "42 ({name}) {state} 7 41 42 0 -1 4194304 1 0 0 0 158 29 0 0 20 0 7 0 111337 760 1\n"
            );
            let process = Process { pid: 42, start_time: 111_337 };
            let expected = Stat { process, parent: 7, group: 41, is_dead };
            assert_eq!(Stat::parse(42, &line), Some(expected), "{line}");
        };
        check("opencode", "S", false);
        check("a b", "R", false);
        check(") S 1 (", "S", false);
        check("gone", "Z", true);
        check("gone", "X", true);
        assert_eq!(Stat::parse(1, ""), None);
        assert_eq!(Stat::parse(1, "1 (short) S 1"), None);
    }

    #[test]
    fn a_process_is_identified_by_id_and_start_time() {
        let me = Process::find(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert!(!Process { start_time: me.start_time + 1, ..me }.is_alive());
        assert!(!boot_id().is_empty());
    }

    #[test]
    fn this_process_is_never_in_the_tree() {
        let me = Process::find(std::process::id()).unwrap();
        assert!(!process_tree(Some(me), "no such marker").contains(&me));
    }
}
